"""Leases of boards: a lock for each board, which the kernel releases when its owner ends in any way.

A lock (`boards.file_locks`) is named after the device behind the port, so two targets on one port share it. Next to the
lock are the holder's record, which is valid only while the process that wrote it lives, and the board's health
(`boards.health`).

Fairness: a waiting process has a ticket (`boards.board_queue`). Nothing is polled: a waiter sleeps in the kernel on the
locks that it needs.
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

from cortex_m_hil.boards import file_locks
from cortex_m_hil.boards.board_queue import QUEUE_LOCK, Ticket
from cortex_m_hil.boards.health import Health
from cortex_m_hil.errors import BoardBusy, BoardWedged, ConfigError
from cortex_m_hil.host import timeouts
from cortex_m_hil.host.deadline import Deadline

RELEASE_TIMEOUT = 10.0  # seconds for the process of `hil board hold` to end after SIGTERM
BY_ID = Path("/dev/serial/by-id")


def port_identity(port: str) -> str:
    """Return a name for the board at a port that does not change when the board is unplugged and plugged in again.

    It is the adapter's link in /dev/serial/by-id, which has a serial number, else the device, else a URL. /dev/ttyACM0
    may be another board the next time, and a health record must stay with its board.
    """
    if not port.startswith("/"):
        return port
    device = os.path.realpath(port)
    links = sorted(BY_ID.iterdir()) if BY_ID.is_dir() else []
    return next((str(link) for link in links if os.path.realpath(link) == device), device)


# --- holders -------------------------------------------------------------------------------------------------


def _started(pid: int) -> int | None:
    """Return the start time of a process, in clock ticks since boot, as pids are reused; None if it has ended."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return int(fields[19]) if fields[0] not in "ZX" else None


@dataclass(frozen=True)
class Holder:
    """A record of the process that uses a board: its user, start, command and purpose."""

    user: str
    host: str
    pid: int
    started: int  # the start time of the process, from `_started`
    since: float  # seconds since the epoch
    command: str
    what: str  # the name of the test, or a person's reason
    keeper: bool = False  # True: the process of `hil board hold`

    @property
    def is_alive(self) -> bool:
        """Tell whether the process that wrote the record still lives; its pid may have been reused."""
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
    """Return the holder's record; None if there is none, or if its process has ended without removing it."""
    try:
        holder = Holder(**file_locks.read_record(file_locks.board_file(board, "holder")))
    except TypeError:
        return None
    return holder if holder.is_alive else None


# --- health --------------------------------------------------------------------------------------------------


def read_health(board: str) -> Health:
    record = file_locks.read_record(file_locks.board_file(board, "health"))
    try:
        return Health(**{**record, "wedged_for": tuple(record.get("wedged_for", ()))})
    except TypeError:
        return Health()


def write_health(board: str, health: Health) -> None:
    """Write a board's health record. Only the holder of the lease may do so, and `hil board clear`."""
    file_locks.write_record(file_locks.board_file(board, "health"), asdict(health))


# --- leases --------------------------------------------------------------------------------------------------


