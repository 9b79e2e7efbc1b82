"""A profile: the cost of one program on one target, as a whole and by instruction, as values that JSON keeps."""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from difflib import SequenceMatcher
from enum import Enum
from itertools import zip_longest
from typing import Any, Final, Literal

from pydantic import TypeAdapter, ValidationError

from cortex_m_hil.diagnose.event_counters import EVENTS, Counts
from cortex_m_hil.errors import ConfigError
from cortex_m_hil.errors.text import printable
from cortex_m_hil.program.partition import PartitionKind
from cortex_m_hil.runner.run_results import Ran
from cortex_m_hil.targets.target import Clock

VERSION: Final = 1  # version of a profile in JSON: raised when an older reader would not understand it
_PACKED_LIMIT: Final = 1 << 28  # bytes that a packed profile may unpack to


class FigureSource(str, Enum):
    """Where a figure is from: an exact count, a measurement that varies, the memory plan, or a formula."""

    COUNTED = "counted"
    COUNTED_BY_PMU = "counted by the core's PMU"
    MEASURED = "measured"
    PLANNED = "planned"
    COMPUTED = "computed"


@dataclass(frozen=True)
class Figure:
    """The meaning of a figure of a row or profile: its unit, its source, and what it excludes ("": nothing)."""

    unit: str
    source: FigureSource
    excludes: str = ""

    def __str__(self) -> str:
        """Return a text such as `bytes, planned; without constants`."""
        return f"{self.unit}, {self.source.value}" + (f"; without {self.excludes}" if self.excludes else "")


@dataclass(frozen=True)
class ProfileRow:
    """The cost of one instruction of a program: of all its executions in one run, if it is in a loop.

    Attributes:
        index: the number of the instruction in the program.
        operator: its operator, such as `cortex_m::quantized_linear.out`, or `move`, `jump_false`, `free`.
        kind: what kind of kernel runs it, or that it only moves data.
        node: the name of its graph node; "" where the program does not know it.
        module: the path of the module in the user's code; "" where the program does not know it.
        source: the user's `file:line`; "" where the program does not know it.
        kernel: whose kernel ran: `executorch portable`; for a Cortex-M operator also the ISA class that it was compiled
            for: `executorch Cortex-M, MVE`.
        calls: how often the instruction was executed in one run; 0 where a jump passed over it.
        ticks: ticks of the profile's clock; the median of `Profile.runs` runs.
        low, high: the least and the most ticks of these runs; both equal `ticks` where they are counted exactly.
        share: the part of `Profile.ticks`, 0 to 1.
        macs: multiply-accumulates of one run; None where they are not known.
        bytes_read: bytes of the tensors that it reads, each once for a call, constants included.
        bytes_written: bytes of the tensors that it writes, each once for a call.
        alive: bytes of the memory plan that hold something while it runs, by the names of the banks' regions.
        ticks_of_zeros: its ticks in a run with zeros for inputs; None where there was none.
        events: the counts of events of the PMU by their names, where they were asked for; None: more than 32 bits hold.
    """

    index: int
    operator: str
    kind: PartitionKind
    node: str
    module: str
    source: str
    kernel: str
    calls: int
    ticks: int
    low: int
    high: int
    share: float
    macs: int | None
    bytes_read: int
    bytes_written: int
    alive: Mapping[str, int]
    ticks_of_zeros: int | None = None
    events: Counts = field(default_factory=dict)

    @property
    def ticks_per_mac(self) -> float | None:
        """Return the ticks of one multiply-accumulate; None where there are none, or they are not known."""
        return self.ticks / self.macs if self.macs else None

    @property
    def depends_on_inputs(self) -> bool | None:
        """Tell whether the instruction took other ticks in a run with zeros for inputs; None where there was none."""
        return None if self.ticks_of_zeros is None else self.ticks_of_zeros != self.ticks

    @property
    def planned_bytes(self) -> int:
        """Return the bytes of the memory plan that hold something while the instruction runs, in all banks."""
        return sum(self.alive.values())

    @property
    def place(self) -> str:
        """Return the module's path, else the graph node, else `operator 3`."""
        return self.module or self.node or f"operator {self.index}"


