"""Locks between processes: a `flock` on a file, which the kernel drops with its owner. Waits for it poll nothing.

Also the records beside them, which are files of JSON.
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
BRIEF = 10.0  # seconds for a lock that nobody keeps


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


def file(board: str, suffix: str) -> Path:
    """Readable, and different for every board."""
    readable = re.sub(r"[^A-Za-z0-9._]+", "-", board).strip("-")[-60:]
    return directory() / f"{readable}-{hashlib.sha256(board.encode()).hexdigest()[:8]}.{suffix}"


def take(path: Path, kind: int = fcntl.LOCK_EX) -> int | None:
    """An open file that holds the lock, or None if somebody else holds it."""
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(handle, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(handle)
        return None
    return handle


def is_held(path: Path) -> bool:
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


watch = _Watch()


@contextlib.contextmanager
def brief_lock(path: Path) -> Iterator[int]:
    """One that is held for less than a millisecond, unless its owner was stopped."""
    deadline = Deadline.after(BRIEF)
    while (handle := take(path)) is None:
        if deadline.expired:
            raise BoardBusy(f"somebody keeps {path} locked", hint="a stopped process? see: lslocks")
        watch.any([path], deadline)
    try:
        yield handle
    finally:
        os.close(handle)


def read(path: Path) -> dict[str, Any]:
    """A record; {} if there is none. They are written whole, so one that cannot be read is of another version."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def write(path: Path, record: dict[str, Any]) -> None:
    """Whole or not at all, whatever ends us."""
    beside = path.with_name(f"{path.name}.{os.getpid()}")
    beside.write_text(json.dumps(record), encoding="utf-8")
    beside.replace(path)
