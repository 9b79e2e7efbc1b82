"""A program of the user's, which is no runner, on a target: its console as it arrives, and how it ended."""

from __future__ import annotations

import codecs
import contextlib
import io
import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from cortex_m_hil import launchers
from cortex_m_hil.boards.leased_board import LeasedBoard
from cortex_m_hil.checks import elf as checks_elf
from cortex_m_hil.errors import (
    ConfigError,
    HarnessError,
    LinkError,
    ProgramFailed,
    ProgramTimeout,
    TargetFault,
    UnsupportedOperator,
)
from cortex_m_hil.host.deadline import Deadline
from cortex_m_hil.host.folders import TemporaryFolder
from cortex_m_hil.launchers.process import Process
from cortex_m_hil.links import Link, LinkClosed
from cortex_m_hil.links.uart import Uart
from cortex_m_hil.runner.build import Elf
from cortex_m_hil.targets.launcher import HardwareLauncher
from cortex_m_hil.targets.resolve import Resolved
from cortex_m_hil.text import printable_lines

SETTLE = 2.0  # seconds for a program that lacks an operator to name the others, and to end
LINE_LIMIT = 1 << 16  # characters of a line that are searched, the newest
_EOT = "\x04"  # ends ExecuTorch's arm_executor_runner, where it has no semihosting; an FVP's shutdown_on_eot as well
# ExecuTorch: runtime/executor/method.cpp, runtime/kernel/operator_registry.cpp.
_OPERATOR = re.compile(r"Missing operator: \[-?\d+\] (\S+)|kernel '([^'\s]+)' not found")
# Arm's core_platform and CMSIS packs, Zephyr; ExecuTorch's fatal log lines (a failed ET_CHECK).
_FAULT = re.compile(r"(?i:\bhard ?fault\b)|ZEPHYR FATAL ERROR|^F \[executorch:")


@dataclass(frozen=True)
class Launch:
    """What to run, and for how long. `until`: what the program says when it has done its work."""

    elf: Path
    seconds: float
    arguments: Sequence[str] = ()
    folder: Path | None = None
    until: re.Pattern[str] | None = None


@dataclass(frozen=True)
class Ended:
    """How it ended well: `exit`, `eot` or `until`."""

    by: str
    engine: str
    seconds: float


@dataclass
class Console:
    """What the program says, made printable, to `sink`; and what of it matters here."""

    sink: Callable[[str], object]
    until: re.Pattern[str] | None = None
    operators: dict[str, None] = field(default_factory=dict)
    fault: str = ""
    done: str = ""  # as `Ended.by`
    _line: str = ""
    _text: io.IncrementalNewlineDecoder = field(
        default_factory=lambda: io.IncrementalNewlineDecoder(
            codecs.getincrementaldecoder("utf-8")("replace"), translate=True
        )
    )

    def take(self, data: bytes, final: bool = False) -> None:
        text, eot, _ = str(self._text.decode(data, final)).partition(_EOT)
        self._line += text
        if eot:
            self.done = self.done or "eot"
        if self.until is not None and self.until.search(self._line):
            self.done = "until"
        *whole, rest = self._line.split("\n")
        for line in [*whole, rest] if final else whole:
            self._look_at(line)
        self._line = rest[-LINE_LIMIT:]
        self.sink(printable_lines(text))

    def _look_at(self, line: str) -> None:
        for found in _OPERATOR.finditer(line):
            self.operators[found[1] or found[2]] = None
        if not self.fault and _FAULT.search(line):
            self.fault = line.strip()


def launch(resolved: Resolved, order: Launch, sink: Callable[[str], object]) -> Ended:
    """Runs the program until it ends, or says that it is done.

    ConfigError, OutOfTargetMemory where it does not fit the target, before anything is started. ProgramTimeout,
    ProgramFailed, TargetFault, UnsupportedOperator, ForbiddenAccess for what becomes of it.
    """
    checks_elf.check(order.elf, resolved.target)
    began = time.monotonic()
    try:
        if isinstance(resolved.target.launcher, HardwareLauncher):
            by = _on_board(resolved, order, sink)
        else:
            launchers.require(resolved.target)
            by = _in_simulator(resolved, order, sink)
    except HarnessError as error:
        error.target = error.target or resolved.target.name
        raise
    return Ended(by, launchers.engine(resolved.target), time.monotonic() - began)


