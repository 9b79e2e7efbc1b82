"""Small git repositories for tests, and the parts of one that a search must not change."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path

Files = Mapping[str, str]
_PERSON = {"NAME": "A", "EMAIL": "a@b"}
_IDENTITY = {f"GIT_{who}_{name}": text for who in ("AUTHOR", "COMMITTER") for name, text in _PERSON.items()}


class Repository:
    """A repository with a checkout at `path`; `commits` are the SHAs of its line, oldest first."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.commits: list[str] = []
        path.mkdir(parents=True)
        self.git("init", "--quiet", "--initial-branch=main")

    def git(self, *words: str) -> str:
        environment = {**os.environ, **_IDENTITY, "GIT_CONFIG_GLOBAL": os.devnull}
        done = subprocess.run(
            ["git", *words], cwd=self.path, env=environment, capture_output=True, text=True, check=True, timeout=60
        )
        return done.stdout.strip()

    def commit(self, files: Files, subject: str = "a change") -> str:
        for name, text in files.items():
            file = self.path / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)
        self.git("add", "--all")
        self.git("commit", "--quiet", "--allow-empty", "-m", subject)
        self.commits.append(self.git("rev-parse", "HEAD"))
        return self.commits[-1]

    def touched(self) -> dict[str, str]:
        """Return everything in the repository that a search must not change."""
        asked = {
            "status": ("status", "--porcelain=v2", "--branch", "--ignored"), "index": ("ls-files", "--stage"),
            "refs": ("for-each-ref",), "stash": ("stash", "list"), "worktrees": ("worktree", "list", "--porcelain"),
            "config": ("config", "--local", "--list"), "reflog": ("reflog",),
        }  # fmt: skip
        said = {name: self.git(*words) for name, words in asked.items()}
        return {**said, "folders": " ".join(sorted(one.name for one in (self.path / ".git").iterdir()))}


def history(path: Path, commits: int, files: Callable[[int], Files]) -> Repository:
    """Make a repository with commits 0 … `commits`, whose files are those of `files`."""
    made = Repository(path)
    for number in range(commits + 1):
        made.commit(files(number), f"commit {number}")
    return made
