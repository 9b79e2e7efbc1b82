"""A compact residual classifier, of the kind that lost its outputs to the layout of another class."""

from __future__ import annotations

from collections import Counter
from functools import cache

import pytest

import published_networks
from cortex_m_hil import Exported, export
from cortex_m_hil.errors import LintError, Mismatch, ProgramRejected
from cortex_m_hil.pytest_plugin.fixtures import Hil
from cortex_m_hil.targets.cpu import Isa

pytestmark = [pytest.mark.target_timeout(120), pytest.mark.requires(ram="64K", flash="128K")]


@cache
def exported() -> Exported:
    """Once for all targets."""
    return export(*published_networks.stresnet())


def test_network(hil: Hil) -> None:
    program = hil.lower(exported())
    called = Counter(instruction.operator for instruction in program.file.instructions)
    assert called == {
        "cortex_m::quantize_per_tensor.out": 1,
        "cortex_m::quantized_conv2d.out": 28,
        "cortex_m::quantized_max_pool2d.out": 1,
        "cortex_m::quantized_add.out": 4,
        "cortex_m::quantized_avg_pool2d.out": 1,
        "cortex_m::quantized_linear.out": 1,
        "cortex_m::dequantize_per_tensor.out": 1,
    }
    hil.verify(program)


def test_a_layout_of_another_class_is_caught(hil: Hil) -> None:
    """MVE says so, and ExecuTorch by a scratch; else only the comparison can tell, and then localisation."""
    other = Isa.DSP if hil.isa is Isa.MVE else Isa.MVE
    with pytest.raises(LintError, match="kernel_sum"):
        hil.check(exported(), isa=other)
    refused = hil.isa is Isa.MVE or hil.dut.resolved.runtime == "executorch"
    with pytest.raises(ProgramRejected if refused else Mismatch):
        hil.check(exported(), isa=other, lint=False)
    if not refused:
        found = hil.localize(hil.lower(exported(), isa=other))
        assert [row.operator for row in found.wrong_layout] == ["cortex_m::quantized_linear.out"]
        assert not found.at_fault
