"""Functions that start a target by its launcher, and explain afterwards why it ended."""

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

    Raises ToolchainError or PortNotFound where it cannot run; ConfigError, with the file and line of the target's
    entry, where a setting is wrong.
    """
    try:
        target.launcher.require()
    except ConfigError as error:
        raise ConfigError(f"{target.origin}: {error.message}", target=target.name, hint=error.hint) from None


def start(target: Target, elf: Elf, directory: Path, arguments: Sequence[str] = ()) -> RunningProcess:
    """Start a process that runs `elf` on `target`, with its files in `directory`.

    Without `arguments` the runner serves on its standard input and output; with arguments (argv[0] included) it runs
    once.
    """
    return target.launcher.start(target, elf, directory, arguments)


def connect(target: Target, elf: Elf, directory: Path, tools: BoardTools | None = None) -> Connection:
    """Start a runner that serves requests, in a process or on a board with its `tools`, and connect to it.

    `directory` is for the runner's files.
    """
    return target.launcher.connect(target, elf, directory, tools)


def engine(target: Target) -> str:
    """Return the simulator or board that executes the target's instructions, with its version: `QEMU 7.2.22`."""
    return target.launcher.engine(target.board.name)


def explain_end(target: Target, process: Connection, status: int | None, log: str) -> HarnessError:
    """Return the error that explains why a runner ended that should still be running.

    `status` is that of `Process.wait`, `log` is everything that the runner printed.
    """
    return target.launcher.explain_end(target, process, status, log)
