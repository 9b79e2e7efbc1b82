"""Leases: real processes that take boards from each other, are killed, stopped, and wait."""

from __future__ import annotations

import collections
import itertools
import json
import os
import signal
import subprocess
import time
from dataclasses import replace
from pathlib import Path

import pytest

from cortex_m_hil.boards import file_locks, leases
from cortex_m_hil.boards.health import Health
from cortex_m_hil.errors import BoardBusy, BoardWedged, ConfigError
from cortex_m_hil.host.deadline import Deadline
from devices import LEASED, Start

SOON = 20.0  # seconds; a holder that is waited for stays longer
HOLD = """
import sys, time
from cortex_m_hil.boards import leases
lease = leases.acquire(sys.argv[1].split(","), what="test_other", wait=60)
print(lease.board, flush=True)
time.sleep(float(sys.argv[2]))
print(time.monotonic(), flush=True)
lease.release()
"""


def says(child: subprocess.Popen[str]) -> str:
    assert child.stdout
    return child.stdout.readline().strip()


def holder_of(board: str) -> int:
    holder = leases.inspect(board).holder
    assert holder
    return holder.pid


def queue(length: int) -> None:
    """Waits until so many wait."""
    deadline = Deadline.after(30.0)
    folder = file_locks.lock_directory() / "queue"
    while not folder.is_dir() or sum(name.isdigit() for name in os.listdir(folder)) < length:
        assert not deadline.expired
        time.sleep(0.02)


def test_a_board_that_is_free_is_had_at_once_and_is_free_again_afterwards() -> None:
    with leases.acquire(["/dev/null"], what="test") as lease:
        assert (lease.board, lease.port) == ("/dev/null", "/dev/null")
        status = leases.inspect("/dev/null")
        assert status.held
        assert status.holder
        assert (status.holder.pid, status.holder.what) == (os.getpid(), "test")
    assert leases.inspect("/dev/null").describe() == "free"
    assert leases.known_boards() == ["/dev/null"]


def test_two_ports_that_are_one_device_share_a_lock(tmp_path: Path, start: Start) -> None:
    link = tmp_path / "by-id"
    link.symlink_to("/dev/null")
    other = start(HOLD, "/dev/null", "30")
    assert says(other) == "/dev/null"
    with pytest.raises(BoardBusy):
        leases.acquire([str(link)], what="test", wait=0.1)


def test_an_adapter_is_known_by_its_serial_number(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leases, "BY_ID", tmp_path / "by-id")
    (tmp_path / "by-id").mkdir()
    link = tmp_path / "by-id" / "usb-STLink_066A"
    link.symlink_to("/dev/null")
    assert leases.port_identity("/dev/null") == leases.port_identity(str(link)) == str(link)
    assert leases.port_identity("/dev/zero") == "/dev/zero"
    assert leases.port_identity("rfc2217://lab:4000") == "rfc2217://lab:4000"


def test_busy_says_who_where_since_when_and_for_what(start: Start) -> None:
    other = start(HOLD, "a:1", "30")
    says(other)
    began = time.monotonic()
    with pytest.raises(BoardBusy) as caught:
        leases.acquire(["a:1"], what="test", wait=0.5)
    assert 0.5 <= time.monotonic() - began < SOON
    text = str(caught.value)
    for part in ("within 0.5 s", "a:1: held by", "test_other", f"pid {other.pid}", "script0.py a:1 30", "since"):
        assert part in text


def test_a_waiter_has_the_board_as_soon_as_it_is_given_back(start: Start) -> None:
    other = start(HOLD, "a:1", "1")
    says(other)
    with leases.acquire(["a:1"], what="test", wait=60):
        assert 0 < time.monotonic() - float(says(other)) < SOON
    other.wait()


def test_a_killed_holder_frees_its_board_and_its_record_is_not_believed(start: Start) -> None:
    other = start(HOLD, "a:1", "60")
    says(other)
    record = file_locks.board_file("a:1", "holder")
    other.kill()
    other.wait()
    assert json.loads(record.read_text())["pid"] == other.pid, "it had no time to remove its record"
    assert leases.inspect("a:1").describe() == "free"
    with leases.acquire(["a:1"], what="test", wait=1) as lease:
        assert lease.board == "a:1"


