"""Spans of time for a trace: when this process lowered, built, booted, ran or waited, and for how long.

Times are of the machine's monotonic clock, which all its processes share.
"""

from __future__ import annotations

import os
import threading
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final, Literal

Kind = Literal["session", "workers", "start", "collection", "test", "lowering", "build", "wait", "flash", "boot", "run"]
"""The kinds of work that a span's time was spent on; that of `workers` is told by spans of other processes."""


@dataclass(frozen=True)
class Span:
    """A stretch of time of one thread; the spans of a thread lie within each other, or one after the other.

    Attributes:
        kind: what the time was spent on.
        name: what was done, such as `to_edge` or a test's id.
        begin: its begin in nanoseconds.
        duration: in nanoseconds.
        thread: the number of the thread.
    """

    kind: str
    name: str
    begin: int
    duration: int
    thread: int


@dataclass
class Recorder:
    """The spans of one process that have ended."""

    spans: list[Span] = field(default_factory=list)

    @contextmanager
    def span(self, kind: Kind, name: str) -> Iterator[None]:
        """Record the block as a span."""
        begin = time.monotonic_ns()
        try:
            yield
        finally:
            took = time.monotonic_ns() - begin
            self.spans.append(Span(kind, name, begin, took, threading.get_native_id()))


def start_of_process() -> Span:
    """Return the span from the start of this process until now: Python and its imports."""
    now = time.monotonic_ns()
    try:
        fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
        started = int(fields[_START_TIME]) * 10**9 // os.sysconf("SC_CLK_TCK")
        age = max(0, time.clock_gettime_ns(time.CLOCK_BOOTTIME) - started)
    except (OSError, ValueError, IndexError, AttributeError):  # not on Linux
        age = 0
    return Span("start", "start of this process, with its imports", now - age, age, threading.get_native_id())


_START_TIME: Final = 19  # the field's place behind the name of the process, by proc(5): ticks since the machine started
_RECORDER: Final[ContextVar[Recorder | None]] = ContextVar("_RECORDER", default=None)


@contextmanager
def recorded_by(recorder: Recorder) -> Iterator[None]:
    """Give the spans within the block to `recorder`, and to no other."""
    token = _RECORDER.set(recorder)
    try:
        yield
    finally:
        _RECORDER.reset(token)


def span(kind: Kind, name: str) -> AbstractContextManager[None]:
    """Return a context manager whose block is a span; it does nothing where nobody records."""
    recorder = _RECORDER.get()
    return nullcontext() if recorder is None else recorder.span(kind, name)


def recorded() -> list[Span]:
    """Return the spans of this process that have ended; [] where nobody records."""
    recorder = _RECORDER.get()
    return [] if recorder is None else list(recorder.spans)


def own_spans(spans: Iterable[Span]) -> list[Span]:
    """Return spans with their own duration, without that of the spans of other kinds that lie within them.

    A span within one of its kind, such as the call of a test, is part of that.
    """
    found: list[Span] = []
    own: list[int] = []
    around: list[tuple[Span, int]] = []  # with its place in the lists
    for one in sorted(spans, key=lambda one: (one.thread, one.begin, -one.duration)):
        while around and not _contains(around[-1][0], one):
            around.pop()
        if around and around[-1][0].kind == one.kind:
            around.append((one, around[-1][1]))
            continue
        if around:
            own[around[-1][1]] -= one.duration
        around.append((one, len(found)))
        found.append(one)
        own.append(one.duration)
    return [replace(one, duration=duration) for one, duration in zip(found, own, strict=True)]


def own_times(spans: Iterable[Span]) -> Counter[str]:
    """Return the nanoseconds of each kind, without those of the spans of other kinds that lie within a span."""
    found: Counter[str] = Counter()
    for one in own_spans(spans):
        found[one.kind] += one.duration
    return found


def _contains(outer: Span, inner: Span) -> bool:
    return outer.thread == inner.thread and inner.begin + inner.duration <= outer.begin + outer.duration
