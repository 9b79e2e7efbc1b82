"""All targets give the same bits, integers and floats: programs are lowered for each ISA class, and run."""

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
ALL = [name for name in load_targets() if not name.endswith("-fvp")]


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


class Square(nn.Module):
    def forward(self, x: Any) -> Any:
        return torch.bmm(x, x)


class Apply(nn.Module):
    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *inputs: Any) -> Any:
        return self.function(*inputs)


CASES: dict[str, Callable[[], tuple[nn.Module, tuple[int, ...]]]] = {
    "net": lambda: (Net(), (1, 3, 17, 17)),
    "linear": lambda: (nn.Linear(67, 21), (5, 67)),
    "depth_multiplier": lambda: (nn.Conv2d(5, 15, 3, groups=5), (1, 5, 9, 8)),
    "grouped": lambda: (nn.Conv2d(6, 9, (2, 3), groups=3, padding=1), (1, 6, 9, 8)),
    "softmax": lambda: (nn.Softmax(-1), (9, 45)),
    "transposed": lambda: (nn.ConvTranspose2d(19, 5, 3, stride=2, padding=1), (1, 19, 4, 5)),
    "batch_matmul": lambda: (Square(), (3, 17, 17)),
}

# Subnormal, huge, signed zeros, infinite, not a number: where units that flush, contract or make their own NaNs differ.
SPECIAL = torch.tensor(
    [1e-40, -1e-40, 1e-38, 1e-45, 3e38, -3e38, 0.0, -0.0, 1.5, -3.3, torch.inf, -torch.inf, torch.nan]
)
PAIRS = (SPECIAL.repeat(len(SPECIAL)), SPECIAL.repeat_interleave(len(SPECIAL)))
ROWS = (torch.randn(6, 31, generator=torch.Generator().manual_seed(1)) * 30,)
FLOATS: dict[str, tuple[Callable[[], nn.Module], tuple[torch.Tensor, ...]]] = {
    "add": (lambda: Apply(lambda x, y: torch.add(x, y, alpha=0.3)), PAIRS),
    "sub": (lambda: Apply(torch.sub), PAIRS),
    "mul": (lambda: Apply(torch.mul), PAIRS),
    "div": (lambda: Apply(torch.div), PAIRS),
    "clamp": (lambda: Apply(lambda x: torch.clamp(x, -1e38, 1e-39)), (SPECIAL,)),
    "amax": (lambda: Apply(lambda x: torch.amax(x, 0)), (SPECIAL.reshape(13, 1),)),
    "softmax": (lambda: nn.Softmax(-1), ROWS),
    "softmax_special": (lambda: nn.Softmax(-1), (SPECIAL.reshape(13, 1) * torch.ones(1, 3),)),
    "conv": (
        lambda: nn.Conv2d(3, 5, 3, padding=1),
        (torch.randn(1, 3, 9, 8, generator=torch.Generator().manual_seed(2)),),
    ),
    "transposed": (
        lambda: nn.ConvTranspose2d(3, 5, 3, stride=2, dilation=2),
        (torch.randn(1, 3, 4, 5, generator=torch.Generator().manual_seed(3)),),
    ),
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


@pytest.fixture(scope="module")
def everything() -> Iterator[list[Dut]]:
    opened = [flow.open_dut(resolve(name, load_targets())) for name in ALL]
    yield opened
    for dut in opened:
        dut.close()


def on_each(duts: list[Dut], module: nn.Module, inputs: tuple[torch.Tensor, ...], **options: Any) -> dict[str, bytes]:
    """Each target's first output."""
    return {
        dut.target.name: flow.run(dut, flow.lower(module, inputs, isa=dut.target.isa, **options)).outputs[0].data
        for dut in duts
    }


@pytest.mark.parametrize("name", FLOATS)
def test_all_targets_agree_in_floats(everything: list[Dut], name: str) -> None:
    torch.manual_seed(1)
    make, inputs = FLOATS[name]
    outputs = on_each(everything, make(), inputs, quantize=False)
    assert len(outputs) == len(ALL) >= 10
    assert [target for target, data in outputs.items() if data != outputs["m4-qemu"]] == []


def test_all_targets_agree_in_integers(everything: list[Dut]) -> None:
    torch.manual_seed(1)
    module, shape = CASES["net"]()
    outputs = on_each(everything, module, (torch.randn(shape),))
    assert [target for target, data in outputs.items() if data != outputs["m4-qemu"]] == []
