"""Runs of external tools that flash a board, reset it, or switch its power.

Tools run without a shell and with a deadline; every error has the tool's output.
"""

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
from cortex_m_hil.targets.board_tool_commands import Procedure
from cortex_m_hil.targets.connection import LinkClosed

LOG_LIMIT = 64 * 1024  # the newest characters of a tool's output, which are kept


@dataclass(frozen=True)
class CommandTools:
    """The tools of a board.

    Attributes:
        flashing, resetting, powering: the procedures in targets.yaml; None where a procedure is not defined.
        variables: the values of this board's template variables: port, serial_number, place.
        target: the target's name, for errors.
    """

    flashing: Procedure | None = None
    resetting: Procedure | None = None
    powering: Procedure | None = None
    variables: Mapping[str, str] = field(default_factory=dict)
    target: str = ""

    def flash(self, elf: Path) -> str:
        """Flash an ELF, and return the tool's output. Raises FlashError where the tool fails."""
        variables = {**self.variables, "elf": str(elf)}
        return run(self._tool(self.flashing, "flash"), variables, what="flash", error=FlashError, target=self.target)

    def reset(self) -> str:
        """Reset the board, and return the tool's output. Raises LaunchError where the tool fails."""
        return run(self._tool(self.resetting, "reset"), self.variables, what="reset", target=self.target)

    def power_cycle(self) -> str:
        """Switch the board off and on, and return the tool's output. Raises LaunchError where the tool fails."""
        return run(self._tool(self.powering, "power"), self.variables, what="power cycle", target=self.target)

    def _tool(self, procedure: Procedure | None, key: str) -> Procedure:
        if procedure is None:
            hint = f"{key}: a preset or a command, in the target's launcher (hil docs boards)"
            raise ConfigError(f"the target names no tool for {key}", target=self.target, hint=hint)
        return procedure


def run(
    procedure: Procedure,
    variables: Mapping[str, str],
    *,
    what: str,
    error: type[InfraError] = LaunchError,
    target: str = "",
) -> str:
    """Run the commands of a procedure, all of them within its `seconds`.

    Args:
        procedure: the commands.
        variables: values of template variables, which take precedence over the values in targets.yaml.
        what: a description of the procedure, for messages.
        error: the class of the error where a command fails.
        target: the target's name, for errors.

    Returns:
        The last LOG_LIMIT characters of the output.

    Raises:
        ToolchainError: a tool is missing.
        InfraError: `error`, with the output, where a command fails, is killed or does not end in time.
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
            run = _ToolRun(what, [str(_program(command[0])), *command[1:]], procedure, error, target, home)
            output += run.with_dialogue(given, deadline) if procedure.talk else run.without_dialogue(deadline)
    return output[-LOG_LIMIT:]


def _program(name: str) -> Path:
    """Return the path of a tool: next to this interpreter, as in a virtual environment, else on PATH."""
    beside = Path(sys.executable).parent / name
    return beside if "/" not in name and beside.is_file() else toolchain.locate(name)


@dataclass(frozen=True)
class _ToolRun:
    """A run of one command of a procedure."""

    what: str
    command: list[str]
    procedure: Procedure
    error: type[InfraError]
    target: str
    home: Path | None = None  # None: the current folder, to which a tool's file names may be relative

    def without_dialogue(self, deadline: Deadline) -> str:
        process = Process(self.command, cwd=self.home)
        try:
            process.end_input()
            status = process.wait(deadline.remaining)
            with contextlib.suppress(LinkClosed, TimeoutError):
                process.log[:0] = process.read(Deadline.after(0.0))
        finally:
            process.close()
        return self._checked_output(status, process.log.decode(errors="replace"))

    def with_dialogue(self, given: Mapping[str, str], deadline: Deadline) -> str:
        """Run the command in a pseudo-terminal, answer its prompts by `procedure.talk`, and return its output."""
        printed = _OutputLog()
        program, *arguments = subprocesses.supervised(self.command)
        child = pexpect.spawn(program, arguments, encoding="utf-8", codec_errors="replace", echo=False)
        child.logfile_read = printed
        try:
            for step in self.procedure.talk:
                self._expect(child, step.expect, printed, deadline)
                child.sendline(self.procedure.fill(step.send, given))
            with contextlib.suppress(pexpect.TIMEOUT):
                child.expect(pexpect.EOF, timeout=deadline.remaining)
            status = self._end(child)
        finally:
            child.close(force=True)
        return self._checked_output(status, printed.text)

    def _expect(self, child: pexpect.spawn[str], pattern: str, printed: _OutputLog, deadline: Deadline) -> None:
        try:
            found = child.expect([pattern, *self.procedure.fail], timeout=deadline.remaining)
        except (pexpect.TIMEOUT, pexpect.EOF) as stuck:
            why = "ended" if isinstance(stuck, pexpect.EOF) else f"went on for {self.procedure.seconds:g} s"
            raise self._failure(f"{why} without saying {pattern!r}", printed.text) from None
        if found:
            raise self._failure(f"said {child.after!r}", printed.text)

    def _end(self, child: pexpect.spawn[str]) -> int | None:
        """Return the exit status, the negative signal, or None while the child runs, as `Process.wait` does."""
        if child.isalive() and not child.flag_eof:
            return None
        child.wait()
        return child.exitstatus if child.signalstatus is None else -child.signalstatus

    def _checked_output(self, status: int | None, output: str) -> str:
        if status is None:
            raise self._failure(f"has not ended after {self.procedure.seconds:g} s", output)
        if status < 0:
            raise self._failure(f"was killed ({signal.Signals(-status).name})", output)
        said = next((found[0] for pattern in self.procedure.fail if (found := re.search(pattern, output))), None)
        if said is not None:
            raise self._failure(f"said {said!r}", output)
        if status != 0:
            raise self._failure(f"ended with status {status}: {_error_line(output)}", output)
        return output

    def _failure(self, how: str, output: str) -> InfraError:
        return self.error(
            f"{self.what}: {Path(self.command[0]).name} {how}",
            target=self.target,
            log=output[-LOG_LIMIT:],
            hint=f"try it by hand: {shlex.join(self.command)}",
        )


class _OutputLog:
    """A file object that keeps the last LOG_LIMIT characters that pexpect read."""

    def __init__(self) -> None:
        self.text = ""

    def write(self, text: str) -> None:
        self.text = (self.text + text)[-LOG_LIMIT:]

    def flush(self) -> None:
        """Ignore the call: no text is buffered."""


def _error_line(output: str) -> str:
    """Return the first line of the output that mentions an error, else the last line."""
    lines = [line.strip() for line in output.splitlines() if line.strip()] or ["it printed nothing"]
    return next((line for line in lines if re.search(r"\berror\b", line, re.IGNORECASE)), lines[-1])
