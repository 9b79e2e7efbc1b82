"""Reads of tensors whose lifetime is over, and of memory that holds none."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import nn

from cortex_m_hil import flow
from cortex_m_hil.diagnose.lifetimes import WatchedMemory
from cortex_m_hil.errors import LifetimeViolation
from cortex_m_hil.flow.dut import Dut
from cortex_m_hil.program.lifetimes import Lifetimes
from cortex_m_hil.program.program import Program
from cortex_m_hil.targets.load import load_targets
from cortex_m_hil.targets.resolve import resolve
from misbehaving import OPTIONS, spaced


class Peeking(nn.Module):
    """Three copies, the last of which takes a byte from `at` bytes behind its input."""

    def __init__(self, at: int) -> None:
        super().__init__()
        self.at = at

    def forward(self, x: Any) -> Any:
        return torch.ops.hil_test.peek(torch.clone(torch.clone(x) + 1.0), self.at)


@pytest.fixture(scope="module")
def dut() -> Iterator[Dut]:
    with flow.open_dut(resolve("native", load_targets()), options=OPTIONS) as opened:
        yield opened


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


def test_a_read_of_what_belongs_to_nobody_is_named(dut: Dut) -> None:
    with pytest.raises(LifetimeViolation, match="reads memory that holds no tensor"):
        flow.run(dut, spaced(Peeking(64)), guards=WatchedMemory)


def test_a_read_of_ones_own_is_none(dut: Dut) -> None:
    assert flow.run(dut, spaced(Peeking(8)), guards=WatchedMemory).outputs
