"""Processes that a campaign asks: a request a line, an answer a line, both JSON. One ends with its standard input."""

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

from cortex_m_hil.errors import HarnessError, LaunchError
from cortex_m_hil.host import subprocesses
from cortex_m_hil.host.deadline import Deadline

ANSWER_TIMEOUT: Final = 7200.0  # seconds: two builds at their limits, and programs that hang one after the other
LOG_LINES: Final = 40

Own = TypeVar("Own", bound="Workers")
Answering = Callable[[Mapping[str, Any]], dict[str, Any]]


class Worker:
    """A process that runs `work`; it ends with this one, and with all that it has started."""

    def __init__(self, of: str, module: Sequence[str], log: Path) -> None:
        """`of` is the command whose worker it is; `module` the one that is run, and its arguments but the log."""
        self._of, self._log = of, log
        self._child = subprocesses.start([sys.executable, "-m", *module, str(log)])
        self._lock = threading.Lock()
        self._told = b""

    def ask(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Its answer. LaunchError where it ends without one; what its harness raised is one as well."""
        self._send(json.dumps(request).encode() + b"\n")
        answer: dict[str, Any] = json.loads(self._line(Deadline.after(ANSWER_TIMEOUT)))
        if problem := answer.get("error"):
            what = f"{problem['type']}: {problem['message']}"
            raise LaunchError(what, hint=problem["hint"], log=problem["log"])
        return answer

    def end(self) -> None:
        """Safe to call twice, and from another thread: a question under way then ends in LaunchError."""
        with self._lock:
            self._child.end()

    def _send(self, data: bytes) -> None:
        stdin = self._child.pipes[0].fileno()
        try:
            while data:
                select.select([], [stdin], [], ANSWER_TIMEOUT)
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
    """As many as are asked at a time, each begun when it is needed first. Use `with`."""

    def __init__(self, of: str, module: Sequence[str], folder: Path) -> None:
        """`folder` has their logs."""
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
        """Of all, and of what they are asked: that ends in LaunchError."""
        with self._lock:
            self._ended = True
        for worker in self._all:
            worker.end()

    def ask(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """LaunchError where the worker, or the harness in it, ends without an answer."""
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


def work(log: str, make: Callable[[ExitStack], Answering]) -> None:
    """Answers each request on standard input by what `make` gives; what the harness raises is an answer as well.

    What is said beside is in the file `log`. What `make` puts on its stack is closed in the end.
    """
    answers = _answers_apart(log)
    with ExitStack() as stack:
        answering = make(stack)
        for line in iter(partial(sys.stdin.buffer.readline), b""):
            try:
                told = answering(json.loads(line))
            except HarnessError as error:
                told = {"error": _error(error)}
            answers.write(json.dumps(told).encode() + b"\n")


def _answers_apart(log: str) -> Any:
    """Where answers are written; from here on all that is said beside is in the log."""
    answers = os.fdopen(os.dup(1), "wb", buffering=0)
    said = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    os.dup2(said, 1)
    os.dup2(said, 2)
    return answers


def _error(error: HarnessError) -> dict[str, Any]:
    return {"type": type(error).__name__, "message": error.message, "hint": error.hint, "log": error.log}
