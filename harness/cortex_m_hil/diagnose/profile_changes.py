"""Compares two profiles instruction by instruction; instructions are matched by the user's module path and operator."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from itertools import zip_longest

from cortex_m_hil.diagnose.profile import Profile, ProfileRow
from cortex_m_hil.errors import ConfigError


@dataclass(frozen=True)
class RowChange:
    """An instruction of two profiles; None in the profile that has no such instruction."""

    before: ProfileRow | None
    after: ProfileRow | None

    @property
    def row(self) -> ProfileRow:
        """Return the instruction as it is now; as it was where it has gone."""
        found = self.after or self.before
        assert found is not None
        return found

    @property
    def ticks(self) -> int:
        """Return by how much the ticks have grown; below 0 where there are fewer."""
        return (self.after.ticks if self.after else 0) - (self.before.ticks if self.before else 0)

    @property
    def ratio(self) -> float | None:
        """Return the growth of the ticks as a part of what they were; None where they were none."""
        return self.ticks / self.before.ticks if self.before and self.before.ticks else None

    @property
    def planned(self) -> Mapping[str, int]:
        """Return by how many bytes each bank holds more while the instruction runs; banks without change are left out.

        Only where the instruction is in both profiles.
        """
        return grown(self.before.alive, self.after.alive) if self.before and self.after else {}

    @property
    def is_within_spread(self) -> bool:
        """Tell whether runs of both profiles gave the same ticks, so that the change may be none."""
        one, other = self.before, self.after
        return one is not None and other is not None and one.low <= other.high and other.low <= one.high


@dataclass(frozen=True)
class ProfileChanges:
    """The changes from one profile to another: `rows` has all instructions of both, what moved most first."""

    before: Profile
    after: Profile
    rows: tuple[RowChange, ...]

    @property
    def ticks(self) -> int:
        """Return by how much the ticks of the whole run have grown. It is the sum of all rows' and of `outside`."""
        return self.after.ticks - self.before.ticks

    @property
    def outside(self) -> int:
        return self.after.outside - self.before.outside

    @property
    def ratio(self) -> float | None:
        return self.ticks / self.before.ticks if self.before.ticks else None

    @property
    def banks(self) -> Mapping[str, int]:
        """Return by how many bytes the memory plan has grown in each bank; banks without change are left out."""
        return grown(self.before.banks, self.after.banks)

    @property
    def moved(self) -> tuple[RowChange, ...]:
        """Return the instructions whose ticks or planned bytes differ."""
        return tuple(one for one in self.rows if one.ticks or one.planned)

    @property
    def same_inputs(self) -> bool:
        return self.before.inputs_digest == self.after.inputs_digest


def compare(before: Profile, after: Profile) -> ProfileChanges:
    """Compare two profiles.

    Raises:
        ConfigError: their clocks or instruction sets differ, so their ticks are not comparable.
    """
    for what, one, other in (
        ("clock", before.clock.value, after.clock.value),
        ("ISA class", before.isa, after.isa),
    ):
        if one != other:
            where = f"{before.ran.display_name} has {one}, {after.ran.display_name} {other}"
            raise ConfigError(
                f"two profiles of another {what} are not comparable: {where}", hint="profile both on one target"
            )
    rows = sorted(_matched(before.rows, after.rows), key=_order)
    return ProfileChanges(before, after, tuple(rows))


def grown(before: Mapping[str, int], after: Mapping[str, int]) -> dict[str, int]:
    """Return for each name by how much its number has grown, without those that have not changed."""
    found = {name: after.get(name, 0) - before.get(name, 0) for name in {**before, **after}}
    return {name: growth for name, growth in found.items() if growth}


def _order(one: RowChange) -> tuple[int, int, int]:
    return -abs(one.ticks), -sum(map(abs, one.planned.values())), one.row.index


def _matched(before: Sequence[ProfileRow], after: Sequence[ProfileRow]) -> Iterator[RowChange]:
    """Yield pairs of instructions of the same module: first equal operators in order, then what replaced another."""
    old, new = _by_module(before), _by_module(after)
    for module in dict.fromkeys((*new, *old)):
        mine, theirs = old.get(module, []), new.get(module, [])
        ours, others = ([row.operator for row in rows] for rows in (mine, theirs))
        for _, i, i_end, j, j_end in SequenceMatcher(None, ours, others, autojunk=False).get_opcodes():
            yield from (RowChange(*pair) for pair in zip_longest(mine[i:i_end], theirs[j:j_end]))


def _by_module(rows: Sequence[ProfileRow]) -> dict[str, list[ProfileRow]]:
    found: dict[str, list[ProfileRow]] = {}
    for row in rows:
        found.setdefault(row.module, []).append(row)
    return found
