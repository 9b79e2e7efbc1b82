"""Groups changes: all changes that come from one operator or one program are one entry."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby
from typing import Final, TypeAlias

from cortex_m_hil.campaigns.property_names import DECIBELS
from cortex_m_hil.campaigns.report.changes import Change, ChangeKind, is_exact
from cortex_m_hil.campaigns.report.nightly_results import BUILTIN, Key
from cortex_m_hil.errors.text import change_in_percent, counted, percent

PARTS_SHOWN: Final = 3
_OF_FIGURES: Final = (ChangeKind.SLOWER, ChangeKind.FASTER, ChangeKind.LARGER, ChangeKind.SMALLER)
_OF_SHARES: Final = (ChangeKind.LESS_CORTEX_M, ChangeKind.MORE_CORTEX_M)
_BY_PROGRAM: Final = (
    *(ChangeKind.LIMIT, ChangeKind.MISSING, ChangeKind.LESS_ACCURATE, ChangeKind.MORE_ACCURATE),
    *_OF_SHARES,
)
"""Kinds whose changes of one program are one group, whatever the values."""
_TOGETHER: Final = (ChangeKind.OUTPUTS, ChangeKind.GONE, ChangeKind.ENDED, ChangeKind.SKIPPED, ChangeKind.FIXED)
_Order: TypeAlias = "tuple[int, tuple[str, ...], tuple[str, ...]]"


def place(test: str, keys: Iterable[Key]) -> str:
    """Return a test with its targets, and its runtime where that is not `builtin`: `test_a.py::test_b [m4-qemu]`."""
    targets, runtimes = ([*dict.fromkeys(getattr(key, name) for key in keys)] for name in ("target", "runtime"))
    others = [runtime for runtime in runtimes if runtime != BUILTIN]
    names = "; ".join(filter(None, (", ".join(targets), ", ".join(others))))
    return " ".join(filter(None, (test, f"[{names}]" if names else "")))


@dataclass(frozen=True)
class TestRow:
    """A test with the targets on which the same happened to it."""

    test: str
    keys: tuple[Key, ...]

    @property
    def where(self) -> str:
        return place(self.test, self.keys)


@dataclass(frozen=True)
class ChangeRow(TestRow):
    """The same change of one test on several targets.

    Attributes:
        causes: what of the figure changed; "" if that is not known, or told with a row before.
    """

    change: Change
    causes: str = ""


@dataclass(frozen=True)
class TargetChange:
    """A figure that moved on some targets, and how far.

    Attributes:
        targets: their names.
        change: the change that is the largest there, relative to the value before.
        by: its difference; where others there differ, how far they moved at most.
        causes: what of the figure changed; "" if that is not known.
    """

    targets: str
    change: Change
    by: str
    causes: str


@dataclass(frozen=True)
class ChangeGroup:
    """A group of changes of one kind with one cause; it has at least one change."""

    changes: tuple[Change, ...]

    @property
    def kind(self) -> ChangeKind:
        return self.changes[0].kind

    @property
    def example(self) -> Change:
        """Return the change that is the largest relative to the value before."""
        return max(self.changes, key=_distance)

    @property
    def rows(self) -> list[ChangeRow]:
        """Return a row for each test and change; first the example's row, then rows with the same change."""
        found: dict[tuple[str, str], list[Change]] = {}
        example = self.example
        for one in sorted(self.changes, key=lambda one: (values(one) != values(example), one is not example)):
            found.setdefault((one.key.test, values(one)), []).append(one)
        rows, told, targets = [], {""}, set[str]()
        for (test, _), of in found.items():
            here = {one.key.target for one in of}
            causes = "" if here <= targets else self._causes(of[0])
            keys = tuple(dict.fromkeys(one.key for one in of))
            rows.append(ChangeRow(test, keys, of[0], "" if causes in told else causes))
            targets |= here
            told.add(causes)
        return rows

    @property
    def others(self) -> str:
        """Return how much the group has besides the first row: `2 more tests`, `3 more targets`; "" for nothing."""
        first = self.rows[0]
        tests = {one.key.test for one in self.changes} - {first.test}
        targets = {one.key.target for one in self.changes} - {key.target for key in first.keys}
        named = [(len(tests), "test"), (len(targets), "target")]
        return " and ".join(counted(number, f"more {what}") for number, what in named if number)

    @property
    def by_target(self) -> list[TargetChange]:
        """Return how far the figure moved on each target, furthest first; targets with the same change are one."""
        largest: dict[str, Change] = {}
        for one in sorted(self.changes, key=_distance, reverse=True):
            largest.setdefault(one.key.target, one)
        found: dict[tuple[str, str, str], list[Change]] = {}
        for one in largest.values():
            found.setdefault((values(one), self._by(one), self._causes(one)), []).append(one)
        return [
            TargetChange(", ".join(sorted(one.key.target for one in of)), of[0], by, causes)
            for (_, by, causes), of in found.items()
        ]

    def _on_target_of(self, one: Change) -> list[Change]:
        return [other for other in self.changes if other.key.target == one.key.target]

    def _by(self, one: Change) -> str:
        alike = len({difference(other) for other in self._on_target_of(one)}) == 1
        return difference(one) if alike else f"up to {in_percent(one) or difference(one)}"

    @property
    def causes(self) -> list[str]:
        """Return the operators, sections or banks of which the figure has more or less; [] if unknown.

        It is one text for all targets, or one for each, which begins with its name.
        """
        moved = self.by_target
        if len({one.causes for one in moved}) > 1:
            return [f"{one.targets}: {one.causes}" for one in moved if one.causes]
        return [moved[0].causes] if moved[0].causes else []

    def _causes(self, one: Change) -> str:
        """Return the operators, sections or banks of which a change has more or less; "" if unknown.

        `…` stands for others, also those that only further tests on its target have.
        """
        parts = [f"{part.name} {part.after - part.before:+d}" for part in one.parts[:PARTS_SHOWN]]
        told = {part.name for part in one.parts[:PARTS_SHOWN]}
        others = (part.name for change in self._on_target_of(one) for part in change.parts)
        parts += ["…"] if any(name not in told for name in others) else []
        peak = f"at its peak {one.at_peak}" if one.at_peak else ""
        layer = ""
        if one.layer is not None:
            layer = f"most by {one.layer.name}: {one.layer.after - one.layer.before:+d}"
        return "; ".join(filter(None, (", ".join(parts), layer, peak)))

    @property
    def what(self) -> str:
        """Return the example in words: the figure, its change, and the operators that cause it; "" for outputs."""
        return self._told(self.example.figure)

    @property
    def line(self) -> str:
        """Return the kind and the example in words: `slower (more instructions) 10 → 11: +1, +10 % (add +1)`."""
        return self._told(self.example.told) or self.kind.value

    def _told(self, begin: str) -> str:
        one = self.example
        if one.kind is ChangeKind.OUTPUTS:  # digests are of no use to people
            return ""
        causes = self._causes(one)
        listed = f"({causes})" if causes else ""
        told = " ".join(filter(None, (begin, values(one), listed)))
        if one.kind is ChangeKind.TOOLS and "-" not in (one.before, one.after):
            return f"{told}: figures of the one are not compared with those of the other"
        return f"{told}, {one.limit}" if one.limit else told


