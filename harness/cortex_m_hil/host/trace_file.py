"""The file of a trace, in the JSON format of Chrome's tracing, which Perfetto reads.

Several processes may write one file, at once or one after the other: each adds its spans to those that are there.
"""

from __future__ import annotations

import fcntl
import heapq
import json
import os
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from cortex_m_hil.errors import ConfigError, InfraError
from cortex_m_hil.errors.text import counted, printable
from cortex_m_hil.host import files
from cortex_m_hil.host.deadline import Deadline
from cortex_m_hil.host.spans import Span, own_spans

MEANINGS: Final[Mapping[str, str]] = {
    "start": "starting hil, pytest and its workers, and importing torch and ExecuTorch",
    "session": "workers without a test, and pytest between tests",
    "collection": "collecting tests",
    "test": "code of the tests (not in another row)",
    "lowering": "lowering modules",
    "build": "building runners",
    "wait": "waiting for another worker's build, or for a board",
    "flash": "flashing boards",
    "boot": "booting targets",
    "run": "running programs",
}
"""The kinds of spans, in words."""
_LISTED: Final = ("test", "lowering", "build", "wait", "flash", "boot", "run")
"""The kinds of which the longest spans are named."""
_LONGEST: Final = 3  # spans that are named
_SECOND: Final = 10**9  # nanoseconds
# How far the wall clock may have been adjusted since the file was written; no run of pytest is as short.
_CLOCKS_DIFFER: Final = _SECOND // 10
VIEWERS: Final = "https://ui.perfetto.dev or chrome://tracing"
_LIMIT: Final = 1 << 30  # bytes
_HINT: Final = "another file: --hil-trace FILE"
LOCK_SECONDS: Final = 60.0  # to wait for other processes that add their spans
_RETRY: Final = 0.05  # seconds between two attempts to lock


@dataclass(frozen=True)
class _Trace:
    """The content of a file.

    Attributes:
        events: the events; their times are in microseconds since `begin`.
        begin: the time of the first span, in nanoseconds since 1970.
        sessions: how often spans were added.
    """

    events: tuple[Mapping[str, Any], ...]
    begin: int
    sessions: int

    def as_json(self) -> bytes:
        about = {"begin": self.begin, "sessions": self.sessions}
        return json.dumps({"traceEvents": self.events, "displayTimeUnit": "ms", "otherData": about}).encode()


def check_trace_file(path: Path) -> None:
    """Check that spans can be added to a file. Raises ConfigError if it is there, and no trace."""
    files.check_new_file(path, "--hil-trace")
    _read(path)


def add_spans(path: Path, processes: Mapping[str, Iterable[Span]]) -> int:
    """Add spans that have ended to a file, which is made if it is not there.

    Args:
        path: the file.
        processes: the spans of each process by its name; each becomes a process of the trace.

    Returns:
        How often spans had been added before.

    Raises:
        ConfigError: the file is no trace.
        InfraError: it cannot be written.
    """
    with _alone(path):
        before = _read(path)
        files.write_atomically(path, _added(before, processes).as_json(), _HINT)
    return before.sessions if before is not None else 0


def spans_in(path: Path, since: int) -> dict[str, list[Span]]:
    """Return the spans of each process in a file that began, by the monotonic clock, at `since` or later."""
    trace = _read(path)
    if trace is None:
        return {}
    began = trace.begin - time.time_ns() + time.monotonic_ns()
    names = {one["pid"]: one["args"]["name"] for one in trace.events if one["name"] == "process_name"}
    found: dict[str, list[Span]] = {}
    for one in trace.events:
        if one["ph"] == "X":
            begin, duration = (round(one[key] * 1000) for key in ("ts", "dur"))
            span = Span(one["cat"], one["name"], began + begin, duration, one["tid"])
            found.setdefault(names[one["pid"]], []).append(span)
    return {name: of for name, of in found.items() if min(one.begin for one in of) >= since - _CLOCKS_DIFFER}


def lines_of_times(processes: Mapping[str, Sequence[Span]], what: str = "processes") -> Iterator[str]:
    """Yield what the time was spent on: all of it, a line for each kind of span, and the longest ones.

    Args:
        processes: the spans of each process. One with nothing but spans of the kind `workers` is left out.
        what: what the processes are called.
    """
    own = {name: [one for one in own_spans(of) if one.kind != "workers"] for name, of in processes.items()}
    own = {name: of for name, of in own.items() if of}
    times: Counter[str] = Counter()
    for one in (one for of in own.values() for one in of):
        times[one.kind] += one.duration
    every = [one for name in own for one in processes[name]]
    clock = max((one.begin + one.duration for one in every), default=0) - min((one.begin for one in every), default=0)
    together = f"{len(own)} {what if len(own) > 1 else 'process'}, together {times.total() / _SECOND:.1f} s (100 %)"
    yield f"{clock / _SECOND:.1f} s by the clock; {together}"
    for kind, took in times.most_common():
        yield f"{took / _SECOND:10.1f} s {took / (times.total() or 1):>5.0%}  {MEANINGS.get(kind, kind)}"
    listed = [(name, one) for name, of in own.items() for one in of if one.kind in _LISTED]
    for name, one in heapq.nlargest(_LONGEST, listed, key=lambda pair: pair[1].duration):
        yield printable(f"longest: {one.duration / _SECOND:.1f} s in {name}: {_text(one)}")


