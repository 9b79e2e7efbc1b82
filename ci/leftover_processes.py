"""Check that everything a child has started is gone with it, time after time, however busy the host is.

    python ci/leftover_processes.py --repetitions 1000 --busy 8

Each repetition starts a shell that starts another process in one of several ways, then either ends by itself or is
ended, and counts what is left at the moment when the harness says that it has ended.
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

MARKER = "HIL_MARKER"  # an environment variable, which is inherited by all that a process starts
SECONDS = 120.0  # limit of a repetition; nothing comes near
STATUS = 3
# What runs when the shell goes on holds its standard error open, and is sure to have been started.
WAYS = {
    "in its group": "sleep 1000 >/dev/null &",
    "as a job": "started=$(set -m; sleep 1000 >/dev/null & echo)",  # in a process group of its own, as ninja does it
    "in a session": "started=$(setsid sh -c 'sleep 1000 >/dev/null & echo')",  # and its parent has ended
    "deaf": "trap '' TERM INT HUP QUIT; sleep 1000 >/dev/null &",
}
ENDS = {"by itself": f"exit {STATUS}", "ended by us": "echo up; exec sleep 1000"}


def marked(marker: str) -> list[psutil.Process]:
    """Return the living processes whose environment has the marker."""
    return [process for process in psutil.process_iter() if _environment(process).get(MARKER) == marker]


def _environment(process: psutil.Process) -> dict[str, str]:
    try:
        return process.environ()
    except psutil.Error:  # it is gone, a zombie, or somebody else's
        return {}


def left(way: str, end: str) -> list[str]:
    """Return the names of the processes that are left after one repetition, or what went wrong with it."""
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
    """Run `count` processes that do nothing but compute, until the block ends."""
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
