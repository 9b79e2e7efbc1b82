"""Two runtimes on one program: after every instruction, what it wrote in the one and in the other.

The second's values are taken over by the first before the next instruction, so that each is judged on equal inputs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from cortex_m_hil.errors import HarnessError, ProtocolError
from cortex_m_hil.flow.dut import Dut
from cortex_m_hil.flow.execution import POISON, operator_at, prepare
from cortex_m_hil.links.protocol import MemoryRegion
from cortex_m_hil.program.dataflow import written
from cortex_m_hil.program.program import Program
from cortex_m_hil.program.schema import InstructionKind, ValueKind
from cortex_m_hil.program.tensor import HostTensor
from cortex_m_hil.session.session import ResponseTimeout, Session


@dataclass(frozen=True)
class Difference:
    """What one instruction wrote differently: `elements` of `numel` have other bits; the largest distance between
    values, in quanta for integers: 0 where zeros have another sign, or only NaNs other bits.
    """

    instruction: int
    operator: str
    value: int
    dtype: str
    elements: int
    numel: int
    distance: float

    def __str__(self) -> str:
        unit = " quanta" if self.dtype.startswith(("int", "uint")) else ""
        many = f"{self.elements} of {self.numel} {self.dtype}"
        if self.distance == 0:
            return f"{many}, only in the sign of zeros or the bits of NaNs"
        return f"{many}, by up to {self.distance:g}{unit}"


def compare_runtimes(
    first: Dut, second: Dut, program: Program, inputs: Sequence[HostTensor]
) -> Iterator[Difference | None]:
    """One item for each value that an instruction writes, in order; None where both wrote the same bytes.

    Raises what either runtime raises, its name in front.
    """
    sessions = [_loaded(dut, program, inputs) for dut in (first, second)]
    position, done = 0, not program.file.instructions
    while not done:
        steps = [_step(dut, session, program) for dut, session in zip((first, second), sessions, strict=True)]
        if steps[0] != steps[1]:
            raise ProtocolError(f"after instruction {position} the runtimes stand at {steps[0][0]} and {steps[1][0]}")
        instruction = program.file.instructions[position]
        if instruction.kind is InstructionKind.KERNEL:
            for value in written(program.file, instruction):
                yield _difference(sessions[0], sessions[1], program, position, value)
        position, done = steps[0]


def _loaded(dut: Dut, program: Program, inputs: Sequence[HostTensor]) -> Session:
    with _Named(dut):
        session = dut.session()
        session.load(program.pte, lambda at: operator_at(program, at), file=program.file)
        prepare(session, inputs, POISON)
        return session


def _step(dut: Dut, session: Session, program: Program) -> tuple[int, bool]:
    with _Named(dut):
        try:
            step = session.step(1, dut.seconds)
        except ResponseTimeout as stuck:
            raise ProtocolError(f"no end after {dut.seconds:g} s", operator=stuck.operator, log=stuck.log) from None
        return step.next, step.done


class _Named:
    """Puts the runtime's name in front of an error."""

    def __init__(self, dut: Dut) -> None:
        self._name = dut.resolved.runtime

    def __enter__(self) -> None:
        """Nothing to prepare."""

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if isinstance(error, HarnessError):
            error.message = f"{self._name}: {error.message}"


def _difference(a: Session, b: Session, program: Program, instruction: int, value: int) -> Difference | None:
    spec = program.file.values[value].spec
    if spec is None or spec.kind is not ValueKind.TENSOR or spec.nbytes == 0:
        return None
    if a.digest(MemoryRegion.VALUE, value) == b.digest(MemoryRegion.VALUE, value):
        return None
    mine, theirs = (HostTensor(spec, session.read(MemoryRegion.VALUE, value, spec.nbytes)) for session in (a, b))
    a.write(MemoryRegion.VALUE, value, theirs.data)
    return difference(instruction, operator_at(program, instruction), value, mine, theirs)


def difference(instruction: int, operator: str, value: int, mine: HostTensor, theirs: HostTensor) -> Difference:
    """Of two tensors of one spec, by their bits; between two NaNs there is no distance."""
    spec = mine.spec
    bits = f"V{np.dtype(spec.dtype).itemsize}"
    unequal = np.frombuffer(mine.data, bits) != np.frombuffer(theirs.data, bits)
    x, y = (np.frombuffer(one.data, spec.dtype)[unequal].astype(np.float64) for one in (mine, theirs))
    with np.errstate(all="ignore"):  # inf - inf
        distance = np.where((x == y) | (np.isnan(x) & np.isnan(y)), 0.0, np.abs(x - y))
    return Difference(
        instruction, operator, value, spec.dtype, int(unequal.sum()), spec.numel, float(np.max(distance, initial=0.0))
    )
