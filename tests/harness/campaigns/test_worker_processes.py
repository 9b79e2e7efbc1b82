"""Worker processes of a campaign that do not answer."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from cortex_m_hil.campaigns.worker_processes import Worker
from cortex_m_hil.errors import LaunchError
from cortex_m_hil.host import timeouts


@pytest.fixture
def silent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Worker]:
    """Reads nothing and says nothing."""
    (tmp_path / "silent_worker.py").write_text("import time\ntime.sleep(600)\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setattr(timeouts, "WORKER_ANSWER", 0.2)
    worker = Worker("hil try", ["silent_worker"], tmp_path / "log")
    yield worker
    worker.end()


@pytest.mark.parametrize("size", [1, 1 << 20])
def test_a_worker_that_takes_no_request_has_ended(silent: Worker, size: int) -> None:
    with pytest.raises(LaunchError, match="a worker of hil try has ended"):
        silent.ask({"text": "x" * size})
    assert not os.path.exists(f"/proc/{silent._child.pid}") or silent._child.wait(0) is not None
