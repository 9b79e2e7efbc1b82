"""A breakdown of the bytes of a `.pte`: each belongs to exactly one part, so that the parts' sum is the file's size."""

from __future__ import annotations

import re
from array import array
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from itertools import groupby
from typing import Final

from cortex_m_hil.program.flatbuffers import FlatbufferReader, Table
from cortex_m_hil.program.pte_file import PteFile
from cortex_m_hil.program.pte_reader import Layout, read_all_methods, read_header
from cortex_m_hil.program.schema import (
    FIELDS,
    HEADER_AT,
    HEADER_MAGIC,
    INSTRUCTION_ARGUMENTS,
    KERNEL_TYPES,
    LISTS_OF_TENSORS,
    UNIONS,
)
from cortex_m_hil.program.values import Value


class PteSection(str, Enum):
    """The kinds of bytes in a `.pte`, by their purpose."""

    HEADER = "header"  # root offset, file identifier, extended header
    TABLES = "tables"  # the program and its plan: inputs, outputs, sizes of buffers, offsets of constants
    VALUES = "values"  # EValues, without the data of constants
    INSTRUCTIONS = "instructions"
    OPERATORS = "operators"  # names of operators
    DELEGATES = "delegates"
    VTABLES = "vtables"  # vtables of all tables; equal vtables are stored once
    CONSTANTS = "constants"  # data of constant tensors
    UNUSED = "unused"  # data of constants that no instruction takes, and that are no output
    SEGMENTS = "segments"  # other segments: of delegates, mutable or named data
    PADDING = "padding"  # zeros that nothing refers to
    UNKNOWN = "unknown"  # other bytes that nothing refers to


@dataclass(frozen=True)
class PtePart:
    """The bytes of a section that serve one purpose, such as one constant or all tables of a kind.

    Attributes:
        what: the table's name; of a constant its value number, dtype and shape.
        count: the number of such tables; of a constant, the number of values that share it.
        method: of a constant, the first method that has it; "" for other parts.
        value: of a constant, its number in that method; -1 for other parts.
        operator, instruction, argument: the first use of a constant: `ns::name.overload`, its number, and the
            argument's number in the schema; "", -1 and -1 elsewhere, and where no instruction takes it.
    """

    section: PteSection
    what: str
    nbytes: int
    count: int = 1
    method: str = ""
    value: int = -1
    operator: str = ""
    instruction: int = -1
    argument: int = -1


@dataclass(frozen=True)
class PteSize:
    """The sizes of a file's parts, in the order of `PteSection`, within a section the largest first."""

    parts: tuple[PtePart, ...]

    @property
    def nbytes(self) -> int:
        """Return the size of the file in bytes."""
        return sum(part.nbytes for part in self.parts)

    def section_bytes(self, section: PteSection) -> int:
        """Return the size of a section in bytes."""
        return sum(part.nbytes for part in self.parts if part.section is section)

    @property
    def sections(self) -> Mapping[PteSection, int]:
        """Return the size in bytes of each section that is not empty."""
        return {section: nbytes for section in PteSection if (nbytes := self.section_bytes(section))}

    @property
    def operators(self) -> Mapping[str, int]:
        """Return the bytes of the constants that each operator takes, the largest first.

        A constant that several operators share counts for the first of them only.
        """
        found: Counter[str] = Counter()
        for part in self.parts:
            if part.operator:
                found[part.operator] += part.nbytes
        return dict(found.most_common())


_SIZES: Final = {
    "bool": 1, "byte": 1, "ubyte": 1, "int": 4, "uint": 4, "uint32": 4, "long": 8, "int64": 8, "uint64": 8, "double": 8,
}  # fmt: skip
_MEMBERS: Final = dict(
    zip(UNIONS, ([one.value for one in KERNEL_TYPES], [one.value for one in INSTRUCTION_ARGUMENTS]), strict=True)
)
_SECTIONS: Final = {
    "EValue": PteSection.VALUES,
    "Chain": PteSection.INSTRUCTIONS,
    "Operator": PteSection.OPERATORS,
    "BackendDelegate": PteSection.DELEGATES,
    "BackendDelegateInlineData": PteSection.DELEGATES,
    "Buffer": PteSection.CONSTANTS,
}
"""The section that each of these tables and everything that it refers to belongs to."""


