"""The runner as a process of the host, under AddressSanitizer and UndefinedBehaviorSanitizer."""

from __future__ import annotations

import os
import platform
import re
from pathlib import Path

from cortex_m_hil.host import toolchain
from cortex_m_hil.host.sandbox import Sandbox, around

_REPORT = re.compile(r"(?:ERROR: AddressSanitizer|runtime error|ERROR: LeakSanitizer): .*")


def engine() -> str:
    return f"host {platform.machine()}"


def environment() -> dict[str, str]:
    """Ours, with the sanitizers told to stop at the first report."""
    return {**os.environ, "ASAN_OPTIONS": "abort_on_error=0:detect_leaks=0", "UBSAN_OPTIONS": "print_stacktrace=1"}


def sandbox(elf: Path, folder: Path) -> Sandbox:
    """It sees itself, what sanitizers read of their own process, and the wheel's libraries, which look at the CPU."""
    cpu = (Path("/proc/cpuinfo"), Path("/sys/devices/system/cpu"))
    return around(elf, folder, Path("/proc/self"), *cpu, toolchain.executorch_package())


def sanitizer_report(log: str) -> str | None:
    """The report's headline, with the first frame in the project's sources where there is one."""
    found = _REPORT.search(log)
    if found is None:
        return None
    frame = re.search(r"#\d+ .* in (.+?) (\S*firmware\S*|\S+\.(?:cpp|h):\d+\S*)", log[found.start() :])
    return found[0] + (f", in {frame[1]} at {frame[2]}" if frame else "")
