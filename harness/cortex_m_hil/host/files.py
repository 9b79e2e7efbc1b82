"""Files that a user names: regular ones, read up to a limit. A pipe, a device or a folder is a ConfigError at once."""

from __future__ import annotations

import io
import math
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, Final

import numpy as np
import numpy.typing as npt

from cortex_m_hil.errors import ConfigError

PROGRAM_LIMIT: Final = 256 << 20  # bytes of a .pte: no target has as much memory for one
_HEADER_LIMIT: Final = 1 << 16  # bytes of a .npy before its data
_SHOWN: Final = 200  # characters
_KINDS: Final = {
    stat.S_IFIFO: "a named pipe", stat.S_IFCHR: "a device", stat.S_IFBLK: "a device",
    stat.S_IFSOCK: "a socket",
}  # fmt: skip
_HEADERS: Final[dict[tuple[int, int], Callable[..., Any]]] = {
    (1, 0): np.lib.format.read_array_header_1_0,
    (2, 0): np.lib.format.read_array_header_2_0,
}  # version 3 is for names of structured dtypes, which no tensor has

Check = Callable[["np.dtype[Any]", "tuple[int, ...]"], None]


@contextmanager
def opened(path: Path) -> Iterator[tuple[BinaryIO, int]]:
    """A regular file and its size. Never waits. ConfigError for anything else, and while it is read."""
    try:
        with open(path, "rb", opener=_open_now) as file:  # refuses a folder
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode):
                kind = _KINDS.get(stat.S_IFMT(status.st_mode), "no regular file")
                raise ConfigError(f"cannot read {path}: it is {kind}", hint="name a regular file")
            yield file, status.st_size
    except ValueError as error:  # a NUL in the name
        raise ConfigError(f"cannot read {str(path)!r}: {error}", hint="a file name has no NUL in it") from error
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror or error}", hint=_advice(error)) from error


def _advice(error: OSError) -> str:
    if isinstance(error, FileNotFoundError):
        return "a relative name begins at the current folder"
    return "may you read it?" if isinstance(error, PermissionError) else "name a regular file"


def _open_now(path: str, flags: int) -> int:
    """A pipe would wait for somebody who writes, a serial port for its line."""
    return os.open(path, flags | os.O_NONBLOCK | os.O_NOCTTY)


def read(path: Path, limit: int) -> bytes:
    """All of a file of at most `limit` bytes."""
    with opened(path) as (file, size):
        data = file.read(limit + 1) if size <= limit else b""
        if size > limit or len(data) > limit:
            raise ConfigError(
                f"cannot read {path}: it has {max(size, len(data))} bytes, at most {limit} are read",
                hint="is it the right file?",
            )
        return data


def read_array(path: Path, check: Check) -> npt.NDArray[Any]:
    """The array in a .npy file. `check` is given dtype and shape, and refuses by ConfigError what is not to be read."""
    with opened(path) as (file, size):
        head = io.BytesIO(file.read(_HEADER_LIMIT))
        try:
            dtype, shape, fortran = _header(head)
        except Exception as error:  # numpy lets out what its tokenizer, its parser and its dtypes raise
            raise _no_npy(path, str(error) or type(error).__name__) from error
        nbytes = math.prod(shape) * dtype.itemsize
        if min(shape, default=0) < 0 or nbytes > size - head.tell():
            raise _no_npy(path, f"its header claims {nbytes} bytes of data, {size - head.tell()} are there")
        check(dtype, shape)
        file.seek(head.tell())
        data = file.read(nbytes)
    if len(data) != nbytes:
        raise _no_npy(path, "it was cut short while it was read")
    return np.frombuffer(data, dtype).reshape(shape, order="F" if fortran else "C")


def _header(head: BinaryIO) -> tuple[np.dtype[Any], tuple[int, ...], bool]:
    if head.read(2) == b"PK":
        raise ValueError("it is an archive of arrays")
    head.seek(0)
    version = np.lib.format.read_magic(head)  # type: ignore[no-untyped-call]
    if version not in _HEADERS:
        raise ValueError(f"version {version[0]}.{version[1]} of the format")
    shape, fortran, dtype = _HEADERS[version](head)
    if dtype.hasobject:
        raise ValueError("it holds Python objects")
    return dtype, shape, fortran


def _no_npy(path: Path, why: str) -> ConfigError:
    first = (why.splitlines() or [""])[0]  # numpy quotes the whole header
    return ConfigError(f"{path} is not a .npy file: {first[:_SHOWN]}", hint="numpy.save writes one")
