"""A search over parts, with a judge of our own, and on a target that is short of memory.

`hil shrink` does it for tests (tests/harness/cli/test_shrink.py).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from cortex_m_hil import flow
from cortex_m_hil.checks.comparison.tolerance import Tolerance
from cortex_m_hil.diagnose.localize import Cause, localize
from cortex_m_hil.diagnose.shrink import PARTS, Shrunk, Symptom, shrink
from cortex_m_hil.diagnose.shrink import Judge as TargetJudge
from cortex_m_hil.errors import ConfigError, InfraError, LoweringError
from cortex_m_hil.lowering import LoweringOptions, lower
from cortex_m_hil.lowering.submodules import ModulePart
from cortex_m_hil.targets.cpu import Isa
from cortex_m_hil.targets.load import load_targets
from cortex_m_hil.targets.resolve import Resolved, resolve
from planting import BUGS

DEADLINE = 3600.0  # seconds for a search: what is asked is where it ends, however busy this machine is
BAD = Symptom("Mismatch", "aten::relu")
OTHER = Symptom("TargetHang", "")
Judge = Callable[[Any], tuple[Symptom, ...]]


def chain(kinds: list[type[nn.Module]]) -> ModulePart:
    inputs = (torch.rand(2, 4),)
    module = nn.Sequential(*(kind() for kind in kinds)).eval()
    return ModulePart.from_exported(torch.export.export(module, inputs, strict=True), inputs)


def search(part: ModulePart, judge: Judge, budget: float = 60.0, parts: int = PARTS) -> tuple[Shrunk, list[str]]:
    lines: list[str] = []
    return shrink(part, judge, budget=budget, parts=parts, told=lines.append), lines


def names(part: ModulePart) -> list[str]:
    return [step.target._schema.name for step in part.steps]


def has_relu(part: ModulePart) -> tuple[Symptom, ...]:
    return (BAD,) if "aten::relu" in names(part) else ()


KINDS = st.lists(st.sampled_from([nn.Sigmoid, nn.Tanh, nn.ReLU]), min_size=1, max_size=9)


@pytest.mark.slow
@settings(max_examples=20)
@given(KINDS.filter(lambda kinds: nn.ReLU in kinds))
def test_one_operator_is_left_of_any_chain(kinds: list[type[nn.Module]]) -> None:
    found, lines = search(chain(kinds), has_relu)
    assert names(found.part) == ["aten::relu"] and found.symptom == BAD and found.ended
    assert found.part.elements == 1 and len(lines) == len(set(lines))
    assert lines == [] or lines[-1].startswith("1 operator, 1 element: ")
    if kinds[-1] is not nn.ReLU:
        assert found.passing is not None and "aten::relu" not in names(found.passing)


def test_two_that_fail_together_stay_together() -> None:
    def judge(part: ModulePart) -> tuple[Symptom, ...]:
        return (BAD,) if {"aten::relu", "aten::tanh"} <= set(names(part)) else ()

    found, _ = search(chain([nn.Sigmoid, nn.Tanh, nn.Sigmoid, nn.Sigmoid, nn.ReLU, nn.Sigmoid]), judge)
    assert names(found.part) == ["aten::tanh", "aten::relu"]
    assert found.passing is not None and len(found.passing.steps) >= 1


def test_another_failure_is_not_followed_nor_what_cannot_be_lowered() -> None:
    def judge(part: ModulePart) -> tuple[Symptom, ...]:
        if len(part.steps) == 1:
            return (OTHER,)
        if len(part.steps) == 2:
            raise LoweringError("no")
        return (BAD, OTHER)

    found, _ = search(chain([nn.Sigmoid] * 6), judge)
    assert len(found.part.steps) == 3 and found.symptom == BAD and found.passing is None


def test_what_passes_is_no_failure_and_an_infra_error_ends_it() -> None:
    with pytest.raises(ConfigError, match="does not fail when it is lowered by itself"):
        search(chain([nn.Tanh]), has_relu)
    calls: list[ModulePart] = []

    def judge(part: ModulePart) -> tuple[Symptom, ...]:
        calls.append(part)
        if len(calls) == 3:
            raise InfraError("gone")
        return (BAD,)

    with pytest.raises(InfraError, match="gone"):
        search(chain([nn.Tanh] * 4), judge)


def test_the_smallest_part_so_far_is_kept_whatever_ends_the_search() -> None:
    kept: list[Shrunk] = []
    lines: list[str] = []

    def judge(part: ModulePart) -> tuple[Symptom, ...]:
        if len(part.steps) == 1:
            raise InfraError("gone")
        return (BAD,)

    with pytest.raises(InfraError, match="gone"):
        shrink(chain([nn.Tanh] * 4), judge, told=lines.append, kept=kept.append)
    assert [len(one.part.steps) for one in kept] == [2] and len(lines) == 1


def test_a_failure_with_calibration_samples_is_told_of_them() -> None:
    with pytest.raises(ConfigError) as caught:
        shrink(chain([nn.Tanh]), has_relu, calibrated=True, told=print)
    assert "calibration=" in caught.value.hint


def test_a_spent_budget_is_said() -> None:
    found, _ = search(chain([nn.ReLU, nn.Tanh]), has_relu, budget=0.0)
    assert not found.ended and len(found.part.steps) == 2 and found.tried == 1


def test_no_more_parts_are_tried_than_are_allowed() -> None:
    lines: list[str] = []
    part = chain([nn.Sigmoid, nn.Tanh, nn.ReLU, nn.Tanh, nn.Sigmoid])
    found = shrink(part, has_relu, budget=60.0, parts=3, told=lines.append)
    assert found.tried == 3 and not found.ended
    rest = shrink(part, has_relu, budget=60.0, told=lines.append)
    assert rest.ended and shrink(part, has_relu, budget=60.0, parts=rest.tried, told=lines.append).ended


def test_what_was_refused_is_tried_again_after_another_cut_succeeded() -> None:
    """A relu alone gives more than fits, until its input is smaller."""

    def judge(part: ModulePart) -> tuple[Symptom, ...]:
        try:
            outputs = part.module()(*part.arguments())
        except RuntimeError as error:
            raise ConfigError(str(error)) from None
        return (OTHER,) if outputs.numel() > 100 else has_relu(part)

    inputs = (torch.rand(1, 4, 16, 16),)
    module = nn.Sequential(nn.ReLU(), nn.MaxPool2d(4)).eval()
    found, _ = search(ModulePart.from_exported(torch.export.export(module, inputs, strict=True), inputs), judge)
    assert names(found.part) == ["aten::relu"] and found.part.elements == 1 and found.ended


def with_planned_pool(size: int) -> Resolved:
    """The native target, with so many bytes for tensors."""
    native = load_targets()["native"]
    memory = native.board.memory.resized(banks=[size])
    small = dataclasses.replace(native, board=dataclasses.replace(native.board, memory=memory))
    return Resolved(small, small, "builtin")


@pytest.mark.slow
def test_what_did_not_fit_the_target_is_tried_again_once_tensors_are_smaller(tmp_path: Path) -> None:
    """The convolution by itself gives its whole output as float32, more than the target has for the network."""
    torch.manual_seed(3)
    module = nn.Sequential(nn.Conv2d(2, 8, 3, padding=1), nn.ReLU(), nn.AvgPool2d(4)).eval()
    inputs = (torch.rand(1, 2, 8, 8) * 2 - 0.7,)
    needed = lower(module, inputs, isa=Isa.SCALAR, options=LoweringOptions()).file.planned_bytes
    whole = ModulePart.from_exported(torch.export.export(module, inputs, strict=True), inputs)
    with flow.open_dut(with_planned_pool(needed), firmware=BUGS["bias_dropped"].plant(tmp_path)) as dut:
        judge = TargetJudge(dut, dut.target.isa, LoweringOptions(), Tolerance())
        without_pool = whole.without_step(2)
        assert without_pool is not None and [one.verdict for one in judge(without_pool)] == ["OutOfTargetMemory"]
        found, _ = search(whole, judge, budget=DEADLINE)
    assert found.ended and names(found.part) == ["aten::conv2d"]
    assert found.symptom == Symptom("Mismatch", "cortex_m::quantized_conv2d.out", Cause.KERNEL)


class CoarseInFront(nn.Module):
    """One channel takes all the range of the layer's input, and is not used; a pool comes behind."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.entry, self.coarse = nn.Conv2d(3, 8, 1), nn.Conv2d(8, 8, 1)
        with torch.no_grad():
            self.entry.bias[0] = 300.0  # type: ignore[index]
            self.coarse.weight[:, 0] = 0.0

    def forward(self, x: Any) -> Any:
        return torch.nn.functional.max_pool2d(self.coarse(self.entry(x)), 2)


@pytest.mark.slow
def test_the_operator_that_is_followed_is_the_one_that_localize_names() -> None:
    """Also where no kernel is wrong: the outputs are made by another layer than the one that loses their precision."""
    inputs = (torch.rand(1, 3, 2, 2, generator=torch.Generator().manual_seed(1)),)
    whole = ModulePart.from_exported(torch.export.export(CoarseInFront().eval(), inputs, strict=True), inputs)
    with flow.open_dut(resolve("native", load_targets())) as dut:
        program = lower(whole.module(), inputs, isa=dut.target.isa, options=LoweringOptions())
        (cause, row), *_ = localize(dut, program).causes
        judge = TargetJudge(dut, dut.target.isa, LoweringOptions(), Tolerance(eager_sqnr=40.0))
        found, lines = search(whole, judge, budget=DEADLINE, parts=8)  # one operator is left, and its tensors shrink
    assert (cause, row.operator) == (Cause.QUANTISATION, "cortex_m::quantized_conv2d.out")
    assert found.symptom == Symptom("Mismatch", row.operator, cause) and names(found.part) == ["aten::conv2d"]
    assert lines[-1].endswith("Mismatch of cortex_m::quantized_conv2d.out (its quantisation is coarse)")
