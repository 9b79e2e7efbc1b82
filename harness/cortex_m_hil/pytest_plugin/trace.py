"""`--hil-trace`: writes when each worker collected, lowered, built, booted, ran and waited, as a trace for Perfetto."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Generator, Sequence
from contextlib import ExitStack
from dataclasses import astuple
from pathlib import Path
from typing import Any, Final

import pytest

from cortex_m_hil.errors import InfraError
from cortex_m_hil.errors.text import counted, printable
from cortex_m_hil.host.spans import Recorder, Span, own_times, recorded_by, span, start_of_process
from cortex_m_hil.host.trace_file import add_spans, check_trace_file, lines_of_times, told_of

_WORKER_OUTPUT: Final = "hil_trace"
_PREPARATIONS: Final = ("lowering", "build", "wait", "flash", "boot")
_LONGEST: Final = 3  # spans that the summary names
_HOOKS: Final = pytest.hookimpl(wrapper=True, tryfirst=True)


def prepare(config: pytest.Config) -> None:
    """Record spans from now on, if the option asks for it.

    Raises:
        ConfigError: the file cannot be written, or is there and no trace.
    """
    file: Path | None = config.getoption("hil_trace")
    if file is None:
        return
    if not hasattr(config, "workerinput"):  # workers write no file
        check_trace_file(file)
    config.pluginmanager.register(_Trace(config, file), "hil-trace")


class _Trace:
    """A plugin that records the spans of this process; xdist's controller collects those of its workers too."""

    def __init__(self, config: pytest.Config, file: Path) -> None:
        self._file = file
        self._is_worker = hasattr(config, "workerinput")
        self._own = Recorder([start_of_process()])
        self._workers: dict[str, list[Span]] = {}
        self._lost: set[str] = set()  # workers that have not sent their spans yet
        self._told = ""
        self._recording, self._session = ExitStack(), ExitStack()
        self._recording.enter_context(recorded_by(self._own))
        self._session.enter_context(span("session", "session"))

    def pytest_unconfigure(self) -> None:
        self._session.close()
        self._recording.close()

    # --- spans -------------------------------------------------------------------------------------------

    @_HOOKS
    def pytest_collection(self) -> Generator[None, object, object]:
        with span("collection", "collection"):
            return (yield)

    @_HOOKS
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        with span("test", printable(item.nodeid)):
            return (yield)

    @_HOOKS
    def pytest_runtest_setup(self) -> Generator[None, object, object]:
        with span("test", "setup"):
            return (yield)

    @_HOOKS
    def pytest_runtest_call(self) -> Generator[None, object, object]:
        with span("test", "call"):
            return (yield)

    @_HOOKS
    def pytest_runtest_teardown(self) -> Generator[None, object, object]:
        with span("test", "teardown"):
            return (yield)

    # --- from the workers into one file --------------------------------------------------------------------

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: Any) -> None:
        self._lost.add(node.gateway.id)

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        told = getattr(node, "workeroutput", {}).get(_WORKER_OUTPUT)
        if told is not None:
            self._lost.discard(node.gateway.id)
            self._workers[node.gateway.id] = [Span(*one) for one in told]

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        self._session.close()
        if self._is_worker:
            session.config.workeroutput[_WORKER_OUTPUT] = [  # type: ignore[attr-defined]
                astuple(one) for one in self._own.spans
            ]
            return
        try:
            earlier = add_spans(self._file, {"pytest": self._own.spans, **self._whole_workers()})
            self._told = told_of(self._file, earlier)
        except InfraError as error:
            self._told = error.message

    def _whole_workers(self) -> dict[str, list[Span]]:
        """Return the spans of each worker, with spans for the time of the run before its start and after its end."""
        begin, end = _extent(self._own.spans)
        found = {}
        for name, spans in sorted(self._workers.items()):
            first, last = _extent(spans)
            thread = spans[0].thread
            before = Span("start", "not started yet: pytest starts", begin, max(0, first - begin), thread)
            after = Span("session", "has ended, the run has not", last, max(0, end - last), thread)
            found[name] = [before, *spans, after]
        return found

    def _times(self) -> Counter[str]:
        """Return the nanoseconds of each kind of span: of all workers, each from the begin to the end of the run."""
        found: Counter[str] = Counter()
        for spans in self._whole_workers().values() or [self._own.spans]:
            found += own_times(spans)
        return found

    def _longest(self) -> list[tuple[str, Span]]:
        """Return the longest spans of preparations and waits, with the name of their worker."""
        processes = self._workers or {"pytest": self._own.spans}
        found = [(name, one) for name, spans in processes.items() for one in spans if one.kind in _PREPARATIONS]
        return heapq.nlargest(_LONGEST, found, key=lambda pair: pair[1].duration)

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        terminalreporter.section("where the time went")
        if self._workers:
            terminalreporter.write_line(f"summed over {counted(len(self._workers), 'worker')}")
        for line in lines_of_times(self._times()):
            terminalreporter.write_line(line)
        for worker, one in self._longest():
            terminalreporter.write_line(printable(f"longest: {one.duration / 1e9:.1f} s in {worker}: {_text(one)}"))
        if self._lost:
            terminalreporter.write_line(f"lost, since they ended and told nothing: {', '.join(sorted(self._lost))}")
        terminalreporter.write_line(printable(self._told))


def _text(span: Span) -> str:
    return f"{span.kind} {span.name}" if span.kind == "wait" else f"{span.kind}: {span.name}"


def _extent(spans: Sequence[Span]) -> tuple[int, int]:
    """Return when the first of some spans begins, and when the last one ends."""
    return min(one.begin for one in spans), max(one.begin + one.duration for one in spans)
