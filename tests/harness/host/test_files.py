"""Files that are none, too large, or lie about what is in them: a typed error, at once, in little memory."""

from __future__ import annotations

import io
import os
import struct
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from cortex_m_hil.errors import ConfigError
from cortex_m_hil.host import arrays, files
from limits import at_once

LIMIT = 1 << 20


def sparse(path: Path, head: bytes = b"", size: int = 8 << 30) -> Path:
    path.write_bytes(head)
    os.truncate(path, size)
    return path


def anything(dtype: np.dtype[Any], shape: tuple[int, ...]) -> None:
    """Takes every array."""


def header(text: str, version: tuple[int, int] = (1, 0)) -> bytes:
    raw = text.encode("latin-1")
    return b"\x93NUMPY" + bytes(version) + struct.pack("<H" if version == (1, 0) else "<I", len(raw)) + raw


def described(descr: str = "'<f4'", order: str = "False", shape: str = "(1, 2)") -> str:
    return f"{{'descr': {descr}, 'fortran_order': {order}, 'shape': {shape}, }}\n"


@pytest.mark.parametrize("read", [lambda path: files.read(path, LIMIT), lambda path: arrays.read_array(path, anything)])
@pytest.mark.parametrize(
    ("make", "said"),
    [
        (os.mkfifo, "it is a named pipe"),
        (lambda path: path.mkdir(), "Is a directory"),
        (lambda path: path.symlink_to("/dev/zero"), "it is a device"),
        (lambda path: path.symlink_to("/dev/tty"), "it is a device|No such device"),
        (lambda path: path.symlink_to(path.name), "Too many levels"),
        (lambda path: path.symlink_to("nowhere"), "No such file"),
        (lambda path: None, "No such file"),
    ],
)
def test_what_is_no_regular_file(
    tmp_path: Path, read: Callable[[Path], object], make: Callable[[Path], object], said: str
) -> None:
    make(tmp_path / "x")
    with at_once(), pytest.raises(ConfigError, match=f"cannot read .*x: ({said})"):
        read(tmp_path / "x")


@pytest.mark.parametrize("name", ["file", "file/below", "n" * 300, "nul\0"])
def test_a_folder_that_could_not_be_written_into(tmp_path: Path, name: str) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match=r"^--out "):
        files.check_folder(tmp_path / name, "--out")


def test_a_folder_that_is_not_there_yet_is_not_made_either(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for path in (tmp_path, tmp_path / "new" / "folder", Path("relative")):
        files.check_folder(path, "--out")
    assert not list(tmp_path.iterdir())


def test_a_device_is_written_to_whatever_its_folder_is(tmp_path: Path) -> None:
    """Such as /dev/stdout, in a folder where a user makes no files."""
    files.check_new_file(Path("/proc/self/fd/1"), "--out")
    for path in (tmp_path, Path("/proc/new"), tmp_path / ("n" * 300)):
        with pytest.raises(ConfigError, match=r"^--out "):
            files.check_new_file(path, "--out")


def test_a_name_with_a_nul(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="null"):
        files.read(tmp_path / "a\0b", LIMIT)


def test_a_file_is_read_up_to_its_limit(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"x" * LIMIT)
    assert files.read(tmp_path / "x", LIMIT) == b"x" * LIMIT
    with pytest.raises(ConfigError, match=f"{LIMIT} bytes, at most {LIMIT - 1}"):
        files.read(tmp_path / "x", LIMIT - 1)
    with at_once(), pytest.raises(ConfigError, match="8589934592 bytes, at most"):
        files.read(sparse(tmp_path / "y"), LIMIT)


@pytest.mark.parametrize("name", ["/proc/self/environ", "/proc/kallsyms"])
def test_a_file_whose_size_is_not_told_is_read_up_to_its_limit(name: str) -> None:
    with pytest.raises(ConfigError, match="at most 10 are read"):
        files.read(Path(name), 10)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (header(described(shape="(1000000000000,)")), "claims 4000000000000 bytes of data, 0 are there"),
        (header(described(shape="(1000000, 1000000, 1000000, 1000000)")), "claims"),
        (header(described(shape=f"({'9' * 400},)")), "claims|Cannot"),
        (header(described(shape=f"({'9' * 5000},)")), "Cannot parse header"),
        (header(described(shape="(-1, 2)")) + bytes(64), "claims"),
        (header(described(descr="'|O'")), "Python objects"),
        (header(described(descr="[('a', '|O')]")), "Python objects"),
        (header(described(descr="'|V999999999999'")), ""),
        (header(described(descr="'nonsense'")), ""),
        (header(described(), version=(3, 0)), "version 3.0"),
        (header(described(), version=(9, 9)), "version 9.9"),
        (b"\x93NUMPY\x02\x00\xff\xff\xff\xff", "expected 4294967295 bytes"),
        (header("(" * 60000, version=(2, 0)), ""),
        (header("[" * 9000, version=(2, 0)), ""),
        (header("{'a':" * 1500, version=(2, 0)), ""),
        (header("-" * 9000 + "1", version=(2, 0)), ""),
        (header("__import__('os').abort()"), ""),
        (header(described()) + bytes(7), "claims 8 bytes of data, 7 are there"),
        (b"PK\x03\x04", "an archive of arrays"),
        (b"\x80\x04\x95", ""),
    ],
)
@pytest.mark.parametrize("large", [False, True])
def test_an_invalid_npy_file_is_a_config_error(tmp_path: Path, content: bytes, said: str, large: bool) -> None:
    path = tmp_path / "x.npy"
    if large and "claims" not in said:
        sparse(path, content)
    else:
        path.write_bytes(content)
    with at_once(), pytest.raises(ConfigError, match=f"x.npy is not a .npy file: .*({said})"):
        arrays.read_array(path, anything)


