"""Changes that belong together: all tests in which the same operators of a figure changed on the same target."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import groupby
from typing import Final

from cortex_m_hil.report.changes import Change, Kind

PARTS_SHOWN: Final = 3
_TOGETHER: Final = (
    Kind.SLOWER,
    Kind.FASTER,
    Kind.LARGER,
    Kind.SMALLER,
    Kind.OUTPUTS,
    Kind.GONE,
    Kind.ENDED,
    Kind.SKIPPED,
)


@dataclass(frozen=True)
class Group:
    """At least one change, all of one kind."""

    changes: tuple[Change, ...]

    @property
    def example(self) -> Change:
        """The largest of them."""
        return max(self.changes, key=_size)

    @property
    def others(self) -> int:
        return len(self.changes) - 1

    @property
    def what(self) -> str:
        """The figure of the example, from what to what, and the operators that have it."""
        one = self.example
        if one.kind is Kind.OUTPUTS:  # digests tell nobody anything
            return ""
        values = f"{one.before} → {one.after}" if one.before else one.after
        parts = [f"{part.name} {part.after - part.before:+d}" for part in one.parts[:PARTS_SHOWN]]
        listed = f"({', '.join(parts)}{', …' if one.parts[PARTS_SHOWN:] else ''})" if parts else ""
        told = " ".join(filter(None, (one.figure, values, listed)))
        if one.kind is Kind.TOOLS and "-" not in (one.before, one.after):
            return f"{told}: figures of the one are not compared with those of the other"
        return f"{told}, {one.limit}" if one.limit else told


def groups(changed: Iterable[Change]) -> list[Group]:
    """Gravest kind first."""
    return [Group(tuple(group)) for _, group in groupby(sorted(changed, key=_order), key=_order)]


def _order(one: Change) -> tuple[int, str, str, str, tuple[str, ...]]:
    alone = "" if one.kind in _TOGETHER else one.key.test
    return list(Kind).index(one.kind), one.figure, one.key.target, alone, tuple(part.name for part in one.parts)


def _size(one: Change) -> float:
    try:
        return abs(float(one.after) - float(one.before))
    except ValueError:
        return 0.0
