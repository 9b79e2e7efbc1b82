"""Folders that belong to one process, and are removed after its end, even if it was killed.

A file in each folder is locked (flock) until the owner ends, when the kernel releases the lock. So the next process
that needs a folder in the same place recognises and removes folders of killed processes.
"""

from __future__ import annotations

import contextlib
import fcntl
import functools
import os
import shutil
import tempfile
import weakref
from collections.abc import Iterator
from pathlib import Path

import filelock

from cortex_m_hil.errors import BuildError
from cortex_m_hil.host.spans import span

_OWNER = ".hil-owner"


class OwnFolder:
    """An existing folder that this process takes over."""

    def __init__(self, path: Path) -> None:
        """Take over the folder at `path`.

        Raises:
            BlockingIOError: another living process owns the folder.
            FileNotFoundError: another process has just removed the folder.
        """
        self.path = path
        self._lock = os.open(path / _OWNER, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.fstat(self._lock).st_nlink == 0:
                raise FileNotFoundError(str(path))
        except OSError:
            os.close(self._lock)
            raise

    def release(self) -> None:
        """Release the folder without removing it; another process may take it over."""
        os.close(self._lock)

    def remove(self) -> None:
        """Remove the folder; call it once, instead of `release`.

        The lock file is removed last: until then another process can complete an interrupted removal.
        """
        with contextlib.suppress(OSError):
            for entry in list(os.scandir(self.path)):
                if entry.is_dir(follow_symlinks=False):
                    shutil.rmtree(entry, ignore_errors=True)
                elif entry.name != _OWNER:
                    os.unlink(entry)
        shutil.rmtree(self.path, ignore_errors=True)
        os.close(self._lock)


class TemporaryFolder:
    """A new folder of this process, by default in the system's temporary folder; `with` returns its path.

    It is removed at the end of the block, of the process, or of the last use of this object.
    """

    def __init__(self, prefix: str = "hil-", parent: Path | None = None) -> None:
        parent = parent or Path(tempfile.gettempdir())
        _remove_abandoned_once(parent, prefix)
        folder = None
        while folder is None:
            # Before the folder is locked, another process may take it for abandoned, and remove it.
            with contextlib.suppress(BlockingIOError, FileNotFoundError):
                folder = OwnFolder(Path(tempfile.mkdtemp(prefix=prefix, dir=parent)))
        self.path = folder.path
        self._remove = weakref.finalize(self, _remove_in, os.getpid(), folder)

    def remove(self) -> None:
        """Remove the folder. Safe to call twice."""
        self._remove()

    def __enter__(self) -> Path:
        return self.path

    def __exit__(self, *_: object) -> None:
        self.remove()


def _remove_in(owner: int, folder: OwnFolder) -> None:
    if os.getpid() == owner:  # not in a fork of the owner
        folder.remove()


@contextlib.contextmanager
def build_lock(path: Path, seconds: float) -> Iterator[None]:
    """Hold a lock file, so that one process at a time builds the same thing.

    Args:
        path: the lock file; its name without the suffix is the name of the product.
        seconds: how long to wait for another process that holds the lock.

    Raises:
        BuildError: the lock is held for longer than that.
        OSError: the file cannot be created.
    """
    lock = filelock.FileLock(path, timeout=seconds)
    try:
        with span("wait", f"for the lock {path.name}"):
            lock.acquire()
    except filelock.Timeout as error:
        what = f"another process has been building {path.stem} for {seconds:.0f} s, and holds {path}"
        raise BuildError(what, hint="end that process (fuser -v names it), and run this again") from error
    try:
        yield
    finally:
        lock.release()


def remove_abandoned(parent: Path, pattern: str) -> None:
    """Remove folders whose owner has ended, but no folder that never had an owner.

    Args:
        parent: the folder in which to look for them.
        pattern: a glob for the folders' names.
    """
    for path in parent.glob(pattern):
        with contextlib.suppress(OSError):
            if (path / _OWNER).is_file() and path.lstat().st_uid == os.getuid():
                OwnFolder(path).remove()


@functools.cache
def _remove_abandoned_once(parent: Path, prefix: str) -> None:
    remove_abandoned(parent, f"{prefix}*")
