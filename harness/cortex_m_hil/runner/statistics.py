"""The statistics that a runner measures in addition to ticks: peaks of memory use."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from cortex_m_hil.runner.run_results import Identity


@dataclass(frozen=True)
class Statistic:
    """A quantity that a runner measures in addition to ticks.

    Each statistic has a row in STATISTICS, and one of the same name in `firmware/target_library/statistics.c`. It
    appears in `RunResult.stats`, in `hil run`, in JUnit files as `hil_<name>_<unit>`, and below the test × target
    table.
    """

    name: str
    unit: str
    announced: Callable[[Identity], int] | None = None  # the memory's size in the handshake; None: not there
    beyond: int = 0  # bytes beyond the size that a program can use without an error

    @property
    def figure(self) -> str:
        """Return the name of the figure, which is the JUnit property's name without `hil_`."""
        return f"{self.name}_{self.unit}"


STATISTICS: Final = (
    Statistic("program", "bytes", lambda identity: identity.program_pool),
    Statistic("planned", "bytes", lambda identity: identity.planned_pool),
    Statistic("method", "bytes", lambda identity: identity.method_pool),
    # `beyond` is the guard page below the stack, which a core without MPU and stack limit does not protect.
    Statistic("stack", "bytes", beyond=4096),
    # Memory allocated and freed again, by an instruction or while loading; it is in the method pool if there is no
    # `temp`.
    Statistic("temp", "bytes", lambda identity: identity.temp_pool or identity.method_pool),
)
