"""A pytest plugin for `hil dev mutate` that keeps every program of the tests as a bundle, with the way it is judged."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path

import pytest

from cortex_m_hil.diagnose.failure_bundle import Attempt
from cortex_m_hil.diagnose.failure_bundle_file import SUFFIX, write_bundle
from cortex_m_hil.host import files
from cortex_m_hil.pytest_plugin.fixtures import TASKS


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("hil")
    group.addoption("--hil-keep-into", type=Path, metavar="FOLDER", help="for hil dev mutate")
    group.addoption("--hil-keep-intermediates", action="store_true", help="for hil dev mutate")


@pytest.hookimpl(trylast=True)
def pytest_configure(config: pytest.Config) -> None:
    config.stash[TASKS] = _kept


def _kept(item: pytest.Item, ended: Attempt) -> None:
    """Write a test's program as a bundle: one file for all tests that run the same program on the same target.

    Each target has a folder; the file's name is a digest of its content.
    """
    folder: Path = item.config.getoption("hil_keep_into")
    program, task = ended.task.program, ended.task
    judged = repr((task.tolerance, task.linted, task.redzones, task.excluded))
    content = hashlib.sha256(b"\0".join([program.pte, judged.encode(), *(one.data for one in task.inputs)])).hexdigest()
    path = folder / files.file_name_for(ended.dut.resolved.name) / f"{content[:16]}{SUFFIX}"
    if path.exists():
        return
    if item.config.getoption("hil_keep_intermediates") and ended.error is None and program.intermediates is not None:
        ended = replace(ended, intermediates=program.intermediates(program.inputs))
    write_bundle(ended.bundle(item.nodeid, with_runner=False), path)
