"""The test × target table."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from cortex_m_hil.results import Verdict


@dataclass(frozen=True)
class Outcome:
    """One test on one target. `ran` is what really ran: `m4-fvp → m4-qemu`."""

    test: str
    requested: str
    ran: str
    verdict: Verdict
    error: str = ""  # class name of the error, "" where there is none
    node_id: str = ""

    @property
    def cell(self) -> str:
        return f"{self.verdict.value} {self.error}".strip()


def table(outcomes: Iterable[Outcome]) -> list[str]:
    """Lines: a test a row, a target a column, totals last. Rows and columns in order of first appearance."""
    cells: dict[str, dict[str, str]] = {}
    targets: dict[str, str] = {}
    passed: dict[str, int] = {}
    counts: dict[str, int] = {}
    for outcome in outcomes:
        cells.setdefault(outcome.test, {})[outcome.requested] = outcome.cell
        targets[outcome.requested] = outcome.ran
        counts[outcome.requested] = counts.get(outcome.requested, 0) + 1
        passed[outcome.requested] = passed.get(outcome.requested, 0) + (
            outcome.verdict in (Verdict.PASS, Verdict.XFAIL)
        )
    rows = [["test", *targets.values()]]
    rows += [[test, *(by_target.get(name, "-") for name in targets)] for test, by_target in cells.items()]
    rows.append(["passed", *(f"{passed[name]} of {counts[name]}" for name in targets)])
    return _align(rows)


def _align(rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