def _text(one: Span) -> str:
    if one.kind == "test":
        return f"code of {one.name}"
    return f"{one.kind} {one.name}" if one.kind == "wait" else f"{one.kind}: {one.name}"


@contextmanager
def _alone(path: Path) -> Iterator[None]:
    """Keep other processes from adding to a file meanwhile, by a lock of its folder, which leaves no file behind."""
    try:
        path.absolute().parent.mkdir(parents=True, exist_ok=True)
        folder = os.open(path.absolute().parent, os.O_RDONLY)
    except OSError as error:
        raise InfraError(f"cannot write {path}: its folder: {error.strerror}", hint=_HINT) from error
    try:
        _lock(folder, path)
        yield
    finally:
        os.close(folder)


def _lock(folder: int, path: Path) -> None:
    """Lock a folder for this process. Raises InfraError where another one, perhaps a stopped one, keeps it locked."""
    deadline = Deadline.after(LOCK_SECONDS)
    while True:
        try:
            fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if deadline.expired:
                what = f"cannot write {path}: another process has locked its folder for {LOCK_SECONDS:g} s"
                raise InfraError(what, hint=f"end that process, or {_HINT}") from None
            time.sleep(_RETRY)


def _added(before: _Trace | None, processes: Mapping[str, Iterable[Span]]) -> _Trace:
    kept = {name: list(spans) for name, spans in processes.items()}
    to_unix = time.time_ns() - time.monotonic_ns()
    first = to_unix + min((one.begin for spans in kept.values() for one in spans), default=time.monotonic_ns())
    if before is None:
        return _Trace(tuple(_events(kept, first - to_unix, 1)), first, 1)
    begin, session = min(first, before.begin), before.sessions + 1
    later = (before.begin - begin) / 1000
    events = [{**one, "ts": round(one["ts"] + later, 3)} if one["ph"] == "X" else one for one in before.events]
    taken = {one["args"]["name"] for one in events if one["name"] == "process_name"}
    named = {f"{name}, session {session}" if name in taken else name: spans for name, spans in kept.items()}
    number = max((one["pid"] for one in events), default=0) + 1
    return _Trace((*events, *_events(named, begin - to_unix, number)), begin, session)


def _events(processes: Mapping[str, list[Span]], begin: int, first: int) -> Iterator[dict[str, Any]]:
    for number, (name, spans) in enumerate(processes.items(), first):
        about = {"process_name": {"name": name}, "process_sort_index": {"sort_index": number}}
        yield from ({"ph": "M", "name": key, "pid": number, "tid": 0, "args": told} for key, told in about.items())
        for one in sorted(spans, key=lambda one: (one.begin, -one.duration)):
            when = {"ts": (one.begin - begin) / 1000, "dur": one.duration / 1000}
            yield {"ph": "X", "cat": one.kind, "name": one.name, "pid": number, "tid": one.thread, **when}


def _read(path: Path) -> _Trace | None:
    """Return the content of a file; None if it is not there, or empty. Raises ConfigError if it is no trace."""
    if not path.is_file() or not path.stat().st_size:
        return None
    try:
        tree = json.loads(files.read(path, _LIMIT))
        events, about = tree["traceEvents"], tree["otherData"]
        found = _Trace(tuple(events), int(about["begin"]), int(about["sessions"]))
        for one in events:
            _check(one)
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        what = f"{path} is there, and no trace that --hil-trace wrote: {type(error).__name__}: {error}"
        raise ConfigError(what, hint=_HINT) from None
    return found


def _check(event: Mapping[str, Any]) -> None:
    """Raise KeyError or TypeError for an event that `_events` does not make."""
    is_span = event["ph"] == "X"
    of_span = {"cat": str, "tid": int, "ts": float, "dur": float}
    for key, kind in {"name": str, "pid": int, **(of_span if is_span else {"args": dict})}.items():
        if not isinstance(event[key], kind):
            raise TypeError(f"{key} of an event is no {kind.__name__}")
    if event["name"] == "process_name" and not is_span:
        str(event["args"]["name"])


def told_of(path: Path, earlier: int) -> str:
    """Return a line that says where the spans are, given how often some had been added before."""
    beside = f", beside those of {counted(earlier, 'earlier session')}" if earlier else ""
    return f"each span: {path}{beside}, for {VIEWERS}"
