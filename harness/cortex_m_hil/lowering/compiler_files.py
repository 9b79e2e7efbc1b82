"""A digest of the contents of the installed compiler's files, which people edit in place."""

from __future__ import annotations

import functools
import hashlib
import importlib.util
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from cortex_m_hil.host import file_trees
from cortex_m_hil.lowering.disk_cache import DiskCache

_known: Final = DiskCache()
_DECIDING: Final = (".py", ".so", ".pyd", ".yaml", ".fbs", "flatc")


@functools.cache
def files_digest(*packages: str) -> str:
    """Return a digest of the packages' files, computed once in a process.

    Once is enough, since imported code does not change with its file. The digest is cached on disk; the files are read
    again only if the size or a time of any file has changed.
    """
    files = [(package, *file) for package in packages for file in _files(package)]
    state = hashlib.sha256()
    for _, _, path, now in files:
        state.update(f"{path}\0{now.st_size} {now.st_mtime_ns} {now.st_ctime_ns}\n".encode())
    entry = _known.get_or_make("installed", state.hexdigest(), lambda: {"contents": _digest(files)})
    return str(entry["contents"])


def _digest(files: Iterable[tuple[str, str, Path, os.stat_result]]) -> str:
    """Digest the names and contents of files; the digest is the same on all machines with the same packages."""
    digest = hashlib.sha256()
    for package, name, path, _ in files:
        content = path.read_bytes()
        digest.update(f"{package}/{name}\0{len(content)}\0".encode() + content)
    return digest.hexdigest()


def _files(package: str) -> Iterator[tuple[str, Path, os.stat_result]]:
    """Yield the files of a package that have code or data, sorted by name: relative name, path, state."""
    spec = importlib.util.find_spec(package)
    for place in (spec.submodule_search_locations or []) if spec is not None else []:
        for folder, _, names in file_trees.walk(Path(place)):
            for name in names:
                if name.endswith(_DECIDING):
                    path = folder / name
                    yield str(path.relative_to(place)), path, path.stat()
