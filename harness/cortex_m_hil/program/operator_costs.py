"""The costs of each operator of a program in one run, for results and messages."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from cortex_m_hil.errors import ConfigError
from cortex_m_hil.targets.target import Clock


@dataclass(frozen=True)
class OperatorCost:
    """The cost of one call of an operator in a run; or the cost that belongs to no operator, such as the runtime's.

    Attributes:
        index: the number of the instruction; None for the row of all cost outside of operators, which is called `the
            rest`.
        operator: its name, such as `cortex_m::quantized_linear`.
        module: the path of the module in the user's code; "" where the program does not know it.
        source: the user's `file:line`; "" where the program does not know it.
        ticks: ticks of the target's clock that the call took; all calls in a loop are one row.
        clock: the clock that the ticks follow: instructions, cycles and so on.
    """

    index: int | None
    operator: str
    module: str
    source: str
    ticks: int
    clock: Clock

    @property
    def instructions(self) -> int | None:
        """Return the exact number of CPU instructions; None where the ticks are something else, such as cycles."""
        return self.ticks if self.clock is Clock.INSTRUCTIONS else None

    def __str__(self) -> str:
        """Return a line such as `operator 3, cortex_m::quantized_linear, head, model.py:12: 8200 instructions`."""
        where = f"operator {self.index}" if self.index is not None else ""
        place = ", ".join(filter(None, (where, self.operator, self.module, self.source)))
        return f"{place}: {self.ticks} {self.clock.value}"


CountOperators = Callable[[], tuple[OperatorCost, ...]]


def counted_operators(count: CountOperators | None) -> tuple[OperatorCost, ...]:
    """Call a result's `count` and return the costs. Raise ConfigError where it has none, and any error of the call."""
    if count is None:
        raise ConfigError("no run of this result can be counted by operator", hint="the result of run, check or verify")
    return count()
