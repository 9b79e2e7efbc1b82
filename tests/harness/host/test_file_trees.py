"""What a walk through a folder sees, with links in it."""

from __future__ import annotations

from pathlib import Path

import pytest

from cortex_m_hil.host import file_trees


@pytest.fixture
def top(tmp_path: Path) -> Path:
    """A folder with a link to a folder beside it, one back to itself, one to nowhere and one to a file."""
    beside = tmp_path / "beside" / "deep"
    beside.mkdir(parents=True)
    (beside / "b.py").write_text("")
    top = tmp_path / "top"
    (top / "own").mkdir(parents=True)
    (top / "a.py").write_text("")
    (top / "linked").symlink_to(tmp_path / "beside")
    (top / "own" / "back").symlink_to(top)
    (top / "nowhere").symlink_to(tmp_path / "none")
    (top / "c.py").symlink_to(beside / "b.py")
    return top


def found(top: Path) -> list[str]:
    return [str(path.relative_to(top)) for path in file_trees.files(top)]


def test_links_are_followed_once_around(top: Path) -> None:
    assert found(top) == ["a.py", "c.py", "linked/deep/b.py"]


def test_the_same_folder_by_two_names_is_there_twice(top: Path) -> None:
    (top / "again").symlink_to(top / "linked")
    assert found(top) == ["a.py", "c.py", "again/deep/b.py", "linked/deep/b.py"]


def test_what_the_caller_takes_out_is_not_entered(top: Path) -> None:
    seen = []
    for folder, folders, _ in file_trees.walk(top):
        seen.append(folder.name)
        folders[:] = [name for name in folders if name != "linked"]
    assert seen == ["top", "own"]


def test_no_folder_has_no_files(tmp_path: Path) -> None:
    assert found(tmp_path / "none") == []
