"""`--hil-bundles FOLDER`: writes a file with everything about each test that failed by a verdict, for `hil replay`."""

from __future__ import annotations

import hashlib
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from cortex_m_hil.diagnose.failure_bundle_file import SUFFIX, write_bundle
from cortex_m_hil.errors import HarnessError
from cortex_m_hil.errors.text import printable
from cortex_m_hil.host import files
from cortex_m_hil.pytest_plugin import report_properties, summary
from cortex_m_hil.pytest_plugin.fixtures import FAILURE


def forget(item: pytest.Item) -> None:
    """Delete the stored failure of a test, or of its earlier attempt.

    pytest keeps the test's item until the run ends, and the graphs of a failure are large.
    """
    if FAILURE in item.stash:
        del item.stash[FAILURE]


def sections(item: pytest.Item, report: pytest.TestReport, error: HarnessError | None) -> Iterator[tuple[str, str]]:
    """Write the bundle of the verdict that a test failed by, and yield a section that says how to replay it.

    If the bundle cannot be written, the section says so; the verdict is not hidden. Nothing is written for a verdict
    that the test expected.
    """
    folder: Path | None = item.config.getoption("hil_bundles")
    failure = item.stash.get(FAILURE, None)
    if folder is None or failure is None or failure.error is not error:
        return
    path = folder / _name(item.nodeid)
    try:
        again = summary.rerun_command(item.config, [(failure.dut.resolved.name, item.nodeid)])
        write_bundle(failure.bundle(item.nodeid, seed=item.config.getoption("hil_seed"), rerun=again), path)
    except Exception as problem:
        yield "replay", f"no bundle: {printable(str(problem))}"
        return
    report_properties.record_bundle(item, report, path)
    yield "replay", printable(shlex.join(_command(item, path)))


def _name(node_id: str) -> str:
    """Return the name of a bundle's file, one for each test and target: a later failure replaces an earlier one."""
    return f"{files.file_name_for(node_id)}-{hashlib.sha256(node_id.encode(errors='replace')).hexdigest()[:8]}{SUFFIX}"


def _command(item: pytest.Item, path: Path) -> list[str]:
    targets: Path | None = item.config.getoption("hil_targets_file")
    return ["hil", "replay", str(path), *([f"--targets-file={targets}"] if targets is not None else [])]
