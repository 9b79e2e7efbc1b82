"""Flash, reset and power by somebody else's tool: never a shell, always a deadline, its output in every error."""

from __future__ import annotations

import contextlib
import re
import shlex
import signal
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pexpect

from cortex_m_hil.errors import ConfigError, FlashError, InfraError, LaunchError
from cortex_m_hil.host import subprocesses, toolchain
from cortex_m_hil.host.deadline import Deadline
from cortex_m_hil.host.folders import TemporaryFolder
from cortex_m_hil.runner.launchers.process import Process
from cortex_m_hil.targets.connection import LinkClosed
from cortex_m_hil.targets.tool_commands import Procedure

LOG_LIMIT = 64 * 1024  # characters of a tool's output kept, the newest


@dataclass(frozen=True)
class Tools:
    """A board's tools, as targets.yaml has them. `variables` are the board's own: port, serial_number, place."""

    flashing: Procedure | None = None
    resetting: Procedure | None = None
    powering: Procedure | None = None
    variables: Mapping[str, str] = field(default_factory=dict)
    target: str = ""

    def flash(self, elf: Path) -> str:
        """FlashError where the tool fails."""
        variables = {**self.variables, "elf": str(elf)}
        return run(self._tool(self.flashing, "flash"), variables, what="flash", error=FlashError, target=self.target)

    def reset(self) -> str:
        """LaunchError where the tool fails."""
        return run(self._tool(self.resetting, "reset"), self.variables, what="reset", target=self.target)

    def power_cycle(self) -> str:
        """LaunchError where the tool fails."""
        return run(self._tool(self.powering, "power"), self.variables, what="power cycle", target=self.target)

    def _tool(self, procedure: Procedure | None, key: str) -> Procedure:
        if procedure is None:
            raise ConfigError(f"the target names no tool for {key}", target=self.target, hint=f"{key}: in targets.yaml")
        return procedure


def run(
    procedure: Procedure,
    variables: Mapping[str, str],
    *,
    what: str,
    error: type[InfraError] = LaunchError,
    target: str = "",
) -> str:
    """Runs the procedure's commands, all of them within its `seconds`; their output.

    ToolchainError where a tool is missing; `error`, with the output, where one fails, is killed or does not end.
    """
    deadline = Deadline.after(procedure.seconds)
    output = ""
    with TemporaryFolder() as folder:
        given = {"python": sys.executable, **variables}
        home = toolchain.locate(procedure.home).resolve().parent if procedure.home else None
        if home is not None:
            given["home"] = str(home)
        if procedure.script:
            given["script"] = str(folder / "script")
            text = "".join(f"{procedure.fill(line, given)}\n" for line in procedure.script)
            Path(given["script"]).write_text(text, encoding="utf-8")
        for command in procedure.bind(given):
            use = _Use(what, [str(_program(command[0])), *command[1:]], procedure, error, target, home)
            output += use.talk(given, deadline) if procedure.talk else use.run(deadline)
    return output[-LOG_LIMIT:]


def _program(name: str) -> Path:
    """The tool on PATH, or beside this interpreter, where an environment that is not activated has its own."""
    beside = Path(sys.executable).parent / name
    return beside if "/" not in name and beside.is_file() else toolchain.locate(name)


@dataclass(frozen=True)
class _Use:
    """One command, once."""

    what: str
    command: list[str]
    procedure: Procedure
    error: type[InfraError]
    target: str
    home: Path | None = None  # else where we are: a tool's files may be named from here

    def run(self, deadline: Deadline) -> str:
        process = Process(self.command, cwd=self.home)
        try:
            process.end_input()
            status = process.wait(deadline.remaining)
            with contextlib.suppress(LinkClosed, TimeoutError):
                process.log[:0] = process.read(Deadline.after(0.0))
        finally:
            process.close()
        return self._judge(status, process.log.decode(errors="replace"))

    def talk(self, given: Mapping[str, str], deadline: Deadline) -> str:
        """The same with a tool that asks, on a terminal of its own."""
        heard = _Heard()
        program, *arguments = subprocesses.supervised(self.command)
        child = pexpect.spawn(program, arguments, encoding="utf-8", codec_errors="replace", echo=False)
        child.logfile_read = heard
        try:
            for step in self.procedure.talk:
                self._expect(child, step.expect, heard, deadline)
                child.sendline(self.procedure.fill(step.send, given))
            with contextlib.suppress(pexpect.TIMEOUT):
                child.expect(pexpect.EOF, timeout=deadline.remaining)
            status = self._end(child)
        finally:
            child.close(force=True)
        return self._judge(status, heard.text)

    def _expect(self, child: pexpect.spawn[str], pattern: str, heard: _Heard, deadline: Deadline) -> None:
        try:
            found = child.expect([pattern, *self.procedure.fail], timeout=deadline.remaining)
        except (pexpect.TIMEOUT, pexpect.EOF) as stuck:
            why = "ended" if isinstance(stuck, pexpect.EOF) else f"went on for {self.procedure.seconds:g} s"
            raise self._failure(f"{why} without saying {pattern!r}", heard.text) from None
        if found:
            raise self._failure(f"said {child.after!r}", heard.text)

    def _end(self, child: pexpect.spawn[str]) -> int | None:
        """As `Process.wait`: the exit status, the negative signal, or None while it goes on."""
        if child.isalive() and not child.flag_eof:
            return None
        child.wait()
        return child.exitstatus if child.signalstatus is None else -child.signalstatus

    def _judge(self, status: int | None, output: str) -> str:
        if status is None:
            raise self._failure(f"has not ended after {self.procedure.seconds:g} s", output)
        if status < 0:
            raise self._failure(f"was killed ({signal.Signals(-status).name})", output)
        said = next((found[0] for pattern in self.procedure.fail if (found := re.search(pattern, output))), None)
        if said is not None:
            raise self._failure(f"said {said!r}", output)
        if status != 0:
            raise self._failure(f"ended with status {status}: {_complaint(output)}", output)
        return output

    def _failure(self, how: str, output: str) -> InfraError:
        return self.error(
            f"{self.what}: {Path(self.command[0]).name} {how}",
            target=self.target,
            log=output[-LOG_LIMIT:],
            hint=f"try it by hand: {shlex.join(self.command)}",
        )


class _Heard:
    """What pexpect read, for logs."""

    def __init__(self) -> None:
        self.text = ""

    def write(self, text: str) -> None:
        self.text = (self.text + text)[-LOG_LIMIT:]

    def flush(self) -> None:
        """Nothing is held back."""


def _complaint(output: str) -> str:
    """The first line that speaks of an error, else the last."""
    lines = [line.strip() for line in output.splitlines() if line.strip()] or ["it printed nothing"]
    return next((line for line in lines if re.search(r"\berror\b", line, re.IGNORECASE)), lines[-1])
