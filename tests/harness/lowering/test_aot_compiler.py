"""What ExecuTorch's own compiler writes for a Cortex-M runs, and is judged, here."""

from __future__ import annotations

import logging
from pathlib import Path

import numpy as np
import pytest
import torch

import cortex_m_hil as hil
from command_line import OK, answer, spawn
from compiling import compiled
from cortex_m_hil import Isa

MODEL = """\
import torch

torch.manual_seed(0)
layers = torch.nn.Conv2d(3, 8, 3), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(8 * 36, 10)
ModelUnderTest = torch.nn.Sequential(*layers)
ModelInputs = (torch.randn(1, 3, 8, 8),)
"""


@pytest.fixture
def model(tmp_path: Path) -> Path:
    (tmp_path / "small.py").write_text(MODEL)
    return tmp_path / "small.py"


@pytest.mark.slow
def test_a_bpte_of_the_aot_compiler_runs_and_matches_its_expected_outputs(model: Path) -> None:
    path = compiled(model, "--quantize", "--bundleio")
    assert path.name == "small_arm_cortex-m55.bpte"
    ran = answer(spawn("run", path, "-t", "m55-qemu", "--json", cwd=model.parent).out)
    assert (ran["exit_status"], ran["case"], ran["runs_as"]) == (OK, 0, "m55-qemu")
    # The image reaches the program, which takes it channels-last: else nothing of the outputs would be right.
    assert ran["compared"]["outputs"][0]["max_quanta"] <= 1
    assert answer(spawn("lint", path, "-t", "m55-qemu", "--json", cwd=model.parent).out)["fits"] is True


@pytest.mark.slow
def test_intermediates_are_checked_and_give_the_compilers_outputs(
    model: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The exported program is lowered here, and computes what the compiler's own program does."""
    # torch 2.13 logs a warning with an argument too few, which pytest's log capture raises.
    caplog.set_level(logging.ERROR, "torch._export.serde.serialize")
    program = hil.load_program(compiled(model, "--quantize", "--intermediates=inter"))
    exported = torch.export.load(model.parent / "inter" / "small_exported_program.pt2")
    assert (model.parent / "inter" / "delegation_info.txt").exists()
    lowered = hil.lower(exported, isa=Isa.MVE)
    assert lowered.name == "Sequential"
    assert [one.operator for one in lowered.file.instructions] == [one.operator for one in program.file.instructions]
    with hil.open("m55-qemu") as target:
        target.check(exported)
        assert target.lint(program) == ()
        ours, theirs = (target.run(one, lowered.inputs).outputs[0].array() for one in (lowered, program))
    np.testing.assert_array_equal(ours, theirs)
