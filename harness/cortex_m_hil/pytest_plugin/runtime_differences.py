"""Records for tests on several runtimes, if a program's outputs differ, the first operator whose outputs differ."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Final

import pytest

from cortex_m_hil.diagnose.compare_runtimes import compare_runtimes
from cortex_m_hil.diagnose.failure_bundle import Attempt
from cortex_m_hil.errors import HarnessError
from cortex_m_hil.flow import Dut
from cortex_m_hil.pytest_plugin import options, report_properties
from cortex_m_hil.pytest_plugin.fixtures import RUNS
from cortex_m_hil.runner.run_results import RunResult
from cortex_m_hil.targets.resolve import Resolved
from cortex_m_hil.targets.target import HardwareLauncher


@dataclass(frozen=True)
class _RunDigests:
    """A run of a program, as digests: of program and inputs, and of the outputs ("" if there are none)."""

    dut: Dut
    program: str
    outputs: str


class RuntimeDifferences:
    """The programs of each test and target that ran in this process, by runtime, in order."""

    def __init__(self) -> None:
        self._runs: dict[tuple[str, str], dict[str, list[_RunDigests]]] = {}

    def begin(self, test: str, target: str, runtime: str) -> None:
        """Forget the programs that an earlier attempt of a test ran."""
        self._runs.setdefault((test, target), {})[runtime] = []

    def note(self, item: pytest.Item, test: str, ended: Attempt, result: RunResult | None) -> None:
        """Note a program that has ended, and record how it differs from the same program on another runtime.

        Args:
            item: the test.
            test: the test's id without its target.
            ended: the task that was run.
            result: the result; None if the program did not run to its end.
        """
        resolved = ended.dut.resolved
        by_runtime = self._runs.setdefault((test, resolved.name), {})
        own = by_runtime.setdefault(resolved.runtime, [])
        own.append(_RunDigests(ended.dut, _digest_of_task(ended), _digest_of_outputs(result)))
        if isinstance(ended.dut.target.launcher, HardwareLauncher):  # the board is leased, for one runner
            return
        of_others = (runs for name, runs in by_runtime.items() if name != resolved.runtime)
        other = next((runs[len(own) - 1] for runs in of_others if len(runs) >= len(own)), None)
        if other is not None and _departs(own[-1], other):
            report_properties.record_runtime_difference(item, _first_difference(item, other.dut, ended))


def _digest_of_task(ended: Attempt) -> str:
    parts = [ended.task.program.identity, *(value.data for value in ended.task.inputs)]
    return hashlib.sha256(b"".join(parts)).hexdigest()


def _digest_of_outputs(result: RunResult | None) -> str:
    return "" if result is None else hashlib.sha256(b"".join(one.data for one in result.outputs)).hexdigest()


def _departs(one: _RunDigests, other: _RunDigests) -> bool:
    return one.program == other.program and bool(one.outputs and other.outputs) and one.outputs != other.outputs


def _first_difference(item: pytest.Item, other: Dut, ended: Attempt) -> str:
    """Return as text the first operator whose values differ on equal inputs, and by how much.

    An error is part of that text: it must not hide the test's own verdict.
    """
    try:
        found = list(compare_runtimes(other, ended.dut, ended.task.program, ended.task.inputs))
    except HarnessError as error:
        return f"other outputs, and no operator is named: {error.message}"
    finally:
        if item.config.getoption("hil_dut_scope") == "function":
            other.close()
    first = next((one for one in found if one is not None), None)
    if first is None:
        return "other outputs, and no operator differs on equal inputs"
    return f"other values from operator {first.instruction} on, {first.operator}: {first}"


DIFFERENCES: Final[pytest.StashKey[RuntimeDifferences]] = pytest.StashKey()
"""The key of the `RuntimeDifferences`, which exist if tests run on several runtimes."""


def prepare(config: pytest.Config) -> None:
    if len(options.runtimes(config)) > 1:
        found = config.stash[DIFFERENCES] = RuntimeDifferences()
        config.stash[RUNS] = found.note


def forget_attempt(item: pytest.Item, test: str, resolved: Resolved | None) -> None:
    if resolved is not None and DIFFERENCES in item.config.stash:
        item.config.stash[DIFFERENCES].begin(test, resolved.name, resolved.runtime)
