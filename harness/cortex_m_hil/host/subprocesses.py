"""Child processes that end together with this process, even if it is killed, and with all their descendants.

Each child runs below its own supervisor, `host/supervisor.py`, which ensures this. Only `toolchain.run_tool` starts
processes in another way, for tools that end within seconds.
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

END_TIMEOUT = 5.0  # seconds for the supervisor to end everything, and again for the kernel after SIGKILL
POLL_INTERVAL = 1.0  # seconds between two calls of `meanwhile`
GRACE = 2.0  # seconds for a command to clean up after SIGTERM


def supervised(command: Sequence[str], grace: float = 0.0) -> list[str]:
    """Return the command that runs `command` below a supervisor; it must be started by this process.

    Args:
        command: the command.
        grace: seconds that the command has to end after SIGTERM; 0: it is killed at once.
    """
    return [sys.executable, "-I", "-S", supervisor.__file__, str(os.getpid()), f"{grace:g}", *command]


class Child:
    """A command and its descendants, in a session of their own.

    `pid` is the supervisor's process id. The supervisor exits with the command's status, after all descendants have
    ended.
    """

    def __init__(self, command: Sequence[str], grace: float, **options: object) -> None:
        """Start a command. If it cannot be executed, standard error says so, and the exit status is 126 or 127.

        Args:
            command: the command.
            grace: as in `supervised`.
            **options: the options of `subprocess.Popen`.

        Raises:
            LaunchError: the supervisor cannot be started, for example in a folder that does not exist.
        """
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
        """Return the pipes of standard input, output and error."""
        popen = self._popen
        assert popen.stdin and popen.stdout and popen.stderr
        return popen.stdin, popen.stdout, popen.stderr

    def wait(self, seconds: float) -> int | None:
        """Return the exit status (negative: the signal) if all has ended within `seconds`, else None."""
        if self._popen.returncode is None:
            if not _ends(self._pidfd, seconds):
                return None
            _end_session(self.pid)  # if the supervisor was killed; it is not reaped yet, so its id is still its own
            self._popen.wait()
            os.close(self._pidfd)
        return self._popen.returncode

    def end(self) -> None:
        """End the command and its descendants. Safe to call twice."""
        if self._popen.returncode is not None:
            return
        for number in (signal.SIGTERM, signal.SIGKILL):  # SIGKILL is for a supervisor that is stopped (SIGSTOP)
            signal.pidfd_send_signal(self._pidfd, number)
            if self.wait(self._grace + END_TIMEOUT) is not None:
                return


def _ends(pidfd: int, seconds: float) -> bool:
    return bool(select.select([pidfd], [], [], seconds)[0])


def _end_session(session: int) -> None:
    """Kill the processes that are left in a session, and wait until they have ended."""
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
    """Yield the processes that live in the session, each once, until there are no more."""
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
    """Start a child with pipes that do not block.

    Args:
        command: the command.
        cwd: the command's working folder; None: the current one.
        env: the command's environment variables; None: this process's.
        grace: as in `supervised`.
        pass_fds: further descriptors that the child inherits.

    Raises:
        LaunchError: the command cannot be started.
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
    """Run a command that starts other processes, such as a build, and end all processes that it left running.

    Args:
        command: the command.
        log: a file to which the command's output is appended.
        seconds: the command's time limit.
        cwd: the command's working folder; None: the current one.
        env: the command's environment variables; None: this process's.
        meanwhile: called every POLL_INTERVAL; it may read `log`.

    Returns:
        The exit status; None if the command has not ended within `seconds`.

    Raises:
        LaunchError: the command cannot be started.
    """
    with log.open("ab") as out:
        child = Child(command, 0.0, cwd=cwd, env=env, stdin=subprocess.DEVNULL, stdout=out, stderr=out)
        try:
            return child.wait(seconds) if meanwhile is None else _watched(child, Deadline.after(seconds), meanwhile)
        finally:
            child.end()


def _watched(child: Child, deadline: Deadline, meanwhile: Callable[[], None]) -> int | None:
    while (status := child.wait(min(POLL_INTERVAL, deadline.remaining))) is None and not deadline.expired:
        meanwhile()
    return status


def foreground(command: Sequence[str]) -> int:
    """Run a command in the foreground of our terminal, and return its exit status; for the main thread only.

    The command is terminated if this process dies. It handles an interrupt itself: pytest, for example, then ends its
    simulators, and prints its results so far.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])  # the supervisor unblocks it when ready
    with subprocess.Popen(supervised(command, GRACE)) as child:
        previous = signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        try:
            return child.wait()
        finally:
            signal.signal(signal.SIGINT, previous)
