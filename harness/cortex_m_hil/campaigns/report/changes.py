"""The changes from one nightly to another. Exact figures are compared exactly: one instruction more is a change.

Host seconds are not compared, since they depend on how busy the machine was; nor are the figures of a test whose tools
have changed.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any, Final, TypeAlias

from cortex_m_hil.campaigns.property_names import (
    BYTES,
    CORTEX_M_MACS,
    CYCLES,
    DECIBELS,
    ELF_BYTES,
    ELF_STORED_BYTES,
    FAKE_QUANT_QUANTA,
    FIT,
    INSTRUCTIONS,
    LAYERS,
    MAX_ABS_ERROR,
    MAX_QUANTA,
    OUTPUTS,
    PLANNED_BYTES,
    PLANNED_PEAK,
    PROGRAM,
    PTE_BYTES,
    QUARANTINE,
    QUARANTINE_ENDED,
    SQNR_DB,
    STACK_BYTES,
    fit_bytes,
)
from cortex_m_hil.campaigns.report.change_points import LONGEST, Shift, moved_parts, shifts
from cortex_m_hil.campaigns.report.nightly_results import (
    BUILTIN,
    FAILED,
    PASSED,
    WORST,
    Figures,
    Key,
    Night,
    Result,
    as_text,
    combined,
    comparable_values,
    is_named,
)
from cortex_m_hil.errors.text import counted
from cortex_m_hil.flow.coverage.counts import ClassCoverage, Counts
from cortex_m_hil.runner.run_results import Verdict

RECENT: Final = 30  # nightlies in which a test's verdicts are looked at
# The stack's peak depends on when an interrupt occurs, whose frame may be on top of it.
_LOOSE: Final = {STACK_BYTES: 108}
# Figures that are never zero if they were measured. A program may have no planned tensors.
_POSITIVE: Final = (
    *(INSTRUCTIONS, CYCLES, PTE_BYTES, ELF_BYTES, ELF_STORED_BYTES),
    *map(fit_bytes, ("program", "method", "stack")),
)


class ChangeKind(str, Enum):
    """The kinds of changes, gravest first."""

    NEW_FAILURE = "new failure"
    LIMIT = "beyond limit"
    MISSING = "missing figure"
    NOTHING_IN_COMMON = "nothing in common"
    NO_VERDICT = "no verdict"
    LEFT_OUT = "target left out"
    SKIPPED = "now skipped"
    FLAKY = "flaky"
    NEEDS_NONE = "quarantined, and passed"
    ENDED = "quarantine ended"
    RUNTIMES = "differs by runtime"
    LESS_ACCURATE = "less accurate"
    OUTPUTS = "changed outputs"
    SLOWER = "slower"
    LARGER = "larger"
    LESS_CORTEX_M = "less on Cortex-M kernels"
    UNCOVERED = "no longer covered"
    FIXED = "fixed"
    MORE_ACCURATE = "more accurate"
    FASTER = "faster"
    SMALLER = "smaller"
    MORE_CORTEX_M = "more on Cortex-M kernels"
    GONE = "no longer there"
    TOOLS = "tools"


_KINDS: Final = {
    INSTRUCTIONS: (ChangeKind.SLOWER, ChangeKind.FASTER),
    CORTEX_M_MACS: (ChangeKind.MORE_CORTEX_M, ChangeKind.LESS_CORTEX_M),
    SQNR_DB: (ChangeKind.MORE_ACCURATE, ChangeKind.LESS_ACCURATE),
    **dict.fromkeys(
        (MAX_QUANTA, FAKE_QUANT_QUANTA, MAX_ABS_ERROR), (ChangeKind.LESS_ACCURATE, ChangeKind.MORE_ACCURATE)
    ),
}
"""For each figure the kinds of change if it is higher and if it is lower; for bytes, LARGER and SMALLER."""
_FAR: Final = 1000.0  # decibels; more stand for no ratio that is a number
DIGITS: Final = 4  # of a figure that is no count
COUNTED: Final = {ChangeKind.SLOWER: "more", ChangeKind.FASTER: "fewer"}
"""Words for kinds of change that are counted, not timed: more or fewer instructions or cycles."""


@dataclass(frozen=True)
class FigureShare:
    """The share of an operator or a section in a changed figure, before and after; 0 where it does not occur."""

    name: str
    before: int
    after: int


@dataclass(frozen=True)
class Change:
    """A change from one nightly to another, or a problem within the new one.

    Attributes:
        key: the test and target; fields are "" where the change is about several.
        figure: the name of the figure; "" for verdicts.
        before, after: a verdict, digest, version or number as text.
        parts: the operators, sections or banks whose share of the figure changed.
        limit: the limit that a figure exceeds; for a measured figure, the night since which its level is new, if it was
            not the last.
        program: a name shared by all tests that run the same programs (`programs`); "" where it is not known.
        at_peak: of planned bytes, the operator that runs at the peak of the bank that changed most; "" if unknown.
        layer: of instructions, the operator with its module of which there are most more or fewer; None if unknown.
    """

    kind: ChangeKind
    key: Key
    figure: str = ""
    before: str = ""
    after: str = ""
    parts: tuple[FigureShare, ...] = ()
    limit: str = ""
    program: str = ""
    at_peak: str = ""
    layer: FigureShare | None = None

    @property
    def told(self) -> str:
        """Return the kind and the figure: `slower (more instructions)`, `larger planned_bytes`."""
        if self.kind in COUNTED:
            return f"{self.kind.value} ({COUNTED[self.kind]} {self.figure})"
        return f"{self.kind.value} {self.figure}".strip()

    @property
    def numbers(self) -> tuple[float, float] | None:
        """Return a figure's values before and after; None where these are no numbers."""
        try:
            return (float(self.before), float(self.after)) if self.figure else None
        except ValueError:
            return None

    @property
    def share(self) -> float:
        """Return how far a figure moved, relative to the value before; 0 where that is not known.

        Of decibels it is the ratio that they stand for: 3 dB less are twice the noise.
        """
        before, after = self.numbers or (0.0, 0.0)
        if self.figure.endswith(DECIBELS):
            return math.expm1(abs(after - before) * math.log(10) / 10) if abs(after - before) < _FAR else 0.0
        return abs((after - before) / before) if before and math.isfinite(after - before) else 0.0

    def fields(self) -> dict[str, Any]:
        """Return the change as fields for JSON."""
        told = {name: getattr(self, name) for name in ("figure", "before", "after", "limit", "at_peak")}
        parts = {"parts": [vars(part) for part in self.parts], "layer": vars(self.layer) if self.layer else None}
        return {"kind": self.kind.value, **vars(self.key), **told, **parts}


