"""What generated networks found in executorch 1.5.1's lowering, and one close to each that is right."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch import nn

from cortex_m_hil import flow, lowering
from cortex_m_hil.checks.lint import lint
from cortex_m_hil.checks.tolerance import Tolerance
from cortex_m_hil.errors import LintError, Mismatch, ProgramRejected
from cortex_m_hil.flow.dut import Dut
from cortex_m_hil.fuzz.known import KNOWN, MUL, find_of
from cortex_m_hil.fuzz.models import Checks, ModelJudge
from cortex_m_hil.lowering import Layout, LoweringOptions
from cortex_m_hil.lowering.parts import Part
from cortex_m_hil.program.schema import InstructionKind
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


@pytest.mark.parametrize("isa", Isa)
def test_a_bias_that_is_cut_off_makes_sums_leave_int32(native: Dut, isa: Isa) -> None:
    """docs/verification.md, find 34."""
    torch.manual_seed(0)
    layer, given = nn.Linear(8, 8), torch.randn(3, 8)
    with torch.no_grad():
        layer.weight *= 0.01
        layer.bias.fill_(0.5)
    tiny, usual = (lowering.lower(layer, (one,), isa=isa) for one in (given * 1e-6, given))
    target = dataclasses.replace(native.target, isa=isa)
    [found] = [one for one in lint(tiny, target, operators=None) if not one.is_note]
    assert "a sum that begins with it can leave int32 (find 34)" in found.message
    assert not [one for one in lint(usual, target, operators=None) if not one.is_note]
    if isa is native.target.isa:
        assert flow.run(native, tiny, linted=False).outputs[0].array().max() < 0.1  # of 0.5


def dead() -> nn.Module:
    """A hardswish behind a layer that gets nothing but zeros, since the bias lets nothing through the relu."""
    torch.manual_seed(0)
    first, second = nn.Linear(8, 8), nn.Linear(8, 8, bias=False)
    with torch.no_grad():
        first.bias.fill_(-100.0)
    return nn.Sequential(first, nn.ReLU(), second, nn.Hardswish())


def judged_as(dut: Dut, module: nn.Module, given: torch.Tensor) -> list[tuple[str, str]]:
    exported = lowering.export(module.eval(), (given,), "channels_last")
    failures = ModelJudge([dut]).judge(Part.of(exported.program, exported.inputs), Checks()).failures
    return [(one.operator, one.known) for one in failures]


def test_a_generated_network_that_shows_find_20_is_known_by_its_zero_point(native: Dut) -> None:
    given = torch.randn(3, 8, generator=torch.Generator().manual_seed(1))
    torch.manual_seed(0)
    tiny = nn.Sequential(nn.Linear(8, 8, bias=False), nn.Hardswish())
    assert judged_as(native, dead(), given) == [(MUL, "find 20")]
    assert judged_as(native, tiny, given * 1e-3) == [(MUL, "find 20")]
    assert judged_as(native, tiny, given) == []


def test_what_fails_otherwise_or_elsewhere_is_new(native: Dut) -> None:
    """A hardswish that the kernel takes; and one that it does not, where something else is wrong."""
    torch.manual_seed(0)
    module, given = nn.Sequential(nn.Linear(8, 8, bias=False), nn.Hardswish()), torch.randn(3, 8)
    right = lowering.lower(module, (given,), isa=native.target.isa).file
    wrong = lowering.lower(module, (given * 1e-3,), isa=native.target.isa).file
    at = next(one.index for one in wrong.instructions if one.kind is InstructionKind.KERNEL and one.operator == MUL)
    assert find_of("ProgramRejected", MUL, at, wrong, "builtin", Isa.SCALAR) == "find 20"
    assert find_of("ProgramRejected", MUL, -1, wrong, "builtin", Isa.SCALAR) == "find 20"
    for kind, operator, place, file, runtime in (
        ("ProgramRejected", MUL, at, right, "builtin"),
        ("ProgramRejected", MUL, at - 1, wrong, "builtin"),
        ("Mismatch quanta", MUL, at, wrong, "builtin"),
        ("TargetFault", MUL, at, wrong, "executorch"),
        ("ProgramRejected", "cortex_m::quantized_linear.out", -1, wrong, "builtin"),
    ):
        assert find_of(kind, operator, place, file, runtime, Isa.SCALAR) == ""


def test_known_bugs_name_a_find_of_the_documents() -> None:
    text = Path("docs/verification.md").read_text()
    assert all(f"\n| {one.find.removeprefix('find ')} | " in text for one in KNOWN)
