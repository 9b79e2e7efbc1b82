"""Worker processes of a campaign, which answer its requests.

A request and its answer are a line of JSON each. A worker ends at the end of its standard input.
"""

from __future__ import annotations

import errno
import json
import os
import queue
import select
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeVar

from cortex_m_hil.campaigns.store import Plan
from cortex_m_hil.errors import HarnessError, LaunchError
from cortex_m_hil.host import subprocesses, timeouts
from cortex_m_hil.host.deadline import Deadline

LOG_LINES: Final = 40  # lines at the end of a log that an error shows

Own = TypeVar("Own", bound="Workers")
_Settings = TypeVar("_Settings", bound=Plan)
Answering = Callable[[Mapping[str, Any]], dict[str, Any]]


class Worker:
    """A process that runs `answer_requests`; it and its children end with this process."""

    def __init__(self, of: str, module: Sequence[str], log: Path) -> None:
        """Start the worker process.

        Args:
            of: the name of the command, for messages.
            module: the module to run, and its arguments except the last one, which is the log.
            log: the file for the worker's output.
        """
        self._of, self._log = of, log
        self._child = subprocesses.start([sys.executable, "-m", *module, str(log)])
        self._lock = threading.Lock()
        self._told = b""

    def ask(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Send a request and return its answer.

        Raises:
            LaunchError: the worker ended, or did not read or answer for `timeouts.WORKER_ANSWER`, or the harness
                in it raised an error.
        """
        self._send(json.dumps(request).encode() + b"\n")
        answer: dict[str, Any] = json.loads(self._line(Deadline.after(timeouts.WORKER_ANSWER)))
        if problem := answer.get("error"):
            what = f"{problem['type']}: {problem['message']}"
            raise LaunchError(what, hint=problem["hint"], log=problem["log"])
        return answer

    def end(self) -> None:
        """End the process; safe to call twice, and from another thread: a pending `ask` then raises LaunchError."""
        with self._lock:
            self._child.end()

    def _send(self, data: bytes) -> None:
        stdin = self._child.pipes[0].fileno()
        try:
            while data:
                _, ready, _ = select.select([], [stdin], [], timeouts.WORKER_ANSWER)
                if not ready:
                    raise self._ended()
                data = data[os.write(stdin, data) :]
        except OSError as error:
            if error.errno != errno.EPIPE:
                raise
            raise self._ended() from None

    def _line(self, deadline: Deadline) -> bytes:
        stdout = self._child.pipes[1].fileno()
        while b"\n" not in self._told:
            ready, _, _ = select.select([stdout], [], [], deadline.remaining)
            chunk = os.read(stdout, 1 << 16) if ready else b""
            if not chunk:
                raise self._ended()
            self._told += chunk
        line, _, self._told = self._told.partition(b"\n")
        return line

    def _ended(self) -> LaunchError:
        self.end()
        said = (os.read(self._child.pipes[2].fileno(), 1 << 16) or b"").decode(errors="replace")
        said += self._log.read_text(errors="replace") if self._log.exists() else ""
        lines = said.strip().splitlines() or ["it said nothing"]
        return LaunchError(f"a worker of {self._of} has ended: {lines[-1]}", log="\n".join(lines[-LOG_LINES:]))


class Workers:
    """The workers of a campaign: one for each simultaneous request, started on first use; use it in `with`."""

    def __init__(self, of: str, module: Sequence[str], folder: Path) -> None:
        """Prepare the workers, without starting one.

        Args:
            of: the name of the command, for messages.
            module: the module to run, and its arguments except the last one, which is the log.
            folder: the folder for the workers' logs.
        """
        self._of, self._module, self._folder = of, module, folder
        self._lock = threading.Lock()
        self._idle: queue.SimpleQueue[Worker] = queue.SimpleQueue()
        self._all: list[Worker] = []
        self._ended = False

    def __enter__(self: Own) -> Own:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def end(self) -> None:
        """End all workers; pending and later calls of `ask` raise LaunchError."""
        with self._lock:
            self._ended = True
        for worker in self._all:
            worker.end()

    def ask(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Send a request to an idle worker, or to a new one, and return the answer.

        Raises:
            LaunchError: the worker, or the harness in it, ended without an answer, or `end` was called.
        """
        worker = self._take()
        answer = worker.ask(request)
        self._idle.put(worker)
        return answer

    def _take(self) -> Worker:
        try:
            return self._idle.get_nowait()
        except queue.Empty:
            pass
        with self._lock:
            if self._ended:
                raise LaunchError(f"{self._of} is ending")
            self._all.append(Worker(self._of, self._module, self._folder / f"worker-{len(self._all)}.log"))
            return self._all[-1]


def answer_requests(settings: type[_Settings], make: Callable[[_Settings, ExitStack], Answering]) -> None:
    """Answer each request on standard input until its end; a HarnessError is sent back as an answer.

    The arguments of the process are its settings as JSON, and the log file that gets all of its other output.

    Args:
        settings: the class of the settings.
        make: returns the function that answers a request; it is given the settings and an ExitStack, which is closed
            when the process ends.
    """
    fields, log = sys.argv[1:]
    answers = _answers_apart(log)
    with ExitStack() as stack:
        answering = make(settings.from_fields(json.loads(fields)), stack)
        for line in iter(partial(sys.stdin.buffer.readline), b""):
            try:
                told = answering(json.loads(line))
            except HarnessError as error:
                told = {"error": _error(error)}
            answers.write(json.dumps(told).encode() + b"\n")


def _answers_apart(log: str) -> Any:
    """Return the stream for answers, and redirect all other output of the process to the log."""
    answers = os.fdopen(os.dup(1), "wb", buffering=0)
    said = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    os.dup2(said, 1)
    os.dup2(said, 2)
    return answers


def _error(error: HarnessError) -> dict[str, Any]:
    return {"type": type(error).__name__, "message": error.message, "hint": error.hint, "log": error.log}
