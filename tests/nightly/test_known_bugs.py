"""Every known bug, in every way in which it is shown, on every target."""

from __future__ import annotations

from pathlib import Path

import pytest

from known_bugs.bugs import BUGS, Shown
from known_bugs.showing import judge

CASES = [
    pytest.param(shown, target, id=f"{bug.name}-{number}-{target}")
    for bug in BUGS
    for number, shown in enumerate(bug.shown, 1)
    for target in (*shown.shows, *shown.hidden)
]


@pytest.mark.parametrize(("shown", "target"), CASES)
def test_a_known_bug_is_caught_by_its_check_where_it_shows(shown: Shown, target: str, tmp_path: Path) -> None:
    assert judge(target, shown.right, tmp_path / "right") is None
    assert judge(target, shown.wrong, tmp_path / "wrong") == (shown.caught if target in shown.shows else None)
