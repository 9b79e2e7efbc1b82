"""Tries all orders of a target's memory banks: in which of them does a model fit, and how long does it take?"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import permutations
from typing import Final

from cortex_m_hil import flow
from cortex_m_hil.errors import ConfigError, Mismatch, OutOfTargetMemory
from cortex_m_hil.errors.text import counted
from cortex_m_hil.program.program import Program
from cortex_m_hil.runner.run_results import Arena, Ran, RunResult
from cortex_m_hil.targets.resolve import Resolved
from cortex_m_hil.targets.target import Clock, Target

_MOST: Final = 4  # banks at most: 24 orders, each with a runner of its own
_CLOCKS_WITH_MEMORY: Final = (Clock.CORE,)
"""Clocks that show the speed of memory: those of a real core."""


@dataclass(frozen=True)
class BankOrder:
    """The result of one order of the banks.

    Attributes:
        banks: the regions of the banks in this order: planning fills the first bank, and then the next.
        arenas: address and size of the planned buffers; empty where the program did not fit.
        ticks: ticks of the target's clock; None where the program did not fit.
        refused: why the program did not fit; "" where it ran.
    """

    banks: tuple[str, ...]
    arenas: tuple[Arena, ...]
    ticks: int | None
    refused: str


@dataclass(frozen=True)
class BankOrders:
    """All orders of a target's banks: first those that ran, the fastest first if ticks show the speed."""

    orders: tuple[BankOrder, ...]
    ran: Ran

    @property
    def ticks_show_memory_speed(self) -> bool:
        """Tell whether the target's clock shows the speed of memory; a simulator's clock does not."""
        return self.ran.clock in _CLOCKS_WITH_MEMORY


def bank_orders(resolved: Resolved, lower: Callable[[Target], Program]) -> BankOrders:
    """Run a model in each order of a target's banks.

    Args:
        resolved: the target.
        lower: returns the model, with its memory planned for the banks of a target.

    Raises:
        ConfigError: there are too few or too many banks.
        OutOfTargetMemory: the model fits in no order.
        Mismatch: outputs depend on the order.
        HarnessError: `flow.run` raises it.
    """
    memory = resolved.target.board.memory
    if not 2 <= len(memory.banks) <= _MOST:
        problem = f"{counted(len(memory.banks), 'bank')}, orders can be compared of 2 to {_MOST}"
        raise ConfigError(problem, target=resolved.name, hint="banks: in memory: of the target (hil docs memory)")
    found: list[tuple[BankOrder, RunResult | OutOfTargetMemory]] = []
    for banks in permutations(memory.banks):
        names = tuple(bank.region for bank in banks)
        # If program and first bank share their memory, no other bank can be the first.
        if memory.shared and banks[0] != memory.banks[0]:
            continue
        board = replace(resolved.target.board, memory=replace(memory, banks=banks))
        try:
            result = _run(replace(resolved, target=replace(resolved.target, board=board)), lower)
            found.append((BankOrder(names, result.arenas, result.ticks, ""), result))
        except OutOfTargetMemory as error:
            found.append((BankOrder(names, (), None, error.message), error))
    return _judged([one for one, _ in found], [result for _, result in found])


def _run(resolved: Resolved, lower: Callable[[Target], Program]) -> RunResult:
    program = lower(resolved.target)
    with flow.open_dut(resolved) as dut:
        return flow.run(dut, program)


def _judged(orders: list[BankOrder], results: list[RunResult | OutOfTargetMemory]) -> BankOrders:
    """Return the orders sorted; raise an error where the program ran in none, or gave different outputs in two."""
    ran = [one for one in results if isinstance(one, RunResult)]
    if not ran:
        raise next(one for one in results if isinstance(one, OutOfTargetMemory))
    if any(one.outputs != ran[0].outputs for one in ran):
        raise Mismatch("outputs depend on the order of the banks", hint="hil run --redzones: who writes elsewhere?")
    by_cost = ran[0].ran.clock in _CLOCKS_WITH_MEMORY
    return BankOrders(tuple(sorted(orders, key=lambda one: _rank(one, by_cost))), ran[0].ran)


def _rank(order: BankOrder, by_cost: bool) -> tuple[int, int]:
    if order.ticks is None:
        return 1, 0
    return 0, order.ticks if by_cost else 0