def measure_pte(file: PteFile) -> PteSize:
    """Return the parts of a whole `.pte`; `file` may have any of its methods selected.

    Raises:
        ProgramRejected: the file refers to more bytes than it has, or to places outside of it.
    """
    layout = read_header(file.data, file.source)
    claims = _Claims(FlatbufferReader(file.data, len(file.data), file.source))
    methods = [method for method, _ in read_all_methods(file.data, file.source)]
    for part, begin in _constants(methods):
        claims.add(part, begin, part.nbytes, part.count)
    program = Table(claims.reader, claims.reader.integer(0, "I", "root offset"), "Program")
    claims.add(PtePart(PteSection.HEADER, "header", 0), 0, _header_bytes(file.data))
    _Walk(claims).table(program, PteSection.TABLES)
    for part, begin in _segments(program, layout, methods):
        claims.add(part, begin, part.nbytes)
    order = list(PteSection)
    return PteSize(tuple(sorted(claims.parts(), key=lambda part: (order.index(part.section), -part.nbytes, part.what))))


class _Claims:
    """A map from each byte to the part that it belongs to; a byte stays with the part that claimed it first."""

    def __init__(self, reader: FlatbufferReader) -> None:
        self.reader = reader
        self._owners = array("I", bytes(4 * reader.limit))  # for each byte the number of its part, from 1
        self._parts: list[PtePart] = []
        self._numbers: dict[tuple[PteSection, str], int] = {}
        self._counts: list[int] = []

    def add(self, part: PtePart, begin: int, nbytes: int, count: int = 1) -> None:
        """Claim bytes for a part. Parts of one section that have the same name are one part.

        The work is bounded as in parsing, since many references may share their bytes.

        Args:
            part: the part; its `nbytes` are ignored.
            begin: the first byte.
            nbytes: how many bytes.
            count: how many tables or constants these bytes are.

        Raises:
            ProgramRejected: the bytes lie outside of the file, or more are claimed than it can hold.
        """
        self.reader.span(begin, nbytes, part.what)
        self.reader.spend(nbytes, part.what)
        number = self._numbers.setdefault((part.section, part.what), len(self._parts) + 1)
        if number > len(self._parts):
            self._parts.append(part)
            self._counts.append(0)
        self._counts[number - 1] += count
        mine = array("I", [number])
        if any(self._owners[begin : begin + nbytes]):
            mine = array("I", [owner or number for owner in self._owners[begin : begin + nbytes]])
            self._owners[begin : begin + nbytes] = mine
        else:
            self._owners[begin : begin + nbytes] = mine * nbytes

    def parts(self) -> Iterator[PtePart]:
        sizes = [0] * (len(self._parts) + 1)
        left = {PteSection.PADDING: (0, 0), PteSection.UNKNOWN: (0, 0)}  # bytes, and contiguous ranges of them
        at = 0
        for owner, run in groupby(self._owners):
            nbytes = sum(1 for _ in run)
            sizes[owner] += nbytes
            for stretch in re.finditer(rb"\0+|[^\0]+", b"" if owner else self.reader.data[at : at + nbytes]):
                section = PteSection.UNKNOWN if any(stretch[0]) else PteSection.PADDING
                left[section] = left[section][0] + len(stretch[0]), left[section][1] + 1
            at += nbytes
        for part, nbytes, count in zip(self._parts, sizes[1:], self._counts, strict=True):
            yield replace(part, nbytes=nbytes, count=count)
        yield from (PtePart(section, section.value, *figures) for section, figures in left.items() if figures[0])