def test_a_waiter_wakes_when_the_holder_is_killed(start: Start) -> None:
    holder = start(HOLD, "a:1", "60")
    says(holder)
    waiter = start(HOLD, "a:1", "60")
    queue(1)
    os.kill(holder.pid, signal.SIGKILL)
    began = time.monotonic()
    assert says(waiter) == "a:1"
    assert time.monotonic() - began < SOON


def test_a_record_of_a_pid_that_is_used_again_is_not_believed(start: Start) -> None:
    other = start(HOLD, "a:1", "30")
    says(other)
    path = file_locks.board_file("a:1", "holder")
    record = json.loads(path.read_text())
    path.write_text(json.dumps({**record, "pid": os.getpid()}))  # alive, and began at another time
    assert leases.inspect("a:1").describe() == "held by a process that has not said who it is"


def test_a_killed_waiter_stands_in_nobodys_way(start: Start) -> None:
    holder = start(HOLD, "a:1", "60")
    says(holder)
    waiter = start(HOLD, "a:1", "60")
    queue(1)
    waiter.kill()
    waiter.wait()
    holder.kill()
    with leases.acquire(["a:1"], what="test", wait=20):
        pass
    assert not list((file_locks.lock_directory() / "queue").iterdir())


def test_who_came_first_goes_first(start: Start) -> None:
    holder = start(HOLD, "a:1", "60")
    says(holder)
    first = start(HOLD, "a:1", "60")
    queue(1)
    second = start(HOLD, "a:1", "60")
    queue(2)
    with leases.acquire(["b:1"], what="another board is free for all"):
        pass
    holder.kill()
    assert says(first) == "a:1"
    assert holder_of("a:1") == first.pid
    first.kill()
    assert says(second) == "a:1"


def test_a_board_that_somebody_earlier_waits_for_is_left_to_them(start: Start) -> None:
    """a is held; the first waits for a alone, so the second, who takes a or b, gets b at once."""
    holder = start(HOLD, "a:1", "60")
    says(holder)
    start(HOLD, "a:1", "60")
    queue(1)
    began = time.monotonic()
    with leases.acquire(["a:1", "b:1"], what="test") as lease:
        assert lease.board == "b:1"
    assert time.monotonic() - began < SOON


def test_a_fork_does_not_keep_the_board(start: Start) -> None:
    child = start("""
import os, time
from cortex_m_hil.boards import leases
lease = leases.acquire(["a:1"], what="test")
if os.fork() == 0:
    time.sleep(60)
    os._exit(0)
lease.release()
print("released", flush=True)
time.sleep(60)
""")
    assert says(child) == "released"
    with leases.acquire(["a:1"], what="test", wait=1):
        pass


def test_a_second_lease_of_one_test_is_a_config_error() -> None:
    with leases.acquire(["a:1"], what="test"), pytest.raises(ConfigError, match="one test leases one board"):
        leases.acquire(["b:1"], what="test")


def test_of_several_boards_the_least_failed_is_taken_then_the_one_with_this_build() -> None:
    leases.write_health("a:1", Health(failures=2, build="x"))
    leases.write_health("b:1", Health(failures=1))
    leases.write_health("c:1", Health(failures=1, build="x"))
    with leases.acquire(["a:1", "b:1", "c:1"], what="test", build="x") as lease:
        assert lease.board == "c:1"
    with leases.acquire(["a:1", "b:1", "c:1"], what="test", build="y") as lease:
        assert lease.board == "b:1"


def test_a_wedged_board_is_refused_with_its_reason_and_had_again_once_cleared() -> None:
    leases.write_health("a:1", Health(failures=1, wedged="the self-test's output is [1]", wedged_at=1.0))
    with pytest.raises(BoardWedged, match=r"the self-test's output is \[1\].*\n.*hil board clear a:1"):
        leases.acquire(["a:1"], what="test")
    with leases.acquire(["a:1", "b:1"], what="test") as lease:
        assert lease.board == "b:1"
    leases.write_health("a:1", Health())
    with leases.acquire(["a:1"], what="test"):
        pass


def test_a_board_is_wedged_for_the_setups_under_which_nothing_helped() -> None:
    leases.write_health("a:1", Health(wedged="silent", wedged_for=("115200", "9600")))
    with pytest.raises(BoardWedged, match="silent"):
        leases.acquire(["a:1"], what="test", setup="9600")
    with leases.acquire(["a:1"], what="test", setup="921600") as lease:
        assert lease.health.wedged, "who comes with another decides"


