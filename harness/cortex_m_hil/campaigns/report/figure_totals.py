"""Totals of all tests of a target: instructions by operator, and sizes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from cortex_m_hil.campaigns.property_names import (
    BYTES,
    CYCLES,
    ELF_BYTES,
    INSTRUCTIONS,
    PTE_BYTES,
)
from cortex_m_hil.campaigns.report.nightly_results import Night, Result, TargetRuntime

_Together: TypeAlias = "Callable[[Iterable[int | None]], int | None]"
COUNTS: Final = (INSTRUCTIONS, CYCLES)


@dataclass(frozen=True)
class TotalsRow:
    """A named row of numbers, one for each target and runtime; None where the number is missing."""

    name: str
    values: tuple[int | None, ...]


def target_runtimes(night: Night) -> list[TargetRuntime]:
    """Return the columns of a report: each target with each runtime."""
    return sorted({key.target_runtime for key in night.results if key.target}, key=lambda one: (one[1], one[0]))


def totals_by_operator(night: Night) -> dict[str, list[TotalsRow]]:
    """Return for each figure a row for each operator, largest first.

    Counts are sums over all programs; bytes are of the largest runner.
    """
    columns = [_measured(night, target_runtime) for target_runtime in target_runtimes(night)]
    figures = {**dict.fromkeys(COUNTS, _sum), ELF_BYTES: _most}
    return {figure: rows for figure, put in figures.items() if (rows := _operators(columns, figure, put))}


def _operators(columns: Sequence[Sequence[Result]], figure: str, put_together: _Together) -> list[TotalsRow]:
    names = {name for results in columns for one in results for name in one.parts.get(figure, ())}
    rows = [
        TotalsRow(
            name, tuple(put_together(one.parts.get(figure, {}).get(name) for one in results) for results in columns)
        )
        for name in names
    ]
    return sorted(rows, key=lambda row: (-sum(value or 0 for value in row.values), row.name))


def sizes(night: Night) -> Iterator[TotalsRow]:
    """Yield rows of bytes: the sum over all programs, and the largest need of a test."""
    columns = [_measured(night, target_runtime) for target_runtime in target_runtimes(night)]
    if any(any(PTE_BYTES in one.figures for one in results) for results in columns):
        together = tuple(_sum(_values(results, PTE_BYTES)) for results in columns)
        yield TotalsRow(f"{PTE_BYTES} of all programs together", together)
    names = sorted({name for results in columns for one in results for name in one.figures if name.endswith(BYTES)})
    for name in names:
        yield TotalsRow(f"{name}, the largest", tuple(max(_values(results, name), default=None) for results in columns))


def _measured(night: Night, target_runtime: TargetRuntime) -> list[Result]:
    """Return the results of a target with a runtime, whatever their verdicts."""
    return [one for key, one in night.results.items() if key.target_runtime == target_runtime]


def _values(results: Iterable[Result], figure: str) -> list[int]:
    return [int(value) for one in results for value in one.figures.get(figure, ()) if not isinstance(value, str)]


def _sum(values: Iterable[int | None]) -> int | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def _most(values: Iterable[int | None]) -> int | None:
    return max((value for value in values if value is not None), default=None)
