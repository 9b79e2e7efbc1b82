"""What a child has started ends with it, and with us; what a killed process left in folders is removed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from contextlib import closing
from pathlib import Path

import psutil
import pytest

import leftover_processes
from cortex_m_hil.errors import LaunchError
from cortex_m_hil.host import subprocesses
from cortex_m_hil.host.deadline import Deadline
from cortex_m_hil.host.folders import OwnFolder, TemporaryFolder, remove_abandoned
from cortex_m_hil.runner.launchers.process import Process
from paths import IMPORT_ROOT

SECONDS = 60.0  # nothing here comes near


@pytest.fixture
def marker(monkeypatch: pytest.MonkeyPatch) -> str:
    """All that the test starts carries it."""
    value = uuid.uuid4().hex
    monkeypatch.setenv(leftover_processes.MARKER, value)
    return value


def owner(source: str) -> subprocess.Popen[str]:
    """A process of its own that starts children, and then says so."""
    return subprocess.Popen(
        [sys.executable, "-c", f"import sys\n{source}\nprint('up', flush=True)\nsys.stdin.read()"],
        env={**os.environ, "PYTHONPATH": str(IMPORT_ROOT)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def begun(marker: str, least: int, besides: set[int]) -> list[psutil.Process]:
    """All that carry the marker, once there are `least`: a process has no environment while it becomes a command."""
    deadline = Deadline.after(SECONDS)
    while True:
        found = [one for one in leftover_processes.marked(marker) if one.pid not in besides]
        if len(found) >= least:
            return found
        assert not deadline.expired, found
        time.sleep(0.01)


# --- processes -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("end", leftover_processes.ENDS)
@pytest.mark.parametrize("way", leftover_processes.WAYS)
def test_nothing_is_left_when_a_child_has_ended(way: str, end: str) -> None:
    assert [leftover_processes.left(way, end) for _ in range(3)] == [[], [], []]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGKILL])
def test_nothing_is_left_when_the_owner_has_ended(marker: str, number: signal.Signals) -> None:
    scripts = [f"{way}\necho; exec sleep 1000" for way in leftover_processes.WAYS.values()]
    source = (
        "from cortex_m_hil.runner.launchers.process import Process\nfrom cortex_m_hil.host.deadline import Deadline\n"
        f"made = [Process(['sh', '-c', script]) for script in {scripts!r}]\n"
        f"for process in made: process.read(Deadline.after({SECONDS}))"
    )
    with owner(source) as process:
        assert process.stdout is not None and process.stdout.readline() == "up\n"
        # Each: a supervisor, a command, and what that has started.
        started = begun(marker, 3 * len(scripts), besides={process.pid, os.getpid()})
        process.send_signal(number)
        process.wait(SECONDS)
    _, alive = psutil.wait_procs(started, timeout=SECONDS)
    assert alive == []


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_a_supervisor_that_is_killed_or_stopped(
    marker: str, number: signal.Signals, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(subprocesses, "END_TIMEOUT", 0.5)
    with closing(Process(["sh", "-c", f"{leftover_processes.WAYS['as a job']}\necho up; exec sleep 1000"])) as process:
        process.read(Deadline.after(SECONDS))
        os.kill(process.pid, number)
    assert [one.name() for one in leftover_processes.marked(marker)] == []


def test_a_command_is_asked_first_where_it_has_something_to_put_away(tmp_path: Path) -> None:
    script = f"trap 'echo tidy > {tmp_path}/done; exit' TERM; echo up; while :; do sleep 0.05; done"
    with closing(Process(["sh", "-c", script], grace=SECONDS)) as process:
        process.read(Deadline.after(SECONDS))
    assert (tmp_path / "done").read_text() == "tidy\n"


def test_a_command_that_does_not_listen_is_killed_all_the_same(marker: str) -> None:
    with closing(Process(["sh", "-c", "trap '' TERM; echo up; while :; do sleep 0.05; done"], grace=0.1)) as process:
        process.read(Deadline.after(SECONDS))
    assert leftover_processes.marked(marker) == []


@pytest.mark.parametrize(
    ("script", "status"),
    [
        ("exit 0", 0),
        ("exit 130", 130),
        *(
            (f"kill -{n.value} $$", -n.value)
            for n in (signal.SIGSEGV, signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGPIPE)
        ),
    ],
)
def test_a_childs_status_is_the_commands(script: str, status: int) -> None:
    with closing(Process(["sh", "-c", script])) as process:
        assert process.wait(SECONDS) == status


def test_a_command_that_cannot_be_started(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("no program")
    for command, status, said in ("no-such-program", 127, b"No such file"), (str(tmp_path / "text"), 126, b"denied"):
        with closing(Process([command])) as process:
            assert process.wait(SECONDS) == status
            assert said in process.log
    with pytest.raises(LaunchError, match="cannot start true: No such file"):
        Process(["true"], cwd=tmp_path / "nowhere")


def test_signals_reach_a_command_as_if_nobody_were_between() -> None:
    """The supervisor leaves neither ignored nor blocked ones behind. What came from outside (glibc's own signals, which
    nobody can reset through glibc) is there in a direct child as well.
    """
    command = ["grep", "-E", "^Sig(Blk|Ign)", "/proc/self/status"]
    with closing(Process(command)) as process:
        assert process.wait(SECONDS) == 0
        said = process.read(Deadline.after(SECONDS)).decode()
    assert said == subprocess.run(command, capture_output=True, text=True, check=True).stdout
    glibc = 0b11 << 31  # 32 and 33
    assert all(int(line.split()[1], 16) & ~glibc == 0 for line in said.splitlines())


# --- folders -------------------------------------------------------------------------------------------------

KEEPER = """
import os
from pathlib import Path
from cortex_m_hil.host.folders import TemporaryFolder
folder = TemporaryFolder('hil-', Path({!r}))
"""


def test_a_killed_owners_folder_is_removed_by_the_next(tmp_path: Path) -> None:
    with owner(KEEPER.format(str(tmp_path))) as process:
        assert process.stdout is not None and process.stdout.readline() == "up\n"
        (folder,) = tmp_path.iterdir()
        (folder / "sub").mkdir()
        (folder / "sub" / "file").touch()
        remove_abandoned(tmp_path, "hil-*")
        assert folder.is_dir()  # its owner lives
        process.kill()
        process.wait(SECONDS)
    assert folder.is_dir()
    with TemporaryFolder("hil-", tmp_path) as other:
        assert list(tmp_path.iterdir()) == [other]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("end", ["", "sys.exit(3)", "raise KeyboardInterrupt"])
def test_a_folder_that_nobody_removed_goes_with_its_process(tmp_path: Path, end: str) -> None:
    with owner(f"{KEEPER.format(str(tmp_path))}{end}") as process:
        process.communicate(timeout=SECONDS)
    assert list(tmp_path.iterdir()) == []


def test_a_fork_does_not_remove_its_parents_folder(tmp_path: Path) -> None:
    fork = "if os.fork() == 0: sys.exit()\nos.wait()\nassert folder.path.is_dir()"
    with owner(KEEPER.format(str(tmp_path)) + fork) as process:
        assert process.communicate()[0] == "up\n"


def test_what_was_never_ours_is_not_touched(tmp_path: Path) -> None:
    for name in ("hil-results", "hil-empty", "other"):
        (tmp_path / name).mkdir()
    (tmp_path / "hil-results" / "precious").touch()
    (tmp_path / "hil-file").touch()
    (tmp_path / "hil-link").symlink_to(tmp_path / "hil-results")
    before = sorted(tmp_path.rglob("*"))
    remove_abandoned(tmp_path, "hil-*")
    assert sorted(tmp_path.rglob("*")) == before


def test_a_folder_has_one_owner_at_a_time(tmp_path: Path) -> None:
    first = OwnFolder(tmp_path)
    with pytest.raises(BlockingIOError):
        OwnFolder(tmp_path)
    first.remove()
    assert not tmp_path.exists()
    with pytest.raises(FileNotFoundError):
        OwnFolder(tmp_path)


def test_a_new_folder_that_is_taken_for_abandoned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between its creation and its lock."""
    make, made = tempfile.mkdtemp, list[str]()

    def interrupted(prefix: str, dir: Path) -> str:
        made.append(make(prefix=prefix, dir=dir))
        if len(made) == 1:
            OwnFolder(Path(made[0])).remove()
        return made[-1]

    monkeypatch.setattr(tempfile, "mkdtemp", interrupted)
    with TemporaryFolder("hil-", tmp_path) as folder:
        assert [str(folder)] == made[1:]
