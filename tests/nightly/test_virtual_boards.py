"""All of tests/targets on virtual boards, from a flash that is empty."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from devices import need_rp2040js
from paths import REPOSITORY


# Skipped for their size: MobileNet's tensors on both, the autoencoder's program on the F405.
@pytest.mark.parametrize(("board", "skipped"), [("f405", 2), ("pico", 1)])
def test_every_sample_test_runs(board: str, skipped: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if board == "pico":
        need_rp2040js()
    monkeypatch.setenv("HIL_LOCK_DIR", str(tmp_path / "locks"))
    tests = [sys.executable, "-m", "pytest", f"--target=vboard-{board}", "tests/targets"]
    command = [sys.executable, "-m", "cortex_m_hil.cli", "board", "virtual", board, "run", *tests]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False)
    assert f" passed, {skipped} skipped" in done.stdout, done.stdout + done.stderr
    assert done.returncode == 0
