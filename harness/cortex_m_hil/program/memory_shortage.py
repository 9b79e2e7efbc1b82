"""Messages about a program that needs more memory than the target has: what fills it, and what would be enough.

All code that raises OutOfTargetMemory for a program uses these messages.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Final

from cortex_m_hil.errors.text import counted, percent
from cortex_m_hil.program.lifetimes import Lifetimes, Peak
from cortex_m_hil.program.partition import Partition, planned_in_int8
from cortex_m_hil.program.pte_file import PteFile
from cortex_m_hil.targets.load import is_shipped
from cortex_m_hil.targets.memory import Memory, Placed
from cortex_m_hil.targets.target import Board, HardwareLauncher, Target

_SHOWN: Final = 4  # tensors and targets that a message names at most
_REGION: Final = re.compile(r"(?:the )?(program|planned|method|temp|stack)\b(?: pool in (\w+))?")
_TEMP: Final = "temp"
_ALLOCATED: Final = ("method", _TEMP)  # memories whose refusal tells only the last request, not the total

Named = Callable[[int], str]
"""Returns the name of an instruction: its operator, with graph node, module and line as far as these are known."""


def region_of(message: str) -> tuple[str, str]:
    """Return the memory that a runner's error message is about, and the bank's region where there are several banks.

    The memory is `program`, `planned`, `method`, `temp`, `stack`, or "".
    """
    found = _REGION.match(message)
    return (found[1], found[2] or "") if found else ("", "")


@dataclass(frozen=True)
class Shortage:
    """A program and one memory that it does not fit.

    Attributes:
        region: the memory, as `region_of` returns it.
        requested, available: the bytes that the program asked for and that there are.
        file: the program; None where the host could not parse it.
        named: returns the name of an instruction.
        bank: of several banks, the region of the bank that is too small; "": no single bank.
    """

    region: str
    requested: int
    available: int
    target: Target
    file: PteFile | None
    named: Named
    bank: str = ""

    def details(self) -> Iterator[tuple[str, str]]:
        """Yield the bytes needed and available in each memory, and what fills the exceeded one at its peak."""
        if self.file is None:
            return
        yield "needs", ", ".join(self._needs(self.file))
        if self.region == "planned" and self.file.planned_bytes:
            names = [bank.region for bank in self.target.board.memory.banks]
            yield from peak_details(self.file, self.named, names.index(self.bank) + 1 if self.bank in names else 0)

    def _needs(self, file: PteFile) -> Iterator[str]:
        """Yield the bytes needed and available in each memory; a question mark where only a run tells."""
        memory = self.target.board.memory
        names = ["planned"] if len(memory.banks) == 1 else [f"bank {bank.region}" for bank in memory.banks]
        taken, rooms = file.bytes_in_banks(memory), memory.bank_rooms(file.size)
        known = {
            **dict(zip(names, zip(taken, rooms, strict=False), strict=True)),
            "program": (file.size, memory.program_room),
        }
        if self.region != "planned" or len(names) == 1:
            known[self.region] = self.requested, self.available
        for name, (needed, there) in known.items():
            yield f"{name} {'at least ' if name in _ALLOCATED else ''}{needed} of {there} bytes"
        if not known.keys() & _ALLOCATED:
            yield f"method ? of {memory.method.size} (hil inspect fit measures method and stack)"

    def hint(self) -> str:
        """Return the hint: targets that are large enough, and the key of `board.yaml` that sets the memory's size."""
        if self.region == "stack":
            return self._more_stack()
        steps = [*self._measure(), *self._roomier_banks(), *self._larger_targets(), *self._larger_pool()]
        if self.region == "program":
            steps.append("hil inspect size tells what its bytes are for")
        return "; ".join(steps)

    def _roomier_banks(self) -> Iterator[str]:
        """Yield advice for a planned buffer that does not fit its bank, and would fit another bank."""
        banks = self.target.board.memory.banks
        roomier = [one.region for one in banks if one.region != self.bank and one.size >= self.requested]
        if self.region == "planned" and self.bank and roomier:
            yield f"{' or '.join(roomier)} holds it, as the first of banks:; hil.lower and hil.check plan for all banks"

    def _measure(self) -> Iterator[str]:
        """Yield the command that measures the whole need, for memories where the error tells only the last request."""
        if self.region in _ALLOCATED:
            name = _simulator(self._fitting())
            larger = f"simulator of {self.target.isa.value} whose {self._key()[0]} pool is larger"
            command = f"hil inspect fit MODEL -t {name}" if name else f"hil inspect fit on a {larger}"
            part = f"{self.requested} bytes are only what the allocations up to the first refusal took"
            yield f"measure it first, with {command}: {part}"

    def _fitting(self) -> list[Target]:
        """Return the other targets of the same ISA class that hold the program, as far as its needs are known."""
        return [one for one in self.target.alternatives if one.isa is self.target.isa and not self._lacks(one.board)]

    def _larger_targets(self) -> Iterator[str]:
        """Yield the targets of the same ISA class that hold the program, or how much the largest lacks."""
        isa, fitting = self.target.isa, self._fitting()
        what = "so much" if self.region in _ALLOCATED else "it"
        lacking = [(self._lacks(one.board), one) for one in self.target.alternatives if one.isa is isa]
        if fitting:
            names = ", ".join([*(one.name for one in fitting[:_SHOWN]), *(["…"] if len(fitting) > _SHOWN else [])])
            yield f"targets of {isa.value} that hold {what}: {names}"
            if self.region not in _ALLOCATED and (name := _simulator(fitting)):
                yield f"hil inspect fit -t {name} tells the least that it runs in"
        elif lacking:
            nbytes, largest = min(lacking, key=lambda one: one[0])
            yield f"no other target of {isa.value} holds {what}: the nearest, {largest.name}, lacks {nbytes} bytes"
        else:
            yield f"no other target of {isa.value} is known: add one to targets.yaml"

    def _lacks(self, board: Board) -> int:
        """Return how many bytes the board lacks, summed over the memories whose need is known."""
        memory, size = board.memory, 0 if self.file is None else self.file.size
        lacking = max(0, (self.requested if self.region == "program" else size) - memory.program_room)
        if self.region in _ALLOCATED:
            lacking += max(0, self.requested - self._pool(memory)[1].size)
        taken = [self.requested] if self.region == "planned" else []
        if self.file is not None:
            taken = self.file.bytes_in_banks(memory)
        rooms = memory.bank_rooms(size)
        return lacking + sum(max(0, nbytes - room) for nbytes, room in zip_longest(taken, rooms, fillvalue=0))

    def _larger_pool(self) -> Iterator[str]:
        """Yield the key that makes the memory larger; nothing where that key is in a file of this package."""
        key, name, needed = self._key()
        if is_shipped(self.target.board, key):
            return
        if not needed:
            yield f"a further bank{self._at(key)}, if the part has the memory"
        else:
            yield f"{name} of at least {needed} bytes{self._at(key)}, if the part has them"

    def _key(self) -> tuple[str, str, int]:
        """Return the key that sizes the memory, its name for people, and the bytes that it must have.

        The bytes are 0 where a planned buffer lacks a bank.
        """
        memory = self.target.board.memory
        if self.region in _ALLOCATED:  # the bytes available may be less than the pool's size
            name, pool = self._pool(memory)
            return name, name, self.requested + pool.size - self.available
        key, name, size = "program", "program", memory.program.size
        if self.region == "planned":
            if not self.bank and len(memory.banks) > 1:
                return "banks", "banks", 0
            bank = next(one for one in memory.banks if one.region == (self.bank or memory.banks[0].region))
            key, name, size = "banks", f"bank {bank.region}", bank.size
        if memory.shared and self.requested <= size and self.bank in ("", memory.banks[0].region):
            return "shared", "shared", self.requested + memory.shared - self.available
        return key, name, self.requested

    def _pool(self, memory: Memory) -> tuple[str, Placed]:
        """Return the pool of a board that the runtime allocates in, with its key."""
        if self.region == _TEMP and memory.temp is not None:
            return _TEMP, memory.temp
        return "method", memory.method

    def _more_stack(self) -> str:
        return f"stack of at least {self.requested} bytes{self._at('stack')}"

    def _at(self, key: str) -> str:
        """Return ` in file:line`, the place of a key of `memory:`; "" where the place is not known."""
        place = self.target.board.memory.places.get(key)
        return f" in {place}" if place else ""


