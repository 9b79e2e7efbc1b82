"""The queue for boards: tickets are numbered files, which waiting processes keep locked.

No process takes a board for which the owner of an earlier ticket waits. `leases` words the messages about it.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from cortex_m_hil.boards import file_locks

QUEUE_LOCK: Final = "queue.lock"


class Ticket:
    """A place in the queue for some boards, until the end of the `with` block."""

    def __init__(self, boards: Sequence[str]) -> None:
        self._folder = file_locks.lock_directory() / "queue"
        self._folder.mkdir(mode=0o700, exist_ok=True)
        with file_locks.brief_lock(file_locks.lock_directory() / QUEUE_LOCK) as counter:
            # Numbers are never reused, since a process that removes a dead ticket could remove a new one with the same
            # number.
            self._number = int(os.pread(counter, 20, 0) or 0) + 1
            os.pwrite(counter, str(self._number).encode(), 0)
            self._path = self._folder / f"{self._number:09d}"
            beside = self._folder / f"new-{os.getpid()}"
            beside.unlink(missing_ok=True)
            handle = file_locks.try_lock(beside)
            assert handle is not None  # no other process makes a file of this name
            self._handle = handle
            os.write(handle, json.dumps({"boards": list(boards)}).encode())
            beside.rename(self._path)  # renamed last, so no process sees it unlocked

    def _numbers(self) -> list[int]:
        return sorted(int(name) for name in os.listdir(self._folder) if name.isdigit())

    def earlier(self) -> Iterator[tuple[Path, set[str]]]:
        """Yield the file of each earlier ticket, with the boards that it waits for."""
        for number in self._numbers():
            path = self._folder / f"{number:09d}"
            if number >= self._number:
                return
            if not self._is_left_behind(path):
                yield path, set(file_locks.read_record(path).get("boards", ()))

    @staticmethod
    def _is_left_behind(path: Path) -> bool:
        """Tell whether a ticket is not locked because its owner was killed; such a ticket is removed."""
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

    def __enter__(self) -> Ticket:
        return self

    def __exit__(self, *_: object) -> None:
        self._path.unlink(missing_ok=True)
        os.close(self._handle)
