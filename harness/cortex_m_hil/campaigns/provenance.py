"""Checks which modules the Python processes of a command imported: whether the command tested the intended checkout."""

from __future__ import annotations

import filecmp
import json
import math
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path
from typing import Any, Final

from cortex_m_hil.campaigns import provenance_hook
from cortex_m_hil.campaigns.git_history import Repository
from cortex_m_hil.errors import IdentityError

_HOOK: Final = "hil_provenance"
_FILES: Final = {
    # Older Pythons are used only by tools of the machine, not by tests.
    "sitecustomize.py": f"import sys\n\nif sys.version_info >= (3, 10):\n    import {_HOOK}\n\n    {_HOOK}.begin()\n",
    f"{_HOOK}-0.dist-info/METADATA": f"Metadata-Version: 2.1\nName: {_HOOK}\nVersion: 0\n",
    f"{_HOOK}-0.dist-info/entry_points.txt": f"[pytest11]\n{_HOOK} = {_HOOK}\n",
}
_PYTHONPATH: Final = "PYTHONPATH="


@dataclass(frozen=True)
class Objection:
    """A reason why a run says nothing about its tree, and the next step."""

    why: str
    hint: str


class Provenance:
    """The Python processes of one command, which have to import modules from `tree`, a checkout of `repository`.

    A module that a process would import from another checkout is imported from `tree` instead, whatever put that other
    checkout on sys.path: the working folder, PYTHONPATH, an editable install, `pythonpath` of pytest, a conftest.py.
    The exceptions are the test modules that pytest collects, and conftest.py beside them: these are imported from the
    paths that the command names.
    """

    def __init__(
        self, repository: Repository, tree: Path, folder: Path, commits: Sequence[str],
        python: str = "", built: float | None = None, *, unseen_build: bool = False,
    ) -> None:  # fmt: skip
        """Create `folder` again, for the command's processes.

        Args:
            repository: the repository; imports from its other checkouts are redirected to `tree`.
            tree: the top folder of the checkout under test.
            folder: a folder that is put on PYTHONPATH.
            commits: the commits whose tracked files are looked up.
            python: the folder of `tree` that is on PYTHONPATH, if any.
            built: the time when the build of the tree began, which may have installed it; None without a build.
            unseen_build: whether somebody else may have built the tree before, and installed it anywhere.
        """
        self._repository, self._tree, self._folder = repository, tree.resolve(), folder.resolve()
        self._commits, self._python, self._built, self._unseen_build = commits, python, built, unseen_build
        self._checkouts = [str(one) for one in repository.checkouts() if one != self._tree] or [str(self._folder)]
        shutil.rmtree(self._folder, ignore_errors=True)
        for name, text in _FILES.items():
            (self._folder / name).parent.mkdir(parents=True, exist_ok=True)
            (self._folder / name).write_text(text)
        (self._folder / "reports").mkdir()
        shutil.copy(provenance_hook.__file__, self._folder / f"{_HOOK}.py")
        self._projects = provenance_hook.projects_in(str(self._tree))
        settings = {"tree": str(self._tree), "checkouts": self._checkouts, "projects": sorted(self._projects)}
        (self._folder / "settings.json").write_text(json.dumps(settings))

    def variables(self, environment: Mapping[str, str]) -> dict[str, str]:
        """Return the environment, with the folder first on PYTHONPATH."""
        before = environment.get("PYTHONPATH", "")
        return {**environment, "PYTHONPATH": os.pathsep.join(filter(None, [str(self._folder), before]))}

    def words(self, command: Sequence[str]) -> list[str]:
        """Return the command, with the folder added to a PYTHONPATH that `env` in it sets."""
        begin = f"{_PYTHONPATH}{self._folder}{os.pathsep}"
        return [word.replace(_PYTHONPATH, begin, 1) if word.startswith(_PYTHONPATH) else word for word in command]

    def objection(self, *, is_pytest: bool) -> Objection | None:
        """Return why an ended command tested other code than the worktree's; None if it did not.

        pytest that used no file of the worktree tested other code; of other commands that is not known.
        """
        reports = [json.loads(file.read_text()) for file in sorted((self._folder / "reports").glob("*.json"))]
        found = next(self._of_checkouts(reports), None) or next(self._of_installed(reports), None)
        if found or not is_pytest or self._unseen_build or any(one["used"] for one in reports):
            return found
        return None if self._is_installed_by_build(reports) else self._unused(reports)

    def _is_installed_by_build(self, reports: Sequence[Mapping[str, Any]]) -> bool:
        began = math.inf if self._built is None else self._built
        files = [Path(file) for one in _installed(reports) for file, _ in one["files"]]
        return any(file.stat().st_ctime >= began for file in files if file.exists())

    def _of_checkouts(self, reports: Sequence[Mapping[str, Any]]) -> Iterator[Objection]:
        """Yield an objection for each executed file of another checkout, except for the tests' own files."""
        for one in (one for report in reports for one in report["local"] if self._is_checkout(one["top"])):
            top, path = Path(one["top"]), one["path"]
            what = f"{path}{' (' + one['module'] + ')' if one['module'] else ''}"
            if (self._tree / path).exists():
                by = f"; {one['by']} loads it by its path" if one["by"] else ""
                hint = "import it by its name: what is on sys.path is mapped to the worktree"
                yield Objection(f"{what} was executed from {top}, and not from the commit's worktree{by}", hint)
            elif self._repository.has(self._commits, path):
                yield Objection(
                    f"the tests import {what}, which this commit lacks: it was executed from {top}",
                    f"if it is the tests' own: --build 'mkdir -p {Path(path).parent}; cp {top / path} {path}'",
                )
            elif _is_product(top, path, self._repository):
                yield Objection(
                    f"the tests import {what}, a build product that git does not track: it was executed from {top}",
                    f"have --build LINE make {path} in each worktree",
                )

    def _is_checkout(self, top: str) -> bool:
        """Tell whether another repository is a checkout of this one: by git, by project name or by its commits."""
        known = top in self._checkouts or not self._projects.isdisjoint(provenance_hook.projects_in(top))
        return known or self._repository.is_shared_with(Path(top), self._commits)

    def _of_installed(self, reports: Sequence[Mapping[str, Any]]) -> Iterator[Objection]:
        """Yield an objection for each executed file of an installed copy that is also in the tree.

        If the tree was built, nothing is yielded.
        """
        for one in _installed(reports) if self._built is None else ():
            for file, name in one["files"]:
                root = self._root_of(name)
                if root is not None and not (self._unseen_build and _same(Path(file), self._tree / root / name)):
                    installed = f"{one['name']} {one['version']} as it is installed"
                    yield Objection(
                        f"{file} was executed, of {installed}, and not {root}{name} of the commit",
                        f"{_python_hint(root)}; or pip uninstall {one['name']}, or install it with pip install -e",
                    )

    def _unused(self, reports: Sequence[Mapping[str, Any]]) -> Objection:
        if not reports:
            why = "what the tests imported cannot be seen: their Python took no notice of PYTHONPATH"
            return Objection(why, "python -I and -E ignore it, tox and some wrappers replace it: call pytest directly")
        names = {name: file for report in reports for name, file in report["modules"].items()}
        known = ((name, file, self._root_of(f"{name}/__init__.py", f"{name}.py", name)) for name, file in names.items())
        for name, file, root in known:
            if root is not None:
                why = f"the tests used nothing of the commit's worktree: {name} was imported from {file}"
                return Objection(why, _python_hint(root))
        why = "the tests used nothing of the commit's worktree: no module of it was imported, no file opened"
        return Objection(why, "--python FOLDER puts a folder of it on PYTHONPATH; {worktree} in COMMAND is its path")

    def _root_of(self, *names: str) -> str | None:
        """Return the first folder of the tree, "" or with a slash, that has a file of `names`; None if none has."""
        folders = sorted(one.name for one in self._tree.iterdir() if one.is_dir() and one.name != ".git")
        roots = ["", *(f"{one}/" for one in filter(None, [self._python.rstrip("/"), "src", *folders]))]
        return next((root for root in roots for name in names if (self._tree / root / name).exists()), None)


