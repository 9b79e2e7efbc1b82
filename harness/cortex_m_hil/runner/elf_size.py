"""Attributes the bytes of an ELF to its sections, to the symbols in each, and in a builtin runner to operators.

Sources: System V ABI, "Object Files" (headers, symbols); the disassembly of binutils' objdump (references).
"""

from __future__ import annotations

import re
import struct
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from cortex_m_hil.errors import ConfigError, ToolchainError
from cortex_m_hil.host import files, toolchain
from cortex_m_hil.targets.elf_architecture import ARM, MAGIC

TIMEOUT: Final = 60.0  # seconds for objdump, or c++filt
_TEXT_LIMIT: Final = 256 << 20  # bytes of a disassembly that are read at most
_ALLOCATED, _NO_BITS, _SYMBOLS = 2, 8, 2  # a section flag, and two section types
_OBJECT, _FUNCTION = 1, 2  # symbol types
_TABLE: Final = "kOperators"  # of firmware/runtime/builtin/registry.cpp: a pointer to a name and one to a kernel, each


@dataclass(frozen=True)
class ElfSection:
    """A section that is in memory while the program runs.

    `stored` is the number of its bytes in the file, and so in flash.
    """

    name: str
    address: int
    nbytes: int
    stored: int


@dataclass(frozen=True)
class SymbolSize:
    """The bytes of a section that belong to one symbol.

    Attributes:
        section: the section's name.
        symbol: the symbol's name; "" for all bytes that belong to no symbol.
        nbytes: the number of bytes.
        operators: the operators whose kernels refer to the symbol, directly or indirectly, and "" if other code refers
            to it; empty if the references are not known.
    """

    section: str
    symbol: str
    nbytes: int
    operators: tuple[str, ...] = ()


@dataclass(frozen=True)
class OperatorSize:
    """The bytes that only one operator needs (`own`), and all bytes that its kernel refers to (`reached`)."""

    operator: str
    own: int
    reached: int


@dataclass(frozen=True)
class ElfSize:
    """The sections and parts of an ELF; the `parts` of each section add up to its size, the largest first."""

    sections: tuple[ElfSection, ...]
    parts: tuple[SymbolSize, ...] = field(repr=False)

    @property
    def operators(self) -> tuple[OperatorSize, ...]:
        """Return the operators, the largest first; none where the ELF is no builtin runner for Arm."""
        names = sorted({name for part in self.parts for name in part.operators if name})
        rows = [OperatorSize(name, self._sum((name,)), self._sum(name)) for name in names]
        return tuple(sorted(rows, key=lambda row: (-row.own, -row.reached)))

    def _sum(self, operators: str | tuple[str, ...]) -> int:
        """Sum the bytes of parts to which exactly these operators (a tuple), or at least this one (a name), refer."""
        alone = isinstance(operators, tuple)
        return sum(
            part.nbytes for part in self.parts
            if (part.operators == operators if alone else operators in part.operators)
        )  # fmt: skip


def measure_elf(path: Path) -> ElfSize:
    """Return the sizes of an ELF's sections, symbols and operators.

    Raises ConfigError where the file is no ELF or is damaged, ToolchainError where a tool of binutils is missing.
    """
    with _whole_elf(path) as elf:
        owners = _owners(elf, path) if elf.machine == ARM else {}
        parts = tuple(part for section in elf.sections for part in _parts(elf, section, owners))
        return ElfSize(tuple(elf.sections), parts)


def builtin_operators(path: Path) -> tuple[str, ...]:
    """Return the operators of a builtin runner for Arm, in the order of its own table; none for any other ELF.

    Raises ConfigError where the file is no ELF, or damaged.
    """
    with _whole_elf(path) as elf:
        return tuple(_kernels(elf)) if elf.machine == ARM else ()


@contextmanager
def _whole_elf(path: Path) -> Iterator[_Elf]:
    """Yield the ELF at `path`; raise ConfigError if the block meets damage in it."""
    data = files.read(path, files.ELF_LIMIT)
    try:
        yield _Elf(data)
    except (struct.error, IndexError, UnicodeDecodeError):
        raise ConfigError(f"{path} is no whole ELF", hint="name what the linker wrote, such as runner.elf") from None


