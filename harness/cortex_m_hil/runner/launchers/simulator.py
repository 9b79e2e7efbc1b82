"""The base class of simulators: launchers that start a program with the runner's console on its standard I/O."""

from __future__ import annotations

import re
import signal
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TypedDict

from cortex_m_hil.errors import ForbiddenAccess, HarnessError, LaunchError, TargetFault
from cortex_m_hil.host import toolchain
from cortex_m_hil.host.sandbox import Sandbox
from cortex_m_hil.runner.launchers.process import Process
from cortex_m_hil.runner.links.protocol import EXIT_ASSERT, EXIT_FAULT
from cortex_m_hil.targets.connection import Connection, Elf, RunningProcess
from cortex_m_hil.targets.target import Launcher, Target

# Hints for the author of a board's firmware, and for a user who runs an ELF by `hil launch`.
_OF_RUNNER = "look for semihosting calls in the board's sources, and at qemu: args in targets.yaml"
_OF_PROGRAM = "--folder FOLDER is what it may read and write, by names relative to it"
ERROR = "[error] "  # the prefix of the runner's errors in a session's log


class _Where(TypedDict):
    target: str
    log: str


class Simulator(Launcher):
    """A launcher that starts a simulator's program. A subclass defines `program`, the `command` line and `engine`."""

    @property
    @abstractmethod
    def program(self) -> str:
        """Return the name of the simulator's executable on PATH."""

    @abstractmethod
    def command(self, elf: Path, directory: Path, arguments: Sequence[str]) -> list[str]:
        """Return the command line, to be run in the folder `directory`; `arguments` are those of `start`."""

    def sandbox(self, elf: Path, directory: Path) -> Sandbox | None:
        """Return the sandbox that limits the simulator's files; None: it may use all files that the user may use."""
        return None

    @property
    def byte_seconds(self) -> float:
        """Return the CPU time that the simulator may take until the firmware has a byte of the host's."""
        return 0.0

    def environment(self) -> Mapping[str, str] | None:
        """Return the simulator's environment variables; None: those of this process."""
        return None

    def diagnose(self, target: Target, status: int, log: str) -> HarnessError | None:
        """Return the error that explains the simulator's end, if its output tells the cause, else None."""
        return None

    def require(self) -> None:
        toolchain.locate(self.program)

    def start(self, target: Target, elf: Elf, directory: Path, arguments: Sequence[str] = ()) -> Process:
        command = self.command(elf.path, directory, arguments)
        process = Process(command, cwd=directory, env=self.environment(), sandbox=self.sandbox(elf.path, directory))
        process.byte_seconds = self.byte_seconds
        return process

    def connect(self, target: Target, elf: Elf, directory: Path, tools: object) -> Connection:
        return self.start(target, elf, directory)

    def launch_command(self, elf: Path, directory: Path, arguments: Sequence[str], seconds: float) -> list[str]:
        """Return the command line for a program that is no runner: the first UART is a console as well."""
        return self.command(elf, directory, arguments)

    def launch(
        self, elf: Path, directory: Path, arguments: Sequence[str], seconds: float, *, count: Path | None = None
    ) -> Process:
        command = self.launch_command(elf, directory, arguments, seconds)
        sandbox = self.sandbox(elf, directory)
        return Process(command, cwd=directory, env=self.environment(), sandbox=sandbox, joined=True)

    def explain_end(self, target: Target, connection: Connection, status: int | None, log: str) -> HarnessError:
        assert isinstance(connection, Process)
        where: _Where = {"target": target.name, "log": log}
        if broken := self._explain(target, connection, status, log, _OF_RUNNER):
            return broken
        if status is None:
            return LaunchError("closed its output but did not end", **where)
        if status in (EXIT_FAULT, EXIT_ASSERT):
            what = "a fault" if status == EXIT_FAULT else assertion(log)
            return TargetFault(f"the runner ended after {what}", **where)
        return LaunchError(
            f"{connection.name} ended with status {status}: {_error_line(connection.name, log)}", **where
        )

    def explain_launch(self, target: Target, process: RunningProcess, status: int, log: str) -> HarnessError | None:
        where: _Where = {"target": target.name, "log": log}
        if status and (complaint := re.search(rf"^{re.escape(process.name)}: (?!warning).*", log, re.MULTILINE)):
            started = LaunchError(f"{process.name} ended with status {status}: {complaint[0]}", **where)
            return self._explain(target, process, status, log, _OF_PROGRAM) or started
        broken = self._explain(target, process, status, log, _OF_PROGRAM)
        return broken or super().explain_launch(target, process, status, log)

    def _explain(
        self, target: Target, process: RunningProcess, status: int | None, log: str, advice: str
    ) -> HarnessError | None:
        """Return the error for an end that has the same cause in runners and other programs, else None.

        `advice` is the hint for a program that the sandbox ended.
        """
        where: _Where = {"target": target.name, "log": log}
        if process.refused:
            return _forbidden(process.refused, advice, where)
        if status is None:
            return None
        if own := self.diagnose(target, status, log):
            return own
        if status == -signal.SIGSYS:
            return _forbidden("to run a program", advice, where)
        if status and "Lockup" in log:
            return TargetFault("the core locked up: a fault inside the fault handler", **where)
        if status < 0:
            by = signal.Signals(-status).name
            return LaunchError(f"{process.name} was killed from outside ({by})", hint="run it again", **where)
        return None


def _forbidden(what: str, advice: str, where: _Where) -> ForbiddenAccess:
    return ForbiddenAccess(
        f"the firmware asked this machine for what it may not have: {what}",
        hint=f"{advice}; hil docs security says what a target may use",
        **where,
    )


def assertion(log: str) -> str:
    """Return a description of the failed assertion: the last error in the runner's log, if there is one."""
    errors = [line.removeprefix(ERROR) for line in log.splitlines() if line.startswith(ERROR)]
    return f"a failed assertion in it: {errors[-1]}" if errors else "a failed assertion in it"


def _error_line(program: str, log: str) -> str:
    """Return the first line of the log that begins with the program's name, else the last line."""
    lines = log.strip().splitlines() or ["it printed nothing"]
    return next((line for line in lines if line.startswith(f"{program}:")), lines[-1])
