"""Checks of a user's ELF: it must be an executable for the CPU, and its segments must lie in the target's memory."""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from cortex_m_hil.errors import ConfigError, OutOfTargetMemory
from cortex_m_hil.host import files
from cortex_m_hil.targets.cpu import Isa, cpus
from cortex_m_hil.targets.elf_architecture import ARM, MAGIC, built_for
from cortex_m_hil.targets.target import Target

_NOTE, _NO_BITS, _ALLOCATED = 7, 8, 2  # section types, and a section flag
_EXECUTABLE, _POSITION_INDEPENDENT, _LOAD = 2, 3, 1
_MACHINES = {3: "x86", 8: "MIPS", 40: "Arm", 62: "x86-64", 94: "Xtensa", 183: "AArch64", 243: "RISC-V"}
# For each architecture the other architectures whose code it executes (Arm v6-M, v7-M and v8-M Architecture Reference
# Manuals).
_EXECUTES = {
    "armv6-m": {"armv6-m"},
    "armv7-m": {"armv6-m", "armv7-m"},
    "armv7e-m": {"armv6-m", "armv7-m", "armv7e-m"},
    "armv8-m.base": {"armv6-m", "armv8-m.base"},
    "armv8-m.main": {"armv6-m", "armv7-m", "armv8-m.base", "armv8-m.main"},
}


@dataclass(frozen=True)
class Segment:
    """A segment of `size` bytes at `address` at run time; `stored` of them are written to address `loaded` before."""

    address: int
    size: int
    loaded: int
    stored: int


@dataclass(frozen=True)
class Executable:
    """The machine and the segments that an ELF's headers name."""

    machine: int
    segments: tuple[Segment, ...]


def check(path: Path, target: Target) -> None:
    """Check that an ELF can run on a target.

    Raises:
        ConfigError: the ELF is no executable for the target's CPU.
        OutOfTargetMemory: the target has no memory at the addresses of the ELF's segments, or too little.
    """
    elf = read(path)
    if target.cpu == "host":
        own = read(Path("/proc/self/exe")).machine
        if elf.machine != own:
            raise _other_cpu_error(path, _name(elf.machine), f"this machine is {_name(own)}", target)
        return
    if elf.machine != ARM:
        raise _other_cpu_error(path, _name(elf.machine), f"{target.name} has a {target.cpu}", target)
    architecture = built_for(path)
    if missing := _missing(architecture, target):
        raise _other_cpu_error(path, architecture, f"the {target.cpu} of {target.name} has no {missing}", target)
    _check_memory(path, elf, target)


def _other_cpu_error(path: Path, its_own: str, there: str, target: Target) -> ConfigError:
    return ConfigError(
        f"{path} is for another CPU: it is {its_own}, and {there}",
        target=target.name,
        hint="hil targets lists the CPU of each target",
    )


def _name(machine: int) -> str:
    return _MACHINES.get(machine, f"ELF machine {machine}")


def _missing(architecture: str, target: Target) -> str:
    """Return the extensions of an architecture, in the words of `built_for`, that the core lacks; "" for none."""
    if architecture.endswith("(no Arm code)"):  # no build attributes: they were stripped, or the code is assembler
        return ""
    base, *extensions = architecture.split("+")
    cpu = cpus()[target.cpu]
    own = cpu.architecture.partition("+")[0]
    dsp, mve = Isa.DSP in cpu.isas, Isa.MVE in cpu.isas
    if base not in _EXECUTES[own] and not (base == "armv7e-m" and own == "armv8-m.main" and dsp):
        return base
    has = {"dsp": dsp, "mve": mve, "mve.fp": mve and target.fpu}
    fpu = cpu.has_fpu and target.fpu
    return next((name for name in extensions if not has.get(name, fpu)), "")


