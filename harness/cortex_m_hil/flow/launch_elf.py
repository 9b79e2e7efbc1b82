"""Runs a user's own program, which is no runner, on a target; passes on its console output, and judges its end."""

from __future__ import annotations

import codecs
import contextlib
import io
import re
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from cortex_m_hil.boards.leased_board import LeasedBoard
from cortex_m_hil.checks import elf as checks_elf
from cortex_m_hil.errors import (
    ConfigError,
    HarnessError,
    ProgramFailed,
    ProgramTimeout,
    TargetFault,
    UnsupportedOperator,
)
from cortex_m_hil.errors.text import printable_lines
from cortex_m_hil.host import timeouts
from cortex_m_hil.host.deadline import Deadline
from cortex_m_hil.host.folders import TemporaryFolder
from cortex_m_hil.runner import launchers
from cortex_m_hil.runner.links.uart import Uart, vanished
from cortex_m_hil.targets.connection import Budget, Elf, Link, LinkClosed, RunningProcess
from cortex_m_hil.targets.resolve import Resolved
from cortex_m_hil.targets.target import HardwareLauncher

SETTLE = 2.0  # seconds that a program which lacks an operator has to name further ones, and to end
SILENCE = 0.1  # seconds without output, after which a line that lacks its newline is taken to be whole
LINE_LIMIT = 1 << 16  # the newest characters of a line, which are searched
_EOT = "\x04"  # the end of ExecuTorch's arm_executor_runner without semihosting; ends an FVP by shutdown_on_eot
# Messages of ExecuTorch: runtime/executor/method.cpp, runtime/kernel/operator_registry.cpp.
_OPERATOR = re.compile(r"Missing operator: \[-?\d+\] (\S+)|kernel '([^'\s]+)' not found")
# Reports of faults by Arm's core_platform and CMSIS packs, and by Zephyr; ExecuTorch's fatal log lines (a failed
# ET_CHECK).
_FAULT = re.compile(r"(?i:\bhard ?fault\b)|ZEPHYR FATAL ERROR|^F (?:\[|[\d:.]+ )executorch:")


@dataclass(frozen=True)
class Launch:
    """A program to run, and the limits of the run.

    Attributes:
        elf: the program's file.
        seconds: CPU time of the simulator that the program may take; wall time on a board.
        arguments: the arguments of the program's command line; none on a board.
        folder: the folder that the program may read and write, on a simulator; None: an empty folder.
        until: the text that the program prints when it has done its work; None: the program ends by itself.
    """

    elf: Path
    seconds: float
    arguments: Sequence[str] = ()
    folder: Path | None = None
    until: re.Pattern[str] | None = None


@dataclass(frozen=True)
class Ended:
    """The end of a program that succeeded.

    Attributes:
        by: `exit`: the program ended; `eot`: it printed the end-of-transmission character; `until`: it printed
            `Launch.until`.
        engine: the simulator or board that executed the program.
        seconds: wall time that the program took.
    """

    by: str
    engine: str
    seconds: float


@dataclass
class Console:
    """The output of a program, passed on to `sink` in printable form, and searched for texts that end the run.

    Attributes:
        sink: called with each piece of text.
        until: the text that ends the run.
        operators: names of the operators that the program says it lacks.
        fault: the first line that reports a fault; "" if none.
        done: a value of `Ended.by`; "" while the program goes on.
        undecided: whether `until` matches, but with the last line, which may go on.
    """

    sink: Callable[[str], object]
    until: re.Pattern[str] | None = None
    operators: dict[str, None] = field(default_factory=dict)
    fault: str = ""
    done: str = ""
    undecided: bool = False
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
        found = None if self.until is None else self.until.search(self._line)
        self.undecided = found is not None and may_go_on(found, self._line)
        if found and not self.undecided:
            self.done = "until"
        *whole, rest = self._line.split("\n")
        for line in [*whole, rest] if final else whole:
            self._look_at(line)
        self._line = rest[-LINE_LIMIT:]
        self.sink(printable_lines(text))

    def settle(self) -> None:
        """Take the last line as whole."""
        if self.undecided:
            self.done = "until"

    def _look_at(self, line: str) -> None:
        for found in _OPERATOR.finditer(line):
            self.operators[found[1] or found[2]] = None
        if not self.fault and _FAULT.search(line):
            self.fault = line.strip()


def may_go_on(match: re.Match[str], text: str) -> bool:
    """Tell whether output behind `text` could change a match: it ends where the text does, within a line."""
    is_literal = not re.search(r"[][.^$*+?{}|()\\]", match.re.pattern)
    return match.end() == len(text) and not is_literal and not match[0].endswith("\n")


