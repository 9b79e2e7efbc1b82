"""What holds for all tests of boards: locks of their own, and processes that end with the test."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from cortex_m_hil.boards import leases
from devices import Start
from paths import IMPORT_ROOT


@pytest.fixture(autouse=True)
def locks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Give the test a folder of its own for locks, and release its leases."""
    monkeypatch.setenv("HIL_LOCK_DIR", str(tmp_path / "locks"))
    yield
    for lease in list(leases._ours):
        lease.release()
    for board in leases.known_boards():  # a hold's process outlives the test that made it
        holder = leases.inspect(board).holder
        if holder and holder.keeper:
            leases.release_hold(board)


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Return a function that starts a Python script as a process of its own, whose output can be read by line."""
    children: list[subprocess.Popen[str]] = []

    def begin(script: str, *arguments: str) -> subprocess.Popen[str]:
        path = tmp_path / f"script{len(children)}.py"
        path.write_text(script)
        child = subprocess.Popen(
            [sys.executable, str(path), *arguments], stdout=subprocess.PIPE, text=True, start_new_session=True,
            env={**os.environ, "PYTHONPATH": str(IMPORT_ROOT)},
        )  # fmt: skip
        children.append(child)
        return child

    yield begin
    for child in children:
        if child.poll() is None:
            os.killpg(child.pid, signal.SIGKILL)
        child.wait()
        if child.stdout:
            child.stdout.close()
