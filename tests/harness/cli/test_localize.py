"""`hil localize`: of tests, also of those that pass, and of bundles; for people and for machines."""

from __future__ import annotations

import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from command_line import CANNOT_TELL, FIRST_BUILD, NO, OK, Hil, answer, answers, environment, expect
from cortex_m_hil import flow
from cortex_m_hil.checks.comparison.tolerance import Tolerance
from cortex_m_hil.diagnose.failure_bundle import Bundle, BundleTask
from cortex_m_hil.diagnose.failure_bundle_file import write_bundle
from cortex_m_hil.targets.load import load_targets
from cortex_m_hil.targets.resolve import resolve
from failure_bundles import TEST, failure
from file_texts import HIL_AND_ITS_IMPORTS
from planting import BUGS, network
from reruns import WITH_TEARDOWN

TESTS = """
import pytest, torch
from cortex_m_hil.errors import LaunchError

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.head = torch.nn.Linear(16, 8)

    def forward(self, x):
        return self.head(x)

def test_right(hil): hil.check(Model(), (torch.rand(1, 16),))
def test_wrong(hil): hil.check(Model(), (torch.ones(1, 16),), calibration=[(torch.rand(1, 16) * 0.01,)])
def test_infra(hil): raise LaunchError("gone")
def test_nothing(hil): pass
"""

FLAKY = """
tried = []

def test_flaky(hil):
    hil.check(Model(), (torch.rand(1, 16),))
    tried.append(1)
    assert len(tried) > 1
"""


@pytest.fixture
def tests(tmp_path: Path) -> Path:
    (tmp_path / "test_it.py").write_text(TESTS)
    return tmp_path / "test_it.py"


@pytest.mark.slow
def test_a_test_that_passes_is_localised(hil: Hil, tests: Path) -> None:
    """On each target; the operators in the order of the program, with the user's line."""
    done = hil("localize", "test_it.py::test_right", "-t", "native,m4-qemu", "--json")
    found = answers(done.out)
    assert (done.status, done.err) == (OK, "")
    assert [(one["target"], one["test"]) for one in found] == [
        (name, f"test_it.py::test_right[{name}]") for name in ("native", "m4-qemu")
    ]
    for one in found:
        assert (one["program"], one["runtime"], one["exit_status"]) == ("Model", "builtin", OK)
        assert one["conclusions"][0].startswith("kernels and graph are right, and no operator loses")
        linear = one["rows"][1]
        assert (linear["instruction"], linear["operator"]) == (1, "cortex_m::quantized_linear.out")
        assert (linear["module"], linear["value"], linear["source"].endswith("test_it.py:11")) == (
            "head", "int8[1, 8]", True,
        )  # fmt: skip
        assert (linear["distance"], linear["elements"], linear["at_fault"], linear["known"]) == (0, 0, False, True)
        assert linear["sqnr_db"] > 20 and linear["distinct"] > 1 and linear["inputs_right"]


@pytest.mark.slow
def test_how_each_test_ends_is_told(hil: Hil, tests: Path) -> None:
    done = hil("localize", "test_it.py", "-t", "native")
    assert done.status == CANNOT_TELL  # the highest: of LaunchError
    assert done.out.count("Model on native · builtin") == 2
    for text in ("test_right[native]: pass\n", "test_nothing[native]: pass\n", "noise against the float module"):
        assert text in done.out
    assert "Mismatch: test_it.py::test_wrong[native]: output 0: eager: SQNR" in done.err
    assert "LaunchError: test_it.py::test_infra[native]: gone" in done.err
    failed = answers(hil("localize", "test_it.py::test_wrong", "-t", "native", "--json").out)
    assert [("error" in one, one["exit_status"]) for one in failed] == [(False, OK), (True, NO)]


@pytest.mark.slow
def test_a_test_that_was_run_again_is_told_of_once(hil: Hil, tests: Path) -> None:
    (tests.parent / "conftest.py").write_text(WITH_TEARDOWN)
    tests.write_text(TESTS + FLAKY)
    done = hil("localize", "test_it.py", "-t", "native")
    assert done.out.count("Model on native · builtin") == 3
    assert done.err.count("test_wrong[native]") == done.err.count("test_infra[native]") == 1
    assert "test_flaky[native]: pass\n" in done.out and "test_flaky" not in done.err