def values(one: Change) -> str:
    """Return the change of a value as text, for numbers with the difference, also in percent: `10 → 11: +1, +10 %`.

    "" where the value before or after is missing.
    """
    if one.before == one.after == "-":
        return ""
    told = before_after(one)
    return ": ".join(filter(None, (told, difference(one))))


def before_after(one: Change) -> str:
    """Return the value before and after: `10 → 11`, of a share in percent; the value after if there is no other."""
    numbers = one.numbers
    if one.kind in _OF_SHARES and numbers is not None:
        return " → ".join(map(percent, numbers))
    return f"{one.before} → {one.after}" if one.before else one.after


def difference(one: Change) -> str:
    """Return the difference of two numbers, also in percent: `+1, +10 %`; "" for other changes.

    Of decibels it is `-2.8 dB`, of a share `-12.5 percentage points`.
    """
    if one.numbers is None:
        return ""
    by = one.numbers[1] - one.numbers[0]
    if one.figure.endswith(DECIBELS):
        return f"{by:+.6g} dB"
    if one.kind in _OF_SHARES:
        return f"{100 * by:+.6g} percentage points"
    return ", ".join(filter(None, (f"{by:+.{15 if by.is_integer() else 6}g}", in_percent(one))))


def in_percent(one: Change) -> str:
    """Return the change of a number in percent: `+10 %`; "" for other changes, of nothing, of decibels and shares."""
    absolute = one.figure.endswith(DECIBELS) or one.kind in _OF_SHARES
    return "" if absolute or one.numbers is None else change_in_percent(*one.numbers)


def groups(changed: Iterable[Change]) -> list[ChangeGroup]:
    """Group changes by kind and cause, gravest kind first."""
    return [ChangeGroup(tuple(group)) for _, group in groupby(sorted(changed, key=_order), key=_order)]


def _order(one: Change) -> _Order:
    return list(ChangeKind).index(one.kind), (one.figure, one.key.runtime), tuple(_cause(one))


def _cause(one: Change) -> Iterator[str]:
    """Yield the values that changes of a kind and figure must have in common to be in one group.

    For figures that became slower or larger it is the operator that moved most; for infra errors the error and the
    target; for changed outputs, and for tests that are mended, skipped or gone, nothing; for other changes the program
    and the values.
    """
    if one.kind is ChangeKind.NO_VERDICT:  # of infrastructure, whatever was to run
        yield from (one.after, one.key.target)
    elif one.kind in _OF_FIGURES:
        yield from (part.name for part in one.parts[:1])  # the largest: on another target the rest may differ
        if not is_exact(one.figure):  # boards are grouped separately
            yield from (one.key.target, "a test" if one.key.test else "all tests")
    elif one.kind not in _TOGETHER:
        yield one.program or one.key.test
        if one.kind not in _BY_PROGRAM:
            yield from (one.before, one.after, one.limit)


def _distance(one: Change) -> tuple[float, float]:
    numbers = one.numbers
    return one.share, abs(numbers[1] - numbers[0]) if numbers else 0.0
