"""What generated networks found in executorch 1.5.1's lowering, and one close to each that is right."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch import nn

from cortex_m_hil import flow, lowering
from cortex_m_hil.checks.comparison.tolerance import Tolerance
from cortex_m_hil.checks.lint import lint
from cortex_m_hil.errors import LintError, Mismatch, ProgramRejected
from cortex_m_hil.flow.dut import Dut
from cortex_m_hil.lowering import Layout, LoweringOptions
from cortex_m_hil.maintainers.networks.known_defects import KNOWN, known_defect_of
from cortex_m_hil.targets.cpu import Isa
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


@pytest.mark.slow
def test_an_image_of_one_pixel_is_padded_in_another_order_in_the_explicit_layout(native: Dut) -> None:
    """Known bug 18 (docs/known_bugs.md)."""
    image = torch.randn(1, 7, 4, 4, generator=torch.Generator().manual_seed(1))
    check(native, padded(2), image, "explicit")
    check(native, padded(4), image)
    with pytest.raises(LintError, match=r"is a view of value .* without a copy"):
        check(native, padded(4), image, "explicit")


@pytest.mark.slow
def test_a_pool_that_rounds_up_and_counts_its_padding_has_too_many_rows(native: Dut) -> None:
    """Known bug 19 (docs/known_bugs.md)."""
    image = torch.linspace(-1, 1, 2 * 3).reshape(1, 2, 1, 3)
    check(native, nn.AvgPool2d((2, 3), 2, 1, ceil_mode=True, count_include_pad=False), image)
    with pytest.raises(Mismatch, match="shape"):
        check(native, nn.AvgPool2d((2, 3), 2, 1, ceil_mode=True), image)


def hardswish() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 8, bias=False), nn.Hardswish())


@pytest.mark.slow
@pytest.mark.parametrize("name", ("native", "m4-qemu", "m0-qemu", "m55-qemu"))
def test_a_hardswish_of_tiny_values_is_refused_on_dsp_alone(name: str) -> None:
    """Known bug 20 (docs/known_bugs.md): CMSIS-NN has 16 bits there for a zero point of -111,567."""
    given = torch.randn(3, 8, generator=torch.Generator().manual_seed(1))
    with flow.open_dut(resolve(name, load_targets())) as dut:
        check(dut, hardswish(), given)
        tiny = lowering.lower(hardswish(), (given * 1e-3,), isa=dut.target.isa)
        if dut.target.isa is not Isa.DSP:
            flow.verify(dut, tiny, tolerance=Tolerance())
            return
        with pytest.raises(LintError, match=r"which CMSIS-NN adds in 16 bits on DSP: .*\(known bug 20 of") as told:
            flow.verify(dut, tiny, tolerance=Tolerance())
        assert "next to no range" in told.value.hint and "builtin computes" not in told.value.hint
        with pytest.raises(ProgramRejected, match=r"zero_point \(argument 3\) is -"):
            flow.run(dut, tiny, linted=False)


@pytest.mark.first_only
@pytest.mark.parametrize("isa", [Isa.SCALAR, Isa.DSP, Isa.MVE])
def test_a_factor_that_leaves_int32_is_refused_everywhere(native: Dut, isa: Isa) -> None:
    """Behind a layer that gets nothing but zeros, since the bias lets nothing through the relu."""
    torch.manual_seed(0)
    first = nn.Linear(8, 8)
    with torch.no_grad():
        first.bias.fill_(-100.0)
    program = lowering.lower(nn.Sequential(first, nn.ReLU(), hardswish()), (torch.randn(3, 8),), isa=isa)
    target = dataclasses.replace(native.target, isa=isa)
    for runtime in ("builtin", "executorch"):
        found = [one.message for one in lint(program, target, operators=None, runtime=runtime) if not one.is_note]
        assert "a product can leave int32" in found[0]
    if isa is native.target.isa:
        with pytest.raises(ProgramRejected, match=r"operator takes|a product can leave int32"):
            flow.run(native, program, linted=False)


@pytest.mark.first_only
@pytest.mark.parametrize("isa", [Isa.SCALAR, Isa.DSP, Isa.MVE])
def test_a_bias_that_is_cut_off_makes_sums_leave_int32(native: Dut, isa: Isa) -> None:
    """Known bug 34 (docs/known_bugs.md)."""
    torch.manual_seed(0)
    layer, given = nn.Linear(8, 8), torch.randn(3, 8)
    with torch.no_grad():
        layer.weight *= 0.01
        layer.bias.fill_(0.5)
    tiny, usual = (lowering.lower(layer, (one,), isa=isa) for one in (given * 1e-6, given))
    target = dataclasses.replace(native.target, isa=isa)
    [found] = [one for one in lint(tiny, target, operators=None) if not one.is_note]
    assert "a sum that begins with it can leave int32" in found.message and found.bug == 34
    assert not [one for one in lint(usual, target, operators=None) if not one.is_note]
    if isa is native.target.isa:
        assert flow.run(native, tiny, linted=False).outputs[0].array().max() < 0.1  # of 0.5


def test_what_fails_otherwise_or_elsewhere_is_new() -> None:
    quantize = "cortex_m::quantize_per_tensor.out"
    assert known_defect_of("Mismatch quanta", quantize, "executorch", Isa.MVE).endswith("(known bug 3 of ExecuTorch)")
    for kind, operator, runtime, isa in (
        ("TargetFault", quantize, "executorch", Isa.MVE),
        ("Mismatch quanta", "cortex_m::quantized_mul.out", "executorch", Isa.MVE),
        ("Mismatch quanta", quantize, "builtin", Isa.MVE),
        ("Mismatch quanta", quantize, "executorch", Isa.DSP),
    ):
        assert known_defect_of(kind, operator, runtime, isa) == ""


def test_known_bugs_have_a_number_of_the_documents() -> None:
    text = Path("docs/known_bugs.md").read_text()
    assert all(f"\n| {one.number} | " in text for one in KNOWN)
