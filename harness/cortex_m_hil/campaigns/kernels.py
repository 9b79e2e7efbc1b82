"""The builtin runtime's kernels: their sources, all of their mutants, and the operators that these belong to."""

from __future__ import annotations

import hashlib
from collections.abc import Collection
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path, PurePath
from typing import Final

from cortex_m_hil.campaigns.kernel_calls import KernelCalls
from cortex_m_hil.campaigns.mutants import Mutant, mutants_of

FOLDER: Final = PurePath("runtime/builtin")  # below firmware/


@dataclass(frozen=True, eq=False)
class Kernels:
    """`sources` are texts by path below `firmware`, `rows` is the table of operators."""

    sources: dict[str, str]
    rows: str

    @classmethod
    def of(cls, firmware: Path) -> Kernels:
        files = sorted(path for path in (firmware / FOLDER / "kernels").iterdir() if path.suffix in (".cpp", ".h"))
        sources = {path.relative_to(firmware).as_posix(): path.read_text() for path in files}
        return cls(sources, (firmware / FOLDER / "operators.inc").read_text())

    @cached_property
    def _calls(self) -> KernelCalls:
        return KernelCalls(self.sources, self.rows)

    @cached_property
    def mutants(self) -> tuple[Mutant, ...]:
        """Those that some operator reaches, in the files' order."""
        found = (one for path, text in self.sources.items() for one in mutants_of(path, text))
        return tuple(one for one in found if self.operators(one))

    @cached_property
    def by_name(self) -> dict[str, Mutant]:
        return {one.name: one for one in self.mutants}

    def mutants_of(self, operators: Collection[str]) -> list[Mutant]:
        """Those that one of these reaches."""
        return [one for one in self.mutants if not self.operators(one).isdisjoint(operators)]

    @property
    def digest(self) -> str:
        return hashlib.sha256(repr((sorted(self.sources.items()), self.rows)).encode()).hexdigest()[:16]

    def operators(self, mutant: Mutant) -> frozenset[str]:
        return self._calls.operators(mutant)

    def changed(self, mutant: Mutant) -> dict[str, str]:
        """The file that it is in, as `BuildTree.build` takes it."""
        return {mutant.path: mutant.applied(self.sources[mutant.path])}

    def diff(self, mutant: Mutant) -> str:
        return mutant.diff(self.sources[mutant.path], "firmware/")
