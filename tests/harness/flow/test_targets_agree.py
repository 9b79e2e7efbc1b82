"""All targets give the same bits, floats as well: programs are lowered for each target's ISA class, and run.

Each target needs a runner of its own, which takes long to build: the nightly asks all, `make test` one of each class.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional

from cortex_m_hil import flow
from cortex_m_hil.flow.dut import Dut
from cortex_m_hil.runner.launchers.native import NativeLauncher
from cortex_m_hil.runner.launchers.qemu import QemuLauncher
from cortex_m_hil.targets.load import load_targets
from cortex_m_hil.targets.resolve import resolve
from networks import Apply

CLASSES = ["native", "m0-qemu", "m4-qemu", "m55-qemu"]
NAMES = [name for name, target in load_targets().items() if isinstance(target.launcher, QemuLauncher | NativeLauncher)]


def random(*shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape)))


def every_function(x: Any) -> Any:
    """All that other libraries have in libm, and roots."""
    given = (torch.exp, torch.log, torch.log1p, torch.tanh, torch.sigmoid, torch.sqrt, torch.rsqrt, torch.reciprocal)
    made = (functional.silu, functional.elu, functional.gelu, lambda x: functional.gelu(x, approximate="tanh"))
    powers = [torch.pow(x, exponent) for exponent in (2.0, 3.0, 0.3, -1.5)]
    return torch.cat([function(x) for function in (*given, *made)] + powers)


MEANS, VARIANCES = torch.linspace(-1, 1, 6), torch.linspace(0.5, 2, 6)


def every_normalisation(x: Any) -> Any:
    found = (
        functional.group_norm(x, 3), functional.instance_norm(x),
        functional.batch_norm(x, MEANS, VARIANCES),
        torch.log_softmax(x, 1), (x - x.mean(1, True)) / x.std((0, 1), keepdim=True),
    )  # fmt: skip
    return torch.cat(found)


def every_sum(x: Any) -> Any:
    found = (
        torch.bmm(x, x.transpose(1, 2)), functional.linear(x, x[0], x[0, :, 0]), torch.cumsum(x, 1), x.sum(1),
        functional.avg_pool2d(x, 3, 1, 1), functional.adaptive_avg_pool2d(x, (2, 5)),
        functional.interpolate(x.unsqueeze(0), scale_factor=(1.5, 2), mode="bilinear"),
    )  # fmt: skip
    return torch.cat([one.flatten() for one in found])


# Subnormal, huge, signed zeros, infinite, not a number: where units that flush, contract or make their own NaNs differ.
SPECIAL = torch.tensor(
    [1e-40, -1e-40, 1e-38, 1e-45, 3e38, -3e38, 0.0, -0.0, 1.5, -3.3, torch.inf, -torch.inf, torch.nan]
)
PAIRS = (SPECIAL.repeat(len(SPECIAL)), SPECIAL.repeat_interleave(len(SPECIAL)))
ROWS = (random(6, 31) * 30,)
FLOATS: dict[str, tuple[Callable[[], nn.Module], tuple[torch.Tensor, ...]]] = {
    "add": (lambda: Apply(lambda x, y: torch.add(x, y, alpha=0.3)), PAIRS),
    "sub": (lambda: Apply(torch.sub), PAIRS),
    "mul": (lambda: Apply(torch.mul), PAIRS),
    "div": (lambda: Apply(torch.div), PAIRS),
    "clamp": (lambda: Apply(lambda x: torch.clamp(x, -1e38, 1e-39)), (SPECIAL,)),
    "amax": (lambda: Apply(lambda x: torch.amax(x, 0)), (SPECIAL.reshape(13, 1),)),
    "softmax": (lambda: nn.Softmax(-1), ROWS),
    "softmax_special": (lambda: nn.Softmax(-1), (SPECIAL.reshape(13, 1) * torch.ones(1, 3),)),
    "functions": (lambda: Apply(every_function), (torch.cat((SPECIAL, torch.linspace(-120, 120, 241) / 7)),)),
    "normalisations": (lambda: Apply(every_normalisation), (random(2, 6, 5, 4),)),
    "layer_norm": (lambda: nn.LayerNorm(9), (random(3, 7, 9),)),
    "sums": (lambda: Apply(every_sum), (random(3, 7, 9),)),
    "conv": (
        lambda: nn.Conv2d(3, 5, 3, padding=1),
        (random(1, 3, 9, 8),),
    ),
    "transposed": (
        lambda: nn.ConvTranspose2d(3, 5, 3, stride=2, dilation=2),
        (random(1, 3, 4, 5),),
    ),
}


INTEGERS: dict[str, tuple[Callable[[], nn.Module], tuple[torch.Tensor, ...]]] = {
    "conv": (lambda: nn.Conv2d(7, 19, 3, padding=1), (random(1, 7, 9, 8),)),
    "transposed": (lambda: nn.ConvTranspose2d(19, 5, 3, stride=2, padding=1), (random(1, 19, 4, 5),)),
    "linear": (lambda: nn.Linear(67, 21), (random(5, 67),)),
    "batch_matmul": (lambda: Apply(torch.bmm), (random(3, 5, 17), random(3, 17, 9))),
    "div": (lambda: Apply(lambda x, y: x / (y * y + 1)), (random(4, 31), random(4, 31))),
    "softmax": (lambda: nn.Softmax(-1), (random(9, 45),)),
}


@pytest.fixture(scope="module")
def duts() -> Iterator[list[Dut]]:
    with ExitStack() as stack:
        yield opened(stack, NAMES)


@pytest.fixture(scope="module")
def duts_of_classes() -> Iterator[list[Dut]]:
    with ExitStack() as stack:
        yield opened(stack, CLASSES)


def opened(stack: ExitStack, names: list[str]) -> list[Dut]:
    return [stack.enter_context(flow.open_dut(resolve(name, load_targets()))) for name in names]


def differing(duts: list[Dut], module: nn.Module, inputs: tuple[torch.Tensor, ...], **options: Any) -> list[str]:
    """Targets whose output is not the first one's."""
    outputs = {
        dut.target.name: flow.run(dut, flow.lower(module, inputs, isa=dut.target.isa, **options)).outputs[0].data
        for dut in duts
    }
    assert len(outputs) == len(duts)
    return [name for name, data in outputs.items() if data != outputs[duts[0].target.name]]


@pytest.mark.slow
def test_classes_agree_in_floats(duts_of_classes: list[Dut]) -> None:
    torch.manual_seed(1)
    make, inputs = FLOATS["add"]
    assert differing(duts_of_classes, make(), inputs, quantize=False) == []


@pytest.mark.slow  # test_isa_agreement.py shows it of a whole network
def test_classes_agree_in_integers(duts_of_classes: list[Dut]) -> None:
    torch.manual_seed(1)
    make, inputs = INTEGERS["conv"]
    assert differing(duts_of_classes, make(), inputs) == []


@pytest.mark.slow
@pytest.mark.parametrize("name", FLOATS)
def test_float_programs_give_the_same_bits_on_all_targets(duts: list[Dut], name: str) -> None:
    torch.manual_seed(1)
    make, inputs = FLOATS[name]
    assert len(duts) >= 10
    assert differing(duts, make(), inputs, quantize=False) == []


@pytest.mark.slow
@pytest.mark.parametrize("name", INTEGERS)
def test_quantised_programs_give_the_same_bits_on_all_targets(duts: list[Dut], name: str) -> None:
    torch.manual_seed(1)
    make, inputs = INTEGERS[name]
    assert differing(duts, make(), inputs) == []
