"""`hil nightly --fit`: measures the least memory of each program that passed, as figures of its test."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import replace
from typing import Final, TypeAlias

import pytest

from cortex_m_hil.campaigns.report.nightly_results import is_named
from cortex_m_hil.diagnose.failure_bundle import Attempt
from cortex_m_hil.diagnose.memory_fit import Fitting
from cortex_m_hil.errors import HarnessError
from cortex_m_hil.program.program import Program
from cortex_m_hil.pytest_plugin import report_properties
from cortex_m_hil.pytest_plugin.fixtures import TEST_ID
from cortex_m_hil.runner.build import build_runner
from cortex_m_hil.targets.resolve import Resolved
from cortex_m_hil.targets.target import HardwareLauncher

_Place: TypeAlias = "tuple[str, str]"  # target, runtime
FITS: Final = pytest.StashKey["Fits"]()


def prepare(config: pytest.Config) -> None:
    config.stash[FITS] = Fits(config.getoption("hil_timeout_multiplier"))
    config.add_cleanup(config.stash[FITS].close)


def record(item: pytest.Item, ended: Attempt) -> None:
    """Record the least memory of a program that passed on a simulator, with the target's own runner.

    If the measurement fails, the reason is recorded in place of the figures, and the test does not fail.
    """
    if not is_named(item.stash[TEST_ID], item.config.getoption("hil_fit", ())):
        return
    if ended.error is not None or ended.dut.elf.counts:
        return
    fits = item.config.stash[FITS]
    if isinstance(ended.dut.resolved.target.launcher, HardwareLauncher):
        return
    try:
        if fits.is_its_own(ended):
            report_properties.record_fit(
                item, fits.sizes(ended.dut.resolved, replace(ended.task.program, inputs=ended.task.inputs))
            )
    except HarnessError as error:
        report_properties.record_missing_fit(item, f"{type(error).__name__}: {error.message}")


class Fits:
    """The measurements of this process: a runner for each target, linked again for each size, and all results."""

    def __init__(self, multiplier: float) -> None:
        self._multiplier = multiplier
        self._opened = ExitStack()
        self._fittings: dict[_Place, Fitting] = {}
        self._build_ids: dict[_Place, str] = {}
        self._known: dict[tuple[_Place, str], Mapping[str, int]] = {}

    def close(self) -> None:
        self._opened.close()

    def is_its_own(self, ended: Attempt) -> bool:
        """Tell whether the target's own runner executed the program, and not a runner that the test built."""
        resolved = ended.dut.resolved
        place = _place(resolved)
        if place not in self._build_ids:
            self._build_ids[place] = build_runner(resolved.target, resolved.runtime).build_id
        return ended.dut.elf.build_id == self._build_ids[place]

    def sizes(self, resolved: Resolved, program: Program) -> Mapping[str, int]:
        """Return the least bytes that a program needs in each region. Raises the errors of `Fitting.fit`."""
        key = _place(resolved), _digest(program)
        if key not in self._known:
            found = self._fitting(resolved).fit(program)
            self._known[key] = {need.region: need.size for need in found.needs}
        return self._known[key]

    def _fitting(self, resolved: Resolved) -> Fitting:
        place = _place(resolved)
        if place not in self._fittings:
            fitting = Fitting(resolved, multiplier=self._multiplier)
            self._fittings[place] = self._opened.enter_context(fitting)
        return self._fittings[place]


def _place(resolved: Resolved) -> _Place:
    return resolved.target.name, resolved.runtime


def _digest(program: Program) -> str:
    digest = hashlib.sha256(program.identity)
    for one in program.inputs:
        digest.update(one.data)
    return digest.hexdigest()
