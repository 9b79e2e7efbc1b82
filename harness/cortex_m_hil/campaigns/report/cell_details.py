"""The details that index.html shows of an opened cell, kept small: names are stored once, long texts are cut."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate
from typing import Any, Final, TypeAlias

from cortex_m_hil.campaigns.property_names import LAYERS
from cortex_m_hil.campaigns.report.change_groups import ChangeGroup
from cortex_m_hil.campaigns.report.nightly_results import Figure, Key, Night, Result
from cortex_m_hil.campaigns.report.report_contents import DAY, ReportContents, utc_text
from cortex_m_hil.campaigns.report.trend_encoding import Value, part_trends, trends
from cortex_m_hil.errors.text import counted

LOGS: Final = 300_000  # characters of all logs together, and of what was localised
LEAST: Final = 150  # characters of each log, and of a cell's changes, at least
CHANGES: Final = 300_000  # characters of all changes together
HEADLINE: Final = 300  # characters of a headline at most
TRENDS: Final = 800_000  # characters of all trends together
WEEK: Final = 7.5 * 86400.0  # seconds: trends are shown since the first night of the last week, unless asked otherwise
_Trends: TypeAlias = "Mapping[Key, Mapping[str, list[Value]]]"
_PartTrends: TypeAlias = "Mapping[Key, Mapping[str, Mapping[str, list[Value]]]]"


class TextNumbers:
    """A numbered list of texts, each stored once however often it occurs."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}

    def __call__(self, name: str) -> int:
        return self._numbers.setdefault(name, len(self._numbers))

    def __iter__(self) -> Iterator[str]:
        return iter(self._numbers)


class Cells:
    """The cells of index.html's matrix.

    Attributes:
        numbers: the position of each result.
        shown_nights: how many nights the trends show.
    """

    def __init__(self, report: ReportContents) -> None:
        self._report = report
        self._names = TextNumbers()
        self.numbers: dict[Key, int] = {key: number for number, key in enumerate(report.night.results)}
        self._nights, self._trends, self._moved = _that_fit(report)
        self.shown_nights = len(self._nights)
        said = sum(bool(text) for one in report.night.results.values() for text in (one.log, one.localized))
        self._limit = max(LEAST, LOGS // max(said, 1))
        self._changed: dict[Key, list[str]] = {}
        for change in report.changes:
            self._changed.setdefault(change.key, []).append(ChangeGroup((change,)).line)
        room = max(LEAST, CHANGES // max(len(self._changed), 1))
        self._changed = {key: _first_within(texts, room) for key, texts in self._changed.items()}

    def fields(self) -> dict[str, Any]:
        cells = [self._cell(key, one) for key, one in self._report.night.results.items()]
        nights = [_night(one) for one in self._nights]
        recent = (one.began >= self._nights[-1].began - WEEK for one in self._nights)
        before = self._report.against.name if self._report.against is not None else ""
        against = next((at for at, one in enumerate(self._nights) if one.name == before), -1)
        return {
            "nights": nights, "since": list(recent).index(True), "against": against, "cells": cells,
            "names": list(self._names),
        }  # fmt: skip

    def _cell(self, key: Key, one: Result) -> dict[str, Any]:
        """Return the fields of a cell, without empty ones.

        Names of tests, targets, figures, operators and engines are numbers.
        """
        found = {
            "suite": self._names(key.suite),
            "test": self._names(key.test),
            "target": self._names(key.target),
            "runtime": self._names(key.runtime),
            "ran": self._names(one.ran),
            "engine": self._names(one.engine),
            "ending": self._names(one.ending),
            "headline": _cut(one.headline, HEADLINE),
            "seconds": one.seconds if math.isfinite(one.seconds) else 0,
            "changes": self._changed.get(key, []),
            "figures": self._figures(one.figures),
            "parts": self._parts(one.parts),
            "executed": self._executed(key),
            "trends": [
                value for name, runs in self._trends.get(key, {}).items() for value in (self._names(name), runs)
            ],
            "moved": [
                value
                for name, of in self._moved.get(key, {}).items()
                for value in (self._names(name), [part for one in of.items() for part in (self._names(one[0]), one[1])])
            ],
            "earlier": one.earlier,
            "localized": _cut(one.localized, self._limit),
            "log": _end_of(one.log, self._limit),
            "bundle": self._report.bundle(one),
            "command": self._report.command(one),
        }
        return {name: value for name, value in found.items() if value not in ("", [], ())}

    def _figures(self, figures: Mapping[str, Sequence[Figure]]) -> list[Any]:
        return [part for name, of in figures.items() for part in (self._names(name), [_shown(value) for value in of])]

    def _executed(self, key: Key) -> list[int]:
        coverage = self._report.night.coverage
        found = coverage.of_test(key.test, key.target, key.runtime) if coverage is not None else {}
        return [part for file, lines in sorted(found.items()) for part in (self._names(file), *lines)]

    def _parts(self, parts: Mapping[str, Mapping[str, int]]) -> list[Any]:
        return [
            part
            for figure, of in parts.items()
            if figure != LAYERS  # a text for each layer of each program: there is no room
            for part in (self._names(figure), [one for name, value in of.items() for one in (self._names(name), value)])
        ]


def _that_fit(report: ReportContents) -> tuple[Sequence[Night], _Trends, _PartTrends]:
    """Return as many of the last nights as there is room for, and their trends by key and figure, also of parts."""
    nights = [*report.history, report.night]
    while True:
        found = {key: trends(key, nights) for key in report.night.results}
        moved = {key: part_trends(key, nights) for key in report.night.results}
        text = json.dumps([*found.values(), *moved.values()], separators=(",", ":"))
        if len(nights) < 2 or len(text) <= TRENDS:
            return nights, found, moved
        nights = nights[len(nights) // 2 :]


def _night(one: Night) -> str:
    return ", ".join(filter(None, (utc_text(one.began, DAY), f"nightly {one.name}", one.commit[:10])))


def _first_within(texts: Sequence[str], room: int) -> list[str]:
    """Return the first texts, at least one, and a line with the number of those that were left out.

    Args:
        texts: all texts.
        room: the number of characters that the first texts have together at most.
    """
    lengths = list(accumulate(map(len, texts)))
    kept = max(1, sum(length <= room for length in lengths))
    left = [f"and {counted(len(texts) - kept, 'more change')}: results.json"] if kept < len(texts) else []
    return [*texts[:kept], *left]


def _shown(value: Figure) -> Figure:
    """Return a figure for JSON: as text if it is not finite, for which JSON has no form."""
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def _cut(text: str, limit: int) -> str:
    return text if len(text) <= limit else f"{text[:limit]} …"


def _end_of(text: str, limit: int) -> str:
    return text if len(text) <= limit else f"… (all of it: results.json)\n{text[-limit:]}"