def test_a_waiter_hears_that_its_board_was_wedged_meanwhile(start: Start) -> None:
    holder = start(
        HOLD.replace("lease.release()", "lease.health = leases.Health(wedged='smoke'); lease.release()"), "a:1", "1"
    )
    says(holder)
    with pytest.raises(BoardWedged, match="smoke"):
        leases.acquire(["a:1"], what="test", wait=20)


def test_a_person_holds_a_board_beyond_the_command_and_gives_it_back() -> None:
    leases.write_health("a:1", Health(wedged="to be looked at"))
    leases.hold("a:1", seconds=60, reason="soldering", wait=1)
    status = leases.inspect("a:1")
    assert status.holder
    assert "soldering" in status.describe()
    leases.write_health("a:1", Health())
    with pytest.raises(BoardBusy, match="soldering"):
        leases.acquire(["a:1"], what="test", wait=0.1)
    assert leases.release_hold("a:1").pid == status.holder.pid
    with leases.acquire(["a:1"], what="test", wait=1):
        pass


def test_a_board_is_cleared_while_its_person_holds_it_and_not_while_a_test_does(start: Start) -> None:
    leases.write_health("a:1", Health(failures=4, wedged="smoke"))
    leases.hold("a:1", seconds=60, reason="soldering", wait=1)
    leases.clear("a:1")
    assert leases.read_health("a:1") == Health()
    leases.release_hold("a:1")
    leases.write_health("a:1", Health(failures=4, wedged="smoke"))
    leases.clear("a:1")
    assert leases.inspect("a:1").describe() == "free"


def test_a_hold_ends_by_itself() -> None:
    leases.hold("a:1", seconds=0.5, reason="lunch", wait=1)
    with leases.acquire(["a:1"], what="test", wait=20):
        pass


def test_a_tests_lease_is_not_released_by_a_person(start: Start) -> None:
    other = start(HOLD, "a:1", "30")
    says(other)
    with pytest.raises(ConfigError, match="end that process"):
        leases.release_hold("a:1")
    with pytest.raises(ConfigError, match="is not held"):
        leases.release_hold("b:1")
    assert other.poll() is None


def test_a_folder_that_others_may_write_is_not_trusted() -> None:
    folder = file_locks.lock_directory()
    folder.chmod(0o777)
    with pytest.raises(ConfigError, match="others can write"):
        file_locks.lock_directory()
    folder.chmod(0o700)


def test_a_health_record_of_another_version_is_no_error() -> None:
    leases.write_health("a:1", replace(Health(), failures=3))
    assert leases.read_health("a:1").failures == 3
    file_locks.board_file("a:1", "health").write_text('{"mood": "good"}')
    assert leases.read_health("a:1") == Health()
    file_locks.board_file("a:1", "health").write_text("{")
    assert leases.read_health("a:1") == Health()


WORK = f"""{LEASED}
import sys
from cortex_m_hil.boards import leases
name, boards, count, seconds = sys.argv[1], sys.argv[2].split(","), int(sys.argv[3]), float(sys.argv[4])

for turn in range(count):
    with leases.acquire(boards, what=name, wait=60) as lease:
        time.sleep(seconds)
        print(name, turn, lease.board, *leased.pop(), time.monotonic(), flush=True)
"""


def test_four_workers_on_two_boards_take_turns(start: Start) -> None:
    """No overlap on a board, everybody's turns, and nobody is overtaken."""
    count, seconds = 8, 0.3
    workers = [start(WORK, f"w{n}", "a:1,b:1", str(count), str(seconds)) for n in range(4)]
    rows = []
    for worker in workers:
        assert worker.stdout
        rows += [line.split() for line in worker.stdout.read().splitlines()]
        assert worker.wait() == 0
    assert collections.Counter(row[0] for row in rows) == {f"w{n}": count for n in range(4)}
    by_board: dict[str, list[tuple[float, float]]] = collections.defaultdict(list)
    for _, _, board, _, at, ended in rows:
        by_board[board].append((float(at), float(ended)))
    assert set(by_board) == {"a:1", "b:1"}
    for spans in by_board.values():
        spans.sort()
        assert all(before[1] <= after[0] for before, after in itertools.pairwise(spans))
    tickets = [int(row[3]) for row in sorted(rows, key=lambda row: float(row[4]))]
    assert tickets == sorted(tickets)
