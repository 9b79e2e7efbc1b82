"""A pytest plugin for `hil bisect`, which records a digest of what every operator of a test's programs wrote."""

from __future__ import annotations

import contextlib

import pytest

from cortex_m_hil.diagnose.bundle import Attempt
from cortex_m_hil.diagnose.operator_outputs import operator_outputs
from cortex_m_hil.errors import HarnessError
from cortex_m_hil.pytest_plugin import records
from cortex_m_hil.pytest_plugin.fixtures import TASKS


@pytest.hookimpl(trylast=True)
def pytest_configure(config: pytest.Config) -> None:
    config.stash[TASKS] = _step


def _step(item: pytest.Item, ended: Attempt) -> None:
    """Record digests of what each operator of a program wrote.

    A program that faults, hangs or does not fit gets none: an error here must not hide the test's verdict.
    """
    with contextlib.suppress(HarnessError):
        records.record_operator_outputs(item, operator_outputs(ended.dut, ended.task.program, ended.task.inputs))
