"""The history of a user's repository, and a worktree for its commits. The user's own checkout is not touched."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from cortex_m_hil.errors import BuildError, ConfigError, ToolchainError
from cortex_m_hil.errors.text import printable
from cortex_m_hil.host import toolchain
from cortex_m_hil.host.paths import BISECT_CHECKOUTS, BISECT_WORKTREE

SECONDS: Final = 600.0  # time limit for one git command; a checkout of a large repository takes long
# Options of every call: the user's hooks are not run, their repository is not compacted, paths are no patterns.
_GIT: Final = (
    "git",
    "--literal-pathspecs",
    "-c",
    "core.hooksPath=/dev/null",
    "-c",
    "gc.auto=0",
    "-c",
    "advice.detachedHead=false",
)


def git_environment() -> dict[str, str]:
    """Return our environment without variables that git sets for hooks, such as GIT_DIR."""
    return {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}


@dataclass(frozen=True)
class Commit:
    """A commit; `date` is the author's, as ISO 8601, and `parents` are SHAs."""

    sha: str
    subject: str
    author: str
    date: str
    parents: tuple[str, ...]

    @property
    def short(self) -> str:
        return self.sha[:10]


class Repository:
    """A git repository, by its top folder or the folder of a bare one. ConfigError where there is none."""

    def __init__(self, path: Path) -> None:
        self.path = path.resolve()
        said = self._ask("rev-parse", "--show-prefix") if self.path.is_dir() else None
        if said is None or said.status != 0:
            detail = f": {said.err.strip()}" if said else ""
            raise ConfigError(f"{self.path} is no git repository{detail}", hint="--source names the top of a checkout")
        if prefix := said.out.rstrip("\n"):
            raise ConfigError(
                f"{self.path} is the folder {prefix} of a repository", hint="--source names its top folder"
            )

    def _ask(self, *words: str, at: Path | None = None) -> toolchain.ToolOutput:
        return toolchain.run_tool([*_GIT, "-C", str(at or self.path), *words], SECONDS, env=git_environment())

    def git(self, *words: str, at: Path | None = None) -> str:
        """Run git, and return its output. Raises ToolchainError with git's message where it fails."""
        said = self._ask(*words, at=at)
        if said.status != 0:
            what = printable(said.err.strip().splitlines()[-1] if said.err.strip() else f"status {said.status}")
            hint = "git's words are above; it may want room on the disk, or an object that this clone lacks (--exclude)"
            verb = next(word for word in words if word != "-c" and "=" not in word)
            raise ToolchainError(f"git {verb} in {at or self.path}: {what}", log=said.err, hint=hint)
        return said.out

    def resolve(self, revision: str) -> str:
        """Return the SHA of a revision's commit. Raises ConfigError where there is no such revision."""
        said = self._ask("rev-parse", "--verify", "--quiet", "--end-of-options", f"{revision}^{{commit}}")
        sha = said.out.strip()
        if said.status != 0 or not sha:
            raise ConfigError(
                f"unknown revision {revision!r} in {self.path}", hint="git log names those that there are"
            )
        return sha

    def line(self, old: str, new: str) -> list[Commit]:
        """Return the commits from `old` to `new`, both of them SHAs, by first parents.

        Raises:
            ConfigError: `old` is no first-parent ancestor of `new`.
        """
        if old == new:
            raise ConfigError("both ends are the same commit", hint="git bisect's order: the new end, then the old one")
        if self._ask("merge-base", "--is-ancestor", old, new).status != 0:
            raise ConfigError(f"{old[:10]} is no ancestor of {new[:10]}", hint=self._why_no_ancestor(old, new))
        line = self._commits(f"{old}..{new}")
        first = line[0].parents[:1]
        if first != (old,):
            hint = f"it came in by a merge: take {first[0][:10]} for the old end" if first else "the clone ends there"
            raise ConfigError(f"{old[:10]} is not on the first-parent line of {new[:10]}", hint=hint)
        return [*self._commits(old, "--no-walk"), *line]

    def _why_no_ancestor(self, old: str, new: str) -> str:
        if self._ask("merge-base", "--is-ancestor", new, old).status == 0:
            return "the ends are swapped: the new end comes first, then the old one"
        if self._ask("rev-parse", "--is-shallow-repository").out.strip() == "true":
            return "the clone is shallow: git fetch --unshallow"
        base = self._ask("merge-base", old, new).out.strip()
        return f"their last common commit is {base[:10]}: is it good?" if base else "they have no commit in common"

    def _commits(self, *which: str) -> list[Commit]:
        form = "--format=tformat:%H%x00%P%x00%an%x00%aI%x00%s"
        out = self.git("log", "--first-parent", "--reverse", "--no-show-signature", form, *which, "--")
        return [_parse(row) for row in out.split("\n") if row]

    def touching(self, old: str, new: str, paths: Sequence[str]) -> set[str]:
        """Return the commits of the line that change one of the paths.

        ConfigError for a path that no commit changes.
        """
        found: set[str] = set()
        for path in paths:
            shas = self.git("rev-list", "--first-parent", f"{old}..{new}", "--", path).split()
            if not shas:
                raise ConfigError(
                    f"no commit of the range touches {path!r}", hint="--likely is relative to the source's top"
                )
            found |= set(shas)
        return found

    def touching_names(self, old: str, new: str, words: Sequence[str]) -> set[str]:
        """Return the commits of the line that change a file whose name contains one of the words, ignoring case."""
        if not words:
            return set()
        asked = "log", "--first-parent", "-m", "--no-renames", "--name-only", "--format=%x00%H", f"{old}..{new}"
        found = set()
        for entry in self.git(*asked).split("\0")[1:]:
            sha, *paths = entry.split()
            if any(word in Path(path).name.lower() for path in paths for word in words):
                found.add(sha)
        return found

    def checkouts(self) -> list[Path]:
        """Return the top folders of all checkouts that git knows, the main one first.

        A folder's name may contain newlines.
        """
        said = self.git("worktree", "list", "--porcelain")  # `-z` needs git 2.36
        return [Path(one).resolve() for one in re.findall(r"^worktree (.*?)\n(?:HEAD |bare$)", said, re.M | re.S)]

    def has(self, commits: Sequence[str], path: str) -> bool:
        """Tell whether any of the commits contains the path."""
        return any(self._ask("cat-file", "-e", f"{commit}:{path}").status == 0 for commit in commits)

    def is_shared_with(self, other: Path, commits: Sequence[str]) -> bool:
        """Tell whether the repository of another checkout has one of the commits, too."""
        return any(self._ask("cat-file", "-e", self.resolve(one), at=other).status == 0 for one in commits)

    def ignores(self, top: Path, path: str) -> bool:
        """Tell whether the checkout at `top` has a file there that git ignores."""
        return bool(self.git("ls-files", "--others", "--ignored", "--exclude-standard", "--", path, at=top))

    def diff_stat(self, commit: Commit) -> str:
        """Return git's summary of the commit's difference from its first parent."""
        return self.git("diff", "--stat=100", "--no-ext-diff", "--no-color", f"{commit.sha}^1", commit.sha).rstrip("\n")

    def excludable(self, commit: str, paths: Sequence[str]) -> None:
        """Raise ConfigError for a path that is not in the commit."""
        for path in paths:
            if not self.git("ls-tree", "--name-only", commit, "--", path.strip("/")).strip():
                raise ConfigError(f"{commit[:10]} has no {path!r}", hint="--exclude is relative to the source's top")


