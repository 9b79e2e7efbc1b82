"""Reads of tensors whose lifetime is over, and of memory that holds none."""

from __future__ import annotations

import functools
import struct
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Final

import pytest
import torch
from torch import nn

from cortex_m_hil import flow
from cortex_m_hil.diagnose.lifetime_check import WatchedMemory
from cortex_m_hil.diagnose.redzones import role
from cortex_m_hil.errors import LifetimeViolation
from cortex_m_hil.flow.dut import Dut
from cortex_m_hil.flow.single_run import operator_at
from cortex_m_hil.program.lifetimes import Lifetimes
from cortex_m_hil.program.program import Program
from cortex_m_hil.program.pte_reader import parse_pte
from cortex_m_hil.targets.load import load_targets
from cortex_m_hil.targets.resolve import resolve
from misbehaving import OPTIONS, with_redzones

TARGETS = ("native", "m4-qemu", "m55-qemu", "m0-qemu")
LENGTH = 8  # instructions of a chain
AT: Final = 0x5EED_0BAD_5EED  # stands in a lowered program for how many bytes behind its input a peek reads


class Peeking(nn.Module):
    """Three copies, the last of which takes a byte from behind its input."""

    def forward(self, x: Any) -> Any:
        return torch.ops.hil_test.peek(torch.clone(torch.clone(x) + 1.0), AT)


class Chain(nn.Module):
    """Copies of copies; the one at `reader` takes a byte from behind its input."""

    def __init__(self, reader: int) -> None:
        super().__init__()
        self.reader = reader

    def forward(self, x: Any) -> Any:
        for position in range(LENGTH):
            x = torch.ops.hil_test.peek(x, AT) if position == self.reader else torch.clone(x)
        return x


@pytest.fixture(scope="module", params=TARGETS)
def dut(request: pytest.FixtureRequest) -> Iterator[Dut]:
    with flow.open_dut(resolve(request.param, load_targets()), options=OPTIONS) as opened:
        yield opened


@functools.cache
def chain(reader: int) -> Program:
    return with_redzones(Chain(reader))


@functools.cache
def peeking() -> Program:
    return with_redzones(Peeking())


def at(lowered: Program, bytes_behind: int) -> Program:
    """The program with this in the place of AT: to lower it again takes a hundred times as long."""
    assert lowered.pte.count(struct.pack("<q", AT)) == 1
    pte = lowered.pte.replace(struct.pack("<q", AT), struct.pack("<q", bytes_behind))
    return replace(lowered, pte=pte, file=parse_pte(pte))


def distance(lowered: Program, value: int, own: int) -> int:
    """In the planned memory, from the input of the peek to another value."""
    extents = [Lifetimes(lowered.file).extent(one) for one in (value, own)]
    assert extents[0] is not None and extents[1] is not None
    return extents[0].begin - extents[1].begin


PLANTED = [(reader, dead) for reader in range(1, LENGTH) for dead in range(-1, reader - 1)]


@pytest.mark.first_only
def test_a_read_of_what_is_dead_is_named(dut: Dut) -> None:
    first, *_, last, _ = peeking().file.instructions  # what the first wrote nobody reads any more
    program = at(peeking(), distance(peeking(), first.args[-1], last.args[-1]))
    with pytest.raises(LifetimeViolation) as raised:
        flow.run(dut, program, guards=WatchedMemory)
    assert "hil_test::peek.out" in raised.value.operator
    assert "reads intermediate" in str(raised.value) and "whose lifetime is over" in str(raised.value)


@pytest.mark.slow
def test_each_planted_read_of_what_is_dead_is_found_with_reader_and_tensor(dut: Dut) -> None:
    assert len(PLANTED) >= 20
    for reader, dead in PLANTED:
        instructions = chain(reader).file.instructions
        value = chain(reader).file.inputs[0] if dead < 0 else instructions[dead].args[-1]
        program = at(chain(reader), distance(chain(reader), value, instructions[reader].args[0]))
        with pytest.raises(LifetimeViolation) as raised:
            flow.run(dut, program, guards=WatchedMemory)
        assert raised.value.operator == operator_at(program, reader)
        assert f"reads {role(program, value)}, whose lifetime is over" in str(raised.value)


@pytest.mark.first_only
def test_a_read_of_what_belongs_to_nobody_is_named(dut: Dut) -> None:
    with pytest.raises(LifetimeViolation, match="reads memory that holds no tensor"):
        flow.run(dut, at(peeking(), 64), guards=WatchedMemory)


def test_a_read_of_ones_own_is_none(dut: Dut) -> None:
    assert flow.run(dut, at(peeking(), 8), guards=WatchedMemory).outputs
