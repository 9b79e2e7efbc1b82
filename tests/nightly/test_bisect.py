"""`hil bisect` among 64 commits, with a culprit in a kernel, a lowering pass or a board's clock set-up, and on a board
that fails at random; 200 simulated searches at each pair of rates.
"""

from __future__ import annotations

import random
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from bisect_trials import RATES, rows
from command_line import OK, answer, environment
from cortex_m_hil.boards.virtual import vboard
from cortex_m_hil.errors import FlashError
from cortex_m_hil.host.paths import package_data
from cortex_m_hil.host.toolchain import schema_directory
from paths import IMPORT_ROOT
from planting import BUGS
from repositories import Repository

COMMITS = 64
DEADLINE = 4 * 3600.0  # seconds for a search
TRIALS, SEED = 200, 1  # of simulated searches
KERNEL_TRIALS, BOARD_TRIALS = 10, 5
FEW, MANY = 8, 16  # runs, of a test that is said to be deterministic and of one that may be flaky
MODES = [pytest.param(["--deterministic"], FEW, id="deterministic"), pytest.param([], MANY, id="flaky")]
KILLED_AFTER = 3  # tests that have begun
TEST = """
import importlib
import os
import torch
from torch import nn

def test_network(hil):
    with open("begun", "a") as file:
        file.write(".")
    assert importlib.import_module("MODULE").__file__.startswith(os.environ["HIL_BISECT_WORKTREE"])
    torch.manual_seed(5)
    head = nn.Sequential(nn.Flatten(), nn.Linear(6 * 64, 10))
    hil.check(nn.Sequential(nn.Conv2d(3, 6, 3, padding=1), nn.ReLU(), head), (torch.rand(1, 3, 8, 8) * 2 - 0.7,))
"""


def culprit() -> int:
    seed = random.SystemRandom().randrange(1 << 32)
    print(f"seed {seed}")
    return random.Random(seed).randint(1, COMMITS)


def pytest_of(folder: Path, module: str, targets: str, *options: str) -> list[str]:
    """The command of a test that says whether it imports `module` from the commit."""
    (folder / "test_network.py").write_text(TEST.replace("MODULE", module))
    return [sys.executable, "-m", "pytest", f"--target={targets}", *options, "test_network.py"]


def killed_half_way(command: Sequence[str], folder: Path) -> None:
    """Runs it until some tests have begun, and kills it."""
    process = subprocess.Popen(command, cwd=folder, env=environment(), stdout=subprocess.DEVNULL)
    begun = folder / "begun"
    end = time.monotonic() + DEADLINE
    while not (begun.exists() and len(begun.read_text()) > KILLED_AFTER):
        assert process.poll() is None and time.monotonic() < end
        time.sleep(0.2)
    process.kill()
    process.wait()


def search(
    made: Repository, folder: Path, python: str, test: Sequence[str], *options: str, killed: bool = False
) -> tuple[dict[str, object], int]:
    """The answer, and how many commits lie before the culprit. A search that is `killed` half way is gone on with."""
    hil = [sys.executable, "-m", "cortex_m_hil.cli", "bisect"]
    where = [f"--store={folder / 'store.sqlite'}", "--json"]
    before = made.touched()
    start = ["start", made.commits[-1], made.commits[0], f"--source={made.path}", f"--python={python}"]
    subprocess.run([*hil, *start, *options, *where], cwd=folder, env=environment(), check=True, timeout=300)
    run = [*hil, "run", *where, "--", *test]
    if killed:
        killed_half_way(run, folder)
    done = subprocess.run(
        run, cwd=folder, env=environment(), stdout=subprocess.PIPE, text=True,
        timeout=DEADLINE, check=False,
    )  # fmt: skip
    found = answer(done.stdout)
    print(found)
    assert done.returncode == OK
    assert made.touched() == before
    return found, made.commits.index(found["culprit"]["sha"])


def firmware_history(path: Path, at: int, plant: Callable[[Path], None]) -> Repository:
    """This project's firmware and harness. A commit that changes neither finds its runner built."""
    made = Repository(path)
    shutil.copytree(package_data("firmware"), made.path / "firmware")
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(IMPORT_ROOT, made.path / "harness", ignore=ignored)
    shutil.copy(package_data("targets.yaml"), made.path)
    for number in range(COMMITS + 1):
        if number == at:
            plant(made.path)
        made.commit({"notes": f"{number}\n"}, f"commit {number}")
    return made


def kernel_bug(top: Path) -> None:
    apply = ["patch", "--batch", "--silent", "-p1", "-i", str(BUGS["bias_dropped"].patch)]
    subprocess.run(apply, cwd=top, check=True, timeout=60)


def endless_wait_for_the_pll(top: Path) -> None:
    """QEMU's PLL never locks, as one that is set up wrongly would not."""
    board = top / "firmware/boards/stm32f4/board.cpp"
    right = board.read_text()
    bounded = "  if (!becomes(kRccCr, kPllReady, kPllReady)) return;\n"
    assert right.count(bounded) == 1
    board.write_text(right.replace(bounded, "  while (!becomes(kRccCr, kPllReady, kPllReady)) {\n  }\n"))