class _Walk:
    """A walk over a table and everything that it refers to by program.fbs, which claims the bytes for their parts."""

    def __init__(self, claims: _Claims) -> None:
        self._claims, self._reader = claims, claims.reader
        self._seen: set[tuple[int, str]] = set()

    def table(self, table: Table, inherited: PteSection) -> None:
        if self._is_known(table.at, table.type_name):
            return
        section = _SECTIONS.get(table.type_name, inherited)
        part = PtePart(section, table.type_name, 0)
        self._claims.add(part, table.at, table.table_bytes)
        if not self._is_known(table.vtable, "vtable"):
            self._claims.add(PtePart(PteSection.VTABLES, "vtable", 0), table.vtable, table.vtable_bytes)
        for name, kind in FIELDS[table.type_name].items():
            # Tables whose first fields are alike share a vtable, so a table may be longer than its vtable says.
            begin = table.position(name)
            if begin is not None:
                self._claims.add(part, begin, _SIZES.get(kind, 4), 0)
            if kind not in _SIZES:
                self._field(table, name, kind, part)

    def _field(self, table: Table, name: str, kind: str, part: PtePart) -> None:
        """Claim the object that a field refers to."""
        at = table.target(name)
        if at is None:
            return
        item = kind.strip("[]")
        if kind in UNIONS:
            member = table.integer(f"{name}_type", "B")
            members = _MEMBERS[kind]
            if 1 <= member <= len(members):
                self.table(Table(self._reader, at, members[member - 1]), part.section)
        elif kind == "string":
            self._vector(at, 1, part, "string")
        elif item in _SIZES:
            self._vector(at, _SIZES[item], part, kind)
        elif kind.startswith("["):
            children = list(table.children(name, item))
            of_items = PtePart(_SECTIONS.get(item, part.section), item, 0) if children else part
            self._vector(at, 4, of_items, kind)
            for child in children:
                self.table(child, of_items.section)
        else:
            self.table(Table(self._reader, at, item), part.section)

    def _vector(self, at: int, size: int, part: PtePart, kind: str) -> None:
        """Claim a vector with its length; of a string, also its terminating zero, which the length does not count."""
        nbytes = 4 + size * self._reader.integer(at, "I", kind) + (kind == "string")
        self._claims.add(part, at, nbytes, 0)

    def _is_known(self, at: int, kind: str) -> bool:
        known = (at, kind) in self._seen
        self._seen.add((at, kind))
        return known


def _header_bytes(data: bytes) -> int:
    extended = data[HEADER_AT : HEADER_AT + 4] == HEADER_MAGIC
    return HEADER_AT + int.from_bytes(data[HEADER_AT + 4 : HEADER_AT + 8], "little") if extended else HEADER_AT


def _constants(methods: Sequence[PteFile]) -> Iterator[tuple[PtePart, int]]:
    """Yield each constant with the offset of its bytes; values that share bytes are one constant."""
    places: dict[tuple[int, int], list[tuple[PteFile, Value]]] = {}
    uses = {method.method: _first_uses(method) for method in methods}
    for method in methods:
        for value in method.values:
            if value.constant is not None and value.constant[1]:
                places.setdefault(value.constant, []).append((method, value))
    for (begin, nbytes), holders in places.items():
        taken = [(method, value) for method, value in holders if value.index in uses[method.method]]
        method, value = (taken or holders)[0]
        use = uses[method.method].get(value.index, ("", -1, -1))
        is_used = taken or any(value.index in method.outputs for method, value in holders)
        section = PteSection.CONSTANTS if is_used else PteSection.UNUSED
        what = f"value {value.index}, {value.spec}" + (f", method {method.method}" if len(methods) > 1 else "")
        yield PtePart(section, what, nbytes, len(holders), method.method, value.index, *use), begin


def _first_uses(file: PteFile) -> dict[int, tuple[str, int, int]]:
    """Return for each value the operator, instruction and argument that use it first, directly or in a list."""
    found: dict[int, tuple[str, int, int]] = {}
    for instruction in file.instructions:
        for argument, index in enumerate(instruction.args if instruction.operator else ()):
            lists = file.values[index].kind in LISTS_OF_TENSORS
            for value in file.values[index].items if lists else (index,):
                found.setdefault(int(value), (instruction.operator, instruction.index, argument))
    return found


def _segments(program: Table, layout: Layout, methods: Sequence[PteFile]) -> Iterator[tuple[PtePart, int]]:
    """Yield the bytes in segments that no value refers to: unused constants, and whole segments of other data."""
    held = program.child("constant_segment", "SubsegmentOffsets")
    offsets = held.integers("offsets", "Q") if held is not None else ()
    constants = held.integer("segment_index", "I") if held is not None and offsets else -1
    used = {value.constant[0] for method in methods for value in method.values if value.constant is not None}
    for number, table in enumerate(program.children("segments", "DataSegment")):
        begin, nbytes = layout.segments_begin + table.integer("offset", "Q"), table.integer("size", "Q")
        if number != constants:
            yield PtePart(PteSection.SEGMENTS, f"segment {number}", nbytes), begin
            continue
        ends = sorted({*offsets, nbytes})
        for offset in sorted({*offsets[1:]}):
            if begin + offset not in used and offset < nbytes:
                end = next(one for one in ends if one > offset)
                yield PtePart(PteSection.UNUSED, "of no value", end - offset), begin + offset
