"""--hil-quarantine: what is expected to fail, what is not, and what is told of it."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import date, timedelta

import pytest

from cortex_m_hil.host.paths import cache_directory

pytest_plugins = ["pytester"]

CACHE = cache_directory()  # before pytester moves HOME
TESTS = """
import pytest
from cortex_m_hil.errors import ConfigError, LaunchError

@pytest.mark.parametrize("way", ["fails", "passes", "infra", "mistake"])
def test_it(hil, way):
    if way == "infra":
        raise LaunchError("gone")
    if way == "mistake":
        raise ConfigError("written wrongly")
    assert way != "fails"

def test_other(hil):
    assert False
"""
Run = Callable[..., str]
ENTRY = "quarantine:\n  - test: {test}\n    target: {target}\n    reason: known since long\n    until: {until}\n"


@pytest.fixture
def run(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.setenv("HIL_CACHE_DIR", str(CACHE))
    pytester.makepyfile(TESTS)

    def call(test: str, target: str = "'*'", days: int = 0) -> str:
        until = date.today() + timedelta(days)
        pytester.makefile(".yaml", quarantine=ENTRY.format(test=test, target=target, until=until))
        options = ["--target=native", "-rxX", "-n0", "--hil-quarantine=quarantine.yaml"]
        return str(pytester.runpytest_subprocess(*options).stdout)

    return call


def counts(out: str) -> str:
    return str(re.findall(r"^=+ (.*) in .*=$", out, re.MULTILINE)[-1])


def test_a_verdict_is_expected_and_an_infra_error_is_not(run: Run) -> None:
    out = run("'*::test_it*'")
    assert counts(out) == "2 failed, 1 passed, 1 xfailed, 1 error"
    assert "quarantined: known since long" in out
    assert "quarantined, and passed: " in out and "test_it[native-passes] (known since long)" in out


@pytest.mark.first_only
@pytest.mark.parametrize(
    ("test", "target", "days"),
    [("'*::test_it*'", "'m4-*'", 0), ("'*::test_it*'", "native", -1), ("'*::test_none'", "native", 0)],
)
def test_what_does_not_match_fails(run: Run, test: str, target: str, days: int) -> None:
    out = run(test, target, days)
    assert counts(out) == "3 failed, 1 passed, 1 error"
    assert out.count("ended on") == (2 if days < 0 else 0)  # in the header, and at the end


def test_brackets_of_a_pattern_are_those_of_parameters(run: Run) -> None:
    assert counts(run("'*::test_it[fails]'")) == "2 failed, 1 passed, 1 xfailed, 1 error"


@pytest.mark.first_only
@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("quarantine:\n  - test: a\n", "reason: missing"),
        ("quarantine:\n  - test: a\n    reason: b\n    until: soon\n", "until"),
        ("quarantine:\n  - test: a\n    reason: ''\n    until: 2030-01-01\n", "reason"),
        ("quarantine:\n  - tests: a\n    reason: b\n    until: 2030-01-01\n", "unknown key 'tests'"),
        ("- test: a\n", "expected a mapping"),
    ],
)
def test_a_wrong_file_is_told_with_its_line(pytester: pytest.Pytester, text: str, said: str) -> None:
    pytester.makefile(".yaml", q=text)
    result = pytester.runpytest_subprocess("--target=native", "--hil-quarantine=q.yaml")
    err = result.stderr.str()
    assert result.ret == pytest.ExitCode.USAGE_ERROR and said in err and re.search(r"q\.yaml:\d+", err) and "→" in err
