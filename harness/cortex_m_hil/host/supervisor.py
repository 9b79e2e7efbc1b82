"""A stand-alone program that runs a command, and ends all of its descendants.

    python -I -S supervisor.py OWNER GRACE COMMAND…

A descendant that loses its parent becomes a child of this process (PR_SET_CHILD_SUBREAPER, prctl(2)), so no process
escapes by leaving its process group or session, as ninja's jobs do. All descendants are ended when the command has
ended, on SIGTERM or SIGHUP, and when the process OWNER, our parent, has ended in any way. Then this process exits with
the command's status: after its end no descendant is left.

If GRACE is not 0, a command that has to end first gets SIGTERM, and has so many seconds. An interrupt from the terminal
is left to the command.

If this process itself is killed, the kernel ends the command (PR_SET_PDEATHSIG), and the owner the rest of the session
(subprocesses.Child). This program imports nothing of the harness, so that a start takes only 20 ms of CPU time.
"""

from __future__ import annotations

import contextlib
import ctypes
import math
import os
import select
import signal
import sys
import time
from collections.abc import Iterator, Sequence

_PR_SET_PDEATHSIG, _PR_SET_DUMPABLE, _PR_SET_CHILD_SUBREAPER = 1, 4, 36  # linux/prctl.h
_ENDING = (signal.SIGTERM, signal.SIGHUP)
_NOT_OURS = (signal.SIGINT, signal.SIGQUIT)  # signals that a terminal sends to the command as well
_IGNORED_BY_PYTHON = (signal.SIGPIPE, signal.SIGXFSZ)
_NOT_FOUND, _NOT_EXECUTABLE = 127, 126  # exit statuses, the same as a shell's


def set_process_option(option: int, value: int) -> None:
    """Set an option of this process by prctl(2).

    Raises:
        OSError: the kernel refuses.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(option, *map(ctypes.c_ulong, (value, 0, 0, 0))) != 0:
        raise OSError(ctypes.get_errno(), f"prctl({option})")


def die_with(parent: int, number: signal.Signals) -> None:
    """Make the kernel send us a signal when the thread that started us ends; send it now if `parent` has ended."""
    set_process_option(_PR_SET_PDEATHSIG, number)
    if os.getppid() != parent:
        os.kill(os.getpid(), number)


class _Supervisor:
    def __init__(self, owner: int, grace: float) -> None:
        """Watch the process `owner`, and become the parent of orphans below this process.

        Raises:
            ProcessLookupError: the owner has ended.
        """
        self._grace = grace
        self._owner = os.pidfd_open(owner)
        if os.getppid() != owner:
            raise ProcessLookupError
        self._signals = _readable_signals()
        self._command = 0  # the command's pid
        self._status: int | None = None  # the command's status, as from waitpid
        set_process_option(_PR_SET_CHILD_SUBREAPER, 1)

    def run(self, command: Sequence[str]) -> int:
        """Run a command and end its descendants; return its status as from waitpid."""
        self._command = self._start(command)
        null = os.open(os.devnull, os.O_RDWR)
        for stream in (0, 1, 2):  # closed here, so that readers of the command's output see its end
            os.dup2(null, stream)
        if not self._wait() and self._grace:
            os.kill(self._command, signal.SIGTERM)
            self._wait(time.monotonic() + self._grace)
        self._end_all()
        assert self._status is not None
        return self._status

    def _start(self, command: Sequence[str]) -> int:
        us = os.getpid()
        before = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        pid = os.fork()
        if pid == 0:
            try:
                for number in (*_ENDING, *_NOT_OURS, *_IGNORED_BY_PYTHON, signal.SIGCHLD):
                    if signal.getsignal(number) is not signal.SIG_IGN or number in _IGNORED_BY_PYTHON:
                        signal.signal(number, signal.SIG_DFL)
                signal.pthread_sigmask(signal.SIG_SETMASK, before)
                die_with(us, signal.SIGTERM if self._grace else signal.SIGKILL)
                os.execvp(command[0], list(command))
            except OSError as error:
                os.write(2, f"cannot start {command[0]}: {error.strerror}\n".encode(errors="replace"))
                os._exit(_NOT_FOUND if isinstance(error, FileNotFoundError) else _NOT_EXECUTABLE)
            finally:
                os._exit(_NOT_EXECUTABLE)
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        return pid

    def _wait(self, end: float = math.inf) -> bool:
        """Wait for the command, and tell whether it has ended by itself.

        Args:
            end: the deadline, by time.monotonic(), for a command that was asked to end; signals and the owner's end are
                ignored then. Infinite: wait until the command ends or has to be ended.
        """
        asked = end < math.inf  # the command was asked to end
        watched = [self._signals] if asked else [self._signals, self._owner]
        while self._status is None:
            ready, _, _ = select.select(watched, [], [], max(0.0, end - time.monotonic()) if asked else None)
            if not ready or self._owner in ready:
                return False
            told = not set(_ENDING).isdisjoint(os.read(self._signals, 4096))
            if told and not asked:
                return False
            self._reap()
        return True

    def _end_all(self) -> None:
        """Kill all processes below this one.

        Orphans of a killed process become our children, so they are found in the next round.
        """
        while self._reap():
            for pid in _children(os.getpid()):
                with contextlib.suppress(OSError):
                    os.kill(pid, signal.SIGKILL)
            os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOWAIT)

    def _reap(self) -> bool:
        """Reap the children that have ended, and tell whether any are left."""
        with contextlib.suppress(ChildProcessError):
            while True:
                pid, status = os.waitpid(-1, os.WNOHANG)
                if pid == self._command:
                    self._status = status
                if pid == 0:
                    return True
        return False


def _readable_signals() -> int:
    """Make signals write their numbers into a pipe, and return the end to read from."""
    reader, writer = os.pipe()
    os.set_blocking(reader, False)
    os.set_blocking(writer, False)
    signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, _ignore)
    for number in (*_ENDING, *_NOT_OURS):
        if signal.getsignal(number) is not signal.SIG_IGN:  # SIGHUP is ignored under nohup
            signal.signal(number, _ignore)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())  # whatever our parent had blocked
    return reader


def _ignore(number: int, frame: object) -> None:
    """Ignore a signal, whose number Python has written to the pipe."""


def _children(parent: int) -> Iterator[int]:
    """Yield the children of a process.

    /proc/…/children is not used: not every kernel has it, and it may omit children while others start or end (proc(5)).
    """
    for name in os.listdir("/proc"):
        with contextlib.suppress(OSError):
            if name.isdigit() and _parent(name) == parent:
                yield int(name)


def _parent(pid: str) -> int:
    with open(f"/proc/{pid}/stat", "rb") as file:
        return int(file.read().rpartition(b")")[2].split()[1])


def _exit_like(status: int) -> None:
    """Exit with the command's exit status, or end by the signal that ended the command."""
    if not os.WIFSIGNALED(status):
        os._exit(os.waitstatus_to_exitcode(status))
    number = os.WTERMSIG(status)
    set_process_option(_PR_SET_DUMPABLE, 0)  # only the command leaves a core file
    with contextlib.suppress(OSError):  # the action of SIGKILL cannot be changed
        signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)


def main(arguments: Sequence[str]) -> None:
    owner, grace, *command = arguments
    with contextlib.suppress(ProcessLookupError):
        _exit_like(_Supervisor(int(owner), float(grace)).run(command))


if __name__ == "__main__":
    main(sys.argv[1:])
