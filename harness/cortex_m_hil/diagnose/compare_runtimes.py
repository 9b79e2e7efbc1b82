"""Compares two runtimes on one program, by the values that each instruction wrote.

After each instruction the first runtime gets the second's values, so that every instruction is compared on equal
inputs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest

import numpy as np

from cortex_m_hil.checks.input_checks import require_fit
from cortex_m_hil.errors import HarnessError, ProtocolError
from cortex_m_hil.flow.checking import ProgramLint
from cortex_m_hil.flow.dut import Dut
from cortex_m_hil.flow.single_run import operator_at
from cortex_m_hil.flow.stepping import Executed, steps
from cortex_m_hil.program.program import Program
from cortex_m_hil.program.schema import ValueKind
from cortex_m_hil.program.tensor import HostTensor
from cortex_m_hil.runner.links.protocol import MemoryRegion
from cortex_m_hil.runner.session.session import Session


@dataclass(frozen=True)
class Difference:
    """A value that one instruction wrote differently.

    Attributes:
        instruction: the number of the instruction.
        operator: the operator's name, with the graph node where it is known.
        value: the index of the value.
        dtype: the dtype of the value.
        elements: the number of elements with different bits.
        numel: the number of all elements.
        distance: the largest distance of an element, in quanta for integers; 0 if only the signs of zeros or the bits
            of NaNs differ.
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
    """Step a program on two targets, and yield an item for each value that an instruction writes, in order.

    Args:
        first: the target whose values are replaced by those of `second` where they differ.
        second: the target that is the reference.
        program: the program.
        inputs: the program's inputs.

    Yields:
        The difference, or None where both targets wrote the same bytes.

    Raises:
        ConfigError: the inputs do not fit the program.
        ToolchainError: the installed ExecuTorch lacks an operator because it is older than the wheel.
        HarnessError: either runtime fails; the message begins with the runtime's name.
    """
    for dut in (first, second):
        require_fit(program, inputs, dut.target.name, dut.resolved.runtime)
    both = zip_longest(*(_steps(dut, program, inputs) for dut in (first, second)))
    last = -1
    for mine, theirs in both:
        if mine is None or theirs is None or mine.index != theirs.index:
            where = ["to the end" if one is None else f"with operator {one.index}" for one in (mine, theirs)]
            raise ProtocolError(f"after operator {last} one runtime goes on {where[0]}, the other {where[1]}")
        last = mine.index
        for value in mine.written:
            yield _difference(mine.session, theirs.session, program, last, value)


def _steps(dut: Dut, program: Program, inputs: Sequence[HostTensor]) -> Iterator[Executed]:
    """Yield each executed step; put the runtime's name in front of the message of an error."""
    try:
        with ProgramLint(dut, program, linted=False).explaining_verdicts():
            yield from steps(dut, program, inputs)
    except HarnessError as error:
        error.message = f"{dut.resolved.runtime}: {error.message}"
        raise


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
    """Return the difference of two tensors of the same spec, compared by bits; the distance of two NaNs is 0."""
    spec = mine.spec
    bits = f"V{np.dtype(spec.dtype).itemsize}"
    unequal = np.frombuffer(mine.data, bits) != np.frombuffer(theirs.data, bits)
    x, y = (np.frombuffer(one.data, spec.dtype)[unequal].astype(np.float64) for one in (mine, theirs))
    with np.errstate(all="ignore"):  # inf - inf
        distance = np.where((x == y) | (np.isnan(x) & np.isnan(y)), 0.0, np.abs(x - y))
    return Difference(
        instruction, operator, value, spec.dtype, int(unequal.sum()), spec.numel, float(np.max(distance, initial=0.0))
    )
