"""When memory holds what is read later, and what the lint says of a plan that lays two such tensors in one place."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import nn

from cortex_m_hil.checks.lint import Rule, lint
from cortex_m_hil.known_answer import known_answer
from cortex_m_hil.lowering import LoweringOptions, lower
from cortex_m_hil.program.lifetimes import Extent, Lifetimes, arguments
from cortex_m_hil.program.model import PteFile
from cortex_m_hil.program.program import Program
from cortex_m_hil.program.pte import parse_pte
from cortex_m_hil.targets.cpu import Isa
from cortex_m_hil.targets.load import load_targets


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


def test_indices_in_a_list_with_holes_are_read() -> None:
    lowered = lower(
        Indexed(), (torch.rand(2, 5), torch.arange(3)), isa=Isa.SCALAR, options=LoweringOptions(quantize=False)
    )
    last = lowered.file.instructions[-1]
    assert last.operator == "aten::index.Tensor_out"
    (indices,) = (one.args[-1] for one in lowered.file.instructions if one.operator == "aten::add.out")
    assert indices in arguments(lowered.file, last)
    first = next(one.args[-1] for one in lowered.file.instructions if one.operator == "aten::exp.out")
    assert list(Lifetimes(moved(lowered.file, first, indices, 0)).overlaps())


def test_plans_that_are_right_are_said_to_be(program: Program) -> None:
    for file in (program.file, *(parse_pte(known_answer(isa).program, "known answer") for isa in Isa)):
        assert not list(Lifetimes(file).overlaps())


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
