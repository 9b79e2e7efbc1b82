"""FlatBuffers, read with every offset checked."""

from __future__ import annotations

import struct
from collections.abc import Iterator

from cortex_m_hil.errors import ProgramRejected
from cortex_m_hil.errors.text import printable
from cortex_m_hil.program.schema import SLOTS


class FlatbufferReader:
    """A reader of a FlatBuffer of `limit` bytes, which checks the bounds.

    In a damaged file many fields may point to one vector, so the total of elements read is bounded too: reading a file
    of n bytes takes time proportional to n.
    """

    def __init__(self, data: bytes, limit: int, source: str) -> None:
        self.data = data
        self.limit = limit
        self.source = source
        self.budget = 4 * limit + 1024

    def fail(self, problem: str, hint: str = "export the program again") -> ProgramRejected:
        return ProgramRejected(f"{self.source or 'program'}: {problem}", hint=hint)

    def span(self, at: int, nbytes: int, what: str) -> None:
        """Raise ProgramRejected unless [at, at + nbytes) lies in the FlatBuffer; ``what`` names these bytes."""
        if at < 0 or nbytes < 0 or at + nbytes > self.limit:
            raise self.fail(f"{what} at byte {at} lies outside the {self.limit} bytes of the program")

    def spend(self, elements: int, what: str) -> None:
        self.budget -= elements
        if self.budget < 0:
            raise self.fail(f"{what} claims more elements than the file can hold")

    def number(self, at: int, code: str, what: str) -> int | float:
        """Return the little-endian number at ``at``; ``code`` is as in `struct`."""
        self.span(at, struct.calcsize(f"<{code}"), what)
        value: int | float = struct.unpack_from(f"<{code}", self.data, at)[0]
        return value

    def integer(self, at: int, code: str, what: str) -> int:
        return int(self.number(at, code, what))

    def vector(self, at: int, code: str, what: str) -> tuple[int, tuple[int | float, ...]]:
        """Return (the position of the first element, all elements) of the vector at ``at``."""
        count = self.integer(at, "I", what)
        self.spend(count, what)
        self.span(at + 4, count * struct.calcsize(f"<{code}"), what)
        return at + 4, struct.unpack_from(f"<{count}{code}", self.data, at + 4)

    def text(self, at: int, what: str) -> str:
        length = self.integer(at, "I", what)
        self.spend(length, what)
        self.span(at + 4, length, what)
        try:
            return printable(self.data[at + 4 : at + 4 + length].decode("utf-8"))
        except UnicodeDecodeError as error:
            raise self.fail(f"{what} is not UTF-8") from error


class Table:
    """A table of a named type at an absolute position; fields are read by their names in `SLOTS`."""

    def __init__(self, reader: FlatbufferReader, at: int, type_name: str) -> None:
        self.reader = reader
        self.type_name = type_name
        self.at = at
        reader.spend(1, type_name)
        self.vtable = at - reader.integer(at, "i", type_name)
        self.vtable_bytes = reader.integer(self.vtable, "H", type_name)
        reader.span(self.vtable, max(self.vtable_bytes, 4), f"{type_name}'s vtable")
        self.table_bytes = reader.integer(self.vtable + 2, "H", type_name)
        reader.span(at, self.table_bytes, type_name)

    def position(self, name: str) -> int | None:
        """Return the absolute position of a field, None where it is absent."""
        entry = 4 + 2 * SLOTS[self.type_name][name]
        if entry + 2 > self.vtable_bytes:
            return None
        offset = self.reader.integer(self.vtable + entry, "H", name)
        if offset >= self.table_bytes:
            raise self.reader.fail(f"{self.type_name}.{name} lies outside its table")
        return self.at + offset if offset else None

    def target(self, name: str) -> int | None:
        """Return the position that an offset field points to, None where the field is absent."""
        at = self.position(name)
        if at is None:
            return None
        target = at + self.reader.integer(at, "I", name)
        self.reader.span(target, 4, f"{self.type_name}.{name}")
        return target

    def integer(self, name: str, code: str) -> int:
        at = self.position(name)
        return 0 if at is None else self.reader.integer(at, code, f"{self.type_name}.{name}")

    def double(self, name: str) -> float:
        at = self.position(name)
        return 0.0 if at is None else float(self.reader.number(at, "d", f"{self.type_name}.{name}"))

    def text(self, name: str) -> str:
        at = self.target(name)
        return "" if at is None else self.reader.text(at, f"{self.type_name}.{name}")

    def child(self, name: str, type_name: str) -> Table | None:
        at = self.target(name)
        return None if at is None else Table(self.reader, at, type_name)

    def integers(self, name: str, code: str) -> tuple[int, ...]:
        """Return a vector of integers; an absent one is empty."""
        at = self.target(name)
        if at is None:
            return ()
        return tuple(int(item) for item in self.reader.vector(at, code, f"{self.type_name}.{name}")[1])

    def doubles(self, name: str) -> tuple[float, ...]:
        at = self.target(name)
        if at is None:
            return ()
        return tuple(float(item) for item in self.reader.vector(at, "d", f"{self.type_name}.{name}")[1])

    def data(self, name: str) -> bytes:
        """Return a vector of bytes; an absent one is empty."""
        at = self.target(name)
        if at is None:
            return b""
        what = f"{self.type_name}.{name}"
        count = self.reader.integer(at, "I", what)
        self.reader.spend(count, what)
        self.reader.span(at + 4, count, what)
        return self.reader.data[at + 4 : at + 4 + count]

    def children(self, name: str, type_name: str) -> Iterator[Table]:
        at = self.target(name)
        if at is None:
            return
        first, offsets = self.reader.vector(at, "I", f"{self.type_name}.{name}")
        for position, offset in enumerate(offsets):
            yield Table(self.reader, first + 4 * position + int(offset), type_name)
