"""A simulator as a child process: communication by its pipes, and its reliable termination."""

from __future__ import annotations

import os
import selectors
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO

from cortex_m_hil.errors import ConfigError
from cortex_m_hil.host import subprocesses
from cortex_m_hil.host.deadline import Deadline
from cortex_m_hil.host.sandbox import Sandbox, SyscallObserver
from cortex_m_hil.runner.launchers.cpu_deadline import CpuDeadline, CpuTime
from cortex_m_hil.targets.connection import LinkClosed

LOG_LIMIT = 64 * 1024  # bytes of standard error kept, the newest
# The newest unread bytes of standard output that are kept. No answer is as long; more is a flood, in which the framing
# drops all bytes that are no frame.
RECEIVED_LIMIT = 4 << 20


class Process:
    """A running child process. Its standard input and output are the link; its standard error is the log.

    In a `sandbox` the process can access only the sandbox's files; firmware that asks for others is ended.
    """

    lossless = True

    def __init__(
        self,
        command: Sequence[str],
        *,
        cwd: Path | None = None,
        env: Mapping[str, str] | None = None,
        grace: float = 0.0,
        sandbox: Sandbox | None = None,
        joined: bool = False,
    ) -> None:
        """Start the child below a supervisor, as `subprocesses.start` does.

        Args:
            command: the command line.
            cwd: the child's working folder; None: the current folder.
            env: the child's environment variables; None: those of this process.
            grace: seconds between SIGTERM and SIGKILL on `close`; 0: SIGKILL at once.
            sandbox: the files that the child may use; None: all files that the user may use.
            joined: whether standard error is part of the link as well, in the order in which it arrives.
        """
        self.command = tuple(command)
        self.log = bytearray()
        self._selector = selectors.DefaultSelector()
        self._observer = SyscallObserver(sandbox.folder, self._selector) if sandbox and sandbox.observed else None
        try:
            self._child = self._start(sandbox, cwd, env, grace)
        except BaseException:
            self._close_observer()
            raise
        self._in, self._out, self._err = self._child.pipes
        self._selector.register(self._out, selectors.EVENT_READ)
        self._selector.register(self._err, selectors.EVENT_READ)
        self._received = bytearray()
        self._link = (self._out, self._err) if joined else (self._out,)
        self._cpu = CpuTime(self.pid)
        self.byte_seconds = 0.0  # CPU time that a byte to the program may take

    def _start(
        self, sandbox: Sandbox | None, cwd: Path | None, env: Mapping[str, str] | None, grace: float
    ) -> subprocesses.Child:
        if self._observer is None:
            command = sandbox.command(self.command) if sandbox else self.command
            return subprocesses.start(command, cwd=cwd, env=env, grace=grace)
        assert sandbox is not None
        with self._observer.theirs as theirs:  # inherited by the child; closed here once the child is started
            command = sandbox.command(self.command, theirs.fileno())
            return subprocesses.start(command, cwd=cwd, env=env, grace=grace, pass_fds=(theirs.fileno(),))

    @property
    def name(self) -> str:
        """Return the program's file name, for messages."""
        return Path(self.command[0]).name

    @property
    def pid(self) -> int:
        """Return the pid of the supervisor, below which the program runs."""
        return self._child.pid

    @property
    def refused(self) -> str:
        """Return the forbidden file or system call for which the sandbox ended the program; "" if it did not."""
        return self._observer.refused if self._observer else ""

    def cpu_seconds(self) -> float:
        """Return the user and system time of the program and its descendants; after its end, the last value."""
        return self._cpu.used()

    def budget(self, seconds: float, nbytes: int = 0) -> CpuDeadline:
        """Return a budget of `seconds` of CPU time from now, and of what `nbytes` to the program may take."""
        return CpuDeadline.after(seconds + nbytes * self.byte_seconds, self._cpu)

    def write(self, data: bytes, deadline: Deadline) -> None:
        """Send all of `data`, and read meanwhile: full pipes in both directions must not block both ends."""
        view = memoryview(data)
        self._selector.register(self._in, selectors.EVENT_WRITE)
        try:
            while view:
                if self._pump(deadline):
                    view = view[self._send(view) :]
        finally:
            self._selector.unregister(self._in)

    def store(self, data: bytes) -> None:
        raise ConfigError("a simulated board has no flash for programs", hint="resident: belongs to boards on a UART")

    def end_input(self) -> None:
        """Close the child's standard input."""
        self._in.close()

    def read(self, deadline: Deadline) -> bytes:
        while not self._received:
            if not any(stream in self._selector.get_map() for stream in self._link):
                raise LinkClosed
            self._pump(deadline)
        data = bytes(self._received)
        self._received.clear()
        return data

    def _send(self, view: memoryview) -> int:
        try:
            return os.write(self._in.fileno(), view)
        except BlockingIOError:
            return 0
        except BrokenPipeError:
            raise LinkClosed from None

    def _pump(self, deadline: Deadline) -> bool:
        """Wait for one round of events, and read what has arrived; tell whether standard input can be written.

        Raises TimeoutError at the deadline.
        """
        if deadline.expired:  # checked first: a child that never stops writing must not delay the timeout
            raise TimeoutError
        events = self._selector.select(deadline.remaining)
        writable = False
        for key, _ in events:
            if key.data is not None:
                key.data()
            elif key.fileobj is self._in:
                writable = True
            elif key.fileobj is self._out:
                self._received += self._take(self._out)
            else:
                said = self._take(self._err)
                self.log += said
                self._received += said if self._err in self._link else b""
        del self.log[:-LOG_LIMIT]
        del self._received[:-RECEIVED_LIMIT]
        return writable

    def _take(self, pipe: IO[bytes]) -> bytes:
        """Return the bytes that are in a pipe; if it is at its end, stop watching it."""
        try:
            data = os.read(pipe.fileno(), 1 << 16)
        except BlockingIOError:
            return b""
        if not data:
            self._selector.unregister(pipe)
        return data

    def wait(self, seconds: float) -> int | None:
        """Return the exit status, or the negative signal, if the child ends within `seconds`, else None.

        After the child's end its log is complete.
        """
        deadline = Deadline.after(seconds)
        while any(stream in self._selector.get_map() for stream in (self._out, self._err)):
            try:
                self._pump(deadline)
            except TimeoutError:
                break
        return self._child.wait(deadline.remaining)

    def close(self) -> None:
        """Terminate the child and its descendants; a second call does nothing."""
        self._child.end()
        self._selector.close()
        self._close_observer()
        for stream in (self._in, self._out, self._err):
            stream.close()

    def _close_observer(self) -> None:
        if self._observer is not None:
            self._observer.close()
