"""Bring a target to life, and say afterwards why it ended: each target's own launcher does it."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Sequence
from pathlib import Path

from cortex_m_hil.errors import HarnessError
from cortex_m_hil.launchers.process import Process
from cortex_m_hil.launchers.serial import Tools
from cortex_m_hil.launchers.simulator import assertion
from cortex_m_hil.links import Connection
from cortex_m_hil.runner.build import Elf
from cortex_m_hil.targets.model import Target
from cortex_m_hil.targets.resolve import Resolved

__all__ = ["assertion", "connect", "engine", "explain_end", "name_shim", "start"]


def start(target: Target, elf: Elf, directory: Path, arguments: Sequence[str] = ()) -> Process:
    """A process that runs `elf` on `target`, its files in `directory`.

    Without `arguments` the runner serves on its standard input and output; with them (argv[0]
    included) it runs once.
    """
    return target.launcher.start(target, elf, directory, arguments)


def connect(target: Target, elf: Elf, directory: Path, tools: Tools | None = None) -> Connection:
    """A runner that serves: a process of its own, or a board with its `tools`. `directory` is for its files."""
    return target.launcher.connect(target, elf, directory, tools)


def engine(target: Target) -> str:
    """What executes the target's instructions, with its version: `QEMU 7.2.22`."""
    return target.launcher.engine(target.board.name)


def name_shim(resolved: Resolved) -> Resolved:
    """The same, saying so where what would run is a shim for what its name says.

    What does not even answer is left as it is: the first use of it says why.
    """
    with contextlib.suppress(HarnessError):
        return dataclasses.replace(resolved, shim=resolved.target.launcher.shim())
    return resolved


def explain_end(target: Target, process: Connection, status: int | None, log: str) -> HarnessError:
    """Why a runner that should still be there is gone. `status` as `Process.wait` gives it, `log` all it printed."""
    return target.launcher.explain_end(target, process, status, log)
