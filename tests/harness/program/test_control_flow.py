"""Ways through a program with jumps, and what memory holds on them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from cortex_m_hil.lowering import LoweringOptions, lower
from cortex_m_hil.program.control_flow import ControlFlow, bits
from cortex_m_hil.program.known_answer import known_answer
from cortex_m_hil.program.lifetimes import Lifetimes
from cortex_m_hil.program.pte_file import PteFile
from cortex_m_hil.program.pte_reader import parse_pte
from cortex_m_hil.program.schema import InstructionKind, ValueKind
from cortex_m_hil.program.tensor import TensorSpec
from cortex_m_hil.program.values import Instruction, Planned, Value
from cortex_m_hil.targets.cpu import Isa
from networks import Apply

PLACES, CONDITION, ALWAYS = 4, 4, 5
SPEC = TensorSpec.contiguous("float32", (1,))
EMPTY = parse_pte(known_answer(Isa.SCALAR).program, "known answer")


def chain(*instructions: tuple[Any, ...]) -> PteFile:
    """Four tensors in places of their own, the first an input and the last the output, and conditions of jumps.

    ``(0, 1)`` is a kernel that reads 0 and writes 1, ``(condition, "to", 3)`` a jump, ``(0, "is", 1)`` a move.
    """
    values = [Value(at, ValueKind.TENSOR, SPEC, planned=Planned(1, 16 * at, 16)) for at in range(PLACES)]
    values += [Value(CONDITION, ValueKind.TENSOR, TensorSpec.contiguous("bool", ()))]
    values += [Value(ALWAYS, ValueKind.BOOL, scalar=False)]
    made = []
    for at, one in enumerate(instructions):
        if "to" in one:
            made.append(Instruction(at, InstructionKind.JUMP_FALSE, "", (one[0],), one[2]))
        elif "is" in one:
            made.append(Instruction(at, InstructionKind.MOVE, "", (one[2], one[0])))
        else:
            made.append(Instruction(at, InstructionKind.KERNEL, "aten::add.out", one))
    return replace(EMPTY, values=tuple(values), instructions=tuple(made), inputs=(0,), outputs=(PLACES - 1,))


BRANCHES = chain(
    (0, 1),
    (CONDITION, "to", 5),
    (1, 2),
    (1, "is", 2),
    (ALWAYS, "to", 6),
    (0, 1),
    (1, 3),
)


def test_the_ways_through_branches() -> None:
    flow = ControlFlow(BRANCHES)
    assert flow.successors == [(1,), (2, 5), (3,), (4,), (6,), (6,), (7,), ()]
    assert [list(bits(one)) for one in flow.after] == [
        [1, 2, 3, 4, 5, 6, 7], [2, 3, 4, 5, 6, 7], [3, 4, 6, 7], [4, 6, 7], [6, 7], [6, 7], [7], [],
    ]  # fmt: skip
    assert list(bits(flow.before[5])) == [0, 1] and list(bits(flow.before[6])) == [0, 1, 2, 3, 4, 5]


def test_what_a_value_was_made_is_alive_until_it_is_read_as_that() -> None:
    """Behind the first branch value 1 is value 2, behind the other itself, written anew."""
    lifetimes = Lifetimes(BRANCHES)
    found = [sorted(lifetimes.live(at)) for at in range(-1, 7)]
    assert found == [[0], [0, 1], [0, 1], [2], [2], [2], [1], [3]]
    assert not list(lifetimes.overlaps())


def ways(file: PteFile) -> Iterator[list[int]]:
    """All ways through a program whose jumps go forward."""
    successors = ControlFlow(file).successors
    open_ways = [[0]]
    while open_ways:
        way = open_ways.pop()
        if way[-1] == len(file.instructions):
            yield way
        open_ways += [[*way, one] for one in successors[way[-1]]]


def held_on(file: PteFile, way: list[int]) -> Iterator[tuple[int, int]]:
    """Instructions on a way, and the values whose memory is read after them, by running it."""
    written_at, now = {0: -1}, {value: value for value in range(PLACES)}
    reads: list[tuple[int, int, int]] = []  # memory, from, to
    for step, at in enumerate(way[:-1]):
        one = file.instructions[at]
        if one.kind is InstructionKind.KERNEL:
            reads.append((now[one.args[0]], written_at.get(now[one.args[0]], step), step))
            now[one.args[1]], written_at[one.args[1]] = one.args[1], step
        elif one.kind is InstructionKind.MOVE:
            now[one.args[1]] = now[one.args[0]]
    last = now[PLACES - 1]
    reads.append((last, written_at.get(last, len(way)), len(way) - 1))
    for memory, begin, end in reads:
        yield from ((way[step], memory) for step in range(max(begin, 0), end))


TENSORS = st.integers(0, PLACES - 1)


@st.composite
def chains(draw: st.DrawFn) -> PteFile:
    """Where a move takes from nobody writes any more."""
    made: list[tuple[Any, ...]] = []
    taken: set[int] = set()
    for at in range(count := draw(st.integers(1, 8))):
        what = draw(st.sampled_from(["kernel", "kernel", "jump", "move"]))
        if what == "jump":
            made.append((draw(st.sampled_from([CONDITION, ALWAYS])), "to", draw(st.integers(at + 1, count))))
        else:
            one, other = draw(st.tuples(TENSORS, TENSORS).filter(lambda pair: pair[0] != pair[1]))
            if what == "move" and other:
                made.append((other, "is", one))
                taken.add(one)
            elif other not in taken:
                made.append((one, other))
    count = len(made)
    return chain(*((*one[:2], min(one[2], count)) if "to" in one else one for one in made))


@given(file=chains())
def test_what_any_way_reads_later_is_alive(file: PteFile) -> None:
    lifetimes = Lifetimes(file)
    for way in ways(file):
        for at, value in held_on(file, way):
            assert value in lifetimes.live(at)


@given(file=chains())
def test_without_jumps_and_moves_nothing_else_is(file: PteFile) -> None:
    straight = [one for one in file.instructions if one.kind is InstructionKind.KERNEL]
    file = replace(file, instructions=tuple(replace(one, index=at) for at, one in enumerate(straight)))
    (way,) = ways(file)
    wanted = set(held_on(file, way))
    assert {(at, value) for at in way[:-1] for value in Lifetimes(file).live(at)} == wanted


@given(data=st.data())
def test_after_and_before_are_the_ways_there_loops_too(data: st.DataObject) -> None:
    count = data.draw(st.integers(1, 8))
    jumps = data.draw(st.lists(st.tuples(st.booleans(), st.integers(0, count)), min_size=count, max_size=count))
    flow = ControlFlow(chain(*((CONDITION, "to", to) if jumps_there else (0, 1) for jumps_there, to in jumps)))
    for at in range(count + 1):
        found: set[int] = set()
        waiting = [*flow.successors[at]]
        while waiting:
            one = waiting.pop()
            if one not in found:
                found.add(one)
                waiting += flow.successors[one]
        assert set(bits(flow.after[at])) == found
        for one in range(count + 1):
            assert (flow.before[one] >> at & 1) == (one in found)


def branching(x: Any) -> Any:
    return torch.relu(torch.cond(x.sum() > 0, lambda y: torch.exp(y) + 1, lambda y: y * 2 - 1, (x,)) + x)


def test_what_a_branch_gives_is_alive_behind_it_and_not_in_the_other() -> None:
    """ExecuTorch's plan gives both the same memory, and is right."""
    inputs = (torch.rand(2, 3),)
    file = lower(Apply(branching), inputs, isa=Isa.SCALAR, options=LoweringOptions(quantize=False)).file
    assert not list(Lifetimes(file).overlaps())
    moves = [one for one in file.instructions if one.kind is InstructionKind.MOVE]
    assert len(moves) == 2
    (first, second) = moves
    for one in moves:
        assert one.args[0] in Lifetimes(file).live(one.index)
    assert first.args[0] not in Lifetimes(file).live(second.index)


@pytest.mark.parametrize("at", [2, 5])
def test_what_is_written_over_in_one_branch_alone_is_found(at: int) -> None:
    """Value 0 is read behind the branches, and one of them writes there."""
    chained = [(0, 1), (CONDITION, "to", 5), (1, 2), (1, "is", 2), (ALWAYS, "to", 6), (1, 2), (0, 3)]
    assert not list(Lifetimes(chain(*chained)).overlaps())
    file = chain(*chained)
    over = replace(file.values[2], planned=file.values[0].planned)
    changed = replace(file, values=tuple(over if one.index == 2 else one for one in file.values))
    kept = tuple(replace(one, args=(1, 1)) if one.index in {2, 5} - {at} else one for one in changed.instructions)
    found = list(Lifetimes(replace(changed, instructions=kept)).overlaps())
    assert [(one.instruction, one.value) for one in found] == [(at, 2)] * len(found) and found
