"""The cache on disk, with many writers killed at their work: the own tests kill a few."""

from __future__ import annotations

from pathlib import Path

from kill_writers import kill_writers, wrong_entries


def test_two_hundred_killed_writers_leave_no_wrong_entry(tmp_path: Path) -> None:
    kill_writers(tmp_path, kills=200, workers=4, seed=2)
    assert wrong_entries(tmp_path) == []
