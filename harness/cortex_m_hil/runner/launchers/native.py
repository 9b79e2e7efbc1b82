"""The launcher of a runner that is a process of the host, under AddressSanitizer and UndefinedBehaviorSanitizer."""

from __future__ import annotations

import os
import platform
import re
import signal
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from cortex_m_hil.errors import HarnessError, TargetFault
from cortex_m_hil.host import toolchain
from cortex_m_hil.host.sandbox import Sandbox, program_sandbox
from cortex_m_hil.runner.launchers.simulator import Simulator
from cortex_m_hil.targets.target import Strict, Target

_REPORT = re.compile(r"(?:ERROR: AddressSanitizer|runtime error|ERROR: LeakSanitizer): .*")
# Signals that a process causes itself. In a simulator they are a bug of the simulator, in the native runner a bug of
# the firmware.
_CRASHES = (signal.SIGABRT, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGSEGV, signal.SIGSYS, signal.SIGTRAP)


@dataclass(frozen=True)
class NativeLauncher(Simulator):
    """The launcher of a runner that is built for the host, with sanitizers, and run as a child process."""

    settings: ClassVar[type[Strict]] = Strict
    optional: ClassVar[bool] = False
    program: ClassVar[str] = ""

    @classmethod
    def parse(cls, settings: Strict, where: str) -> NativeLauncher:
        return cls()

    def describe(self) -> str:
        return "native"

    def require(self) -> None:
        """Accept any machine: the host needs no simulator."""

    def engine(self, board: str) -> str:
        return f"host {platform.machine()}"

    @property
    def counts_coverage(self) -> bool:
        return True

    def command(self, elf: Path, directory: Path, arguments: Sequence[str]) -> list[str]:
        return [str(elf), *arguments[1:]]

    def environment(self) -> dict[str, str]:
        return sanitizer_environment()

    def sandbox(self, elf: Path, directory: Path) -> Sandbox:
        """Return a sandbox with the executable, the files of /proc/self for sanitizers, and the wheel's libraries.

        The wheel's libraries look up the CPU's features, so its description in /proc and /sys is readable as well.
        """
        cpu = (Path("/proc/cpuinfo"), Path("/sys/devices/system/cpu"))
        return program_sandbox(elf, directory, Path("/proc/self"), *cpu, toolchain.executorch_package())

    def diagnose(self, target: Target, status: int, log: str) -> HarnessError | None:
        if report := sanitizer_report(log):
            return TargetFault(report, target=target.name, log=log)
        if -status in _CRASHES:
            what = f"the executable crashed ({signal.Signals(-status).name})"
            return TargetFault(what, target=target.name, log=log)
        return None


def sanitizer_environment() -> dict[str, str]:
    """Return this process's environment, with the sanitizers set to stop at the first report."""
    return {**os.environ, "ASAN_OPTIONS": "abort_on_error=0:detect_leaks=0", "UBSAN_OPTIONS": "print_stacktrace=1"}


def sanitizer_report(log: str) -> str | None:
    """Return the headline of a sanitizer's report, with the first stack frame in the project's sources, if any.

    Returns None where the log has no report.
    """
    found = _REPORT.search(log)
    if found is None:
        return None
    frame = re.search(r"#\d+ .* in (.+?) (\S*firmware\S*|\S+\.(?:cpp|h):\d+\S*)", log[found.start() :])
    return found[0] + (f", in {frame[1]} at {frame[2]}" if frame else "")
