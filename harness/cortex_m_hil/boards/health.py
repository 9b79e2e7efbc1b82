"""The health of a board: the record of its failures, stored next to its lock, and the steps that recover it.

Busy and wedged are different states: a busy board is in use by somebody else, a wedged one stayed broken after every
recovery step.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol

from cortex_m_hil.errors import BoardWedged, ConfigError, HarnessError, SelfTestFailed, ToolchainError

if TYPE_CHECKING:
    from cortex_m_hil.boards.board_tools import CommandTools

_SAME: Final = "the same error"  # as after the step before


@dataclass(frozen=True)
class Health:
    """The health record of one board.

    A board also looks dead if the baud rate is wrong, a tool does nothing or the runner does not start. So a caller
    with another setup may try a wedged board once more.

    Attributes:
        failures: how often recovery of the board was necessary.
        wedged: why the last recovery failed; "" if the board is not wedged.
        wedged_at: the time of the last recovery, in seconds since the epoch.
        wedged_for: the setups under which no recovery step helped; empty: any setup.
        build: the build id that was flashed last, "" while a flash is incomplete.
        flashing: the build id of a flash that has begun and not completed, else "".
    """

    failures: int = 0
    wedged: str = ""
    wedged_at: float = 0.0
    wedged_for: tuple[str, ...] = ()
    build: str = ""
    flashing: str = ""

    def refuses(self, setup: str) -> bool:
        """Tell whether the board is wedged for this setup, so that it need not be tried."""
        return bool(self.wedged) and (not self.wedged_for or setup in self.wedged_for)

    def recovered(self) -> Health:
        """Return a copy of the record that is not wedged."""
        return replace(self, wedged="", wedged_at=0.0, wedged_for=())

    def describe(self) -> str:
        return f"{self.wedged} (at {time.strftime('%Y-%m-%d %H:%M:%S', time.localtime(self.wedged_at))})"


class BoardRecord(Protocol):
    """The interface to a board's health record, which a lease implements."""

    board: str
    setup: str

    @property
    def health(self) -> Health: ...

    @health.setter
    def health(self, health: Health) -> None: ...


def flash(record: BoardRecord, tools: CommandTools, elf: Path, build: str) -> str:
    """Flash an ELF with the board's tool, and record that a flash is incomplete until it has completed.

    An interrupted flash may leave a runner that answers with the right build id but is incomplete, so such a board is
    flashed again before it is used. `build` is the ELF's build id, "" if it is no runner. Returns the tool's output.
    """
    before = record.health
    record.health = replace(before, failures=before.failures + 1, flashing=build or elf.name, build="")
    output = tools.flash(elf)
    record.health = replace(before, flashing="", build=build or before.build)
    return output


@dataclass(frozen=True)
class RecoveryStep:
    """A step that may recover a board: `reset`, `reflash` or `power cycle`."""

    name: str
    run: Callable[[], object]


def recovery_steps(record: BoardRecord, tools: CommandTools, elf: Path, build: str) -> list[RecoveryStep]:
    """Return the recovery steps that the board's tools allow, the gentlest first."""
    steps = []
    if tools.resetting:
        steps.append(RecoveryStep("reset", tools.reset))
    if tools.flashing:
        steps.append(RecoveryStep("reflash", lambda: flash(record, tools, elf, build)))
    if tools.powering:
        steps.append(RecoveryStep("power cycle", tools.power_cycle))
    return steps


def recover(
    record: BoardRecord,
    cause: HarnessError,
    steps: Sequence[RecoveryStep],
    self_test: Callable[[], object],
    tried_before: Collection[str] = (),
) -> str:
    """Take recovery steps until the self-test passes.

    Args:
        record: the board's health record, in which the failure and the result are recorded.
        cause: the error that made the recovery necessary.
        steps: the recovery steps, the gentlest first.
        self_test: raises a HarnessError if the board does not work.
        tried_before: names of steps that were taken before `cause` occurred, and are not repeated.

    Returns:
        The name of the step that helped, "" if there are no steps.

    Raises:
        BoardWedged: no step helped; the board is recorded as wedged for this setup.
        SelfTestFailed: no step helped, but after each step the board answered with the same wrong outputs: the runner
            is more probably wrong than the board.
        ToolchainError, ConfigError: a tool is missing or configured wrongly, which says nothing about the board.
    """
    record.health = replace(record.health, failures=record.health.failures + 1)
    if not steps:
        return ""
    tried = [f"after {step.name}: {_SAME}" for step in steps if step.name in tried_before]
    said = cause.message
    after: list[HarnessError] = []  # the error after each step
    for step in steps:
        if step.name in tried_before:
            continue
        try:
            step.run()
            self_test()
            return step.name
        except (ConfigError, ToolchainError):
            raise
        except HarnessError as error:
            tried.append(f"after {step.name}: {_SAME if error.message == said else error.message}")
            said = error.message
            after.append(error)
    reason = "; ".join([cause.message, *tried])
    tries = tuple(dict.fromkeys([*record.health.wedged_for, record.setup]))
    record.health = replace(record.health, wedged=reason, wedged_at=time.time(), wedged_for=tries)
    refused = f"with this build, baud rate and tools no test gets it until: hil board clear {record.board}"
    if after and all(isinstance(one, SelfTestFailed) and one.message == said for one in after):
        raise SelfTestFailed(
            f"{record.board} answers, and computes its self-test wrong: {reason}",
            target=cause.target,
            operator=after[-1].operator,
            log=cause.log,
            hint=f"{after[-1].hint}; {refused}",
        ) from cause
    raise BoardWedged(
        f"{record.board} does not pass its self-test: {reason}", target=cause.target, log=cause.log, hint=refused
    ) from cause