def _literally(path: str) -> str:
    """Return a path as a pattern in gitignore's syntax, for a sparse checkout."""
    return re.sub(r"([\\*?\[\]])", r"\\\1", path)


def _parse(row: str) -> Commit:
    sha, parents, author, date, subject = row.split("\0")
    return Commit(sha, printable(subject), printable(author), date, tuple(parents.split()))


class Worktree:
    """A git worktree at `path`, without the paths in `excluded`; an earlier process's worktree is removed first."""

    def __init__(self, repository: Repository, path: Path, *, incremental: bool, excluded: Sequence[str] = ()) -> None:
        self._repository, self.path, self._incremental = repository, path.resolve(), incremental
        self._patterns = ["/*", *("!/" + _literally(one.strip("/")) for one in excluded)] if excluded else []

    def add(self, sha: str) -> None:
        self.remove()
        self._repository.git("worktree", "add", "--force", "--no-checkout", "--detach", str(self.path), sha)
        if self._patterns:
            file = Path(self._repository.git("rev-parse", "--git-path", "info/sparse-checkout", at=self.path).strip())
            file.parent.mkdir(exist_ok=True)
            file.write_text("".join(f"{one}\n" for one in self._patterns))

    def check_out(self, sha: str) -> None:
        """Check a commit out, and remove all other files; with `incremental`, ignored files are kept.

        Raises:
            BuildError: git fails.
        """
        try:
            # Not by `git sparse-checkout`, which writes to the configuration of the user's repository.
            sparse = ["-c", "core.sparseCheckout=true", "-c", "core.sparseCheckoutCone=false"] if self._patterns else []
            self._repository.git(*sparse, "checkout", "--quiet", "--force", "--detach", sha, at=self.path)
            self._repository.git("clean", "-ffdq" if self._incremental else "-ffdxq", at=self.path)
        except ToolchainError as error:
            raise BuildError(error.message, log=error.log, hint=error.hint) from error

    def remove(self) -> None:
        """Remove the worktree's folder and git's record of the worktree. A second call does nothing."""
        shutil.rmtree(self.path, ignore_errors=True)
        if self.path in self._repository.checkouts():
            self._repository.git("worktree", "remove", "--force", "--force", str(self.path))


def variables(worktree: Path, python: str, commit: str, checkouts: Sequence[Path] = ()) -> Mapping[str, str]:
    """Return the environment of the commands that are run for a commit.

    `checkouts` are those of the repository: of firmware in them the worktree's is tested.

    No bytecode is written: Python matches it by the second and the size of its source, which two commits may share.
    """
    ours = git_environment()
    paths = [str(worktree / python), *filter(None, [ours.get("PYTHONPATH", "")])] if python else []
    changed = {"PYTHONPATH": os.pathsep.join(paths)} if paths else {}
    return {
        **ours, **changed, "PYTHONDONTWRITEBYTECODE": "1", "HIL_BISECT_COMMIT": commit,
        BISECT_WORKTREE: str(worktree), BISECT_CHECKOUTS: json.dumps([str(one) for one in checkouts]),
    }  # fmt: skip
