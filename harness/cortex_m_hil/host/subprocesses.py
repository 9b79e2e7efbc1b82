"""Child processes that end with this one, whatever ends it, and with all that they have started.

Each is started by a supervisor of its own, `host/supervisor.py`, which sees to that. Nothing else waits for a child or
ends one, but `toolchain.ask` for what a tool says in a few seconds.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO

from cortex_m_hil.errors import LaunchError
from cortex_m_hil.host import supervisor
from cortex_m_hil.host.deadline import Deadline

END_TIMEOUT = 5.0  # seconds for the supervisor to end everything, and again for the kernel to take it away
WATCH = 1.0  # seconds between two looks at what a command has done
GRACE = 2.0  # seconds for a command that has something to put away before it ends


def supervised(command: Sequence[str], grace: float = 0.0) -> list[str]:
    """`command` below a supervisor; whoever starts that must be this process."""
    return [sys.executable, "-I", "-S", supervisor.__file__, str(os.getpid()), f"{grace:g}", *command]


class Child:
    """A command with all that it started, in a session of its own.

    `pid` is the supervisor's. What it exits with is the command's exit status, and once it has ended nothing is left.
    """

    def __init__(self, command: Sequence[str], grace: float, **options: object) -> None:
        """LaunchError: there is no such folder. A command that cannot be started says so, and ends with 126 or 127."""
        try:
            self._popen: subprocess.Popen[bytes] = subprocess.Popen(  # type: ignore[call-overload]
                supervised(command, grace), start_new_session=True, **options
            )
            self._pidfd = os.pidfd_open(self._popen.pid)
        except OSError as error:
            raise LaunchError(f"cannot start {command[0]}: {error.strerror}") from error
        self.pid: int = self._popen.pid
        self._grace = grace

    @property
    def pipes(self) -> tuple[IO[bytes], IO[bytes], IO[bytes]]:
        """Standard input, output and error."""
        popen = self._popen
        assert popen.stdin and popen.stdout and popen.stderr
        return popen.stdin, popen.stdout, popen.stderr

    def wait(self, seconds: float) -> int | None:
        """The exit status (negative: the signal) if everything has ended within `seconds`."""
        if self._popen.returncode is None:
            if not _ends(self._pidfd, seconds):
                return None
            _end_session(self.pid)  # of a supervisor that was killed; not reaped yet, so its id is nobody else's
            self._popen.wait()
            os.close(self._pidfd)
        return self._popen.returncode

    def end(self) -> None:
        """Ends everything. Safe to call twice."""
        if self._popen.returncode is not None:
            return
        for number in (signal.SIGTERM, signal.SIGKILL):  # the latter for a supervisor that somebody has stopped
            signal.pidfd_send_signal(self._pidfd, number)
            if self.wait(self._grace + END_TIMEOUT) is not None:
                return


def _ends(pidfd: int, seconds: float) -> bool:
    return bool(select.select([pidfd], [], [], seconds)[0])


def _end_session(session: int) -> None:
    """Kills what is left of it, and waits for the kernel to do so."""
    deadline = Deadline.after(END_TIMEOUT)
    for pid in _members(session):
        with contextlib.suppress(ProcessLookupError):
            pidfd = os.pidfd_open(pid)
            try:
                if os.getsid(pid) == session:
                    signal.pidfd_send_signal(pidfd, signal.SIGKILL)
                    _ends(pidfd, deadline.remaining)
            finally:
                os.close(pidfd)


def _members(session: int) -> Iterator[int]:
    """Processes that live in the session, until there are none; each once."""
    seen = {session}
    while True:
        found = set()
        for name in os.listdir("/proc"):
            with contextlib.suppress(ProcessLookupError):
                if name.isdigit() and os.getsid(int(name)) == session:
                    found.add(int(name))
        if not found - seen:
            return
        yield from found - seen
        seen |= found


def start(
    command: Sequence[str],
    *,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    grace: float = 0.0,
    pass_fds: Sequence[int] = (),
) -> Child:
    """A child with pipes that do not block, which inherits `pass_fds` as well.

    With `grace` it is asked to end (SIGTERM), and then has so many seconds.
    """
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    child = Child(command, grace, cwd=cwd, env=env, pass_fds=pass_fds, bufsize=0, **pipes)
    for stream in child.pipes:
        os.set_blocking(stream.fileno(), False)
    return child


def run(
    command: Sequence[str],
    log: Path,
    seconds: float,
    *,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    meanwhile: Callable[[], None] | None = None,
) -> int | None:
    """The exit status of a command that starts others, as builds do; None if it has not ended within `seconds`.

    What it says is added to `log`, which `meanwhile` may read: it is called every second. Whatever it left running has
    ended as well.
    """
    with log.open("ab") as out:
        child = Child(command, 0.0, cwd=cwd, env=env, stdin=subprocess.DEVNULL, stdout=out, stderr=out)
        try:
            return child.wait(seconds) if meanwhile is None else _watched(child, Deadline.after(seconds), meanwhile)
        finally:
            child.end()


def _watched(child: Child, deadline: Deadline, meanwhile: Callable[[], None]) -> int | None:
    while (status := child.wait(min(WATCH, deadline.remaining))) is None and not deadline.expired:
        meanwhile()
    return status


def foreground(command: Sequence[str]) -> int:
    """The exit status of a command that has our terminal. It is terminated if we die; for the main thread.

    An interrupt is its own business: pytest then ends its simulators, and prints what it has.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])  # the supervisor unblocks it when it is ready
    with subprocess.Popen(supervised(command, GRACE)) as child:
        previous = signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        try:
            return child.wait()
        finally:
            signal.signal(signal.SIGINT, previous)
