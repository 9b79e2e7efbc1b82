"""When memory holds what is read later, and what the lint says of a plan that lays two such tensors in one place."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import nn

from cortex_m_hil.checks.lint import lint
from cortex_m_hil.checks.lint_rules.finding import Rule
from cortex_m_hil.lowering import LoweringOptions, lower
from cortex_m_hil.program.known_answer import known_answer
from cortex_m_hil.program.lifetimes import Extent, Lifetimes
from cortex_m_hil.program.program import Program
from cortex_m_hil.program.pte_file import PteFile
from cortex_m_hil.program.pte_reader import parse_pte
from cortex_m_hil.program.values import Instruction
from cortex_m_hil.targets.cpu import Isa
from cortex_m_hil.targets.load import load_targets
from networks import Apply


class Skipping(nn.Module):
    """Each layer's output is needed until the end."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(8, 8) for _ in range(7))

    def forward(self, x: Any) -> Any:
        outputs = []
        for layer in self.layers:
            x = layer(x)
            outputs.append(x)
        total = outputs.pop()
        while outputs:
            total = total + outputs.pop()
        return total


@pytest.fixture(scope="module")
def program() -> Program:
    return lower(Skipping(), (torch.rand(4, 8),), isa=Isa.SCALAR)


def moved(file: PteFile, value: int, onto: int, by: int) -> PteFile:
    """The file with one value in the place of another, as by a plan that ends the other's lifetime too early."""
    mine, theirs = file.values[value].planned, file.values[onto].planned
    assert mine is not None and theirs is not None
    planned = replace(mine, memory_id=theirs.memory_id, offset=theirs.offset + by)
    values = [replace(one, planned=planned) if one.index == value else one for one in file.values]
    return replace(file, values=tuple(values))


class Indexed(nn.Module):
    """What is computed first, indices, is read last, and only from a list that may have holes."""

    def forward(self, x: Any, at: Any) -> Any:
        at = at + 1
        return torch.tanh(torch.exp(x))[:, at]


@pytest.mark.slow
def test_indices_in_a_list_with_holes_are_read() -> None:
    lowered = lower(
        Indexed(), (torch.rand(2, 5), torch.arange(3)), isa=Isa.SCALAR, options=LoweringOptions(quantize=False)
    )
    last = lowered.file.instructions[-1]
    assert last.operator == "aten::index.Tensor_out"
    (indices,) = (one.args[-1] for one in lowered.file.instructions if one.operator == "aten::add.out")
    assert indices in lowered.file.dataflow.arguments[last.index]
    first = next(one.args[-1] for one in lowered.file.instructions if one.operator == "aten::exp.out")
    assert list(Lifetimes(moved(lowered.file, first, indices, 0)).overlaps())


@pytest.mark.slow
def test_plans_that_are_right_are_said_to_be(program: Program) -> None:
    for file in (program.file, *(parse_pte(known_answer(isa).program, "known answer") for isa in Isa)):
        assert not list(Lifetimes(file).overlaps())


@pytest.mark.slow
@pytest.mark.parametrize("by", [0, 4])
def test_planted_overlaps_are_found_and_named(program: Program, by: int) -> None:
    """Each value in turn over each that is still needed: in its very place, and partly."""
    file, lifetimes = program.file, Lifetimes(program.file)
    pairs = []
    for instruction in file.instructions:
        out = instruction.args[-1]
        pairs += [(instruction.index, out, victim) for victim in lifetimes.live(instruction.index) if victim != out]
    assert len(pairs) >= 20
    target = load_targets()["native"]
    for at, value, victim in pairs:
        planted = replace(program, file=moved(file, value, victim, by))
        findings = [one for one in lint(planted, target, operators=None) if one.rule is Rule.OVERLAP]
        assert any(one.instruction == at and f"over value {victim}," in one.message for one in findings)


