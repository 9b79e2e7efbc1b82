"""Children that end with this process, whatever ends it.

`setpriv --pdeathsig` asks the kernel for that. The kernel keeps the promise for the *thread* that forked, so one thread
that lives as long as the process starts every child.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from pathlib import Path
from queue import SimpleQueue

from harness import toolchain
from harness.errors import LaunchError

END_TIMEOUT = 5.0  # seconds for the kernel to take a killed child away
# We may have died before setpriv spoke to the kernel; then the child has another parent by now.
_GUARD = '[ "$PPID" = "$0" ] && exec "$@"'
# The same for a command that starts others: told that we died, the shell ends its group, which is all of them.
_GROUP_GUARD = '[ "$PPID" = "$0" ] || exit 1; trap "kill -KILL 0" TERM; "$@" & wait "$!"'

_Job = tuple[list[str], dict[str, object], "Future[subprocess.Popen[bytes]]"]


class _Spawner:
    """The long-lived thread that starts children."""

    def __init__(self) -> None:
        self._jobs: SimpleQueue[_Job] = SimpleQueue()
        self._lock = threading.Lock()
        self._pid = 0

    def popen(self, command: list[str], **options: object) -> subprocess.Popen[bytes]:
        with self._lock:
            if self._pid != os.getpid():  # first use, or we are a fork of the process that had the thread
                self._pid = os.getpid()
                self._jobs = SimpleQueue()
                threading.Thread(target=self._serve, args=(self._jobs,), daemon=True, name="hil-spawner").start()
        answer: Future[subprocess.Popen[bytes]] = Future()
        self._jobs.put((command, options, answer))
        return answer.result()

    @staticmethod
    def _serve(jobs: SimpleQueue[_Job]) -> None:
        while True:
            command, options, answer = jobs.get()
            try:
                answer.set_result(subprocess.Popen(command, **options))  # type: ignore[call-overload]
            except BaseException as error:
                answer.set_exception(error)


_spawner = _Spawner()


def _guarded(command: Sequence[str], guard: str, died: str) -> list[str]:
    setpriv = str(toolchain.find("setpriv").path)
    return [setpriv, "--pdeathsig", died, "--", "/bin/sh", "-c", guard, str(os.getpid()), *command]


def _start(command: Sequence[str], guard: str, died: str, **options: object) -> subprocess.Popen[bytes]:
    try:
        return _spawner.popen(_guarded(command, guard, died), start_new_session=True, **options)
    except OSError as error:
        raise LaunchError(f"cannot start {command[0]}: {error.strerror}") from error


def start(
    command: Sequence[str], *, cwd: Path | None = None, env: Mapping[str, str] | None = None
) -> subprocess.Popen[bytes]:
    """A child with pipes that do not block, leader of its own group."""
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    popen = _start(command, _GUARD, "KILL", cwd=cwd, env=env, bufsize=0, **pipes)
    for stream in (popen.stdin, popen.stdout, popen.stderr):
        assert stream is not None
        os.set_blocking(stream.fileno(), False)
    return popen


def run(
    command: Sequence[str], log: Path, seconds: float, *, cwd: Path | None = None, env: Mapping[str, str] | None = None
) -> int | None:
    """The exit status of a command that starts others, as builds do; None if it has not ended within `seconds`.

    What it says is added to `log`. Whatever it left running has ended as well.
    """
    with log.open("ab") as out:
        pipes = {"stdin": subprocess.DEVNULL, "stdout": out, "stderr": out}
        popen = _start(command, _GROUP_GUARD, "TERM", cwd=cwd, env=env, **pipes)
        pidfd = os.pidfd_open(popen.pid)
        try:
            ended, _, _ = select.select([pidfd], [], [], seconds)
        finally:
            os.close(pidfd)
            end(popen)
    return popen.returncode if ended else None


def foreground(command: Sequence[str]) -> int:
    """The exit status of a command that has our terminal. It is terminated if we die; for the main thread.

    An interrupt is its own business: pytest then ends its simulators, and prints what it has.
    """
    with subprocess.Popen(_guarded(command, _GUARD, "TERM")) as child:
        previous = signal.signal(signal.SIGINT, signal.SIG_IGN)
        try:
            return child.wait()
        finally:
            signal.signal(signal.SIGINT, previous)


def end(popen: subprocess.Popen[bytes]) -> None:
    """Ends the child and all it started. Safe to call twice."""
    # Not poll(): until the child is waited for its process group is ours, and others may live in it.
    if popen.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(popen.pid, signal.SIGKILL)
    with contextlib.suppress(subprocess.TimeoutExpired):
        popen.wait(END_TIMEOUT)
