"""A pytest plugin for `hil bisect`, which records digests of the outputs of every operator in a test's programs."""

from __future__ import annotations

import contextlib

import pytest

from cortex_m_hil.diagnose.failure_bundle import Attempt
from cortex_m_hil.diagnose.operator_outputs import operator_outputs
from cortex_m_hil.errors import HarnessError
from cortex_m_hil.pytest_plugin import report_properties
from cortex_m_hil.pytest_plugin.fixtures import TASKS


@pytest.hookimpl(trylast=True)
def pytest_configure(config: pytest.Config) -> None:
    config.stash[TASKS] = _step


def _step(item: pytest.Item, ended: Attempt) -> None:
    """Record digests of the outputs of each operator of a program.

    For a program that faults, hangs or does not fit nothing is recorded: an error here must not hide the test's
    verdict.
    """
    with contextlib.suppress(HarnessError):
        report_properties.record_operator_outputs(
            item, operator_outputs(ended.dut, ended.task.program, ended.task.inputs)
        )