# --- the format ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, order=True)
class _Symbol:
    """A symbol of a function or an object. The address of a function has the bit that marks Thumb code removed."""

    address: int
    nbytes: int
    name: str
    is_function: bool


class _Elf:
    """A little-endian ELF of 32 or 64 bits."""

    def __init__(self, data: bytes) -> None:
        if data[:4] != MAGIC or data[5:6] != b"\1":
            raise struct.error
        self._data, self._wide = data, data[4] == 2
        self.machine: int = struct.unpack_from("<H", data, 18)[0]
        start = self._unpack("QI", 40 if self._wide else 32)[0]
        entry, count, names = struct.unpack_from("<3H", data, 58 if self._wide else 46)
        self._headers = [self._header(start + number * entry) for number in range(count)]
        texts = self._headers[names][4] if self._headers else 0
        allocated = [header for header in self._headers if header[2] & _ALLOCATED and header[5]]
        self._offsets = {header[3]: header[4] for header in allocated if header[1] != _NO_BITS}
        self.sections = [
            ElfSection(self._text(texts + header[0]), header[3], header[5], 0 if header[1] == _NO_BITS else header[5])
            for header in allocated
        ]
        self.symbols = self._read_symbols()

    def read(self, address: int, nbytes: int) -> bytes:
        """Return bytes of the file by their address in memory. Raises struct.error where the file has none."""
        for section in self.sections:
            if section.address <= address and address + nbytes <= section.address + section.stored:
                at = self._offsets[section.address] + address - section.address
                return self._data[at : at + nbytes]
        raise struct.error

    def text(self, address: int) -> str:
        """Return the string at an address in memory. Raises struct.error where the file has none."""
        for section in self.sections:
            if section.address <= address < section.address + section.stored:
                return self._text(self._offsets[section.address] + address - section.address)
        raise struct.error

    def _unpack(self, kinds: str, at: int) -> tuple[int, ...]:
        return struct.unpack_from(f"<{kinds[0] if self._wide else kinds[1]}", self._data, at)

    def _header(self, at: int) -> tuple[int, ...]:
        """Return name, type, flags, address, offset, size and link of the section header at an offset of the file.

        Raises struct.error where the section is not within the file.
        """
        found = struct.unpack_from("<2I4QI" if self._wide else "<7I", self._data, at)
        if found[1] != _NO_BITS and found[4] + found[5] > len(self._data):
            raise struct.error
        return found

    def _text(self, at: int) -> str:
        return self._data[at : self._data.index(b"\0", at) if b"\0" in self._data[at : at + 65536] else at].decode()

    def _read_symbols(self) -> list[_Symbol]:
        """Return symbols by address, without overlaps: the largest one at each address, and none inside another."""
        found: list[_Symbol] = []
        for header in self._headers:
            if header[1] == _SYMBOLS:
                found += self._table(header[4], header[5], self._headers[header[6]][4])
        kept: list[_Symbol] = []
        for symbol in sorted(found, key=lambda one: (one.address, -one.nbytes, one.name)):
            if not kept or symbol.address >= kept[-1].address + kept[-1].nbytes:
                kept.append(symbol)
        return kept

    def _table(self, offset: int, nbytes: int, texts: int) -> Iterator[_Symbol]:
        size = 24 if self._wide else 16
        for at in range(offset, offset + nbytes - size + 1, size):
            if self._wide:
                name, info, _, _, address, length = struct.unpack_from("<IBBHQQ", self._data, at)
            else:
                name, address, length, info, _, _ = struct.unpack_from("<3IBBH", self._data, at)
            kind = info & 15
            if length and kind in (_OBJECT, _FUNCTION):
                thumb = self.machine == ARM and kind == _FUNCTION
                yield _Symbol(address & ~1 if thumb else address, length, self._text(texts + name), kind == _FUNCTION)


def _parts(elf: _Elf, section: ElfSection, owners: Mapping[int, tuple[str, ...]]) -> list[SymbolSize]:
    """Return a part for each symbol that lies within the section, and one for the bytes that remain."""
    end = section.address + section.nbytes
    inside = [one for one in elf.symbols if section.address <= one.address and one.address + one.nbytes <= end]
    names = _demangled([one.name for one in inside])
    parts = [
        SymbolSize(section.name, name, one.nbytes, owners.get(one.address, ()))
        for one, name in zip(inside, names, strict=True)
    ]  # fmt: skip
    left = section.nbytes - sum(part.nbytes for part in parts)
    return sorted([*parts, *([SymbolSize(section.name, "", left)] if left else [])], key=lambda part: -part.nbytes)