@contextmanager
def board_that_fails(seed: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """vboard-f405, whose link drops bytes now and then, and that loses its power or hangs.

    Its power is lost half way through the first flash, and now and then through a later one.
    """
    monkeypatch.setenv("HIL_LOCK_DIR", str(tmp_path / "locks"))
    rng, over = random.Random(seed), threading.Event()
    orders: list[tuple[str, dict[str, object]]] = [
        ("fault", {"faults": {"drop": 0.002}}), ("fault", {"faults": {"hang": 1}}), ("fault", {"faults": {}}),
        ("fault", {"faults": {"vanish": 1.0}}), ("power", {"state": "off"}), ("fault", {"faults": {"power_loss": 1}}),
    ]  # fmt: skip

    def disturb() -> None:
        while not over.wait(rng.uniform(2, 40)):
            what, details = rng.choice(orders)
            print(what, details)
            try:
                vboard.send_command("f405", what, **details)
                if what == "power":
                    over.wait(0.5)
                    vboard.send_command("f405", "power", state="on")
            except FlashError as error:  # the board has no runner yet
                print(error)

    with vboard.running("f405", "f405"):
        vboard.send_command("f405", "fault", faults={"power_loss": 1})
        thread = threading.Thread(target=disturb)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()


@pytest.mark.parametrize("trial", range(KERNEL_TRIALS))
def test_a_kernel(trial: int, tmp_path: Path) -> None:
    """Every second search is killed half way."""
    at = culprit()
    made = firmware_history(tmp_path / "source", at, kernel_bug)
    test = pytest_of(tmp_path, "cortex_m_hil", "m4-qemu,m0-qemu", "--hil-localize")
    found, position = search(made, tmp_path, "harness", test, "--likely=firmware/runtime", killed=trial % 2 == 1)
    assert position == at
    assert isinstance(found["runs"], int) and found["runs"] <= MANY
    targets = found["targets"]
    assert isinstance(targets, list)
    assert {(one["target"], one["old"], one["outputs_changed"]) for one in targets} == {
        ("m4-qemu", "PASS", True), ("m0-qemu", "PASS", True),
    }  # fmt: skip
    assert all("quantized_conv2d" in one["at_fault"] for one in targets)
    assert all(one["operators"][0].startswith("cortex_m::quantized_conv2d.out") for one in targets)


def test_a_kernel_that_is_said_to_be_deterministic(tmp_path: Path) -> None:
    at = culprit()
    made = firmware_history(tmp_path / "source", at, kernel_bug)
    test = pytest_of(tmp_path, "cortex_m_hil", "m4-qemu,m0-qemu")
    found, position = search(made, tmp_path, "harness", test, "--deterministic")
    assert position == at and found["runs"] == FEW


@pytest.mark.parametrize(("options", "most"), MODES)
def test_a_lowering_pass(options: Sequence[str], most: int, tmp_path: Path) -> None:
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
    test = pytest_of(tmp_path, "executorch.backends.cortex_m.passes", "m4-qemu,m0-qemu", "--hil-localize")
    found, position = search(made, tmp_path, "src", test, *options)
    assert position == at and isinstance(found["runs"], int) and found["runs"] <= most


@pytest.mark.parametrize("trial", range(BOARD_TRIALS))
def test_a_kernel_on_a_board_that_fails(trial: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the board does is no evidence: the culprit is found all the same."""
    at = culprit()
    made = firmware_history(tmp_path / "source", at, kernel_bug)
    test = pytest_of(tmp_path, "cortex_m_hil", "vboard-f405", "--hil-self-test")
    with board_that_fails(at + trial, monkeypatch, tmp_path):
        _, position = search(made, tmp_path, "harness", test, killed=trial == 0)
    assert position == at


@pytest.mark.parametrize(("options", "most"), MODES)
def test_the_clock_set_up_of_a_board(
    options: Sequence[str], most: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That a board says nothing is an infra error, and no evidence unless the command takes it for a failure."""
    monkeypatch.setenv("HIL_LOCK_DIR", str(tmp_path / "locks"))
    at = culprit()
    made = firmware_history(tmp_path / "source", at, endless_wait_for_the_pll)
    hil = f"{sys.executable} -m cortex_m_hil.cli doctor selftest -t vboard-f405"
    with vboard.running("f405", "f405"):
        found, position = search(made, tmp_path, "harness", ["sh", "-c", f"{hil} || exit 1"], *options)
    assert position == at and isinstance(found["runs"], int) and found["runs"] <= most


@pytest.mark.parametrize("rates", RATES)
def test_searches_are_right_as_often_as_they_say(rates: tuple[float, float]) -> None:
    """The table of docs/bisect.md; of 200 searches at 95 %, 190 are right."""
    mine, *others = rows(rates, TRIALS, SEED)
    print(mine, *others, sep="\n")
    assert mine.claimed == TRIALS and mine.right >= 0.95
    if rates == (1.0, 0.0):
        assert mine.median <= 16
