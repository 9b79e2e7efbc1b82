"""A pytest plugin for `hil localize`: localises each program that is compared, and writes the results to a file."""

from __future__ import annotations

import json
import os
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

from cortex_m_hil import flow
from cortex_m_hil.campaigns import property_names as prop
from cortex_m_hil.diagnose.localize import Localization
from cortex_m_hil.errors import HarnessError
from cortex_m_hil.program.program import Program
from cortex_m_hil.pytest_plugin.fixtures import EVERY, resolved_of
from cortex_m_hil.runner.run_results import Verdict


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.getgroup("hil").addoption("--hil-localize-into", type=Path, metavar="FILE", help="for hil localize")


@pytest.hookimpl(trylast=True)
def pytest_configure(config: pytest.Config) -> None:
    config.stash[EVERY] = _localized


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Write that an attempt of a test begins: lines of an earlier attempt of the same test do not count."""
    _tell(item.config, {"test": item.nodeid, "begun": True})


def _localized(item: pytest.Item, dut: flow.Dut, program: Program, found: Localization) -> None:
    ran = dut.ran()
    head = {"test": item.nodeid, "target": dut.resolved.name, "runs_as": ran.target, "engine": ran.engine}
    body = {"runtime": ran.runtime, "runtime_version": ran.runtime_version, "program": program.name}
    text = {"lines": [*found.lines(), "", *found.plot()], "is_wrong": found.is_wrong}
    _tell(item.config, {**head, **body, **text, "fields": found.fields()})


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Write the outcome of each test, after the phase that decides it."""
    report = yield
    resolved = resolved_of(item)
    if resolved is not None and (report.when == "call" or not report.passed):
        error = call.excinfo.value if call.excinfo else None
        verdict = Verdict[str(dict(prop.recorded(report.user_properties))[prop.VERDICT])]
        told = _of_error(error) if error is not None and report.failed else None
        _tell(item.config, {"test": item.nodeid, "target": resolved.name, "verdict": verdict.name, "error": told})
    return report


def _of_error(error: BaseException) -> dict[str, Any]:
    known = error if isinstance(error, HarnessError) else HarnessError(str(error))
    rest = {"operator": known.operator, "details": known.details, "hint": known.hint}
    return {"type": type(error).__name__, "message": known.message, **rest}


def _tell(config: pytest.Config, line: dict[str, Any]) -> None:
    """Append a line to the file in one write, since xdist's workers share the file."""
    file = os.open(config.getoption("hil_localize_into"), os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(file, json.dumps(line, default=str).encode() + b"\n")
    finally:
        os.close(file)
