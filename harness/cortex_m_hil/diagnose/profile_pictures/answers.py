"""The questions that everybody has first of a profile, and their answers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from cortex_m_hil.diagnose.profile import ProfileRow
from cortex_m_hil.diagnose.profile_pictures.pictured import Pictured, short, tensor_text
from cortex_m_hil.errors.text import in_decibels, percent, printable
from cortex_m_hil.host.html_pages import number_text
from cortex_m_hil.program.plan_picture import tensors
from cortex_m_hil.runner.elf_size import ElfSize

LISTED: Final = 3  # layers or tensors of an answer
Detail = tuple[str, int | None]
"""More of an answer, and the instruction that it leads to; None where it leads to none."""


@dataclass(frozen=True)
class Answer:
    """A question and its answer; `source` says what the figures are, and what they exclude."""

    question: str
    headline: str
    details: tuple[Detail, ...]
    source: str


def answers(one: Pictured) -> tuple[Answer, ...]:
    """Return the answers: the slowest layer, the peak of memory, where the error begins, what is in flash."""
    return _slowest(one), _peak(one), _error(one), _flash(one)


def _slowest(one: Pictured) -> Answer:
    layers: dict[str, list[ProfileRow]] = {}
    for row in one.rows:
        layers.setdefault(row.place, []).append(row)
    whole = max(1, one.profile.ticks)
    ticks = Counter({place: sum(row.ticks for row in rows) for place, rows in layers.items()})
    figure = one.profile.figures["ticks"]
    details: list[Detail] = []
    for place, each in ticks.most_common(LISTED):
        slowest = max(layers[place], key=lambda row: row.ticks)
        details.append((f"{percent(each / whole)} in {printable(place)}: {short(slowest)}", slowest.index))
    [(place, each), *_] = ticks.most_common(1) or [("no layer", 0)]
    headline = f"{printable(place)}: {number_text(each)} {figure.unit}"
    return Answer("Which layer is slowest?", headline, tuple(details), str(figure))


def _peak(one: Pictured) -> Answer:
    peak = one.peak
    at = peak.instruction if peak.instruction >= 0 else None
    when = "before the first instruction" if at is None else f"while {_named(one, at)} runs"
    shown = [each for each in tensors(one.program) if each.first <= peak.instruction <= each.last]
    made_by = {each.extent: each.first for each in shown}
    held: list[Detail] = []
    for value, nbytes in peak.held[:LISTED]:
        extent = one.program.lifetimes.extent(value)
        first = -1 if extent is None else made_by.get(extent, -1)
        origin = f"of {printable(one.rows[first].place)}" if first >= 0 else "of the inputs"
        text = f"{number_text(nbytes)}: {tensor_text(one.program, value)} {origin}"
        held.append((text, first if first >= 0 else None))
    left = peak.held[LISTED:]
    more = [(f"{number_text(sum(nbytes for _, nbytes in left))}: {len(left)} more", None)] if left else []
    headline = f"{number_text(peak.nbytes)} bytes of {number_text(one.program.lifetimes.size)} in the plan"
    source = "bytes, planned; without constants, stack and the runtime's own memory"
    return Answer("What sits at the peak of SRAM?", headline, ((when, at), *held, *more), source)


def _error(one: Pictured) -> Answer:
    question, found = "Where does the error begin?", one.localization
    if found is None:
        details = (("a network or a module has references, a .pte has none", None),)
        return Answer(question, "not known: there are no references", details, "")
    source = "measured on the target, against references of the host"
    if (first := found.first) is not None and first.departure is not None:
        departure = first.departure
        headline = f"{_named(one, first.instruction)}: {departure.distance:g} quanta"
        elements = f"{departure.elements} of {departure.numel} elements differ from the dialect"
        return Answer(
            question, headline, ((elements, first.instruction), (printable(found.conclusions[0]), None)), source
        )
    return Answer(question, "no value differs from the dialect", tuple(_noise(one)), source)


def _noise(one: Pictured) -> Iterator[Detail]:
    """Yield where noise begins, where most of it is added, and how much there is at the end."""
    known = [(index, each.sqnr_db) for index, each in sorted(one.errors.items()) if each.sqnr_db is not None]
    if not known:
        yield "the SQNR against the float module is not known of any value", None
        return
    index, ratio = known[0]
    yield f"quantising begins: {in_decibels(ratio)} after {_named(one, index)}", index
    losses = [(one.errors[index].lost_db, index) for index, _ in known]
    loss, index = max(losses)
    if loss > 0:
        yield f"loses most: {in_decibels(loss)} in {_named(one, index)}", index
    index, ratio = known[-1]
    yield f"at the end: {in_decibels(ratio)} after {_named(one, index)}", index


def _flash(one: Pictured) -> Answer:
    groups = one.flash_groups
    whole = sum(groups.values())
    details: list[Detail] = [
        (f"{percent(nbytes / max(1, whole))} {group}: {number_text(nbytes)}", None) for group, nbytes in groups.items()
    ]
    headline = f"{number_text(whole)} bytes"
    if "kernels" not in groups:
        headline += " without kernels"
        known = "" if one.elf is None else f" one by one; the whole runner has {_stored(one.elf)}"
        details.append((f"kernels: not known{known}", None))
    source = "bytes, computed from .pte and runner; without the runner's own code"
    return Answer("What is in flash?", headline, tuple(details), source)


def _named(one: Pictured, index: int) -> str:
    row = one.rows[index]
    return printable(f"{row.module} {short(row)}".strip())


def _stored(elf: ElfSize) -> str:
    return number_text(sum(section.stored for section in elf.sections))
