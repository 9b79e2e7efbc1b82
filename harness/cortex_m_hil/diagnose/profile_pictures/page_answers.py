"""The questions that everybody has first of a profile, and their answers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from cortex_m_hil.diagnose.profile import ProfileRow
from cortex_m_hil.diagnose.profile_pictures.differences import Differences
from cortex_m_hil.diagnose.profile_pictures.graph_table import Graph
from cortex_m_hil.diagnose.profile_pictures.picture_data import (
    GROUPS,
    PictureData,
    share_text,
    short,
    tensor_text,
)
from cortex_m_hil.errors.text import counted, in_decibels, number_text, printable
from cortex_m_hil.program.plan_picture import tensors
from cortex_m_hil.runner.elf_size import ElfSize
from cortex_m_hil.targets.target import Clock

LISTED: Final = 3  # operators or tensors of an answer
_OPERATORS: Final = "ExecuTorch's Python operators"
Detail = tuple[str, int | None]
"""More of an answer, and the line of the graph that it leads to; None where it leads to none."""


@dataclass(frozen=True)
class Answer:
    """A question and its answer; `source` says what the figures are, and what they exclude."""

    question: str
    headline: str
    details: tuple[Detail, ...]
    source: str


def answers(graph: Graph) -> tuple[Answer, ...]:
    """Return the answers: what moved, the costliest layer, the peak of memory, the error's begin, what is in flash."""
    moved = [] if graph.one.compared is None else [_moved(Differences(graph, graph.one.compared))]
    return *moved, _costliest(graph), _peak(graph), _error(graph), _flash(graph.one)


def _moved(found: Differences) -> Answer:
    figure = found.graph.one.profile.figures["ticks"]
    rows = found.rows
    details: list[Detail] = [
        (f"{', '.join(filter(None, (row.change, row.in_percent)))} in {row.place}: {row.operator}", row.line)
        for row in rows[:LISTED]
    ]
    more = [(f"{counted(len(rows) - LISTED, 'more operator')} below", None)] if len(rows) > LISTED else []
    planned = [(f"bytes of the memory plan: {found.planned}", None)] if found.planned else []
    question = f"What differs from {printable(found.compared.name)}?"
    headline = f"{found.whole} {figure.unit}" if rows or found.compared.changes.ticks else "nothing"
    return Answer(question, headline, (*details, *more, *planned), f"{figure.source.value} in both")


def _costliest(graph: Graph) -> Answer:
    one = graph.one
    layers: dict[str, list[ProfileRow]] = {}
    for row in one.rows:
        layers.setdefault(row.place, []).append(row)
    ticks = Counter({place: sum(row.ticks for row in rows) for place, rows in layers.items()})
    figure = one.profile.figures["ticks"]
    details: list[Detail] = []
    for place, each in ticks.most_common(LISTED):
        most = max(layers[place], key=lambda row: row.ticks)
        text = f"{_cost(one, each)} in {printable(place)}: {short(most)}"
        details.append((text, graph.line_of[most.index]))
    if (at := graph.heaviest_module) is not None:
        line = graph.lines[at]
        details.append((f"module with most: {_cost(one, line.ticks)} in {printable(line.node.path)}", at))
    [(place, each), *_] = ticks.most_common(1) or [("no layer", 0)]
    is_time = one.profile.clock is not Clock.INSTRUCTIONS
    source = figure.source.value + ("" if is_time else "; not time: one may take several cycles")
    headline = f"{printable(place)}: {number_text(each)}"
    return Answer(f"Which layer takes the most {figure.unit}?", headline, tuple(details), source)


def _cost(one: PictureData, ticks: int) -> str:
    return f"{share_text(ticks / max(1, one.profile.ticks))}, {number_text(ticks)}"