def programs(night: Night) -> dict[Key, str]:
    """Return for each key a name that is the same for all tests of the same programs, on all targets.

    Tests have the same programs if these have the same content on one target; for another target their content is
    different.
    """
    same: dict[str, str] = {}

    def name(one: str) -> str:
        while same.setdefault(one, one) != one:
            one = same[one]
        return one

    for key, result in night.results.items():
        if content := result.about.get(PROGRAM):
            test, other = name(f"{key.suite}::{key.test}"), name(" ".join(sorted(set(map(str, content)))))
            same[max(test, other)] = min(test, other)
    return {key: name(f"{key.suite}::{key.test}") for key in night.results}


def changes(old: Night, new: Night, history: Sequence[Night] = ()) -> list[Change]:
    """Return the changes from one nightly to another, gravest first, then by key.

    Measured figures are judged by their course over the nights. A figure that is missing in the old nightly is compared
    with the last one that has it, and a test whose verdicts differed without a change of the code is flaky. Figures are
    compared whatever the verdict is, but figures of a wrong program are no baseline. Outputs that differed by runtime
    in the old nightly too are no change.

    Args:
        old: the nightly to compare with.
        new: the nightly to judge; if it is incomplete, only its existing results.
        history: nightlies before the new one, oldest first.
    """
    known = {*_differing_runtimes(old)}
    found = [*_tools(old, new), *_measured([*history, new]), *_uncovered(old, new)]
    found += [*_nothing_in_common(old, new), *(one for one in problems_within(new) if one not in known)]
    found += _flaky([*history, *([] if old in history else [old]), new])
    until = [night for night in (*history, old) if night.began <= old.began and comparable(night.tools, new.tools)]
    for key, result in new.results.items():
        found += _verdict(old.results.get(key), result, same_code=_same_code(old, new))
        found += _figures(result, _measured_before(result, until), fit=new.fits(key.test))
    return in_order([*found, *_gone(old, new)])


