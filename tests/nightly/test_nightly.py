"""hil nightly over many interruptions, and many times over: the same results, and nothing that changed."""

from __future__ import annotations

import json
import os
import random
import signal
import time
from pathlib import Path
from typing import Any

from command_line import OK, answers, running, spawn
from cortex_m_hil import known_answer

KILLS, NIGHTLIES, SEED = 50, 30, 15
PROGRAM = Path(known_answer.__file__).parent / "scalar.pte"
TESTS = f"""
import numpy, pytest

@pytest.mark.parametrize("number", range(20))
def test_runs(run_pte, number):
    run_pte({str(PROGRAM)!r}, [numpy.full((1, 16), number / 20, "float32")])
"""
TARGETS = "native,m0-qemu,m4-qemu"
CALL = ("nightly", "test_it.py", "-t", TARGETS)


def results(folder: Path, store: str) -> list[dict[str, Any]]:
    """Without what differs from run to run."""
    rows = answers(spawn("results", "show", "--json", "--store", store, cwd=folder).out)
    for row in rows:
        for name in ("host_ticks", "stack_bytes"):  # an interrupt may be at the peak of the stack, or not
            row["figures"].pop(name, None)
    return [{name: row[name] for name in row if name not in ("seconds", "cpu_seconds")} for row in rows]


def kill(folder: Path, store: str, seconds: float) -> bool:
    """Whether it was still at work by then."""
    with running(*CALL, "--store", store, cwd=folder) as process:
        time.sleep(seconds)
        if process.poll() is not None:
            return False
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        return True


def test_killed_again_and_again_it_ends_as_one_that_was_not(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(TESTS)
    began = time.monotonic()
    assert spawn(*CALL, "--store", "whole.sqlite", cwd=tmp_path).status == OK
    longest = time.monotonic() - began
    whole = results(tmp_path, "whole.sqlite")
    chance, kills, number = random.Random(SEED), 0, 0
    while kills < KILLS:
        number += 1
        while kill(tmp_path, f"{number}.sqlite", chance.uniform(0, longest)) and kills < KILLS:
            kills += 1
        assert spawn(*CALL, "--store", f"{number}.sqlite", cwd=tmp_path).status == OK
        assert results(tmp_path, f"{number}.sqlite") == whole
    print(f"{kills} kills of {number} nightlies, seed {SEED}")


def test_nothing_changes_from_nightly_to_nightly(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(TESTS)
    for number in range(NIGHTLIES):
        done = spawn(*CALL, "--json", "--store", "s.sqlite", cwd=tmp_path)
        assert done.status == OK, done
        told = json.loads(done.out)
        assert told["changes"] == [] and (told["compared_with"] is None) == (number == 0)


def test_four_shards_are_the_whole(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(TESTS)
    assert spawn(*CALL, "--store", "whole.sqlite", cwd=tmp_path).status == OK
    for number in (1, 2, 3, 4):
        store = ("--store", f"{number}.sqlite")
        assert spawn(*CALL, "--shard", f"{number}/4", *store, cwd=tmp_path).status == OK
        assert spawn("results", "export", "-o", f"{number}.jsonl.gz", *store, cwd=tmp_path).status == OK
    files = [f"{number}.jsonl.gz" for number in (1, 2, 3, 4)]
    assert spawn("results", "merge", *files, "--store", "merged.sqlite", cwd=tmp_path).status == OK
    assert results(tmp_path, "merged.sqlite") == results(tmp_path, "whole.sqlite")