def _demangled(names: Sequence[str]) -> list[str]:
    """Return mangled names as they are in C++ sources, or unchanged where there is no c++filt."""
    if not names:
        return []
    try:
        said = toolchain.run_tool(["c++filt"], TIMEOUT, given="\n".join(names).encode()).out.splitlines()
    except ToolchainError:
        said = []
    return said if len(said) == len(names) else list(names)


# --- operators -----------------------------------------------------------------------------------------------

_INSTRUCTION: Final = re.compile(r"^ *([0-9a-f]+):\t(\S+)(?:\t(.*))?$", re.M)
_PLACE: Final = re.compile(r"\b([0-9a-f]+) <")
_HALF: Final = re.compile(r"(\w+), #(\d+)")


def _owners(elf: _Elf, path: Path) -> dict[int, tuple[str, ...]]:
    """Return for each symbol, by its address, the operators whose kernels refer to it; "" stands for other code."""
    kernels = _kernels(elf)
    if not kernels:
        return {}
    references = _references(elf, path)
    of_kernels = set().union(*(_reach({kernel}, references) for kernel in kernels.values()))
    table = {one.address for one in elf.symbols if _TABLE in one.name}
    others = {one.address for one in elf.symbols} - of_kernels - table
    owners: dict[int, list[str]] = {}
    elsewhere = _reach({place for other in others for place in references.get(other, ())} - table, references)
    for name, places in [*((name, _reach({one}, references)) for name, one in kernels.items()), ("", elsewhere)]:
        for place in places:
            owners.setdefault(place, []).append(name)
    return {place: tuple(sorted(names)) for place, names in owners.items()}


def _kernels(elf: _Elf) -> dict[str, int]:
    """Return the addresses of kernels by operator, from the runner's own table."""
    found: dict[str, int] = {}
    for table in elf.symbols:
        if _TABLE in table.name:
            pairs = struct.iter_unpack("<2I", elf.read(table.address, table.nbytes // 8 * 8))
            found |= {elf.text(name): kernel & ~1 for name, kernel in pairs}
    return found


def _reach(roots: set[int], references: Mapping[int, set[int]]) -> set[int]:
    found: set[int] = set()
    waiting = list(roots)
    while waiting:
        place = waiting.pop()
        if place not in found:
            found.add(place)
            waiting += references.get(place, ())
    return found


def _references(elf: _Elf, path: Path) -> dict[int, set[int]]:
    """Return the addresses of the symbols to which each function's code refers, by the function's address."""
    command = [str(toolchain.locate("arm-none-eabi-objdump")), "-d", "--no-show-raw-insn", str(path)]
    said = toolchain.run_tool(command, TIMEOUT, _TEXT_LIMIT).out
    starts = [one.address for one in elf.symbols]
    # Numbers that only look like pointers mostly point into the RAM, where kernels have no data.
    stored = [range(one.address, one.address + one.stored) for one in elf.sections]
    named = {
        one.address | one.is_function: one.address
        for one in elf.symbols
        if any(one.address in part for part in stored)
    }  # fmt: skip
    found: dict[int, set[int]] = {}
    halves: dict[str, int] = {}  # for each register the lower half of an address in it
    for match in _INSTRUCTION.finditer(said):
        number = bisect_right(starts, int(match[1], 16)) - 1
        for word in _named(match[2], match[3] or "", halves):
            if number >= 0 and word in named and named[word] != starts[number]:
                found.setdefault(starts[number], set()).add(named[word])
    return found


def _named(mnemonic: str, operands: str, halves: dict[str, int]) -> Iterator[int]:
    """Yield the pointers in an instruction, or in a data word between instructions; some have the Thumb bit set."""
    if mnemonic == ".word":
        yield int(operands.split(maxsplit=1)[0], 16)
    elif half := _HALF.match(operands) if mnemonic in ("movw", "movt") else None:
        if mnemonic == "movw":
            halves[half[1]] = int(half[2])
        elif half[1] in halves:
            yield int(half[2]) << 16 | halves[half[1]]
    elif place := _PLACE.search(operands):
        yield int(place[1], 16) | 1
