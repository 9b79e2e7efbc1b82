"""Groups changes: all changes that come from one operator or one program are one entry."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby
from typing import Final, TypeAlias

from cortex_m_hil.campaigns.report.changes import Change, ChangeKind, is_exact
from cortex_m_hil.campaigns.report.nightly_results import BUILTIN, Key
from cortex_m_hil.errors.text import change_in_percent, counted

PARTS_SHOWN: Final = 3
_OF_FIGURES: Final = (ChangeKind.SLOWER, ChangeKind.FASTER, ChangeKind.LARGER, ChangeKind.SMALLER)
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
    """The same change of one test on several targets."""

    change: Change


@dataclass(frozen=True)
class ChangeGroup:
    """A group of changes of one kind with one cause; it has at least one change."""

    changes: tuple[Change, ...]

    @property
    def kind(self) -> ChangeKind:
        return self.changes[0].kind

    @property
    def example(self) -> Change:
        """Return the largest of the changes."""
        return max(self.changes, key=_size)

    @property
    def furthest(self) -> Change:
        """Return the change that is the largest relative to the value before."""
        return max(self.changes, key=lambda one: one.share)

    @property
    def rows(self) -> list[ChangeRow]:
        """Return a row for each test and change; first the example's row, then rows with the same change."""
        found: dict[tuple[str, str], list[Change]] = {}
        example = self.example
        for one in sorted(self.changes, key=lambda one: (values(one) != values(example), one is not example)):
            found.setdefault((one.key.test, values(one)), []).append(one)
        return [ChangeRow(test, tuple(dict.fromkeys(one.key for one in of)), of[0]) for (test, _), of in found.items()]

    @property
    def others(self) -> str:
        """Return how much the group has besides the first row: `2 more tests`, `3 more targets`; "" for nothing."""
        first = self.rows[0]
        tests = {one.key.test for one in self.changes} - {first.test}
        targets = {one.key.target for one in self.changes} - {key.target for key in first.keys}
        named = [(len(tests), "test"), (len(targets), "target")]
        return " and ".join(counted(number, f"more {what}") for number, what in named if number)

    @property
    def by_target(self) -> list[tuple[str, Change]]:
        """Return the largest change on each target, with the target's name; targets with equal values are one."""
        largest: dict[str, Change] = {}
        for one in sorted(self.changes, key=_size, reverse=True):
            largest.setdefault(one.key.target, one)
        found: dict[str, list[Change]] = {}
        for one in largest.values():
            found.setdefault(values(one), []).append(one)
        return [(", ".join(sorted(one.key.target for one in of)), of[0]) for of in found.values()]

    @property
    def causes(self) -> str:
        """Return the operators, sections or banks of which the example's figure has more or less; "" if unknown.

        `…` stands for others, also those that only further tests have.
        """
        one = self.example
        parts = [f"{part.name} {part.after - part.before:+d}" for part in one.parts[:PARTS_SHOWN]]
        told = {part.name for part in one.parts[:PARTS_SHOWN]}
        parts += ["…"] if any(part.name not in told for change in self.changes for part in change.parts) else []
        peak = f"at its peak {one.at_peak}" if one.at_peak else ""
        layer = f"most by {one.layer.name}: {one.layer.after - one.layer.before:+d}" if one.layer else ""
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
        listed = f"({self.causes})" if self.causes else ""
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
    told = f"{one.before} → {one.after}" if one.before else one.after
    return ": ".join(filter(None, (told, difference(one))))


def difference(one: Change) -> str:
    """Return the difference of two numbers, also in percent: `+1, +10 %`; "" for other changes."""
    numbers = one.numbers
    return ", ".join(filter(None, (f"{numbers[1] - numbers[0]:+.15g}", in_percent(one)))) if numbers else ""


def in_percent(one: Change) -> str:
    """Return the change of a number in percent: `+10 %`; "" for other changes, and of nothing."""
    return change_in_percent(*one.numbers) if one.numbers else ""


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
        if one.kind not in (ChangeKind.LIMIT, ChangeKind.MISSING, ChangeKind.LESS_CORTEX_M, ChangeKind.MORE_CORTEX_M):
            yield from (one.before, one.after, one.limit)


def _size(one: Change) -> float:
    numbers = one.numbers
    return abs(numbers[1] - numbers[0]) if numbers else 0.0
