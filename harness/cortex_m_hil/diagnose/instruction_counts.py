"""Measures the cost of a program on a target, as a whole and by operator: exact instructions, or a board's cycles."""

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
    """The cost of all calls of one operator; `share` is its share of the cost of all operators."""

    operator: str
    calls: int
    ticks: int
    share: float


@dataclass(frozen=True)
class Count:
    """The cost of one program on one target.

    The cycles of a whole run are not the sum of the operators' cycles: in single steps, caches lose their contents in
    between.

    Attributes:
        ticks: ticks of the whole run.
        operators: the cost of each operator, the costliest first.
        clock: the clock that the ticks follow.
    """

    ticks: int
    operators: tuple[OperatorCount, ...]
    clock: Clock = Clock.INSTRUCTIONS


Counted = Count | OperatorCount


def ratio(ours: Counted, reference: Counted | None) -> float | None:
    """Return the quotient of our ticks and the reference's; None without a reference, or if it has no ticks."""
    return ours.ticks / reference.ticks if reference is not None and reference.ticks else None


def figures(clock: Clock, ticks: int | None, prefix: str = "") -> dict[str, int | None]:
    """Return a figure for each clock: the number of ticks for `clock`, and None for other clocks."""
    return {f"{prefix}{one.value}": ticks if one is clock else None for one in COSTS}


def check_model(model: str) -> None:
    """Raise ConfigError for a name that is neither a program's file nor known to `program_of`. Imports no model."""
    if not model.endswith(SUFFIXES):
        check_name(model)


def program_of(model: str, target: Target, io: Io) -> Program:
    """Lower a known network, or the module that `package.module:function` returns, for a target.

    `cli.program_files` reads files of programs.
    """
    module, inputs = load_named_module(model)
    options = LoweringOptions(banks=target.board.memory.banks, io=io)
    return lower(module, inputs, isa=target.isa, options=options, name=model)


def count(dut: flow.Dut, program: Program) -> Count:
    """Run a program, and return its cost by operator. Raises the errors of `executed`."""
    whole = executed(dut, program)
    found: dict[str, list[int]] = {}
    for one, ticks in zip(program.file.instructions, whole.each, strict=True):
        found.setdefault(one.name, []).append(ticks)
    total = sum(whole.each)
    rows = [OperatorCount(name, len(all_), sum(all_), sum(all_) / total) for name, all_ in found.items()]
    return Count(whole.ticks, tuple(sorted(rows, key=lambda row: -row.ticks)), whole.clock)


@dataclass(frozen=True)
class ProgramCost:
    """The cost of a program in ticks of `clock`: of the whole program (`ticks`), and of `each` instruction."""

    clock: Clock
    ticks: int
    each: tuple[int, ...]


def executed(dut: flow.Dut, program: Program) -> ProgramCost:
    """Return the cost of each instruction of a program: CPU instructions, counted exactly, or cycles of a board.

    Runs the program as a whole, then by steps.

    Raises:
        ConfigError: the target's clock is no measure of cost.
        HarnessError: `flow.run` raises it.
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
    """Run a program by steps, and return a row for each instruction; the ticks add up to those of a whole run.

    Args:
        dut: the target.
        program: the program.
        inputs: the inputs of the whole run.
        ticks: the ticks of the whole run.
        clock: the clock of the whole run.

    Returns:
        The rows in the program's order. The last row has the ticks that the steps do not account for. It may be
        negative on a board, whose caches lose their contents between steps.

    Raises:
        ConfigError: the clock is no measure of cost.
        HarnessError: a run fails.
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
    """Run a program by steps, and return the ticks of each call of each operator. Raises the errors of a run."""
    found: dict[str, list[int]] = {}
    for done in steps(dut, program, inputs):
        found.setdefault(done.instruction.name, []).append(done.ticks)
    return found
