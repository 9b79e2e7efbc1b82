"""Who may use a board: one lock a board, that the kernel keeps and that ends with its owner, whatever ends that.

A lock is a `flock` on a file in one folder of the user's (`directory`), named by what is behind the port, so two
targets on one port share it. Beside it lie the holder's record, which is believed only while the process that wrote it
lives, and the board's health (`boards.health`).

Fairness: who waits has a ticket, a numbered file that its owner keeps locked. Nobody takes a board that somebody with
a lower number waits for. Nothing is polled: a waiter sleeps in the kernel on the locks that it needs.
"""

from __future__ import annotations

import contextlib
import fcntl
import getpass
import hashlib
import itertools
import json
import os
import re
import shlex
import signal
import socket
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future
from concurrent.futures import wait as wait_for
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

from harness.boards.health import Health
from harness.errors import BoardBusy, BoardWedged, ConfigError
from harness.links import Deadline

_LOCKS = Path("/run/lock" if os.access("/run/lock", os.W_OK) else "/tmp")
WAIT = 600.0  # seconds for a board that others use
BRIEF = 10.0  # seconds for a lock that nobody keeps
RELEASE = 10.0  # seconds for a keeper that was told to end


def directory() -> Path:
    """Where this user's processes on this machine meet: `$HIL_LOCK_DIR`, or a folder in /run/lock.

    Not XDG_RUNTIME_DIR, which a login has and a CI service may not: the two would never see each other's locks.
    """
    override = os.environ.get("HIL_LOCK_DIR")
    path = Path(override) if override else _LOCKS / f"hil-{os.getuid()}"
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        status = path.lstat()
    except OSError as error:
        raise ConfigError(f"no folder for locks: {path}: {error.strerror}", hint="set HIL_LOCK_DIR") from error
    if status.st_uid != os.getuid() or not stat.S_ISDIR(status.st_mode) or status.st_mode & 0o022:
        raise ConfigError(f"others can write to {path}", hint="remove it, or set HIL_LOCK_DIR")
    return path


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


def _file(board: str, suffix: str) -> Path:
    """Readable, and different for every board."""
    readable = re.sub(r"[^A-Za-z0-9._]+", "-", board).strip("-")[-60:]
    return directory() / f"{readable}-{hashlib.sha256(board.encode()).hexdigest()[:8]}.{suffix}"


# --- locks ---------------------------------------------------------------------------------------------------