def judged(night: Night, found: Iterable[Change]) -> tuple[bool, bool]:
    """Tell whether a nightly has a failure, and whether it has something that could not be tested."""
    verdicts = night.verdicts
    failed = any(verdicts[one] for one in FAILED) or any(
        one.kind in (ChangeKind.LIMIT, ChangeKind.MISSING) for one in found
    )
    return failed, bool(verdicts[Verdict.INFRA]) or not verdicts or not night.complete


def _gone(old: Night, new: Night) -> Iterator[Change]:
    """Yield changes for results that have disappeared, for suites, runtimes and targets of the new nightly.

    Others were not requested, or are reported as left out.
    """
    if not new.complete or new.shard not in ("1/1", old.shard):
        return
    asked = {(key.suite, key.runtime, key.target) for key in new.results}
    for key, one in old.results.items():
        if key not in new.results and (key.suite, key.runtime, key.target) in asked:
            yield Change(ChangeKind.GONE, key, before=one.verdict.value, after="-")


def _nothing_in_common(old: Night, new: Night) -> Iterator[Change]:
    """Yield a change if the two nightlies have no test in common, since then no other change can be found."""
    if new.tests and not any(one.key in old.results for one in new.tests):
        yield Change(ChangeKind.NOTHING_IN_COMMON, Key("", "", "", ""), after="no test of the one was run in the other")


def needs_history(old: Night, new: Night) -> bool:
    """Tell whether `changes` needs nightlies before the old one: for cycles, or a test that did not pass in it."""
    passed = {key for key, one in old.results.items() if one.verdict in PASSED}
    return any(
        CYCLES in one.figures or (one.figures and key in old.results and key not in passed)
        for key, one in new.results.items()
    )


def problems_within(new: Night) -> Iterator[Change]:
    """Yield the problems within a nightly, without a comparison.

    These are requested targets that did not run, outputs that differ by runtime, impossible zeros, quarantines that are
    needless or ended, and patterns (`fit:`, `models:`) that match no test.
    """
    for target, why in new.left_out.items():
        yield Change(ChangeKind.LEFT_OUT, Key("", "", "", target), after=why)
    yield from _differing_runtimes(new)
    for key, result in new.results.items():
        yield from _needless(result)
        for figure in sorted(result.figures):
            if figure in _POSITIVE and result.total(figure) == 0:
                yield Change(ChangeKind.MISSING, key, figure, "", "0")
    named = [("fit", one) for one in new.fit] + [("models", one) for one in new.models]
    for what, pattern in named if new.complete and new.shard == "1/1" else ():
        if not any(is_named(key.test, [pattern]) for key in new.results):
            yield Change(ChangeKind.MISSING, Key("", "", pattern, ""), what, "-", "-", limit="no test has such a name")


def _differing_runtimes(night: Night) -> Iterator[Change]:
    """Yield the tests that passed on `builtin` and on another runtime, with other outputs that are judged in quanta.

    Floats are left out: their last bits depend on the order of a sum.
    """
    for key, one in night.results.items():
        other = night.results.get(replace(key, runtime=BUILTIN))
        if key.runtime == BUILTIN or other is None or {one.verdict, other.verdict} != {Verdict.PASS}:
            continue
        judged_so = all({MAX_QUANTA, OUTPUTS} <= of.figures.keys() for of in (one, other))
        if judged_so and one.figures[OUTPUTS] != other.figures[OUTPUTS]:
            before, after = (f"{as_text(of.value(MAX_QUANTA))} on {of.key.runtime}" for of in (other, one))
            yield Change(ChangeKind.RUNTIMES, key, MAX_QUANTA, before, after)


def _measured_before(result: Result, nights: Sequence[Night]) -> list[Result]:
    """Return a test's earlier results whose figures can be compared, newest first, back to the last one that passed.

    They have the same engine and installed runtime, and programs that were right. A result that passed has all figures,
    so earlier ones are not needed.
    """
    found = []
    for night in reversed(nights):
        one = night.results.get(result.key)
        if one is not None and one.origin == result.origin and not one.went_wrong:
            found.append(one)
            if one.verdict in PASSED:
                break
    return found


def in_order(found: Iterable[Change]) -> list[Change]:
    """Sort changes, gravest first, then by key."""
    order = list(ChangeKind)
    return sorted(found, key=lambda one: (order.index(one.kind), one.key, one.figure))


def _same_code(old: Night, new: Night) -> bool:
    """Tell whether two nightlies ran the same clean commit with the same tools, so that differing tests are flaky."""
    known = bool(old.commit) and not old.dirty and not new.dirty
    return known and old.commit == new.commit and comparable(old.tools, new.tools)


