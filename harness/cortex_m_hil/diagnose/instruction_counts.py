"""The cost of a program on a target, as a whole and by operator: exact instructions, or cycles of a board."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from cortex_m_hil import flow
from cortex_m_hil.errors import ConfigError, ProtocolError
from cortex_m_hil.flow.stepping import steps
from cortex_m_hil.lowering import Io, LoweringOptions, lower
from cortex_m_hil.lowering.named_modules import check_name, load_named_module
from cortex_m_hil.program.bundled import SUFFIXES
from cortex_m_hil.program.operator_costs import OperatorCost
from cortex_m_hil.program.program import Program
from cortex_m_hil.program.tensor import HostTensor
from cortex_m_hil.targets.target import Clock, Target

COSTS: Final = (Clock.INSTRUCTIONS, Clock.CORE)
"""Clocks that measure the cost of a program; the other clocks follow a simulator's host."""


@dataclass(frozen=True)
class OperatorCount:
    """The cost of all calls of one operator; `share` is its part of the cost of all operators."""

    operator: str
    calls: int
    ticks: int
    share: float


@dataclass(frozen=True)
class Count:
    """The cost of one program on one target.

    Cycles of the whole are not the sum of the operators': each step fetches anew what a core keeps from one instruction
    to the next.

    Attributes:
        ticks: of the whole.
        operators: the costliest first.
        clock: what the ticks are.
    """

    ticks: int
    operators: tuple[OperatorCount, ...]
    clock: Clock = Clock.INSTRUCTIONS


Counted = Count | OperatorCount


def ratio(ours: Counted, reference: Counted | None) -> float | None:
    """Return how many times the reference's ticks ours takes; None where there is no reference, or it takes none."""
    return ours.ticks / reference.ticks if reference is not None and reference.ticks else None


def figures(clock: Clock, ticks: int | None, prefix: str = "") -> dict[str, int | None]:
    """Return the number of ticks as the figure of its clock, and None for the figures of other clocks."""
    return {f"{prefix}{one.value}": ticks if one is clock else None for one in COSTS}


def check_model(model: str) -> None:
    """Raise ConfigError for a name that is neither a program's file nor known to `program_of`. Imports no model."""
    if not model.endswith(SUFFIXES):
        check_name(model)


def program_of(model: str, target: Target, io: Io) -> Program:
    """Return a known network, or the module that `package.module:function` returns, lowered for a target.

    Files of programs are read by `cli.program_files`.
    """
    module, inputs = load_named_module(model)
    options = LoweringOptions(banks=target.board.memory.banks, io=io)
    return lower(module, inputs, isa=target.isa, options=options, name=model)


def count(dut: flow.Dut, program: Program) -> Count:
    """Run a program, and return its cost by operator. Raises what `executed` does."""
    whole = executed(dut, program)
    found: dict[str, list[int]] = {}
    for one, ticks in zip(program.file.instructions, whole.each, strict=True):
        found.setdefault(one.name, []).append(ticks)
    total = sum(whole.each)
    rows = [OperatorCount(name, len(all_), sum(all_), sum(all_) / total) for name, all_ in found.items()]
    return Count(whole.ticks, tuple(sorted(rows, key=lambda row: -row.ticks)), whole.clock)


@dataclass(frozen=True)
class ProgramCost:
    """The cost of a program in ticks of `clock`: of the whole program, and of `each` instruction."""

    clock: Clock
    ticks: int
    each: tuple[int, ...]


def executed(dut: flow.Dut, program: Program) -> ProgramCost:
    """Return what each instruction of a program takes: CPU instructions, an exact count, or cycles of a board.

    Runs the program as a whole, then by steps.

    Raises:
        ConfigError: the target's clock is no measure of cost.
        HarnessError: what `flow.run` raises.
    """
    result = flow.run(dut, program)
    _require_cost(dut, result.ran.clock)
    found = _ticks_of_steps(dut, program, program.inputs)
    if result.ran.clock is Clock.INSTRUCTIONS and sum(found) != result.ticks:
        raise ProtocolError(
            "the CPU instructions of the single steps do not add up to those of the whole run", target=dut.resolved.name
        )
    return ProgramCost(result.ran.clock, result.ticks, found)


def operator_costs(
    dut: flow.Dut, program: Program, inputs: Sequence[HostTensor], ticks: int, clock: Clock
) -> tuple[OperatorCost, ...]:
    """Run a program by steps, and return a row for each instruction, whose ticks add up to those of a run.

    Args:
        dut: the target.
        program: the program.
        inputs: those of the run.
        ticks: of the run.
        clock: of the run.

    Returns:
        The rows in the program's order. What the steps do not account for is a row of its own, the last: cycles of a
        board, whose core keeps something from one instruction to the next, so that it may be negative.

    Raises:
        ConfigError: the clock is no measure of cost.
        HarnessError: what a run raises.
    """
    _require_cost(dut, clock)
    found, parts = _ticks_of_steps(dut, program, inputs), program.partition.steps
    rows = tuple(
        OperatorCost(one.instruction, one.operator, one.module, one.source, took, clock)
        for one, took in zip(parts, found, strict=True)
    )
    rest = ticks - sum(found)
    return (*rows, OperatorCost(None, "the rest", "", "", rest, clock)) if rest else rows


def _require_cost(dut: flow.Dut, clock: Clock) -> None:
    if clock not in COSTS:
        what = f"{dut.target.name} counts neither instructions nor cycles, it has {clock.value}"
        hint = "a target of QEMU counts instructions, a board cycles: hil targets"
        raise ConfigError(what, target=dut.resolved.name, hint=hint)


def _ticks_of_steps(dut: flow.Dut, program: Program, inputs: Sequence[HostTensor]) -> tuple[int, ...]:
    found = [0] * len(program.file.instructions)
    for done in steps(dut, program, inputs):
        found[done.index] += done.ticks
    return tuple(found)


def counts_by_operator(dut: flow.Dut, program: Program, inputs: Sequence[HostTensor]) -> dict[str, list[int]]:
    """Run a program by steps, and return the ticks of each call of each operator. Raises what a run does."""
    found: dict[str, list[int]] = {}
    for done in steps(dut, program, inputs):
        found.setdefault(done.instruction.name, []).append(done.ticks)
    return found
