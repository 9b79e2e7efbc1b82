"""`DIALECT_DIFFERENCES`: a target gives what the exact form of each entry says.

That ExecuTorch's operators do not is asserted in tests/harness/lowering/test_dialect_differences.py.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn

from cortex_m_hil.lowering import Layout
from cortex_m_hil.lowering.dialect_differences import DIALECT_DIFFERENCES, DialectDifference
from cortex_m_hil.pytest_plugin.fixtures import Hil
from wheel import require


class Quotient(nn.Module):
    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return x / y


Inputs = tuple[torch.Tensor, ...]


def image() -> Inputs:
    """Even numbers of pixels have means halfway between integers."""
    return (torch.randn(1, 8, 16, 16),)


def halves() -> Inputs:
    """5/2, 9/2 and 13/2 are halfway between integers: the divisors' scale is 1, and those of x and x / y are the same.

    torch's histogram observer makes the scale of values up to m some m / 255.124.
    """
    return torch.tensor([255.0, 5.0, 9.0, 13.0, 0.0]), torch.tensor([1.0, 2.0, 2.0, 2.0, 255.12407684326172])


def classifier() -> nn.Module:
    """Its layer makes several quanta of one that a pool is off."""
    return nn.Sequential(nn.AvgPool2d(2), nn.Flatten(), nn.Linear(8 * 64, 10))


def padded_twice() -> nn.Module:
    """One pixel, padded by a pool that counts its padding, and then in each dimension."""
    pool, pad = nn.AvgPool2d(2, 1, 1), nn.ConstantPad3d((1, 3, 3, 0, 1, 3), 0.0)
    return nn.Sequential(nn.AdaptiveAvgPool2d(1), pool, pad, nn.Flatten(), nn.Linear(12 * 5 * 6, 5))


def padded_behind_a_pool() -> nn.Module:
    """One pixel, averaged with its padding left out, and padded."""
    pool, pad = nn.AvgPool2d(2, 1, 1, count_include_pad=False), nn.ConstantPad2d((1, 2, 3, 0), 0.5)
    return nn.Sequential(nn.AdaptiveAvgPool2d(1), pool, pad, nn.Conv2d(8, 3, 2))


PROVOCATIONS: dict[str, tuple[Callable[[], nn.Module], Callable[[], Inputs], Layout]] = {
    "cortex_m::quantized_avg_pool2d": (lambda: nn.AvgPool2d(2), image, "channels_last"),
    "cortex_m::quantized_avg_pool2d_nhwc": (lambda: nn.AvgPool2d(2), image, "explicit"),
    "cortex_m::quantized_div": (Quotient, halves, "channels_last"),
}


@pytest.mark.parametrize(
    "entry", [one for one in DIALECT_DIFFERENCES if one.operator in PROVOCATIONS], ids=lambda entry: entry.operator
)
def test_a_target_gives_what_the_exact_form_does(hil: Hil, entry: DialectDifference) -> None:
    module, inputs, layout = PROVOCATIONS[entry.operator]
    require([f"{entry.operator}.out"], layout=layout)
    given = inputs()
    quantum = max(float(item.max() - item.min()) for item in given) / 255  # fake-quant rounds as ExecuTorch's do
    comparison = hil.check(module(), given, layout=layout, atol=2 * quantum)
    assert comparison.computed_by[0] == f"{entry.operator}.out"
    assert comparison.outputs[0].max_quanta == 0


@pytest.mark.parametrize("module", [padded_twice, padded_behind_a_pool])
def test_an_image_of_one_pixel_is_padded_as_the_program_says(hil: Hil, module: Callable[[], nn.Module]) -> None:
    """Its strides say nothing of its layout, and ExecuTorch's Python operators go by them."""
    require(["cortex_m::pad.out"], layout="channels_last")
    assert hil.check(module(), image()).outputs[0].max_quanta == 0


@pytest.mark.parametrize("layout", ["channels_last", "explicit"])
def test_a_layer_behind_an_average_pool_is_exact_too(hil: Hil, layout: Layout) -> None:
    assert hil.check(classifier(), image(), layout=layout).outputs[0].max_quanta == 0
