"""QEMU's system emulator, over semihosting."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from harness import toolchain
from harness.targets import QemuLauncher


def engine() -> str:
    return f"QEMU {toolchain.find('qemu-system-arm').version}"


def command(launcher: QemuLauncher, elf: Path, arguments: Sequence[str]) -> list[str]:
    """No chardev: with one, SYS_READ gives end of file at once instead of waiting (QEMU 7.2, measured)."""
    semihosting = "enable=on,target=native"
    for argument in arguments:
        semihosting += f",arg={argument.replace(',', ',,')}"
    machine = ["-M", launcher.machine, *launcher.args]
    quiet = ["-display", "none", "-serial", "none", "-monitor", "none"]
    path = str(toolchain.find("qemu-system-arm").path)
    return [path, *machine, *quiet, "-semihosting-config", semihosting, "-kernel", str(elf)]