def launch(resolved: Resolved, order: Launch, sink: Callable[[str], object]) -> Ended:
    """Run a program on a target until it ends, or until it says that it is done.

    Args:
        resolved: the target.
        order: the program and its limits.
        sink: called with the printable text of the console, piece by piece.

    Raises:
        ConfigError: the target cannot run such a program; nothing has been started.
        OutOfTargetMemory: the program does not fit the target; nothing has been started.
        ProgramTimeout: the program has neither ended nor printed `Launch.until` in time.
        ProgramFailed: the program ends with an exit status other than 0.
        TargetFault: the program reports a fault, and fails or does not end.
        UnsupportedOperator: the program was linked without an operator that it needs.
        ForbiddenAccess: the program asks the simulator for a file or action that is not allowed.
        InfraError: the target or its tools fail.
    """
    began = time.monotonic()
    with started(resolved, order, sink) as program:
        by = program.finish()
    return Ended(by, launchers.engine(resolved.target), time.monotonic() - began)


@contextlib.contextmanager
def started(
    resolved: Resolved, order: Launch, sink: Callable[[str], object], *, count: bool = False
) -> Iterator[Started]:
    """Start a program on a target, and end it with the block.

    Args:
        resolved: the target.
        order: the program and its limits.
        sink: takes the printable text of the console, piece by piece.
        count: whether its instructions are counted, where the simulator can.

    Raises:
        HarnessError: as of `launch`, where the program cannot be started.
    """
    checks_elf.check(order.elf, resolved.target)
    try:
        running = (
            _on_board(resolved, order, sink) if is_board(resolved) else _in_simulator(resolved, order, sink, count)
        )
        with running as program:
            yield program
    except HarnessError as error:
        error.target = error.target or resolved.target.name
        raise


def is_board(resolved: Resolved) -> bool:
    """Tell whether a target is a board, on which a program has neither a command line nor a folder."""
    return isinstance(resolved.target.launcher, HardwareLauncher)


@dataclass
class Wait:
    """A wait for a program's output, which ends when one of its limits has expired and all that came by then is read.

    Attributes:
        limits: the limits.
        over: whether it has ended.
    """

    limits: list[Budget]
    over: bool = False


class Started(ABC):
    """A program that runs.

    Attributes:
        order: the program and its limits.
        console: what it has said.
        link: its console's bytes.
        folder: the folder that it may read and write; None on a board.
        status: its exit status, once it has ended; None on a board.
        instructions: the number that it executed, once it has ended, if they were to be counted; else None.
    """

    link: Link
    folder: Path | None = None
    status: int | None = None
    instructions: int | None = None

    def __init__(self, order: Launch, console: Console) -> None:
        self.order, self.console = order, console

    def hear(self, wait: Wait, *, undecided: bool = False) -> bool:
        """Take the program's next output into the console, and return whether there is any.

        Args:
            wait: limits the wait.
            undecided: whether silence ends it, too: the last line may be whole without a newline.

        Raises:
            LinkClosed: the program has ended.
        """
        silence = self.budget(SILENCE) if undecided or self.console.undecided else None
        polled = [*wait.limits, *([silence] if silence else [])]
        while not wait.over:
            wait.over = any(limit.expired for limit in wait.limits)
            quiet = silence is not None and silence.expired
            try:
                self.console.take(self.link.read(min((one.next_poll for one in polled), key=lambda poll: poll.at)))
            except LinkClosed:
                self.console.take(b"", final=True)
                self.console.settle()
                raise
            except TimeoutError:
                if quiet:
                    break
            else:
                return True
        self.console.settle()
        return False

    def listen(self) -> bool:
        """Take output until the program ends, or has done its work, or its time is over; False for the latter.

        A program that lacks operators has SETTLE seconds to name further ones; then True is returned.
        """
        console, wait = self.console, Wait([self.budget(self.order.seconds)])
        with contextlib.suppress(LinkClosed):
            while not console.done:
                if not self.hear(wait) and not console.done:
                    console.take(b"", final=True)
                    return bool(console.operators)
                if console.operators and len(wait.limits) == 1:
                    wait.limits.append(Deadline.after(SETTLE))
        return True

    @abstractmethod
    def budget(self, seconds: float) -> Budget:
        """Return a budget of the simulator's CPU time, or by the clock on a board."""

    @abstractmethod
    def finish(self) -> str:
        """Wait until it ends, or has done its work, and return how, as `Ended.by`. Raises as `launch`."""


# --- a simulator ---------------------------------------------------------------------------------------------


