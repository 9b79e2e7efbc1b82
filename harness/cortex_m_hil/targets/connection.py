"""What a launcher and its callers hand each other: a runner's ELF, the byte channel to it, and the tools of a board."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

from cortex_m_hil.host.deadline import Deadline

NOTES: Final = "notes"  # the folder of what gcov needs, beside a runner that counts


@dataclass(frozen=True)
class Elf:
    """A runner on disk. `config` is `cpu/isa/board`, as its handshake says it.

    `foreign`: it was not built here, so no tool of this machine is to read it. `counts`: its kernels count the lines
    and branches that they execute, so its instructions are no figures of the kernels.
    """

    path: Path
    build_id: str
    config: str
    foreign: bool = False
    counts: bool = False

    @property
    def notes(self) -> Path:
        """Return the folder with gcov's notes, a `.gcno` for each object file that counts."""
        return self.path.parent / NOTES


class Budget(Protocol):
    """Limit how long something may take, in wall time or in the engine's CPU time."""

    @property
    def expired(self) -> bool: ...

    @property
    def next_poll(self) -> Deadline: ...


class LinkClosed(Exception):
    """The other end is gone. What it means is the launcher's to say."""


class Link(Protocol):
    """A byte channel. One thread at a time."""

    def write(self, data: bytes, deadline: Deadline) -> None:
        """Send all of `data`. Raises LinkClosed, or TimeoutError at the deadline."""

    def read(self, deadline: Deadline) -> bytes:
        """Return at least one byte, as soon as there is one. Raises LinkClosed, or TimeoutError at the deadline."""


class Connection(Link, Protocol):
    """A live runner at the other end of a link."""

    log: bytearray  # what was said beside the link

    @property
    def lossless(self) -> bool:
        """Tell whether nothing is ever lost or damaged, so that nothing need be sent again."""

    def budget(self, seconds: float, nbytes: int = 0) -> Budget:
        """Allow `seconds` from now for a request, and what `nbytes` take on the wire."""

    def wait(self, seconds: float) -> int | None:
        """Return the exit status if the other end ends within `seconds`, else None."""

    def store(self, data: bytes) -> None:
        """Put a program into the flash beside the runner, which starts anew."""

    def close(self) -> None:
        """End what can be ended."""


class RunningProcess(Connection, Protocol):
    """A simulator, or another child of this process, whose standard input and output are the link."""

    @property
    def name(self) -> str:
        """Return the program's name, for messages."""

    @property
    def pid(self) -> int:
        """Return the number of the process that owns it and all it started."""

    @property
    def refused(self) -> str:
        """Return what it asked of this machine, could not have, and was ended for; "" if nothing."""

    def cpu_seconds(self) -> float:
        """Return the user and system time, in seconds, of the program and all it started so far."""

    def end_input(self) -> None:
        """Close its standard input."""


class BoardTools(Protocol):
    """Tools that act on a board from outside; each returns the tool's output."""

    @property
    def can_flash(self) -> bool: ...

    @property
    def can_reset(self) -> bool: ...

    @property
    def flash_incomplete(self) -> bool:
        """Tell whether a flash was cut short, so that even the right build id proves nothing."""

    def flash(self, elf: Path, build_id: str) -> str:
        """Put an ELF on the board; `build_id` is "" for what is no runner."""

    def reset(self) -> str:
        """Reset the board."""