def comparable(tools: Mapping[str, str], others: Mapping[str, str]) -> bool:
    """Tell whether figures are comparable: all tools that both nightlies had are of the same version.

    A tool that only one of them has belongs to targets that the other does not have.
    """
    return all(others[name] == version for name, version in tools.items() if name in others)


def _tools(old: Night, new: Night) -> Iterator[Change]:
    """Yield each tool, engine and installed runtime that differs once, and not for each test."""
    for name in sorted({*old.tools, *new.tools}):
        before, after = old.tools.get(name, "-"), new.tools.get(name, "-")
        if before != after:
            yield Change(ChangeKind.TOOLS, Key("", "", "", ""), name, before, after)
    for runtime, target in sorted({(key.runtime, key.target) for key in new.results}):
        where = [
            [one for key, one in night.results.items() if (key.runtime, key.target) == (runtime, target)]
            for night in (old, new)
        ]
        yield from _differing("engine", Key("", runtime, "", target), *({one.engine for one in of} for of in where))
        if runtime != BUILTIN:
            installed = ({name for one in of for name in one.installed} for of in where)
            yield from _differing("runtime", Key("", runtime, "", target), *installed)


def _differing(what: str, key: Key, old: set[str], new: set[str]) -> Iterator[Change]:
    before, after = (sorted(filter(None, names)) for names in (old, new))
    if before and after and before != after:
        yield Change(ChangeKind.TOOLS, key, what, ", ".join(before), ", ".join(after))


def _uncovered(old: Night, new: Night) -> Iterator[Change]:
    """Yield lines of kernels that tests executed before and no longer do.

    Nothing is yielded where counts were lost, or for an incomplete nightly.
    """
    if old.coverage is None or new.coverage is None or new.coverage.lost or not new.complete:
        return
    for name, now in new.coverage.classes.items():
        before = old.coverage.classes.get(name, ClassCoverage())
        for file, counts in now.files.items():
            if gone := counts.uncovered_since(before.files.get(file, Counts())):
                yield Change(ChangeKind.UNCOVERED, Key("", "builtin", "", name), file, "covered", f"not {gone}")


def _verdict(before: Result | None, after: Result, *, same_code: bool) -> Iterator[Change]:
    was = before.verdict if before is not None else None
    ended = before.verdict.value if before is not None else "-", after.ending
    both = {was, after.verdict}
    flaky = same_code and any(word in FAILED for word in both) and any(word in PASSED for word in both)
    if after.verdict in FAILED and was not in FAILED and not flaky:
        yield Change(ChangeKind.NEW_FAILURE, after.key, "", *ended)
    elif after.verdict is Verdict.INFRA and was is not Verdict.INFRA:
        yield Change(ChangeKind.NO_VERDICT, after.key, "", *ended)
    elif after.verdict is Verdict.SKIP and was not in (None, Verdict.SKIP):
        yield Change(ChangeKind.SKIPPED, after.key, "", *ended)
    elif after.verdict in PASSED and was in FAILED and not flaky:
        yield Change(ChangeKind.FIXED, after.key, "", *ended)
    if after.earlier and after.verdict in PASSED:
        yield Change(ChangeKind.FLAKY, after.key, "", ", ".join(after.earlier), ended[1])


def _flaky(nights: Sequence[Night]) -> Iterator[Change]:
    """Yield the last nightly's tests that passed and failed in nightlies of one commit and the same tools."""
    new = nights[-1]
    by_commit: dict[str, list[Night]] = {}
    for one in nights[-RECENT:]:
        if _same_code(one, one) and comparable(one.tools, new.tools):
            by_commit.setdefault(one.commit, []).append(one)
    for key, result in new.results.items():
        failed = total = 0
        for alike in by_commit.values() if result.verdict in (*FAILED, *PASSED) else ():
            verdicts = [one.results[key].verdict for one in alike if key in one.results]
            bad, good = (sum(verdict in words for verdict in verdicts) for words in (FAILED, PASSED))
            if bad and good:
                failed, total = failed + bad, total + bad + good
        if failed:
            told = f"failed in {failed} of {total} nightlies of the same code"
            yield Change(ChangeKind.FLAKY, key, "", told, result.ending)


