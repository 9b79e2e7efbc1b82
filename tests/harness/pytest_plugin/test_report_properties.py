"""What tests record, in the files that other tools read: JUnit, with workers."""

from __future__ import annotations

import re
import xml.etree.ElementTree as xml
from pathlib import Path

import pytest

from cortex_m_hil.diagnose.memory_fit import Region
from cortex_m_hil.host.paths import cache_directory
from cortex_m_hil.targets.target import Clock
from junit_schema import invalid
from paths import REPOSITORY

pytest_plugins = ["pytester"]

CACHE = cache_directory()  # before pytester moves HOME
DEADLINE = 600.0
TESTS = """
import pytest, torch
from cortex_m_hil.program.known_answer import known_answer
from cortex_m_hil.errors import LaunchError

class Zero(torch.nn.Linear):
    def forward(self, x):
        y = super().forward(x)
        return y - y

def test_zero(hil):
    hil.check(Zero(8, 4), (torch.rand(1, 8),))

def test_twice(hil, run_pte):
    known = known_answer(hil.isa)
    run_pte(known.program, known.inputs)
    run_pte(known.program, known.inputs)

def test_infra(hil): raise LaunchError("gone")
def test_call(hil): hil.check()
@pytest.mark.requires("mve")
def test_skipped(hil): pass
def test_plain(): pass
"""


SUITE = 'name="a" tests="1" failures="0" errors="0" skipped="0" time="0.1" timestamp="2026-11-24T15:00:00+00:00"'
CASE = 'classname="a" name="b" time="0.1"'


@pytest.mark.parametrize(
    ("suite", "case", "inside", "wrong"),
    [
        (SUITE, CASE, "", ""),
        (SUITE, CASE, '<failure message="m">log</failure>', ""),
        (SUITE, f'{CASE} file="c"', "", "'file' attribute not allowed"),
        (SUITE, 'name="b" time="0.1"', "", "missing required attribute 'classname'"),
        (SUITE, CASE, "<note/>", "Unexpected child with tag 'note'"),
        (SUITE, CASE, '<failure message="m"/><error message="m"/>', "Unexpected child with tag 'error'"),
        (SUITE, CASE, '<properties><property name="n"/></properties>', "missing required attribute 'value'"),
        (SUITE.replace('tests="1"', 'tests="one"'), CASE, "", "attribute tests='one'"),
    ],
)
def test_the_schema_of_junit_files_finds_what_is_wrong(suite: str, case: str, inside: str, wrong: str) -> None:
    found = invalid(f"<testsuites><testsuite {suite}><testcase {case}>{inside}</testcase></testsuite></testsuites>")
    assert len(found) == bool(wrong) and wrong in "".join(found)


@pytest.mark.first_only
@pytest.mark.parametrize("workers", [[], ["-n2"]], ids=["single", "xdist"])
def test_a_junit_file_has_what_the_docs_list_and_is_valid(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, workers: list[str]
) -> None:
    monkeypatch.setenv("HIL_CACHE_DIR", str(CACHE))
    pytester.makepyfile(TESTS)
    run = pytester.runpytest_subprocess("--target=native", "--junit-xml=report.xml", *workers, timeout=DEADLINE)
    run.assert_outcomes(passed=3, failed=1, errors=1, skipped=1, warnings=1)
    assert invalid((pytester.path / "report.xml").read_text()) == []
    tree = xml.parse(pytester.path / "report.xml").getroot()
    found = {case.get("name"): properties(case) for case in tree.iter("testcase")}
    of_others = {f"hil_{clock.value}" for clock in Clock} - {"hil_host_ticks"}  # clocks that `native` does not have
    of_others |= {"hil_at_fault", "hil_wrong_layout", "hil_operator"}  # of wrong outputs and other verdicts
    of_others |= {"hil_bundle", "hil_quarantine", "hil_quarantine_ended", "hil_watched_bytes"}  # of options
    of_others |= {"hil_known_bugs", "hil_missing_elsewhere"}  # of what the other runtime would make of it
    of_others |= {"hil_latency_ticks", "hil_stage"}  # of channels
    of_others |= {"hil_runtime_reason", "hil_runtime_difference"}  # of `auto`, and of two runtimes
    of_others |= {f"hil_fit_{region.value}_bytes" for region in Region} | {"hil_not_fitted"}  # of hil nightly
    assert {name for one in found.values() for name, _ in one} == documented() - of_others
    assert of_others < documented()
    verdicts = {name: [value for key, value in one if key == "hil_verdict"] for name, one in found.items()}
    assert verdicts == {
        "test_zero[native]": ["PASS"], "test_twice[native]": ["PASS"], "test_infra[native]": ["INFRA"],
        "test_call[native]": ["ERROR"], "test_skipped[native]": ["SKIP"], "test_plain": [],
    }  # fmt: skip
    zero = dict(found["test_zero[native]"])
    assert (zero["hil_uninformative"], zero["hil_max_quanta"], zero["hil_seed"]) == ("1", "0", "0")
    assert re.fullmatch(r"[0-9a-f]+", zero["hil_build_id"]) and int(zero["hil_pte_bytes"]) > 1000
    assert float(zero["hil_lower_seconds"]) > 0 and float(zero["hil_run_seconds"]) > 0
    twice = found["test_twice[native]"]
    assert len({one for one in twice if one[0] == "hil_outputs"}) == 1
    assert [name for name, _ in twice].count("hil_run_seconds") == 2
    assert "hil_lower_seconds" not in dict(twice)


def properties(case: xml.Element) -> list[tuple[str, str]]:
    return [(one.get("name") or "", one.get("value") or "") for one in case.iter("property")]


def documented() -> set[str]:
    text = Path(REPOSITORY / "docs" / "writing-tests.md").read_text()
    properties = text[text.index("| `hil_test` |") :].partition("\n\n")[0]
    return set(re.findall(r"^\| `(hil_\w+)` \| [^|]+ \|$", properties, re.MULTILINE))
