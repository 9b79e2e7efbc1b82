"""A simulator as a child process: its pipes as a link, its CPU time, and its certain end.

The child dies with this process, whatever ends it: `setpriv --pdeathsig KILL` asks the kernel for
that. The kernel keeps the promise for the *thread* that forked, so one thread that lives as long
as the process starts every child.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import subprocess
import threading
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue

import psutil

from harness import toolchain
from harness.errors import ConfigError, LaunchError
from harness.links import Deadline, LinkClosed

LOG_LIMIT = 64 * 1024  # bytes of standard error kept, the newest
END_TIMEOUT = 5.0  # seconds for the kernel to take a killed child away
# A guest asleep in WFI uses no CPU time, so wall time must bound a wait as well.
WALL_PER_CPU_SECOND = 6.0
# We may have died before setpriv spoke to the kernel; then the child has another parent by now.
_GUARD = '[ "$PPID" = "$0" ] && exec "$@"'

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


def start_owned(
    command: Sequence[str], *, cwd: Path | None = None, env: Mapping[str, str] | None = None
) -> subprocess.Popen[bytes]:
    """A child with pipes that do not block, leader of its own group, which dies with this process."""
    guarded = ["/bin/sh", "-c", _GUARD, str(os.getpid()), *command]
    owned = [str(toolchain.find("setpriv").path), "--pdeathsig", "KILL", "--", *guarded]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    try:
        popen = _spawner.popen(
            owned, cwd=cwd, env=None if env is None else dict(env), bufsize=0, start_new_session=True, **pipes
        )
    except OSError as error:
        raise LaunchError(f"cannot start {command[0]}: {error.strerror}") from error
    for stream in (popen.stdin, popen.stdout, popen.stderr):
        assert stream is not None
        os.set_blocking(stream.fileno(), False)
    return popen


def end_owned(popen: subprocess.Popen[bytes]) -> None:
    """Ends the child and all it started. Safe to call twice."""
    # Not poll(): until the child is waited for its process group is ours, and others may live in it.
    if popen.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(popen.pid, signal.SIGKILL)
    with contextlib.suppress(subprocess.TimeoutExpired):
        popen.wait(END_TIMEOUT)


def _cpu_times(pid: int) -> Iterator[float]:
    """Seconds of a process, then of each that descends from it.

    By the kernel's own list of children (CONFIG_PROC_CHILDREN; without it, none): psutil looks at every process of
    the machine, which takes 5 ms, and a round trip to a simulator takes 0.06 ms.
    """
    with contextlib.suppress(psutil.Error):
        times = psutil.Process(pid).cpu_times()
        yield float(times.user + times.system)
    with contextlib.suppress(OSError):
        for thread in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{thread}/children", "rb") as children:
                for child in children.read().split():
                    yield from _cpu_times(int(child))


@dataclass(frozen=True)
class CpuDeadline:
    """A budget of the engine's CPU time, so that a busy host does not turn a pass into a hang."""

    process: Process
    cpu_limit: float  # seconds of CPU time since the process began
    wall: Deadline

    @property
    def expired(self) -> bool:
        return self.wall.expired or self.process.cpu_seconds() >= self.cpu_limit

    @property
    def next_look(self) -> Deadline:
        """No CPU budget can be used up before this moment: one vCPU thread uses one second a second."""
        left = max(0.05, self.cpu_limit - self.process.cpu_seconds())
        return Deadline.after(min(left, self.wall.remaining))


class Process:
    """A running child. Its standard input and output are the link; its standard error is log."""

    lossless = True

    def __init__(
        self, command: Sequence[str], *, cwd: Path | None = None, env: Mapping[str, str] | None = None
    ) -> None:
        self.command = tuple(command)
        self.log = bytearray()
        self._popen = start_owned(command, cwd=cwd, env=env)
        assert self._popen.stdin and self._popen.stdout and self._popen.stderr
        self._in, self._out, self._err = self._popen.stdin, self._popen.stdout, self._popen.stderr
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._out, selectors.EVENT_READ)
        self._selector.register(self._err, selectors.EVENT_READ)
        self._received = bytearray()
        self._open = True
        self._cpu = 0.0

    @property
    def name(self) -> str:
        """The program, for messages."""
        return Path(self.command[0]).name

    @property
    def pid(self) -> int:
        return self._popen.pid

    def cpu_seconds(self) -> float:
        """User and system time of the child and all it started so far; what it last was once it is gone.

        A model behind a wrapper script, or behind a stand-in, uses none in the child itself.
        """
        self._cpu = max(self._cpu, sum(_cpu_times(self.pid)))
        return self._cpu

    def budget(self, seconds: float, nbytes: int = 0) -> CpuDeadline:
        """`seconds` of CPU time from now; a pipe needs none for its bytes."""
        wall = Deadline.after(seconds * WALL_PER_CPU_SECOND)
        return CpuDeadline(self, self.cpu_seconds() + seconds, wall)

    def write(self, data: bytes, deadline: Deadline) -> None:
        """All of `data`, reading meanwhile: a full pipe each way must not block both ends."""
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
        """The child reads end of file from now on."""
        self._in.close()

    def read(self, deadline: Deadline) -> bytes:
        while not self._received:
            if not self._open:
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
        """Waits for one round of events; true if standard input takes bytes. TimeoutError at the deadline."""
        if deadline.expired:  # asked first: a child that never stops talking must not hold anybody up
            raise TimeoutError
        events = self._selector.select(deadline.remaining)
        writable = False
        for key, _ in events:
            if key.fileobj is self._in:
                writable = True
            elif key.fileobj is self._out:
                self._open = self._take(self._out, self._received)
            else:
                self._take(self._err, self.log)
        del self.log[:-LOG_LIMIT]
        return writable

    def _take(self, stream: object, into: bytearray) -> bool:
        assert stream is self._out or stream is self._err
        pipe = self._out if stream is self._out else self._err
        try:
            data = os.read(pipe.fileno(), 1 << 16)
        except BlockingIOError:
            return True
        into += data
        if not data:
            self._selector.unregister(pipe)
        return bool(data)

    def wait(self, seconds: float) -> int | None:
        """The exit status (negative: the signal) if the child ends within `seconds`; its log is complete then."""
        deadline = Deadline.after(seconds)
        while self._selector.get_map():
            try:
                self._pump(deadline)
            except TimeoutError:
                break
        try:
            return self._popen.wait(deadline.remaining)
        except subprocess.TimeoutExpired:
            return None

    def close(self) -> None:
        """Ends the child and all it started. Safe to call twice."""
        end_owned(self._popen)
        self._selector.close()
        for stream in (self._in, self._out, self._err):
            stream.close()
