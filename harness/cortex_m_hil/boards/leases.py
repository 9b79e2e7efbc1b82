"""Who may use a board: one lock a board, that the kernel keeps and that ends with its owner, whatever ends that.

A lock (`boards.locks`) is named by what is behind the port, so two targets on one port share it. Beside it lie the
holder's record, which is believed only while the process that wrote it lives, and the board's health (`boards.health`).

Fairness: who waits has a ticket (`boards.tickets`). Nothing is polled: a waiter sleeps in the kernel on the locks that
it needs.
"""

from __future__ import annotations

import fcntl
import getpass
import itertools
import os
import shlex
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType

from cortex_m_hil.boards import locks
from cortex_m_hil.boards.health import Health
from cortex_m_hil.boards.tickets import Ticket
from cortex_m_hil.errors import BoardBusy, BoardWedged, ConfigError
from cortex_m_hil.host.deadline import Deadline
from cortex_m_hil.targets.model import LEASE_WAIT

RELEASE = 10.0  # seconds for a keeper that was told to end
BY_ID = Path("/dev/serial/by-id")


def identity(port: str) -> str:
    """What is behind a port, however it is named: the adapter's link by its serial number, else the device, else a URL.

    /dev/ttyACM0 is another board after the next plugging, and what is remembered of a board must stay with it.
    """
    if not port.startswith("/"):
        return port
    device = os.path.realpath(port)
    links = sorted(BY_ID.iterdir()) if BY_ID.is_dir() else []
    return next((str(link) for link in links if os.path.realpath(link) == device), device)


# --- who holds it --------------------------------------------------------------------------------------------


def _started(pid: int) -> int | None:
    """When a process began, in clock ticks since boot: a pid alone is used again. None for a dead one."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return int(fields[19]) if fields[0] not in "ZX" else None


@dataclass(frozen=True)
class Holder:
    """Who uses a board, since when, and for what."""

    user: str
    host: str
    pid: int
    started: int  # as `_started`
    since: float  # seconds since the epoch
    command: str
    what: str  # the test, or a person's reason
    keeper: bool = False  # `hil board hold`

    @property
    def is_true(self) -> bool:
        """Whether the process that wrote this still lives."""
        return _started(self.pid) == self.started

    def describe(self) -> str:
        seconds = max(0.0, time.time() - self.since)
        clock = time.strftime("%H:%M:%S", time.localtime(self.since))
        what = f" for {self.what}" if self.what else ""
        return f"{self.user}@{self.host}{what}, since {clock} ({seconds:.0f} s), pid {self.pid}: {self.command}"


def _holder(pid: int, command: str, what: str, keeper: bool = False) -> Holder:
    return Holder(
        getpass.getuser(), socket.gethostname(), pid, _started(pid) or 0, time.time(), command, what, keeper
    )  # fmt: skip


def _read_holder(board: str) -> Holder | None:
    """None where the record is missing or was left behind by a process that was killed."""
    try:
        holder = Holder(**locks.read(locks.file(board, "holder")))
    except TypeError:
        return None
    return holder if holder.is_true else None


# --- health --------------------------------------------------------------------------------------------------


def read_health(board: str) -> Health:
    record = locks.read(locks.file(board, "health"))
    try:
        return Health(**{**record, "wedged_for": tuple(record.get("wedged_for", ()))})
    except TypeError:
        return Health()


def write_health(board: str, health: Health) -> None:
    """By who has the lease, or by `hil board clear`."""
    locks.write(locks.file(board, "health"), asdict(health))


# --- leases --------------------------------------------------------------------------------------------------


class Lease:
    """The exclusive right to a board. It ends with `release`, or with the process."""

    def __init__(self, board: str, port: str, setup: str, handle: int) -> None:
        self.board = board
        self.port = port
        self.setup = setup
        self._handle: int | None = handle

    @property
    def health(self) -> Health:
        return read_health(self.board)

    @health.setter
    def health(self, health: Health) -> None:
        write_health(self.board, health)

    def release(self) -> None:
        """Safe to call twice. The port must be closed by now."""
        if self._handle is None:
            return
        locks.file(self.board, "holder").unlink(missing_ok=True)
        fcntl.flock(self._handle, fcntl.LOCK_UN)  # a fork of ours may have the file open as well
        os.close(self._handle)
        self._handle = None
        _ours.discard(self)

    def give_to(self, seconds: float, what: str) -> Holder:
        """Leaves the lease to a process that does nothing for so long, and outlives this one."""
        assert self._handle is not None
        os.set_inheritable(self._handle, True)
        # A lock belongs to the open file, which the child has too.
        keeper = subprocess.Popen(
            ["sleep", f"{seconds:g}"], pass_fds=[self._handle], start_new_session=True,
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        holder = _holder(keeper.pid, f"hil board hold, for {seconds:.0f} s", what, keeper=True)
        locks.write(locks.file(self.board, "holder"), asdict(holder))
        os.close(self._handle)
        self._handle = None
        _ours.discard(self)
        return holder

    def __enter__(self) -> Lease:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()


_ours: set[Lease] = set()


def acquire(
    ports: Sequence[str],
    *,
    what: str,
    wait: float = LEASE_WAIT,
    build: str = "",
    setup: str = "",
    even_wedged: bool = False,
) -> Lease:
    """The first of these interchangeable boards that is free: the least failed, then one that has `build` already.

    BoardBusy, saying who holds what, if none gets free within `wait` seconds; BoardWedged if all are wedged for
    `setup`; ConfigError if this process has a lease, since who waits while holding may wait for ever.
    """
    if _ours:
        held = ", ".join(lease.board for lease in _ours)
        raise ConfigError(f"{what} asks for a board and has {held}", hint="one test leases one board")
    deadline = Deadline.after(wait)
    known = {identity(port): port for port in ports}
    with Ticket(list(known)) as ticket:
        for attempt in itertools.count():
            usable = list(known) if even_wedged else _usable(known, setup)
            before = [(path, theirs) for path, theirs in ticket.earlier() if theirs & known.keys()]
            promised = set().union(*(theirs for _, theirs in before))
            open_to_us = [board for board in _ranked(usable, build) if board not in promised]
            for board in open_to_us:
                if lease := _try(board, known[board], setup, what):
                    if even_wedged or not lease.health.refuses(setup):  # found out while we waited
                        return lease
                    lease.release()
            if attempt and deadline.expired:
                raise _busy(known, len(before), wait)
            locks.watch.any(
                [*(locks.file(board, "lock") for board in open_to_us), *(path for path, _ in before)], deadline
            )
    raise AssertionError


def _try(board: str, port: str, setup: str, what: str) -> Lease | None:
    handle = locks.take(locks.file(board, "lock"))
    if handle is None:
        return None
    os.pwrite(handle, board.encode(), 0)  # for `known_boards`
    command = shlex.join([Path(sys.argv[0]).name, *sys.argv[1:]])
    locks.write(locks.file(board, "holder"), asdict(_holder(os.getpid(), command, what)))
    lease = Lease(board, port, setup, handle)
    _ours.add(lease)
    return lease


def _ranked(boards: Sequence[str], build: str) -> list[str]:
    healths = {board: read_health(board) for board in boards}
    return sorted(boards, key=lambda board: (healths[board].failures, healths[board].build != build))


def _usable(boards: Iterable[str], setup: str) -> list[str]:
    """Those that are not wedged for `setup`; BoardWedged if none is left."""
    healths = {board: read_health(board) for board in boards}
    if usable := [board for board, health in healths.items() if not health.refuses(setup)]:
        return usable
    raise BoardWedged(
        "; ".join(f"{board} is wedged: {health.describe()}" for board, health in healths.items()),
        hint=f"look at it, then: hil board clear {next(iter(healths))}",
    )


def _busy(boards: dict[str, str], queue: int, wait: float) -> BoardBusy:
    states = [f"{status.board}: {status.describe()}" for status in map(inspect, boards)]
    before = f", {queue} waiting before us" if queue else ""
    return BoardBusy(
        f"no board got free within {wait:g} s{before}; " + "; ".join(states),
        hint="hil board status; hil board release BOARD, where a person holds it",
    )


# --- for people ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Status:
    """`held` is the lock's word; `holder` is None where nobody holds it, or who does has not said so yet."""

    board: str
    held: bool
    holder: Holder | None
    health: Health

    def describe(self) -> str:
        if self.held:
            who = self.holder.describe() if self.holder else "a process that has not said who it is"
            return f"held by {who}"
        return f"wedged: {self.health.describe()}" if self.health.wedged else "free"


