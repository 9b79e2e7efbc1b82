"""Kills processes that write and read the disk cache, and checks that every remaining entry is right."""

from __future__ import annotations

import hashlib
import os
import random
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np

from cortex_m_hil.lowering.disk_cache import DiskCache
from paths import IMPORT_ROOT

KEYS, DEADLINE = 50, 120.0
WRITER = """
import random, sys
from kill_writers import KEYS, key_of, right
from cortex_m_hil.lowering.disk_cache import DiskCache
cache, dice, told = DiskCache(limit=1_000_000), random.Random(sys.argv[1]), False
while True:
    number = dice.randrange(KEYS)
    found = cache.get_or_make("program", key_of(number), lambda: right(number))
    if (found["pte"] != right(number)["pte"]).any():
        print("wrong", number, flush=True)
    if not told:
        print("at work", flush=True)
        told = True
"""


def key_of(number: int) -> str:
    return hashlib.sha256(str(number).encode()).hexdigest()


def right(number: int) -> dict[str, object]:
    """Return the right content for a key, unique to it, and large, so that writing takes some time."""
    return {"pte": np.random.default_rng(number).integers(0, 255, 40_000 + number, np.uint8), "number": number}


def kill_writers(folder: Path, *, kills: int, workers: int, seed: int) -> None:
    """Kill writers at random moments, and raise AssertionError if one of them has read a wrong entry."""
    dice = random.Random(seed)
    environment = {
        **os.environ,
        "HIL_CACHE_DIR": str(folder),
        "PYTHONPATH": os.pathsep.join([str(IMPORT_ROOT), str(Path(__file__).parent)]),
    }

    def start() -> subprocess.Popen[str]:
        command = [sys.executable, "-c", WRITER, str(dice.random())]
        return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)

    running = [start() for _ in range(workers)]
    try:
        for _ in range(kills):
            victim = running.pop(0)
            assert first_line(victim) == "at work\n"
            time.sleep(dice.uniform(0.0, 0.3))
            victim.kill()
            assert victim.communicate()[0] == ""
            running.append(start())
    finally:
        for process in running:
            process.kill()
        said = [process.communicate()[0] for process in running]
    assert set(said) <= {"", "at work\n"}


def first_line(process: subprocess.Popen[str]) -> str:
    """Return the first line that a process writes; "" where that takes too long."""
    assert process.stdout is not None
    deadline = threading.Timer(DEADLINE, process.kill)
    deadline.start()
    try:
        return process.stdout.readline()
    finally:
        deadline.cancel()


def wrong_entries(folder: Path) -> list[int]:
    """Return the numbers whose entries are wrong. Raise AssertionError where there is no entry at all."""
    os.environ["HIL_CACHE_DIR"] = str(folder)
    cache = DiskCache()
    assert cache.info().entries > 0
    wrong = []
    for number in range(KEYS):
        found = cache.get_or_make("program", key_of(number), lambda number=number: right(number))  # type: ignore[misc]
        if found["number"] != number or (found["pte"] != right(number)["pte"]).any():
            wrong.append(number)
    assert cache.counts["program", "damaged"] == 0
    return wrong
