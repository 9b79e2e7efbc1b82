"""The three ISA classes give the same bits."""

from __future__ import annotations

import dataclasses
import struct
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from cortex_m_hil import flow
from cortex_m_hil.flow.dut import Dut
from cortex_m_hil.lowering import Layout
from cortex_m_hil.lowering.named_modules import NETWORKS, network
from cortex_m_hil.program.program import Program
from cortex_m_hil.targets.cpu import Isa
from cortex_m_hil.targets.load import load_targets
from cortex_m_hil.targets.resolve import resolve
from networks import Net

NAMES = {Isa.MVE: "m55-fvp", Isa.DSP: "m4-fvp", Isa.SCALAR: "m0plus-fvp"}


CASES: dict[str, Callable[[], tuple[nn.Module, tuple[int, ...]]]] = {
    "net": lambda: (Net(), (1, 3, 17, 17)),
    "linear": lambda: (nn.Linear(67, 21), (5, 67)),
    "depth_multiplier": lambda: (nn.Conv2d(5, 15, 3, groups=5), (1, 5, 9, 8)),
    "grouped": lambda: (nn.Conv2d(6, 9, (2, 3), groups=3, padding=1), (1, 6, 9, 8)),
    "softmax": lambda: (nn.Softmax(-1), (9, 45)),
}


@pytest.fixture(scope="module")
def duts() -> Iterator[dict[Isa, Dut]]:
    opened = {isa: flow.open_dut(resolve(name, load_targets())) for isa, name in NAMES.items()}
    yield opened
    for dut in opened.values():
        dut.close()


def agree(duts: dict[Isa, Dut], module: nn.Module, inputs: tuple[Any, ...], layout: Layout = "channels_last") -> Any:
    """The bits that all agree on."""
    bits = {}
    exported = flow.export(module, inputs, layout=layout)
    for isa, dut in duts.items():
        assert dut.target.isa is isa
        result = flow.run(dut, flow.lower(exported, isa=isa))
        bits[isa] = result.outputs[0].array()
    assert bits[Isa.MVE].tobytes() == bits[Isa.DSP].tobytes() == bits[Isa.SCALAR].tobytes()
    return bits[Isa.SCALAR]


@pytest.mark.slow
def test_an_average_pool_of_executorch_1_4_1(duts: dict[Isa, Dut]) -> None:
    """It has no ceil_mode, which is False here."""
    dut = duts[Isa.SCALAR]
    image = torch.linspace(-2, 2, 4 * 9 * 9).reshape(1, 4, 9, 9)
    now = flow.lower(nn.AvgPool2d(3, 2), (image,), isa=Isa.SCALAR)
    (call,) = (one for one in now.file.instructions if one.operator == "cortex_m::quantized_avg_pool2d.out")
    before = [value for place, value in enumerate(call.args) if place != 4]
    assert len(before) == 10
    pte = now.pte.replace(struct.pack("<I11i", 11, *call.args), struct.pack("<I11i", 10, *before, 0))
    result = flow.run(dut, dataclasses.replace(Program.from_bytes(pte, "1.4.1"), inputs=now.inputs))
    assert result.outputs == flow.run(dut, now).outputs


@pytest.mark.first_only
@pytest.mark.parametrize("layout", ["channels_last", "explicit"])
@pytest.mark.parametrize("name", CASES)
def test_the_classes_agree_bit_for_bit(duts: dict[Isa, Dut], name: str, layout: Layout) -> None:
    torch.manual_seed(1)
    module, shape = CASES[name]()
    assert len(np.unique(agree(duts, module, (torch.randn(shape),), layout))) > 8


@pytest.mark.slow
@pytest.mark.parametrize("name", NETWORKS)
def test_the_classes_agree_on_mlperf_tiny(duts: dict[Isa, Dut], name: str) -> None:
    torch.manual_seed(1)
    assert len(np.unique(agree(duts, *network(name)))) > 1
