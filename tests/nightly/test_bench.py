"""`ci/bench.py matrix --upstream`, on one test of ExecuTorch's: it is collected four times."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from command_line import OK
from paths import REPOSITORY


def test_executorchs_own_tests_and_its_own_command(tmp_path: Path) -> None:
    chosen = ("-t", "m4-qemu", "-k", "test_implementation_add and self_rank_1", "--runs", "1")
    command = [sys.executable, str(REPOSITORY / "ci" / "bench.py"), "matrix", "--upstream", *chosen, "--json"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=3600)
    assert done.returncode == OK, done.stderr
    found = json.loads(done.stdout)
    assert "--cortex-m-target=cortex-m4" in found["against"]["command"][2]
    assert found["against"]["warm"] == found["against"]["cold"]  # one run: nothing is cached there
    assert min(found["cold_ratio"], found["warm_ratio"], *found["here"]["cold"], *found["against"]["warm"]) > 0
