"""The memory of a board as checked, frozen values: the content of `memory:` in a `board.yaml` and a target's entry.

The linker's regions, the runner's pools, the check before the run and the lowering's banks derive from these values.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, Literal

from cortex_m_hil.errors.text import shown

ALIGNMENT: Final = 16  # alignment in bytes of programs, banks and the method's memory (`firmware/runner/pools.cpp`)
STACK_ALIGNMENT: Final = 8  # bytes (AAPCS32, 6.2.1.2)
STACK_GUARD: Final = 4096  # unused bytes below the stack (`firmware/platform/sections.ld`)
MAX_BANKS: Final = 8  # kMaxBanks in `firmware/runtime/runtime.h`

Holds = Literal["code", "data", "both"]

_SIZE: Final = re.compile(r"([0-9]+)([KMG]?)")


def parse_size(text: object) -> int:
    """Parse a size such as `65536`, `"64K"`, `"2M"` or `"1G"`; return bytes. Raises ValueError for anything else."""
    match = _SIZE.fullmatch(str(text).strip())
    if match is None or isinstance(text, bool):
        raise ValueError(f"{shown(text)} is not a size such as 65536, 64K or 2M")
    return int(match[1]) << {"": 0, "K": 10, "M": 20, "G": 30}[match[2]]


def size_text(nbytes: int) -> str:
    """Return a size in the syntax of `parse_size`, in the largest unit that divides it."""
    for unit, shift in (("G", 30), ("M", 20), ("K", 10)):
        if nbytes and nbytes % (1 << shift) == 0:
            return f"{nbytes >> shift}{unit}"
    return str(nbytes)


def aligned(nbytes: int, alignment: int = ALIGNMENT) -> int:
    """Round a size up to a multiple of `alignment`."""
    return -(-nbytes // alignment) * alignment


@dataclass(frozen=True)
class Region:
    """A range of addresses; `address` is None on the host, where the linker chooses addresses."""

    name: str
    address: int | None
    size: int  # in bytes
    holds: Holds = "data"

    @property
    def end(self) -> int:
        return (self.address or 0) + self.size

    def contains(self, address: int, nbytes: int) -> bool:
        """Tell whether the bytes lie in the region; always True for a region without an address."""
        return self.address is None or self.address <= address <= address + nbytes <= self.end


@dataclass(frozen=True)
class Placed:
    """A piece of memory: its size in bytes, and the name of the region that it lies in."""

    region: str
    size: int


@dataclass(frozen=True)
class Memory:
    """The memory of a board.

    Attributes:
        regions: the address ranges of the board's memory.
        program: the memory for the `.pte`.
        banks: the memories for planned tensors, in order of preference, each in a region of its own. A single bank
            holds all planned buffers of a program; of several banks, the i-th holds the buffer with `mem_id` i.
        method: the memory for the loaded method's own data.
        temp: the memory for a kernel's temporary allocations with the runtime `executorch`; None: `method` serves them.
        unplanned: the region of the bank for inputs and outputs without a plan; "": that of the first bank.
        code, data: the regions of the runner's code and variables; "" on the host.
        stack: the thread's stack; None on the host.
        shared: memory that the program and the first bank share, so that a large one leaves the other less than its
            size; 0: each has its own.
        resident: the region of flash next to the runner, for programs that do not fit the RAM; "": no such region.
        places: `file:line` of keys, such as `program` or `banks`; empty for sizes that are in no file.
    """

    regions: tuple[Region, ...]
    program: Placed
    banks: tuple[Placed, ...]
    method: Placed
    code: str = ""
    data: str = ""
    stack: Placed | None = None
    shared: int = 0
    resident: str = ""
    temp: Placed | None = None
    unplanned: str = ""
    places: Mapping[str, str] = field(default_factory=dict, compare=False, repr=False)

    @property
    def planned(self) -> int:
        """Return the bytes of all banks together."""
        return sum(bank.size for bank in self.banks)

    @property
    def unplanned_bank(self) -> int:
        """Return the number, from 0, of the bank for inputs and outputs without a plan."""
        return next((number for number, bank in enumerate(self.banks) if bank.region == self.unplanned), 0)

    @property
    def resident_region(self) -> Region | None:
        return self.region(self.resident) if self.resident else None

    @property
    def program_room(self) -> int:
        """Return the bytes of the largest program that the board can hold, in RAM or in flash."""
        flash = self.resident_region
        return max(self.program.size, flash.size if flash is not None else 0)

    def region(self, name: str) -> Region:
        """Return the region of that name."""
        return next(region for region in self.regions if region.name == name)

    def buffers_of_banks(self, sizes: Sequence[int], unplanned: int = 0) -> list[int]:
        """Return the bytes that planned buffers, and inputs and outputs without a plan, take in each bank.

        With one bank, all buffers lie in it. Buffers beyond the last bank, which have no place, add further items.

        Args:
            sizes: the bytes of each planned buffer; item 0 is a placeholder.
            unplanned: the bytes of inputs and outputs without a plan.
        """
        taken = [aligned(size) for size in sizes[1:]]
        if len(self.banks) == 1:
            taken = [sum(taken)]
        while taken and not taken[-1] and len(taken) > len(self.banks):
            taken.pop()
        taken += [0] * (len(self.banks) - len(taken))
        taken[self.unplanned_bank] += unplanned
        return taken

    def bank_rooms(self, program: int) -> list[int]:
        """Return the bytes of each bank that a program of `program` bytes, in RAM or in flash, leaves for tensors.

        A program in flash leaves the first bank all of its memory.
        """
        flash = self.resident_region
        in_flash = program > self.program.size or (flash is not None and program <= flash.size)
        first = self.banks[0].size if in_flash else self._first_bank_beside(program)
        return [first, *(bank.size for bank in self.banks[1:])]

    def _first_bank_beside(self, program: int) -> int:
        first = self.banks[0].size
        return min(first, self.shared - program) if self.shared else first

    def keeps_in_flash(self, program: int, first_bank: int) -> bool:
        """Tell whether a program must be kept in flash, because the RAM does not hold it and its tensors.

        `program` and `first_bank` are the bytes of the program, and of its planned buffers in the first bank.
        """
        in_ram = program <= self.program.size and first_bank <= self._first_bank_beside(program)
        flash = self.resident_region
        return not in_ram and flash is not None and program <= flash.size

    def resized(
        self,
        *,
        program: int | None = None,
        banks: Sequence[int] | None = None,
        method: int | None = None,
        stack: int | None = None,
        temp: int | None = None,
    ) -> Memory:
        """Return the memory with the given sizes in bytes in place of its own, and with empty `places`."""
        sizes = [bank.size for bank in self.banks] if banks is None else banks
        return replace(
            self,
            program=self.program if program is None else replace(self.program, size=program),
            banks=tuple(replace(bank, size=size) for bank, size in zip(self.banks, sizes, strict=True)),
            method=self.method if method is None else replace(self.method, size=method),
            stack=self.stack if stack is None or self.stack is None else replace(self.stack, size=stack),
            temp=self.temp if temp is None or self.temp is None else replace(self.temp, size=temp),
            places={},
        )

    def contents(self, region: str) -> Iterator[tuple[str, int]]:
        """Yield each key that puts something into a region, with its bytes, rounded up to their alignment."""
        if self.stack is not None and self.stack.region == region:
            yield "stack", STACK_GUARD + self.stack.size
        first, rest = ("shared", self.shared) if self.shared else ("program", self.program.size), self.banks
        if self.program.region == region:
            yield first[0], aligned(first[1])
        if self.shared:
            rest = rest[1:]
        yield from (("banks", aligned(bank.size)) for bank in rest if bank.region == region)
        if self.method.region == region:
            yield "method", aligned(self.method.size)
        if self.temp is not None and self.temp.region == region:
            yield "temp", aligned(self.temp.size)

    def lines(self) -> Iterator[str]:
        """Yield the lines of YAML below `memory:` that describe this memory."""
        yield "regions:"
        for region in self.regions:
            place = "" if region.address is None else f"address: {region.address:#010x}, "
            holds = "" if region.holds == "data" else f", holds: {region.holds}"
            yield f"  {region.name}: {{{place}size: {size_text(region.size)}{holds}}}"
        yield from (f"{key}: {name}" for key, name in (("code", self.code), ("data", self.data)) if name)
        yield from self.sizes()

    def sizes(self) -> Iterator[str]:
        """Yield the `lines` with sizes of the parts that lie in the regions."""
        sized = ("stack", self.stack), ("program", self.program), ("method", self.method), ("temp", self.temp)
        for key, placed in sized:
            if placed is not None:
                yield f"{key}: {_text(placed)}"
        yield "banks:"
        yield from (f"  - {_text(bank)}" for bank in self.banks)
        if self.shared:
            yield f"shared: {size_text(self.shared)}"
        if self.unplanned:
            yield f"unplanned: {self.unplanned}"
        if self.resident:
            yield f"resident: {self.resident}"


def _text(placed: Placed) -> str:
    return f"{{region: {placed.region}, size: {size_text(placed.size)}}}"
