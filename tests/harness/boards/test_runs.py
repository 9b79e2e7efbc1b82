"""Whole test runs on virtual boards: two at once on a shared pool, and runs that meet every kind of injected fault."""

from __future__ import annotations

import collections
import itertools
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from cortex_m_hil.boards import leases
from cortex_m_hil.boards.virtual import vboard
from cortex_m_hil.errors import FlashError
from cortex_m_hil.runner.build import build_runner
from cortex_m_hil.targets.load import load_targets
from devices import LEASED, tools
from paths import IMPORT_ROOT

TOOLS = tools("{serial_number}")
OTHER = {"HIL_TEST_KERNELS": "ON"}  # another runner
NOTHING = ["{python}", "-c", ""]  # a tool that believes it did something
TESTS = f"""{LEASED}
import json, os
import pytest
from cortex_m_hil import flow

@pytest.mark.parametrize("number", range(int(os.environ.get("COUNT", "1"))))
def test_board(hil_dut, number):
    hil_dut.session()
    flow.selftest(hil_dut)
    if os.environ.get("STAY"):
        print("working", flush=True)
        time.sleep(float(os.environ["STAY"]))
    row = [os.environ["RUN"], number, hil_dut._leased.target.launcher.port, *leased.pop(), time.monotonic()]
    with open("rows", "a") as log:
        log.write(json.dumps(row) + "\\n")
"""


class Bed:
    """A folder with tests, targets and virtual boards."""

    def __init__(self, folder: Path, boards: list[str]) -> None:
        self.folder = folder
        self.boards = boards
        (folder / "test_it.py").write_text(TESTS)

    def targets(self, changed: dict[str, list[str]] | None = None, wait: float = 120) -> None:
        ports = [{"port": f"vboard:{name}", "serial_number": name} for name in self.boards]
        serial = {"ports": ports, "baud": 921600, "wait": wait, **TOOLS, **(changed or {})}
        entry = {"cpu": "cortex-m4", "board": "stm32f4", "launcher": {"serial": serial}}
        (self.folder / "targets.yaml").write_text(json.dumps({"targets": {"pair": entry}}))

    def begin(self, *options: str, **variables: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-s", "--target=pair",
             *options, "test_it.py"],
            cwd=self.folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True,
            env={**os.environ, "PYTHONPATH": str(IMPORT_ROOT), "RUN": "one", **variables},
        )  # fmt: skip

    def run(self, *options: str, **variables: str) -> str:
        """The run's output."""
        return self.begin(*options, **variables).communicate(timeout=400)[0]

    def rows(self) -> list[tuple[str, int, str, int, float, float]]:
        """Run, test, board, ticket, when it was leased, when the test had ended."""
        return [tuple(json.loads(line)) for line in (self.folder / "rows").read_text().splitlines()]


@pytest.fixture(scope="module")
def two_boards() -> Iterator[list[str]]:
    build_runner(load_targets()["vboard-f405"])
    names = [f"test-{os.getpid()}{letter}" for letter in "ab"]
    with vboard.running("f405", names[0]), vboard.running("f405", names[1]):
        yield names


@pytest.fixture
def pair(tmp_path: Path, two_boards: list[str]) -> Bed:
    return Bed(tmp_path, two_boards)


@pytest.fixture
def bed(tmp_path: Path, two_boards: list[str]) -> Iterator[Bed]:
    """One board, which is well again afterwards."""
    yield Bed(tmp_path, two_boards[:1])
    vboard.send_command(two_boards[0], "fault", faults={})
    vboard.send_command(two_boards[0], "power", state="off")
    vboard.send_command(two_boards[0], "power", state="on")


def hang(name: str) -> None:
    """The core stops; a virtual board's power or flash brings it back."""
    vboard.send_command(name, "fault", faults={"hang": 1})


@pytest.mark.slow
def test_two_runs_of_two_workers_share_two_boards(pair: Bed) -> None:
    """Every test once, no overlap, no board opened twice, nobody overtaken."""
    pair.targets()
    count = 5
    runs = [pair.begin("-n2", COUNT=str(count), RUN=name) for name in ("one", "two")]
    for run in runs:
        output = run.communicate(timeout=500)[0]
        assert run.returncode == 0, output
        assert f"{count} passed" in output
    rows = pair.rows()
    assert collections.Counter(row[:2] for row in rows) == {
        (run, number): 1 for run in ("one", "two") for number in range(count)
    }
    by_board: dict[str, list[tuple[float, float]]] = collections.defaultdict(list)
    for _, _, board, _, leased, ended in rows:
        by_board[board].append((leased, ended))
    assert len(by_board) == 2
    for spans in by_board.values():
        assert all(before[1] <= after[0] for before, after in itertools.pairwise(sorted(spans)))
    tickets = [row[3] for row in sorted(rows, key=lambda row: row[4])]
    assert tickets == sorted(tickets)


