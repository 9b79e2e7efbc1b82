"""Red zones: bytes of the planned arena that belong to no tensor. A write there is outside of all tensors.

The check needs only the memory plan and the protocol's FILL, DIGEST, READ and STEP, so it works with every runtime. See
docs/failures.md.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from cortex_m_hil.errors import RedzoneViolation
from cortex_m_hil.errors.text import counted
from cortex_m_hil.flow.single_run import COUNTER_POISON, POISON, Device, operator_at
from cortex_m_hil.flow.stepping import steps
from cortex_m_hil.lowering import RED_ZONE
from cortex_m_hil.program.program import Program
from cortex_m_hil.program.pte_file import PteFile
from cortex_m_hil.program.tensor import HostTensor
from cortex_m_hil.runner.links.protocol import MemoryRegion
from cortex_m_hil.runner.session.session import Session
from cortex_m_hil.targets.memory import ALIGNMENT, Memory

Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Zone:
    """The bytes `begin` to `end` of the arena, which belong to no tensor, or the bytes after the plan of a bank.

    Attributes:
        number: the number of the zone in the program.
        begin: the offset of the first byte in the arena, or in the bank if `bank` is not -1.
        end: the offset after the last byte.
        before: the values that end where the zone begins.
        after: the values that begin where the zone ends.
        bank: the number of the bank whose plan the zone follows; -1: the zone lies between tensors.
        region: the region of that bank.
    """

    number: int
    begin: int
    end: int
    before: tuple[int, ...]
    after: tuple[int, ...]
    bank: int = -1
    region: str = ""

    @property
    def size(self) -> int:
        return self.end - self.begin

    def pattern(self, poison: int) -> int:
        """Return the byte that fills the zone.

        Complementary poisons give complementary bytes, so that a write of a constant is missed in one pass at most. The
        byte differs from the poison and from those of the next 254 zones, so that an overrunning copy from another zone
        does not write the same bytes.
        """
        return poison ^ (self.number % 255 + 1)


@dataclass(frozen=True)
class Violation:
    """A range of changed bytes in a zone.

    Attributes:
        zone: the zone.
        first: the offset of the first changed byte in the zone.
        last: the offset of the last changed byte.
        instruction: the instruction that changed the zone; -1: not known.
    """

    zone: Zone
    first: int
    last: int
    instruction: int


def zones(file: PteFile) -> tuple[Zone, ...]:
    """Return as zones the bytes of each planned buffer that no tensor uses at any moment."""
    found: list[Zone] = []
    for memory_id, size in enumerate(file.planned_sizes):
        if memory_id != 0:  # buffer 0 is a placeholder
            found += _zones_of(file, memory_id, file.planned_bases[memory_id], size, len(found))
    return tuple(found)


def zones_behind_banks(file: PteFile, memory: Memory, number: int) -> tuple[Zone, ...]:
    """Return a zone after the program's plan in each bank, as far as the bank has room there.

    Args:
        file: the program.
        memory: the target's memory.
        number: the number of the first of these zones.
    """
    found: list[Zone] = []
    for bank, (placed, room) in enumerate(zip(memory.banks, memory.bank_rooms(file.size), strict=True)):
        begin, before = _end_of_bank(file, memory, bank)
        end = min(begin + RED_ZONE, room - (ALIGNMENT if memory.shared and bank == 0 else 0))  # by alignment
        if begin < end:
            found.append(Zone(number + len(found), begin, end, before, (), bank, placed.region))
    return tuple(found)


def _end_of_bank(file: PteFile, memory: Memory, bank: int) -> tuple[int, tuple[int, ...]]:
    """Return the end of a program's data in a bank, and the values that end there."""
    if file.unplanned and bank == memory.unplanned_bank:
        last = file.unplanned[-1]
        spec = file.values[last].spec
        padding = -spec.nbytes % ALIGNMENT if spec is not None else 0
        return file.bytes_in_banks(memory)[bank] - padding, (last,)
    buffers = range(1, len(file.planned_sizes)) if len(memory.banks) == 1 else range(bank + 1, bank + 2)
    number = max((one for one in buffers if one < len(file.planned_sizes) and file.planned_sizes[one]), default=0)
    size = file.planned_sizes[number] if number else 0
    before = tuple(
        value.index
        for value in file.values
        if number and (planned := value.planned) is not None and planned.memory_id == number
        and planned.offset + planned.nbytes == size
    )  # fmt: skip
    return size + (file.planned_bases[number] if number and len(memory.banks) == 1 else 0), before


