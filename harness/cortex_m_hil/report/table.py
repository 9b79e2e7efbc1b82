"""The test × target table."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from cortex_m_hil.results import Statistic, Verdict


@dataclass(frozen=True)
class Outcome:
    """One test on one target. `ran` is what really ran: `m4-fvp → m4-qemu`."""

    test: str
    requested: str
    ran: str
    verdict: Verdict
    error: str = ""  # class name of the error, "" where there is none
    node_id: str = ""
    peaks: Mapping[Statistic, int] = field(default_factory=dict)

    @property
    def cell(self) -> str:
        return f"{self.verdict.value} {self.error}".strip()


def table(outcomes: Iterable[Outcome]) -> list[str]:
    """Lines: a test a row, a target a column, then totals and the largest peaks.

    Rows and columns in order of first appearance.
    """
    cells: dict[str, dict[str, str]] = {}
    targets: dict[str, str] = {}
    passed: dict[str, int] = {}
    counts: dict[str, int] = {}
    peaks: dict[Statistic, dict[str, int]] = {}
    for outcome in outcomes:
        cells.setdefault(outcome.test, {})[outcome.requested] = outcome.cell
        targets[outcome.requested] = outcome.ran
        counts[outcome.requested] = counts.get(outcome.requested, 0) + 1
        passed[outcome.requested] = passed.get(outcome.requested, 0) + (
            outcome.verdict in (Verdict.PASS, Verdict.XFAIL)
        )
        for statistic, value in outcome.peaks.items():
            by_target = peaks.setdefault(statistic, {})
            by_target[outcome.requested] = max(value, by_target.get(outcome.requested, 0))
    rows = [["test", *targets.values()]]
    rows += [[test, *(verdicts.get(name, "-") for name in targets)] for test, verdicts in cells.items()]
    rows.append(["passed", *(f"{passed[name]} of {counts[name]}" for name in targets)])
    rows += [
        [f"most {statistic.name} {statistic.unit}", *(str(by_target.get(name, "-")) for name in targets)]
        for statistic, by_target in peaks.items()
    ]
    return _align(rows)


def _align(rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