def _needless(result: Result) -> Iterator[Change]:
    if QUARANTINE in result.figures and result.verdict is Verdict.PASS:
        yield Change(ChangeKind.NEEDS_NONE, result.key, QUARANTINE, str(result.figures[QUARANTINE][0]), "pass")
    if QUARANTINE_ENDED in result.figures:
        yield Change(ChangeKind.ENDED, result.key, "", str(result.figures[QUARANTINE_ENDED][0]), result.ending)


def _figures(after: Result, earlier: Sequence[Result], *, fit: bool) -> Iterator[Change]:
    """Yield changes of figures, each compared with the newest of the `earlier` results that has it.

    Figures of the least memory are compared only with `fit`, that is if they were requested.
    """
    for figure in sorted({name for one in (after, *earlier) for name in one.figures}):
        found = ((one, comparable_values(one, after, figure)) for one in earlier)
        before, values = next(((one, values) for one, values in found if values is not None), (None, None))
        if before is None or values is None:
            continue
        if figure == OUTPUTS:
            yield from _digests(after.key, *values)
        elif (is_exact(figure) or figure == CYCLES or figure in WORST) and (fit or not figure.startswith(FIT)):
            yield from _compared(figure, before, after, *values)


def _digests(key: Key, *values: Figures) -> Iterator[Change]:
    was, is_now = (" ".join(map(str, of)) for of in values)
    if was and was != is_now:
        yield Change(ChangeKind.OUTPUTS if is_now else ChangeKind.MISSING, key, OUTPUTS, was, is_now or "-")


_Nights: TypeAlias = "Sequence[tuple[str, Mapping[Key, tuple[float, Mapping[str, int]]]]]"
"""The nights of a board: name, and for each test the cycles of the test and of its operators."""


def _measured(nights: Sequence[Night]) -> Iterator[Change]:
    """Yield changes of boards' cycles that have a new level in the last nightly, among those with the same tools."""
    new = nights[-1]
    alike = [one for one in nights[-LONGEST:] if comparable(one.tools, new.tools)]
    boards: dict[tuple[str, str], list[Key]] = {}
    for key, result in new.results.items():
        if _cycles(result, result):
            boards.setdefault(key.target_runtime, []).append(key)
    for (target, runtime), keys in boards.items():
        every = [
            {key: one for key in keys if (one := _cycles(night.results.get(key), new.results[key]))} for night in alike
        ]
        known = [(night.name, cycles) for night, cycles in zip(alike, every, strict=True) if cycles]
        yield from _board(Key("", runtime, "", target), keys, known)


def _cycles(one: Result | None, like: Result) -> tuple[float, Mapping[str, int]] | None:
    """Return the cycles of a test and of its operators, if they can be compared with `like`, a later result.

    None if there are no cycles, if they are from another engine or installed runtime, or if the program was wrong.
    """
    if one is None or one.origin != like.origin or (one.went_wrong and one is not like):
        return None
    values = comparable_values(one, like, CYCLES)
    total = combined(CYCLES, values[0]) if values is not None else None
    return (total, one.parts_of(CYCLES)) if total else None


def _board(every: Key, keys: Sequence[Key], nights: _Nights) -> Iterator[Change]:
    """Yield the changes of one board.

    Args:
        every: the key for a change of all tests together.
        keys: the tests.
        nights: the name of each night, and its cycles by test.
    """
    series = {key: [of[key][0] if key in of else 0.0 for _, of in nights] for key in keys}
    shared, alone = shifts(series)
    if shared is not None:
        who = f"all but {counted(shared.stayed, 'test')}" if shared.stayed else "all tests"
        by = f"{100 * (shared.after - 1):+.1f} %"
        yield _moved(every, who, by, shared, keys, nights)
    for key, one in alone.items():
        yield _moved(key, f"{one.before:.0f}", f"{one.after:.0f}", one, [key], nights)


def _moved(key: Key, before: str, after: str, shift: Shift, keys: Sequence[Key], nights: _Nights) -> Change:
    """Return a shift as a change, with its operators, and with the night of its beginning, if it was not the last."""
    since = f"since nightly {nights[shift.at][0]}" if shift.at < len(nights) - 1 else ""
    return Change(_kind(shift.before, shift.after), key, CYCLES, before, after, _operators(shift, keys, nights), since)


