"""Which lines of this project's kernels a program makes a target execute: what guides generated networks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from types import TracebackType
from typing import Final

from cortex_m_hil import flow
from cortex_m_hil.errors import LaunchError
from cortex_m_hil.flow.coverage.counting import SLOWER, Counting, check
from cortex_m_hil.flow.coverage.counts import class_of
from cortex_m_hil.program.program import Program
from cortex_m_hil.runner.build import COUNTING
from cortex_m_hil.targets.resolve import Resolved

RUNTIME: Final = "builtin"  # whose kernels are this project's


class KernelLines:
    """Of one target: a runner of its own, whose kernels count. What is judged runs on one that does not."""

    def __init__(self, resolved: Resolved) -> None:
        """Builds the runner. ToolchainError without gcov, or with a compiler whose runners cannot count."""
        check(resolved)
        self.name = class_of(resolved.target, resolved.runtime)
        self._dut = flow.open_dut(resolved, multiplier=SLOWER, options=COUNTING)
        self._counting = self._dut.counting = Counting(resolved.target, self._dut.elf, resolved.runtime)

    def executed(self, program: Program) -> frozenset[str]:
        """Lines as `DSP convolution.cpp:12`, which follow from the program alone. Raises what `flow.run` does."""
        self._read()
        self._counting.take_executed()
        flow.run(self._dut, program)
        self._read()
        found = self._counting.take_executed()
        return frozenset(f"{self.name} {file}:{line}" for file, lines in found.items() for line in lines)

    def possible(self) -> dict[str, frozenset[int]]:
        """All lines there are, by file, as `DSP convolution.cpp`. Raises infra errors."""
        self._read()
        return {f"{self.name} {file}": lines for file, lines in self._counting.lines().items()}

    def _read(self) -> None:
        """LaunchError where the target does not tell: other lines would follow another time."""
        self._dut.session()
        self._dut.read_coverage()
        if not self._counting.lines():
            raise LaunchError("the lines that kernels execute cannot be read", target=self._dut.resolved.display_name)

    def __enter__(self) -> KernelLines:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._dut.close()


def counting(targets: Sequence[Resolved], stack: ExitStack) -> Mapping[str, KernelLines]:
    """By name of their target: for each class the first one with this project's kernels that can count."""
    found: dict[str, KernelLines] = {}
    classes = set[str]()
    for resolved in targets:
        name = class_of(resolved.target, resolved.runtime)
        if resolved.runtime == RUNTIME and resolved.target.launcher.counts_coverage and name not in classes:
            classes.add(name)
            found[resolved.name] = stack.enter_context(KernelLines(resolved))
    return found