def _zones_of(file: PteFile, memory_id: int, base: int, size: int, number: int) -> list[Zone]:
    begins: dict[int, list[int]] = {}
    ends: dict[int, list[int]] = {}
    extents = {(0, 0), (size, size)}
    for value in file.values:
        planned = value.planned
        if planned is not None and planned.memory_id == memory_id:
            extent = (planned.offset, planned.offset + planned.nbytes)
            extents.add(extent)
            begins.setdefault(extent[0], []).append(value.index)
            ends.setdefault(extent[1], []).append(value.index)
    found: list[Zone] = []
    reached = 0
    for begin, end in sorted(extents):
        if begin > reached:
            before, after = (tuple(values) for values in (ends.get(reached, ()), begins.get(begin, ())))
            found.append(Zone(number + len(found), base + reached, base + begin, before, after))
        reached = max(reached, end)
    return found


@dataclass
class RedZones:
    """The guard of one run (`flow.Guard`): fills a program's zones, checks them, and finds their writers."""

    program: Program
    zones: tuple[Zone, ...] = ()
    _behind: tuple[Zone, ...] = ()
    _changed: dict[Zone, Mask] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.zones = zones(self.program.file)

    @property
    def nbytes(self) -> int:
        """Return the size of all zones together."""
        return sum(zone.size for zone in self.zones)

    def describe(self) -> str:
        """Return number and size of the zones in words, and whether the program was lowered with red zones.

        Without any zone, the text says that writes outside of tensors are not detected.
        """
        if not self.zones:
            told = "its memory plan leaves no byte free, so no write outside a tensor was looked for"
            return f"{told}, except behind the plan"
        plain = (
            ""
            if self.program.size_without_redzones is not None
            else "; only what the program's own memory plan leaves free"
        )
        return f"{len(self.zones)} zones, {self.nbytes} bytes{plain}"

    def fill(self, session: Session, poison: int) -> None:
        self._behind = zones_behind_banks(self.program.file, session.target.board.memory, len(self.zones))
        for zone in (*self.zones, *self._behind):
            region, bank, offset = _place(session, zone)
            session.fill(region, bank, zone.pattern(poison), offset=offset, length=zone.size)

    def inspect(self, session: Session, poison: int) -> None:
        for zone in (*self.zones, *self._behind):
            mask = _difference(session, zone, poison)
            if mask.any():
                self._changed[zone] = mask | self._changed.get(zone, False)

    def judge(self, dut: Device, session: Session, inputs: Sequence[HostTensor]) -> None:
        """Raise RedzoneViolation for the first operator that wrote outside of all tensors; the log has the others."""
        if not self._changed:
            return
        found = [
            Violation(zone, int(mask.argmax()), zone.size - 1 - int(mask[::-1].argmax()), instruction)
            for (zone, instruction), mask in self._by_writer(dut, inputs).items()
        ]
        found.sort(key=lambda violation: (violation.instruction < 0, violation.instruction, violation.zone.number))
        texts = [explain(self.program, violation) for violation in found]
        more = f" (and {counted(len(found) - 1, 'more violation')})" if len(found) > 1 else ""
        raise RedzoneViolation(
            texts[0] + more,
            target=dut.target.name,
            operator=operator_at(self.program, found[0].instruction),
            hint="the kernel writes too far, or the tensor was planned for fewer bytes than the kernel expects",
            log="\n".join([*texts, session.log]),
        )

    def _by_writer(self, dut: Device, inputs: Sequence[HostTensor]) -> dict[tuple[Zone, int], Mask]:
        """Run the program step by step, and return the changed bytes by zone and by the instruction that changed them.

        The instruction -1 stands for changes that did not happen again in this run.
        """
        found: dict[tuple[Zone, int], Mask] = {}
        rest = dict(self._changed)
        for poison in (POISON, COUNTER_POISON):
            for zone, instruction, mask in self._steps(dut, inputs, poison):
                found[zone, instruction] = mask | found.get((zone, instruction), False)
                rest[zone] = rest[zone] & ~mask
        return found | {(zone, -1): mask for zone, mask in rest.items() if mask.any()}

    def _steps(self, dut: Device, inputs: Sequence[HostTensor], poison: int) -> Iterator[tuple[Zone, int, Mask]]:
        """Step through the program.

        Yield zone, instruction and newly changed bytes, for zones that a whole run changed.
        """
        before = {zone: np.zeros(zone.size, np.bool_) for zone in self._changed}
        for done in steps(dut, self.program, inputs, poison=poison, guard=self):
            for zone, known in before.items():
                now = _difference(done.session, zone, poison)
                if (now & ~known).any():
                    yield zone, done.index, now & ~known
                before[zone] = now | known


def _intact(session: Session, zone: Zone, poison: int) -> bool:
    expected = zlib.crc32(bytes([zone.pattern(poison)]) * zone.size)
    region, bank, offset = _place(session, zone)
    return session.digest(region, bank, offset=offset, length=zone.size) == expected


