"""Types that launchers and their callers share: a runner's ELF, the byte channel to it, and the tools of a board."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

from cortex_m_hil.host.deadline import Deadline

NOTES: Final = "notes"  # the folder of gcov's .gcno files, in a runner's folder and in an ExecuTorch prefix


@dataclass(frozen=True)
class Elf:
    """A runner's ELF file, or the user's own firmware that contains the target library.

    Attributes:
        path: the file.
        build_id: the id that the handshake must report; for the user's own firmware a digest of the file.
        config: `cpu/isa/board`, as the handshake must report it; "" for the user's own firmware, which may report
            anything.
        foreign: whether the file was built on another machine, so that no tool here may read it.
        counts: whether the kernels count the lines and branches that they execute, which falsifies instruction counts.
    """

    path: Path
    build_id: str
    config: str
    foreign: bool = False
    counts: bool = False

    @property
    def is_own(self) -> bool:
        """Tell whether the file is the user's own firmware, and no runner."""
        return not self.config

    def has_id(self, build_id: str | None) -> bool:
        """Tell whether firmware that reports this build id is this file.

        The user's own firmware has the id as a text in it.
        """
        if not self.is_own or not build_id:
            return build_id == self.build_id
        return build_id.encode() in self.path.read_bytes()

    @property
    def notes(self) -> Path:
        """Return the folder with gcov's notes, a `.gcno` for each object file compiled to count coverage."""
        return self.path.parent / NOTES


class Budget(Protocol):
    """A time limit, in wall time or in CPU time of the simulator."""

    @property
    def expired(self) -> bool: ...

    @property
    def next_poll(self) -> Deadline: ...


class LinkClosed(Exception):
    """The link was closed by its other end. The launcher explains why."""


class Link(Protocol):
    """A byte channel, for one thread at a time."""

    def write(self, data: bytes, deadline: Deadline) -> None:
        """Send all of `data`. Raises LinkClosed, or TimeoutError at the deadline."""

    def read(self, deadline: Deadline) -> bytes:
        """Return the bytes received, at least one; wait for the first.

        Raises LinkClosed, or TimeoutError at the deadline.
        """


class Connection(Link, Protocol):
    """A connection to a running runner by a link."""

    log: bytearray  # output that does not come by the link, such as standard error and the output of flash tools

    @property
    def lossless(self) -> bool:
        """Tell whether the link never loses or damages bytes, so that no retransmission is needed."""

    def budget(self, seconds: float, nbytes: int = 0) -> Budget:
        """Return a budget of `seconds` from now for a request, plus the time that `nbytes` take on the wire."""

    def wait(self, seconds: float) -> int | None:
        """Return the exit status if the other end ends within `seconds`, else None."""

    def store(self, data: bytes) -> None:
        """Write a program into the flash next to the runner, which restarts."""

    def close(self) -> None:
        """End the connection, and the simulator's process if there is one."""


class RunningProcess(Connection, Protocol):
    """A child process, such as a simulator, whose standard input and output are the link."""

    @property
    def name(self) -> str:
        """Return the program's name, for messages."""

    @property
    def pid(self) -> int:
        """Return the pid of the process that owns the program and everything that it started."""

    @property
    def refused(self) -> str:
        """Return the forbidden file or system call for which the sandbox ended the program; "" if it did not."""

    def cpu_seconds(self) -> float:
        """Return the user and system time so far, in seconds, of the program and all processes that it started."""

    def end_input(self) -> None:
        """Close the program's standard input."""


class BoardTools(Protocol):
    """Tools that act on a board from outside; each returns the tool's output."""

    @property
    def can_flash(self) -> bool: ...

    @property
    def can_reset(self) -> bool: ...

    @property
    def flash_incomplete(self) -> bool:
        """Tell whether a flash was interrupted, so that even the right build id proves nothing."""

    def flash(self, elf: Path, build_id: str) -> str:
        """Flash an ELF. `build_id` is the runner's build id, "" if the ELF is no runner."""

    def reset(self) -> str:
        """Reset the board with its tool."""
