"""`make coverage` on one small test: the nightly alone runs it on all."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

from paths import REPOSITORY

COUNTED = "tests/harness/host/test_numbers.py"


def test_a_worker_counts_lines(tmp_path: Path) -> None:
    made = re.search(r"^coverage: .*\n\t\$\(BIN\)/pytest (.+)$", (REPOSITORY / "Makefile").read_text(), re.MULTILINE)
    assert made
    options, threshold, _ = made[1].partition(" --cov-fail-under=")
    assert threshold
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *shlex.split(options.replace("$(OWN_JOBS)", "1")), COUNTED],
        cwd=REPOSITORY,
        env={**os.environ, "PYTEST_ADDOPTS": "", "COVERAGE_FILE": str(tmp_path / "counts")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"^harness/cortex_m_hil/host/.+ \d+%", done.stdout, re.MULTILINE), done.stdout
