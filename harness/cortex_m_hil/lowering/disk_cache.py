"""A cache of lowered programs on disk, shared by processes, runs and machines.

An entry is a file that begins with a digest of its contents. It is written under a temporary name and renamed, so that
a reader never sees a part of it, even if the writer is killed. A damaged entry is removed and made again.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import os
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import filelock
import numpy as np

from cortex_m_hil.host.paths import cache_directory

LIMIT: Final = 2 << 30  # bytes of all entries; beyond it the least recently used entries are removed
FORMAT: Final = b"hil lowering 1\n"
LOCK_TIMEOUT: Final = 900.0  # seconds to wait for a process that makes the same entry; then this one makes it too
_BETWEEN_CHECKS: Final = 64  # entries that a process writes between two checks of the total size
_UNFINISHED: Final = ".unfinished-"
_ABANDONED: Final = 86400.0  # seconds after which an unfinished file is taken to be left by a killed process

Entry = Mapping[str, Any]
"""Arrays, and values that JSON can hold, by name."""


@dataclass(frozen=True)
class DiskCacheInfo:
    """The state of the cache on disk.

    Attributes:
        folder: the folder with the entries.
        entries: number of entries of all kinds.
        bytes: the size of all entries.
        limit: the size beyond which entries are removed, in bytes.
    """

    folder: Path
    entries: int
    bytes: int
    limit: int = LIMIT


class DiskCache:
    """A store of entries by kind and key, safe for several processes; where the disk is not writable, nothing is kept.

    Attributes:
        enabled: whether entries are read and written.
        limit: the largest size of all entries, in bytes.
        counts: how many entries of a kind were "found", "made" or "damaged" in this process, by kind and word.
    """

    def __init__(self, limit: int = LIMIT, *, enabled: bool = True) -> None:
        self.enabled = enabled
        self.limit = limit
        self.counts: Counter[tuple[str, str]] = Counter()
        self._written = 0

    @property
    def folder(self) -> Path:
        return cache_directory() / "lowerings"

    def get(self, kind: str, key: str) -> Entry | None:
        """Return the entry, or None where there is none or the cache is disabled."""
        found = self._read(self.folder / key[:2] / f"{key}.{kind}") if self.enabled else None
        if found is not None:
            self.counts[kind, "found"] += 1
        return found

    def get_or_make(
        self, kind: str, key: str | None, make: Callable[[], Entry], may_keep: Callable[[], bool] = lambda: True
    ) -> Entry:
        """Return the entry; if it is missing, make it, in one process at a time, and keep it.

        Args:
            kind: the kind of the entry, which is the suffix of the file.
            key: the key; None: the entry is made and not kept.
            make: makes the entry.
            may_keep: tells whether any process would make the same entry; called only if the entry is missing.
        """
        if key is None or not self.enabled:
            self.counts[kind, "made"] += 1
            return make()
        path = self.folder / key[:2] / f"{key}.{kind}"
        found = self._read(path)
        if found is None and not may_keep():
            return self.get_or_make(kind, None, make)
        if found is None:
            with self._locked(key):
                found = self._read(path)
                if found is None:
                    self.counts[kind, "made"] += 1
                    return self._write(path, make())
        self.counts[kind, "found"] += 1
        return found

    @contextlib.contextmanager
    def _locked(self, key: str) -> Iterator[None]:
        """Lock a key, so that one process at a time makes its entry.

        After LOCK_TIMEOUT or an OSError, go on without it. All keys share 256 lock files.
        """
        with contextlib.ExitStack() as stack:
            with contextlib.suppress(OSError, filelock.Timeout):
                folder = self.folder / "locks"
                folder.mkdir(parents=True, exist_ok=True)
                stack.enter_context(filelock.FileLock(folder / f"{key[:2]}.lock", timeout=LOCK_TIMEOUT))
            yield

    def _read(self, path: Path) -> Entry | None:
        try:
            data = path.read_bytes()
            os.utime(path)
        except OSError:
            return None
        digest, body = data[len(FORMAT) : len(FORMAT) + 32], data[len(FORMAT) + 32 :]
        if not data.startswith(FORMAT) or _digest(path, body) != digest:
            self.counts[path.suffix[1:], "damaged"] += 1
            with contextlib.suppress(OSError):
                path.unlink()
            return None
        return _decode(body)

    def _write(self, path: Path, entry: Entry) -> Entry:
        """Write the entry, and return it as a later `get` would."""
        body = _encode(entry)
        with contextlib.suppress(OSError):
            path.parent.mkdir(parents=True, exist_ok=True)
            handle, name = tempfile.mkstemp(prefix=_UNFINISHED, dir=path.parent)
            try:
                with open(handle, "wb") as file:
                    file.write(FORMAT + _digest(path, body) + body)
                os.replace(name, path)
            except BaseException:
                with contextlib.suppress(OSError):
                    os.unlink(name)
                raise
            if self._written % _BETWEEN_CHECKS == 0:
                self._make_room()
            self._written += 1
        return _decode(body)

    def _make_room(self) -> None:
        """Remove abandoned files, and the least recently used entries until a tenth of the limit is free."""
        files = sorted(self._files(), key=lambda file: file[1].st_mtime)
        total = sum(state.st_size for _, state in files)
        newest = files[-1][1].st_mtime if files else 0.0
        for path, state in files:
            unfinished = path.name.startswith(_UNFINISHED) and state.st_mtime < newest - _ABANDONED
            if unfinished or (total > self.limit * 9 // 10 and total - state.st_size > 0):
                with contextlib.suppress(OSError):
                    path.unlink()
                total -= state.st_size

    def _files(self) -> Iterator[tuple[Path, os.stat_result]]:
        for path in self.folder.glob("??/*"):
            with contextlib.suppress(OSError):
                yield path, path.stat()

    def info(self) -> DiskCacheInfo:
        sizes = [state.st_size for path, state in self._files() if not path.name.startswith(_UNFINISHED)]
        return DiskCacheInfo(self.folder, len(sizes), sum(sizes), self.limit)

    def clear(self) -> None:
        """Remove all entries from the disk."""
        for path, _ in list(self._files()):
            with contextlib.suppress(OSError):
                path.unlink()


def _digest(path: Path, body: bytes) -> bytes:
    """Digest a file's name and body; the name is included so that no entry stands for another."""
    return hashlib.sha256(path.name.encode() + b"\0" + body).digest()


def _encode(entry: Entry) -> bytes:
    arrays = {name: value for name, value in entry.items() if isinstance(value, np.ndarray)}
    values = {name: value for name, value in entry.items() if name not in arrays}
    out = io.BytesIO()
    np.savez(out, **{f"array:{name}": value for name, value in arrays.items()}, values=np.array(json.dumps(values)))
    return out.getvalue()


def _decode(body: bytes) -> Entry:
    with np.load(io.BytesIO(body), allow_pickle=False) as archive:
        arrays = {name.removeprefix("array:"): archive[name] for name in archive.files if name != "values"}
        return {**json.loads(str(archive["values"])), **arrays}


disk: Final = DiskCache()  # the cache of programs
