"""Instructions of a program on a target: exact numbers, of the whole and of each operator."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from cortex_m_hil import flow
from cortex_m_hil.errors import ConfigError, ProtocolError
from cortex_m_hil.flow.execution import operator_at
from cortex_m_hil.lowering import lower
from cortex_m_hil.lowering.networks import check_name, load
from cortex_m_hil.program.bundled import SUFFIXES
from cortex_m_hil.program.program import Program
from cortex_m_hil.program.tensor import HostTensor
from cortex_m_hil.session.session import ResponseTimeout
from cortex_m_hil.targets.cpu import Isa


@dataclass(frozen=True)
class OperatorCount:
    """All calls of one operator; `share` is that of the program's instructions."""

    operator: str
    calls: int
    instructions: int
    share: float


@dataclass(frozen=True)
class Count:
    """Of one program on one target; `operators` with the most instructions first."""

    instructions: int
    operators: tuple[OperatorCount, ...]


Counted = Count | OperatorCount


def ratio(ours: Counted, reference: Counted | None) -> float | None:
    """How many times the reference's instructions ours takes; None where there is no reference, or it takes none."""
    return ours.instructions / reference.instructions if reference is not None and reference.instructions else None


def check_model(model: str) -> None:
    """Raise ConfigError for what is neither a file of a program nor known to `program_of`. Imports nothing."""
    if not model.endswith(SUFFIXES):
        check_name(model)


def program_of(model: str, isa: Isa) -> Program:
    """Return a network or what `package.module:function` gives, lowered. What a file holds is `cli.files`' to read."""
    module, inputs = load(model)
    return lower(module, inputs, isa=isa, name=model)


def count(dut: flow.Dut, program: Program) -> Count:
    """By operator. Runs the program, and raises, as `executed` does."""
    found: dict[str, list[int]] = {}
    for one, instructions in zip(program.file.instructions, executed(dut, program), strict=True):
        found.setdefault(one.name, []).append(instructions)
    total = sum(map(sum, found.values()))
    rows = [OperatorCount(name, len(all_), sum(all_), sum(all_) / total) for name, all_ in found.items()]
    return Count(total, tuple(sorted(rows, key=lambda row: -row.instructions)))


def executed(dut: flow.Dut, program: Program) -> tuple[int, ...]:
    """What the core executes for each instruction of a program, exactly.

    Runs the program as a whole, then by steps. What it raises is what `flow.run` does; ConfigError where the target
    counts no instructions.
    """
    result = flow.run(dut, program)
    if result.instructions is None:
        what = f"{dut.target.name} counts no instructions, it has {result.ran.clock.value}"
        raise ConfigError(what, target=dut.resolved.name, hint="a target of QEMU does: hil targets")
    found = [0] * len(program.file.instructions)
    for at, ticks in _steps(dut, program, program.inputs):
        found[at] += ticks
    if sum(found) != result.instructions:
        raise ProtocolError("the steps do not take the instructions of the whole", target=dut.resolved.name)
    return tuple(found)


def by_operator(dut: flow.Dut, program: Program, inputs: Sequence[HostTensor]) -> dict[str, list[int]]:
    """Ticks of each call of an operator; the program is run by steps. Raises what a run does."""
    found: dict[str, list[int]] = {}
    for at, ticks in _steps(dut, program, inputs):
        found.setdefault(program.file.instructions[at].name, []).append(ticks)
    return found


def _steps(dut: flow.Dut, program: Program, inputs: Sequence[HostTensor]) -> Iterator[tuple[int, int]]:
    """Each instruction that is reached, and its ticks."""
    session = dut.session()
    session.load(program.pte, lambda at: operator_at(program, at), file=program.file)
    flow.prepare(session, inputs, flow.POISON)
    position, done = 0, not program.file.instructions
    while not done:
        try:
            step = session.step(1, dut.seconds)
        except ResponseTimeout as stuck:
            what = f"no end after {dut.seconds:g} s, and the program ended before"
            raise ProtocolError(what, target=dut.resolved.name, operator=stuck.operator, log=stuck.log) from None
        yield position, step.ticks
        position, done = step.next, step.done
