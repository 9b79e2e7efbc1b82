"""The lines of a profile's graph: modules and operators with their figures, and all facts of each."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

from cortex_m_hil.diagnose.localize import ROUNDING
from cortex_m_hil.diagnose.profile import ProfileRow
from cortex_m_hil.diagnose.profile_pictures.module_tree import Node, opened_to, tree
from cortex_m_hil.diagnose.profile_pictures.picture_data import SILENT, OperatorError, PictureData, share_text, short
from cortex_m_hil.errors.text import counted, in_decibels, number_text, printable
from cortex_m_hil.program.tensor import TensorSpec

RISE: Final = 0.5  # dB of SQNR by which the values behind an operator are better, from which on that is explained
SHOWN: Final = 48  # lines that are open at first, where the modules allow it
Fact = tuple[str, str, str]
"""The facts about a line: label, text with unit, and source."""


def shade_of_quanta(quanta: float) -> float:
    """Return 0 for no distance, and more for each doubling of one quantum: 1 for 255 quanta and more."""
    return min(1.0, math.log2(min(quanta, 255) + 1) / 8)


@dataclass(frozen=True)
class Line:
    """A line of the graph: a module, an operator, or an input or output of the program.

    Attributes:
        node: its place in the tree.
        rows: the operators in it.
        errors: what is known of their errors.
        spec: of an input or output, dtype and shape.
        closed: whether it is in a module that is closed at first.
        opened: whether it is a module that is open at first.
    """

    node: Node
    rows: tuple[ProfileRow, ...]
    errors: tuple[OperatorError, ...]
    spec: TensorSpec | None
    closed: bool
    opened: bool

    @property
    def name(self) -> str:
        return printable(self.node.name)

    @property
    def operator(self) -> str:
        if self.node.is_module:
            return counted(len(self.rows), "operator")
        return printable("".join(map(short, self.rows)) or str(self.spec or "").partition(" dim order")[0])

    @property
    def ticks(self) -> int:
        return sum(row.ticks for row in self.rows)

    @property
    def share(self) -> float:
        return sum(row.share for row in self.rows)

    @property
    def planned(self) -> int | None:
        """Return the most planned bytes that are in use at one of its operators; None without operators."""
        return max((row.planned_bytes for row in self.rows), default=None)

    @property
    def quanta(self) -> float | None:
        """Return the largest distance of its values from the dialect; None where it is not known."""
        return max((one.quanta for one in self.errors if one.quanta is not None), default=None)

    @property
    def sqnr_db(self) -> float | None:
        """Return the least SQNR of its values; None where it is not known."""
        return min((one.sqnr_db for one in self.errors if one.sqnr_db is not None), default=None)

    @property
    def is_at_fault(self) -> bool:
        return any(one.is_at_fault for one in self.errors)

    @property
    def shades(self) -> tuple[float, float]:
        """Return how dark it is by quanta and by noise, 0 to 1."""
        noise = 0.0 if self.sqnr_db is None else 1 - self.sqnr_db / SILENT
        return round(shade_of_quanta(self.quanta or 0), 3), round(min(1.0, max(0.0, noise)), 3)


@dataclass(frozen=True)
class Graph:
    """The lines of the graph of a profile."""

    one: PictureData

    @cached_property
    def lines(self) -> tuple[Line, ...]:
        """Return the lines, each module before what is in it."""
        file = self.one.program.file
        nodes = tree([row.module for row in self.one.rows], len(file.inputs), len(file.outputs))
        depth = opened_to(nodes, SHOWN)
        return tuple(self._line(node, depth) for node in nodes)

    def _line(self, node: Node, depth: int) -> Line:
        file, count = self.one.program.file, len(self.one.rows)
        rows = tuple(self.one.rows[index] for index in node.instructions if 0 <= index < count)
        errors = tuple(self.one.errors[row.index] for row in rows if row.index in self.one.errors)
        [index, *_] = node.instructions
        ends = {**{-1 - k: value for k, value in enumerate(file.inputs)},
                **{count + k: value for k, value in enumerate(file.outputs)}}  # fmt: skip
        spec = file.values[ends[index]].spec if index in ends else None
        return Line(node, rows, errors, spec, closed=node.depth > depth, opened=node.is_module and node.depth < depth)

    @cached_property
    def line_of(self) -> Mapping[int, int]:
        """Return the line of each instruction, input and output."""
        return {line.node.instructions[0]: at for at, line in enumerate(self.lines) if not line.node.is_module}

    @cached_property
    def heaviest_module(self) -> int | None:
        """Return the line of the module with most ticks, of those with no module in them; None without modules."""
        around = {line.node.parent for line in self.lines if line.node.is_module}
        modules = [at for at, line in enumerate(self.lines) if line.node.is_module and at not in around]
        return max(modules, key=lambda at: self.lines[at].ticks, default=None)

    @cached_property
    def most_ticks(self) -> int:
        """Return the ticks of the operator with most of them."""
        return max((row.ticks for row in self.one.rows), default=0)

    @cached_property
    def widest(self) -> float:
        """Return the largest share of a line."""
        return max((line.share for line in self.lines), default=0.0)

    def fields(self) -> list[dict[str, Any]]:
        """Return for each line what the page's script needs of it, as values for JSON."""
        return [
            {
                "parent": line.node.parent,
                "module": line.node.is_module,
                "at": line.node.instructions,
                "ticks": line.ticks,
                "planned": line.planned or 0,
                "shades": line.shades,
                "fault": line.is_at_fault,
                "facts": [fact for fact in self._facts(line) if fact[1]],
            }
            for line in self.lines
        ]

    # --- facts -------------------------------------------------------------------------------------------

    def _facts(self, line: Line) -> Iterator[Fact]:
        yield "name", printable(line.node.path or line.operator if line.rows else line.name), ""
        if line.spec is not None:
            yield "value", str(line.spec), ""
            yield "size", f"{number_text(line.spec.nbytes)} bytes", "computed"
        if not line.rows:
            return
        if not line.node.is_module:
            yield from self._of_operator(line.rows[0])
        yield from self._cost(line.rows)
        yield from self._events(line.rows)
        yield from self._memory(line.rows)
        yield from self._errors(line)

    def _of_operator(self, row: ProfileRow) -> Iterator[Fact]:
        yield "operator", f"{row.index}: {row.operator}", ""
        yield "line", row.source, ""
        yield "graph node", row.node, ""
        yield "kernel", f"{row.kernel} ({row.kind.value})", ""
        yield "calls", "" if row.calls == 1 else number_text(row.calls), "counted"

    def _source(self, figure: str) -> str:
        return self.one.profile.figures[figure].source.value

    def _cost(self, rows: Sequence[ProfileRow]) -> Iterator[Fact]:
        profile, ticks = self.one.profile, sum(row.ticks for row in rows)
        unit = profile.figures["ticks"].unit
        share = share_text(sum(row.share for row in rows))
        yield unit, f"{number_text(ticks)}, {share} of the run", self._source("ticks")
        if len(rows) == 1 and rows[0].low != rows[0].high:
            spread = f"{number_text(rows[0].low)} to {number_text(rows[0].high)}, {counted(profile.runs, 'run')}"
            yield "least and most", spread, self._source("ticks")
        known = [row.macs for row in rows if row.macs is not None]
        macs = sum(known) if len(known) == len(rows) else None
        yield "multiply-accumulates", number_text(macs) if macs is not None else "not known", self._source("macs")
        if macs:
            yield f"{unit} per MAC", f"{ticks / macs:.3g}", self._source("ticks_per_mac")

    def _events(self, rows: Sequence[ProfileRow]) -> Iterator[Fact]:
        for name in self.one.profile.event_names:
            counts = [row.events.get(name, 0) for row in rows]
            known = [count for count in counts if count is not None]
            told = number_text(sum(known)) if len(known) == len(counts) else "more than 32 bits hold"
            yield self.one.profile.figures[name].unit, told, self._source(name)

    def _memory(self, rows: Sequence[ProfileRow]) -> Iterator[Fact]:
        yield "read", f"{number_text(sum(row.bytes_read for row in rows))} bytes", self._source("bytes_read")
        yield "written", f"{number_text(sum(row.bytes_written for row in rows))} bytes", self._source("bytes_written")
        weights = sum(self.one.weights.get(row.index, 0) for row in rows)
        yield "weights", f"{number_text(weights)} bytes" if weights else "", "computed"
        fullest = max(rows, key=lambda row: row.planned_bytes)
        for bank, nbytes in fullest.alive.items():
            most = "most bytes in use" if len(rows) > 1 else "bytes in use"
            yield most, f"{number_text(nbytes)} in {bank}, memory of the board", self._source("alive")

    def _errors(self, line: Line) -> Iterator[Fact]:
        source = "measured"
        if line.quanta is not None:
            fault = ", AT FAULT" if line.is_at_fault else ""
            yield "from Python operators", f"{_quanta(line.quanta)}{fault}", source
        if not line.node.is_module and line.rows:
            yield from self._where_errors_shrink(line.rows[0], line.quanta)
        if len(line.errors) == 1 and (one := line.errors[0]).graph_quanta is not None:
            normal = f" (up to {ROUNDING}: rounding)" if 0 < one.graph_quanta <= ROUNDING else ""
            yield "Python operators from fake-quant", f"{_quanta(one.graph_quanta)} on equal inputs{normal}", "computed"
        if line.sqnr_db is not None:
            before = self.one.sqnr_before.get(line.rows[0].index) if not line.node.is_module else None
            told = f"; before it {in_decibels(before)}" if before is not None else ""
            rises = before is not None and line.sqnr_db - before >= RISE
            why = f": higher behind it, {_why_smaller(line.rows[0])}" if rises else ""
            yield "SQNR against float", f"{in_decibels(line.sqnr_db)}{told}{why}", source

    def _where_errors_shrink(self, row: ProfileRow, quanta: float | None) -> Iterator[Fact]:
        """Yield why an operator's values are nearer to those of Python's operators than what it reads."""
        read = (self.one.errors.get(begin) for begin, end in self.one.edges if end == row.index)
        before = max((one.quanta for one in read if one is not None and one.quanta is not None), default=0.0)
        if quanta is not None and quanta < before:
            yield "before it", f"{_quanta(before)}: fewer behind it, {_why_smaller(row)}", "measured"


def _quanta(distance: float) -> str:
    return f"{distance:g} {'quantum' if distance == 1 else 'quanta'}"


def _why_smaller(row: ProfileRow) -> str:
    """Return why an error may be smaller behind an operator than before it."""
    name = short(row)
    if "max_pool" in name:
        return "as it keeps one value of each window and drops the others with their errors"
    if any(sums in name for sums in ("avg_pool", "mean", "sum", "conv", "linear", "bmm", "mm")):
        return "as errors of the values that it sums partly cancel"
    return "as it rounds, drops or outweighs some of the error"
