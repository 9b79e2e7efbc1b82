"""A copy of an ExecuTorch source that is rebuilt for each mutant with a changed file, together with a runner."""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final

from cortex_m_hil.runner import linked_executorch
from cortex_m_hil.runner.build import BuildTree
from cortex_m_hil.targets.connection import Elf
from cortex_m_hil.targets.target import Target

_OLD: Final = 60 * 10**9  # ns by which times of files are set back


class SourceTree:
    """A copy of the ExecuTorch source named in targets.yaml, and the installation that is built from it.

    It has the interface of `BuildTree`, for files below `source`. The user's `build` command runs for each change. The
    user's own source and installation are not changed.
    """

    def __init__(self, target: Target, folder: Path) -> None:
        """Copy and build the source.

        Raises:
            ConfigError: the target has no `source` and `build`.
            BuildError: the command fails.
        """
        install = linked_executorch.build_settings(target)
        assert install.source is not None
        self._original = install.source
        # The copy has the same name, because ExecuTorch finds its headers by the name of its folder.
        self._copy = folder / "source" / self._original.resolve().name
        _copy(self._original, self._copy)
        self._prefix = folder / "prefix" / target.cpu
        self._prefix.mkdir(parents=True)
        self._target = replace(target, executorch=replace(install, prefix=str(self._prefix), source=self._copy))
        self._log = folder / "executorch.log"
        self._runner = folder / "runner"
        self._runner.mkdir()
        linked_executorch.rebuild(self._target, self._log)
        self._installed = dict(_contents(self._prefix))
        self._tree = BuildTree(self._target, self._runner, "executorch")
        self._changed: frozenset[str] = frozenset()

    def build(self, changed: Mapping[str, str]) -> Elf:
        """Build a runner with changed files; `changed` has their new contents by path below `source`.

        The ELF is valid until the next build.
        """
        for path in self._changed - changed.keys():
            shutil.copyfile(self._original / path, self._copy / path)
        for path, text in changed.items():
            (self._copy / path).write_text(text)
        self._changed |= frozenset(changed)
        _make_old(self._prefix)
        linked_executorch.rebuild(self._target, self._log)
        self._changed = frozenset(changed)
        self._make_changed_new()
        return self._tree.build({})

    def _make_changed_new(self) -> None:
        """Set the times of changed files in the install to now, so that the runner is linked again.

        An installation may truncate times to whole seconds, which are then older than the last link.
        """
        before, self._installed = self._installed, dict(_contents(self._prefix))
        for path, content in self._installed.items():
            if before.get(path) != content:
                os.utime(path)


def _contents(folder: Path) -> Iterator[tuple[Path, bytes]]:
    """Yield each file below a folder with a digest of its content."""
    for path in folder.rglob("*"):
        if path.is_file() and not path.is_symlink():
            yield path, hashlib.sha256(path.read_bytes()).digest()


def _make_old(folder: Path) -> None:
    """Set the times of all files back by a minute, so that `cmake --install` replaces each.

    cmake takes two files whose times differ by less than a second for the same.
    """
    for path in folder.rglob("*"):
        if path.is_file() and not path.is_symlink():
            status = path.stat()
            os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns - _OLD))


def _copy(source: Path, copy: Path) -> None:
    """Copy a source without build folders and git's own folders; symbolic links are copied as links."""

    def left_out(folder: str, names: list[str]) -> list[str]:
        built = [name for name in names if (Path(folder) / name / "CMakeCache.txt").is_file()]
        return [*built, *(name for name in names if name == ".git")]

    shutil.copytree(source, copy, symlinks=True, ignore=left_out)
