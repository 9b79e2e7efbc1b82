"""`--hil-trace`: the spans of all workers in one file."""

from __future__ import annotations

import json
from typing import Any

import pytest

from cortex_m_hil.host.paths import cache_directory

pytest_plugins = ["pytester"]

CACHE = cache_directory()  # before pytester moves HOME
DEADLINE = 300.0  # seconds
TESTS = """
import os, pytest
from cortex_m_hil.lowering.stages import stage_of
from cortex_m_hil.program.known_answer import known_answer

@pytest.mark.parametrize("number", range(4))
def test_runs(run_pte, hil, number):
    with stage_of("to_edge"):
        known = known_answer(hil.isa)
    run_pte(known.program, known.inputs)

def test_fails(): assert False
def test_is_lost(): os._exit(1)
"""


@pytest.fixture(autouse=True)
def shared_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HIL_CACHE_DIR", str(CACHE))


def run(pytester: pytest.Pytester, *arguments: str) -> tuple[pytest.RunResult, dict[str, list[Any]]]:
    """Run the tests with a trace, and return its complete events by the name of their process."""
    pytester.makepyfile(test_it=TESTS)
    done = pytester.runpytest_subprocess("--target=native", "--hil-trace=t.json", *arguments, timeout=DEADLINE)
    events = json.loads((pytester.path / "t.json").read_text())["traceEvents"]
    names = {one["pid"]: one["args"]["name"] for one in events if one["name"] == "process_name"}
    return done, {
        name: [one for one in events if one["ph"] == "X" and one["pid"] == pid] for pid, name in names.items()
    }


def within(inner: dict[str, Any], outer: dict[str, Any]) -> bool:
    return bool(outer["ts"] <= inner["ts"] and inner["ts"] + inner["dur"] <= outer["ts"] + outer["dur"])


def covered(events: list[dict[str, Any]]) -> float:
    """Return the microseconds that lie in any of the spans of a process."""
    end = total = 0.0
    for one in sorted(events, key=lambda one: one["ts"]):
        until = max(end, one["ts"] + one["dur"])
        total, end = total + until - max(end, one["ts"]), until
    return total


def test_the_spans_of_workers_are_in_one_file(pytester: pytest.Pytester) -> None:
    done, found = run(pytester, "-n2", "-k", "not lost")
    done.assert_outcomes(passed=4, failed=1)
    assert set(found) == {"pytest", "gw0", "gw1"}
    done.stdout.fnmatch_lines(
        [
            "*where the time went*",
            "* s by the clock; 2 workers, together * s (100 %)",
            "* s *%  code of the tests*",
            "longest: * s in gw?: *",
            "each span: t.json*",
        ]
    )
    events = [one for name in ("gw0", "gw1") for one in found[name]]
    [whole] = [one for one in found["pytest"] if one["name"] == "session"]
    for name in ("gw0", "gw1"):  # without a gap before the worker's start, between its spans, or after its end
        assert covered(found[name]) >= 0.99 * (whole["ts"] + whole["dur"])
        assert sum(one["cat"] == "start" for one in found[name]) == 2
    tests = [one for one in events if one["name"].startswith("test_it.py::")]
    assert len(tests) == 5 and {one["cat"] for one in tests} == {"test"}
    stages = [one for one in events if one["cat"] == "lowering"]
    assert [one["name"] for one in stages] == ["to_edge"] * 4
    boots = {name: [one for one in found[name] if one["cat"] == "boot"] for name in ("gw0", "gw1")}
    assert all(len(one) <= 1 for one in boots.values()) and any(boots.values())
    assert sum(one["cat"] == "run" and one["name"].startswith("load ") for one in events) == 4
    for one in stages:
        (around,) = (test for test in tests if test["pid"] == one["pid"] and within(one, test))
        assert "test_runs[" in around["name"]


def test_a_worker_that_ends_is_told_and_one_process_needs_no_workers(pytester: pytest.Pytester) -> None:
    done, _ = run(pytester, "-n1", "-k", "lost", "--max-worker-restart=0")
    done.stdout.fnmatch_lines(["lost, since they ended and told nothing: gw0"])
    done, found = run(pytester, "-p", "no:terminal", "-k", "fails")
    assert done.ret == 1 and {one["name"] for one in found["pytest, session 2"]} >= {
        "collection",
        "call",
        "test_it.py::test_fails",
    }
    assert any(one["cat"] == "collection" for one in found["pytest"])  # of the session before
    refused = pytester.runpytest_subprocess("--target=native", "--hil-trace=/proc/none/t.json", timeout=DEADLINE)
    assert refused.ret == pytest.ExitCode.USAGE_ERROR
    refused.stderr.fnmatch_lines(["*--hil-trace '/proc/none': /proc cannot be written to*"])
