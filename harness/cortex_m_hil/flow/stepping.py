"""Executes a program on a live target instruction by instruction, for the commands that diagnose a failure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from cortex_m_hil.flow.hang_diagnosis import hang_diagnosed
from cortex_m_hil.flow.single_run import POISON, Device, Guard, load, operator_at, prepare
from cortex_m_hil.host.spans import span
from cortex_m_hil.program.program import Program
from cortex_m_hil.program.schema import InstructionKind
from cortex_m_hil.program.tensor import HostTensor
from cortex_m_hil.program.values import Instruction
from cortex_m_hil.runner.links.protocol import MemoryRegion
from cortex_m_hil.runner.session.session import Session


@dataclass(frozen=True)
class Executed:
    """An instruction that the target has just executed; the target's memory is as the instruction left it.

    Attributes:
        index: the number of the instruction in the program.
        ticks: ticks of the runner's clock that the instruction took.
        session: the live session, to read and write memory before the next instruction is executed.
    """

    index: int
    ticks: int
    program: Program = field(repr=False)
    session: Session = field(repr=False)

    @property
    def instruction(self) -> Instruction:
        return self.program.file.instructions[self.index]

    @property
    def operator(self) -> str:
        """Return the operator's name, with its graph node where that is known."""
        return operator_at(self.program, self.index)

    @property
    def is_kernel(self) -> bool:
        """Tell whether the instruction called an operator; jumps, moves and frees do not."""
        return self.instruction.kind is InstructionKind.KERNEL

    @property
    def written(self) -> tuple[int, ...]:
        """Return the values that the instruction's kernel has written; none if it called no kernel."""
        return self.program.file.dataflow.outs[self.index]

    def digests(self) -> tuple[int, ...]:
        """Return the CRC-32 of each tensor that the instruction wrote, computed on the target."""
        values = self.program.file.dataflow.written_tensors[self.index]
        return tuple(self.session.digest(MemoryRegion.VALUE, value) for value in values)


def steps(
    device: Device,
    program: Program,
    inputs: Sequence[HostTensor],
    *,
    poison: int = POISON,
    guard: Guard | None = None,
    before: Callable[[Session, int], None] = lambda session, index: None,
) -> Iterator[Executed]:
    """Load a program, and yield each instruction once the target has executed it.

    Instructions that a jump passes over are not yielded. Iterate to the end: a program that is abandoned in the middle
    goes on there when it is next executed.

    Args:
        device: the target; it can be used afterwards as after a run.
        program: the program; one without instructions yields nothing.
        inputs: the program's inputs, as for `run`.
        poison: the byte that fills the arena before the first instruction.
        guard: fills the memory that it watches before the inputs are set.
        before: called with the session and the number of each instruction before the target executes it.

    Raises:
        TargetHang: an instruction does not end, on a target that passes its self-test afterwards.
        HarnessError: `run` would raise it; a fault names the operator.
    """
    session = device.session()
    load(session, program)
    prepare(session, inputs, poison, guard)
    index, done = 0, not program.file.instructions
    while not done:
        before(session, index)
        with hang_diagnosed(device, program, inputs), span("run", "step"):
            step = session.step(1, device.seconds)
        yield Executed(index, step.ticks, program, session)
        index, done = step.next, step.done
