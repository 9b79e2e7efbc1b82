"""The control flow graph of a program: instructions run in order, but for the jumps of `torch.cond` and of loops."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from cortex_m_hil.program.pte_file import PteFile
from cortex_m_hil.program.schema import InstructionKind, ValueKind
from cortex_m_hil.program.values import Instruction


class ControlFlow:
    """The control flow graph of a program; the number of instructions stands for its end.

    Attributes:
        successors: for each instruction the instructions that may run next.
        after: for each instruction all instructions that may run after it, as the bits of a mask.
        before: for each instruction all instructions that may have run before it, as the bits of a mask.
    """

    def __init__(self, file: PteFile) -> None:
        made = {value for written in file.dataflow.written for value in written}
        self.successors = [*(_successors(file, instruction, made) for instruction in file.instructions), ()]
        predecessors: list[list[int]] = [[] for _ in self.successors]
        for at, ones in enumerate(self.successors):
            for one in ones:
                predecessors[one].append(at)
        forward = range(len(self.successors))
        self.after = _transitive_closure(self.successors, reversed(forward))
        self.before = _transitive_closure(predecessors, forward)


def bits(mask: int) -> Iterator[int]:
    """Yield the numbers of the bits that are set in a mask, from the lowest."""
    while mask:
        lowest = mask & -mask
        yield lowest.bit_length() - 1
        mask ^= lowest


def _successors(file: PteFile, instruction: Instruction, made: set[int]) -> tuple[int, ...]:
    """Return the instructions that may follow an instruction.

    A jump is taken where its condition is false; one whose condition is a constant goes one way only. `made` are the
    values that instructions write.
    """
    on = instruction.index + 1
    if instruction.kind is not InstructionKind.JUMP_FALSE:
        return (on,)
    condition = file.values[instruction.args[0]]
    if condition.kind is ValueKind.BOOL and condition.index not in made:
        return (on,) if condition.scalar else (instruction.destination,)
    return (on, instruction.destination)


def _transitive_closure(edges: Sequence[Sequence[int]], order: Iterable[int]) -> list[int]:
    """Return for each node all nodes that can be reached from it, as the bits of a mask.

    One pass over the nodes in `order` is enough if the successors of each node come before it in `order`.
    """
    found, order, before = [0] * len(edges), list(order), None
    while found != before:
        before = list(found)
        for at in order:
            for one in edges[at]:
                found[at] |= 1 << one | found[one]
    return found
