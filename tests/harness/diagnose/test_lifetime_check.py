"""Reads of tensors whose lifetime is over, and of memory that holds none."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import nn

from cortex_m_hil import flow
from cortex_m_hil.diagnose.lifetime_check import WatchedMemory
from cortex_m_hil.diagnose.redzones import role
from cortex_m_hil.errors import LifetimeViolation
from cortex_m_hil.flow.dut import Dut
from cortex_m_hil.flow.execution import operator_at
from cortex_m_hil.program.lifetimes import Lifetimes
from cortex_m_hil.program.program import Program
from cortex_m_hil.targets.load import load_targets
from cortex_m_hil.targets.resolve import resolve
from misbehaving import OPTIONS, spaced

TARGETS = ("native", "m4-qemu", "m55-qemu", "m0-qemu")
LENGTH = 8  # instructions of a chain


class Peeking(nn.Module):
    """Three copies, the last of which takes a byte from `at` bytes behind its input."""

    def __init__(self, at: int) -> None:
        super().__init__()
        self.at = at

    def forward(self, x: Any) -> Any:
        return torch.ops.hil_test.peek(torch.clone(torch.clone(x) + 1.0), self.at)


class Chain(nn.Module):
    """Copies of copies; the one at `reader` takes a byte from `at` bytes behind its input."""

    def __init__(self, reader: int, at: int) -> None:
        super().__init__()
        self.reader, self.at = reader, at

    def forward(self, x: Any) -> Any:
        for position in range(LENGTH):
            x = torch.ops.hil_test.peek(x, self.at) if position == self.reader else torch.clone(x)
        return x


@pytest.fixture(scope="module", params=TARGETS)
def dut(request: pytest.FixtureRequest) -> Iterator[Dut]:
    with flow.open_dut(resolve(request.param, load_targets()), options=OPTIONS) as opened:
        yield opened


@functools.cache
def chain(reader: int, dead: int) -> tuple[Program, int]:
    """One whose instruction `reader` reads what `dead` wrote, or the input (-1), at a time when nobody needs it any
    more; and the index of that value."""
    plain = spaced(Chain(reader, 0)).file
    value = plain.inputs[0] if dead < 0 else plain.instructions[dead].args[-1]
    own = plain.instructions[reader].args[0]
    extents = [Lifetimes(plain).extent(one) for one in (value, own)]
    assert extents[0] is not None and extents[1] is not None
    return spaced(Chain(reader, extents[0].begin - extents[1].begin)), value


PLANTED = [(reader, dead) for reader in range(1, LENGTH) for dead in range(-1, reader - 1)]


def peeking(behind: int) -> Program:
    """At what an earlier instruction wrote, which nobody reads any more."""
    plain = spaced(Peeking(0)).file
    extents = [Lifetimes(plain).extent(plain.instructions[at].args[-1]) for at in (behind, len(plain.instructions) - 2)]
    assert extents[0] is not None and extents[1] is not None
    return spaced(Peeking(extents[0].begin - extents[1].begin))


def test_a_read_of_what_is_dead_is_named(dut: Dut) -> None:
    program = peeking(0)
    with pytest.raises(LifetimeViolation) as raised:
        flow.run(dut, program, guards=WatchedMemory)
    assert "hil_test::peek.out" in raised.value.operator
    assert "reads intermediate" in str(raised.value) and "whose lifetime is over" in str(raised.value)


def test_each_planted_read_of_what_is_dead_is_found_with_reader_and_tensor(dut: Dut) -> None:
    assert len(PLANTED) >= 20
    for reader, dead in PLANTED:
        program, value = chain(reader, dead)
        with pytest.raises(LifetimeViolation) as raised:
            flow.run(dut, program, guards=WatchedMemory)
        assert raised.value.operator == operator_at(program, reader)
        assert f"reads {role(program, value)}, whose lifetime is over" in str(raised.value)


def test_a_read_of_what_belongs_to_nobody_is_named(dut: Dut) -> None:
    with pytest.raises(LifetimeViolation, match="reads memory that holds no tensor"):
        flow.run(dut, spaced(Peeking(64)), guards=WatchedMemory)


def test_a_read_of_ones_own_is_none(dut: Dut) -> None:
    assert flow.run(dut, spaced(Peeking(8)), guards=WatchedMemory).outputs
