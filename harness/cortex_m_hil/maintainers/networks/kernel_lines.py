"""Lines of this project's kernels that a program makes a target execute: they guide the generation of networks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from typing import Final

from cortex_m_hil import flow
from cortex_m_hil.errors import LaunchError
from cortex_m_hil.flow.coverage.counting import SLOWER, Counting, check
from cortex_m_hil.flow.coverage.counts import class_of
from cortex_m_hil.program.program import Program
from cortex_m_hil.runner.build import COUNTING
from cortex_m_hil.targets.resolve import Resolved

RUNTIME: Final = "builtin"  # the runtime with this project's kernels


class KernelLines:
    """A second runner of one target, whose kernels count executed lines; programs are judged on one that does not."""

    def __init__(self, resolved: Resolved) -> None:
        """Build the runner. Raise ToolchainError without gcov, or with a compiler whose runners cannot count."""
        check(resolved)
        self.name = class_of(resolved.target, resolved.runtime)
        self._dut = flow.open_dut(resolved, multiplier=SLOWER, options=COUNTING)
        self._counting = self._dut.counting = Counting(resolved.target, self._dut.elf, resolved.runtime)

    def executed(self, program: Program) -> frozenset[str]:
        """Run a program and return the lines that it executes, as `DSP convolution.cpp:12`.

        Raises the errors of `flow.run`. The lines depend on the program alone.
        """
        self._read()
        self._counting.take_executed()
        flow.run(self._dut, program)
        self._read()
        found = self._counting.take_executed()
        return frozenset(f"{self.name} {file}:{line}" for file, lines in found.items() for line in lines)

    def possible(self) -> dict[str, frozenset[int]]:
        """Return all lines that can be executed, by file, as `DSP convolution.cpp`. Raise infra errors."""
        self._read()
        return {f"{self.name} {file}": lines for file, lines in self._counting.lines().items()}

    def _read(self) -> None:
        """Read the target's counters. Raise LaunchError where that fails: the lines would not be repeatable."""
        self._dut.session()
        self._dut.read_coverage()
        if not self._counting.lines():
            raise LaunchError("the lines that kernels execute cannot be read", target=self._dut.resolved.display_name)

    def __enter__(self) -> KernelLines:
        return self

    def __exit__(self, *_: object) -> None:
        self._dut.close()


def counting(targets: Sequence[Resolved], stack: ExitStack) -> Mapping[str, KernelLines]:
    """Return a counting runner for each ISA class, by the name of the first target that can count kernels' lines."""
    found: dict[str, KernelLines] = {}
    classes = set[str]()
    for resolved in targets:
        name = class_of(resolved.target, resolved.runtime)
        if resolved.runtime == RUNTIME and resolved.target.launcher.counts_coverage and name not in classes:
            classes.add(name)
            found[resolved.name] = stack.enter_context(KernelLines(resolved))
    return found