def _peak(graph: Graph) -> Answer:
    one, peak = graph.one, graph.one.peak
    begin = graph.line_of[peak.instruction] if peak.instruction >= 0 else None
    first = "the inputs" if begin is None else _named(one, peak.instruction)
    is_long = peak.last > peak.instruction
    when = f"from {first} to {_named(one, peak.last)}" if is_long else f"at {first}"
    details: list[Detail] = [(when, begin)]
    shown = [each for each in tensors(one.program) if each.first <= peak.instruction <= each.last]
    made_by = {each.extent: each.first for each in shown}
    for value, nbytes in peak.held[:LISTED]:
        extent = one.program.lifetimes.extent(value)
        writer = -1 if extent is None else made_by.get(extent, -1)
        origin = f"of {printable(one.rows[writer].place)}" if writer >= 0 else "of the inputs"
        text = f"{number_text(nbytes)}: {tensor_text(one.program, value)} {origin}"
        details.append((text, graph.line_of[writer] if writer >= 0 else None))
    if left := peak.held[LISTED:]:
        details.append((f"{number_text(sum(nbytes for _, nbytes in left))}: {len(left)} more", None))
    banks = list(one.peak_of_banks)
    used = [f"{number_text(used)} of {number_text(room)} bytes in {printable(name)}" for name, used, room in banks]
    names = " and ".join(printable(name) for name, _, _ in banks)
    source = f"{names}: the board's memory that tensors are planned in; without constants and stack" if banks else ""
    return Answer("What sits at the peak of the memory plan?", ", ".join(used) or "0 bytes", tuple(details), source)


def _error(graph: Graph) -> Answer:
    question, found = "Where does the error begin?", graph.one.localization
    if found is None:
        details = (("a network or a module has references, a .pte has none", None),)
        return Answer(question, "not known: there are no references", details, "")
    source = "measured on the target; SQNR may rise where an operator averages or drops values"
    if (first := found.first) is not None and first.departure is not None:
        departure = first.departure
        headline = f"{_named(graph.one, first.instruction)}: {departure.distance:g} quanta"
        elements = f"{departure.elements} of {departure.numel} elements differ from {_OPERATORS}"
        line = graph.line_of[first.instruction]
        conclusion = f"{printable(found.conclusions[0])} ({graph.one.rows[first.instruction].kernel})"
        more = _more_at_fault(graph, first.instruction)
        return Answer(question, headline, ((elements, line), (conclusion, None), *more), source)
    unknown = sum(not row.known for row in found.rows)
    left = ((f"{counted(unknown, 'value')} not compared", None),) if unknown else ()
    equal = f"not in a kernel: all equal {_OPERATORS}" if unknown < len(found.rows) else "not known"
    return Answer(question, equal, (*_noise(graph), *left), source)


def _more_at_fault(graph: Graph, first: int) -> Iterator[Detail]:
    """Yield how many operators are at fault besides the one where the error begins, and the next of them."""
    more = [index for index, each in sorted(graph.one.errors.items()) if each.is_at_fault and index != first]
    if more:
        named = _named(graph.one, more[0])
        yield f"{counted(len(more), 'more operator')} at fault, the next: {named}", graph.line_of[more[0]]


def _noise(graph: Graph) -> Iterator[Detail]:
    """Yield the SQNR at the begin, where most is lost, where it is least, and at the end."""
    one = graph.one
    known = [(index, each.sqnr_db) for index, each in sorted(one.errors.items()) if each.sqnr_db is not None]
    if not known:
        yield "the SQNR against the float module is not known of any value", None
        return
    least, at = min((ratio, index) for index, ratio in known)
    loss, loser = max((one.errors[index].lost_db, index) for index, _ in known)
    (first, begin), (last, end) = known[0], known[-1]
    yield f"against float from {_named(one, first)} on: SQNR {in_decibels(begin)}", graph.line_of[first]
    if loss > 0:
        yield f"largest drop, {in_decibels(loss)}: {_named(one, loser)}", graph.line_of[loser]
    yield f"least SQNR {in_decibels(least)}: {_named(one, at)}", graph.line_of[at]
    yield f"last SQNR {in_decibels(end)}: {_named(one, last)}", graph.line_of[last]


def _flash(one: PictureData) -> Answer:
    groups = one.flash_groups
    whole = sum(groups.values())
    details: list[Detail] = [
        (f"{share_text(nbytes / max(1, whole))}, {number_text(nbytes)}: {GROUPS[group]}", None)
        for group, nbytes in groups.items()
    ]
    headline = f"{number_text(whole)} bytes"
    if "kernels" not in groups:
        headline += " without kernels"
        known = "" if one.elf is None else f" one by one; the whole runner has {_stored(one.elf)}"
        details.append((f"kernels: not known{known}", None))
    source = "bytes, computed from .pte and runner; without the runner's own code"
    return Answer("What does the model take of flash?", headline, tuple(details), source)


def _named(one: PictureData, index: int) -> str:
    row = one.rows[index]
    return printable(f"{row.module} {short(row)}".strip())


def _stored(elf: ElfSize) -> str:
    return number_text(sum(section.stored for section in elf.sections))
