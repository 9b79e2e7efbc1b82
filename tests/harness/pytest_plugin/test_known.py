"""Tests of a user's that accept known bugs of ExecuTorch: the marker and the ini key `hil_known`."""

from __future__ import annotations

import re

import pytest
import torch

from cortex_m_hil import Isa, lower
from cortex_m_hil.host.paths import cache_directory
from networks import Apply

pytest_plugins = ["pytester"]
CACHE = cache_directory()  # before pytester moves HOME
DEADLINE = 300.0  # seconds
FILES = {
    "test_marked.py": """
import numpy as np, pytest
from cortex_m_hil import load_program

X = np.zeros((2, 3, 4, 5), np.float32)

def test_fails(run_pte): run_pte("mirrored.pte", [X])

@pytest.mark.hil_known(36)
def test_accepted(run_pte, hil): run_pte("mirrored.pte", [X])

@pytest.mark.hil_known(36, 10)  # which shows on MVE alone
def test_of_two(run_pte, hil): run_pte("mirrored.pte", [X])

@pytest.mark.hil_known(36)
def test_absent(run_pte, hil): run_pte("plain.pte", [X])

@pytest.mark.hil_known(26)
def test_refused(run_pte, hil): run_pte("largest.pte", [X])

@pytest.mark.hil_known("aten::linear.out")
def test_lacking(run_pte, hil): run_pte("layer.pte", [np.zeros((2, 4), np.float32)])

@pytest.mark.hil_known(99)
def test_mistaken(hil): pass

@pytest.mark.hil_known(36)
def test_idle(hil): pass
""",
    "test_of_a_module.py": """
import numpy as np, pytest

pytestmark = pytest.mark.hil_known(36)
X = np.zeros((2, 3, 4, 5), np.float32)

@pytest.mark.parametrize("name", ["mirrored", "plain"])
def test_each(run_pte, name): run_pte(f"{name}.pte", [X])
""",
}
IMAGE = (2, 3, 4, 5)
MODULES = {
    "mirrored": (Apply(lambda x: x.flip(2)), IMAGE),
    "plain": (Apply(torch.neg), IMAGE),
    "largest": (Apply(lambda x: torch.max(x, 1)[0]), IMAGE),
    "layer": (torch.nn.Linear(4, 3), (2, 4)),
}


@pytest.fixture
def suite(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    for name, (module, shape) in MODULES.items():
        made = lower(module, (torch.randn(shape),), isa=Isa.SCALAR, quantize=False)
        (pytester.path / f"{name}.pte").write_bytes(made.pte)
    for name, text in FILES.items():
        (pytester.path / name).write_text(text)
    monkeypatch.setenv("HIL_CACHE_DIR", str(CACHE))
    return pytester


def test_what_is_accepted_passes_and_has_to_occur(suite: pytest.Pytester) -> None:
    arguments = ["--target=native", "--junit-xml=report.xml", "-rA"]
    result = suite.runpytest_subprocess(*arguments, timeout=DEADLINE)
    result.assert_outcomes(passed=5, failed=2, errors=2, xfailed=1)
    result.stdout.fnmatch_lines_random(
        [
            "*test_fails*WouldFailOnExecuTorch: *(known bug 36 of ExecuTorch)*",
            "*test_absent*KnownBugAbsent: known bug 36 of ExecuTorch (*) is accepted, and does not occur*",
            "XFAIL *test_refused* - accepted: known bug 26 of ExecuTorch",
            "*hil_known(99): known: 99 is no known bug of ExecuTorch*",
            "*hil_known has no effect: no program was linted and run*",
            "ExecuTorch has no aten::linear.out: 1 test for builtin alone",
        ]
    )
    report = (suite.path / "report.xml").read_text()
    assert 'name="hil_error" value="WouldFailOnExecuTorch"' in report
    known = re.findall(
        r'testcase [^>]*name="test_(\w+)(?:(?!</testcase>).)*?name="hil_known_bugs" value="([^"]+)"', report, re.S
    )
    of_operators = {("lacking", "aten::linear.out")}
    assert set(known) == {("accepted", "36"), ("of_two", "36"), ("each", "36"), ("refused", "26"), *of_operators}
    assert report.count('name="hil_missing_elsewhere" value="aten::linear.out"') == 1


@pytest.mark.slow
def test_what_is_accepted_occurs_on_each_runtime(suite: pytest.Pytester) -> None:
    """On builtin as what ExecuTorch would refuse, on ExecuTorch as what lint refuses, and where neither does.

    The wheel's ExecuTorch for the host has `linear`, which is foreseen to be lacking, as it is on all targets.
    """
    arguments = ["--target=native", "--runtime=builtin,executorch", "--junit-xml=report.xml", "test_marked.py"]
    names = "accepted or of_two or lacking or fails or absent"
    result = suite.runpytest_subprocess(*arguments, "-k", names, "-rx", timeout=DEADLINE)
    result.assert_outcomes(passed=4, xfailed=2, failed=4, deselected=6)
    result.stdout.fnmatch_lines_random(
        [
            "XFAIL *test_accepted[[]native-executorch[]] - accepted: known bug 36 of ExecuTorch",
            "XFAIL *test_of_two[[]native-executorch[]] - accepted: known bug 36 of ExecuTorch",
            "*test_fails[[]native-builtin[]]: WouldFailOnExecuTorch: *",
            "*test_fails[[]native-executorch[]]: LintError: *",
            "*test_absent[[]native-builtin[]]: KnownBugAbsent: *",
            "*test_absent[[]native-executorch[]]: KnownBugAbsent: *",
            "ExecuTorch has no aten::linear.out: 1 test for builtin alone",
        ]
    )
    report = (suite.path / "report.xml").read_text()
    assert report.count('name="hil_known_bugs" value="36"') == 4
    assert report.count('name="hil_known_bugs" value="aten::linear.out"') == 2


@pytest.mark.first_only
@pytest.mark.parametrize(("ini", "passed"), [("36", 5), ("all", 5)])
def test_the_ini_file_accepts_it_wherever_it_occurs(suite: pytest.Pytester, ini: str, passed: int) -> None:
    suite.makeini(f"[pytest]\nhil_known = {ini}\n")
    result = suite.runpytest_subprocess(
        "--target=native", "-k", "fails or accepted or of_two or each", timeout=DEADLINE
    )
    result.assert_outcomes(passed=passed, deselected=5)
    result.stdout.fnmatch_lines([f"hil: accepted though ExecuTorch fails on it (ini hil_known): {ini}"])
