"""hil dev mutate: on `native`, a small test, a few mutants."""

from __future__ import annotations

import os
import signal
import sqlite3
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import psutil
import pytest

from command_line import CANNOT_TELL, NO, OK, Done, answer, call, running
from cortex_m_hil.host.paths import package_data
from cortex_m_hil.maintainers import executorch_suites as suite
from cortex_m_hil.maintainers.commands import mutate as command
from cortex_m_hil.maintainers.mutation.kernel_sources import Kernels
from cortex_m_hil.maintainers.mutation.source_mutants import SourceEdit, SourceMutant, drawn
from cortex_m_hil.maintainers.suite_runs import upstream_command

Mutate = Callable[..., Done]
COUNT = 2
OPERATORS = [f"cortex_m::{one}.out" for one in ("quantize_per_tensor", "quantized_linear", "dequantize_per_tensor")]
TEST = """
import torch

def test_linear(hil):
    hil.check(torch.nn.Linear(20, 10), (torch.randn(3, 20),))
"""
ADD = """
import torch

class Add(torch.nn.Module):
    def forward(self, x):
        return x + x

def test_add(hil):
    hil.check(Add(), (torch.randn(3, 20),))
"""


def seed_of_deletions(operators: Sequence[str] = OPERATORS) -> int:
    """That draws statements which compute, in files that are compiled quickly: such a mutant is killed."""
    kernels = Kernels.read(package_data("firmware"))
    found = kernels.mutants_of(operators)

    def suits(one: SourceMutant) -> bool:
        return one.function == "compute_block" and (one.kind, one.path[-10:]) == (SourceEdit.DELETION, "linear.cpp")

    draws = ((seed, drawn(found, COUNT, seed)) for seed in range(1 << 20))
    return next(seed for seed, few in draws if suits(few[0]) and all(one.path.endswith(".cpp") for one in few))


def runs(folder: Path) -> list[tuple[str, str]]:
    try:
        with sqlite3.connect(folder / "store.sqlite") as store:
            return store.execute("SELECT key, verdict FROM run ORDER BY number").fetchall()
    except sqlite3.OperationalError:  # not made yet
        return []


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "test_one.py").write_text(TEST)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def mutate(capsys: pytest.CaptureFixture[str], folder: Path) -> Mutate:
    """Calls `hil dev mutate` in this process, with a store of its own."""

    return lambda *arguments: call(capsys, "dev", "mutate", *arguments, "--store", folder / "store.sqlite")


def check_report(folder: Path, told: dict[str, Any]) -> None:
    """Its figures are those of the store, and each survivor can be applied to the sources."""
    kept = runs(folder)
    counts = {name: told[name] for name in ("killed", "survived", "unchanged", "not_built", "infra")}
    assert sum(counts.values()) == COUNT
    assert told["outcome"] == "complete" and told["left"] == 0 and len(kept) == COUNT == len(set(kept))
    assert counts["killed"] == sum(verdict == "killed" for _, verdict in kept) >= 1
    assert [(one["killed"], one["judged"]) for one in told["rates"]] == [
        (counts["killed"], counts["killed"] + counts["survived"])
    ]
    assert told["programs"] == {"native": 1} and told["programs_left_out"] == {"native": 0}
    assert len(told["survivors"]) == counts["survived"]
    assert all(one["diff"].startswith(f"--- a/firmware/{one['path']}\n") for one in told["survivors"])


@pytest.mark.slow
def test_what_was_killed_goes_on_and_tells_the_same(mutate: Mutate, folder: Path) -> None:
    seed = seed_of_deletions()
    where = ("--store", folder / "store.sqlite")
    words = ("dev", "mutate", "test_one.py", "-t", "native", "--count", COUNT, "--seed", seed, "--localize", *where)
    with running(*words, cwd=folder) as process:
        while not runs(folder):
            assert process.poll() is None, process.communicate()
            time.sleep(0.05)
        below = psutil.Process(process.pid).children(recursive=True)
        os.kill(process.pid, signal.SIGKILL)
        process.communicate(timeout=60)
    _, alive = psutil.wait_procs(below, timeout=10)
    assert not alive
    before = runs(folder)
    assert 0 < len(before) < COUNT

    other = mutate("test_one.py", "-t", "native", "--count", COUNT, "--seed", seed + 1)
    assert other.status == CANNOT_TELL and "under way in this folder" in other.err
    spent = mutate("--budget", 0, "--json")
    assert spent.status == CANNOT_TELL and answer(spent.out)["left"] == COUNT - len(before)

    done = mutate("--json")
    told = answer(done.out)
    assert done.status == (NO if told["survived"] else OK), done.err
    assert runs(folder)[: len(before)] == before
    check_report(folder, told)
    assert told["localized"] == {"right": told["killed"], "of": told["killed"]} and told["mislocalized"] == []
    assert [one for one in folder.iterdir() if one.is_dir() and one.name.startswith("store-")] == []
    assert answer(mutate("--json").out) == told  # it has ended: nothing is run
    anew = mutate("test_one.py", "-t", "native", "--count", 1, "--budget", 0, "--reset", "--json")
    assert anew.status == CANNOT_TELL and answer(anew.out)["left"] == 1 and not runs(folder)


@pytest.mark.slow
def test_executorchs_own_tests_judge_as_well(mutate: Mutate, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of its suite one test, where `hil dev mutate` runs all. It alone has the layer that is broken."""
    (folder / "test_one.py").write_text(ADD)
    one = [f"{suite.find_suite()}/ops/test_linear.py::test_implementation_linear", "-k", "linear_bias"]
    monkeypatch.setattr(command, "upstream_command", lambda: [*upstream_command(), *one])
    seed = seed_of_deletions((*OPERATORS, "cortex_m::quantized_add.out"))
    words = ("-t", "native", "--count", 1, "--seed", seed, "--localize", "--jobs", 2, "--json")
    done = mutate("test_one.py", "--upstream", *words)
    told = answer(done.out)
    assert (told["tests"], told["upstream"], told["programs"]) == (["test_one.py"], True, {"native": 2}), done.err
    assert done.status == OK and told["killed"] == 1
    assert told["localized"] == {"right": 1, "of": 1}


def test_invalid_calls_of_mutate_are_refused_with_their_reason(mutate: Mutate, folder: Path) -> None:
    assert "nothing was begun" in mutate().err
    assert "no test is named" in mutate("--reset").err
    assert "no target is named" in mutate("test_one.py").err
    assert "memory plans of its own" in mutate("--upstream", "--redzones", "-t", "native").err
    assert "is a board" in mutate("test_one.py", "-t", "rpi-pico").err
    assert "no ExecuTorch that can be built" in mutate("test_one.py", "-t", "native", "--kernels", "ops").err
    (folder / "test_one.py").write_text("def test_it(hil): raise ValueError('no')\n")
    failed = mutate("test_one.py", "-t", "native")
    assert failed.status == CANNOT_TELL and "do not pass without a mutant" in failed.err
