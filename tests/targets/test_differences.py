"""compare.DIALECT_DIFFERENCES: each entry's program differs from the dialect by as much as the entry says, and no less.

An entry whose test fails has gone from ExecuTorch: take it out of the table.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn

from harness.compare import DIALECT_DIFFERENCES, DialectDifference
from harness.fixtures import Hil

Provocation = tuple[Callable[[], nn.Module], tuple[int, ...], str]
# Even numbers of pixels have means halfway between integers.
PROVOCATIONS: dict[str, Provocation] = {
    "cortex_m::quantized_avg_pool2d.out": (lambda: nn.AvgPool2d(2), (1, 8, 16, 16), "channels_last"),
    "cortex_m::quantized_avg_pool2d_nhwc.out": (lambda: nn.AvgPool2d(2), (1, 8, 16, 16), "explicit"),
}


@pytest.mark.parametrize("entry", DIALECT_DIFFERENCES, ids=lambda entry: entry.operator)
def test_the_difference_still_occurs(hil: Hil, entry: DialectDifference) -> None:
    module, shape, layout = PROVOCATIONS[entry.operator]
    comparison = hil.check(module(), (torch.randn(shape),), layout=layout, atol=0.05)
    assert comparison.operators[0] == entry.operator
    assert comparison.outputs[0].max_quanta == entry.bound
