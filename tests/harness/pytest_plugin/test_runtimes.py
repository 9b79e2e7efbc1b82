"""Tests on several runtimes: ids, tables, properties, and what differs, with the operator that does first."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from xml.etree import ElementTree

import pytest

from cortex_m_hil.host.paths import cache_directory
from cortex_m_hil.targets.executorch_prefix import VARIABLE
from prefixes import FLAGS, make_prefix

pytest_plugins = ["pytester"]

TESTS = """
import numpy, pytest, torch
from cortex_m_hil.program.known_answer import known_answer

def test_tanh(hil): hil.check(torch.nn.Tanh(), (torch.arange(-4.0, 4.0, 0.125),), quantize=False)

@pytest.mark.xfail_on("*-executorch", reason="its runner for the host has no Cortex-M operators")
@pytest.mark.parametrize("number", [1])
def test_quantised(run_pte, target_spec, number):
    run_pte(known_answer(target_spec.target.isa).program, [numpy.zeros((1, 16), "float32")])

def test_taken_by_one(run_pte, target_spec):
    run_pte(known_answer(target_spec.target.isa).program, [numpy.zeros((1, 16), "float32")])
"""
ABOUT = """
def test_runtime(target_spec): assert target_spec.runtime == "{}"
"""
DEADLINE = 300.0  # seconds, for a run that may have to build runners
CACHE = cache_directory()  # before anything moves HOME
BOTH = ("builtin", "executorch")


@pytest.fixture(autouse=True)
def shared_builds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HIL_CACHE_DIR", str(CACHE))


def run(pytester: pytest.Pytester, *arguments: str) -> pytest.RunResult:
    return pytester.runpytest_subprocess("--target=native", *arguments, timeout=DEADLINE)


@pytest.mark.parametrize(
    "workers", [(), pytest.param(("-n2",), marks=pytest.mark.slow)], ids=["one process", "workers"]
)
def test_each_test_runs_on_each_runtime_and_what_differs_is_named(
    pytester: pytest.Pytester, workers: tuple[str, ...]
) -> None:
    pytester.makepyfile(test_it=TESTS)
    result = run(pytester, "--runtime=builtin,executorch", "--junit-xml=junit.xml", *workers)
    result.assert_outcomes(passed=4, failed=1, xfailed=1)
    result.stdout.fnmatch_lines(
        [
            "test *native · builtin *native · executorch",
            "test_it.py::test_taken_by_one *pass *FAIL UnsupportedOperator",
            "runtimes differ in 3 tests:",
            "  test_it.py::test_quantised[[]1[]] [[]native]: builtin pass, executorch xfail UnsupportedOperator (*",
            "  test_it.py::test_taken_by_one [[]native]: builtin pass, executorch FAIL UnsupportedOperator (*",
            "  test_it.py::test_tanh [[]native]: builtin pass, executorch pass; other values from operator 0 on, "
            "aten::tanh.out (*): * of 64 float32, by up to *e-0*",
            "native · builtin (*)  *3 passed  *",
            "native · executorch (*)  *1 passed, 1 failed, 1 xfailed  *",
            "rerun: pytest --target=native --runtime=builtin,executorch "
            "'test_it.py::test_taken_by_one[[]native-executorch[]]'",
        ]
    )
    cases = ElementTree.parse(pytester.path / "junit.xml").findall(".//testcase")
    told = [{one.get("name"): one.get("value") for one in case.findall(".//property")} for case in cases]
    assert Counter(one["hil_runtime_name"] for one in told) == dict.fromkeys(BOTH, 3)
    assert {case.get("name") for case in cases} >= {f"test_tanh[native-{name}]" for name in BOTH}
    assert {one["hil_test"] for one in told} == {
        f"test_it.py::{name}" for name in ("test_tanh", "test_quantised[1]", "test_taken_by_one")
    }
    assert sum("hil_runtime_difference" in one for one in told) == 1


def test_the_option_goes_before_the_ini_file(pytester: pytest.Pytester) -> None:
    pytester.makeini("[pytest]\nhil_runtime = executorch\n")
    pytester.makepyfile(ABOUT.format("executorch"))
    run(pytester).assert_outcomes(passed=1)
    run(pytester, "--runtime=auto").assert_outcomes(failed=1)
    wrong = run(pytester, "--runtime=builtin,executroch")
    assert wrong.ret == pytest.ExitCode.USAGE_ERROR
    wrong.stderr.fnmatch_lines(["*unknown runtime 'executroch'", "*did you mean 'executorch'*"])


def test_what_does_not_fit_is_told_before_and_after(
    pytester: pytest.Pytester, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also in workers, where what xdist's controller chose holds."""
    monkeypatch.setenv(VARIABLE, str(make_prefix(tmp_path / "prefix", FLAGS["m0-qemu"])))
    pytester.makepyfile(ABOUT.format("builtin"))
    result = pytester.runpytest_subprocess("--target=m4-qemu", "-n1", "--junit-xml=junit.xml", timeout=DEADLINE)
    result.assert_outcomes(passed=1)
    why = f"{VARIABLE}: {tmp_path}/prefix: its libraries are for armv6-m, cortex-m4/dsp/mps2-an386 needs armv7e-m"
    before = f"hil: m4-qemu · builtin (no *); {why}*; build it with -DTARGET_CPU=cortex-m4"
    result.stdout.fnmatch_lines([before, f"m4-qemu runs on builtin: {why}*"])
    assert f'name="hil_runtime_reason" value="{why}' in (pytester.path / "junit.xml").read_text()


def test_what_an_executorch_lacks_of_the_wheels_operators_is_told_before_and_after(
    pytester: pytest.Pytester, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    prefix = make_prefix(tmp_path / "prefix", FLAGS["m4-qemu"], without="cortex_m::softmax.out")
    monkeypatch.setenv(VARIABLE, str(prefix))
    pytester.makepyfile(ABOUT.format("executorch"))
    result = pytester.runpytest_subprocess("--target=m4-qemu", timeout=DEADLINE)
    result.assert_outcomes(passed=1)
    lacks = f"this ExecuTorch has no softmax, which executorch * lowers to; *; {VARIABLE} goes before that"
    result.stdout.fnmatch_lines([f"hil: m4-qemu · executorch (*); {lacks}", f"m4-qemu: {lacks}"])
