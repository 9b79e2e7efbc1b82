"""`hil bisect` among 64 commits, with a culprit in a kernel, or in a lowering pass; 200 searches at each pair."""

from __future__ import annotations

import random
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from bisect_trials import RATES, rows
from command_line import OK, answer, environment
from cortex_m_hil.host.paths import package_data
from cortex_m_hil.host.toolchain import schema_directory
from paths import IMPORT_ROOT
from planting import BUGS
from repositories import Repository

COMMITS = 64
DEADLINE = 4 * 3600.0  # seconds for a search
TRIALS, SEED = 200, 1
TEST = """
import importlib
import os
import torch
from torch import nn

def test_network(hil):
    assert importlib.import_module("MODULE").__file__.startswith(os.environ["HIL_BISECT_WORKTREE"])
    torch.manual_seed(5)
    head = nn.Sequential(nn.Flatten(), nn.Linear(6 * 64, 10))
    hil.check(nn.Sequential(nn.Conv2d(3, 6, 3, padding=1), nn.ReLU(), head), (torch.rand(1, 3, 8, 8) * 2 - 0.7,))
"""


def culprit() -> int:
    seed = random.SystemRandom().randrange(1 << 32)
    print(f"seed {seed}")
    return random.Random(seed).randint(1, COMMITS)


def search(made: Repository, folder: Path, python: str, module: str, *options: str) -> tuple[dict[str, object], int]:
    """The answer, and how many commits lie before the culprit."""
    (folder / "test_network.py").write_text(TEST.replace("MODULE", module))
    hil = [sys.executable, "-m", "cortex_m_hil.cli", "bisect"]
    where = [f"--store={folder / 'store.sqlite'}", "--json"]
    before = made.touched()
    start = ["start", made.commits[-1], made.commits[0], f"--source={made.path}", f"--python={python}"]
    subprocess.run([*hil, *start, *options, *where], cwd=folder, env=environment(), check=True, timeout=300)
    test = [sys.executable, "-m", "pytest", "--target=m4-qemu,m0-qemu", "--hil-localize", "test_network.py"]
    done = subprocess.run(
        [*hil, "run", *where, "--", *test], cwd=folder, env=environment(), stdout=subprocess.PIPE, text=True,
        timeout=DEADLINE, check=False,
    )  # fmt: skip
    found = answer(done.stdout)
    print(found)
    assert done.returncode == OK
    assert made.touched() == before
    return found, made.commits.index(found["culprit"]["sha"])


def test_a_kernel(tmp_path: Path) -> None:
    """This project is the source: its firmware and harness. A commit that changes neither finds its runner built."""
    at, bug = culprit(), BUGS["bias_dropped"]

    made = Repository(tmp_path / "source")
    shutil.copytree(package_data("firmware"), made.path / "firmware")
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(IMPORT_ROOT, made.path / "harness", ignore=ignored)
    shutil.copy(package_data("targets.yaml"), made.path)
    for number in range(COMMITS + 1):
        if number == at:
            apply = ["patch", "--batch", "--silent", "-p1", "-i", str(bug.patch)]
            subprocess.run(apply, cwd=made.path, check=True, timeout=60)
        made.commit({"notes": f"{number}\n"}, f"commit {number}")
    found, position = search(made, tmp_path, "harness", "cortex_m_hil", "--likely=firmware/runtime")
    assert position == at
    assert isinstance(found["runs"], int) and found["runs"] <= 16
    targets = found["targets"]
    assert isinstance(targets, list)
    assert {(one["target"], one["old"], one["outputs_changed"]) for one in targets} == {
        ("m4-qemu", "PASS", True), ("m0-qemu", "PASS", True),
    }  # fmt: skip
    assert all("quantized_conv2d" in one["at_fault"] for one in targets)


def test_a_lowering_pass(tmp_path: Path) -> None:
    """ExecuTorch's Cortex-M backend is the source: what else of ExecuTorch is installed is found beside it."""
    import executorch.backends.cortex_m.passes as passes

    backend = Path(passes.__path__[0]).parent
    at, place = culprit(), "src/executorch/backends/cortex_m"
    made = Repository(tmp_path / "source")
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(backend, made.path / place, ignore=ignored)  # with what is compiled
    shutil.copytree(schema_directory(), made.path / "src/executorch/schema", ignore=ignored)
    extend = "from pkgutil import extend_path\n__path__ = extend_path(__path__, __name__)\n"
    (made.path / "src/executorch/backends/__init__.py").write_text(extend)
    name = f"{place}/passes/aten_to_cortex_m_pass.py"
    right = (made.path / name).read_text()
    assert right.count("bias_arg = bias_node") == 1
    wrong = right.replace("bias_arg = bias_node", "bias_arg = None")
    for number in range(COMMITS + 1):
        made.commit({name: f"{wrong if number >= at else right}# {number}\n"}, f"commit {number}")
    found, position = search(made, tmp_path, "src", "executorch.backends.cortex_m.passes", "--deterministic")
    assert position == at and found["runs"] == 8


@pytest.mark.parametrize("rates", RATES)
def test_searches_are_right_as_often_as_they_say(rates: tuple[float, float]) -> None:
    """The table of docs/bisect.md; of 200 searches at 95 %, 190 are right."""
    mine, *others = rows(rates, TRIALS, SEED)
    print(mine, *others, sep="\n")
    assert mine.claimed == TRIALS and mine.right >= 0.95
    if rates == (1.0, 0.0):
        assert mine.median <= 16
