"""Check many times, on a busy host, that all descendants of a child process end together with it.

    python ci/leftover_processes.py --repetitions 1000 --busy 8

Each repetition starts a shell that starts another process in one of several ways, then either ends by itself or is
ended; leftover processes are counted when the harness reports its end.
"""

from __future__ import annotations

import argparse
import collections
import itertools
import os
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from contextlib import closing, contextmanager

import psutil

from cortex_m_hil.host.deadline import Deadline
from cortex_m_hil.runner.launchers.process import Process
from cortex_m_hil.targets.connection import LinkClosed

MARKER = "HIL_MARKER"  # an environment variable, which all descendants inherit
SECONDS = 120.0  # time limit of a repetition, which is never nearly reached
STATUS = 3
# The started process keeps the shell's standard error open, so it is known to have started.
WAYS = {
    "in its group": "sleep 1000 >/dev/null &",
    "as a job": "started=$(set -m; sleep 1000 >/dev/null & echo)",  # in a process group of its own, like ninja's jobs
    "in a session": "started=$(setsid sh -c 'sleep 1000 >/dev/null & echo')",  # whose parent has ended
    "deaf": "trap '' TERM INT HUP QUIT; sleep 1000 >/dev/null &",
}
ENDS = {"by itself": f"exit {STATUS}", "ended by us": "echo up; exec sleep 1000"}


def marked(marker: str) -> list[psutil.Process]:
    """Return the living processes whose environment has the marker."""
    return [process for process in psutil.process_iter() if _environment(process).get(MARKER) == marker]


def _environment(process: psutil.Process) -> dict[str, str]:
    try:
        return process.environ()
    except psutil.Error:  # it has ended, or belongs to another user
        return {}


def left(way: str, end: str) -> list[str]:
    """Return the names of leftover processes after one repetition, or its error."""
    marker = uuid.uuid4().hex
    command = ["sh", "-c", f"{WAYS[way]}\n{ENDS[end]}"]
    with closing(Process(command, env={**os.environ, MARKER: marker})) as process:
        try:
            process.read(Deadline.after(SECONDS))
        except LinkClosed:
            if process.wait(SECONDS) != STATUS:
                return [f"status {process.wait(0.0)}"]
    return [process.name() for process in marked(marker)]


@contextmanager
def busy(count: int) -> Iterator[None]:
    """Run `count` processes that only compute, until the block ends."""
    loops = [subprocess.Popen([sys.executable, "-S", "-c", "while True: pass"]) for _ in range(count)]
    try:
        yield
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repetitions", type=int, default=1000)
    parser.add_argument("--busy", type=int, default=0, help="processes that compute meanwhile")
    options = parser.parse_args()
    cases = itertools.cycle(itertools.product(WAYS, ENDS))
    found: collections.Counter[str] = collections.Counter()
    start = time.monotonic()
    with busy(options.busy):
        for way, end in itertools.islice(cases, options.repetitions):
            if names := left(way, end):
                found[f"{way}, {end}: {' '.join(names)}"] += 1
    load = os.getloadavg()[0]
    print(
        f"{options.repetitions} repetitions, {time.monotonic() - start:.0f} s, load {load:.1f}: "
        f"{found.total()} left something"
    )
    for what, count in found.most_common():
        print(f"  {count} × {what}")
    return 1 if found else 0


if __name__ == "__main__":
    raise SystemExit(main())
