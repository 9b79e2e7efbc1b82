"""Spans: nesting, and own times."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest
from filelock import FileLock
from hypothesis import given
from hypothesis import strategies as st

from cortex_m_hil.host.folders import build_lock
from cortex_m_hil.host.spans import Recorder, Span, own_times, recorded_by, span


def test_blocks_are_recorded_by_one_recorder_and_else_by_none() -> None:
    outer, inner = Recorder(), Recorder()
    with span("build", "before"):
        pass
    with recorded_by(outer):
        with span("test", "a"), pytest.raises(ValueError, match="x"), span("run", "fails"):
            raise ValueError("x")
        with recorded_by(inner), span("boot", "b"):
            pass
        thread = threading.Thread(target=lambda: span("run", "elsewhere").__enter__())
        thread.start()
        thread.join()
    with span("build", "after"):
        pass
    assert [(one.kind, one.name) for one in outer.spans] == [("run", "fails"), ("test", "a")]
    assert [one.name for one in inner.spans] == ["b"]
    fails, test = outer.spans
    assert test.begin <= fails.begin and fails.begin + fails.duration <= test.begin + test.duration


def test_a_wait_for_another_process_is_a_span_of_its_own(tmp_path: Path) -> None:
    """The time until the lock is free, and not the time that it is then held."""
    recorder, lock = Recorder(), tmp_path / "m4.lock"
    held = FileLock(lock, thread_local=False)
    held.acquire()
    release = threading.Timer(0.3, held.release)
    release.start()
    with recorded_by(recorder), build_lock(lock, 60), span("build", "runner"):
        time.sleep(0.01)
    release.join()
    wait, build = sorted(recorder.spans, key=lambda one: one.begin)
    assert (wait.kind, wait.name, build.name) == ("wait", "for the lock m4.lock", "runner")
    assert wait.duration > 200_000_000 and wait.begin + wait.duration <= build.begin


@st.composite
def nested(draw: st.DrawFn, thread: int, begin: int, depth: int = 3) -> list[Span]:
    """Draw spans as blocks of a thread make them: within each other or one after the other, some of no duration."""
    found, now = [], begin
    for _ in range(draw(st.integers(0, 3))):
        now += draw(st.integers(0, 5))
        inner = draw(nested(thread, now, depth - 1)) if depth else []
        end = max([now, *(one.begin + one.duration for one in inner)]) + draw(st.integers(0, 5))
        found += [*inner, Span(draw(st.sampled_from("abc")), "x", now, end - now, thread)]
        now = end
    return found


@given(nested(1, 0), nested(2, 3))
def test_own_times_add_up_to_the_outermost_spans(one: list[Span], two: list[Span]) -> None:
    found = own_times([*one, *two])
    covered = [{at for span in spans for at in range(span.begin, span.begin + span.duration)} for spans in (one, two)]
    assert sum(found.values()) == sum(map(len, covered)) and all(value >= 0 for value in found.values())


def test_own_times_are_without_what_lies_within() -> None:
    spans = [
        Span("wait", "w", 3, 2, 1),
        Span("build", "b", 2, 6, 1),
        Span("test", "t", 0, 10, 1),
        Span("run", "r", 10, 1, 1),
    ]
    assert own_times(spans) == {"test": 4, "build": 4, "wait": 2, "run": 1}
