"""A search over parts, with a judge of our own; hil shrink does it on a target (tests/harness/cli/test_shrink.py)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from cortex_m_hil.diagnose.shrink import Shrunk, Symptom, shrink
from cortex_m_hil.errors import ConfigError, InfraError, LoweringError
from cortex_m_hil.lowering.parts import Part

BAD = Symptom("Mismatch", "aten::relu")
OTHER = Symptom("TargetHang", "")
Judge = Callable[[Any], tuple[Symptom, ...]]


def chain(kinds: list[type[nn.Module]]) -> Part:
    inputs = (torch.rand(2, 4),)
    module = nn.Sequential(*(kind() for kind in kinds)).eval()
    return Part.of(torch.export.export(module, inputs, strict=True), inputs)


def search(part: Part, judge: Judge, budget: float = 60.0) -> tuple[Shrunk, list[str]]:
    lines: list[str] = []
    return shrink(part, judge, budget=budget, told=lines.append), lines


def names(part: Part) -> list[str]:
    return [step.target._schema.name for step in part.steps]


def has_relu(part: Part) -> tuple[Symptom, ...]:
    return (BAD,) if "aten::relu" in names(part) else ()


KINDS = st.lists(st.sampled_from([nn.Sigmoid, nn.Tanh, nn.ReLU]), min_size=1, max_size=9)


@settings(deadline=None, max_examples=20)
@given(KINDS.filter(lambda kinds: nn.ReLU in kinds))
def test_one_operator_is_left_of_any_chain(kinds: list[type[nn.Module]]) -> None:
    found, lines = search(chain(kinds), has_relu)
    assert names(found.part) == ["aten::relu"] and found.symptom == BAD and found.ended
    assert found.part.elements == 1 and len(lines) == len(set(lines))
    assert lines == [] or lines[-1].startswith("1 operator, 1 element: ")
    if kinds[-1] is not nn.ReLU:
        assert found.passing is not None and "aten::relu" not in names(found.passing)


def test_two_that_fail_together_stay_together() -> None:
    def judge(part: Part) -> tuple[Symptom, ...]:
        return (BAD,) if {"aten::relu", "aten::tanh"} <= set(names(part)) else ()

    found, _ = search(chain([nn.Sigmoid, nn.Tanh, nn.Sigmoid, nn.Sigmoid, nn.ReLU, nn.Sigmoid]), judge)
    assert names(found.part) == ["aten::tanh", "aten::relu"]
    assert found.passing is not None and len(found.passing.steps) >= 1


def test_another_failure_is_not_followed_nor_what_cannot_be_lowered() -> None:
    def judge(part: Part) -> tuple[Symptom, ...]:
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
    calls: list[Part] = []

    def judge(part: Part) -> tuple[Symptom, ...]:
        calls.append(part)
        if len(calls) == 3:
            raise InfraError("gone")
        return (BAD,)

    with pytest.raises(InfraError, match="gone"):
        search(chain([nn.Tanh] * 4), judge)


def test_a_spent_budget_is_said() -> None:
    found, _ = search(chain([nn.ReLU, nn.Tanh]), has_relu, budget=0.0)
    assert not found.ended and len(found.part.steps) == 2 and found.tried == 1
