"""Other plugins beside ours, the real ones: each is installed for its test, apart from this environment."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import xml.etree.ElementTree as xml
from collections.abc import Callable
from pathlib import Path

import pytest

from cortex_m_hil.campaigns.bisection.run_verdicts import Rules, judge_run
from cortex_m_hil.host.paths import cache_directory

pytest_plugins = ["pytester"]

CACHE = cache_directory()  # before pytester moves HOME
DEADLINE = 600.0
# What they need beyond what is here already. Last tried with these versions.
RANDOMLY = ("pytest-randomly==5.1.0" if sys.version_info >= (3, 11) else "pytest-randomly==3.16.0",)
RERUNFAILURES = ("pytest-rerunfailures==16.7",)
JSON_REPORT = ("pytest-json-report==1.5.0", "pytest-metadata==3.1.1")
EMBEDDED = ("pytest-embedded==2.9.3",)
ORDINARY = (*RANDOMLY, *RERUNFAILURES, "pytest-timeout==2.4.0", "pytest-html==4.2.0", "pytest-metadata==3.1.1")
Run = Callable[..., pytest.RunResult]


@pytest.fixture
def run(
    request: pytest.FixtureRequest, pytester: pytest.Pytester, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Run:
    """Runs pytest with the packages that the test is parametrised with."""
    site = tmp_path / "site"
    install = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(site), *request.param]
    done = subprocess.run(install, capture_output=True, text=True, timeout=DEADLINE, check=False)
    assert done.returncode == 0, f"pip cannot install what this test is about:\n{done.stderr}"
    monkeypatch.setenv("HIL_CACHE_DIR", str(CACHE))
    monkeypatch.setenv("PYTHONPATH", str(site), prepend=os.pathsep)

    def run(*arguments: str) -> pytest.RunResult:
        return pytester.runpytest_subprocess(*arguments, timeout=DEADLINE)

    return run


DRAWING = """
import json, random
import numpy, pytest

LEVEL = random.random()

@pytest.fixture
def drawn(hil_dut):
    return random.random()

@pytest.fixture(scope="module")
def wide(hil_lower):
    return float(numpy.random.rand())

@pytest.mark.parametrize("n", range(8))
def test_it(n, drawn, wide, record_property):
    record_property("drawn", json.dumps([LEVEL, drawn, wide, random.random(), float(numpy.random.rand())]))
"""


@pytest.mark.parametrize("run", [RANDOMLY], indirect=True, ids=["randomly"])
def test_randomly_shuffles_and_changes_no_number(pytester: pytest.Pytester, run: Run) -> None:
    pytester.makepyfile(DRAWING)
    runs = []
    for arguments in (["-p", "no:randomly"], ["--randomly-seed=1"], ["--randomly-seed=2", "-n2"]):
        done = run("--target=native", "--junit-xml=report.xml", *arguments)
        done.assert_outcomes(passed=8)
        cases = list(xml.parse(pytester.path / "report.xml").iter("testcase"))
        drawn = {one.get("value") for case in cases for one in case.iter("property") if one.get("name") == "drawn"}
        runs.append(([case.get("name") for case in cases], drawn))
    assert len(runs[0][1]) == 1 and runs[0][1] == runs[1][1] == runs[2][1]
    assert runs[0][0] != runs[1][0] and sorted(map(str, runs[0][0])) == sorted(map(str, runs[1][0]))


FLAKY = """
import pathlib
from cortex_m_hil.errors import LaunchError, Mismatch

def test_flaky(hil_dut):
    once = pathlib.Path(__file__).with_name(f"once-{hil_dut.target.name}")
    if not once.exists():
        once.touch()
        raise LaunchError("ended from outside")

def test_wrong(hil_dut): raise Mismatch("far off")