def take(path: Path, kind: int = fcntl.LOCK_EX) -> int | None:
    """An open file that holds the lock, or None if somebody else holds it."""
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(handle, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(handle)
        return None
    return handle


def _is_held(path: Path) -> bool:
    handle = take(path, fcntl.LOCK_SH)
    if handle is not None:
        os.close(handle)
    return handle is None


class _Watch:
    """Tells when locks get free. One thread a lock and process: a wait in the kernel cannot be called off."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._pending: dict[tuple[int, Path], Future[None]] = {}  # a fork has none of its parent's threads

    def any(self, paths: Sequence[Path], deadline: Deadline) -> None:
        """Returns once one of them was free for a moment, or at the deadline."""
        wait_for([self._freed(path) for path in paths], timeout=deadline.remaining, return_when=FIRST_COMPLETED)

    def _freed(self, path: Path) -> Future[None]:
        key = (os.getpid(), path)
        with self._lock:
            found = self._pending.get(key)
            if found is None or found.done():
                found = self._pending[key] = Future()
                threading.Thread(target=self._block, args=(path, found), daemon=True, name="hil-lease").start()
            return found

    @staticmethod
    def _block(path: Path, future: Future[None]) -> None:
        # Shared: those who only watch do not keep each other waiting. A ticket is gone once it is given up.
        with contextlib.suppress(OSError), open(path, "rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH)
        future.set_result(None)


_watch = _Watch()


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


def _read(path: Path) -> dict[str, Any]:
    """A record; {} if there is none. They are written whole, so one that cannot be read is of another version."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _write(path: Path, record: dict[str, Any]) -> None:
    """Whole or not at all, whatever ends us."""
    beside = path.with_name(f"{path.name}.{os.getpid()}")
    beside.write_text(json.dumps(record), encoding="utf-8")
    beside.replace(path)


def _read_holder(board: str) -> Holder | None:
    """None where the record is missing or was left behind by a process that was killed."""
    try:
        holder = Holder(**_read(_file(board, "holder")))
    except TypeError:
        return None
    return holder if holder.is_true else None


# --- health --------------------------------------------------------------------------------------------------


def read_health(board: str) -> Health:
    record = _read(_file(board, "health"))
    try:
        return Health(**{**record, "wedged_for": tuple(record.get("wedged_for", ()))})
    except TypeError:
        return Health()


def write_health(board: str, health: Health) -> None:
    """By who has the lease, or by `hil board clear`."""
    _write(_file(board, "health"), asdict(health))


# --- the queue -----------------------------------------------------------------------------------------------


class _Ticket:
    """A place in the queue of those who wait for a board."""

    def __init__(self, boards: Sequence[str]) -> None:
        self._folder = directory() / "queue"
        self._folder.mkdir(mode=0o700, exist_ok=True)
        with _brief_lock(directory() / "queue.lock") as counter:
            # A number is never given twice, or who clears away a dead ticket might hit a new one.
            self._number = int(os.pread(counter, 20, 0) or 0) + 1
            os.pwrite(counter, str(self._number).encode(), 0)
            self._path = self._folder / f"{self._number:09d}"
            beside = self._folder / f"new-{os.getpid()}"
            beside.unlink(missing_ok=True)
            handle = take(beside)
            assert handle is not None  # nobody else makes a file of this name
            self._handle = handle
            os.write(handle, json.dumps({"boards": list(boards)}).encode())
            beside.rename(self._path)  # so it is never seen without its lock

    def _numbers(self) -> list[int]:
        return sorted(int(name) for name in os.listdir(self._folder) if name.isdigit())

    def earlier(self) -> Iterator[tuple[Path, set[str]]]:
        """Those who wait since longer, with the boards that they wait for."""
        for number in self._numbers():
            path = self._folder / f"{number:09d}"
            if number >= self._number:
                return
            if not self._is_left_behind(path):
                yield path, set(_read(path).get("boards", ()))

    @staticmethod
    def _is_left_behind(path: Path) -> bool:
        """A ticket whose owner was killed holds no lock. It is removed."""
        try:
            handle = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        except FileNotFoundError:
            return True
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            path.unlink(missing_ok=True)
            return True
        except BlockingIOError:
            return False
        finally:
            os.close(handle)

    def __enter__(self) -> _Ticket:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._path.unlink(missing_ok=True)
        os.close(self._handle)


@contextlib.contextmanager
def _brief_lock(path: Path) -> Iterator[int]:
    """One that is held for less than a millisecond, unless its owner was stopped."""
    deadline = Deadline.after(BRIEF)
    while (handle := take(path)) is None:
        if deadline.expired:
            raise BoardBusy(f"somebody keeps {path} locked", hint="a stopped process? see: lslocks")
        _watch.any([path], deadline)
    try:
        yield handle
    finally:
        os.close(handle)


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
        _file(self.board, "holder").unlink(missing_ok=True)
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
        _write(_file(self.board, "holder"), asdict(holder))
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
    wait: float = WAIT,
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
    with _Ticket(list(known)) as ticket:
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
            _watch.any([*(_file(board, "lock") for board in open_to_us), *(path for path, _ in before)], deadline)
    raise AssertionError


def _try(board: str, port: str, setup: str, what: str) -> Lease | None:
    handle = take(_file(board, "lock"))
    if handle is None:
        return None
    os.pwrite(handle, board.encode(), 0)  # for `known_boards`
    command = shlex.join([Path(sys.argv[0]).name, *sys.argv[1:]])
    _write(_file(board, "holder"), asdict(_holder(os.getpid(), command, what)))
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
    held = _is_held(_file(board, "lock"))
    return Status(board, held, _read_holder(board) if held else None, read_health(board))


def known_boards() -> list[str]:
    """Every board that was ever leased here since this machine started."""
    return sorted(path.read_text(encoding="utf-8") for path in directory().glob("*.lock") if path.name != "queue.lock")


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
        _watch.any([_file(board, "lock")], deadline)
    return status.holder
