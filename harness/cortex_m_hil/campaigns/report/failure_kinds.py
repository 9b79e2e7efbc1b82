"""The failures of a nightly, sorted by what is to be done about them, and the figures that tell how it went."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import groupby
from typing import Final

from cortex_m_hil.campaigns.report.change_groups import ChangeGroup, TestRow, difference, groups, in_percent
from cortex_m_hil.campaigns.report.changes import COUNTED, Change, ChangeKind, judged, programs
from cortex_m_hil.campaigns.report.nightly_results import FAILED, Key, Result
from cortex_m_hil.campaigns.report.report_contents import ReportContents
from cortex_m_hil.campaigns.report.terminal_summary import counted_by_verdict
from cortex_m_hil.errors.text import counted
from cortex_m_hil.runner.run_results import Verdict


class FailureKind(str, Enum):
    """The kinds of failures, the one to look at first first."""

    NEW = "new failures"
    ALL = "failures"
    BROKEN = "already broken in the nightly that is compared with"
    FLAKY = "flaky: passed and failed on the same code"
    INFRA = "infrastructure: nothing was learnt about the programs"


_TOLD_AS_FAILURES: Final = (ChangeKind.NEW_FAILURE, ChangeKind.NO_VERDICT, ChangeKind.FLAKY)
"""The kinds of changes that `sorted_failures` tells as well."""
WORSE: Final = (ChangeKind.LESS_ACCURATE, ChangeKind.SLOWER, ChangeKind.LARGER, ChangeKind.LESS_CORTEX_M)
"""The kinds of changes of figures for the worse."""
_FIGURE_KINDS: Final = (
    *WORSE,
    *(ChangeKind.MORE_ACCURATE, ChangeKind.FASTER, ChangeKind.SMALLER, ChangeKind.MORE_CORTEX_M),
)
"""The kinds of changes of figures, those for the worse first."""


@dataclass(frozen=True)
class FailureGroup:
    """Failures that have one cause: the same error of the same programs; of infra errors, the same one on one target.

    Attributes:
        results: the failures; a flaky test may have passed this time.
        evidence: how often a flaky test failed in the nightlies of the store, as text; "" of other failures.
    """

    results: tuple[Result, ...]
    evidence: str = ""

    @property
    def example(self) -> Result:
        return self.results[0]

    @property
    def said(self) -> str:
        """Return the headline of the example, without the error's name."""
        return self.example.headline.removeprefix(f"{self.example.error}: ")

    @property
    def rows(self) -> list[TestRow]:
        """Return a row for each test."""
        found: dict[str, list[Key]] = {}
        for one in self.results:
            found.setdefault(one.key.test, []).append(one.key)
        return [TestRow(test, tuple(keys)) for test, keys in found.items()]


def sorted_failures(report: ReportContents) -> dict[FailureKind, list[FailureGroup]]:
    """Return the failures by kind; kinds without any are left out.

    A test is flaky if the store has evidence of it, new if it was no failure in the nightly that is compared with, else
    already broken. An infra error says nothing about the program, so it is never new.
    """
    flaky = _evidence(report)
    names = programs(report.night)
    found: dict[FailureKind, dict[tuple[str, ...], list[Result]]] = {kind: {} for kind in FailureKind}
    for one in report.night.tests:
        if one.verdict.is_bad or one.key in flaky:
            kind = _kind(report, one, flaky)
            where = one.key.target if kind is FailureKind.INFRA else names[one.key]
            cause = (one.ending, flaky.get(one.key, ""), one.key.runtime, where)
            found[kind].setdefault(cause, []).append(one)
    return {
        kind: [FailureGroup(tuple(of), evidence) for (_, evidence, *_), of in by_cause.items()]
        for kind, by_cause in found.items()
        if by_cause
    }


def _evidence(report: ReportContents) -> dict[Key, str]:
    """Return for each flaky test what the store knows: how often it failed on the same code, or attempts before."""
    found: dict[Key, list[str]] = {}
    for change in report.changes:
        if change.kind is ChangeKind.FLAKY:
            # Where the test was retried, `before` has its attempts too.
            attempts = ", ".join(report.night.results[change.key].earlier)
            found.setdefault(change.key, []).append(f"after {attempts}" if change.before == attempts else change.before)
    return {key: ", ".join(texts) for key, texts in found.items()}


def _kind(report: ReportContents, one: Result, flaky: Mapping[Key, str]) -> FailureKind:
    if one.verdict is Verdict.INFRA:
        return FailureKind.INFRA
    if one.key in flaky:
        return FailureKind.FLAKY
    if report.against is None:
        return FailureKind.ALL
    before = report.against.results.get(one.key)
    return FailureKind.BROKEN if before is not None and before.verdict in FAILED else FailureKind.NEW


# --- how it went ---------------------------------------------------------------------------------------------


def headline(report: ReportContents) -> str:
    """Return the verdict on a nightly in one line: `Failed: 2 failed, 40 passed`."""
    at_fault, unknown = judged(report.night, report.changes)
    word = "Failed" if at_fault else "Not all could be tested" if unknown else "Passed"
    return f"{word}: {', '.join(counted_by_verdict(report.night.verdicts)) or 'no test was run'}"


@dataclass(frozen=True)
class Tile:
    """A figure that tells how a nightly went.

    Attributes:
        label: what is counted, for figures with the nightly that they are compared with.
        count: how many results it concerns.
        detail: of which tests and targets they are, how many causes there are, and how far figures moved; "" for none.
        anchor: the part of the page that has them.
        is_bad: whether somebody has to look at it.
    """

    label: str
    count: int
    detail: str
    anchor: str
    is_bad: bool = True


