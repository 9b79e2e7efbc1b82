"""What each operator of a program wrote, as digests: two runs of a test tell where their outputs part."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from cortex_m_hil.flow.dut import Dut
from cortex_m_hil.flow.execution import POISON, operator_at, prepare
from cortex_m_hil.links.protocol import MemoryRegion
from cortex_m_hil.program.dataflow import written_tensors
from cortex_m_hil.program.program import Program
from cortex_m_hil.program.schema import InstructionKind
from cortex_m_hil.program.tensor import HostTensor


@dataclass(frozen=True)
class OperatorOutput:
    """`operator` as errors name it, with its graph node where that is known; `digest` is a CRC-32 of all it wrote."""

    operator: str
    digest: str


def operator_outputs(dut: Dut, program: Program, inputs: Sequence[HostTensor]) -> list[OperatorOutput]:
    """Of each operator call, in the order of the program, which is loaded and stepped here. Raises what a run does."""
    session = dut.session()
    session.load(program.pte, lambda at: operator_at(program, at), file=program.file)
    prepare(session, inputs, POISON)
    found = []
    position, done = 0, not program.file.instructions
    while not done:
        step = session.step(1, dut.seconds)
        if program.file.instructions[position].kind is InstructionKind.KERNEL:
            values = written_tensors(program.file, position)
            digests = [f"{session.digest(MemoryRegion.VALUE, value):08x}" for value in values]
            found.append(OperatorOutput(operator_at(program, position), " ".join(digests)))
        position, done = step.next, step.done
    return found


def differing(before: Sequence[OperatorOutput], after: Sequence[OperatorOutput]) -> list[str]:
    """Operators whose outputs differ, in the order of the later program; then those that it has no more."""
    old, new = _numbered(before), _numbered(after)
    changed = [name if name in old else f"{name}: new" for name, digest in new.items() if old.get(name) != digest]
    return [*changed, *(f"{name}: gone" for name in old if name not in new)]


def _numbered(outputs: Sequence[OperatorOutput]) -> Mapping[str, str]:
    """Digests by name; the second call of the same name is `name #2`."""
    found: dict[str, str] = {}
    seen: dict[str, int] = {}
    for one in outputs:
        seen[one.operator] = seen.get(one.operator, 0) + 1
        name = one.operator if seen[one.operator] == 1 else f"{one.operator} #{seen[one.operator]}"
        found[name] = one.digest
    return found
