"""Rows and totals for the summary that pytest_plugin/summary.py prints: tests × targets, and a line for each target."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from cortex_m_hil.campaigns.report.nightly_results import Night
from cortex_m_hil.errors.text import align, counted
from cortex_m_hil.runner.results import Verdict

COUNTED: Final[Mapping[Verdict, str]] = {
    Verdict.PASS: "passed",
    Verdict.FAIL: "failed",
    Verdict.INFRA: "infra",
    Verdict.ERROR: "error",
    Verdict.XPASS: "xpassed",
    Verdict.XFAIL: "xfailed",
    Verdict.SKIP: "skipped",
}
"""The word for each verdict where it is counted; counts are shown in this order."""


NO_RUNNER: Final = "no runner (own ELF or none)"
"""The label of what ran on a target in a test that does not use this package's runner."""


Place: TypeAlias = "tuple[str, str]"
"""Where a test runs: the target that was asked for, and the runtime."""


@dataclass(frozen=True)
class TargetOutcome:
    """The outcome of one test on one target, by one runtime.

    Attributes:
        requested: the target that was asked for.
        ran: what really ran: `m4-fvp → m4-qemu`.
        error: the class of the error; "" where there is none.
        headline: the first line of the error's message; "" where there is none.
        seconds: those of setup, call and teardown.
        earlier: what previous attempts of the same test ended with, where a plugin ran it again.
        peaks: the figures whose largest values are shown, by name and unit.
        runner: whether the test uses this package's runner.
        runtime: `builtin` or `executorch`.
        operator: the one that the error names; "" where there is none.
        departs: the first operator that gave other values than on another runtime, and how many; "" where none did.
        outputs: a digest of the outputs of each program.
    """

    test: str
    requested: str
    ran: str
    verdict: Verdict
    error: str = ""
    node_id: str = ""
    headline: str = ""
    seconds: float = 0.0
    uninformative: bool = False
    earlier: tuple[str, ...] = ()
    peaks: Mapping[str, int] = field(default_factory=dict)
    runner: bool = True
    runtime: str = ""
    operator: str = ""
    departs: str = ""
    outputs: tuple[str, ...] = ()

    @property
    def place(self) -> Place:
        return self.requested, self.runtime

    @property
    def ending(self) -> str:
        return f"{self.verdict.value} {self.error}".strip()

    @property
    def cell(self) -> str:
        uninformative = " (uninformative)" if self.uninformative else ""
        return self.ending + uninformative + (f" after {', '.join(self.earlier)}" if self.earlier else "")


def table(outcomes: Iterable[TargetOutcome]) -> list[str]:
    """Return the lines of a table: a test a row, a target by a runtime a column, both in order of first appearance."""
    cells: dict[str, dict[Place, str]] = {}
    every = list(outcomes)
    for outcome in every:
        cells.setdefault(outcome.test, {})[outcome.place] = outcome.cell
    columns = _columns(every)
    rows = [["test", *columns.values()]]
    rows += [[test, *(by_place.get(place, "-") for place in columns)] for test, by_place in cells.items()]
    return align(rows)


def _columns(outcomes: Sequence[TargetOutcome]) -> dict[Place, str]:
    """Return the heading of each place: what ran, and the runtime where that is not the same for all."""
    several = len({outcome.runtime for outcome in outcomes}) > 1
    return {one.place: f"{one.ran} · {one.runtime}" if several else one.ran for one in outcomes}


def largest(outcomes: Iterable[TargetOutcome]) -> list[str]:
    """Return the lines of a table: a figure of the runner a row, its largest value on each target; [] without any."""
    found: dict[str, dict[Place, int]] = {}
    measured = [outcome for outcome in outcomes if outcome.peaks]
    for outcome in measured:
        for name, value in outcome.peaks.items():
            by_place = found.setdefault(name, {})
            by_place[outcome.place] = max(value, by_place.get(outcome.place, 0))
    columns = _columns(measured)
    rows = [[f"most {one}", *(str(by_place.get(place, "-")) for place in columns)] for one, by_place in found.items()]
    return align([["", *columns.values()], *rows]) if rows else []


