"""`hil bench matrix --upstream`, on one test of ExecuTorch's: it is collected four times."""

from __future__ import annotations

from pathlib import Path

from command_line import OK, answer, spawn


def test_executorchs_own_tests_and_its_own_command(tmp_path: Path) -> None:
    chosen = ("-t", "m4-qemu", "-k", "test_implementation_add and self_rank_1", "--runs", "1")
    done = spawn("bench", "matrix", "--upstream", *chosen, "--json", cwd=tmp_path)
    assert done.status == OK, done.err
    found = answer(done.out)
    assert "--cortex-m-target=cortex-m4" in found["against"]["command"][2]
    assert found["against"]["warm"] == found["against"]["cold"]  # one run: nothing is cached there
    assert min(found["cold_ratio"], found["warm_ratio"], *found["here"]["cold"], *found["against"]["warm"]) > 0
