"""Tests of a user's with programs that exist already: `hil_cases`, `hil.check_program`, and the marker `hil_budget`."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from bundling import bundle
from cortex_m_hil import flow
from cortex_m_hil.diagnose.failure_bundle_file import read_bundle
from cortex_m_hil.diagnose.replay import replay
from cortex_m_hil.host.paths import cache_directory
from cortex_m_hil.program.known_answer import known_answer
from cortex_m_hil.targets.cpu import Isa
from cortex_m_hil.targets.load import load_targets
from cortex_m_hil.targets.resolve import resolve

pytest_plugins = ["pytester"]

CACHE = cache_directory()  # before pytester moves HOME
DEADLINE = 300.0  # seconds
KNOWN = known_answer(Isa.DSP)
X, Y = KNOWN.inputs[0].array(), KNOWN.expected[0].array()
TESTS = """
import pathlib
import numpy as np, pytest
from cortex_m_hil import hil_cases
from cortex_m_hil.errors import BudgetExceeded

MODELS = pathlib.Path(__file__).parent / "models"
X, Y = [np.load(MODELS / f"{name}.npy") for name in "xy"]

@hil_cases("models/**/*.bpte")
def test_case(hil, case):
    hil.check_program(case)

class TestOfAll:
    @hil_cases("models/k*.bpte", argument="one")
    def test_here(self, hil, one): hil.check_program(one)

@pytest.mark.hil_budget(ram="1K", flash="4K")
@pytest.mark.hil_budget("*-qemu", instructions=10_000)
def test_budget(hil):
    hil.check_program("models/small.pte", [X], [Y])

@pytest.mark.hil_budget(ram=1)
def test_large(hil):
    hil.check_program("models/small.pte", [X], [Y])

@pytest.mark.hil_budget(ram=79)
@pytest.mark.xfail_on("*", reason="large", raises=BudgetExceeded)
def test_known(run_pte): run_pte(MODELS / "small.pte", [X])

def test_wrong(hil):
    hil.check_program("models/small.pte", [X], [Y + 1])
