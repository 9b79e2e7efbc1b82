"""The regression that started this project: a linear layer whose bias got lost outside MVE.

Inputs in [0, 0.002] make the layer's outputs almost nothing but bias, so a lost bias leaves
almost nothing (executorch #19676, #20045).
"""

from __future__ import annotations

import pytest
import torch

from cortex_m_hil.errors import LintError, Mismatch, ProgramRejected
from cortex_m_hil.flow.dut import Dut
from cortex_m_hil.pytest_plugin.fixtures import Hil
from cortex_m_hil.targets.cpu import Isa

INPUT_RANGE = 0.002


def module_and_inputs() -> tuple[torch.nn.Module, tuple[torch.Tensor]]:
    return torch.nn.Linear(512, 10), (torch.rand(1, 512) * INPUT_RANGE,)


def test_linear(hil: Hil) -> None:
    comparison = hil.check(*module_and_inputs(), qtol=0)
    assert comparison.outputs[0].max_quanta == 0


def other_layout(isa: Isa) -> Isa:
    """An ISA class whose layout of `quantized_linear` does not fit `isa`."""
    return Isa.DSP if isa is Isa.MVE else Isa.MVE


def test_linear_for_another_isa_is_refused_by_lint(hil: Hil) -> None:
    with pytest.raises(LintError, match="kernel_sum"):
        hil.check(*module_and_inputs(), isa=other_layout(hil.isa))


def test_linear_for_another_isa_is_caught_without_lint(hil: Hil) -> None:
    """MVE fails loudly in the runtime; DSP and SCALAR drop the bias, which the comparison must see."""
    if hil.isa is Isa.MVE:
        said = "kernel_sum|quantized_linear_out: CMSIS-NN failed"  # by builtin, by ExecuTorch
        with pytest.raises(ProgramRejected, match=said):
            hil.check(*module_and_inputs(), isa=Isa.DSP, lint=False)
    else:
        with pytest.raises(Mismatch, match="collapse"):
            hil.check(*module_and_inputs(), isa=Isa.MVE, lint=False)


def test_target_recovers_after_a_refused_program(hil: Hil, hil_dut: Dut) -> None:
    with pytest.raises((ProgramRejected, Mismatch)):
        hil.check(*module_and_inputs(), isa=other_layout(hil.isa), lint=False)
    session = hil_dut.session()
    hil.check(*module_and_inputs())
    assert hil_dut.session() is session