class _Simulated(Started):
    def __init__(
        self, resolved: Resolved, order: Launch, console: Console, process: RunningProcess, count: Path
    ) -> None:
        super().__init__(order, console)
        self.link: Link = process
        self._resolved, self._process, self._count = resolved, process, count

    def budget(self, seconds: float) -> Budget:
        return self._process.budget(seconds)

    def finish(self) -> str:
        process, console, seconds = self._process, self.console, self.order.seconds
        process.end_input()
        if not self.listen():
            raise _timeout(self.order, console, _timeout_text(process, seconds))
        _require_operators(console)
        if process.refused or not console.done:
            self.status = process.wait(seconds)
            if self.status is None:
                raise _timeout(self.order, console, "has closed its output and not ended")
            with contextlib.suppress(OSError, ValueError):
                self.instructions = int(self._count.read_text())
            _judge(self._resolved, process, self.status, console)
        return console.done or "exit"


@contextlib.contextmanager
def _in_simulator(resolved: Resolved, order: Launch, sink: Callable[[str], object], count: bool) -> Iterator[Started]:
    launchers.require(resolved.target)
    console = Console(sink, order.until)
    with TemporaryFolder() as own:
        folder, arguments = order.folder or own, [order.elf.name, *order.arguments]
        counted = folder / ".hil_instructions"
        process = resolved.target.launcher.launch(
            order.elf.absolute(), folder, arguments, order.seconds, count=counted if count else None
        )
        try:
            one = _Simulated(resolved, order, console, process, counted)
            one.folder = folder
            yield one
        finally:
            process.close()
            if count:
                counted.unlink(missing_ok=True)


def _judge(resolved: Resolved, process: RunningProcess, status: int, console: Console) -> None:
    """Raise an error for the end of a process, unless the process ended normally."""
    log = process.log.decode(errors="replace")
    problem = resolved.target.launcher.explain_launch(resolved.target, process, status, log)
    if isinstance(problem, ProgramFailed) and console.fault:
        problem = _fault(console, f"exit status {status}")
    if problem is not None:
        raise problem


def _timeout_text(process: RunningProcess, seconds: float) -> str:
    used = process.cpu_seconds()
    asleep = "" if used >= seconds else f", {seconds * timeouts.WALL_PER_CPU_SECOND:g} s by the clock"
    return f"has not ended after {used:.1f} s of the simulator's CPU time{asleep}"


# --- a board -------------------------------------------------------------------------------------------------


class _OnBoard(Started):
    def __init__(self, order: Launch, console: Console, port: Uart) -> None:
        super().__init__(order, console)
        self.link: Link = port
        self._port = port

    def budget(self, seconds: float) -> Budget:
        return Deadline.after(seconds)

    def finish(self) -> str:
        order, port = self.order, self._port
        if not self.listen():
            how = f"has not ended after {order.seconds:g} s; its console is {port.port} at {port.baud} baud"
            raise _timeout(order, self.console, how)
        _require_operators(self.console)
        if not self.console.done:
            raise vanished(port.port)
        return self.console.done


@contextlib.contextmanager
def _on_board(resolved: Resolved, order: Launch, sink: Callable[[str], object]) -> Iterator[Started]:
    """Flash the program, open the port and listen to its console.

    If a tool can reset the board, the board is reset while the port is open, so that no output of the start is lost.
    """
    launcher = resolved.target.launcher
    assert isinstance(launcher, HardwareLauncher)
    if launcher.flash is None:
        hint = "flash: a preset or a command, in the target's launcher (hil docs boards)"
        raise ConfigError("the target names no tool for flash", hint=hint)
    if order.arguments or order.folder:
        raise ConfigError("a board has neither a command line nor a folder", hint="leave arguments and --folder out")
    leased = LeasedBoard(resolved.target, Elf(order.elf, "", resolved.target.config), f"hil launch {order.elf.name}")
    port: Uart | None = None
    try:
        leased.flash(order.elf.absolute(), "")
        own = leased.target.launcher
        assert isinstance(own, HardwareLauncher)
        port = Uart(own.port, own.baud)
        if leased.can_reset:
            with contextlib.suppress(TimeoutError):
                port.read(Deadline.after(0.0))  # discards output of the start after flashing
            leased.reset()
        yield _OnBoard(order, Console(sink, order.until), port)
    finally:
        if port is not None:
            port.close()
        leased.release()


# --- messages --------------------------------------------------------------------------------------------


def _require_operators(console: Console) -> None:
    if console.operators:
        raise UnsupportedOperator(
            f"the program was linked without {', '.join(console.operators)}",
            operator=next(iter(console.operators)),
            hint="link a registry that has it: portable_ops_lib, or EXECUTORCH_SELECT_OPS_LIST with its name",
        )


def _timeout(order: Launch, console: Console, how: str) -> HarnessError:
    if console.fault:
        return _fault(console, how)
    return ProgramTimeout(
        f"{order.elf.name} {how}",
        hint="--timeout, if it takes longer; --until REGEX, if it says what it has to say and never ends",
    )


def _fault(console: Console, how: str) -> TargetFault:
    return TargetFault(f"{console.fault} ({how})", hint="its console has more")
