"""Lists all files below a folder, for digests and copies; symbolic links are followed."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

Folder = tuple[Path, list[str], list[str]]


def walk(top: Path) -> Iterator[Folder]:
    """Yield each folder with the names of the folders and regular files in it, sorted, as `os.walk` does.

    Links are followed, as imports, compilers and linkers do: ExecuTorch's `src/executorch` consists of links. A link to
    a folder that contains it is not entered, and a dangling link is left out. The caller may remove names of folders
    that are not to be entered. If the folder does not exist, nothing is yielded.
    """
    yield from _walk(top, frozenset()) if top.is_dir() else ()


def _walk(top: Path, above: frozenset[tuple[int, int]]) -> Iterator[Folder]:
    status = top.stat()
    here = (status.st_dev, status.st_ino)
    if here in above:
        return
    with os.scandir(top) as scanned:
        entries = sorted(scanned, key=lambda entry: entry.name)
    folders = [entry.name for entry in entries if entry.is_dir()]
    yield top, folders, [entry.name for entry in entries if entry.is_file()]
    for name in folders:
        yield from _walk(top / name, above | {here})


def files(top: Path) -> Iterator[Path]:
    """Yield every regular file of `walk`."""
    return (folder / name for folder, _, names in walk(top) for name in names)