def test_fine(hil_dut): pass
"""


@pytest.mark.parametrize("workers", [[], ["-n2"]], ids=["single", "xdist"])
@pytest.mark.parametrize("run", [RERUNFAILURES], indirect=True, ids=["rerunfailures"])
def test_a_rerun_has_one_row_with_the_last_verdict_and_says_what_was_before(
    pytester: pytest.Pytester, run: Run, workers: list[str]
) -> None:
    pytester.makepyfile(test_it=FLAKY)
    done = run("--target=native", "--reruns=1", "--junit-xml=report.xml", *workers)
    done.assert_outcomes(passed=2, failed=1)
    lines = done.stdout.lines
    end = lines[next(i for i, line in enumerate(lines) if "test × target" in line) + 1 :]
    assert [re.split(r"  +", line) for line in end[:3]] == [
        ["test", "native"],
        ["test_it.py::test_flaky", "pass after INFRA LaunchError"],
        ["test_it.py::test_wrong", "FAIL Mismatch after FAIL Mismatch"],
    ]
    assert end[3] == "" and end[4] == "test_it.py::test_wrong[native]: Mismatch: far off"
    assert re.fullmatch(r"native .*  2 passed, 1 failed, 2 run again  in [\d.]+ s", end[5])
    verdicts = {
        case.get("name"): [one.get("value") for one in case.iter("property") if one.get("name") == "hil_verdict"]
        for case in xml.parse(pytester.path / "report.xml").iter("testcase")
    }
    assert verdicts == {"test_flaky[native]": ["PASS"], "test_wrong[native]": ["FAIL"], "test_fine[native]": ["PASS"]}
    # The file has an element for each attempt; whoever judges by it counts the last one.
    judged = judge_run(["pytest"], int(done.ret), pytester.path / "report.xml", Rules())
    found = sorted((case.test, case.verdict) for case in judged.cases)
    assert found == [
        (f"test_it.py::{name}", verdict)
        for name, verdict in (("test_fine", "PASS"), ("test_flaky", "PASS"), ("test_wrong", "FAIL"))
    ]


@pytest.mark.parametrize("run", [JSON_REPORT], indirect=True, ids=["json-report"])
def test_a_json_report_has_our_properties(pytester: pytest.Pytester, run: Run) -> None:
    pytester.makepyfile("""
        from cortex_m_hil.program.known_answer import known_answer

        def test_it(run_pte, hil_dut):
            known = known_answer(hil_dut.target.isa)
            run_pte(known.program, known.inputs)
    """)
    for workers in ([], ["-n2"]):
        done = run("--target=native,m4-qemu", "--json-report", "--json-report-file=report.json", *workers)
        done.assert_outcomes(passed=2)
        tests = json.loads((pytester.path / "report.json").read_text())["tests"]
        found = [{name: value for one in test["user_properties"] for name, value in one.items()} for test in tests]
        assert sorted(one["hil_requested"] for one in found) == ["m4-qemu", "native"]
        assert all(one["hil_verdict"] == "PASS" and one["hil_run_seconds"] > 0 for one in found)


@pytest.mark.parametrize("run", [EMBEDDED], indirect=True, ids=["embedded"])
def test_pytest_embedded_keeps_its_names_and_both_run_in_one_test(pytester: pytest.Pytester, run: Run) -> None:
    """`--target` and the fixture `dut` are its own, `--hil-target` and `hil_dut` ours."""
    pytester.makepyfile("""
        from cortex_m_hil import flow

        def test_both(dut, hil_dut, redirect):
            flow.selftest(hil_dut)
            with redirect():
                print("said by the host")
            dut.expect_exact("said by the host", timeout=60)

        def test_theirs(dut): pass
    """)
    done = run("--hil-target=native,m4-qemu", "--junit-xml=report.xml")
    done.assert_outcomes(passed=3)
    done.stdout.fnmatch_lines(["hil: --target is that of the plugin *embedded*; that of this package is --hil-target"])
    done.stdout.fnmatch_lines(["native * 1 passed *", "m4-qemu * 1 passed *"])
    assert (pytester.path / "report.xml").read_text().count('"hil_verdict" value="PASS"') == 2
    theirs = run("--target=esp32", "-k", "theirs")
    theirs.assert_outcomes(passed=1, deselected=1)
    mistaken = run("--target=native", "-k", "both")
    assert mistaken.ret == pytest.ExitCode.USAGE_ERROR
    mistaken.stderr.fnmatch_lines(["*no target given: --hil-target=*"])


FIRST = """
import pytest
import torch

class Flat(torch.nn.Module):
    def forward(self, x):
        return x * 0.0, torch.tanh(x)

@pytest.fixture(scope="module")
def head(hil_lower):
    return hil_lower(torch.nn.Linear(16, 5), (torch.rand(1, 16),))

def test_fine(hil):
    from executorch.backends.cortex_m.quantizer.quantizer import CortexMQuantizer
    hil.check(torch.nn.Linear(16, 4), (torch.rand(1, 16),), quantizer=CortexMQuantizer())

def test_wrong(hil):
    hil.check(Flat(), (torch.rand(1, 16),), eager_sqnr=1000)

def test_warned(hil):
    hil.check(Flat(), (torch.rand(1, 16),))

@pytest.mark.timeout(2, func_only=True)
@pytest.mark.parametrize("n", range(3))
def test_interrupted(hil, head, n):
    while True:
        hil.run(head)
"""


@pytest.mark.parametrize("run", [ORDINARY], indirect=True, ids=["ordinary"])
def test_a_project_that_is_strict_fails_by_verdicts_alone(pytester: pytest.Pytester, run: Run) -> None:
    """Warnings are errors, and plugins that many projects have are installed. A timeout ends a call in its middle."""
    strict = "--strict-markers --strict-config --reruns=1 --timeout=300 --html=report.html --self-contained-html"
    pytester.makeini(f"[pytest]\nfilterwarnings = error\naddopts = {strict}\n")
    pytester.makepyfile(test_it=FIRST)
    for workers in ([], ["-n2"]):
        done = run("--target=native", *workers)
        done.assert_outcomes(passed=1, failed=5)
        done.stdout.fnmatch_lines(
            [
                *(f"test_it.py::test_interrupted[[]{n}[]] *FAIL Failed after FAIL Failed" for n in range(3)),
                "test_it.py::test_warned *FAIL HilWarning (uninformative) after FAIL HilWarning",
                "test_it.py::test_wrong *FAIL Mismatch (uninformative) after FAIL Mismatch",
            ]
        )
        assert "test_wrong[native]" in (pytester.path / "report.html").read_text()
