"""All files below a folder, for digests and copies: those that are read where the folder is used."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

Folder = tuple[Path, list[str], list[str]]


def walk(top: Path) -> Iterator[Folder]:
    """Yield each folder with the names of the folders and regular files in it, sorted, as `os.walk` does.

    Links are followed, as imports, compilers and linkers follow them: ExecuTorch's `src/executorch` consists of them. A
    link back to a folder that it lies in is not entered, one that leads nowhere is left out. A name that the caller
    takes out of the folders is not entered. Nothing is yielded where there is no such folder.
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