def tiles(report: ReportContents, failures: Mapping[FailureKind, Sequence[FailureGroup]]) -> Iterator[Tile]:
    """Yield what one must know first: failures by kind, figures that moved, and what was not run.

    Args:
        report: the contents of the report.
        failures: its `sorted_failures`.
    """
    by_kind = {kind: list(of) for kind, of in groupby(groups(report.changes), key=_kind_of)}
    first = FailureKind.NEW if report.against is not None else FailureKind.ALL
    than = f" than nightly {report.against.name}" if report.against is not None else ""
    yield _of_failures(first.value, first, failures)
    yield _of_failures("already broken", FailureKind.BROKEN, failures)
    yield _of_changes("fixed", ChangeKind.FIXED, by_kind, is_bad=False)
    for kind in _COMPARED:
        yield _of_changes(f"{kind.value}{than}", kind, by_kind, is_bad=kind in WORSE)
    yield _of_failures("flaky", FailureKind.FLAKY, failures)
    yield _not_run(report, failures)
    for kind in (ChangeKind.LIMIT, ChangeKind.MISSING, ChangeKind.OUTPUTS):
        if (tile := _of_changes(kind.value, kind, by_kind)).count:
            yield tile


_COMPARED: Final[tuple[ChangeKind, ...]] = tuple(
    kind for kind in _FIGURE_KINDS if kind not in (ChangeKind.LESS_CORTEX_M, ChangeKind.MORE_CORTEX_M)
)
"""The kinds of changes that have a tile, also where there is none."""


def _of_failures(label: str, kind: FailureKind, failures: Mapping[FailureKind, Sequence[FailureGroup]]) -> Tile:
    found = failures.get(kind, ())
    keys = [result.key for one in found for result in one.results]
    detail = f"{_results(keys)}, {counted(len(found), 'cause')}" if keys else ""
    return Tile(label, len(keys), detail, kind.name.lower())


def _results(keys: Collection[Key]) -> str:
    """Return how many results there are, and of which they are: `2 results (1 test × 2 targets)`."""
    tests, targets = len({(key.suite, key.test) for key in keys}), len({key.target for key in keys})
    joined = "×" if len(keys) == tests * targets else "on"
    return f"{counted(len(keys), 'result')} ({counted(tests, 'test')} {joined} {counted(targets, 'target')})"


def _of_changes(
    label: str, kind: ChangeKind, by_kind: Mapping[ChangeKind, Sequence[ChangeGroup]], *, is_bad: bool = True
) -> Tile:
    found = by_kind.get(kind, ())
    keys = {change.key for group in found for change in group.changes}
    most = max(found, key=_share, default=None)
    far = in_percent(most.example) or difference(most.example) if most is not None else ""
    rows = f"in {counted(len(found), 'row')}" if kind in _FIGURE_KINDS else counted(len(found), "cause")
    told = (meaning(kind, found), _results(keys), rows) if found else ()
    detail = ", ".join(filter(None, (*told, f"up to {far}" if far else "")))
    return Tile(label, len(keys), detail, anchor(kind), is_bad)


def meaning(kind: ChangeKind, found: Iterable[ChangeGroup]) -> str:
    """Return what there is more or fewer of, where that is not time itself: `more instructions`; else ""."""
    figures = dict.fromkeys(group.example.figure for group in found)
    return f"{COUNTED[kind]} {' or '.join(figures)}" if kind in COUNTED and figures else ""


def _kind_of(group: ChangeGroup) -> ChangeKind:
    return group.kind


def _share(group: ChangeGroup) -> float:
    return group.example.share


def anchor(kind: ChangeKind) -> str:
    """Return the id of a kind of changes in the page."""
    return f"changes-{kind.name.lower()}"


def _not_run(report: ReportContents, failures: Mapping[FailureKind, Sequence[FailureGroup]]) -> Tile:
    infra = sum(len(one.results) for one in failures.get(FailureKind.INFRA, ()))
    of = {kind: sum(one.kind is kind for one in report.changes) for kind in _NOT_RUN}
    others = [text(of[kind]) for kind, text in _NOT_RUN.items() if of[kind]]
    detail = ", ".join([*([f"{infra} infrastructure"] if infra else []), *others])
    first = FailureKind.INFRA.name.lower() if infra else next((anchor(kind) for kind in of if of[kind]), "results")
    left = "" if report.night.complete else "tests are left"
    return Tile("not run", infra + sum(of.values()), ", ".join(filter(None, (detail, left))), first)


_NOT_RUN: Final[Mapping[ChangeKind, Callable[[int], str]]] = {
    ChangeKind.LEFT_OUT: lambda number: f"{counted(number, 'target')} left out",
    ChangeKind.SKIPPED: lambda number: f"{number} now skipped",
    ChangeKind.GONE: lambda number: f"{number} no longer there",
}


def moved_figures(changes: Sequence[Change]) -> list[tuple[ChangeKind, list[ChangeGroup]]]:
    """Return the groups of changes of figures by kind, those for the worse first; the largest share is first."""
    found = [one for one in groups(changes) if one.kind in _FIGURE_KINDS]
    found.sort(key=lambda one: (_FIGURE_KINDS.index(one.kind), -_share(one)))
    return [(kind, list(of)) for kind, of in groupby(found, key=_kind_of)]


def other_changes(changes: Sequence[Change]) -> list[tuple[ChangeKind, list[ChangeGroup]]]:
    """Return the groups of changes that are neither failures nor figures, by kind, gravest first."""
    apart = (*_TOLD_AS_FAILURES, *_FIGURE_KINDS)
    found = (one for one in groups(changes) if one.kind not in apart)
    return [(kind, list(of)) for kind, of in groupby(found, key=_kind_of)]
