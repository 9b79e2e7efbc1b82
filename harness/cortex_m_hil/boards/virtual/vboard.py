"""Virtual boards: a simulator behind a pseudo-terminal, with a flash, a reset, a power switch, and faults on demand.

`f405` is QEMU's netduinoplus2, an STM32F405, with its USART2; `pico` is rp2040js, a Raspberry Pi Pico, with its UART0;
`native` is the runner built for the host. Between the simulator and the terminal each byte takes as long as on a real
wire, and may be lost or damaged.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import json
import os
import random
import selectors
import signal
import socket
import sys
import termios
import time
import tty
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

import filelock
import psutil

from cortex_m_hil.boards.virtual import BAUD
from cortex_m_hil.boards.virtual.machines import MACHINES
from cortex_m_hil.boards.virtual.serial_line import Faults, Wire
from cortex_m_hil.errors import ConfigError, FlashError, HarnessError, LaunchError
from cortex_m_hil.host import subprocesses
from cortex_m_hil.host.deadline import Deadline
from cortex_m_hil.host.folders import OwnFolder, TemporaryFolder, remove_abandoned
from cortex_m_hil.host.paths import cache_advice
from cortex_m_hil.runner.launchers import native
from cortex_m_hil.runner.launchers.process import Process
from cortex_m_hil.runner.launchers.serial import SerialLauncher
from cortex_m_hil.runner.links.uart import virtual_directory
from cortex_m_hil.targets.board_tool_commands import parse_procedure
from cortex_m_hil.targets.connection import LinkClosed
from cortex_m_hil.targets.target import Port

QUEUE_LIMIT = 16384  # bytes queued for the board from which on the terminal is not read
COMMAND_TIMEOUT = 30.0  # seconds for a board to carry out a command
START_TIMEOUT = 60.0  # seconds for the board's process to start


# --- the board -----------------------------------------------------------------------------------------------


@dataclass
class _Terminal:
    """A pseudo-terminal with both ends kept open, so that it outlives the programs that use it."""

    master: int
    slave: int

    @classmethod
    def open(cls, link: Path) -> _Terminal:
        master, slave = os.openpty()
        tty.setraw(slave)
        os.set_blocking(master, False)
        link.symlink_to(os.ttyname(slave))
        return cls(master, slave)

    def speed(self) -> int:
        return int(termios.tcgetattr(self.slave)[5])

    def close(self, link: Path) -> None:
        link.unlink(missing_ok=True)
        os.close(self.slave)
        os.close(self.master)


def _claim(directory: Path) -> OwnFolder:
    """Create an empty folder for a virtual board, and remove the folders of boards that have ended.

    Raises ConfigError if the board is running already, and where the folder cannot be made.
    """
    try:
        directory.parent.mkdir(parents=True, exist_ok=True)
        with filelock.FileLock(directory.parent / ".lock", timeout=START_TIMEOUT):
            remove_abandoned(directory.parent, "*")
            directory.mkdir(exist_ok=True)
            return OwnFolder(directory)
    except BlockingIOError:
        raise ConfigError(
            f"a virtual board {directory.name} is running already, in {directory}",
            hint="end that one, or give this one another --name",
        ) from None
    except filelock.Timeout:
        parent = directory.parent
        what = f"another process has been starting or removing virtual boards in {parent} for {START_TIMEOUT:.0f} s"
        raise ConfigError(what, hint="end it") from None
    except OSError as error:
        what = f"cannot make the folder of a virtual board, {directory}: {error.strerror}"
        raise ConfigError(what, hint=cache_advice()) from error


@dataclass
class VirtualBoard:
    """A virtual board, which runs from its construction on; `serve()` transfers its bytes and never returns.

    Names of virtual boards are unique on a host.

    Attributes:
        machine: a key of MACHINES.
        name: the name in `vboard:NAME`.
        baud: the baud rate of its UART; a terminal with another rate gets random bytes.
        seed: the seed of the random faults.
    """

    machine: str
    name: str
    baud: int = BAUD
    seed: int = 0

    def __post_init__(self) -> None:
        if self.machine not in MACHINES:
            raise ConfigError(f"no virtual board {self.machine!r}", hint=f"known: {', '.join(MACHINES)}")
        if getattr(termios, f"B{self.baud}", None) is None:
            raise ConfigError(f"no serial port has {self.baud} baud", hint="115200 or 921600")
        self.directory = virtual_directory(self.name)
        self._port, self._control = self.directory / "port", self.directory / "control"
        self._own = _claim(self.directory)
        self._temporary = TemporaryFolder()  # for the socket, whose path must be short
        self._folder = self._temporary.path
        chance = random.Random(self.seed)
        self._machine = MACHINES[self.machine](self._folder)
        self._to_board, self._to_host = Wire(self.baud, chance), Wire(self.baud, chance)
        self._faults = Faults()
        self._reset_at = 0.0
        self._back_at: float | None = None
        self._child: subprocesses.Child | None = None
        self._terminal: _Terminal | None = None
        self._reading = False
        self._selector = selectors.DefaultSelector()
        for path in (self._port, self._control):
            path.unlink(missing_ok=True)
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(self._folder / "control"))
        self._listener.listen()
        self._selector.register(self._listener, selectors.EVENT_READ)
        self._plug()
        self._power(True)
        self._control.symlink_to(self._folder / "control")  # made last: from now on the board takes commands

    def serve(self) -> NoReturn:
        signal.signal(signal.SIGTERM, signal.default_int_handler)  # so that `_close` removes its files
        try:
            while True:
                self._round()
        finally:
            self._close()

    def _close(self) -> None:
        self._control.unlink(missing_ok=True)
        self._power(False)
        if self._terminal is not None:
            self._terminal.close(self._port)
        self._listener.close()
        self._temporary.remove()
        self._own.remove()

    # --- bytes ----------------------------------------------------------------------------------------------

    def _round(self) -> None:
        now = time.monotonic()
        waits = [self._to_board.due(now), self._to_host.due(now)]
        waits.append(None if self._back_at is None else max(0.0, self._back_at - now))
        self._set_reading(len(self._to_board) < QUEUE_LIMIT)
        events = self._selector.select(min((wait for wait in waits if wait is not None), default=None))
        for key, _ in events:
            if key.fileobj is self._listener:
                self._run_command()
            else:
                self._receive(key.fd)
        now = time.monotonic()
        if self._back_at is not None and now >= self._back_at:
            self._back_at = None
            self._plug()
        self._deliver(now)

    def _set_reading(self, reading: bool) -> None:
        """Start or stop reading the terminal; while it is not read, programs that write to it block."""
        if self._terminal is None or reading == self._reading:
            return
        self._reading = reading
        if reading:
            self._selector.register(self._terminal.master, selectors.EVENT_READ)
        else:
            self._selector.unregister(self._terminal.master)

    def _receive(self, fd: int) -> None:
        terminal, child = self._terminal, self._child
        try:
            if terminal is not None and fd == terminal.master:
                self._from_host(os.read(fd, QUEUE_LIMIT), terminal)
                return
            data = os.read(fd, QUEUE_LIMIT)
        except OSError:
            return
        if not data:
            self._selector.unregister(fd)  # the simulator has ended
        elif child is not None and fd == child.pipes[1].fileno():
            self._to_host.put(data, time.monotonic(), garbled=self._wrong_speed(terminal))

    def _from_host(self, data: bytes, terminal: _Terminal) -> None:
        self._to_board.put(data, time.monotonic(), garbled=self._wrong_speed(terminal))
        if self._reset_at:
            self._reset_at -= len(data)
            if self._reset_at <= 0:
                self._reset_at = 0.0
                self._power(False)
                self._power(True)

    def _wrong_speed(self, terminal: _Terminal | None) -> bool:
        return terminal is not None and terminal.speed() != getattr(termios, f"B{self.baud}")

    def _deliver(self, now: float) -> None:
        if data := self._to_board.take(now):
            taken = self._write_to_simulator(data)
            self._to_board.put_back(data[taken:])
        data = self._to_host.take(now)
        if data and self._terminal is not None:
            with contextlib.suppress(BlockingIOError):  # a UART drops bytes if the host does not read
                os.write(self._terminal.master, data)

    def _write_to_simulator(self, data: bytes) -> int:
        """Write bytes to the simulator; return how many it took. Without a running simulator all bytes are dropped."""
        if self._child is None:
            return len(data)
        try:
            return os.write(self._child.pipes[0].fileno(), data)
        except BlockingIOError:
            return 0
        except OSError:
            return len(data)

    # --- commands -------------------------------------------------------------------------------------------

    def _run_command(self) -> None:
        connection, _ = self._listener.accept()
        with connection:
            connection.settimeout(1.0)
            try:
                with connection.makefile("rwb") as stream:
                    answer = self._do(json.loads(stream.readline() or b"{}"))
                    stream.write(json.dumps(answer).encode() + b"\n")
            except (OSError, ValueError):
                return

    def _do(self, order: object) -> dict[str, object]:
        if not isinstance(order, dict):
            return {"error": f"cannot take an order that is a {type(order).__name__}"}
        try:
            match order.get("do"):
                case "flash":
                    self._flash(Path(str(order["elf"])).read_bytes())
                case "reset":
                    self._power(False)
                    self._power(True)
                case "power":
                    self._power(order["state"] == "on")
                case "fault":
                    faults = order["faults"]
                    self._inject(Faults.parse(faults if isinstance(faults, dict) else {}))
                case what:
                    return {"error": f"cannot {what}"}
        except (ConfigError, FlashError) as error:
            return {"error": error.message + (f" ({error.hint})" if error.hint else "")}
        except (OSError, KeyError, LaunchError) as error:
            return {"error": str(error)}
        return {}

    def _flash(self, elf: bytes) -> None:
        lost = self._faults.power_loss >= 1
        self._machine.flash(elf, 0.5 if lost else 1.0)
        self._power(False)
        self._power(True)
        if lost:
            self._faults = dataclasses.replace(self._faults, power_loss=self._faults.power_loss - 1)
            raise FlashError("the board lost its power while it was flashed")

    def _inject(self, faults: Faults) -> None:
        self._faults = self._to_board.faults = self._to_host.faults = faults
        self._reset_at = faults.reset_after
        if faults.hang and self._child is not None:
            for process in psutil.Process(self._child.pid).children(recursive=True):
                process.suspend()
        if faults.vanish:
            self._unplug(time.monotonic() + faults.vanish)

    def _plug(self) -> None:
        self._terminal = _Terminal.open(self._port)
        self._set_reading(True)

    def _unplug(self, back_at: float) -> None:
        if self._terminal is not None:
            self._set_reading(False)
            self._terminal.close(self._port)
            self._terminal = None
        self._to_board.cut()
        self._to_host.cut()
        self._back_at = back_at

    def _power(self, on: bool) -> None:
        if self._child is not None and not on:
            for stream in self._child.pipes[1:]:
                with contextlib.suppress(KeyError):
                    self._selector.unregister(stream.fileno())
            self._child.end()
            for stream in self._child.pipes:
                stream.close()
            self._child = None
            self._to_board.cut()
            self._to_host.cut()
        if on and self._child is None:
            self._child = subprocesses.start(self._machine.command(), env=native.sanitizer_environment())
            for stream in self._child.pipes[1:]:
                self._selector.register(stream.fileno(), selectors.EVENT_READ)


# --- the host's side -----------------------------------------------------------------------------------------


def send_command(name: str, what: str, **details: object) -> None:
    """Send a command such as `flash` or `reset` to a running virtual board.

    Raises LaunchError if no such board is running, and FlashError if the command fails.
    """
    control = virtual_directory(name) / "control"
    try:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(COMMAND_TIMEOUT)
            connection.connect(os.readlink(control))
            with connection.makefile("rwb") as stream:
                stream.write(json.dumps({"do": what, **details}).encode() + b"\n")
                stream.flush()
                answer = json.loads(stream.readline() or b'{"error": "it said nothing"}')
    except OSError as error:
        raise LaunchError(f"no virtual board {name} is running", hint=f"hil board virtual {name}") from error
    if "error" in answer:
        raise FlashError(f"virtual board {name}: {answer['error']}")


@contextlib.contextmanager
def running(machine: str, name: str, baud: int = BAUD, seed: int = 0) -> Iterator[Process]:
    """Run a virtual board in a process of its own, which ends with this one; yield that process.

    Raises LaunchError if the board does not start.
    """
    options = ["--name", name, "--baud", str(baud), "--seed", str(seed)]
    process = Process(
        [sys.executable, "-m", "cortex_m_hil.boards.virtual.vboard", *options, machine], grace=subprocesses.GRACE
    )
    try:
        said = b""
        with contextlib.suppress(LinkClosed, TimeoutError):
            while b"\nbaud" not in said:
                said += process.read(Deadline.after(START_TIMEOUT))
        if b"\nbaud" not in said:
            process.wait(1.0)
            log = process.log.decode(errors="replace")
            said_first = log.strip().partition("\n")[0] or "nothing"
            raise LaunchError(f"virtual board {name} does not start", log=log, details=[("it says", said_first)])
        yield process
    finally:
        process.close()


def launcher(machine: str, name: str, baud: int = BAUD) -> SerialLauncher:
    """Return the launcher by which a target connects to, flashes and resets this virtual board."""
    command = ["{python}", "-m", "cortex_m_hil.boards.virtual.vboard", "--name", name, machine]
    flash = parse_procedure([*command, "flash", "{elf}"], "flash", name)
    reset = parse_procedure([*command, "reset"], "reset", name)
    return SerialLauncher(f"vboard:{name}", baud, flash, reset, ports=(Port(f"vboard:{name}"),))


# --- actions ------------------------------------------------------------------------------------------------


def act(machine: str, action: Sequence[str], name: str, baud: int, seed: int) -> int:
    """Run a virtual board, or carry out an action on the running one, as `hil board virtual --help` lists them.

    Returns:
        The exit status: the command's for `run`, else 0.
    """
    match action:
        case []:
            board = VirtualBoard(machine, name, baud, seed)
            print(f"port      {board.directory / 'port'}\nbaud      {board.baud}", flush=True)
            board.serve()
        case ["run", *command] if command:
            with running(machine, name, baud, seed):
                return subprocesses.foreground(command)
        case ["flash", elf]:
            send_command(name, "flash", elf=os.path.abspath(elf))
        case ["reset"]:
            send_command(name, "reset")
        case ["power", ("on" | "off") as state]:
            send_command(name, "power", state=state)
        case ["power", "cycle"]:
            send_command(name, "power", state="off")
            send_command(name, "power", state="on")
        case ["fault", *pairs]:
            faults = Faults.parse(dict(pair.partition("=")[::2] for pair in pairs))
            send_command(name, "fault", faults=dataclasses.asdict(faults))
        case words:
            raise ConfigError(f"no action {' '.join(words)!r} of a virtual board", hint="hil board virtual --help")
    return 0


def main(arguments: Sequence[str]) -> int:
    """Run `act` for a process that this module or a target of it starts: sooner than by `hil`, which imports more."""
    parser = argparse.ArgumentParser("vboard")
    parser.add_argument("--name")
    parser.add_argument("--baud", type=int, default=BAUD)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("machine")
    parser.add_argument("action", nargs=argparse.REMAINDER)
    chosen = parser.parse_args(arguments)
    return act(chosen.machine, chosen.action, chosen.name or chosen.machine, chosen.baud, chosen.seed)


if __name__ == "__main__":
    try:
        raise SystemExit(main(sys.argv[1:]))
    except HarnessError as error:
        print(error.describe(), file=sys.stderr)
        raise SystemExit(2) from None
    except KeyboardInterrupt:
        raise SystemExit(130) from None
