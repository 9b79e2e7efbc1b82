"""Whether a board is well: what went wrong with it, remembered beside its lock, and how it is brought back.

Busy and wedged are different things: busy is somebody else's turn, wedged is a board that nothing helps.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from cortex_m_hil.errors import BoardWedged, ConfigError, HarnessError, SelfTestFailed, ToolchainError

if TYPE_CHECKING:
    from cortex_m_hil.boards.run_tools import Tools


@dataclass(frozen=True)
class Health:
    """`failures` counts how often the board needed to be recovered. `build` is the build id that was flashed last, ""
    while a flash is incomplete.

    A wrong baud rate, a tool that does nothing or a runner that does not start make a board look dead as well. So who
    comes with another setup gets a try of their own: `wedged_for` are the setups under which nothing helped.
    """

    failures: int = 0
    wedged: str = ""  # why, at the last of the tries
    wedged_at: float = 0.0  # seconds since the epoch
    wedged_for: tuple[str, ...] = ()  # none: any setup
    build: str = ""
    flashing: str = ""  # the build id of a flash that has begun and not ended well

    def refuses(self, setup: str) -> bool:
        """Whether this setup need not be tried."""
        return bool(self.wedged) and (not self.wedged_for or setup in self.wedged_for)

    def well(self) -> Health:
        """The same, wedged no longer."""
        return replace(self, wedged="", wedged_at=0.0, wedged_for=())

    def describe(self) -> str:
        return f"{self.wedged} (at {time.strftime('%Y-%m-%d %H:%M:%S', time.localtime(self.wedged_at))})"


class BoardRecord(Protocol):
    """What remembers a board's health: a lease."""

    board: str
    setup: str

    @property
    def health(self) -> Health: ...

    @health.setter
    def health(self, health: Health) -> None: ...


def flash(record: BoardRecord, tools: Tools, elf: Path, build: str) -> str:
    """Flashes, and remembers that it was begun until it ended well. `build` is "" for what is no runner.

    What was cut short may answer with the right build id and be wrong further on, so it is flashed again before use.
    """
    before = record.health
    record.health = replace(before, failures=before.failures + 1, flashing=build or elf.name, build="")
    output = tools.flash(elf)
    record.health = replace(before, flashing="", build=build or before.build)
    return output


@dataclass(frozen=True)
class RecoveryStep:
    """What may bring a board back: `reset`, `reflash`, `power cycle`."""

    name: str
    run: Callable[[], object]


def recovery_steps(record: BoardRecord, tools: Tools, elf: Path, build: str) -> list[RecoveryStep]:
    """What can be done to this board, the gentlest first."""
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
    """Takes steps until the self-test passes; the name of the one that helped, "" where there is none to take.

    `cause` is what made us doubt the board, after the steps in `tried_before`. If nothing helps the board is wedged,
    and remembered so: BoardWedged, or SelfTestFailed if after each step it answered and gave the same wrong outputs,
    which is a wrong runner more often than a wrong board. A tool that is missing says nothing of the board:
    ToolchainError.
    """
    record.health = replace(record.health, failures=record.health.failures + 1)
    if not steps:
        return ""
    tried = [f"after {step.name}: the same" for step in steps if step.name in tried_before]
    said = cause.message
    after: list[HarnessError] = []  # what went wrong after each step
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
            tried.append(f"after {step.name}: {'the same' if error.message == said else error.message}")
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
