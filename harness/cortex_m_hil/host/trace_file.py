"""The file of a trace, in the JSON format of Chrome's tracing, which Perfetto reads.

Several processes may write one file, at once or one after the other: each adds its spans to those that are there.
"""

from __future__ import annotations

import fcntl
import json
import os
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from cortex_m_hil.errors import ConfigError, InfraError
from cortex_m_hil.errors.text import counted
from cortex_m_hil.host import files
from cortex_m_hil.host.deadline import Deadline
from cortex_m_hil.host.spans import Span, own_times

MEANINGS: Final[Mapping[str, str]] = {
    "start": "starting hil, pytest and its workers, with their imports",
    "session": "workers without a test",
    "collection": "collecting tests",
    "test": "tests themselves: none of the others",
    "lowering": "lowering modules",
    "build": "building runners",
    "wait": "waiting for another worker's build, or for a board",
    "flash": "flashing boards",
    "boot": "booting targets",
    "run": "running programs",
}
"""The kinds of spans, in words."""
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


def times_in(path: Path) -> Counter[str]:
    """Return the nanoseconds of each kind of span in a file, without those of the spans that lie within a span."""
    spans: dict[object, list[Span]] = {}
    trace = _read(path)
    for one in trace.events if trace is not None else ():
        if one["ph"] == "X":
            span = Span(one["cat"], one["name"], round(one["ts"] * 1000), round(one["dur"] * 1000), one["tid"])
            spans.setdefault(one["pid"], []).append(span)
    found: Counter[str] = Counter()
    for of_process in spans.values():
        found += own_times(of_process)
    return found


def lines_of_times(times: Counter[str]) -> Iterator[str]:
    """Yield a line for each kind of span: seconds, share and meaning; the kind that took most is the first."""
    for kind, took in times.most_common():
        yield f"{took / 1e9:10.1f} s {took / (times.total() or 1):>5.0%}  {MEANINGS.get(kind, kind)}"


@contextmanager
def _alone(path: Path) -> Iterator[None]:
    """Keep other processes from adding to a file meanwhile, by a lock of its folder, which leaves no file behind."""
    try:
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
