"""What a run of a test tells: JUnit files that pytest really wrote, and exit statuses."""

from __future__ import annotations

import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Final

import pytest

from command_line import environment
from cortex_m_hil.campaigns.bisection.run_verdicts import (
    Rules,
    RunJudgement,
    RunVerdict,
    cases_of,
    judge_run,
    with_junit,
)
from cortex_m_hil.errors import ConfigError
from reruns import WITH_TEARDOWN, WITHOUT_TEARDOWN

TESTS = """
import pytest
from cortex_m_hil.errors import BuildError, ConfigError, HilWarning, LinkError, LintError, Mismatch, ToolchainError

def test_pass(): pass
def test_fail(): assert False
def test_skip(): pytest.skip("why")
@pytest.mark.xfail
def test_xfail(): assert False
@pytest.mark.xfail(strict=True)
def test_xpass(): pass
@pytest.fixture
def broken(): raise OSError("no board")
def test_broken(broken): pass

def test_hil_pass(target_spec): pass
def test_hil_fail(target_spec): raise Mismatch("wrong")
def test_hil_operator(target_spec): raise LintError("layout", operator="cortex_m::quantized_linear.out")
def test_hil_stage(target_spec):
    error = Mismatch("departs")
    error.stage = "features"
    raise error
def test_hil_other(target_spec): raise AttributeError("too old")
def test_hil_infra(target_spec): raise LinkError("cable")
def test_hil_error(target_spec): raise ConfigError("wrong call")
def test_hil_old(target_spec): raise ToolchainError("this ExecuTorch is too old")
def test_hil_warning(target_spec): raise HilWarning("proves nothing")
def test_hil_build(target_spec): raise BuildError("a syntax error")
"""

FLAKY = """
import pytest
from cortex_m_hil.errors import LinkError, Mismatch

tried = []

def fail_first(name, error):
    tried.append(name)
    if tried.count(name) == 1:
        raise error

@pytest.fixture
def flaky_board(): fail_first("board", LinkError("cable"))
@pytest.fixture
def bad_end():
    yield
    raise LinkError("cable")

def test_flaky(target_spec): fail_first("test", Mismatch("wrong"))
def test_flaky_setup(target_spec, flaky_board): pass
def test_wrong(target_spec): raise Mismatch("wrong")
def test_wrong_twice(target_spec, bad_end): raise Mismatch("wrong")
def test_bad_twice(target_spec, bad_end): raise LinkError("cable")
"""


@pytest.fixture(scope="module")
def elements(tmp_path_factory: pytest.TempPathFactory) -> dict[str, ElementTree.Element]:
    """What pytest writes of each test, on `native` and on a target that has a fallback here."""
    folder = tmp_path_factory.mktemp("tests")
    (folder / "test_it.py").write_text(TESTS)
    (folder / "test_import.py").write_text("import nothing_of_this_name\n")
    words = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--continue-on-collection-errors"]
    command = with_junit([*words, "--target=native,m4-fvp"], folder / "junit.xml")
    assert command is not None
    done = subprocess.run(command, cwd=folder, env=environment(), capture_output=True, timeout=300, check=False)
    assert done.returncode == 1
    root = ElementTree.parse(folder / "junit.xml")
    return {one.get("name", "").removeprefix("test_"): one for one in root.iter("testcase")}


