"""The three ISA classes give the same bits: lowered for each, run on one target of each."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from harness import flow
from harness.flow import Dut
from harness.resolve import resolve
from harness.targets import Isa, load_targets

NAMES = {Isa.MVE: "m55-fvp", Isa.DSP: "m4-fvp", Isa.SCALAR: "m0plus-fvp"}


class Net(nn.Module):
    """Odd sizes, so that vectors have tails; a wide classifier, so that a difference has room to show."""

    def __init__(self) -> None:
        super().__init__()
        self.entry = nn.Sequential(nn.Conv2d(3, 19, 3, stride=2, padding=1), nn.ReLU())
        self.branch = nn.Sequential(nn.Conv2d(19, 19, 3, padding=1, groups=19), nn.Conv2d(19, 19, 1))
        self.pool = nn.Sequential(nn.MaxPool2d(2), nn.AvgPool2d(2))
        self.head = nn.Linear(19 * 4, 33)

    def forward(self, x: Any) -> Any:
        x = self.entry(x)
        x = self.pool(x + self.branch(x) * x)
        return self.head(torch.flatten(x, 1))


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


@pytest.mark.parametrize("layout", ["channels_last", "explicit"])
@pytest.mark.parametrize("name", CASES)
def test_the_classes_agree_bit_for_bit(duts: dict[Isa, Dut], name: str, layout: str) -> None:
    torch.manual_seed(1)
    module, shape = CASES[name]()
    inputs = (torch.randn(shape),)
    bits = {}
    for isa, dut in duts.items():
        assert dut.target.isa is isa
        result = flow.run(dut, flow.lower(module, inputs, isa=isa, layout=layout))
        bits[isa] = result.outputs[0].array()
    assert len(np.unique(bits[Isa.MVE])) > 8
    assert bits[Isa.MVE].tobytes() == bits[Isa.DSP].tobytes() == bits[Isa.SCALAR].tobytes()
