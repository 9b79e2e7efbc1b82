"""Reads files that a user names: only regular files, up to a size limit.

A pipe, device or folder raises a ConfigError.
"""

from __future__ import annotations

import contextlib
import difflib
import itertools
import os
import re
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, Final

from cortex_m_hil.errors import ConfigError, InfraError
from cortex_m_hil.errors.text import shown

PROGRAM_LIMIT: Final = 256 << 20  # bytes of a .pte, more than any target can hold
ELF_LIMIT: Final = 256 << 20  # bytes of an ELF, with its debug information
_LISTED: Final = 5000  # names of a folder that are searched for a similar one
_KINDS: Final = {
    stat.S_IFIFO: "a named pipe", stat.S_IFCHR: "a device", stat.S_IFBLK: "a device",
    stat.S_IFSOCK: "a socket",
}  # fmt: skip


@contextmanager
def opened(path: Path) -> Iterator[tuple[BinaryIO, int]]:
    """Open a regular file, and yield it with its size in bytes, without ever blocking.

    Raises:
        ConfigError: the file is not regular, or cannot be opened, or a read in the block fails.
    """
    if "\0" in str(path):
        raise ConfigError(f"cannot read {str(path)!r}: embedded null byte", hint="a file name has no NUL in it")
    try:
        with open(path, "rb", opener=_open_now) as file:  # an error for a folder
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode):
                kind = _KINDS.get(stat.S_IFMT(status.st_mode), "no regular file")
                raise ConfigError(f"cannot read {path}: it is {kind}", hint="name a regular file")
            yield file, status.st_size
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror or error}", hint=_advice(path, error)) from error


def _advice(path: Path, error: OSError) -> str:
    if isinstance(error, FileNotFoundError):
        return similar_path_hint(path)
    return "may you read it?" if isinstance(error, PermissionError) else "name a regular file"


def similar_path_hint(path: Path, start: Path = Path()) -> str:
    """Return the hint for a path that does not exist: `did you mean 'tests/test_a.py'?`, if a name is similar.

    Args:
        path: the path; a relative one begins at `start`.
        start: the folder at which relative paths, also those in the hint, begin.
    """
    whole = (start / path).absolute()
    parent = next(one for one in whole.parents if one.is_dir())
    part, *rest = whole.relative_to(parent).parts
    with contextlib.suppress(OSError):
        names = difflib.get_close_matches(part, itertools.islice(os.listdir(parent), _LISTED), cutoff=0.7)
        found = [one if (one := parent.joinpath(name, *rest)).exists() else parent / name for name in names]
        said = [str(one) if path.is_absolute() else os.path.relpath(one, start) for one in found]
        if said:
            return f"did you mean {' or '.join(map(repr, said))}?"
    return "a relative name begins at the current folder"


def _open_now(path: str, flags: int) -> int:
    """Open a file without waiting for the other end of a pipe or a serial line."""
    return os.open(path, flags | os.O_NONBLOCK | os.O_NOCTTY)


def check_folder(path: Path, option: str) -> None:
    """Raise ConfigError where files cannot be written into a folder, even if it does not exist yet.

    Args:
        path: the folder.
        option: the option with the folder, for the message.
    """
    try:
        there = next(one for one in (path.absolute(), *path.absolute().parents) if _is_there(one))
        why = "" if there.is_dir() else f"{there} is no folder"
        why = why or ("" if _takes_files(there) else f"{there} cannot be written to")
    except (OSError, ValueError) as error:  # a name that is too long, or has a NUL
        why = getattr(error, "strerror", None) or str(error)
    if why:
        raise ConfigError(f"{option} {shown(str(path))}: {why}", hint="name a folder; it is made when it is needed")


def check_new_file(path: Path, option: str) -> None:
    """Raise ConfigError where a file cannot be written, before the work whose result it is for.

    Args:
        path: the file; its folder is made when it is needed. A link, pipe or device is written to directly.
        option: the option with the file, for the message.
    """
    try:
        if path.is_dir():
            raise ConfigError(f"{option} {path} is a folder", hint="name a file in it")
        is_direct = _is_written_directly(path)
    except OSError as error:  # a name that is too long
        raise ConfigError(f"{option} {shown(str(path))}: {error.strerror}", hint="name a file") from error
    if not is_direct:
        check_folder(path.parent, option)


def _is_written_directly(path: Path) -> bool:
    """Return whether a path is a link, pipe or device, which is never replaced by a new file."""
    return path.is_symlink() or (path.exists() and not path.is_file())


def _takes_files(folder: Path) -> bool:
    """Return whether a file can be made in a folder. Access rights do not tell: root has all, in /proc too."""
    try:
        tempfile.TemporaryFile(dir=folder).close()
    except OSError:
        return False
    return True


def _is_there(path: Path) -> bool:
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        path.stat()
        return True
    return False


def file_name_for(what: str) -> str:
    """Return a file name of at most 160 characters, made from a test's id; two tests may get the same name."""
    return re.sub(r"[^\w.+-]+", "_", what, flags=re.ASCII)[:160]


def read(path: Path, limit: int) -> bytes:
    """Return the content of a file.

    Args:
        path: the file.
        limit: the most bytes that it may have.

    Raises:
        ConfigError: the file is larger, or cannot be read.
    """
    with opened(path) as (file, size):
        data = file.read(limit + 1) if size <= limit else b""
        if size > limit or len(data) > limit:
            raise ConfigError(
                f"cannot read {path}: it has {max(size, len(data))} bytes, at most {limit} are read",
                hint="is it the right file?",
            )
        return data


def write_atomically(path: Path, data: bytes, hint: str) -> None:
    """Write a file under a temporary name and rename it to `path`: a reader sees the complete new file or the old one.

    A link, pipe or device, such as `/dev/stdout`, is written to directly and never replaced.

    Args:
        path: the file; its folder is created if it is missing.
        data: the new content.
        hint: the hint of the error.

    Raises:
        InfraError: the file cannot be written.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if _is_written_directly(path):
            path.write_bytes(data)
            return
        unfinished = path.with_name(f".{path.name}.{os.getpid()}")
        try:
            unfinished.write_bytes(data)
            unfinished.replace(path)
        except BaseException:
            with contextlib.suppress(OSError):
                unfinished.unlink()
            raise
    except OSError as error:
        raise InfraError(f"cannot write {path}: {error.strerror}", hint=hint) from error
