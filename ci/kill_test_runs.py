"""Kill any part of a test run by any signal, and check that nothing is left and that the next run is clean and green.

    python ci/kill_test_runs.py --rounds 2

The killed processes (victims) are pytest, xdist's worker and controller, QEMU, and in a run that builds its runner
ninja and a compiler. Leftover processes are found by an environment variable that all processes inherit.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil

from leftover_processes import MARKER, marked

START = 600.0  # seconds for the victim to appear: a build on a busy host
END = 300.0  # seconds for the run to end afterwards
GONE = 5.0  # seconds for all other processes to end after the run
SIGNALS = ("SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT", "SIGKILL")
# The source of a test that runs a program with known outputs, repeatedly while $LOOP is set.
TEST = """
import os, pathlib
from cortex_m_hil import flow

def test_known_answers(hil_dut):
    flow.selftest(hil_dut)
    pathlib.Path("started").touch()
    while "LOOP" in os.environ:
        flow.selftest(hil_dut)
"""


@dataclass(frozen=True)
class Run:
    """A pytest process with a folder for temporary files of its own; `cache` is its cache folder.

    Without a `cache` it is the user's own.
    """

    folder: Path
    marker: str
    cache: Path | None
    workers: bool

    def command(self) -> list[str]:
        where = ("--hil-target=m4-qemu", "--hil-runtime=builtin")
        started = ["env", "--default-signal", sys.executable]  # nohup, and a shell's &, have signals ignored
        return [*started, "-m", "pytest", *where, *(["-n1"] if self.workers else [])]

    def environment(self, **changes: str) -> dict[str, str]:
        # ccache runs a compiler again that was killed.
        cache = {"HIL_CACHE_DIR": str(self.cache), "CCACHE_DISABLE": "1"} if self.cache else {}
        return {**os.environ, **cache, MARKER: self.marker, "TMPDIR": str(self.temporary), **changes}

    @property
    def temporary(self) -> Path:
        return self.folder / "tmp"

    def folders(self) -> list[str]:
        """Return the names of folders that the run has left behind by mistake."""
        left = list(self.temporary.glob("hil-*"))
        left += self.cache.glob("runners/*-*") if self.cache else []
        return [path.name for path in left if path.is_dir()]

    @contextmanager
    def going(self) -> Iterator[subprocess.Popen[bytes]]:
        with (self.folder / "output").open("wb") as output:
            process = subprocess.Popen(
                self.command(), cwd=self.folder, stdout=output, stderr=output, start_new_session=True,
                env=self.environment(LOOP="1"),
            )  # fmt: skip
        try:
            yield process
        finally:
            for one in marked(self.marker):
                one.kill()
            process.wait()


def until(condition: Callable[[], bool], seconds: float) -> float:
    """Wait until a condition is true, `seconds` at most, and return how long it took."""
    start = time.monotonic()
    while not condition() and time.monotonic() - start < seconds:
        time.sleep(0.02)
    return time.monotonic() - start


def victim(name: str, process: subprocess.Popen[bytes], run: Run) -> psutil.Process:
    """Return the process to kill, once a test, or the build, is running.

    Raises:
        RuntimeError: the process does not appear.
    """

    def found() -> psutil.Process | None:
        if run.cache is None and not (run.folder / "started").exists():
            return None
        main = psutil.Process(process.pid)
        match name:
            case "pytest" | "controller":
                return main
            case "worker":
                return next(iter(main.children()), None)
            case "qemu-system-arm":
                return next((one for one in marked(run.marker) if one.name().startswith("qemu")), None)
            case _:
                return building(name, run)

    until(lambda: found() is not None or process.poll() is not None, START)
    one = found()
    if one is None:
        raise RuntimeError(f"no {name} was started: {(run.folder / 'output').read_text()}")
    return one


def building(name: str, run: Run) -> psutil.Process | None:
    """Return a compiler at one of the runner's sources, or the ninja above it; None if there is none.

    Compilers that cmake runs to test them are ignored.
    """
    for one in marked(run.marker):
        with contextlib.suppress(psutil.Error):
            if one.name() == "cc1plus" and any("/runtime/" in word for word in one.cmdline()):
                return one if name == "cc1plus" else next(up for up in one.parents() if up.name() == name)
    return None


@dataclass(frozen=True)
class Outcome:
    ended: float  # seconds from the signal to the end of the run
    gone: float  # seconds from then until the last process had ended
    processes: list[str]
    folders: list[str]  # folders left behind by the killed run
    trouble: list[str]

    def __str__(self) -> str:
        bad = "; ".join([*self.processes, *self.trouble]) or "clean"
        return f"ended {self.ended:5.1f} s, gone {self.gone:4.1f} s, folders left {len(self.folders)}, next run: {bad}"


def kill(name: str, number: signal.Signals, parent: Path) -> Outcome:
    """Run a test, send a signal to the part `name` of the run, run the test again, and return the outcome."""
    with tempfile.TemporaryDirectory(dir=parent) as folder:
        builds = name in ("ninja", "cc1plus")
        cache = Path(folder, "cache") if builds else None
        run = Run(Path(folder), uuid.uuid4().hex, cache, name in ("worker", "controller"))
        run.temporary.mkdir()
        Path(folder, "test_known_answers.py").write_text(TEST)
        with run.going() as process:
            victim(name, process, run).send_signal(number)
            ended = until(lambda: process.poll() is not None, END)
            gone = until(lambda: not marked(run.marker), GONE)
            processes = [f"left: {one.name()}" for one in marked(run.marker)]
            trouble = ["no end of the run"] if process.returncode is None else []
        if number is signal.SIGINT and name in ("pytest", "controller"):
            trouble += [] if "no tests ran" in Path(folder, "output").read_text() else ["no summary"]
        folders = run.folders()
        return Outcome(ended, gone, processes, folders, trouble + next_run(run))


def next_run(run: Run) -> list[str]:
    """Run the test once more, and return the problems of that run."""
    done = subprocess.run(run.command(), cwd=run.folder, env=run.environment(), capture_output=True, check=False)
    trouble = [f"left: {name}" for name in run.folders()] + [f"left: {one.name()}" for one in marked(run.marker)]
    return trouble + ([f"status {done.returncode}"] if done.returncode else [])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--victim", action="append", choices=VICTIMS, help="one of them; repeatable")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # through the ends of the runs
    bad = 0
    with tempfile.TemporaryDirectory() as parent:
        for number in range(1, options.rounds + 1):
            for name in options.victim or VICTIMS:
                for sent in SIGNALS:
                    outcome = kill(name, signal.Signals[sent], Path(parent))
                    bad += bool(outcome.processes or outcome.trouble)
                    print(f"{number}  {sent:7}  {name:15}  {outcome}", flush=True)
    print(f"{bad} left something or broke the next run")
    return 1 if bad else 0


VICTIMS = ("pytest", "worker", "controller", "qemu-system-arm", "ninja", "cc1plus")  # cc1plus is the compiler


if __name__ == "__main__":
    raise SystemExit(main())