def _simulator(targets: Sequence[Target]) -> str:
    """Return the name of the first simulated target, preferably one without a fallback; "" if there is none."""
    simulated = [one for one in targets if not isinstance(one.launcher, HardwareLauncher)]
    return next((one.name for one in simulated if one.fallback is None), simulated[0].name if simulated else "")


def peak_details(file: PteFile, named: Named, buffer: int = 0) -> Iterator[tuple[str, str]]:
    """Yield where the plan's peak is, which values it consists of, and how much of them is float.

    Args:
        file: the program.
        named: returns the name of an instruction.
        buffer: the planned buffer whose values are counted; 0: all buffers.
    """
    whole = file.planned_sizes[buffer] if buffer else file.planned_bytes
    peak = _peak(file, buffer)
    where = _at(peak.instruction, named) if peak.instruction >= 0 else "the inputs"
    share = percent(min(1.0, peak.nbytes / whole))
    yield "peak", f"{where}: {peak.nbytes} bytes are held, {share} of the plan"
    for value, nbytes in peak.held[:_SHOWN]:
        yield "held", f"{nbytes} bytes: {file.values[value].spec}{_written_by(file, value, peak.instruction, named)}"
    if len(peak.held) > _SHOWN:
        rest = peak.held[_SHOWN:]
        yield "held", f"{sum(nbytes for _, nbytes in rest)} bytes in {counted(len(rest), 'more tensor')}"
    found = Partition.of(file)
    if found.left_in_float and (in_int8 := planned_in_int8(file, found)) < file.planned_bytes:
        yield (
            "in float",
            f"{counted(len(found.left_in_float), 'operator')}; in int8 the plan would take about {in_int8} bytes",
        )