@dataclass(frozen=True)
class Profile:
    """The cost of one program on one target.

    `ticks` is the sum of all rows' ticks and `outside`.

    Attributes:
        program: the program's name.
        method: the method that ran.
        isa: the ISA class that the kernels were compiled for.
        ran: the target, engine and runtime that executed the program, and the clock of all ticks.
        executes: whose code ran, as text.
        inputs: where the inputs are from, as text.
        inputs_digest: a digest of the inputs' bytes: profiles with the same one ran on the same inputs.
        ticks: ticks of a whole run; the median of `runs` runs.
        low, high: the least and the most ticks of these runs.
        runs: the number of whole runs, and of runs by single steps.
        outside: the ticks of a whole run that no row has. Counted instructions leave none: each row has the runtime's
            work for its call. Measured cycles may leave any number, also below 0, as caches differ in single steps.
        ticks_of_zeros: the ticks of a run with zeros for inputs; None where it was not tried, or failed. It is tried
            where ticks are counted exactly.
        banks: bytes of the memory plan in each bank, by the name of its region.
        rows: a row for each instruction, in the program's order.
        events: who counted the events in the rows, and in how many runs; "" where none were asked for.
    """

    program: str
    method: str
    isa: str
    ran: Ran
    executes: str
    inputs: str
    inputs_digest: str
    ticks: int
    low: int
    high: int
    runs: int
    outside: int
    ticks_of_zeros: int | None
    banks: Mapping[str, int]
    rows: tuple[ProfileRow, ...]
    events: str = ""
    profile_version: Literal[1] = VERSION

    @property
    def clock(self) -> Clock:
        """Return the clock that all ticks follow: counted instructions of a simulator, or a board's cycles."""
        return self.ran.clock

    @property
    def depends_on_inputs(self) -> bool | None:
        """Tell whether any instruction took other ticks in a run with zeros for inputs; None where there was none."""
        return None if self.ticks_of_zeros is None else any(row.depends_on_inputs for row in self.rows)

    @property
    def macs(self) -> int | None:
        """Return the multiply-accumulates of all rows; None where those of a row are not known."""
        known = [row.macs for row in self.rows if row.macs is not None]
        return sum(known) if len(known) == len(self.rows) else None

    @property
    def peak(self) -> ProfileRow | None:
        """Return the first row at which most of the memory plan is in use; None where there are no rows."""
        return max(self.rows, key=lambda row: row.planned_bytes, default=None)

    @property
    def figures(self) -> Mapping[str, Figure]:
        """Return the unit, source and exclusions of each figure, by the name of its field."""
        counted = self.clock is Clock.INSTRUCTIONS
        source = FigureSource.COUNTED if counted else FigureSource.MEASURED
        unit = "CPU instructions" if counted else "cycles of the core"
        beside = "loading, setting inputs, reading outputs and measuring"
        ticks = Figure(unit, source, f"{beside}, cycles, wait states and caches" if counted else beside)
        tensors = "scratch, and what a kernel reads or writes again"
        return {
            "ticks": ticks,
            "outside": Figure(unit, FigureSource.COMPUTED, "the runtime's work for a call, which is in the call's row"),
            "share": Figure("part of the whole run", FigureSource.COMPUTED),
            "macs": Figure("multiply-accumulates", FigureSource.COMPUTED, "biases and requantising"),
            "ticks_per_mac": Figure(f"{unit} per multiply-accumulate", FigureSource.COMPUTED),
            "bytes_read": Figure("bytes of tensors", FigureSource.COMPUTED, tensors),
            "bytes_written": Figure("bytes of tensors", FigureSource.COMPUTED, tensors),
            "alive": Figure("bytes", FigureSource.PLANNED, "constants, stack and the runtime's own memory"),
            **{name: self._figure_of_event(name, beside) for name in self.event_names},
        }

    @property
    def event_names(self) -> tuple[str, ...]:
        """Return the names of the PMU's events that the rows have counts of."""
        return tuple(dict.fromkeys(name for row in self.rows for name in row.events))

    def _figure_of_event(self, name: str, excludes: str) -> Figure:
        return Figure(EVENTS[name].unit if name in EVENTS else name, FigureSource.COUNTED_BY_PMU, excludes)

    def against(self, other: Profile) -> ProfileChanges:
        """Return what changed from another profile to this one, what moved most first.

        Raises:
            ConfigError: their clocks or ISA classes differ, so that their ticks are not comparable.
        """
        return _compare(other, self)

    def as_json(self) -> dict[str, Any]:
        """Return the profile as values for JSON, with the text of `figures`."""
        found: dict[str, Any] = _ADAPTER.dump_python(self, mode="json")
        for row, one in zip(found["rows"], self.rows, strict=True):
            row |= {"ticks_per_mac": one.ticks_per_mac, "depends_on_inputs": one.depends_on_inputs}
        texts = {name: str(figure) for name, figure in self.figures.items()}
        return {**found, "depends_on_inputs": self.depends_on_inputs, "figures": texts}

    @classmethod
    def from_json(cls, data: str | bytes, where: str) -> Profile:
        """Return the profile in a JSON object, as `as_json` made it; other keys are passed over.

        Args:
            data: the text of the object.
            where: the file, for messages.

        Raises:
            ConfigError: this is no profile, or one of another version.
        """
        try:
            return _ADAPTER.validate_python(_printable(json.loads(data)))
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False)[0]
            what = f"{'.'.join(map(str, first['loc'])) or 'the text'}: {first['msg']}"
        except (ValueError, RecursionError) as error:
            what = f"{type(error).__name__}: {error}"
        raise ConfigError(f"{where} is no profile that this version reads: {what}", hint="a line of hil profile --json")


