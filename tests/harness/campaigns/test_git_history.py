"""Lines of commits, and worktrees of them, from real repositories that must stay as they were."""

from __future__ import annotations

from pathlib import Path

import pytest

from cortex_m_hil.campaigns.git_history import Repository, Worktree, variables
from cortex_m_hil.errors import BuildError, ConfigError
from repositories import Repository as Made
from repositories import history


def files(number: int) -> dict[str, str]:
    return {"src/thing.py": f"VALUE = {number}\n", f"only{number}": ""}


@pytest.fixture
def made(tmp_path: Path) -> Made:
    return history(tmp_path / "a repository", 4, files)


def test_a_line_has_its_ends_and_what_is_between(made: Made) -> None:
    found = Repository(made.path).line(made.commits[1], made.commits[4])
    assert [one.sha for one in found] == made.commits[1:]
    assert [one.subject for one in found] == [f"commit {number}" for number in range(1, 5)]
    assert found[0].author == "A" and found[0].date.startswith("20")


def test_merges_are_one_commit_of_the_line(made: Made) -> None:
    made.git("checkout", "--quiet", "-b", "side", made.commits[2])
    side = made.commit({"side": ""}, "on the side")
    made.git("checkout", "--quiet", "main")
    made.git("merge", "--quiet", "--no-ff", "-m", "merged", "side")
    new = made.git("rev-parse", "HEAD")
    found = Repository(made.path).line(made.commits[0], new)
    assert [one.subject for one in found] == [*(f"commit {number}" for number in range(5)), "merged"]
    assert found[-1].parents == (made.commits[4], side)
    assert "side" in Repository(made.path).diff_stat(found[-1])
    with pytest.raises(ConfigError, match=rf"not on the first-parent line.*\n.*take {made.commits[2][:10]}"):
        Repository(made.path).line(side, new)


def test_ends_that_cannot_be_are_told(made: Made, tmp_path: Path) -> None:
    repository = Repository(made.path)
    with pytest.raises(ConfigError, match="same commit"):
        repository.line(made.commits[1], made.commits[1])
    with pytest.raises(ConfigError, match=r"no ancestor(.|\n)*swapped"):
        repository.line(made.commits[3], made.commits[1])
    with pytest.raises(ConfigError, match="unknown revision 'nothing'"):
        repository.resolve("nothing")
    with pytest.raises(ConfigError, match="unknown revision '--all'"):
        repository.resolve("--all")
    made.git("checkout", "--quiet", "-b", "side", made.commits[1])
    side = made.commit({"side": ""})
    with pytest.raises(ConfigError, match=rf"last common commit is {made.commits[1][:10]}"):
        repository.line(side, made.commits[4])
    made.git("checkout", "--quiet", "--orphan", "other")
    other = made.commit({"other": ""})
    with pytest.raises(ConfigError, match="no commit in common"):
        repository.line(other, made.commits[4])
    made.git("clone", "--quiet", "--depth=2", f"file://{made.path}", "--branch", "main", str(tmp_path / "shallow"))
    with pytest.raises(ConfigError, match="unknown revision"):
        Repository(tmp_path / "shallow").resolve(made.commits[0])


@pytest.mark.parametrize("name", ["nothing", "file", "folder", "with\nnewline"])
def test_what_is_no_repository_is_told(name: str, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "folder").mkdir()
    with pytest.raises(ConfigError, match=r"is no git repository(.|\n)*--source"):
        Repository(tmp_path / name)


def test_a_folder_within_a_repository_is_told(made: Made) -> None:
    with pytest.raises(ConfigError, match="is the folder src/ of a repository"):
        Repository(made.path / "src")


def test_paths_are_no_patterns(made: Made) -> None:
    repository, ends = Repository(made.path), (made.commits[0], made.commits[4])
    assert repository.touching(*ends, ["src"]) == set(made.commits[1:])
    assert repository.touching(*ends, ["only2"]) == {made.commits[2]}
    for path in ("only*", "nothing", ":(exclude)src", "--all"):
        with pytest.raises(ConfigError, match="no commit of the range touches"):
            repository.touching(*ends, [path])


def test_a_removed_worktree_leaves_the_repository_unchanged(made: Made, tmp_path: Path) -> None:
    (made.path / "src" / "thing.py").write_text("changed by the user\n")
    (made.path / "untracked").touch()
    made.git("stash", "push", "--quiet")
    (made.path / "src" / "thing.py").write_text("changed again\n")
    made.git("add", "src")
    hook = made.path / ".git" / "hooks" / "post-checkout"
    hook.write_text(f"#!/bin/sh\ntouch {tmp_path}/hook-ran\n")
    hook.chmod(0o755)
    before = made.touched()
    tree = Worktree(Repository(made.path), tmp_path / "tree", incremental=False)
    tree.add(made.commits[4])
    for number in (4, 0, 2):
        tree.check_out(made.commits[number])
        assert (tree.path / "src" / "thing.py").read_text() == f"VALUE = {number}\n"
        assert {one.name for one in tree.path.glob("only*")} == {f"only{one}" for one in range(number + 1)}
        (tree.path / "left").mkdir()
        (tree.path / "src" / "thing.py").write_text("changed by the test\n")
    tree.remove()
    tree.remove()
    assert made.touched() == before
    assert not tree.path.exists() and not (tmp_path / "hook-ran").exists()


