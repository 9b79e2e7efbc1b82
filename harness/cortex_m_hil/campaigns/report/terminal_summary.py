"""Rows and totals for the summary that pytest_plugin/summary.py prints: tests × targets, and a line for each target."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from cortex_m_hil.campaigns.report.nightly_results import Night
from cortex_m_hil.errors.text import align, counted
from cortex_m_hil.runner.run_results import Verdict
from cortex_m_hil.targets.runtimes import missing_on_the_other

COUNTED: Final[Mapping[Verdict, str]] = {
    Verdict.PASS: "passed",
    Verdict.FAIL: "failed",
    Verdict.INFRA: "infra",
    Verdict.ERROR: "error",
    Verdict.XPASS: "xpassed",
    Verdict.XFAIL: "xfailed",
    Verdict.SKIP: "skipped",
}
"""The word for each verdict in counts; counts are shown in this order."""


NO_RUNNER: Final = "no runner (own ELF or none)"
"""The label, in place of a target's, for tests that do not use this package's runner."""


Place: TypeAlias = "tuple[str, str]"
"""The place where a test runs: the requested target, and the runtime."""


@dataclass(frozen=True)
class TargetOutcome:
    """The outcome of one test on one target, by one runtime.

    Attributes:
        requested: the requested target.
        ran: the target that really ran: `m4-fvp → m4-qemu`.
        error: the class of the error; "" where there is none.
        headline: the first line of the error's message; "" without an error.
        seconds: the time of setup, call and teardown.
        earlier: the outcomes of previous attempts of the same test, if a plugin repeated it.
        peaks: the figures whose largest values are shown, by name and unit.
        runner: whether the test uses this package's runner.
        runtime: `builtin` or `executorch`.
        operator: the operator that the error names; "" where it names none.
        departs: the first operator with other values than on another runtime, and how many values differ; "" if none
            does.
        outputs: a digest of the outputs of each program.
        missing_elsewhere: operators of its programs that the other runtime does not have.
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
    missing_elsewhere: tuple[str, ...] = ()

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
    """Return the lines of a table: a row for each test, a column for each place, in order of appearance."""
    cells: dict[str, dict[Place, str]] = {}
    every = list(outcomes)
    for outcome in every:
        cells.setdefault(outcome.test, {})[outcome.place] = outcome.cell
    columns = _columns(every)
    rows = [["test", *columns.values()]]
    rows += [[test, *(by_place.get(place, "-") for place in columns)] for test, by_place in cells.items()]
    return align(rows)


def _columns(outcomes: Sequence[TargetOutcome]) -> dict[Place, str]:
    """Return the heading of each place: the target that ran, and the runtime if there are several."""
    several = len({outcome.runtime for outcome in outcomes}) > 1
    return {one.place: f"{one.ran} · {one.runtime}" if several else one.ran for one in outcomes}


def largest(outcomes: Iterable[TargetOutcome]) -> list[str]:
    """Return the lines of a table with a row for each figure, with its largest value on each target.

    [] without figures.
    """
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
    """Return the outcomes, on all targets, of tests that failed on any target, or were repeated."""
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
    """Return the label `runner` if a test uses the runner, else `NO_RUNNER`."""
    return runner if any(outcome.runner for outcome in outcomes) else f"{outcomes[0].ran} · {NO_RUNNER}"


def runtime_differences(outcomes: Iterable[TargetOutcome]) -> list[str]:
    """Return a line for each test whose verdict or values on one runtime differ from another's."""
    by_test: dict[tuple[str, str], list[TargetOutcome]] = {}
    for outcome in outcomes:
        if outcome.verdict is not Verdict.SKIP:
            by_test.setdefault((outcome.test, outcome.requested), []).append(outcome)
    return [line for name, found in by_test.items() if (line := _difference(*name, found))]


def _difference(test: str, target: str, outcomes: Sequence[TargetOutcome]) -> str:
    """Return how the outcomes of a test on a target differ by runtime; "" if they do not."""
    departs = "; ".join(outcome.departs for outcome in outcomes if outcome.departs)
    if not departs and any(len(set(digests)) > 1 for digests in zip(*(one.outputs for one in outcomes), strict=False)):
        departs = f"other outputs: --keep-programs FOLDER, and hil compare-runtimes FOLDER/*.pte -t {target}"
    if not departs and len({outcome.ending for outcome in outcomes}) == 1:
        return ""
    ends = ", ".join(f"{one.runtime} {one.ending}{f' ({one.operator})' if one.operator else ''}" for one in outcomes)
    return f"{test} [{target}]: {ends}{f'; {departs}' if departs else ''}"


def missing_elsewhere(outcomes: Iterable[TargetOutcome]) -> list[str]:
    """Return a line for each operator that one runtime alone has: how many tests need that runtime for it."""
    tests: dict[tuple[str, str], set[str]] = {}
    for outcome in outcomes:
        for operator in outcome.missing_elsewhere:
            tests.setdefault((outcome.runtime, operator), set()).add(outcome.test)
    return [
        f"{missing_on_the_other(runtime, operator)}: {counted(len(of_it), 'test')} for {runtime} alone"
        for (runtime, operator), of_it in sorted(tests.items())
    ]


def counted_by_verdict(verdicts: Mapping[Verdict, int]) -> list[str]:
    """Return the count of each verdict that occurs: `3 passed`, `2 errors`."""
    counts = [(one, word, verdicts[one]) for one, word in COUNTED.items() if verdicts.get(one)]
    return [counted(count, word) if one is Verdict.ERROR else f"{count} {word}" for one, word, count in counts]


def counts(night: Night) -> dict[str, int]:
    """Return the number of a nightly's tests by the word for their verdict."""
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