def noteworthy(outcomes: Sequence[TargetOutcome]) -> list[TargetOutcome]:
    """Return the outcomes, on all targets, of the tests that went wrong on one, or were run again."""
    tests = {outcome.test for outcome in outcomes if outcome.verdict.is_bad or outcome.earlier}
    return [outcome for outcome in outcomes if outcome.test in tests]


def totals(outcomes: Iterable[TargetOutcome], labels: Mapping[Place, str]) -> list[str]:
    """Return a line for each place of `labels` that has an outcome: its label, counts of verdicts, and seconds."""
    by_place: dict[Place, list[TargetOutcome]] = {place: [] for place in labels}
    for outcome in outcomes:
        by_place[outcome.place].append(outcome)
    rows = [
        [_label(labels[place], found), _counts(found), f"in {sum(outcome.seconds for outcome in found):.1f} s"]
        for place, found in by_place.items()
        if found
    ]
    return align(rows) if rows else []


def _label(runner: str, outcomes: Sequence[TargetOutcome]) -> str:
    """Return what ran: `runner`, if a test uses it."""
    return runner if any(outcome.runner for outcome in outcomes) else f"{outcomes[0].ran} · {NO_RUNNER}"


def runtime_differences(outcomes: Iterable[TargetOutcome]) -> list[str]:
    """Return a line for each test that ended otherwise on one runtime than on another, or gave other values there."""
    by_test: dict[tuple[str, str], list[TargetOutcome]] = {}
    for outcome in outcomes:
        if outcome.verdict is not Verdict.SKIP:
            by_test.setdefault((outcome.test, outcome.requested), []).append(outcome)
    return [line for name, found in by_test.items() if (line := _difference(*name, found))]


def _difference(test: str, target: str, outcomes: Sequence[TargetOutcome]) -> str:
    """Return how the outcomes of a test on a target differ by runtime; "" where they do not."""
    departs = "; ".join(outcome.departs for outcome in outcomes if outcome.departs)
    if not departs and any(len(set(digests)) > 1 for digests in zip(*(one.outputs for one in outcomes), strict=False)):
        departs = f"other outputs: --keep-programs DIR, and hil compare-runtimes DIR/*.pte -t {target}"
    if not departs and len({outcome.ending for outcome in outcomes}) == 1:
        return ""
    ends = ", ".join(f"{one.runtime} {one.ending}{f' ({one.operator})' if one.operator else ''}" for one in outcomes)
    return f"{test} [{target}]: {ends}{f'; {departs}' if departs else ''}"


def counted_by_verdict(verdicts: Mapping[Verdict, int]) -> list[str]:
    """Return the count of each verdict that there is: `3 passed`, `2 errors`."""
    counts = [(one, word, verdicts[one]) for one, word in COUNTED.items() if verdicts.get(one)]
    return [counted(count, word) if one is Verdict.ERROR else f"{count} {word}" for one, word, count in counts]


def counts(night: Night) -> dict[str, int]:
    """Return how many tests of a nightly there are by the word for their verdict."""
    verdicts = night.verdicts
    return {word: verdicts[verdict] for verdict, word in COUNTED.items()}


def _counts(outcomes: Sequence[TargetOutcome]) -> str:
    parts = counted_by_verdict(Counter(outcome.verdict for outcome in outcomes))
    all_same = len({outcome.runner for outcome in outcomes}) == 1
    marked = {
        "uninformative": sum(outcome.uninformative for outcome in outcomes),
        NO_RUNNER: 0 if all_same else sum(not outcome.runner for outcome in outcomes),
        "run again": sum(bool(outcome.earlier) for outcome in outcomes),
    }
    parts += [f"{count} {word}" for word, count in marked.items() if count]
    return ", ".join(parts)