class Branched(nn.Module):
    """The first layer's output is read last."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Conv2d(4, 4, 3, padding=1) for _ in range(3))

    def forward(self, x: Any) -> Any:
        first = self.layers[0](x)
        return self.layers[2](torch.relu(self.layers[1](first))) + first


@pytest.fixture(scope="module")
def branched() -> Program:
    return lower(Branched(), (torch.randn(1, 4, 6, 6),), isa=Isa.DSP)


def last_scratch(file: PteFile) -> tuple[int, Instruction]:
    """That of the last convolution, and this."""
    scratch = file.dataflow.scratch
    convolution = [one for one in file.instructions if one.operator.startswith("cortex_m::quantized_conv2d")][-1]
    (value,) = (value for value in convolution.args if value in scratch)
    return value, convolution


@pytest.mark.slow
def test_scratch_in_the_very_place_of_what_is_dead_reads_nothing(branched: Program) -> None:
    """Its memory is given out anew, and it is no view of what was there before."""
    value, _ = last_scratch(branched.file)
    dead = branched.file.inputs[0]
    assert dead not in Lifetimes(branched.file).live(1)
    place = branched.file.values[dead].planned
    values = [replace(one, planned=place) if one.index == value else one for one in branched.file.values]
    lifetimes = Lifetimes(replace(branched.file, values=tuple(values)))
    assert not [one for one in lifetimes.overlaps() if dead in (one.value, one.victim)]
    assert value not in [view.value for view in lifetimes.views]


@pytest.mark.parametrize("by", [0, 4])
def test_scratch_over_what_is_needed_is_found(branched: Program, by: int) -> None:
    """Over what its operator reads and writes, and what is read later."""
    value, convolution = last_scratch(branched.file)
    own = (convolution.args[0], convolution.args[-1])
    needed = {*own, *Lifetimes(branched.file).live(convolution.index)}
    assert len(needed) >= 3
    for victim in needed:
        found = {(one.value, one.victim) for one in Lifetimes(moved(branched.file, value, victim, by)).overlaps()}
        assert (value, victim) in found


class Viewed(nn.Module):
    """A view of the first layer's output is read after the second layer, which works in scratch."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = (nn.Conv2d(4, 4, 3, padding=1) for _ in range(2))
        self.last = nn.Linear(36, 36)

    def forward(self, x: Any) -> Any:
        first = self.first(x)
        rows = first.reshape(1, 1, 4, 36)
        return self.second(torch.relu(first)).reshape(1, 1, 4, 36) + self.last(rows)


@pytest.mark.slow
def test_scratch_in_the_very_place_of_a_view_that_is_needed_is_found() -> None:
    file = lower(Viewed(), (torch.randn(1, 4, 6, 6),), isa=Isa.DSP, options=LoweringOptions(layout="explicit")).file
    value, convolution = last_scratch(file)
    readers = {one.index: set(one.args) for one in file.instructions if one.index > convolution.index}
    view = next(
        view
        for view in Lifetimes(file).views
        if view.written < convolution.index and any(view.value in given for given in readers.values())
    )
    place = file.values[view.value].planned
    values = [replace(one, planned=place) if one.index == value else one for one in file.values]
    found = [(one.value, one.victim) for one in Lifetimes(replace(file, values=tuple(values))).overlaps()]
    assert (value, view.value) in found


def test_tensors_without_items_lie_nowhere() -> None:
    """Their plans may be equal, and one is not the other."""
    lowered = lower(
        Apply(lambda x, at, new: x.index_put((at,), new)),
        (torch.rand(2, 3), torch.zeros(0, dtype=torch.int64), torch.rand(0, 3)),
        isa=Isa.SCALAR,
        options=LoweringOptions(quantize=False),
    )
    assert not list(Lifetimes(lowered.file).overlaps())


def test_dead_and_live_bytes_are_all_of_the_arena(program: Program) -> None:
    lifetimes = Lifetimes(program.file)
    for instruction in program.file.instructions:
        extents = list(lifetimes.dead(instruction.index))
        alive = [lifetimes.extent(value) for value in lifetimes.live(instruction.index)]
        for _ in range(50):
            byte = random.randrange(lifetimes.size)
            here = Extent(byte, byte + 1)
            dead = any(extent.overlaps(here) for extent in extents)
            assert dead is not any(extent is not None and extent.overlaps(here) for extent in alive)