@pytest.fixture(scope="module")
def repeated(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Gives the file that pytest writes of tests whose failed attempts a plugin repeats."""

    @cache
    def run(repeats: str) -> Path:
        folder = tmp_path_factory.mktemp("repeated")
        (folder / "conftest.py").write_text(repeats)
        (folder / "test_it.py").write_text(FLAKY)
        command = with_junit([sys.executable, "-m", "pytest", "--target=native"], folder / "junit.xml")
        assert command is not None
        done = subprocess.run(command, cwd=folder, env=environment(), capture_output=True, timeout=300, check=False)
        assert done.returncode == 1
        return folder / "junit.xml"

    return run


Run = Callable[..., RunJudgement]
ALL: Final = Rules()


@pytest.fixture
def run(elements: dict[str, ElementTree.Element], tmp_path: Path) -> Run:
    """Judges a run of these tests alone."""

    def run(names: str, status: int, rules: Rules = ALL) -> RunJudgement:
        root = ElementTree.Element("testsuites")
        root.extend(elements[name] for name in names.split())
        ElementTree.ElementTree(root).write(tmp_path / "junit.xml")
        return judge_run(["pytest"], status, tmp_path / "junit.xml", rules)

    return run


@pytest.mark.parametrize(
    ("names", "status", "told", "why"),
    [
        ("pass xfail skip", 0, RunVerdict.PASS, ""),
        ("pass fail", 1, RunVerdict.FAIL, "FAIL test_it::test_fail"),
        ("pass xpass", 1, RunVerdict.FAIL, "FAIL test_it::test_xpass"),
        ("skip", 0, RunVerdict.SKIP, "no test ran"),
        ("pass broken", 1, RunVerdict.SKIP, "ERROR test_it::test_broken"),
        ("", 4, RunVerdict.SKIP, "pytest's exit status 4"),
        ("", 5, RunVerdict.SKIP, "no test ran"),
        ("import", 2, RunVerdict.SKIP, "ERROR ::test_import"),
        ("hil_pass[native]", 0, RunVerdict.PASS, ""),
        (
            "hil_pass[native] hil_infra[native]",
            1,
            RunVerdict.INFRA,
            "INFRA LinkError test_it.py::test_hil_infra [native]",
        ),
        (
            "hil_pass[native] hil_old[native]",
            1,
            RunVerdict.SKIP,
            "INFRA ToolchainError test_it.py::test_hil_old [native]",
        ),
        ("hil_build[native]", 1, RunVerdict.SKIP, "INFRA BuildError test_it.py::test_hil_build [native]"),
        (
            "hil_build[native] hil_infra[native]",
            1,
            RunVerdict.INFRA,
            "INFRA BuildError test_it.py::test_hil_build [native], and 1 more test",
        ),
        ("hil_fail[native] hil_infra[native]", 1, RunVerdict.FAIL, "FAIL Mismatch test_it.py::test_hil_fail [native]"),
        (
            "hil_pass[native] hil_error[native]",
            1,
            RunVerdict.SKIP,
            "ERROR ConfigError test_it.py::test_hil_error [native]",
        ),
    ],
)
def test_pytest_is_judged_by_its_verdicts(names: str, status: int, told: RunVerdict, why: str, run: Run) -> None:
    found = run(names, status)
    assert (found.told, found.why) == (told, why)
    assert tuple(cases_of(found.figures)) == found.cases


def test_a_case_has_the_class_of_its_target_and_the_operator_or_stage_that_its_error_names(run: Run) -> None:
    """Of a program that lint refused nothing was localised."""
    passed, refused, departed = run("hil_pass[native] hil_operator[native] hil_stage[native]", 1).cases
    assert (passed.isa, passed.at_fault) == ("SCALAR", "")
    assert (refused.isa, refused.error, refused.at_fault) == ("SCALAR", "LintError", "cortex_m::quantized_linear.out")
    assert departed.at_fault == "stage features"


@pytest.mark.first_only
@pytest.mark.parametrize("repeats", [WITHOUT_TEARDOWN, WITH_TEARDOWN], ids=["without teardown", "with teardown"])
@pytest.mark.parametrize(
    ("name", "told", "why"),
    [
        ("flaky", RunVerdict.PASS, ""),
        ("flaky_setup", RunVerdict.PASS, ""),
        ("wrong", RunVerdict.FAIL, "FAIL Mismatch test_it.py::test_wrong [native]"),
        ("wrong_twice", RunVerdict.FAIL, "FAIL Mismatch test_it.py::test_wrong_twice [native]"),
        ("bad_twice", RunVerdict.INFRA, "INFRA LinkError test_it.py::test_bad_twice [native]"),
    ],
)
def test_the_last_attempt_of_a_test_counts(
    name: str, told: RunVerdict, why: str, repeats: str, repeated: Callable[[str], Path], tmp_path: Path
) -> None:
    root = ElementTree.parse(repeated(repeats)).getroot()
    for suite in root:
        for one in [one for one in suite if one.get("name") != f"test_{name}[native]"]:
            suite.remove(one)
    ElementTree.ElementTree(root).write(tmp_path / "junit.xml")
    found = judge_run(["pytest"], int(told is not RunVerdict.PASS), tmp_path / "junit.xml", ALL)
    assert (found.told, found.why) == (told, why)


def test_only_the_errors_that_are_looked_for_count(run: Run) -> None:
    rules = Rules(raises=("Mismatch",))
    assert run("hil_fail[native] hil_other[native]", 1, rules).told is RunVerdict.FAIL
    assert run("hil_other[native]", 1, rules).told is RunVerdict.SKIP
    assert run("hil_other[native]", 1).told is RunVerdict.FAIL


def test_a_warning_that_filters_make_an_error_counts_only_where_it_is_looked_for(run: Run) -> None:
    found = run("hil_pass[native] hil_warning[native]", 1)
    assert (
        found.told is RunVerdict.SKIP
        and "no verdict on the program" in found.why
        and "--raises HilWarning" in found.why
    )
    assert run("hil_warning[native] hil_fail[native]", 1).told is RunVerdict.FAIL
    assert run("hil_warning[native]", 1, Rules(raises=("HilWarning",))).told is RunVerdict.FAIL


def test_a_fallback_is_refused_unless_it_is_allowed(run: Run) -> None:
    with pytest.raises(ConfigError, match=r"m4-fvp → .*: a fallback(.|\n)*--allow-fallback"):
        run("hil_pass[m4-fvp]", 0)
    assert run("hil_pass[m4-fvp]", 0, Rules(allow_fallback=True)).told is RunVerdict.PASS


def test_a_run_without_a_file_or_that_ends_otherwise_tells_nothing(tmp_path: Path) -> None:
    file = tmp_path / "junit.xml"
    assert judge_run(["pytest"], 1, file, Rules()).told is RunVerdict.INFRA
    file.write_text("<testsuites><testcase")
    assert judge_run(["pytest"], 1, file, Rules()).told is RunVerdict.INFRA
    file.write_text("<testsuites><testcase name='a' classname='b'/></testsuites>")
    assert judge_run(["pytest"], 0, file, Rules()).told is RunVerdict.PASS
    assert {judge_run(["pytest"], status, file, Rules()).told for status in (1, 3, -11)} == {RunVerdict.INFRA}
    assert judge_run(["pytest"], None, file, Rules()).told is RunVerdict.INFRA


@pytest.mark.parametrize(
    ("status", "told", "of_hil"),
    [
        (0, RunVerdict.PASS, RunVerdict.PASS),
        (1, RunVerdict.FAIL, RunVerdict.FAIL),
        (2, RunVerdict.FAIL, RunVerdict.INFRA),
        (124, RunVerdict.FAIL, RunVerdict.INFRA),
        (125, RunVerdict.SKIP, RunVerdict.SKIP),
        (126, RunVerdict.INFRA, RunVerdict.INFRA),
        (127, RunVerdict.INFRA, RunVerdict.INFRA),
        (130, RunVerdict.INFRA, RunVerdict.INFRA),
        (-9, RunVerdict.INFRA, RunVerdict.INFRA),
        (None, RunVerdict.INFRA, RunVerdict.INFRA),
    ],
)
def test_other_commands_are_judged_by_their_exit_status(
    status: int | None, told: RunVerdict, of_hil: RunVerdict
) -> None:
    assert judge_run(["make", "check"], status, None, Rules()).told is told
    for command in (["/venv/bin/hil", "run"], [sys.executable, "-m", "cortex_m_hil.cli", "run"]):
        assert judge_run(command, status, None, Rules()).told is of_hil


def test_pytest_is_known_by_how_it_is_called() -> None:
    file, option = Path("/f"), "--junit-xml=/f"
    assert with_junit(["pytest", "-x"], file) == ["pytest", option, "-x"]
    assert with_junit([sys.executable, "-m", "pytest", "a"], file) == [sys.executable, "-m", "pytest", option, "a"]
    assert with_junit(["env", "A=b", "/venv/bin/pytest"], file) == ["env", "A=b", "/venv/bin/pytest", option]
    for other in (["make", "pytest"], ["sh", "-c", "pytest"], ["ls", "pytest"]):
        assert with_junit(other, file) is None
    for given in ("--junit-xml=mine", "--junitxml"):
        with pytest.raises(ConfigError, match="one JUnit file"):
            with_junit(["pytest", given], file)
