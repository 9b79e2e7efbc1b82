"""The page index.html: the results of a nightly for a browser."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from cortex_m_hil.campaigns.report.cell_details import Cells
from cortex_m_hil.campaigns.report.change_groups import before_after, values
from cortex_m_hil.campaigns.report.failure_kinds import (
    WORSE,
    anchor,
    headline,
    meaning,
    moved_figures,
    other_changes,
    sorted_failures,
    tiles,
)
from cortex_m_hil.campaigns.report.figure_totals import TotalsRow, sizes, target_runtimes, totals_by_operator
from cortex_m_hil.campaigns.report.model_table import models
from cortex_m_hil.campaigns.report.nightly_results import BUILTIN, Key, Night, Result, TargetRuntime
from cortex_m_hil.campaigns.report.report_contents import DAY, ReportContents, utc_text
from cortex_m_hil.campaigns.report.terminal_summary import counted_by_verdict
from cortex_m_hil.errors.text import counted, number_text
from cortex_m_hil.flow.coverage.counts import total
from cortex_m_hil.host.html_pages import rendered
from cortex_m_hil.targets.runtimes import RUNTIMES

LISTED: Final = 30  # entries of a list at most; results.json has all
FIRST: Final = 10  # entries of a list that are not folded


@dataclass(frozen=True)
class Column:
    """A column of the matrix: a target with a runtime.

    Attributes:
        ran: the targets that really ran.
        engine: the simulators or boards that ran.
        executes: a description of the runtime; "" without a target.
        counts: how many tests ended with each verdict.
    """

    target_runtime: TargetRuntime
    ran: str
    engine: str
    executes: str
    counts: str


@dataclass(frozen=True)
class MatrixLine:
    """A line of the matrix: a test, by its name within its file.

    Attributes:
        cells: for each column the number of a result and the result; None where there is none.
    """

    test: str
    cells: tuple[tuple[int, Result] | None, ...]


@dataclass(frozen=True)
class FileCell:
    """The results of a file's tests in one column: how many ended with each verdict, and whether any is bad."""

    counts: str
    is_bad: bool
    changed: int


@dataclass(frozen=True)
class MatrixFile:
    """The lines of one file's tests, with a cell for each column; None where no test ran."""

    name: str
    cells: tuple[FileCell | None, ...]
    lines: tuple[MatrixLine, ...]


def html(report: ReportContents) -> str:
    """Return the page, in UTF-8 at most 3 MB for 2,000 results and 30 nights."""
    cells, changed = Cells(report), {change.key for change in report.changes}
    failures = sorted_failures(report)
    return rendered(
        "cortex_m_hil.campaigns.report",
        "report",
        cells.fields(),
        report=report,
        night=report.night,
        began=utc_text(report.night.began, f"{DAY} %H:%M:%SZ"),
        before=utc_text(report.against.began, DAY) if report.against is not None else "",
        headline=headline(report),
        tiles=list(tiles(report, failures)),
        failures=failures,
        moved=moved_figures(report.changes),
        counted=counted,
        kinds=other_changes(report.changes),
        columns=_columns(report.night),
        suites=_suites(report.night, cells.numbers, changed),
        LISTED=LISTED,
        FIRST=FIRST,
        WORSE=WORSE,
        before_after=before_after,
        meaning=meaning,
        values=values,
        anchor=anchor,
        numbers=cells.numbers,
        changed=changed,
        operators={figure: _with_share(rows) for figure, rows in totals_by_operator(report.night).items()},
        sizes=list(sizes(report.night)),
        models=list(models(report.night)),
        coverage=report.night.coverage,
        total=total,
        grouped=_grouped,
        nights=cells.shown_nights,
    )


def _grouped(text: str) -> str:
    """Return a text with the digits of its whole numbers in groups, those in names as they are."""
    return _WHOLE.sub(lambda found: f"{found[1]}{number_text(int(found[2]))}", text)


_WHOLE: Final = re.compile(r"(?<!\S)([+-]?)([0-9]{4,18})(?![\w.])")


# --- the matrix ----------------------------------------------------------------------------------------------


def _columns(night: Night) -> list[Column]:
    used = [("", runtime) for runtime in sorted({key.runtime for key in night.results if not key.target})]
    return [_column(night, target_runtime) for target_runtime in [*target_runtimes(night), *used]]


def _column(night: Night, target_runtime: TargetRuntime) -> Column:
    here = night.by_target_runtime.get(target_runtime, [])
    verdicts = Counter(one.verdict for one in here)
    counts = ", ".join(counted_by_verdict(verdicts))
    ran, engines = (sorted({getattr(one, name) for one in here} - {""}) for name in ("ran", "engine"))
    target, runtime = target_runtime
    executes = RUNTIMES.get(runtime, "") if target else ""
    if runtime == BUILTIN and (why := night.runtime_reasons.get(target)):
        executes = f"{executes}; {why}"
    return Column(target_runtime, ", ".join(ran), ", ".join(engines), executes, counts)


def _suites(night: Night, numbers: dict[Key, int], changed: set[Key]) -> list[tuple[str, list[MatrixFile]]]:
    columns = [column.target_runtime for column in _columns(night)]
    by_file: dict[tuple[str, str], dict[str, dict[TargetRuntime, tuple[int, Result]]]] = {}
    for key, one in night.results.items():
        file, _, test = key.test.partition("::")
        of_file = by_file.setdefault((key.suite, file), {})
        of_file.setdefault(test or file, {})[key.target_runtime] = numbers[key], one
    found: dict[str, list[MatrixFile]] = {}
    for (suite, file), tests in sorted(by_file.items()):
        lines = tuple(MatrixLine(test, tuple(map(of.get, columns))) for test, of in sorted(tests.items()))
        cells = (_file_cell([of[column][1] for of in tests.values() if column in of], changed) for column in columns)
        found.setdefault(suite, []).append(MatrixFile(file, tuple(cells), lines))
    return list(found.items())


def _file_cell(results: Sequence[Result], changed: set[Key]) -> FileCell | None:
    if not results:
        return None
    bad, others = (Counter(one.verdict for one in results if one.verdict.is_bad is is_bad) for is_bad in (True, False))
    counts = ", ".join((*counted_by_verdict(bad), *counted_by_verdict(others)))  # what is bad is told first
    return FileCell(counts, bool(bad), sum(one.key in changed for one in results))


# --- totals --------------------------------------------------------------------------------------------------


def _with_share(rows: Sequence[TotalsRow]) -> list[tuple[TotalsRow, tuple[float, ...]]]:
    """Return each row with its numbers in percent of the largest in their columns."""
    largest = [max((row.values[index] or 0 for row in rows), default=0) for index in range(len(rows[0].values))]
    return [
        (
            row,
            tuple(
                round(100 * (value or 0) / most, 1) if most else 0.0
                for value, most in zip(row.values, largest, strict=True)
            ),
        )
        for row in rows
    ]
