"""Lifetimes of planned tensors: when each planned byte of a program holds something that is read later."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from cortex_m_hil.program.control_flow import ControlFlow, bits
from cortex_m_hil.program.dataflow import COPY_IN_PLACE, VIEWS, Memory, in_place
from cortex_m_hil.program.pte_file import PteFile
from cortex_m_hil.program.schema import InstructionKind, ValueKind
from cortex_m_hil.program.values import Instruction


@dataclass(frozen=True, order=True)
class Extent:
    """The bytes of the planned arena from `begin` on, up to `end`, which is not included."""

    begin: int
    end: int

    def overlaps(self, other: Extent) -> bool:
        return self.begin < other.end and other.begin < self.end


@dataclass(frozen=True)
class Overlap:
    """An error of the memory plan: an instruction writes `value` over `victim`, which is read later."""

    instruction: int
    value: int
    victim: int


@dataclass(frozen=True)
class View:
    """A value that no instruction writes, since it has the same address as the value `base`.

    Attributes:
        value: the number of the view.
        base: the number of the value that was written to this address.
        written: the instruction that wrote the base; -1 for an input.
    """

    value: int
    base: int
    written: int


@dataclass(frozen=True)
class Peak:
    """The moment when the most bytes of the arena are live.

    Attributes:
        instruction: the instruction that runs at this moment; -1: before the first one.
        last: the last instruction of the peak: from `instruction` to it, the same number of bytes is live.
        held: the values that are live at `instruction`, with their bytes, the largest first.
    """

    instruction: int
    last: int
    held: tuple[tuple[int, int], ...]

    @property
    def nbytes(self) -> int:
        return sum(-(-nbytes // ALIGNMENT) * ALIGNMENT for _, nbytes in self.held)


ALIGNMENT: Final = 16
"""The alignment of each tensor in the arena, in bytes (`MemoryPlanningPass` of ExecuTorch's exir/passes)."""


class Lifetimes:
    """The lifetimes of a program's planned values: when each planned byte holds something that is read later.

    Attributes:
        size: bytes of the arena.
        views: an item for each read of a view that has no instruction, because it has its base's address.
    """

    def __init__(self, file: PteFile) -> None:
        self._file = file
        self.size = file.planned_bytes
        self.views: list[View] = []
        self._replaced: list[Overlap] = []
        self._data = file.dataflow
        self._flow = ControlFlow(file)
        self._given = (*file.inputs, *file.states)
        self._made = {*self._given, *(value for one in file.instructions for value in self._outs(one))}
        self._reads: dict[_Written, int] = {}  # for each written value the instructions that read it, as bits
        self._follow()

    def extent(self, value: int) -> Extent | None:
        """Return the bytes of the arena that a value takes; None where the value is not planned."""
        planned = self._file.values[value].planned
        if planned is None or not planned.nbytes:
            return None
        begin = self._file.planned_bases[planned.memory_id] + planned.offset
        return Extent(begin, begin + planned.nbytes)

    def live(self, position: int) -> tuple[int, ...]:
        """Return the values that are outputs or state, or hold what an instruction after `position` may read."""
        return tuple(self._live[position + 1])

    def dead(self, position: int) -> Iterator[Extent]:
        """Yield the ranges of the arena in which no value is live after an instruction."""
        reached = 0
        extents = [extent for value in self.live(position) if (extent := self.extent(value)) is not None]
        for extent in sorted(extents):
            if extent.begin > reached:
                yield Extent(reached, extent.begin)
            reached = max(reached, extent.end)
        if reached < self.size:
            yield Extent(reached, self.size)

    def peak(
        self, size: Callable[[int, int], int] = lambda _, nbytes: nbytes, *, without: Collection[int] = ()
    ) -> Peak:
        """Return the peak of live bytes. A value is live while it is written or read, and between.

        Args:
            size: returns how many bytes to count for a value, given its number and its planned bytes.
            without: instructions whose values are not counted.
        """
        extents = {value: extent for one in self._reads if (extent := self.extent(value := one.value)) is not None}
        best: dict[Extent, tuple[int, int]] = {}
        most, at, last, before = -1, -1, -1, -1
        for position in (-1, *(one.index for one in self._file.instructions if one.index not in without)):
            held = {
                extents[value]: (value, size(value, extents[value].end - extents[value].begin))
                for value in self.in_use(position)
                if value in extents
            }
            total = sum(nbytes for _, nbytes in held.values())
            if total > most:
                best, most, at, last = held, total, position, position
            elif total == most and last == before:
                last = position
            before = position
        return Peak(at, last, tuple(sorted((one for one in best.values() if one[1]), key=lambda one: -one[1])))

    def overlaps(self) -> Iterator[Overlap]:
        """Yield the errors of the plan itself: live tensors that overlap."""
        yield from dict.fromkeys((*self._replaced, *self._laid_over()))

    def _laid_over(self) -> Iterator[Overlap]:
        for instruction in self._file.instructions:
            outs = self._outs(instruction)
            for value in outs:
                scratch = value in self._data.scratch
                victims = self.in_use(instruction.index) if scratch else self.live(instruction.index)
                for victim in victims:
                    if (scratch or victim not in outs) and victim != value and self._overlap(value, victim):
                        yield Overlap(instruction.index, value, victim)

    def in_use(self, position: int) -> tuple[int, ...]:
        """Return the values that are live, read or written while an instruction runs; -1: before the first one."""
        touched = self._touched[position] if position >= 0 else ()
        return tuple(dict.fromkeys((*self.live(position), *touched)))

    def bytes_in_use(self, position: int) -> dict[int, int]:
        """Return the bytes of tensors in use while an instruction runs, by the number of the planned buffer."""
        held: dict[Extent, int] = {}
        for value in self.in_use(position):
            planned, extent = self._file.values[value].planned, self.extent(value)
            if planned is not None and extent is not None:
                held[extent] = planned.memory_id
        found: dict[int, int] = {}
        for extent, number in held.items():
            found[number] = found.get(number, 0) + -(-(extent.end - extent.begin) // ALIGNMENT) * ALIGNMENT
        return found

    def traffic(self, position: int) -> tuple[int, int]:
        """Return the bytes of the tensors that one call of an instruction reads, constants included, and writes.

        Each tensor counts once, scratch not at all. A view at its base's address moves no byte.
        """
        instruction = self._file.instructions[position]
        outs = [value for value in self._outs(instruction) if value not in self._data.scratch]
        if not outs:
            return 0, 0
        reads = (value for value in self._data.arguments[position] if value not in self._data.scratch)
        kept = in_place(instruction) and instruction.operator != COPY_IN_PLACE
        read = {value for value in reads if value not in outs or kept}
        return self._tensor_bytes(read), self._tensor_bytes(set(outs))

    def _tensor_bytes(self, values: Collection[int]) -> int:
        specs = (self._file.values[value].spec for value in values)
        return sum(spec.nbytes for spec in specs if spec is not None and spec.kind is ValueKind.TENSOR)

    @cached_property
    def _touched(self) -> list[list[int]]:
        """Return for each instruction the values that it reads and writes."""
        found: list[list[int]] = [[] for _ in self._file.instructions]
        for one, reads in self._reads.items():
            for reader in bits(reads):
                if reader < len(found):
                    found[reader].append(one.value)
        for one in self._reads:
            if one.at >= 0:
                found[one.at].append(one.value)
        return found

    @cached_property
    def _live(self) -> list[list[int]]:
        """Return the values that are live before all instructions (item 0) and after each instruction.

        A value is live from the instruction that writes it to the last one that may read it.
        """
        found: list[list[int]] = [[] for _ in range(len(self._flow.after))]
        for one, reads in self._reads.items():
            behind = self._flow.after[one.at] | 1 << one.at if one.at >= 0 else -1
            ahead = 0
            for reader in bits(reads):
                ahead |= self._flow.before[reader]
            for position in bits(behind & ahead):
                found[position + 1].append(one.value)
            if one.at < 0 and reads:
                found[0].append(one.value)
        return found

    def _overlap(self, value: int, other: int) -> bool:
        mine, theirs = self.extent(value), self.extent(other)
        return mine is not None and theirs is not None and mine.overlaps(theirs)

    def _outs(self, instruction: Instruction) -> tuple[int, ...]:
        """Return the values that a kernel writes, and its scratch; none for a view that has its base's address."""
        outs, memory = self._data.outs[instruction.index], self._data.memory
        if instruction.operator in VIEWS and len(outs) == 1 and memory[outs[0]] == memory[instruction.args[0]]:
            return ()
        return (*outs, *self._data.scratch_of[instruction.index])

    def _follow(self) -> None:
        """Follow the program's control flow, and record for each written value the instructions that may read it.

        An instruction reads what may have been written last to the same bytes. Outputs and states are read after all
        instructions, states by the next call.
        """
        given = [_Written(value, -1) for value in self._given]
        self._reads.update(dict.fromkeys(given, 0))
        arriving = {0: _State(self._data.memory, {self._data.memory[one.value]: frozenset({one}) for one in given}, {})}
        waiting, end = [0], len(self._file.instructions)
        joints = {
            one for at, ones in enumerate(self._flow.successors[:-1]) if ones != (at + 1,) for one in (*ones, at + 1)
        }
        while waiting:  # one basic block at a time, again where its incoming state has grown
            at = min(waiting)
            waiting.remove(at)
            state = arriving[at].copy()
            while at < end:
                self._step(state, self._file.instructions[at])
                if self._flow.successors[at] != (at + 1,) or at + 1 in joints:
                    break
                at += 1
            for one in self._flow.successors[at]:
                before = arriving.get(one)
                arriving[one] = state.copy() if before is None else before.joined(state)
                if arriving[one] != before:
                    waiting.append(one)
            if at == end:
                for value in (*self._file.outputs, *self._file.states):
                    self._read(state, value, at)

    def _step(self, state: _State, instruction: Instruction) -> None:
        at = instruction.index
        if instruction.kind is InstructionKind.FREE:
            return
        if instruction.kind is InstructionKind.MOVE:  # from now on the value refers to another one; no byte is moved
            source, to = instruction.args
            state.moved[to] = state.held(source)
            return
        outs = self._outs(instruction)
        for value in self._data.arguments[at]:
            if value not in outs or (in_place(instruction) and instruction.operator != COPY_IN_PLACE):
                self._read(state, value, at)
        for value in outs:
            one = _Written(value, at)
            self._reads.setdefault(one, 0)
            state.places[self._data.memory[value]] = frozenset({one})
            state.moved.pop(value, None)

    def _read(self, state: _State, value: int, at: int) -> None:
        for one in state.held(value):
            self._reads[one] |= 1 << at
            if value in state.moved or one.value == value:
                continue
            if value in self._made or one.value in self._data.scratch:
                self._replaced.append(Overlap(one.at, one.value, value))
            else:
                self.views.append(View(value, one.value, one.at))


@dataclass(frozen=True)
class _Written:
    """A value, and the instruction `at` which it was written; -1: an input or state."""

    value: int
    at: int


@dataclass
class _State:
    """The content of memory before an instruction.

    Attributes:
        memory: the memory of each value.
        places: for each memory the values that may have been written to it last, on any path to the instruction.
        moved: the values that a MoveCall has redirected, each with the writes that it stands for now.
    """

    memory: Sequence[Memory]
    places: dict[Memory, frozenset[_Written]]
    moved: dict[int, frozenset[_Written]]

    def held(self, value: int) -> frozenset[_Written]:
        moved = self.moved.get(value)
        return self.places.get(self.memory[value], frozenset()) if moved is None else moved

    def copy(self) -> _State:
        return _State(self.memory, dict(self.places), dict(self.moved))

    def joined(self, other: _State) -> _State:
        nothing: frozenset[_Written] = frozenset()
        places = {
            place: self.places.get(place, nothing) | other.places.get(place, nothing)
            for place in {**self.places, **other.places}
        }
        moved = {value: self.held(value) | other.held(value) for value in {**self.moved, **other.moved}}
        return _State(self.memory, places, moved)
