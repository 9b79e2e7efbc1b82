"""tolerance.DIALECT_DIFFERENCES: each entry's program differs from the dialect by what the entry says, and no less.

An entry whose test fails has gone from ExecuTorch: take it out of the table.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn

from cortex_m_hil.checks.tolerance import DIALECT_DIFFERENCES, DialectDifference
from cortex_m_hil.lowering import Layout
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


PROVOCATIONS: dict[str, tuple[Callable[[], nn.Module], Callable[[], Inputs], Layout]] = {
    "cortex_m::quantized_avg_pool2d.out": (lambda: nn.AvgPool2d(2), image, "channels_last"),
    "cortex_m::quantized_avg_pool2d_nhwc.out": (lambda: nn.AvgPool2d(2), image, "explicit"),
    "cortex_m::quantized_div.out": (Quotient, halves, "channels_last"),
}


@pytest.mark.parametrize("entry", DIALECT_DIFFERENCES, ids=lambda entry: entry.operator)
def test_the_difference_still_occurs(hil: Hil, entry: DialectDifference) -> None:
    module, inputs, layout = PROVOCATIONS[entry.operator]
    require([entry.operator], layout=layout)
    given = inputs()
    quantum = max(float(item.max() - item.min()) for item in given) / 255  # fake-quant rounds as the dialect does
    comparison = hil.check(module(), given, layout=layout, atol=2 * quantum)
    assert comparison.operators[0] == entry.operator
    assert comparison.outputs[0].max_quanta == entry.bound