def _place(session: Session, zone: Zone) -> tuple[MemoryRegion, int, int]:
    """Return region, index and offset of a zone, for the session's requests."""
    if zone.bank >= 0:
        return MemoryRegion.BANK, zone.bank, zone.begin
    bank, offset, _ = next(session.in_banks(zone.begin, zone.end))
    return MemoryRegion.PLANNED, bank, offset


def _difference(session: Session, zone: Zone, poison: int) -> Mask:
    """Return a mask of the bytes of a zone that differ from its pattern; read only if the digest is wrong."""
    if _intact(session, zone, poison):
        return np.zeros(zone.size, np.bool_)
    region, bank, offset = _place(session, zone)
    read = np.frombuffer(session.read(region, bank, zone.size, offset=offset), np.uint8)
    mask: Mask = read != zone.pattern(poison)
    return mask


# --- in words ------------------------------------------------------------------------------------------------


def explain(program: Program, violation: Violation) -> str:
    """Describe a violation: the tensor that was overrun, the writer, and the number of bytes."""
    zone = violation.zone
    value, beyond = _victim(program.file, violation)
    who = _node(program, violation.instruction)
    if value is None:
        where = f"bytes {zone.begin + violation.first} to {zone.begin + violation.last} of "
        where += f"bank {zone.region}, behind its plan" if zone.bank >= 0 else "the arena, beside no tensor"
        return f"{who} wrote outside every tensor: {where}"
    spec = program.file.values[value].spec
    nbytes = spec.nbytes if spec is not None else 0
    reach = violation.last + 1 if beyond else zone.size - violation.first
    distance = violation.first if beyond else zone.size - 1 - violation.last
    least = "at least " if reach == zone.size else ""  # the write may go on after the zone
    apart = f", the nearest {distance + 1} bytes away" if distance else ""
    if beyond:
        extent = f"{least}{nbytes + reach} bytes used of {nbytes} planned: {least}{_bytes(reach)} beyond the end{apart}"
    else:
        extent = f"{nbytes} bytes planned, and {least}{_bytes(reach)} used before their start{apart}"
    behind = f", behind the plan of bank {zone.region}" if zone.bank >= 0 else ""
    return f"{who} wrote outside {role(program, value, violation.instruction)}: {extent}{behind}"


def _bytes(count: int) -> str:
    return "1 byte" if count == 1 else f"{count} bytes"


def _victim(file: PteFile, violation: Violation) -> tuple[int | None, bool]:
    """Return the tensor that was overrun, and whether at its end or its beginning.

    A tensor that the operator writes is preferred, else the nearer one is taken.
    """
    zone = violation.zone
    mine: set[int] = set()
    if violation.instruction >= 0:
        mine = {*file.dataflow.outs[violation.instruction], *file.dataflow.scratch_of[violation.instruction]}
    before = [value for value in zone.before if value in mine] or list(zone.before)
    after = [value for value in zone.after if value in mine] or list(zone.after)
    if not before or not after:
        return next(iter(before or after), None), bool(before)
    beyond = violation.first <= zone.size - 1 - violation.last
    if mine.isdisjoint(before) != mine.isdisjoint(after):
        beyond = mine.isdisjoint(after)
    return (before if beyond else after)[0], beyond


def role(program: Program, value: int, writer: int = -1) -> str:
    """Describe a planned tensor and the graph node that it belongs to.

    For example `scratch 0 of conv (features.0), uint8[272]`, or `its scratch 0, uint8[272]` if it belongs to the
    writer.

    Args:
        program: the program.
        value: the index of the tensor.
        writer: the instruction that writes outside of the tensor; -1: none.
    """
    file = program.file
    spec = file.values[value].spec
    makers = [at for at, outs in enumerate(file.dataflow.outs) if value in outs]
    users = [at for at, scratch in enumerate(file.dataflow.scratch_of) if value in scratch]
    if value in file.inputs:
        name = f"input {file.inputs.index(value)}"
    elif value in file.outputs:
        name = f"output {file.outputs.index(value)}"
    elif value in file.states:
        name = f"state {file.states.index(value)}"
    elif users:
        name = f"scratch {file.dataflow.scratch_of[users[0]].index(value)}"
    else:
        name = f"intermediate {value}"
    owner = (makers or users or [-1])[-1]
    if owner < 0:
        return f"{name}, {spec}"
    return f"its {name}, {spec}" if owner == writer else f"{name} of {_node(program, owner)}, {spec}"


def _node(program: Program, instruction: int) -> str:
    """Return the graph node of an instruction, or else the operator and number."""
    if instruction < 0:
        return "an operator that a second run did not find"
    known = program.nodes[instruction]
    return known or f"operator {instruction} ({program.file.instructions[instruction].operator})"