def _check_memory(path: Path, elf: Executable, target: Target) -> None:
    memory = target.launcher.memory()
    for start, size in _places(elf) if memory else ():
        if not any(start in part and start + size <= part.stop for part in memory):
            parts = ", ".join(f"{part.start:#x}–{part.stop:#x}" for part in memory)
            raise OutOfTargetMemory(
                f"{path} needs {size} bytes at {start:#x}, where {target.name} has no memory, or not as much",
                target=target.name,
                details=[("memory", parts)],
                hint="link it for this machine; hil targets lists others",
            )


def _places(elf: Executable) -> Iterator[tuple[int, int]]:
    for segment in elf.segments:
        if segment.size:
            yield segment.address, segment.size
        if segment.stored:
            yield segment.loaded, segment.stored


# --- the executed contents ----------------------------------------------------------------------------------------


def executed_digest(path: Path) -> str:
    """Return a digest of all bytes that an ELF has in memory at run time: code and data, no notes or debug information.

    Raises:
        ConfigError: the file is no ELF, or cut short.
    """
    data = files.read(path, files.ELF_LIMIT)
    digest = hashlib.sha256()
    try:
        for section in _sections(data):
            digest.update(repr(section).encode())
            if section.kind != _NO_BITS:
                digest.update(data[section.offset : section.offset + section.size])
    except struct.error:
        raise _no_elf(path, "it is cut short") from None
    return digest.hexdigest()


@dataclass(frozen=True)
class _Section:
    kind: int
    address: int
    offset: int = field(repr=False)
    size: int


def _sections(data: bytes) -> Iterator[_Section]:
    wide = data[4:5] == b"\2"
    start = struct.unpack_from("<Q" if wide else "<I", data, 40 if wide else 32)[0]
    entry, count = struct.unpack_from("<HH", data, 58 if wide else 46)
    for at in (start + number * entry for number in range(count)):
        _, kind, flags, address, offset, size = struct.unpack_from("<2I4Q" if wide else "<6I", data, at)
        if flags & _ALLOCATED and kind != _NOTE:
            yield _Section(kind, address, offset, size)


# --- the format ----------------------------------------------------------------------------------------------


def read(path: Path) -> Executable:
    """Read the headers of an ELF (System V ABI, "Object Files").

    Raises:
        ConfigError: the file is no complete, little-endian, executable ELF.
    """
    data = files.read(path, files.ELF_LIMIT)
    try:
        return _parse(data, path)
    except struct.error:
        raise _no_elf(path, "it is cut short") from None


def _parse(data: bytes, path: Path) -> Executable:
    if not data:
        raise _no_elf(path, "it is empty")
    if data[:4] != MAGIC:
        raise _no_elf(path, f"it begins with {data[:4]!r}")
    wide, little = data[4:5] == b"\2", data[5:6] == b"\1"
    if not little:
        raise _no_elf(path, "it is big-endian")
    kind, machine = struct.unpack_from("<HH", data, 16)
    if kind not in (_EXECUTABLE, _POSITION_INDEPENDENT):
        raise _no_elf(path, "it is an object file or a core dump")
    start = struct.unpack_from("<Q" if wide else "<I", data, 32 if wide else 28)[0]
    entry, count = struct.unpack_from("<HH", data, 54 if wide else 42)
    found = tuple(_segments(data, wide, [start + number * entry for number in range(count)]))
    if not found:
        raise _no_elf(path, "nothing of it is loaded")
    if any(offset + segment.stored > len(data) for offset, segment in found):
        raise _no_elf(path, "it is cut short")
    return Executable(machine, tuple(segment for _, segment in found))


def _segments(data: bytes, wide: bool, headers: Sequence[int]) -> Iterator[tuple[int, Segment]]:
    """Yield the offset in the file, and the segment, of each segment that is loaded."""
    for at in headers:
        if wide:
            kind, _, offset, address, loaded, stored, size = struct.unpack_from("<2I5Q", data, at)
        else:
            kind, offset, address, loaded, stored, size = struct.unpack_from("<6I", data, at)
        if kind == _LOAD:
            yield offset, Segment(address, size, loaded, stored)


def _no_elf(path: Path, why: str) -> ConfigError:
    return ConfigError(f"{path} is no executable ELF: {why}", hint="name what the linker wrote, such as zephyr.elf")
