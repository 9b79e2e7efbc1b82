"""`hil board`, as a person uses it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from cortex_m_hil.boards import leases
from cortex_m_hil.boards.health import Health
from cortex_m_hil.errors import BoardBusy
from paths import IMPORT_ROOT

TARGETS = """
targets:
  one: {cpu: cortex-m4, board: stm32f4, launcher: {serial: {port: "a:1"}}}
  two: {cpu: cortex-m4, board: stm32f4, launcher: {serial: {ports: ["a:1", "b:1"]}}}
"""


def hil(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    (folder / "targets.yaml").write_text(TARGETS)
    return subprocess.run(
        [sys.executable, "-m", "cortex_m_hil.cli", "board", *arguments], cwd=folder, capture_output=True, text=True,
        timeout=120, check=False, env={**os.environ, "PYTHONPATH": str(IMPORT_ROOT)},
    )  # fmt: skip


def test_a_person_holds_a_targets_board_and_sees_it_and_gives_it_back(tmp_path: Path) -> None:
    held = hil(tmp_path, "hold", "one", "--reason", "loose cable", "--minutes", "5")
    assert held.returncode == 0, held.stderr
    assert "yours for 5 minutes" in held.stdout
    with pytest.raises(BoardBusy, match="loose cable"):
        leases.acquire(["a:1"], what="test", wait=0.1)
    boards = json.loads(hil(tmp_path, "status", "--json").stdout)["boards"]
    [status] = (one for one in boards if one["board"] == "a:1")  # other tests may hold boards of theirs
    assert (status["board"], status["held"], status["holder"]["what"]) == ("a:1", True, "loose cable")
    assert "for loose cable" in hil(tmp_path, "release", "one").stdout
    assert ["a:1", "free", "0"] in [line.split() for line in hil(tmp_path, "status").stdout.splitlines()]


def test_a_wedged_board_is_cleared(tmp_path: Path) -> None:
    with leases.acquire(["a:1"], what="test") as lease:
        lease.health = Health(failures=3, wedged="smoke")
    assert "wedged: smoke" in hil(tmp_path, "status").stdout
    assert hil(tmp_path, "clear", "a:1").returncode == 0
    assert leases.read_health("a:1") == Health()


@pytest.mark.first_only
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["release", "one"], "a:1 is not held"),
        (["hold", "two"], "two has several boards\n  → name one of them: a:1, b:1"),
        (["hold", "m4-qemu"], "m4-qemu is no board"),
        (["hold", "oen"], "unknown board 'oen'\n  → did you mean 'one'"),
        (["clear", "oen"], "unknown board 'oen'"),
        (["release", "oen"], "unknown board 'oen'"),
    ],
)
def test_what_cannot_be_done_says_why(tmp_path: Path, arguments: list[str], message: str) -> None:
    done = hil(tmp_path, *arguments)
    assert done.returncode == 2
    assert message in done.stderr
