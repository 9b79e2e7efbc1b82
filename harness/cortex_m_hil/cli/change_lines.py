"""Lines of text about the changes between nightlies, which several commands print."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from cortex_m_hil.campaigns.report.change_groups import ChangeGroup, groups, values
from cortex_m_hil.campaigns.report.changes import Change
from cortex_m_hil.campaigns.store import StoredCampaign
from cortex_m_hil.cli.campaigns import in_store
from cortex_m_hil.cli.tables import cut
from cortex_m_hil.errors.text import counted

SHOWN: Final = 6  # entries that are shown if another command shows the rest


def lines_of_changes(changed: Sequence[Change], against: str, rest: str = "", *, so_far: bool = False) -> Iterator[str]:
    """Yield the lines about changes.

    Args:
        changed: all changes.
        against: the name of the earlier nightly; "" where there is none.
        rest: the command that shows all changes, named if they do not fit a screen; "": all changes are shown.
        so_far: whether tests of the nightly are left.
    """
    if not changed:
        yield f"nothing changed {'so far, ' if so_far else ''}since {against}"
        return
    yield f"changed since {against}:" if against else "limits that were not kept:"
    found = groups(changed)
    if not rest:
        yield from (line for group in found for line in _entry(group))
        return
    yield from (cut(f"  {_line(group)}") for group in found[:SHOWN])
    if len(found) > SHOWN:
        yield f"  and {counted(len(found) - SHOWN, 'more line')}: {rest}"


def all_changes(before: StoredCampaign | None, campaign: StoredCampaign, store_file: Path | None) -> str:
    """Return the command that shows all changes from one nightly, if there is one, to another."""
    words = f"compare {before.ordinal} {campaign.ordinal}" if before else f"report {campaign.ordinal} -o FOLDER"
    return f"hil results {words}{in_store(store_file)}"


def _line(group: ChangeGroup) -> str:
    more = f"and {group.others}" if group.others else ""
    return " ".join(filter(None, (group.line, group.rows[0].where, more)))


def _entry(group: ChangeGroup) -> Iterator[str]:
    """Yield the lines of a group: its tests and targets, and values where they differ from the first one's."""
    first, *rows = group.rows
    yield "  " + " ".join(filter(None, (group.line, first.where)))
    for row in rows:
        other = values(row.change) if group.what and values(row.change) != values(first.change) else ""
        causes = f"({row.causes})" if row.causes else ""
        yield "    and " + " ".join(filter(None, (other, causes, row.where)))
