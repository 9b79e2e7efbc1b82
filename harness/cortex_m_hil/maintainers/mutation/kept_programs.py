"""Programs kept from a run of the tests, which are judged again on other runners, without pytest and torch."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from pathlib import Path
from typing import Final

from cortex_m_hil.checks.comparison.compare_outputs import compare
from cortex_m_hil.diagnose.failure_bundle import Bundle
from cortex_m_hil.diagnose.failure_bundle_file import SUFFIX, read_bundle
from cortex_m_hil.diagnose.failure_bundle_schema import PASSED
from cortex_m_hil.diagnose.lifetime_check import WatchedMemory
from cortex_m_hil.errors import InfraError, LaunchError, Mismatch, TargetHang, VerdictError
from cortex_m_hil.flow.dut import Dut
from cortex_m_hil.flow.single_run import execute
from cortex_m_hil.host import timeouts
from cortex_m_hil.runner.session.session import ResponseTimeout

SLOWER: Final = 10.0  # a run is taken for endless after so many times the seconds on the unmutated kernels
LEAST_SECONDS: Final = 1.0  # of a target's CPU time, as a simulator may take so long to start


@dataclass(frozen=True)
class ReadyProgram:
    """A kept program: a bundle file.

    Attributes:
        seconds: how long the program took on the unmutated runner.
    """

    path: Path
    seconds: float = field(default=0.0, compare=False)

    @property
    def name(self) -> str:
        return self.path.name

    @property
    def bundle(self) -> Bundle:
        return _read(self.path)

    @property
    def test(self) -> str:
        return self.bundle.description.test

    @property
    def expected(self) -> str:
        """Return the class of verdict that the test expected, `PASSED` if it expected none."""
        return self.bundle.description.verdict.type

    @cached_property
    def operators(self) -> frozenset[str]:
        return frozenset(one.operator for one in self.bundle.task.program.file.instructions if one.operator)

    @property
    def limit(self) -> float:
        """Return the seconds after which the run is taken for endless; never more than its test allowed."""
        return min(self.bundle.description.judgement.seconds, max(LEAST_SECONDS, SLOWER * self.seconds))


@dataclass(frozen=True)
class Noticed:
    """A failure of a program by which its test would have noticed the mutant.

    Attributes:
        type: the class of verdict; `PASSED` if the program passed though a verdict was expected.
        operator: the operator that the verdict names, "" if none.
    """

    program: ReadyProgram
    type: str
    message: str
    operator: str = ""

    def __str__(self) -> str:
        return f"{self.type} in {self.program.test}"


@cache
def _read(path: Path) -> Bundle:
    """Read a bundle, once in a process, since each mutant needs the operators of all programs of a target."""
    return read_bundle(path)


def kept_in(folder: Path) -> list[ReadyProgram]:
    return [ReadyProgram(path) for path in sorted(folder.glob(f"*{SUFFIX}"))]


def ordered(programs: Sequence[ReadyProgram], operators: frozenset[str]) -> list[ReadyProgram]:
    """Sort programs so that those that use any of the operators come first, and the quickest first among these."""
    return sorted(programs, key=lambda one: (not one.operators & operators, one.seconds, one.name))


def judge_kept_program(dut: Dut, program: ReadyProgram) -> Noticed | None:
    """Return the failure that the program's test would have noticed on this target, None without one.

    Raises:
        InfraError: the target fails; ResponseTimeout: the program does not end.
    """
    dut.seconds, dut.what = program.limit, program.test
    try:
        _run(dut, program.bundle)
    except VerdictError as error:
        kind = type(error).__name__
        return None if kind == program.expected else Noticed(program, kind, error.message, error.operator)
    return None if program.expected == PASSED else Noticed(program, PASSED, f"it was {program.expected}")


def _run(dut: Dut, bundle: Bundle) -> None:
    """Run a bundle and compare its outputs, as `flow.verify` does. Raise verdicts.

    The program is not linted, since lint does not depend on kernels, and a program that hangs is not tried again.
    """
    task = bundle.task
    guard = WatchedMemory(task.program) if task.redzones else None
    result = execute(dut, dut.session(), task.program, task.inputs, guard)
    if task.tolerance is not None:
        found = compare(task.program.file, result.outputs, bundle.references, task.tolerance, result.unwritten)
        found.raise_for_verdict(dut.resolved.display_name)
    elif any(mask.any() for mask in result.unwritten):
        raise Mismatch("an element of an output was never written", target=dut.target.name)


def first_noticed(mutated: Dut, unmutated: Dut, programs: Sequence[ReadyProgram]) -> Noticed | None:
    """Return the failure of the first program that notices the mutant; None if all pass. Raise infra errors.

    If a program does not end, or stops the target, the mutant is the cause if the unmutated kernels still end in time.
    """
    for program in programs:
        try:
            if (noticed := judge_kept_program(mutated, program)) is not None:
                return noticed
        except ResponseTimeout as stuck:
            mutated.restart()
            _require_unmutated(unmutated, program)
            return Noticed(program, TargetHang.__name__, f"no end after {program.limit:g} s", stuck.operator)
    return None


def _require_unmutated(unmutated: Dut, program: ReadyProgram) -> None:
    """Raise LaunchError if the unmutated runner does not pass either, because the machine is too busy or broken."""
    try:
        noticed = judge_kept_program(unmutated, program)
    except InfraError as error:
        unmutated.restart()
        raise LaunchError(
            f"the unmutated runner does not answer either: {error}", target=unmutated.target.name
        ) from None
    if noticed is not None:
        raise LaunchError(f"the unmutated runner fails as well: {noticed}", target=unmutated.target.name)


def timed(unmutated: Dut, programs: Sequence[ReadyProgram]) -> Iterator[tuple[ReadyProgram, float | None]]:
    """Yield each program with its seconds on the unmutated runner.

    None if its verdict differs from that in its test.
    """
    for one in programs:
        program = ReadyProgram(one.path, timeouts.LONGEST_EXECUTION)
        began = time.monotonic()
        try:
            noticed = judge_kept_program(unmutated, program)
        except ResponseTimeout:
            unmutated.restart()
            yield one, None
            continue
        yield one, None if noticed is not None else time.monotonic() - began
