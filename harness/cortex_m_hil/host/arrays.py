"""Reads arrays in .npy files of users, without pickle, and only after a check of the header."""

from __future__ import annotations

import io
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO, Final

import numpy as np
import numpy.typing as npt

from cortex_m_hil.errors import ConfigError
from cortex_m_hil.host.files import opened

_HEADER_LIMIT: Final = 1 << 16  # bytes of a .npy before its data
_SHOWN: Final = 200  # characters of numpy's message that are shown at most of numpy's message that are shown at most
_HEADERS: Final[dict[tuple[int, int], Callable[..., Any]]] = {
    (1, 0): np.lib.format.read_array_header_1_0,
    (2, 0): np.lib.format.read_array_header_2_0,
}  # version 3 is for names of structured dtypes, which no tensor has

Check = Callable[["np.dtype[Any]", "tuple[int, ...]"], None]


def read_array(path: Path, check: Check) -> npt.NDArray[Any]:
    """Return the array in a .npy file.

    Args:
        path: the file.
        check: called with dtype and shape before the data are read; raises ConfigError to refuse the array.

    Raises:
        ConfigError: the file is no .npy file, or `check` refuses it.
    """
    with opened(path) as (file, size):
        return _read(file, size, str(path), check)


def parse_array(data: bytes, name: str, check: Check) -> npt.NDArray[Any]:
    """Return the array in the bytes of a .npy file, as `read_array` does.

    Args:
        data: the content of the file.
        name: the file's name in messages.
        check: as in `read_array`.

    Raises:
        ConfigError: the data are no .npy file, or `check` refuses it.
    """
    return _read(io.BytesIO(data), len(data), name, check)


def _read(file: BinaryIO, size: int, name: str, check: Check) -> npt.NDArray[Any]:
    head = io.BytesIO(file.read(_HEADER_LIMIT))
    try:
        dtype, shape, fortran = _header(head)
    except Exception as error:  # numpy does not catch what its tokenizer, its parser and its dtypes raise
        raise _no_npy(name, str(error) or type(error).__name__) from error
    if not dtype.itemsize:  # numpy writes such arrays, of empty text, and cannot read them from bytes
        raise _no_npy(name, f"items of its dtype {dtype.str} have no bytes")
    nbytes = math.prod(shape) * dtype.itemsize
    if min(shape, default=0) < 0 or nbytes > size - head.tell():
        raise _no_npy(name, f"its header claims {nbytes} bytes of data, {size - head.tell()} are there")
    check(dtype, shape)
    file.seek(head.tell())
    data = file.read(nbytes)
    if len(data) != nbytes:
        raise _no_npy(name, "it was cut short while it was read")
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


def _no_npy(path: str, why: str) -> ConfigError:
    first = (why.splitlines() or [""])[0]  # numpy quotes the whole header
    return ConfigError(f"{path} is not a .npy file: {first[:_SHOWN]}", hint="numpy.save writes one")