_ADAPTER: Final = TypeAdapter(Profile)


def _printable(value: Any) -> Any:
    """Return a value of JSON with all its texts made printable: a terminal obeys those of a stranger's file."""
    if isinstance(value, str):
        return printable(value)
    if isinstance(value, list):
        return [_printable(one) for one in value]
    return {printable(name): _printable(one) for name, one in value.items()} if isinstance(value, dict) else value


def pack(profile: Profile) -> str:
    """Return a profile as a short text of ASCII, without the names of the user's files."""
    shared = replace(profile, rows=tuple(replace(row, source="") for row in profile.rows))
    return base64.b64encode(zlib.compress(_ADAPTER.dump_json(shared))).decode()


def unpack(text: str, where: str) -> Profile:
    """Return the profile in a text that `pack` made; raise ConfigError where it has none, with `where` in its text."""
    try:
        unpacking = zlib.decompressobj()
        data = unpacking.decompress(base64.b64decode(text, validate=True), _PACKED_LIMIT)
        if not unpacking.eof:
            raise ValueError("its end is missing, or it is too large")
    except (ValueError, zlib.error) as error:
        raise ConfigError(
            f"{where} has no profile that can be unpacked: {error}", hint="hil nightly makes one"
        ) from error
    return Profile.from_json(data, where)