@pytest.mark.slow
def test_a_failing_test_names_the_command_that_localises_it(hil: Hil, tests: Path) -> None:
    """From where pytest was called; and that command works."""
    call = [sys.executable, "-m", "pytest", "-q", "--hil-target=native", "test_it.py::test_wrong"]
    said = subprocess.run(
        call, cwd=tests.parent, env=environment(), capture_output=True, text=True, timeout=FIRST_BUILD, check=False
    ).stdout
    (command,) = set(re.findall(r"→ hil (localize .*) names the operator that loses most", said))
    assert command == "localize test_it.py::test_wrong -t native"
    localised, failed = answers(hil(*command.split(), "--json").out)
    assert localised["program"] == "Model" and failed["exit_status"] == NO
    hint = failed["error"]["hint"]
    assert hint.startswith("what was localised names the operator that loses most; calibrate") and "find" not in hint


@pytest.mark.first_only
@pytest.mark.parametrize(
    ("what", "text"),
    [("none.py", "none.py"), ("test_it.py::test_nothing", "no program was compared"), ("test_it.py::none", "none")],
)
def test_localize_without_a_compared_program_is_a_config_error(hil: Hil, tests: Path, what: str, text: str) -> None:
    done = hil("localize", what, "-t", "native")
    assert done.status == CANNOT_TELL
    assert "ConfigError: " in done.err and text in done.err


@pytest.fixture(scope="module")
def planted(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    """A bug of padding, found on QEMU, with the intermediates."""
    firmware = BUGS["zero_point_ignored_in_padding"].plant(tmp_path_factory.mktemp("planted"))
    with flow.open_dut(resolve("m4-qemu", load_targets()), firmware=firmware) as dut:
        module, inputs = network()
        program = flow.lower(module, inputs, isa=dut.target.isa)
        assert program.intermediates is not None
        found = failure(dut, BundleTask(program, program.inputs, Tolerance()))
        return replace(found, intermediates=program.intermediates(program.inputs)).bundle(TEST)


@pytest.mark.slow
def test_a_bundle_is_localised(hil: Hil, planted: Bundle, tmp_path: Path) -> None:
    """By its own runner, which has the bug, and by one that is right. Neither torch nor executorch is imported."""
    write_bundle(planted, tmp_path / "it.hil.zip")
    done = subprocess.run(
        [sys.executable, "-c", HIL_AND_ITS_IMPORTS, "localize", "it.hil.zip", "-t", "m4-qemu", "--json"],
        cwd=tmp_path, env=environment(), capture_output=True, text=True, timeout=FIRST_BUILD, check=False,
    )  # fmt: skip
    out, _, imported = done.stdout.partition("imported")
    one = answer(out)
    assert (done.returncode, one["test"], one["target"], imported) == (NO, TEST, "m4-qemu", "\n")
    assert {row["operator"] for row in one["rows"] if row["at_fault"]} == {"cortex_m::pad.out"}
    assert one["conclusions"][0].startswith("this kernel is wrong: cortex_m::pad.out")
    right = hil("localize", "it.hil.zip", "-t", "m7-qemu")
    assert (right.status, right.err) == (OK, "")
    assert "notice: it ran on m4-qemu\n" in right.out and "AT FAULT" not in right.out


@pytest.mark.slow
def test_a_bundle_for_another_class(hil: Hil, planted: Bundle, tmp_path: Path) -> None:
    write_bundle(planted, tmp_path / "it.hil.zip")
    done = hil("localize", "it.hil.zip", "-t", "native")
    expect(done, NO, "LintError: ", "lowered for DSP")


def test_localize_refuses_a_bundle_without_intermediates(hil: Hil, planted: Bundle, tmp_path: Path) -> None:
    said = planted.description.model_copy(update={"intermediates": ()})
    write_bundle(replace(planted, description=said, intermediates=()), tmp_path / "it.hil.zip")
    done = hil("localize", "it.hil.zip", "-t", "m4-qemu")
    expect(done, CANNOT_TELL, "ConfigError: it.hil.zip has no reference values", "--hil-bundles FOLDER --hil-localize")