def test_a_worktree_of_a_killed_process_is_replaced(made: Made, tmp_path: Path) -> None:
    before = made.touched()
    place = tmp_path / "tree"
    Worktree(Repository(made.path), place, incremental=False).add(made.commits[4])
    (place / "left").touch()
    (made.path / ".git" / "worktrees" / "tree" / "index.lock").touch()
    again = Worktree(Repository(made.path), place, incremental=False)
    again.add(made.commits[1])
    again.check_out(made.commits[1])
    assert not (place / "left").exists()
    again.remove()
    assert made.touched() == before


def test_a_checkout_whose_name_has_several_lines_is_one(made: Made, tmp_path: Path) -> None:
    tree = Worktree(Repository(made.path), tmp_path / "a\nworktree b", incremental=False)
    tree.add(made.commits[1])
    assert Repository(made.path).checkouts() == [made.path.resolve(), tree.path]
    assert Repository(made.path / ".git").checkouts()
    tree.remove()
    assert Repository(made.path).checkouts() == [made.path.resolve()]


def test_ignored_files_stay_for_an_incremental_build(tmp_path: Path) -> None:
    made = history(tmp_path / "r", 2, lambda number: {".gitignore": "*.o\n", "a.c": str(number)})
    for incremental in (True, False):
        tree = Worktree(Repository(made.path), tmp_path / "tree", incremental=incremental)
        tree.add(made.commits[0])
        tree.check_out(made.commits[0])
        for name in ("a.o", "other"):
            (tree.path / name).touch()
        tree.check_out(made.commits[1])
        assert [(tree.path / name).exists() for name in ("a.o", "other")] == [incremental, False]
        tree.remove()


def test_a_checkout_that_fails_is_told(made: Made, tmp_path: Path) -> None:
    tree = Worktree(Repository(made.path), tmp_path / "tree", incremental=False)
    tree.add(made.commits[4])
    blob = made.git("rev-parse", f"{made.commits[2]}:src/thing.py")
    (made.path / ".git" / "objects" / blob[:2] / blob[2:]).unlink()
    with pytest.raises(BuildError, match="git checkout in"):
        tree.check_out(made.commits[2])
    tree.check_out(made.commits[1])
    tree.remove()


def test_the_worktree_comes_first_and_git_is_not_led_astray(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", "/users")
    monkeypatch.setenv("GIT_DIR", "/elsewhere")
    changed = variables(tmp_path, "src", "abc")
    assert changed["PYTHONPATH"] == f"{tmp_path}/src:/users" and "GIT_DIR" not in changed
    assert (changed["HIL_BISECT_WORKTREE"], changed["HIL_BISECT_COMMIT"]) == (str(tmp_path), "abc")
    assert variables(tmp_path, "", "abc")["PYTHONPATH"] == "/users"


def test_what_is_excluded_is_not_checked_out_and_need_not_be_there(tmp_path: Path) -> None:
    made = history(tmp_path / "repository", 2, lambda n: {"kept/a": f"{n}", "large[1]/b": f"large {n}", "large1/c": ""})
    before = made.touched()
    for commit in made.commits:
        blob = made.git("rev-parse", f"{commit}:large[1]/b")
        (made.path / ".git" / "objects" / blob[:2] / blob[2:]).unlink()
    repository = Repository(made.path)
    tree = Worktree(repository, tmp_path / "tree", incremental=False, excluded=["large[1]/"])
    tree.add(made.commits[0])
    for number in (0, 2, 1):
        tree.check_out(made.commits[number])
        assert sorted(one.name for one in tree.path.iterdir()) == [".git", "kept", "large1"]
        assert (tree.path / "kept" / "a").read_text() == f"{number}"
    tree.remove()
    assert made.touched() == before
    with pytest.raises(ConfigError, match="has no 'larger'"):
        repository.excludable(made.commits[2], ["kept", "larger"])


def test_a_checkout_of_an_object_that_is_not_there_says_what_may_be_done(tmp_path: Path) -> None:
    made = history(tmp_path / "repository", 1, lambda n: {"large": f"large {n}"})
    blob = made.git("rev-parse", f"{made.commits[1]}:large")
    (made.path / ".git" / "objects" / blob[:2] / blob[2:]).unlink()
    tree = Worktree(Repository(made.path), tmp_path / "tree", incremental=False)
    tree.add(made.commits[0])
    with pytest.raises(BuildError, match="git checkout in") as caught:
        tree.check_out(made.commits[1])
    assert "--exclude" in caught.value.hint
