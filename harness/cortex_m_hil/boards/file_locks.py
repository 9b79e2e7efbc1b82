"""Locks between processes: a `flock` on a file, which the kernel releases when its owner ends; nothing is polled.

The records beside the locks are JSON files, which this module reads and writes as well.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import re
import stat
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future
from concurrent.futures import wait as wait_for
from pathlib import Path
from typing import Any

from cortex_m_hil.errors import BoardBusy, ConfigError
from cortex_m_hil.host.deadline import Deadline

_LOCKS = Path("/run/lock" if os.access("/run/lock", os.W_OK) else "/tmp")
BRIEF_LOCK_TIMEOUT = 10.0  # seconds to wait for a lock that is held only briefly


def lock_directory() -> Path:
    """Return the folder that holds the locks of this user's processes: `$HIL_LOCK_DIR`, or one in /run/lock.

    XDG_RUNTIME_DIR is not used: a login has it but a CI service may not, so they would not see each other's locks.
    Raises ConfigError where the folder cannot be made, or others can write to it.
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


def board_file(board: str, suffix: str) -> Path:
    """Return the path of a board's file with this suffix; its name is readable, and unique to the board."""
    readable = re.sub(r"[^A-Za-z0-9._]+", "-", board).strip("-")[-60:]
    return lock_directory() / f"{readable}-{hashlib.sha256(board.encode()).hexdigest()[:8]}.{suffix}"


def try_lock(path: Path, kind: int = fcntl.LOCK_EX) -> int | None:
    """Try to lock a file; return its open descriptor, or None if another process holds the lock.

    `kind` is LOCK_EX or LOCK_SH of `fcntl`.
    """
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(handle, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(handle)
        return None
    return handle


def is_held(path: Path) -> bool:
    handle = try_lock(path, fcntl.LOCK_SH)
    if handle is not None:
        os.close(handle)
    return handle is None


class _Watch:
    """A waiter for locks to be released.

    It has one thread for each lock, since a wait in the kernel cannot be cancelled.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._pending: dict[tuple[int, Path], Future[None]] = {}  # by pid: a fork does not have its parent's threads

    def any(self, paths: Sequence[Path], deadline: Deadline) -> None:
        """Wait until one of the locks has been released, or until the deadline."""
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
        # A shared lock, so that watchers do not block each other. OSError: a ticket's file is removed with the ticket.
        with contextlib.suppress(OSError), open(path, "rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH)
        future.set_result(None)


watch = _Watch()


@contextlib.contextmanager
def brief_lock(path: Path) -> Iterator[int]:
    """Hold a lock that every holder needs for less than a millisecond.

    Raises BoardBusy if the lock is not free within BRIEF_LOCK_TIMEOUT seconds, for instance if a holder is stopped.
    """
    deadline = Deadline.after(BRIEF_LOCK_TIMEOUT)
    while (handle := try_lock(path)) is None:
        if deadline.expired:
            raise BoardBusy(f"somebody keeps {path} locked", hint="a stopped process? see: lslocks")
        watch.any([path], deadline)
    try:
        yield handle
    finally:
        os.close(handle)


def read_record(path: Path) -> dict[str, Any]:
    """Read a record; return {} if the record is missing or not readable.

    Records are written atomically, so an unreadable record was written by another version.
    """
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def write_record(path: Path, record: dict[str, Any]) -> None:
    """Write a record atomically: a process that is killed leaves the old record or the new one."""
    beside = path.with_name(f"{path.name}.{os.getpid()}")
    beside.write_text(json.dumps(record), encoding="utf-8")
    beside.replace(path)
