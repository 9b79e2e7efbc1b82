"""`ci/bench.py`: seconds of the harness itself (docs/maintainers.md)."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from bench_matrix import Compared, Seconds
from command_line import Done
from cortex_m_hil.cli.exit_codes import CANNOT_TELL
from cortex_m_hil.targets.cpu import Isa
from paths import REPOSITORY

MODULE = """
import torch

def make():
    return torch.nn.Linear(8, 4), (torch.rand(1, 8),)
"""
# Says in which cache it runs, and whether anything was lowered before; then it pretends to lower.
TEST = """
import os
from pathlib import Path

def test_itself():
    cache = Path(os.environ["HIL_CACHE_DIR"])
    with open("seen", "a") as seen:
        seen.write(f"{cache.name} {'warm' if (cache / 'lowerings').exists() else 'cold'}\\n")
    (cache / "lowerings").mkdir(exist_ok=True)
"""


@pytest.fixture(autouse=True)
def _in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def bench(*arguments: str) -> Done:
    """Run `python ci/bench.py` in a process of its own."""
    command = [sys.executable, str(REPOSITORY / "ci" / "bench.py"), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)
    return Done(done.returncode, done.stdout, done.stderr)


@pytest.mark.slow
def test_lowering_measures_the_stages_of_the_pipeline(tmp_path: Path) -> None:
    (tmp_path / "of_user.py").write_text(MODULE)
    found = json.loads(bench("lowering", "of_user:make", "--runs", "1", "--json").out)
    assert found["imports"].keys() == {"torch", "executorch"} and min(found["imports"].values()) > 0
    [module] = found["modules"]
    stages = {row["stage"]: row for row in module["stages"]}
    classes = {f"{stage} for {isa.value}" for stage in ("Cortex-M passes", "to_executorch") for isa in Isa}
    assert classes | {"export", "prepare_pt2e", "convert_pt2e", "to_edge", "reference: dialect"} < stages.keys()
    assert all(row["first"] > 0 and row["again"] > 0 for row in stages.values())


@pytest.mark.slow
def test_matrix_takes_turns_and_each_side_has_its_own_cache(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(TEST)
    other = "echo against >> seen"
    found = json.loads(bench("matrix", "test_it.py", "-t", "native", "--runs", "2", "--against", other, "--json").out)
    turns = ["0 cold", "against", "0 warm", "against"]
    assert (tmp_path / "seen").read_text().splitlines() == ["0 cold", "against", *turns, *turns]
    assert len(found["here"]["cold"]) == len(found["against"]["warm"]) == 2
    assert found["cold_ratio"] > 1 and found["against"]["command"] == ["sh", "-c", other]


def test_ratios_are_medians_of_pairs() -> None:
    ours, theirs = Seconds((), (2.0, 9.0, 4.0), (1.0,)), Seconds((), (4.0, 3.0, 4.0), (2.0,))
    assert (Compared(ours, theirs).cold_ratio, Compared(ours, theirs).warm_ratio) == (1.0, 0.5)
    assert Compared(ours, None).cold_ratio is None


@pytest.mark.first_only
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["lowering", "a.pte"], "ConfigError: no network 'a.pte'"),
        pytest.param(
            ["lowering", "no_such_module:make", "-n", "1"], "ToolchainError: the lowering ended with status 1",
            marks=pytest.mark.slow,
        ),
        (["matrix", "nowhere.py", "-t", "native"], "ConfigError: nowhere.py: there is no such file or folder"),
        (["matrix", "--upstream", "-t", "native"], "not on QEMU"),
        (["matrix", "--upstream", "test_it.py", "-t", "m4-qemu"], "--upstream has its own tests"),
    ],
)  # fmt: skip
def test_what_cannot_be_measured_is_an_error(arguments: list[str], message: str) -> None:
    done = bench(*arguments)
    assert done.status == CANNOT_TELL and message in done.err
