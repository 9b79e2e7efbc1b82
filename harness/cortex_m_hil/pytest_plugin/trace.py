"""`--hil-trace`: writes when each worker collected, lowered, built, booted, ran and waited, as a trace for Perfetto."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import ExitStack
from dataclasses import astuple, replace
from pathlib import Path
from typing import Any, Final

import pytest

from cortex_m_hil.errors import InfraError
from cortex_m_hil.errors.text import printable
from cortex_m_hil.host.spans import Recorder, Span, recorded_by, span, start_of_process
from cortex_m_hil.host.trace_file import add_spans, check_trace_file, lines_of_times, told_of

_WORKER_OUTPUT: Final = "hil_trace"
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
        # The time of a process with workers is theirs.
        own = [replace(one, kind="workers") for one in self._own.spans] if self._workers else self._own.spans
        try:
            earlier = add_spans(self._file, {"pytest": own, **self._whole_workers()})
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

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        terminalreporter.section("where the time went")
        spans = self._whole_workers() or {"pytest": self._own.spans}
        for line in lines_of_times(spans, "workers"):
            terminalreporter.write_line(line)
        if self._lost:
            terminalreporter.write_line(f"lost, since they ended and told nothing: {', '.join(sorted(self._lost))}")
        terminalreporter.write_line(printable(self._told))


def _extent(spans: Sequence[Span]) -> tuple[int, int]:
    """Return when the first of some spans begins, and when the last one ends."""
    return min(one.begin for one in spans), max(one.begin + one.duration for one in spans)
