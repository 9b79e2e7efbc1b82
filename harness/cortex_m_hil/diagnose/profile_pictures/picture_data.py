"""The data of a profile's pictures: the profile, its program, and what is known of errors and flash."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from cortex_m_hil.diagnose.localize import Localization
from cortex_m_hil.diagnose.profile import Profile, ProfileChanges, ProfileRow
from cortex_m_hil.errors.text import printable
from cortex_m_hil.program.dataflow import Memory as Place
from cortex_m_hil.program.lifetimes import Peak
from cortex_m_hil.program.program import Program
from cortex_m_hil.program.size import measure_pte
from cortex_m_hil.runner.elf_size import ElfSize
from cortex_m_hil.targets.memory import Memory

SILENT: Final = 60.0  # dB of SQNR from which on noise is drawn as none
_SHARED: Final = "shared by several kernels"


@dataclass(frozen=True)
class OperatorError:
    """The error of the values that one instruction writes; of several values the worst.

    Attributes:
        quanta: the largest difference from the dialect, in quanta (of floats in their own unit); None: not known.
        graph_quanta: the distance of the dialect's node from fake-quant on equal inputs, in quanta; None: not known.
        inputs_db: the least SQNR of what the instruction reads; None: not known, or it reads inputs of the program.
        sqnr_db: the least SQNR of what it writes, against the float module; None: not known.
        is_at_fault: whether its kernel computes other values from right inputs, or its arguments have a wrong layout.
    """

    quanta: float | None = None
    graph_quanta: float | None = None
    inputs_db: float | None = None
    sqnr_db: float | None = None
    is_at_fault: bool = False

    @property
    def lost_db(self) -> float:
        """Return how much lower the SQNR of what it writes is than of what it reads; 0 where that is not known."""
        return 0.0 if self.inputs_db is None or self.sqnr_db is None else self.inputs_db - self.sqnr_db


@dataclass(frozen=True)
class FlashPart:
    """Bytes of flash that serve one purpose.

    Attributes:
        group: `weights`, `program` or `kernels`.
        what: the layer, the section of the `.pte`, or the operator.
        nbytes: the number of bytes.
        instruction: the instruction that takes the weights; -1 elsewhere.
    """

    group: str
    what: str
    nbytes: int
    instruction: int = -1


@dataclass(frozen=True)
class Comparison:
    """The changes from another profile, with the name by which the user asked for that."""

    name: str
    changes: ProfileChanges


@dataclass(frozen=True)
class PictureData:
    """A profile with all that its pictures show.

    Attributes:
        profile: the profile.
        program: the program that was profiled.
        memory: the target's memory.
        localization: where the program departs from its references; None where that was not looked for.
        elf: the sizes of the runner; None where they are not known.
        compared: what the profile is compared with; None for nothing.
    """

    profile: Profile
    program: Program
    memory: Memory
    localization: Localization | None = None
    elf: ElfSize | None = None
    compared: Comparison | None = None

    @property
    def rows(self) -> Sequence[ProfileRow]:
        return self.profile.rows

    @cached_property
    def peak(self) -> Peak:
        """Return the moment when most bytes of the memory plan hold something."""
        return self.program.lifetimes.peak()

    @property
    def peak_of_banks(self) -> Iterator[tuple[str, int, int]]:
        """Yield for each bank that holds something at the peak its region, the bytes in use, and those it has."""
        held = self.program.lifetimes.bytes_in_use(self.peak.instruction)
        buffers = [held.get(number, 0) for number in range(1 + max(held, default=0))]
        taken = self.memory.buffers_of_banks(buffers)
        rooms = self.memory.bank_rooms(self.program.file.size)
        for bank, used, room in zip(self.memory.banks, taken, rooms, strict=False):
            if used:
                yield bank.region, used, room

    @cached_property
    def edges(self) -> tuple[tuple[int, int], ...]:
        """Return which instruction reads what another one wrote, each pair once.

        Input k of the program is -1 - k, output k is the number of instructions + k.
        """
        return tuple(dict.fromkeys(self._edges()))

    def _edges(self) -> Iterator[tuple[int, int]]:
        file, data = self.program.file, self.program.file.dataflow
        now: dict[Place, int] = {data.memory[value]: -1 - number for number, value in enumerate(file.inputs)}
        for one, arguments, written in zip(file.instructions, data.arguments, data.written, strict=True):
            read = (value for value in arguments if value not in data.scratch and value not in written)
            yield from ((now[data.memory[value]], one.index) for value in read if data.memory[value] in now)
            now.update((data.memory[value], one.index) for value in written)
        for number, value in enumerate(file.outputs):
            if data.memory[value] in now:
                yield now[data.memory[value]], len(file.instructions) + number

    @cached_property
    def errors(self) -> Mapping[int, OperatorError]:
        """Return the error of each instruction of which one is known."""
        if self.localization is None:
            return {}
        found: dict[int, OperatorError] = {}
        for row in self.localization.rows:
            distance = None if not row.known else 0.0 if row.departure is None else row.departure.distance
            inputs_db = row.inputs_db if row.inputs_db is not None and math.isfinite(row.inputs_db) else None
            at_fault = row.is_kernel_wrong or row.layout is not None
            before = found.get(row.instruction, OperatorError())
            found[row.instruction] = OperatorError(
                _worst(before.quanta, distance, max),
                _worst(before.graph_quanta, row.graph_quanta, max),
                _worst(before.inputs_db, inputs_db, min),
                _worst(before.sqnr_db, row.sqnr_db, min),
                before.is_at_fault or at_fault,
            )
        return found

    @cached_property
    def sqnr_before(self) -> Mapping[int, float]:
        """Return for each instruction the least SQNR of what it reads; unknown values have that of what made them."""
        found = {index: one.inputs_db for index, one in self.errors.items() if one.inputs_db is not None}
        for begin, end in sorted(self.edges, key=lambda edge: edge[1]):
            known = self.errors[begin].sqnr_db if begin in self.errors else None
            ratio = known if known is not None else found.get(begin)
            if ratio is not None and self.errors.get(end, OperatorError()).inputs_db is None:
                found[end] = min(ratio, found.get(end, ratio))
        return found

    # --- flash -------------------------------------------------------------------------------------------

    @cached_property
    def flash(self) -> tuple[FlashPart, ...]:
        """Return what a firmware with this program and only its kernels has in flash: weights, program, kernels."""
        return (*self._program_parts(), *self._kernel_parts())

    @property
    def flash_groups(self) -> Mapping[str, int]:
        """Return the bytes of flash by group."""
        found: Counter[str] = Counter()
        for part in self.flash:
            found[part.group] += part.nbytes
        return found

    @cached_property
    def weights(self) -> Mapping[int, int]:
        """Return the bytes of the constants that each instruction takes; shared ones are the first one's."""
        return {part.instruction: part.nbytes for part in self.flash if part.group == "weights"}

    def _program_parts(self) -> Iterator[FlashPart]:
        weights: Counter[int] = Counter()
        rest: Counter[str] = Counter()
        for part in measure_pte(self.program.file).parts:
            if part.instruction >= 0 and part.method == self.program.file.method:
                weights[part.instruction] += part.nbytes
            else:
                rest[part.section.value] += part.nbytes
        for index, nbytes in sorted(weights.items()):
            yield FlashPart("weights", f"{self.rows[index].place}, {short(self.rows[index])}", nbytes, index)
        yield from (FlashPart("program", what, nbytes) for what, nbytes in rest.most_common())

    def _kernel_parts(self) -> Iterator[FlashPart]:
        """Yield the bytes of the runner that the program's operators refer to, by operator."""
        found: Counter[str] = Counter()
        used = {row.operator for row in self.rows}
        stored = {section.name for section in (self.elf.sections if self.elf else ()) if section.stored}
        for part in self.elf.parts if self.elf else ():
            if part.section in stored and (own := used.intersection(part.operators)):
                found[own.pop() if len(own) == 1 else _SHARED] += part.nbytes
        yield from (FlashPart("kernels", what, nbytes) for what, nbytes in found.most_common())


def _worst(one: float | None, other: float | None, choose: Callable[[float, float], float]) -> float | None:
    return choose(one, other) if one is not None and other is not None else one if other is None else other


GROUPS: Final = {"weights": "weights", "program": ".pte without weights", "kernels": "kernels"}
"""The names of the groups of flash on the page."""


def share_text(share: float) -> str:
    """Return a share as `13.9 %`; one that would read as none is `< 0.1 %`."""
    return "< 0.1 %" if 0 < share < 0.0005 else f"{100 * share:.1f} %"


def short(row: ProfileRow) -> str:
    """Return the name of a row's operator without namespace and the overload `out`."""
    return row.operator.rpartition("::")[2].removesuffix(".out")


def tensor_text(program: Program, value: int) -> str:
    """Return a text for a value such as `scratch uint8[512]`, with its dtype and shape."""
    file = program.file
    kind = "state " if value in file.states else "scratch " if value in file.dataflow.scratch else ""
    return printable(kind + str(file.values[value].spec).partition(" dim order")[0])