class Sources:
    """Checks that this process's modules belong to its checkout, so that its results are about that commit."""

    def __init__(self) -> None:
        self._top = provenance_hook.top_of(os.path.realpath(Path.cwd()))
        self._checkouts = {str(one) for one in Repository(Path(self._top)).checkouts()} if self._top else set()
        self._names = provenance_hook.projects_in(self._top) if self._top else set()
        self._seen: set[str] = set()

    def check(self) -> None:
        """Raise IdentityError if a module that was imported since the last call belongs to another checkout."""
        for module, file in provenance_hook.module_files():
            if module in self._seen:
                continue
            self._seen.add(module)
            folder = os.path.dirname(os.path.realpath(file))
            other = provenance_hook.top_of(folder) if self._top else ""
            if self._is_other(other) and not provenance_hook.is_installed(folder, other):
                self._seen.discard(module)
                what = f"{module} is imported from {file}, and the results would be told as those of {self._top}"
                raise IdentityError(what, hint=f"pip install -e {self._top}, or leave {other} out of sys.path")

    def _is_other(self, top: str) -> bool:
        if top in ("", self._top):
            return False
        return top in self._checkouts or not self._names.isdisjoint(provenance_hook.projects_in(top))


def _same(one: Path, other: Path) -> bool:
    return one.is_file() and other.is_file() and filecmp.cmp(one, other, shallow=False)


def _installed(reports: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    return [one for report in reports for one in report["installed"]]


def _python_hint(root: str) -> str:
    return f"hil bisect start … --python {root.rstrip('/') or '.'}"


def _is_product(top: Path, path: str, repository: Repository) -> bool:
    """Tell whether a file is a product of a build: git does not track it, and it is in no nested repository."""
    parents = (top / path).parents
    if any((parent / ".git").exists() for parent in parents if parent != top and top in parent.parents):
        return False
    return path.endswith(tuple(EXTENSION_SUFFIXES)) or repository.ignores(top, path)
