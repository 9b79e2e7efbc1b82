"""Bring a target to life, and say afterwards why it ended."""

from __future__ import annotations

import contextlib
import dataclasses
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import TypedDict

from cortex_m_hil.errors import ConfigError, ForbiddenAccess, HarnessError, LaunchError, TargetFault
from cortex_m_hil.launchers import fvp, native, qemu, serial
from cortex_m_hil.launchers.process import Process
from cortex_m_hil.launchers.serial import SerialBoard, Tools
from cortex_m_hil.links import Connection
from cortex_m_hil.links.protocol import EXIT_ASSERT, EXIT_FAULT
from cortex_m_hil.runner.build import Elf
from cortex_m_hil.targets.model import FvpLauncher, NativeLauncher, QemuLauncher, SerialLauncher, Target
from cortex_m_hil.targets.resolve import Resolved

ERROR = "[error] "  # what a session puts before the runner's errors in its log
# What a process brings upon itself. A simulator that does has a bug of its own, the native runner has one of ours.
_CRASHES = (signal.SIGABRT, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGSEGV, signal.SIGSYS, signal.SIGTRAP)


class _Where(TypedDict):
    target: str
    log: str


def start(target: Target, elf: Elf, directory: Path, arguments: Sequence[str] = ()) -> Process:
    """A process that runs `elf` on `target`, its files in `directory`.

    Without `arguments` the runner serves on its standard input and output; with them (argv[0]
    included) it runs once.
    """
    match target.launcher:
        case QemuLauncher() as launcher:
            box = qemu.sandbox(elf.path, directory)
            return Process(qemu.command(launcher, elf.path, arguments), cwd=directory, sandbox=box)
        case FvpLauncher() as launcher:
            return Process(fvp.command(launcher, elf.path, directory, arguments), cwd=directory)
        case SerialLauncher():
            raise ConfigError(f"{target.name} is a board: it has no command line and no process of its own")
        case NativeLauncher():
            box = native.sandbox(elf.path, directory)
            return Process([str(elf.path), *arguments[1:]], cwd=directory, env=native.environment(), sandbox=box)


def connect(target: Target, elf: Elf, directory: Path, tools: Tools | None = None) -> Connection:
    """A runner that serves: a process of its own, or a board with its `tools`. `directory` is for its files."""
    if isinstance(target.launcher, SerialLauncher):
        assert tools is not None
        return SerialBoard(target, elf, directory, tools)
    return start(target, elf, directory)


def engine(target: Target) -> str:
    """What executes the target's instructions, with its version: `QEMU 7.2.22`."""
    match target.launcher:
        case QemuLauncher() as launcher:
            return qemu.engine(launcher)
        case FvpLauncher() as launcher:
            return fvp.engine(launcher)
        case SerialLauncher() as launcher:
            return serial.engine(launcher, target.board.name)
        case NativeLauncher():
            return native.engine()


def name_stand_in(resolved: Resolved) -> Resolved:
    """The same, saying so where what would run is a stand-in for Arm's model.

    A model that does not even answer is left as it is: the first use of it says why.
    """
    if isinstance(resolved.target.launcher, FvpLauncher):
        with contextlib.suppress(HarnessError):
            return dataclasses.replace(resolved, stand_in=fvp.stand_in(resolved.target.launcher))
    return resolved


def explain_end(target: Target, process: Connection, status: int | None, log: str) -> HarnessError:
    """Why a runner that should still be there is gone. `status` as `Process.wait` gives it, `log` all it printed."""
    where: _Where = {"target": target.name, "log": log}
    if isinstance(process, SerialBoard):
        return process.explain_end(log)
    assert isinstance(process, Process)
    if process.refused or (status == -signal.SIGSYS and not isinstance(target.launcher, NativeLauncher)):
        return _forbidden(process.refused or "to run a program", where)
    if status is None:
        return LaunchError("closed its output but did not end", **where)
    if "Lockup" in log:
        return TargetFault("the core locked up: a fault inside the fault handler", **where)
    if "qemu: Unsupported SemiHosting SWI" in log:
        return TargetFault("the firmware made a semihosting call that QEMU does not know", **where)
    if isinstance(target.launcher, NativeLauncher) and (report := native.sanitizer_report(log)):
        return TargetFault(report, **where)
    if -status in _CRASHES and isinstance(target.launcher, NativeLauncher):
        return TargetFault(f"the runner crashed ({signal.Signals(-status).name})", **where)
    if status < 0:
        name = signal.Signals(-status).name
        return LaunchError(f"{process.name} was killed from outside ({name})", hint="run it again", **where)
    if status in (EXIT_FAULT, EXIT_ASSERT):
        return TargetFault(f"the runner ended after {'a fault' if status == EXIT_FAULT else assertion(log)}", **where)
    return LaunchError(f"{process.name} ended with status {status}: {_complaint(process.name, log)}", **where)


def _forbidden(what: str, where: _Where) -> ForbiddenAccess:
    return ForbiddenAccess(
        f"the firmware asked this machine for what it may not have: {what}",
        hint="look for semihosting calls in the board's sources, and at qemu: args in targets.yaml; "
        "docs/security.md says what a target may use",
        **where,
    )


def assertion(log: str) -> str:
    """Which one failed, if the runner could say so: the last error in its log."""
    errors = [line.removeprefix(ERROR) for line in log.splitlines() if line.startswith(ERROR)]
    return f"a failed assertion in it: {errors[-1]}" if errors else "a failed assertion in it"


def _complaint(program: str, log: str) -> str:
    """The first line that the program says in its own name, else the last line of its log."""
    lines = log.strip().splitlines() or ["it printed nothing"]
    return next((line for line in lines if line.startswith(f"{program}:")), lines[-1])
