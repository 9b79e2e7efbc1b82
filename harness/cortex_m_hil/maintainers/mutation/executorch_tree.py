"""An ExecuTorch that is built again and again with a file of its source changed, and a runner with it."""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final

from cortex_m_hil.runner import executorch_install
from cortex_m_hil.runner.build import BuildTree
from cortex_m_hil.targets.connection import Elf
from cortex_m_hil.targets.model import Target

_OLD: Final = 60 * 10**9  # ns


class SourceTree:
    """As `BuildTree`, of files below `source` in targets.yaml: a copy of it, and a prefix that is built of that.

    The user's `build` command runs for each change. The user's own source and prefix stay as they are.
    """

    def __init__(self, target: Target, folder: Path) -> None:
        """Copies and builds. ConfigError without `source` and `build`, BuildError where the command fails."""
        install = executorch_install.buildable(target)
        assert install.source is not None
        self._original = install.source
        # Named alike: ExecuTorch finds its headers by the name of its folder.
        self._copy = folder / "source" / self._original.resolve().name
        _copy(self._original, self._copy)
        self._prefix = folder / "prefix" / target.cpu
        self._prefix.mkdir(parents=True)
        self._target = replace(target, executorch=replace(install, prefix=str(self._prefix), source=self._copy))
        self._log = folder / "executorch.log"
        self._runner = folder / "runner"
        self._runner.mkdir()
        executorch_install.rebuild(self._target, self._log)
        self._installed = dict(_contents(self._prefix))
        self._tree = BuildTree(self._target, self._runner, "executorch")
        self._changed: frozenset[str] = frozenset()

    def build(self, changed: Mapping[str, str]) -> Elf:
        """With the texts of these files instead, by their paths below `source`. The ELF is good until the next."""
        for path in self._changed - changed.keys():
            shutil.copyfile(self._original / path, self._copy / path)
        for path, text in changed.items():
            (self._copy / path).write_text(text)
        self._changed |= frozenset(changed)
        _make_old(self._prefix)
        executorch_install.rebuild(self._target, self._log)
        self._changed = frozenset(changed)
        self._make_changed_new()
        return self._tree.build({})

    def _make_changed_new(self) -> None:
        """So that the runner is linked anew: an install may cut times to whole seconds, which have passed already."""
        before, self._installed = self._installed, dict(_contents(self._prefix))
        for path, content in self._installed.items():
            if before.get(path) != content:
                os.utime(path)


def _contents(folder: Path) -> Iterator[tuple[Path, bytes]]:
    """Digests of the files."""
    for path in folder.rglob("*"):
        if path.is_file() and not path.is_symlink():
            yield path, hashlib.sha256(path.read_bytes()).digest()


def _make_old(folder: Path) -> None:
    """So that `cmake --install` replaces each file: it takes two whose times are within a second for the same."""
    for path in folder.rglob("*"):
        if path.is_file() and not path.is_symlink():
            status = path.stat()
            os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns - _OLD))


def _copy(source: Path, copy: Path) -> None:
    """Without what a build has left, and without git's own folders. Links stay links."""

    def left_out(folder: str, names: list[str]) -> list[str]:
        built = [name for name in names if (Path(folder) / name / "CMakeCache.txt").is_file()]
        return [*built, *(name for name in names if name == ".git")]

    shutil.copytree(source, copy, symlinks=True, ignore=left_out)
