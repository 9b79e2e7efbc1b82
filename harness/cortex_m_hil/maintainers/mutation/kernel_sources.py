"""The sources of kernels, builtin or of an ExecuTorch, with all their mutants and the operators of each mutant."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path, PurePath
from typing import Final

from cortex_m_hil.errors import ConfigError
from cortex_m_hil.host import file_trees
from cortex_m_hil.maintainers.mutation.kernel_calls import KernelCalls
from cortex_m_hil.maintainers.mutation.source_mutants import SourceMutant, mutants_of

FOLDER: Final = PurePath("runtime/builtin")  # below firmware/
OPERATORS: Final = "operators.yaml"  # ExecuTorch's table of Cortex-M operators
_ENTRY: Final = re.compile(r"^- func: ([^\s(]+)\(.*?^ +kernel_name: (?:\w+::)*(\w+)", re.M | re.S)


@dataclass(frozen=True, eq=False)
class Kernels:
    """The sources of kernels.

    Attributes:
        sources: the contents of files by path below `top`.
        rows: the table of operators, in the form of operators.inc.
        top: the name of the folder in messages and diffs.
    """

    sources: dict[str, str]
    rows: str
    top: str = "firmware"

    @classmethod
    def of(cls, firmware: Path) -> Kernels:
        folder = firmware / FOLDER / "kernels"
        tests = {"testing.cpp", "testing_blocks.cpp"}  # kernels that only runners for tests have
        files = sorted(path for path in folder.iterdir() if path.suffix in (".cpp", ".h") and path.name not in tests)
        sources = {path.relative_to(firmware).as_posix(): path.read_text() for path in files}
        return cls(sources, (firmware / FOLDER / "operators.inc").read_text())

    @classmethod
    def of_source(cls, source: Path, folders: Sequence[str]) -> Kernels:
        """Return the C and C++ files in `folders` of an ExecuTorch source. Raise ConfigError without operators."""
        found: dict[str, str] = {}
        rows = ""
        for folder in folders:
            for path in file_trees.files(source / folder):
                name = path.relative_to(source).as_posix()
                if path.suffix in (".c", ".cpp", ".h"):
                    found[name] = path.read_text(errors="replace")
                elif path.name == OPERATORS:
                    entries = _ENTRY.findall(path.read_text())
                    rows += "".join(f'HIL_OPERATOR("{operator}", {kernel})\n' for operator, kernel in entries)
        if not rows:
            what = f"no {OPERATORS} with operators in {', '.join(str(source / folder) for folder in folders)}"
            raise ConfigError(what, hint="--kernels …/backends/cortex_m/ops, a folder below the source in targets.yaml")
        return cls(dict(sorted(found.items())), rows, source.name)

    @cached_property
    def _calls(self) -> KernelCalls:
        return KernelCalls(self.sources, self.rows)

    @cached_property
    def mutants(self) -> tuple[SourceMutant, ...]:
        """Return the mutants in code that any operator uses, in the order of the files."""
        found = (one for path, text in self.sources.items() for one in mutants_of(path, text))
        return tuple(one for one in found if self.operators(one))

    @cached_property
    def by_name(self) -> dict[str, SourceMutant]:
        return {one.name: one for one in self.mutants}

    def mutants_of(self, operators: Collection[str]) -> list[SourceMutant]:
        """Return the mutants in code that any of these operators uses."""
        return [one for one in self.mutants if not self.operators(one).isdisjoint(operators)]

    @property
    def digest(self) -> str:
        return hashlib.sha256(repr((sorted(self.sources.items()), self.rows)).encode()).hexdigest()[:16]

    def operators(self, mutant: SourceMutant) -> frozenset[str]:
        return self._calls.operators(mutant)

    def changed(self, mutant: SourceMutant) -> dict[str, str]:
        """Return the mutated file's content by path, for `BuildTree.build`."""
        return {mutant.path: mutant.applied(self.sources[mutant.path])}

    def diff(self, mutant: SourceMutant) -> str:
        return mutant.diff(self.sources[mutant.path], f"{self.top}/")