# --- what changed from one profile to another: instructions are matched by the user's module and operator
# -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class RowChange:
    """An instruction of two profiles; None in the profile that has no such instruction."""

    before: ProfileRow | None
    after: ProfileRow | None

    @property
    def row(self) -> ProfileRow:
        """Return the instruction as it is now; as it was where it has gone."""
        found = self.after or self.before
        assert found is not None
        return found

    @property
    def ticks(self) -> int:
        """Return by how much the ticks have grown; below 0 where there are fewer."""
        return (self.after.ticks if self.after else 0) - (self.before.ticks if self.before else 0)

    @property
    def ratio(self) -> float | None:
        """Return the growth of the ticks as a part of what they were; None where they were none."""
        return self.ticks / self.before.ticks if self.before and self.before.ticks else None

    @property
    def planned(self) -> Mapping[str, int]:
        """Return by how many bytes each bank holds more while the instruction runs; banks without change are left out.

        Only where the instruction is in both profiles.
        """
        return _grown(self.before.alive, self.after.alive) if self.before and self.after else {}

    @property
    def is_within_spread(self) -> bool:
        """Tell whether runs of both profiles gave the same ticks, so that the change may be none."""
        one, other = self.before, self.after
        return one is not None and other is not None and one.low <= other.high and other.low <= one.high


@dataclass(frozen=True)
class ProfileChanges:
    """The changes from one profile to another: `rows` has all instructions of both, what moved most first."""

    before: Profile
    after: Profile
    rows: tuple[RowChange, ...]

    @property
    def ticks(self) -> int:
        """Return by how much the ticks of the whole run have grown. It is the sum of all rows' and of `outside`."""
        return self.after.ticks - self.before.ticks

    @property
    def outside(self) -> int:
        return self.after.outside - self.before.outside

    @property
    def ratio(self) -> float | None:
        return self.ticks / self.before.ticks if self.before.ticks else None

    @property
    def banks(self) -> Mapping[str, int]:
        """Return by how many bytes the memory plan has grown in each bank; banks without change are left out."""
        return _grown(self.before.banks, self.after.banks)

    @property
    def moved(self) -> tuple[RowChange, ...]:
        """Return the instructions whose ticks or planned bytes differ."""
        return tuple(one for one in self.rows if one.ticks or one.planned)

    @property
    def same_inputs(self) -> bool:
        return self.before.inputs_digest == self.after.inputs_digest


def _compare(before: Profile, after: Profile) -> ProfileChanges:
    """Compare two profiles.

    Raises:
        ConfigError: their clocks or instruction sets differ, so their ticks are not comparable.
    """
    for what, one, other in (
        ("clock", before.clock.value, after.clock.value),
        ("ISA class", before.isa, after.isa),
    ):
        if one != other:
            where = f"{before.ran.display_name} has {one}, {after.ran.display_name} {other}"
            raise ConfigError(
                f"two profiles of another {what} are not comparable: {where}", hint="profile both on one target"
            )
    rows = sorted(_matched(before.rows, after.rows), key=_order)
    return ProfileChanges(before, after, tuple(rows))


def _grown(before: Mapping[str, int], after: Mapping[str, int]) -> dict[str, int]:
    """Return for each name by how much its number has grown, without those that have not changed."""
    found = {name: after.get(name, 0) - before.get(name, 0) for name in {**before, **after}}
    return {name: growth for name, growth in found.items() if growth}


def _order(one: RowChange) -> tuple[int, int, int]:
    return -abs(one.ticks), -sum(map(abs, one.planned.values())), one.row.index


def _matched(before: Sequence[ProfileRow], after: Sequence[ProfileRow]) -> Iterator[RowChange]:
    """Yield pairs of instructions of the same module: first equal operators in order, then what replaced another."""
    old, new = _by_module(before), _by_module(after)
    for module in dict.fromkeys((*new, *old)):
        mine, theirs = old.get(module, []), new.get(module, [])
        ours, others = ([row.operator for row in rows] for rows in (mine, theirs))
        for _, i, i_end, j, j_end in SequenceMatcher(None, ours, others, autojunk=False).get_opcodes():
            yield from (RowChange(*pair) for pair in zip_longest(mine[i:i_end], theirs[j:j_end]))


def _by_module(rows: Sequence[ProfileRow]) -> dict[str, list[ProfileRow]]:
    found: dict[str, list[ProfileRow]] = {}
    for row in rows:
        found.setdefault(row.module, []).append(row)
    return found
