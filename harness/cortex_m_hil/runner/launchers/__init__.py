"""Starts targets, and explains afterwards why they ended, each by its own launcher."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from cortex_m_hil.errors import ConfigError, HarnessError
from cortex_m_hil.runner.launchers.simulator import assertion
from cortex_m_hil.targets.connection import BoardTools, Connection, Elf, RunningProcess
from cortex_m_hil.targets.target import Target

__all__ = ["assertion", "connect", "engine", "explain_end", "require", "start"]


def require(target: Target) -> None:
    """Check that a target can run on this machine.

    Raises ToolchainError or PortNotFound where it cannot; ConfigError, with the target's line in its file, where a
    setting is wrong.
    """
    try:
        target.launcher.require()
    except ConfigError as error:
        raise ConfigError(f"{target.origin}: {error.message}", target=target.name, hint=error.hint) from None


def start(target: Target, elf: Elf, directory: Path, arguments: Sequence[str] = ()) -> RunningProcess:
    """Start a process that runs `elf` on `target`, with its files in `directory`.

    Without `arguments` the runner serves on its standard input and output; with them (argv[0] included) it runs once.
    """
    return target.launcher.start(target, elf, directory, arguments)


def connect(target: Target, elf: Elf, directory: Path, tools: BoardTools | None = None) -> Connection:
    """Start a runner that serves, and connect to it: a process of its own, or a board with its `tools`.

    `directory` is for its files.
    """
    return target.launcher.connect(target, elf, directory, tools)


def engine(target: Target) -> str:
    """Return what executes the target's instructions, with its version: `QEMU 7.2.22`."""
    return target.launcher.engine(target.board.name)


def explain_end(target: Target, process: Connection, status: int | None, log: str) -> HarnessError:
    """Return the error that explains why a runner that should still be there is gone.

    `status` is that of `Process.wait`, `log` is everything that the runner printed.
    """
    return target.launcher.explain_end(target, process, status, log)