class Lease:
    """The exclusive right to use a board. It ends with `release`, or with the process."""

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
        """End the lease; a second call does nothing. The port must be closed before."""
        if self._handle is None:
            return
        file_locks.board_file(self.board, "holder").unlink(missing_ok=True)
        fcntl.flock(self._handle, fcntl.LOCK_UN)  # a forked child may have the file open as well
        os.close(self._handle)
        self._handle = None
        _ours.discard(self)

    def give_to(self, seconds: float, what: str) -> Holder:
        """Pass the lease to a new process that sleeps for `seconds` and outlives this one; return its record."""
        assert self._handle is not None
        os.set_inheritable(self._handle, True)
        # The child inherits the lock with the open file.
        keeper = subprocess.Popen(
            ["sleep", f"{seconds:g}"], pass_fds=[self._handle], start_new_session=True,
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        holder = _holder(keeper.pid, f"hil board hold, for {seconds:.0f} s", what, keeper=True)
        file_locks.write_record(file_locks.board_file(self.board, "holder"), asdict(holder))
        os.close(self._handle)
        self._handle = None
        _ours.discard(self)
        return holder

    def __enter__(self) -> Lease:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


_ours: set[Lease] = set()


def acquire(
    ports: Sequence[str],
    *,
    what: str,
    wait: float = timeouts.LEASE_WAIT,
    build: str = "",
    setup: str = "",
    even_wedged: bool = False,
) -> Lease:
    """Lease the first of these interchangeable boards that becomes free.

    Of several free boards, one with the fewest failures is preferred, and of these one that has `build` already.

    Args:
        ports: the ports of the boards.
        what: the purpose of the lease, such as a test's name; shown to others that wait.
        wait: seconds to wait for a board.
        build: the build id of the runner that will run; "": no preference.
        setup: a digest of everything that the board's start depends on, as in `Health.wedged_for`.
        even_wedged: whether a wedged board may be leased, too.

    Raises:
        BoardBusy: no board became free within `wait` seconds; the message has the holder of each.
        BoardWedged: all boards are wedged for `setup`.
        ConfigError: this process has a lease already; waiting for a second one could be a deadlock.
    """
    if _ours:
        held = ", ".join(lease.board for lease in _ours)
        raise ConfigError(f"{what} asks for a board and has {held}", hint="one test leases one board")
    deadline = Deadline.after(wait)
    known = {port_identity(port): port for port in ports}
    with Ticket(list(known)) as ticket:
        for attempt in itertools.count():
            usable = list(known) if even_wedged else _usable(known, setup)
            before = [(path, theirs) for path, theirs in ticket.earlier() if theirs & known.keys()]
            promised = set().union(*(theirs for _, theirs in before))
            open_to_us = [board for board in _ranked(usable, build) if board not in promised]
            for board in open_to_us:
                if lease := _try(board, known[board], setup, what):
                    if even_wedged or not lease.health.refuses(setup):  # it may have become wedged during the wait
                        return lease
                    lease.release()
            if attempt and deadline.expired:
                raise _busy(known, len(before), wait)
            file_locks.watch.any(
                [*(file_locks.board_file(board, "lock") for board in open_to_us), *(path for path, _ in before)],
                deadline,
            )
    raise AssertionError


def _try(board: str, port: str, setup: str, what: str) -> Lease | None:
    handle = file_locks.try_lock(file_locks.board_file(board, "lock"))
    if handle is None:
        return None
    os.pwrite(handle, board.encode(), 0)  # read by `known_boards`
    command = shlex.join([Path(sys.argv[0]).name, *sys.argv[1:]])
    file_locks.write_record(file_locks.board_file(board, "holder"), asdict(_holder(os.getpid(), command, what)))
    lease = Lease(board, port, setup, handle)
    _ours.add(lease)
    return lease


def _ranked(boards: Sequence[str], build: str) -> list[str]:
    healths = {board: read_health(board) for board in boards}
    return sorted(boards, key=lambda board: (healths[board].failures, healths[board].build != build))


def _usable(boards: Iterable[str], setup: str) -> list[str]:
    """Return the boards that are not wedged for `setup`. Raises BoardWedged if there are none."""
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


# --- hil board -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class BoardStatus:
    """The state of a board, as `hil board status` shows it.

    Attributes:
        board: the board's identity.
        held: whether its lock is held.
        holder: the holder's record; None if nobody holds the board, or if the record is not written yet.
        health: the board's health record.
    """

    board: str
    held: bool
    holder: Holder | None
    health: Health

    def describe(self) -> str:
        if self.held:
            who = self.holder.describe() if self.holder else "a process that has not said who it is"
            return f"held by {who}"
        return f"wedged: {self.health.describe()}" if self.health.wedged else "free"


def inspect(board: str) -> BoardStatus:
    held = file_locks.is_held(file_locks.board_file(board, "lock"))
    return BoardStatus(board, held, _read_holder(board) if held else None, read_health(board))


def known_boards() -> list[str]:
    """Return all boards that were leased on this machine since its boot."""
    return sorted(
        path.read_text(encoding="utf-8")
        for path in file_locks.lock_directory().glob("*.lock")
        if path.name != QUEUE_LOCK
    )


def hold(port: str, *, seconds: float, reason: str, wait: float) -> Holder:
    """Lease a board for a person, so that no test gets it, for `seconds` or until `release_hold`."""
    return acquire([port], what=reason, wait=wait, even_wedged=True).give_to(seconds, reason)


def clear(port: str) -> None:
    """Delete a board's health record. Raises BoardBusy while a test has the board; a person's hold is allowed."""
    status = inspect(port_identity(port))
    if status.holder and status.holder.keeper:
        write_health(status.board, Health())
        return
    with acquire([port], what="hil board clear", wait=RELEASE_TIMEOUT, even_wedged=True) as lease:
        lease.health = Health()


def release_hold(port: str) -> Holder:
    """End a person's hold, and return its record.

    Raises ConfigError if nobody holds the board, or a test does; a test releases it when its run is ended.
    """
    board = port_identity(port)
    status = inspect(board)
    if not status.held:
        raise ConfigError(f"{board} is not held", hint="hil board status")
    if status.holder is None or not status.holder.keeper:
        raise ConfigError(f"{board} is {status.describe()}", hint="not held by hil board hold: end that process")
    os.kill(status.holder.pid, signal.SIGTERM)
    deadline = Deadline.after(RELEASE_TIMEOUT)
    while inspect(board).held:
        if deadline.expired or inspect(board).holder != status.holder:
            break
        file_locks.watch.any([file_locks.board_file(board, "lock")], deadline)
    return status.holder
