"""Figures from night to night, encoded in few bytes, since most figures do not change for weeks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import Final, TypeAlias

from cortex_m_hil.campaigns.property_names import INSTRUCTIONS, LAYERS, PLANNED_BYTES
from cortex_m_hil.campaigns.report.changes import DIGITS, is_exact
from cortex_m_hil.campaigns.report.nightly_results import WORST, Key, Night, Result, combined, comparable_values
from cortex_m_hil.targets.target import Clock

Value: TypeAlias = "int | float | None"
_TICKS: Final = (Clock.CORE.value, Clock.MODEL.value)  # cycles and model ticks, which are no exact counts
BY_PART: Final = (INSTRUCTIONS, LAYERS, PLANNED_BYTES)
"""The figures of which the course of operators, layers and banks is shown as well."""


def encoded(values: Sequence[Value]) -> list[Value]:
    """Encode values by their runs: `[1, 1, 1, 7]` as `[1, 3, 7, 1]`, each value followed by its count."""
    return [part for value, run in groupby(values) for part in (value, sum(1 for _ in run))]


def decoded(runs: Sequence[Value]) -> list[Value]:
    """Decode a result of `encoded`."""
    return [value for value, often in zip(runs[::2], runs[1::2], strict=True) for _ in range(int(often or 0))]


def trends(key: Key, nights: Sequence[Night]) -> Mapping[str, list[Value]]:
    """Return for each figure its encoded values, one for each night, oldest first.

    The value is None in a night without the figure, or with another origin than the last night's. Figures are used
    whatever the verdict is; each value is for the programs that the last night with the figure ran.
    """
    if len(nights) < 2 or key not in nights[-1].results:
        return {}
    origin = nights[-1].results[key].origin
    results = [one.results.get(key) for one in nights]
    known = [one if one is not None and one.origin == origin else None for one in results]
    values = {figure: list(_values(known, figure)) for figure in _figures(known)}
    return {name: encoded(of) for name, of in values.items() if sum(value is not None for value in of) > 1}


def part_trends(key: Key, nights: Sequence[Night]) -> Mapping[str, Mapping[str, list[Value]]]:
    """Return the encoded values of each part of a figure, by figure and part; only of parts whose value changed.

    A part is an operator, layer or bank. Its value is None in a night without any part of the figure, and 0 in a night
    that has other parts of the figure only.
    """
    origin = nights[-1].results[key].origin if key in nights[-1].results else ()
    results = [night.results.get(key) for night in nights]
    known = [one if one is not None and one.origin == origin else None for one in results]
    return {figure: found for figure in BY_PART if (found := _moved_parts(known, figure))}


def _moved_parts(results: Sequence[Result | None], figure: str) -> dict[str, list[Value]]:
    parts = [one.parts_of(figure) if one is not None else {} for one in results]
    names = sorted({name for of in parts for name in of})
    values = {name: [of.get(name, 0) if of else None for of in parts] for name in names}
    return {name: encoded(of) for name, of in values.items() if len({one for one in of if one is not None}) > 1}


def _figures(results: Sequence[Result | None]) -> Iterator[str]:
    names = sorted({name for one in results if one is not None for name in one.figures})
    return (name for name in names if is_exact(name) or name in _TICKS or name in WORST)


def _values(results: Sequence[Result | None], figure: str) -> Iterator[Value]:
    last = next(one for one in reversed(results) if one is not None and figure in one.figures)
    for one in results:
        values = comparable_values(one, last, figure) if one is not None else None
        yield None if values is None else _short(combined(figure, values[0]))


def _short(value: float | None) -> Value:
    if value is None or value - value != 0:  # infinite, or not a number
        return None
    return int(value) if value == int(value) else float(f"{value:.{DIGITS}g}")