def inspect(board: str) -> Status:
    held = locks.is_held(locks.file(board, "lock"))
    return Status(board, held, _read_holder(board) if held else None, read_health(board))


def known_boards() -> list[str]:
    """Every board that was ever leased here since this machine started."""
    return sorted(
        path.read_text(encoding="utf-8") for path in locks.directory().glob("*.lock") if path.name != "queue.lock"
    )


def hold(port: str, *, seconds: float, reason: str, wait: float) -> Holder:
    """Takes a board out of the tests' way, for a person, until `release_hold` or the end of `seconds`."""
    return acquire([port], what=reason, wait=wait, even_wedged=True).give_to(seconds, reason)


def clear(port: str) -> None:
    """Forgets what went wrong with a board. BoardBusy while a test has it; a person's hold is no hindrance."""
    status = inspect(identity(port))
    if status.holder and status.holder.keeper:
        write_health(status.board, Health())
        return
    with acquire([port], what="hil board clear", wait=RELEASE, even_wedged=True) as lease:
        lease.health = Health()


def release_hold(port: str) -> Holder:
    """Ends a `hold`. ConfigError where nobody holds it, or a test does: a test is ended by ending its run."""
    board = identity(port)
    status = inspect(board)
    if not status.held:
        raise ConfigError(f"{board} is not held", hint="hil board status")
    if status.holder is None or not status.holder.keeper:
        raise ConfigError(f"{board} is {status.describe()}", hint="no hold of a person: end that process")
    os.kill(status.holder.pid, signal.SIGTERM)
    deadline = Deadline.after(RELEASE)
    while inspect(board).held:
        if deadline.expired or inspect(board).holder != status.holder:
            break
        locks.watch.any([locks.file(board, "lock")], deadline)
    return status.holder