def peak_by_bank(file: PteFile, memory: Memory) -> dict[str, int]:
    """Return the bytes that are held at each bank's peak, by the bank's region and the operator that runs then.

    The keys are as `sram: cortex_m::quantized_conv2d.out`. A bank that holds nothing has no item.
    """
    several = len(memory.banks) > 1
    peaks = ((bank.region, _peak(file, number if several else 0)) for number, bank in enumerate(memory.banks, 1))
    return {f"{region}: {_operator(file, peak.instruction)}": peak.nbytes for region, peak in peaks if peak.nbytes}


def _operator(file: PteFile, instruction: int) -> str:
    return file.instructions[instruction].name if instruction >= 0 else "the inputs"


def _peak(file: PteFile, buffer: int) -> Peak:
    """Return the peak of a planned buffer by its number, or of all buffers together for 0."""

    def counted_bytes(value: int, nbytes: int) -> int:
        planned = file.values[value].planned
        return nbytes if not buffer or (planned is not None and planned.memory_id == buffer) else 0

    return Lifetimes(file).peak(counted_bytes)


def _written_by(file: PteFile, value: int, before: int, named: Named) -> str:
    if value in file.inputs:
        return f", input {file.inputs.index(value)}"
    one = file.dataflow.producer(value, before + 1)
    return f" of {_at(one.index, named)}" if one is not None else ""


def _at(instruction: int, named: Named) -> str:
    return ", ".join(filter(None, (f"operator {instruction}", named(instruction))))