def test_an_array_that_is_not_wanted_is_not_read(tmp_path: Path) -> None:
    sparse(tmp_path / "x.npy", header(described(shape="(1000000000,)")))

    def check(dtype: np.dtype[Any], shape: tuple[int, ...]) -> None:
        raise ConfigError(f"{dtype.name}{list(shape)}")

    with at_once(), pytest.raises(ConfigError, match=r"float32\[1000000000\]"):
        arrays.read_array(tmp_path / "x.npy", check)


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("shape", [(), (0,), (3,), (2, 3, 4), (1, 0, 2)])
@pytest.mark.parametrize("dtype", ["int8", ">f4", "<f4", "bool", "uint64"])
def test_arrays_are_read_as_they_were_written(tmp_path: Path, dtype: str, shape: tuple[int, ...], order: str) -> None:
    written = np.arange(int(np.prod(shape))).reshape(shape).astype(dtype)
    np.save(tmp_path / "x.npy", np.asfortranarray(written) if order == "F" and shape else written)
    seen: list[object] = []
    array = arrays.read_array(tmp_path / "x.npy", lambda *what: seen.extend(what))
    np.testing.assert_array_equal(array, written)
    assert array.dtype == written.dtype and seen == [written.dtype, shape]


WORDS = st.sampled_from(["{", "}", "'descr'", ":", "'<f4'", "'fortran_order'", "False", "'shape'", "(", ")", ",", "1"])
ASCII = st.text(st.characters(codec="ascii"), max_size=9)
SOUND = io.BytesIO()
np.save(SOUND, np.arange(6, dtype=np.float32).reshape(2, 3))


@settings(max_examples=500)
@given(
    st.binary(max_size=200)
    | st.builds(header, st.lists(WORDS, max_size=20).map(" ".join), st.sampled_from([(1, 0), (2, 0)]))
    | st.builds(
        header, st.builds(described, st.text(max_size=9), st.just("0"), st.text(max_size=9)).filter(str.isascii)
    )
    | st.tuples(st.integers(0, 151), st.integers(0, 255)).map(
        lambda one: SOUND.getvalue()[: one[0]] + bytes([one[1]]) + SOUND.getvalue()[one[0] + 1 :]
    )
)
@example(header(described("'U0'", shape="(0, 0)")))
def test_any_bytes_are_an_array_or_a_config_error(data: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "x.npy"
        path.write_bytes(data)
        try:
            array = arrays.read_array(path, anything)
        except ConfigError as error:
            assert str(path) in error.message
        else:
            assert array.nbytes <= len(data)


def test_what_the_block_raises_of_a_value_is_no_unreadable_file(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no number")
    with pytest.raises(ValueError, match="invalid literal"), files.opened(tmp_path / "file") as (file, _):
        int(file.read())


def test_a_link_and_a_device_are_written_through(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "place")
    files.write_atomically(tmp_path / "link", b"one", "hint")
    assert (tmp_path / "link").is_symlink() and (tmp_path / "place").read_bytes() == b"one"
    read, write = os.pipe()
    try:
        files.write_atomically(Path(f"/dev/fd/{write}"), b"two", "hint")
        assert os.read(read, 10) == b"two"
    finally:
        os.close(read)
        os.close(write)
