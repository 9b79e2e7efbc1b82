"""What generated networks found in executorch 1.5.1's lowering, and one close to each that is right."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from torch import nn

from cortex_m_hil import flow, lowering
from cortex_m_hil.checks.tolerance import Tolerance
from cortex_m_hil.errors import LintError, Mismatch, ProgramRejected
from cortex_m_hil.flow.dut import Dut
from cortex_m_hil.lowering import Layout, LoweringOptions
from cortex_m_hil.targets.load import load_targets
from cortex_m_hil.targets.resolve import resolve


@pytest.fixture(scope="module")
def native() -> Iterator[Dut]:
    with flow.open_dut(resolve("native", load_targets())) as opened:
        yield opened


def check(dut: Dut, module: nn.Module, given: torch.Tensor, layout: Layout = "channels_last") -> None:
    program = lowering.lower(module.eval(), (given,), isa=dut.target.isa, options=LoweringOptions(layout=layout))
    flow.verify(dut, program, tolerance=Tolerance())


def padded(window: int) -> nn.Module:
    torch.manual_seed(0)
    side = 4 // window
    layers = nn.AvgPool2d(window), nn.ConstantPad2d((0, 3, 0, 0), 0.5), nn.Flatten()
    return nn.Sequential(*layers, nn.Linear(7 * side * (side + 3), 8))


def test_an_image_of_one_pixel_is_padded_in_another_order_in_the_explicit_layout(native: Dut) -> None:
    """docs/verification.md, find 18."""
    image = torch.randn(1, 7, 4, 4, generator=torch.Generator().manual_seed(1))
    check(native, padded(2), image, "explicit")
    check(native, padded(4), image)
    with pytest.raises(LintError, match=r"is a view of value .* without a copy"):
        check(native, padded(4), image, "explicit")


def test_a_pool_that_rounds_up_and_counts_its_padding_has_too_many_rows(native: Dut) -> None:
    """docs/verification.md, find 19."""
    image = torch.linspace(-1, 1, 2 * 3).reshape(1, 2, 1, 3)
    check(native, nn.AvgPool2d((2, 3), 2, 1, ceil_mode=True, count_include_pad=False), image)
    with pytest.raises(Mismatch, match="shape"):
        check(native, nn.AvgPool2d((2, 3), 2, 1, ceil_mode=True), image)


def test_a_hardswish_of_tiny_values_has_a_zero_point_that_no_kernel_takes(native: Dut) -> None:
    """docs/verification.md, find 20."""
    torch.manual_seed(0)
    layer = nn.Linear(8, 8, bias=False)
    given = torch.randn(3, 8)
    check(native, nn.Sequential(layer, nn.Hardswish()), given)
    with pytest.raises(ProgramRejected, match="zero_point"):
        check(native, nn.Sequential(layer, nn.Hardswish()), given * 1e-3)
