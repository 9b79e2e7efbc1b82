"""QEMU's system emulator, over semihosting."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from cortex_m_hil.host import toolchain
from cortex_m_hil.host.sandbox import Sandbox, around
from cortex_m_hil.targets.model import QemuLauncher

# Its own filter of system calls: SYS_SYSTEM, and whatever else would start a program, ends it with SIGSYS.
SANDBOX = ("-sandbox", "on,obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny")


def engine(launcher: QemuLauncher) -> str:
    core = f" ({launcher.core})" if launcher.core else ""
    return f"QEMU {toolchain.find('qemu-system-arm').version}{core}"


def command(launcher: QemuLauncher, elf: Path, arguments: Sequence[str]) -> list[str]:
    """No chardev: with one, SYS_READ gives end of file at once instead of waiting (QEMU 7.2, measured)."""
    semihosting = "enable=on,target=native"
    for argument in arguments:
        semihosting += f",arg={argument.replace(',', ',,')}"
    machine = ["-M", launcher.machine, *launcher.args]
    quiet = ["-display", "none", "-serial", "none", "-monitor", "none"]
    path = str(toolchain.find("qemu-system-arm").path)
    return [path, *machine, *quiet, *SANDBOX, "-semihosting-config", semihosting, "-kernel", str(elf)]


def sandbox(elf: Path, folder: Path) -> Sandbox:
    """It sees its ELF, and may change its own folder. Its processors have threads of their own."""
    return around(toolchain.find("qemu-system-arm").path, folder, elf, observed=True)
