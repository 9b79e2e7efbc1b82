"""Limits on the CPU time of a simulator, so that a busy host does not turn a pass into a hang."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass

import psutil

from cortex_m_hil.host import timeouts
from cortex_m_hil.host.deadline import Deadline


def _descendants(pid: int) -> Iterator[int]:
    """Yield the pid of each descendant of a process.

    The kernel's own list of children is read (CONFIG_PROC_CHILDREN; without it nothing is yielded). psutil looks at
    every process of the machine, which takes 5 ms, while a round trip to a simulator takes 0.06 ms.
    """
    with contextlib.suppress(OSError):
        for thread in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{thread}/children", "rb") as children:
                for child in map(int, children.read().split()):
                    yield child
                    yield from _descendants(child)


def _cpu_times_below(pid: int) -> Iterator[float]:
    """Yield the CPU seconds of each descendant of a process."""
    for child in _descendants(pid):
        with contextlib.suppress(psutil.Error):
            times = psutil.Process(child).cpu_times()
            yield float(times.user + times.system)


def _waits_below(pid: int) -> Iterator[float]:
    """Yield the seconds for which each thread of each descendant was ready to run, while others had the CPUs.

    The kernel counts them (CONFIG_SCHED_INFO; without it nothing is yielded).
    """
    for child in _descendants(pid):
        with contextlib.suppress(OSError):
            for thread in os.listdir(f"/proc/{child}/task"):
                with open(f"/proc/{child}/task/{thread}/schedstat", "rb") as counts:
                    yield int(counts.read().split()[1]) / 1e9


class CpuTime:
    """The CPU time of a simulator. A model that a wrapper script or a shim starts is part of it.

    Neither value falls: after the simulator's end they are the last ones.
    """

    def __init__(self, pid: int) -> None:
        """Measure the descendants of a supervisor.

        Args:
            pid: the supervisor's, whose own time is not counted.
        """
        self._pid = pid
        self._used = self._waited = 0.0

    def used(self) -> float:
        """Return the user and system time of the simulator, in seconds."""
        self._used = max(self._used, sum(_cpu_times_below(self._pid)))
        return self._used

    def waited(self) -> float:
        """Return the seconds for which the simulator was ready to run, and other processes had the CPUs."""
        self._waited = max(self._waited, *_waits_below(self._pid), 0.0)
        return self._waited


@dataclass(frozen=True)
class CpuDeadline:
    """The moment at which a simulator has used up a budget of CPU time, or a multiple of it by the clock.

    Attributes:
        time: the simulator's CPU time.
        cpu_limit: seconds of CPU time since the process began.
        wall: the end by the clock, which is put off by the time for which the simulator waits for a CPU.
        waited: the seconds for which it had waited when the limit was set.
    """

    time: CpuTime
    cpu_limit: float
    wall: Deadline
    waited: float

    @classmethod
    def after(cls, seconds: float, time: CpuTime) -> CpuDeadline:
        """Return the end of a budget of `seconds` of CPU time that begins now."""
        wall = Deadline.after(seconds * timeouts.WALL_PER_CPU_SECOND)
        return cls(time, time.used() + seconds, wall, time.waited())

    @property
    def expired(self) -> bool:
        if self.time.used() >= self.cpu_limit:
            return True
        return self.wall.expired and self._wall.expired

    @property
    def _wall(self) -> Deadline:
        return Deadline(self.wall.at + self.time.waited() - self.waited)

    @property
    def next_poll(self) -> Deadline:
        """Return the earliest moment at which the CPU time can be used up.

        A simulator has one vCPU thread, which uses at most one second of CPU time in a second.
        """
        left = max(0.05, self.cpu_limit - self.time.used())
        return Deadline.after(min(left, self.wall.remaining or self._wall.remaining))