def _operators(shift: Shift, keys: Sequence[Key], nights: _Nights) -> tuple[FigureShare, ...]:
    """Return the operators whose cycles shifted, using tests that have cycles by operator on most of the nights."""
    found = [[of[key][1] if key in of else {} for key in keys] for _, of in nights]
    often = [sum(map(bool, of)) for of in zip(*found[shift.begin :], strict=True)]
    there = [[of for of, number in zip(night, often, strict=True) if number == max(often)] for night in found]
    before, after = (
        [_sums_of_parts(night) for night in part if all(night)]
        for part in (there[shift.begin : shift.at], there[shift.at :])
    )
    return tuple(FigureShare(name, round(was), round(now)) for name, (was, now) in moved_parts(before, after).items())


def _sums_of_parts(parts: Iterable[Mapping[str, int]]) -> Mapping[str, int]:
    found = Counter[str]()
    for one in parts:
        found.update(one)
    return found


def _kind(before: float, after: float) -> ChangeKind:
    return ChangeKind.SLOWER if after > before else ChangeKind.FASTER


def is_exact(figure: str) -> bool:
    """Tell whether a figure is an exact count, and not measured by a clock."""
    return figure in (INSTRUCTIONS, CORTEX_M_MACS) or figure.endswith(BYTES)


def _compared(figure: str, before: Result, after: Result, *values: Figures) -> Iterator[Change]:
    was, is_now = (combined(figure, of) for of in values)
    if was is None:
        return
    if is_now == 0 and figure in _POSITIVE:
        return  # problems_within reports it
    if is_now is None:
        yield Change(ChangeKind.MISSING, after.key, figure, as_text(was), as_text(is_now))
        return
    if _is_told(figure, before, after, was, is_now):
        kind = _KINDS.get(figure, (ChangeKind.LARGER, ChangeKind.SMALLER))[is_now < was]
        of = [before.parts_of(figure), after.parts_of(figure)]
        parts = tuple(figure_shares(*of)) if all(of) and was == before.value(figure) else ()
        at_peak = _at_peak(after, parts[0].name) if figure == PLANNED_BYTES and parts else ""
        layer = _layer(before, after) if figure == INSTRUCTIONS and parts else None
        text = as_text if is_exact(figure) else _rounded
        yield Change(kind, after.key, figure, text(was), text(is_now), parts, at_peak=at_peak, layer=layer)


def _is_told(figure: str, before: Result, after: Result, was: float, is_now: float) -> bool:
    """Tell whether the difference of a figure is a change.

    References are computed on the host, so an output is more or less accurate only if its bits differ. An ELF is larger
    or smaller only if the bytes that are loaded are: it has debug information.
    """
    if figure not in _KINDS and not is_exact(figure):
        return False
    if not is_exact(figure):
        digests = [one.figures.get(OUTPUTS) for one in (before, after)]
        are_numbers = not math.isnan(was) and not math.isnan(is_now)
        return None not in digests and digests[0] != digests[1] and are_numbers and _rounded(was) != _rounded(is_now)
    if figure == ELF_BYTES:
        loaded, loaded_before = (one.value(ELF_STORED_BYTES) for one in (after, before))
        if loaded is not None and loaded_before is not None and (loaded - loaded_before) * (is_now - was) <= 0:
            return False
    return abs(is_now - was) > _LOOSE.get(figure, 0)


def _rounded(value: float) -> str:
    return f"{value:.{DIGITS}g}"


def _layer(before: Result, after: Result) -> FigureShare | None:
    """Return the layer whose instructions moved most; None where one of the results has none by layer."""
    of = [before.parts_of(LAYERS), after.parts_of(LAYERS)]
    return next(iter(figure_shares(*of)), None) if all(of) else None


def _at_peak(one: Result, bank: str) -> str:
    """Return the operator that runs at the peak of a bank; of several programs, of the one that holds most."""
    names = ((*name.partition(": "), nbytes) for name, nbytes in one.parts.get(PLANNED_PEAK, {}).items())
    held = {operator: nbytes for region, _, operator, nbytes in names if region == bank}
    return max(held, key=held.__getitem__, default="")


def figure_shares(before: Mapping[str, int], after: Mapping[str, int]) -> Iterable[FigureShare]:
    """Return the operators or sections whose share differs.

    Those that moved as their sum did are first, and of these the largest difference.
    """
    less = sum(after.values()) < sum(before.values())
    parts = [FigureShare(name, before.get(name, 0), after.get(name, 0)) for name in {**before, **after}]
    return sorted(
        (one for one in parts if one.before != one.after),
        key=lambda one: ((one.after < one.before) is not less, -abs(one.after - one.before), one.name),
    )
