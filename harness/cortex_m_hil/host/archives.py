"""Zip archives: writes them reproducibly, and reads untrusted ones safely."""

from __future__ import annotations

import io
import struct
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import BinaryIO, Final

from cortex_m_hil.errors import ConfigError, is_pytests_own
from cortex_m_hil.errors.text import shown
from cortex_m_hil.host.files import opened

LIMIT: Final = 1 << 30  # bytes of all members together, and of the file, at most
MEMBERS: Final = 20_000
_EPOCH: Final = (1980, 1, 1, 0, 0, 0)  # the earliest time that the format can express
_FILE: Final = 0o100644 << 16  # the mode of a regular file, for unpacking on Unix
_END: Final = struct.Struct("<4s4H2LH")  # the end of the central directory, of a file without comment
_END_64: Final = b"PK\6\7"  # the bytes before it in a file of more than 4 GB
_END_64_SIZE: Final = 20
_DIRECTORY_ENTRY: Final = 46 + 512  # bytes of a member's entry, with a name longer than any of ours


def pack(members: Mapping[str, bytes]) -> bytes:
    """Return a zip archive of the members, in the order of the mapping and without their times."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in members.items():
            member = zipfile.ZipInfo(name, _EPOCH)
            member.compress_type, member.external_attr, member.create_system = zipfile.ZIP_DEFLATED, _FILE, 3
            archive.writestr(member, data)
    return buffer.getvalue()


def unpack(path: Path) -> dict[str, bytes]:
    """Return all members by name. They are only in memory, so that names are never used as paths.

    Raises:
        ConfigError: the file cannot be read, is no zip archive, is damaged, or is beyond the limits.
    """
    with opened(path) as (file, size):
        try:
            problem = _problem(file, size)
            if not problem:
                with zipfile.ZipFile(file) as archive:
                    problem = _problem_of_members(archive.infolist())
                    if not problem:
                        return {member.filename: _read(archive, member) for member in archive.infolist()}
        except Exception as error:  # zipfile does not catch what its decoders and struct raise
            if is_pytests_own(error):
                raise
            problem = f"it is damaged: {shown(str(error) or type(error).__name__)}"
    raise ConfigError(f"cannot read {path}: {problem}", hint="is it the right file, and was all of it copied?")


def _problem(file: BinaryIO, size: int) -> str:
    """Return why an archive must not be read, judged by the end of the file only; "" if it may be read.

    zipfile would first read the whole directory, which takes gigabytes if it has millions of members.
    """
    if size > LIMIT:
        return f"it has {size} bytes, at most {LIMIT} are read"
    if size < _END.size:
        return "it is no zip file"
    before = min(size, _END.size + _END_64_SIZE)
    file.seek(size - before)
    tail = file.read(before)
    file.seek(0)
    magic, *_, members, directory, _offset, comment = _END.unpack(tail[-_END.size :])
    if magic != b"PK\5\6" or comment:
        return "it is no zip file, or was cut short"
    if tail.startswith(_END_64) or members > MEMBERS or directory > members * _DIRECTORY_ENTRY:
        return f"it claims {members} members in a directory of {directory} bytes; at most {MEMBERS} are read"
    return ""


def _problem_of_members(members: list[zipfile.ZipInfo]) -> str:
    """Return the error in the members' declared sizes, names or compression; "" without an error."""
    total = sum(member.file_size for member in members)
    if total > LIMIT:
        return f"its members claim {total} bytes, at most {LIMIT} are read"
    seen: set[str] = set()
    for member in members:
        if member.filename in seen:
            return f"two members are called {shown(member.filename)}"
        seen.add(member.filename)
        if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED) or member.flag_bits & 1:
            return f"{shown(member.filename)} is compressed in another way, or encrypted"
    return ""


def _read(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> bytes:
    """Return the content of a member. `zipfile` inflates no more bytes than are requested, however large the member is.

    Raises:
        ValueError: the member's size differs from the declared one.
    """
    with archive.open(member) as file:
        data = file.read(member.file_size + 1)
    if len(data) != member.file_size:
        raise ValueError(f"{member.filename} has {len(data)} bytes, and claims {member.file_size}")
    return data
