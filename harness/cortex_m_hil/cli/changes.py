"""What commands say of changes between nightlies."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from cortex_m_hil.cli.output import cut
from cortex_m_hil.report.changes import Change
from cortex_m_hil.report.groups import Group, groups
from cortex_m_hil.text import counted

SHOWN: Final = 6  # lines


def lines_of_changes(changed: Sequence[Change], against: str, so_far: bool = False) -> Iterator[str]:
    """What fits a screen; `against` is empty where there was no nightly before. `so_far`: tests are left."""
    if not changed:
        yield f"nothing changed {'so far, ' if so_far else ''}since {against}"
        return
    yield f"changed since {against}:" if against else "limits that were not kept:"
    found = groups(changed)
    yield from (cut(f"  {_line(group)}") for group in found[:SHOWN])
    if len(found) > SHOWN:
        yield f"  and {counted(len(found) - SHOWN, 'line')} more: hil results compare"


def _line(group: Group) -> str:
    one = group.example
    words = [one.kind.value, group.what, one.key.test, f"[{one.key.target}]" if one.key.target else ""]
    more = f" and {counted(group.others, 'test')} more" if group.others else ""
    return " ".join(filter(None, words)) + more
