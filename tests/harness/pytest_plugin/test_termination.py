"""However a pytest run ends, nothing of it is left. ci/kill_test_runs.py has all the signals and victims."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

import leftover_processes

SECONDS = 120.0  # nothing here comes near
Looping = tuple["subprocess.Popen[bytes]", list[psutil.Process]]

TESTS = """
import os, pathlib
from cortex_m_hil import flow

def test_first(hil_dut):
    flow.selftest(hil_dut)

def test_second(hil_dut):
    flow.selftest(hil_dut)
    pathlib.Path("started").touch()
    while "LOOP" in os.environ:
        flow.selftest(hil_dut)
"""


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder for temporary files of the runs that the test makes."""
    (tmp_path / "test_it.py").write_text(TESTS)
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setenv("TMPDIR", str(folder))
    monkeypatch.setenv(leftover_processes.MARKER, uuid.uuid4().hex)
    return folder


def command(workers: int) -> list[str]:
    return [sys.executable, "-m", "pytest", "--target=m4-qemu", f"-n{workers}"]


@pytest.fixture
def looping(request: pytest.FixtureRequest, tmp_path: Path, temporary: Path) -> Iterator[Looping]:
    """A run in the middle of a test, with all that it has started; the parameter is the number of workers."""
    with subprocess.Popen(
        command(request.param), cwd=tmp_path, stdout=subprocess.PIPE, env={**os.environ, "LOOP": "1"}
    ) as process:
        watched = psutil.Process(process.pid)
        while not (tmp_path / "started").exists():
            assert process.poll() is None, process.communicate()
            psutil.wait_procs([watched], timeout=0.05)
        started = watched.children(recursive=True)
        assert any(child.name().startswith("qemu") for child in started)
        yield process, started
        process.kill()


@pytest.mark.slow
def test_an_undisturbed_run_leaves_no_folder(tmp_path: Path, temporary: Path) -> None:
    done = subprocess.run(command(2), cwd=tmp_path, capture_output=True, text=True, check=False)
    assert "2 passed" in done.stdout
    assert list(temporary.glob("hil-*")) == []


@pytest.mark.first_only
@pytest.mark.parametrize("looping", [0, 1], ids=["single", "xdist"], indirect=True)
def test_a_run_that_is_told_to_end_puts_everything_away(looping: Looping, temporary: Path) -> None:
    process, started = looping
    process.terminate()
    output, _ = process.communicate(timeout=SECONDS)
    assert re.search(rb" targets =+\nm4-qemu .* 1 passed  in ", output), output
    assert b"ended by SIGTERM" in output and process.returncode == 128 + signal.SIGTERM
    assert psutil.wait_procs(started, timeout=SECONDS)[1] == []
    assert list(temporary.glob("hil-*")) == []


@pytest.mark.slow
def test_a_run_that_is_told_to_end_says_what_one_that_is_interrupted_says(tmp_path: Path) -> None:
    """The failures, the table and pytest's names of failed tests; but for what ended it."""
    (tmp_path / "test_it.py").write_text(
        "import os, signal, time\n\n"
        "def test_wrong(target_spec):\n    assert target_spec is None\n\n"
        "def test_plain():\n    assert False\n\n"
        "def test_ends(target_spec):\n    os.kill(os.getpid(), int(os.environ['SIGNAL']))\n    time.sleep(60)\n"
    )
    said = {}
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        plain = [sys.executable, "-m", "pytest", "--target=native", "-p", "no:cacheprovider"]
        env = {**os.environ, "SIGNAL": str(int(number))}
        done = subprocess.run(
            plain, cwd=tmp_path, capture_output=True, text=True, timeout=SECONDS, check=False, env=env
        )
        assert "test_it.py" in done.stdout
        lines = [re.sub(r"[\d.]+ ?s\b", "… s", line) for line in done.stdout.splitlines() if line and line[0] != "!"]
        said[number] = [
            line for line in lines if "to show a full traceback" not in line and "KeyboardInterrupt" not in line
        ]
    assert said[signal.SIGTERM] == said[signal.SIGHUP] == said[signal.SIGINT]
    assert [line.split()[1] for line in said[signal.SIGTERM] if line.startswith("FAILED")] == [
        "test_it.py::test_wrong[native]",
        "test_it.py::test_plain",
    ]


def test_a_signal_whose_exception_is_lost_ends_the_run_before_the_next_test(tmp_path: Path) -> None:
    """Python drops what a signal handler raises while a destructor runs."""
    (tmp_path / "test_it.py").write_text(
        "import os, signal\n\n"
        "class Last:\n    def __del__(self):\n        os.kill(os.getpid(), signal.SIGTERM)\n        sum(range(9))\n\n"
        "def test_first():\n    Last()\n\ndef test_second():\n    open('reached', 'w')\n"
    )
    plain = [sys.executable, "-m", "pytest", "-p", "no:unraisableexception"]
    done = subprocess.run(plain, cwd=tmp_path, capture_output=True, text=True, timeout=SECONDS, check=False)
    assert "ended by SIGTERM" in done.stdout and done.returncode == 128 + signal.SIGTERM
    assert "1 passed" in done.stdout and not (tmp_path / "reached").exists()


@pytest.mark.parametrize("looping", [1], ids=["xdist"], indirect=True)
def test_a_run_that_is_killed_leaves_no_process_and_the_next_no_folder(
    tmp_path: Path, looping: Looping, temporary: Path
) -> None:
    process, started = looping
    process.kill()
    process.communicate()
    assert psutil.wait_procs(started, timeout=SECONDS)[1] == []
    done = subprocess.run(command(0), cwd=tmp_path, capture_output=True, text=True, check=False)
    assert "2 passed" in done.stdout
    assert list(temporary.glob("hil-*")) == []