"""


@pytest.fixture(autouse=True)
def shared_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HIL_CACHE_DIR", str(CACHE))


@pytest.fixture
def suite(pytester: pytest.Pytester) -> Path:
    """A folder of tests with programs below it, from which pytest is not started."""
    folder = pytester.path / "tests"
    (folder / "models" / "old").mkdir(parents=True)
    (folder / "test_it.py").write_text(TESTS)
    (folder / "models" / "small.pte").write_bytes(KNOWN.program)
    np.save(folder / "models" / "x.npy", X)
    np.save(folder / "models" / "y.npy", Y)
    cases = [((X,), (Y,)), ((X,), (-Y,))]
    for name, chosen in (("kws", cases[:1] * 2), ("old/kws", cases[:1]), ("old/vww", cases)):
        (folder / "models" / f"{name}.bpte").write_bytes(bundle(folder / "models" / "small.pte", chosen))
    return folder


CASES = ["models/kws-forward-0", "models/kws-forward-1", "models/old/kws-forward-0", "vww-forward-0", "vww-forward-1"]


def test_each_case_is_a_test_on_each_target(pytester: pytest.Pytester, suite: Path) -> None:
    """Which fails as others do: with exit status, message, bundle and properties."""
    arguments = ["--target=native,m4-qemu", "--hil-bundles=out", "--junit-xml=report.xml", "tests"]
    result = pytester.runpytest_subprocess("-v", *arguments, timeout=DEADLINE)
    result.assert_outcomes(passed=2 * (4 + 2 + 1), failed=2 * 3, xfailed=2)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    ids = re.findall(r"::test_case\[native-(\S+)\] (\w+)", result.stdout.str())
    assert ids == [(one, "FAILED" if one == "vww-forward-1" else "PASSED") for one in CASES]
    assert re.findall(r"::test_here\[m4-qemu-(\S+)\] PASSED", result.stdout.str()) == ["kws-forward-0", "kws-forward-1"]
    result.stdout.fnmatch_lines(
        [
            "*Mismatch: output 0: eager: SQNR against what is expected is -6.0 dB*target native*",
            "*program:*vww, test case 1 (*tests/models/old/vww.bpte)",
            "*tests/test_it.py::test_large[[]native[]]: BudgetExceeded: small: 80 bytes of ram, 1 allowed: *",
        ]
    )
    report = (pytester.path / "report.xml").read_text()
    for one in ('hil_error" value="BudgetExceeded', 'hil_max_quanta" value="0', 'hil_instructions" value="7051'):
        assert f'name="{one}"' in report
    verdicts = {}
    for path in sorted((pytester.path / "out").iterdir()):
        found = read_bundle(path)
        with flow.open_dut(resolve(found.description.machine.target.name, load_targets())) as dut:
            again = replay(found, dut)
        assert again.reproduced and found.judges, again.differences
        verdicts[path.name.partition("_native")[0].partition("_m4")[0]] = found.description.verdict.type
    assert verdicts == {
        "tests_test_it.py_test_case": "Mismatch",
        "tests_test_it.py_test_large": "BudgetExceeded",
        "tests_test_it.py_test_wrong": "Mismatch",
    }


def test_workers_and_k_know_the_cases(pytester: pytest.Pytester, suite: Path) -> None:
    arguments = ["--target=native,m4-qemu", "-n2", "-k", "test_case and kws-forward", "tests/test_it.py"]
    pytester.runpytest_subprocess(*arguments, timeout=DEADLINE).assert_outcomes(passed=6)


def test_files_that_are_no_cases_are_errors_of_collection(pytester: pytest.Pytester, suite: Path) -> None:
    (suite / "test_it.py").unlink()
    (suite / "models" / "broken.bpte").write_bytes((suite / "models" / "kws.bpte").read_bytes()[:-100])
    (suite / "models" / "noise.bpte").write_bytes(b"noise")
    (suite / "models" / "empty.bpte").write_bytes(bundle(suite / "models" / "small.pte", []))
    (suite / "models" / "folder.bpte").mkdir()
    told = {
        "models/none*.bpte": f"ConfigError: no file matches in {suite}",
        "models/broken.bpte": f"ProgramRejected: {suite}/models/broken.bpte: ",
        "models/noise.bpte": f"ProgramRejected: {suite}/models/noise.bpte: ",
        "models/empty.bpte": f"ConfigError: {suite}/models/empty.bpte has no test cases",
        "models/small.pte": f"ConfigError: {suite}/models/small.pte has no test cases",
        "models/folder.bpte": f"ConfigError: cannot read {suite}/models/folder.bpte: ",
    }
    for number, pattern in enumerate(told):
        text = f"from cortex_m_hil import hil_cases\n\n@hil_cases({pattern!r})\ndef test_it(hil, case): pass\n"
        (suite / f"test_bad_{number}.py").write_text(text)
    (suite / "test_bad_call.py").write_text("from cortex_m_hil import hil_cases\n@hil_cases\ndef test_it(case): pass\n")
    result = pytester.runpytest_subprocess("--target=native", "tests", timeout=DEADLINE)
    assert result.ret == pytest.ExitCode.INTERRUPTED
    result.assert_outcomes(errors=len(told) + 1)
    for number, (pattern, message) in enumerate(told.items()):
        assert f"tests/test_bad_{number}.py:3: test_it: hil_cases({pattern!r}): {message}" in result.stdout.str()
    assert "hil_cases: pattern takes str, not function" in result.stdout.str()


def test_budgets_that_say_nothing_are_errors_of_their_tests(pytester: pytest.Pytester, suite: Path) -> None:
    mistakes = {
        "hil_budget()": "hil_budget(): no limit: instructions=, flash=, ram= or bank=",
        "hil_budget(ram='1Q')": "'1Q' is not a size such as 65536, 64K or 2M",
        "hil_budget(1000)": "hil_budget(1000): no limit",
        "hil_budget(7, ram=1)": "a target's name or a pattern, not 7",
        "hil_budget(bank=1)": "hil_budget(bank=1): *bank=1: sizes by the names of regions",
        "hil_budget('m4qemu', ram=1)": "hil_budget('m4qemu'): no target has such a name",
        "hil_budget(instructions=99)": "a budget of 99 instructions cannot be judged",
    }
    lines = ["import pytest, numpy as np", f"X, Y = [np.load(f'{suite}/models/{{name}}.npy') for name in 'xy']"]
    for number, mark in enumerate(mistakes):
        test = f"def test_{number}(hil): hil.check_program('models/small.pte', [X], [Y])"
        lines += [f"@pytest.mark.{mark}", test]
    lines += ["@pytest.mark.hil_budget(ram=1)", "def test_nothing(hil): pass"]
    lines += ["@pytest.mark.hil_budget(ram=1)", "def test_no_fixture(hil_dut): pass"]
    lines += ["@pytest.mark.hil_budget(ram=1)", "def test_no_target(): pass"]
    lines += ["@pytest.mark.hil_budget('m55-*', ram=1)", "def test_elsewhere(hil): pass"]
    lines += ["@pytest.mark.hil_budget(ram=1)", "class TestOthers:", "    def test_idle(self, hil): pass"]
    lines += ["def test_missing(hil): hil.check_program('small.pte', [X], [Y])"]
    (suite / "test_it.py").write_text("\n".join(lines))
    result = pytester.runpytest_subprocess("--target=native", "tests", timeout=DEADLINE)
    text = result.stdout.str()
    for told in mistakes.values():
        assert all(part in text for part in told.split("*")), told
    for told in (
        "no program ran under the budget ram=1, so nothing was judged",
        "hil_budget has no effect on a test without the fixture hil",
        "hil_budget has no effect on a test that uses no target",
        f"there is no small.pte in {suite}",
    ):
        assert told in text, told
    result.stdout.fnmatch_lines(["  → such as @pytest.mark.hil_budget(*-qemu*"])
    assert re.search(r"native .* 2 passed, 10 errors ", text), text[-3000:]