# --- a simulator ---------------------------------------------------------------------------------------------


def _in_simulator(resolved: Resolved, order: Launch, sink: Callable[[str], object]) -> str:
    console = Console(sink, order.until)
    with TemporaryFolder() as own:
        arguments = [order.elf.name, *order.arguments]
        launcher = resolved.target.launcher
        process = launcher.launch(order.elf.absolute(), order.folder or own, arguments, order.seconds)
        try:
            deadline = Deadline.after(order.seconds)
            process.end_input()
            if not _listen(process, console, deadline):
                used = f"the simulator used {process.cpu_seconds():.1f} s of CPU time"
                raise _timeout(order, console, used)
            _require_operators(console)
            if process.refused or not console.done:
                status = process.wait(deadline.remaining)
                if status is None:
                    raise _timeout(order, console, "it closed its output")
                _judge(resolved, process, status, console)
            return console.done or "exit"
        finally:
            process.close()


def _judge(resolved: Resolved, process: Process, status: int, console: Console) -> None:
    """Raises what was wrong with its end, if anything was."""
    log = process.log.decode(errors="replace")
    problem = resolved.target.launcher.explain_launch(resolved.target, process, status, log)
    if isinstance(problem, ProgramFailed) and console.fault:
        problem = _fault(console, f"exit status {status}")
    if problem is not None:
        raise problem


def _listen(link: Link, console: Console, deadline: Deadline) -> bool:
    """Until the link is closed, or the program has done its work; False if it has not by the deadline."""
    while not console.done:
        try:
            console.take(link.read(deadline))
        except LinkClosed:
            console.take(b"", final=True)
            return True
        except TimeoutError:
            console.take(b"", final=True)
            return bool(console.operators)
        if console.operators:
            deadline = min(deadline, Deadline.after(SETTLE), key=lambda one: one.at)
    return True


# --- a board -------------------------------------------------------------------------------------------------


def _on_board(resolved: Resolved, order: Launch, sink: Callable[[str], object]) -> str:
    """Flashed, and reset with its port open where there is a tool for it, so that no word of its start is lost."""
    launcher = resolved.target.launcher
    assert isinstance(launcher, HardwareLauncher)
    if launcher.flash is None:
        raise ConfigError("the target names no tool for flash", hint="flash: in targets.yaml (docs/boards.md)")
    if order.arguments or order.folder:
        raise ConfigError("a board has neither a command line nor a folder", hint="leave arguments and --folder out")
    console = Console(sink, order.until)
    leased = LeasedBoard(resolved.target, Elf(order.elf, "", resolved.target.config), f"hil launch {order.elf.name}")
    port: Uart | None = None
    try:
        leased.flash(order.elf.absolute(), "")
        own = leased.target.launcher
        assert isinstance(own, HardwareLauncher)
        port = Uart(own.port, own.baud)
        if leased.can_reset:
            with contextlib.suppress(TimeoutError):
                port.read(Deadline.after(0.0))  # of the start after the flash, cut short
            leased.reset()
        if not _listen(port, console, Deadline.after(order.seconds)):
            raise _timeout(order, console, f"console: {own.port} at {own.baud} baud")
    finally:
        if port is not None:
            port.close()
        leased.release()
    _require_operators(console)
    if not console.done:
        raise LinkError(f"port {own.port} vanished in the middle", hint="cable, power, or an adapter that was reset")
    return console.done


# --- what is told --------------------------------------------------------------------------------------------


def _require_operators(console: Console) -> None:
    if console.operators:
        raise UnsupportedOperator(
            f"the program was linked without {', '.join(console.operators)}",
            operator=next(iter(console.operators)),
            hint="link a registry that has it: portable_ops_lib, or EXECUTORCH_SELECT_OPS_LIST with its name",
        )


def _timeout(order: Launch, console: Console, also: str) -> HarnessError:
    _require_operators(console)
    how = f"has not ended after {order.seconds:g} s"
    if console.fault:
        return _fault(console, how)
    return ProgramTimeout(
        f"{order.elf.name} {how}; {also}",
        hint="--timeout, if it takes longer; --until TEXT, if it says what it has to say and never ends",
    )


def _fault(console: Console, how: str) -> TargetFault:
    return TargetFault(f"{console.fault} ({how})", hint="its console has more")
