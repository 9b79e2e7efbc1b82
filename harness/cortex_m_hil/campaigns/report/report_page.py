"""The page index.html: the results of a nightly for a browser."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Final

from cortex_m_hil.campaigns.report.cell_details import Cells
from cortex_m_hil.campaigns.report.change_groups import ChangeGroup, groups, values
from cortex_m_hil.campaigns.report.changes import ChangeKind
from cortex_m_hil.campaigns.report.figure_totals import TotalsRow, sizes, target_runtimes, totals_by_operator
from cortex_m_hil.campaigns.report.model_table import models
from cortex_m_hil.campaigns.report.nightly_results import BUILTIN, Key, Night, Result, TargetRuntime
from cortex_m_hil.campaigns.report.report_contents import ReportContents, utc_text
from cortex_m_hil.campaigns.report.terminal_summary import counted_by_verdict
from cortex_m_hil.flow.coverage.counts import total
from cortex_m_hil.host.html_pages import rendered
from cortex_m_hil.targets.runtimes import RUNTIMES

LISTED: Final = 30  # tests of a group of changes that are listed at most; results.json has all


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
    """A line of the matrix: a test.

    Attributes:
        cells: for each column the number of a result and the result; None where there is none.
    """

    test: str
    cells: tuple[tuple[int, Result] | None, ...]


def html(report: ReportContents) -> str:
    """Return the page, in UTF-8 at most 3 MB for 2,000 results and 30 nights."""
    cells = Cells(report)
    return rendered(
        "cortex_m_hil.campaigns.report",
        "report",
        cells.fields(),
        report=report,
        night=report.night,
        began=utc_text(report.night.began),
        columns=_columns(report.night),
        suites=_suites(report.night, cells.numbers),
        kinds=_kinds(report),
        LISTED=LISTED,
        values=values,
        numbers=cells.numbers,
        changed={change.key for change in report.changes},
        operators={figure: _with_share(rows) for figure, rows in totals_by_operator(report.night).items()},
        sizes=list(sizes(report.night)),
        models=list(models(report.night)),
        coverage=report.night.coverage,
        total=total,
        nights=cells.shown_nights,
    )


# --- changes --------------------------------------------------------------------------------------------


def _kinds(report: ReportContents) -> list[tuple[ChangeKind, list[ChangeGroup]]]:
    return [(kind, list(of)) for kind, of in groupby(groups(report.changes), key=lambda group: group.example.kind)]


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


def _suites(night: Night, numbers: dict[Key, int]) -> list[tuple[str, list[MatrixLine]]]:
    columns = [column.target_runtime for column in _columns(night)]
    by_test: dict[tuple[str, str], dict[TargetRuntime, tuple[int, Result]]] = {}
    for key, one in night.results.items():
        by_test.setdefault((key.suite, key.test), {})[key.target_runtime] = numbers[key], one
    lines = [
        (suite, MatrixLine(test, tuple(map(of.get, columns))))
        for (suite, test), of in sorted(by_test.items(), key=_name)
    ]
    return [(suite, [line for _, line in of]) for suite, of in groupby(lines, key=lambda one: one[0])]


def _name(one: tuple[tuple[str, str], Any]) -> tuple[str, str]:
    return one[0]


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