@pytest.mark.slow
def test_power_that_is_lost_in_the_middle_of_a_flash_costs_one_test(bed: Bed) -> None:
    """What answers then is half of the runner, or nothing: the next test flashes again."""
    bed.targets()
    vboard.send_command(bed.boards[0], "power", state="off")  # it holds nothing that could be adopted
    vboard.send_command(bed.boards[0], "fault", faults={"power_loss": 1})
    (bed.folder / "other.elf").write_bytes(build_runner(load_targets()["vboard-f405"], options=OTHER).path.read_bytes())
    with pytest.raises(FlashError, match="lost its power while it was flashed"):
        vboard.send_command(bed.boards[0], "flash", elf=str(bed.folder / "other.elf"))
    vboard.send_command(bed.boards[0], "fault", faults={"power_loss": 1})
    output = bed.run("-rA", COUNT="2")
    assert "FlashError: " in output and "lost its power while it was flashed" in output
    assert "1 passed, 1 failed" in output.replace("1 failed, 1 passed", "1 passed, 1 failed"), output


@pytest.mark.slow
def test_a_worker_that_is_killed_with_a_lease_stops_nobody(bed: Bed) -> None:
    bed.targets()
    run = bed.begin(STAY="300")
    assert run.stdout
    while "working" not in (line := run.stdout.readline()):
        assert line
    os.killpg(run.pid, signal.SIGKILL)
    assert "1 passed" in bed.run()
    run.communicate()


@pytest.mark.slow
def test_a_board_that_is_held_too_long_is_busy_and_says_by_whom(bed: Bed) -> None:
    bed.targets(wait=1)
    leases.hold(f"vboard:{bed.boards[0]}", seconds=300, reason="soldering", wait=10)
    output = bed.run()
    assert "INFRA" in output
    assert "BoardBusy: no board got free within 1 s" in output
    assert "for soldering, since" in output
    leases.release_hold(f"vboard:{bed.boards[0]}")
    assert "1 passed" in bed.run()


@pytest.mark.slow
def test_power_lost_during_flash_fails_one_test_and_the_next_flashes_again(bed: Bed) -> None:
    cut = "import os, sys; os.path.exists('cut') or (open('cut', 'w').close(), os.kill(os.getpid(), 9))"
    cut += "; os.execv(sys.executable, [sys.executable, *sys.argv[1:]])"
    vboard.send_command(bed.boards[0], "power", state="off")
    bed.targets({"flash": ["{python}", "-c", cut, *TOOLS["flash"][1:]], "reset": NOTHING})
    output = bed.run(COUNT="2")
    assert "1 failed, 1 passed" in output
    assert "FlashError: flash: python" in output
    assert "was killed (SIGKILL)" in output


@pytest.mark.first_only
@pytest.mark.parametrize("helps", ["reset", "flash", "power"])
def test_a_hung_board_is_recovered_by_the_one_tool_that_works(bed: Bed, helps: str) -> None:
    """The board hangs before the test; each tool but one only pretends. So the board comes up, late."""
    bed.targets()
    assert "1 passed" in bed.run()
    failures = leases.read_health(f"vboard:{bed.boards[0]}").failures
    bed.targets({name: NOTHING for name in TOOLS if name != helps})
    hang(bed.boards[0])
    output = bed.run()
    assert "1 passed" in output, output
    # Bringing a board up resets and flashes it anyway; only beyond that is it a failure of the board.
    assert leases.read_health(f"vboard:{bed.boards[0]}").failures == failures + (helps == "power")


@pytest.mark.slow
def test_a_board_that_nothing_helps_is_wedged_and_the_next_run_is_told_at_once(bed: Bed) -> None:
    bed.targets()
    assert "1 passed" in bed.run()
    used = bed.folder / "used"
    bed.targets({name: ["{python}", "-c", f"open({str(used)!r}, 'a').close()"] for name in TOOLS})
    hang(bed.boards[0])
    output = bed.run()
    assert "BoardWedged" in output, output
    used.unlink()
    output = bed.run(COUNT="3")
    assert not used.exists(), "nobody tries again"
    assert "3 failed" in output
    assert "after power cycle: the same error" in output
    vboard.send_command(bed.boards[0], "reset")
    leases.clear(f"vboard:{bed.boards[0]}")
    assert "1 passed" in bed.run()
