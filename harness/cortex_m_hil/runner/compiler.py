"""The compiler of a target's runner, and the least version that it needs."""

from __future__ import annotations

from typing import Final

from cortex_m_hil.errors import ToolchainError
from cortex_m_hil.host import toolchain
from cortex_m_hil.targets.cpu import HOST, cpus
from cortex_m_hil.targets.target import Target

_COUNTING_GCC: Final = 11  # the first version with -fprofile-info-section


def compiler(target: Target) -> toolchain.Tool:
    """Return the compiler for the target's CPU. Raises ToolchainError where it is too old to know the CPU."""
    if target.cpu == HOST.name:
        return toolchain.find("g++")
    found, cpu = toolchain.find("arm-none-eabi-g++"), cpus()[target.cpu]
    if int(found.version.partition(".")[0]) < cpu.gcc:
        raise ToolchainError(
            f"{found.path} is GCC {found.version}, which does not know {cpu.name}",
            target=target.name,
            hint=f"put an arm-none-eabi-g++ of GCC {cpu.gcc} or newer on PATH (Arm's GNU toolchain)",
        )
    return found


def check_counting(target: Target) -> None:
    """Check that the compiler can build a runner that counts coverage. Raises ToolchainError where it is too old."""
    found = compiler(target)
    if int(found.version.partition(".")[0]) < _COUNTING_GCC:
        raise ToolchainError(
            f"{found.path} is GCC {found.version}, whose programs count for a file system only",
            target=target.name,
            hint=f"put one of GCC {_COUNTING_GCC} or newer on PATH",
        )
