"""When each planned byte of a program holds something that is read later."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from cortex_m_hil.program.dataflow import COPY_IN_PLACE, VIEWS, arguments, in_place, memory_of, scratch_values, written
from cortex_m_hil.program.model import Instruction, PteFile
from cortex_m_hil.program.schema import InstructionKind


@dataclass(frozen=True, order=True)
class Extent:
    """Bytes `begin` to `end` of the planned arena."""

    begin: int
    end: int

    def overlaps(self, other: Extent) -> bool:
        return self.begin < other.end and other.begin < self.end


@dataclass(frozen=True)
class Overlap:
    """An instruction writes `value` over `victim`, which is read later."""

    instruction: int
    value: int
    victim: int


@dataclass(frozen=True)
class View:
    """A value that no instruction writes: it lies where `base` does.

    `written`: the instruction that wrote that; -1 for an input.
    """

    value: int
    base: int
    written: int


class Lifetimes:
    """When each planned byte of a program holds something that is read later.

    `views`: the views that cost nothing, since their memory is their base's, as often as they are read.
    """

    def __init__(self, file: PteFile) -> None:
        self._file = file
        self.size = file.planned_bytes
        self.views: list[View] = []
        self._replaced: list[Overlap] = []
        self._scratch = scratch_values(file)
        self._spans = tuple(self._follow())

    def extent(self, value: int) -> Extent | None:
        """Where a value lies; None where it is not planned."""
        planned = self._file.values[value].planned
        if planned is None or not planned.nbytes:
            return None
        begin = self._file.planned_bases[planned.memory_id] + planned.offset
        return Extent(begin, begin + planned.nbytes)

    def live(self, position: int) -> tuple[int, ...]:
        """Values that hold something which an instruction after `position` reads, or that are outputs or state."""
        return tuple(span.value for span in self._spans if span.written <= position < span.read)

    def dead(self, position: int) -> Iterator[Extent]:
        """The rest of the arena after an instruction."""
        reached = 0
        extents = [extent for value in self.live(position) if (extent := self.extent(value)) is not None]
        for extent in sorted(extents):
            if extent.begin > reached:
                yield Extent(reached, extent.begin)
            reached = max(reached, extent.end)
        if reached < self.size:
            yield Extent(reached, self.size)

    def overlaps(self) -> Iterator[Overlap]:
        """What the plan itself gets wrong: two tensors in one place at one time."""
        yield from dict.fromkeys((*self._replaced, *self._laid_over()))

    def _laid_over(self) -> Iterator[Overlap]:
        for instruction in self._file.instructions:
            outs = self._outs(instruction)
            for value in outs:
                scratch = value in self._scratch
                victims = self._during(instruction.index) if scratch else self.live(instruction.index)
                for victim in victims:
                    if (scratch or victim not in outs) and victim != value and self._overlap(value, victim):
                        yield Overlap(instruction.index, value, victim)

    def _during(self, position: int) -> tuple[int, ...]:
        """Values that hold something while an instruction runs: what it reads for the last time and writes, too."""
        return tuple(span.value for span in self._spans if span.written <= position <= span.read)

    def _overlap(self, value: int, other: int) -> bool:
        mine, theirs = self.extent(value), self.extent(other)
        return mine is not None and theirs is not None and mine.overlaps(theirs)

    def _outs(self, instruction: Instruction) -> tuple[int, ...]:
        """Values that an instruction writes, and its scratch; a view in the place of what it is of writes nothing."""
        file = self._file
        if instruction.kind is not InstructionKind.KERNEL:
            return ()
        outs = written(file, instruction)
        if instruction.operator in VIEWS and len(outs) == 1 and _same_memory(file, outs[0], instruction.args[0]):
            return ()
        return (*outs, *(value for value in dict.fromkeys(instruction.args) if value in self._scratch))

    def _follow(self) -> Iterator[_Span]:
        """What is read is what was last written to the same place. Outputs are read after all instructions, and so is
        state: by the next call."""
        file = self._file
        given = (*file.inputs, *file.states)
        current: dict[object, _Span] = {memory_of(file, value): _Span(value, -1, -1) for value in given}
        made = {*given, *(value for one in file.instructions for value in self._outs(one))}

        def read(value: int, position: int) -> None:
            place = memory_of(file, value)
            if (span := current.get(place)) is None:
                return
            if span.value != value and (value in made or span.value in self._scratch):
                self._replaced.append(Overlap(span.written, span.value, value))
            elif value not in made:
                self.views.append(View(value, span.value, span.written))
            current[place] = replace(span, read=position)

        for instruction in file.instructions:
            outs = self._outs(instruction)
            for value in arguments(file, instruction):
                if value not in outs or (in_place(instruction) and instruction.operator != COPY_IN_PLACE):
                    read(value, instruction.index)
            for value in outs:
                if (before := current.pop(memory_of(file, value), None)) is not None:
                    yield before
                current[memory_of(file, value)] = _Span(value, instruction.index, instruction.index)
        for value in (*file.outputs, *file.states):
            read(value, len(file.instructions))
        yield from current.values()


@dataclass(frozen=True)
class _Span:
    """From the instruction that writes a value (-1: an input) to the last that reads it, or a view of it."""

    value: int
    written: int
    read: int


def _same_memory(file: PteFile, value: int, other: int) -> bool:
    return memory_of(file, value) == memory_of(file, other)
