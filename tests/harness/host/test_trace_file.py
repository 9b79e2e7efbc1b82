"""The file of a trace: the format of Chrome's tracing, and several processes that write one."""

from __future__ import annotations

import fcntl
import json
import os
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cortex_m_hil.errors import ConfigError, InfraError
from cortex_m_hil.host import trace_file
from cortex_m_hil.host.spans import Span
from cortex_m_hil.host.trace_file import add_spans, check_trace_file, lines_of_times, spans_in


def test_the_trace_has_the_format_of_chrome(tmp_path: Path) -> None:
    """Fields by the "Trace Event Format": complete events, and metadata with the processes' names; microseconds."""
    file = tmp_path / "t.json"
    before, now = time.time_ns(), time.monotonic_ns()
    spans = [Span("run", "r", now + 1_000, 1_500, 7), Span("test", "t", now, 9_000, 7)]
    assert add_spans(file, {"pytest": [], "gw0": spans}) == 0
    trace = json.loads(file.read_text())
    assert before <= trace["otherData"].pop("begin") <= time.time_ns()
    assert trace == {
        "traceEvents": [
            {"ph": "M", "name": "process_name", "pid": 1, "tid": 0, "args": {"name": "pytest"}},
            {"ph": "M", "name": "process_sort_index", "pid": 1, "tid": 0, "args": {"sort_index": 1}},
            {"ph": "M", "name": "process_name", "pid": 2, "tid": 0, "args": {"name": "gw0"}},
            {"ph": "M", "name": "process_sort_index", "pid": 2, "tid": 0, "args": {"sort_index": 2}},
            {"ph": "X", "cat": "test", "name": "t", "pid": 2, "tid": 7, "ts": 0.0, "dur": 9.0},
            {"ph": "X", "cat": "run", "name": "r", "pid": 2, "tid": 7, "ts": 1.0, "dur": 1.5},
        ],
        "displayTimeUnit": "ms",
        "otherData": {"sessions": 1},
    }


def test_spans_are_added_in_their_place_whoever_ends_first(tmp_path: Path) -> None:
    file, now = tmp_path / "t.json", time.monotonic_ns()
    add_spans(file, {"pytest": [Span("run", "late", now + 5_000_000, 2_000, 1)]})
    assert add_spans(file, {"pytest": [Span("build", "early", now, 3_000, 1)]}) == 1
    events = json.loads(file.read_text())["traceEvents"]
    late, early = (one for one in events if one["ph"] == "X")
    assert early["ts"] == 0 and late["ts"] == pytest.approx(5_000, abs=1_000) and late["pid"] != early["pid"]
    names = [one["args"]["name"] for one in events if one["name"] == "process_name"]
    assert names == ["pytest", "pytest, session 2"]
    found = spans_in(file, now)
    assert {name: [one.name for one in of] for name, of in found.items()} == {
        "pytest": ["late"],
        "pytest, session 2": ["early"],
    }
    _, first, *_ = lines_of_times(found)
    assert first.endswith("60%  building runners")
    assert spans_in(file, now + 3_000_000_000) == {}  # of another run


def test_the_rows_are_the_whole_time_and_tests_are_among_the_longest() -> None:
    """A nightly left out workers that had ended, and the longest test was not listed though tests had most of it."""
    s = 1_000_000_000
    worker = [
        Span("session", "session", 0, 200 * s, 1),
        Span("test", "t::slow", 10 * s, 150 * s, 1),
        Span("test", "call", 11 * s, 140 * s, 1),
        Span("lowering", "to_edge", 20 * s, 30 * s, 1),
        Span("session", "has ended, the run has not", 200 * s, 100 * s, 1),
    ]
    led = [Span("workers", "session", 0, 300 * s, 2)]
    hil = [Span("start", "imports", -10 * s, 10 * s, 3), Span("workers", "part", 0, 300 * s, 3)]
    assert [*lines_of_times({"pytest": led, "gw0": worker, "hil nightly": hil})] == [
        "310.0 s by the clock; 2 processes, together 310.0 s (100 %)",
        "     150.0 s   48%  workers without a test, and pytest between tests",
        "     120.0 s   39%  code of the tests (not in another row)",
        "      30.0 s   10%  lowering modules",
        "      10.0 s    3%  starting hil, pytest and its workers, and importing torch and ExecuTorch",
        "longest: 120.0 s in gw0: code of t::slow",
        "longest: 30.0 s in gw0: lowering: to_edge",
    ]


def test_none_is_lost_where_several_end_at_once(tmp_path: Path) -> None:
    def add(number: int) -> int:
        return add_spans(tmp_path / "t.json", {"pytest": [Span("test", f"{number}", number, 1, 1)]})

    with ThreadPoolExecutor(8) as threads:
        before = [*threads.map(add, range(24))]
    events = json.loads((tmp_path / "t.json").read_text())["traceEvents"]
    assert sorted(before) == [*range(24)]
    assert sorted(int(one["name"]) for one in events if one["ph"] == "X") == [*range(24)]


_VALUES = st.recursive(
    st.none() | st.integers() | st.text() | st.booleans(),
    lambda one: (
        st.lists(one) | st.dictionaries(st.sampled_from(["traceEvents", "otherData", "ph", "pid", "begin"]), one)
    ),
)


@given(_VALUES.map(json.dumps) | st.text(min_size=1))
def test_what_is_no_trace_is_left_as_it_is(tmp_path_factory: pytest.TempPathFactory, text: str) -> None:
    file = tmp_path_factory.mktemp("trace") / "t.json"
    file.write_bytes(text.encode())
    with pytest.raises(ConfigError, match="is there, and no trace that --hil-trace wrote"):
        check_trace_file(file)
    with pytest.raises(ConfigError):
        add_spans(file, {"pytest": []})
    assert file.read_bytes() == text.encode()


def test_a_folder_that_stays_locked_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trace_file, "LOCK_SECONDS", 0.2)
    folder = os.open(tmp_path, os.O_RDONLY)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        with pytest.raises(InfraError, match="another process has locked its folder"):
            add_spans(tmp_path / "t.json", {})
    finally:
        os.close(folder)
    assert add_spans(tmp_path / "t.json", {}) == 0
