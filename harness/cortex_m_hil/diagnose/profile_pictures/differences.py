"""The differences of a pictured profile from another: a row for each operator, the largest difference first."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from cortex_m_hil.diagnose.profile import RowChange
from cortex_m_hil.diagnose.profile_pictures.graph_table import Graph
from cortex_m_hil.diagnose.profile_pictures.picture_data import Comparison, short
from cortex_m_hil.errors.text import change_in_percent, counted, number_text, printable

_HALF: Final = 50.0  # of the width of a bar's picture: those of fewer ticks are left of it


@dataclass(frozen=True)
class DifferenceRow:
    """An operator that moved.

    Attributes:
        place: its module's path, or else its graph node.
        operator: its operator, before and after where another one replaced it.
        before, after: its ticks; None where it was not there.
        change: by how much they have grown, as text.
        in_percent: the same in percent, or that it may be none; "" where it is in one profile only.
        begin, width: the bar, in a picture of twice `_HALF`.
        planned: by how many bytes each bank holds more while it runs, as text.
        line: its line of the graph; None where it has gone.
    """

    place: str
    operator: str
    before: int | None
    after: int | None
    change: str
    in_percent: str
    begin: float
    width: float
    planned: str
    line: int | None

    @property
    def kind(self) -> str:
        """Return the class of its bar and its text."""
        return "" if self.change == "0" else "better" if self.change.startswith("-") else "worse"


@dataclass(frozen=True)
class Differences:
    """The differences of a profile to another one."""

    graph: Graph
    compared: Comparison

    @property
    def name(self) -> str:
        """Return what the profile is compared with: as it was named, and what ran on what."""
        before = self.compared.changes.before
        return printable(f"{self.compared.name} ({before.program} on {before.ran.label})")

    @property
    def whole(self) -> str:
        """Return the change of the whole run: `+15 000, +1.5 %`."""
        changes = self.compared.changes
        percent = change_in_percent(changes.before.ticks, changes.after.ticks) if changes.ticks else ""
        return ", ".join(filter(None, (signed(changes.ticks), percent)))

    @property
    def planned(self) -> str:
        return growth(self.compared.changes.banks)

    @property
    def outside(self) -> str:
        return signed(self.compared.changes.outside)

    @property
    def same(self) -> str:
        """Return how many operators have not moved."""
        changes = self.compared.changes
        return counted(len(changes.rows) - len(changes.moved), "operator")

    @property
    def rows(self) -> list[DifferenceRow]:
        """Return a row for each operator that moved, what moved most first."""
        moved = self.compared.changes.moved
        most = max((abs(one.ticks) for one in moved), default=0)
        return [self._row(one, most) for one in moved]

    def _row(self, one: RowChange, most: int) -> DifferenceRow:
        before, after = one.before, one.after
        names = dict.fromkeys(short(row) for row in (before, after) if row is not None)
        percent = change_in_percent(before.ticks, after.ticks) if before and after and one.ticks else ""
        width = _HALF * abs(one.ticks) / max(1, most)
        return DifferenceRow(
            printable(one.row.place), printable(" → ".join(names)), before.ticks if before else None,
            after.ticks if after else None, signed(one.ticks),
            "within the spread" if one.ticks and one.is_within_spread else percent,
            _HALF if one.ticks > 0 else _HALF - width, width, growth(one.planned),
            self.graph.line_of[after.index] if after else None,
        )  # fmt: skip


def signed(number: int) -> str:
    """Return a difference such as `+15 000`."""
    return f"{'+' if number > 0 else ''}{number_text(number)}"


def growth(sizes: Mapping[str, int]) -> str:
    """Return by how many bytes banks have grown: `sram +768`."""
    return printable(", ".join(f"{name} {signed(nbytes)}" for name, nbytes in sizes.items()))
