"""The launcher of boards on a serial port: it flashes a board that runs something else, resets and identifies it."""

from __future__ import annotations

import math
import random
import struct
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar, NoReturn

from pydantic import Field

from cortex_m_hil.errors import ConfigError, HarnessError, IdentityError, LaunchError, PortNotFound
from cortex_m_hil.host import timeouts, toolchain
from cortex_m_hil.host.deadline import Deadline
from cortex_m_hil.runner.links import protocol, uart
from cortex_m_hil.runner.links.framing import VERSION, Decoder, ProtocolFrame, encode
from cortex_m_hil.runner.links.protocol import RESPONSE, Request
from cortex_m_hil.runner.links.uart import BITS, LABGRID, VIRTUAL, Uart, vanished
from cortex_m_hil.targets.board_tool_commands import RawProcedure, parse_procedure
from cortex_m_hil.targets.connection import BoardTools, Connection, Elf, LinkClosed
from cortex_m_hil.targets.target import Clock, HardwareLauncher, Port, Strict, Target

PROBE_TIMEOUT = 1.0  # seconds to wait for an answer of a board that may run no runner
BOOT_TIMEOUT = 10.0  # seconds to wait for a board that has just been flashed or reset
PORT_TIMEOUT = 10.0  # seconds to wait for a port to come back: flashing may make a USB adapter vanish for a while
RETRY_INTERVAL = 0.1  # seconds between two attempts to reach a board
WIRE_MARGIN = 6.0  # a transfer may take so many times its duration at the line rate
SHOWN = 60  # bytes outside of frames that a message shows at most


class _RawPort(Strict):
    port: str
    serial_number: str = ""


class _Settings(Strict):
    port: str | None = None
    ports: list[str | _RawPort] = Field([])
    baud: Annotated[int, Field(gt=0, lt=1 << 31)] = 115200
    flash: str | list[str] | RawProcedure | None = None
    reset: str | list[str] | RawProcedure | None = None
    power: str | list[str] | RawProcedure | None = None
    wait: Annotated[float, Field(ge=0, le=timeouts.LONGEST_WAIT)] = timeouts.LEASE_WAIT


@dataclass(frozen=True)
class SerialLauncher(HardwareLauncher):
    """The launcher of a board on a serial port."""

    settings: ClassVar[type[Strict]] = _Settings
    shorthand: ClassVar[str] = "port"

    @classmethod
    def parse(cls, settings: _Settings, where: str) -> SerialLauncher:
        ports = _ports(settings, where)
        brought = {"serial_number"} if all(port.serial_number for port in ports) else set()
        flash, reset, power = (
            None if tool is None else parse_procedure(tool, kind, where, brought)
            for kind, tool in (("flash", settings.flash), ("reset", settings.reset), ("power", settings.power))
        )
        return cls(ports[0].url, settings.baud, flash, reset, power, ports, settings.wait)

    def describe(self) -> str:
        return f"serial {self.port} at {self.baud}"

    def require(self) -> None:
        """Check that at least one of the ports is there. Raises PortNotFound.

        Ports on a network are not checked; an error is raised when they are opened.
        """
        problem: PortNotFound | None = None
        for port in self.ports:
            try:
                return uart.require(port.url)
            except PortNotFound as error:
                problem = problem or error
        if problem is not None:
            raise problem

    def engine(self, board: str) -> str:
        """Return `board stm32f4 on /dev/ttyACM0`, or for a virtual board its name and the simulator behind it."""
        if self.port.startswith(VIRTUAL):
            return f"virtual board {self.port.removeprefix(VIRTUAL)} ({_simulator_behind(board)})"
        return f"board {board} on {self.port}"

    def clock(self, counts: bool) -> Clock:
        """Return CORE; of a virtual board HOST, or INSTRUCTIONS where its time is their number, as of no real core."""
        return Clock.INSTRUCTIONS if counts else super().clock(counts)

    def definitions(self) -> dict[str, str]:
        return {"HIL_UART_BAUD": str(self.baud)}

    def connect(self, target: Target, elf: Elf, directory: Path, tools: BoardTools | None) -> SerialBoard:
        assert tools is not None
        return SerialBoard(target, self, elf, directory, tools)

    def start(self, target: Target, elf: Elf, directory: Path, arguments: Sequence[str]) -> NoReturn:
        raise ConfigError(
            f"{target.name} is a board: it has no command line and no process of its own",
            hint="use a target on a simulator for this: hil targets",
        )

    def explain_end(self, target: Target, connection: Connection, status: int | None, log: str) -> HarnessError:
        assert isinstance(connection, SerialBoard)
        return connection.explain_end(log)


def _ports(settings: _Settings, where: str) -> tuple[Port, ...]:
    if (settings.port is None) == (not settings.ports):
        raise ConfigError(f"{where}: serial needs one of port, ports", hint="{serial: {port: /dev/ttyACM0}}")
    named = settings.ports or [settings.port or ""]
    ports = tuple(Port(one) if isinstance(one, str) else Port(one.port, one.serial_number) for one in named)
    twice = {port.url for port in ports if sum(port.url == other.url for other in ports) > 1}
    if twice:
        raise ConfigError(f"{where}: ports names {min(twice)} twice", hint="name each port once")
    remote = [port.url for port in ports if port.url.startswith(LABGRID)]
    if remote and len(ports) > 1:
        raise ConfigError(
            f"{where}: {remote[0]} stands for several boards already", hint="port: labgrid://…, and no others"
        )
    return ports


class SerialBoard:
    """A runner on a board at a serial port. The link may lose bytes, so a request without a response is sent again."""

    lossless = False

    def __init__(self, target: Target, launcher: SerialLauncher, elf: Elf, directory: Path, tools: BoardTools) -> None:
        """Bring the board up so that it runs `elf`, freshly started.

        A board that runs `elf` already is only reset. A board that runs something else, or whose last flash is
        incomplete, is flashed. If the target has no tool for this, the board is left as it is, and the handshake
        decides.

        Args:
            target: the target, with the port of the leased board.
            launcher: the target's launcher.
            elf: the runner.
            directory: a folder for files, such as a program that is flashed.
            tools: the tools of the leased board.

        Raises:
            LaunchError: the port does not open, a tool fails, or the board does not answer.
            BoardBusy: another process uses the port.
            FlashError: the flash tool fails.
            IdentityError: after flashing, the board still answers with another build id.
        """
        self.target = target
        self.log = bytearray()
        self._launcher = launcher
        self._tools = tools
        self._elf = elf
        self._directory = directory
        self._stray = bytearray()
        self._uart: Uart | None = Uart(self._launcher.port, self._launcher.baud)
        try:
            self._bring_up()
        except BaseException as error:
            self.close()
            if isinstance(error, HarnessError) and not error.target:
                error.target = target.name
            raise

    @property
    def baud(self) -> int:
        return self._launcher.baud

    # --- the link -----------------------------------------------------------------------------

    def write(self, data: bytes, deadline: Deadline) -> None:
        self._port().write(data, deadline)

    def read(self, deadline: Deadline) -> bytes:
        return self._port().read(deadline)

    def budget(self, seconds: float, nbytes: int = 0) -> Deadline:
        """Return a deadline after `seconds`, plus the time that `nbytes` take on the wire."""
        return Deadline.after(seconds + WIRE_MARGIN * nbytes * BITS / self.baud)

    def wait(self, seconds: float) -> int | None:
        """Return None at once: a board has no process that could end."""
        return None

    def explain_end(self, log: str) -> HarnessError:
        return vanished(self._launcher.port, target=self.target.name, log=log)

    def close(self) -> None:
        if self._uart is not None:
            self._uart.close()
            self._uart = None

    def _port(self) -> Uart:
        if self._uart is None:
            raise LinkClosed
        return self._uart

    # --- bringing up a board --------------------------------------------------------------------------

    def _bring_up(self) -> None:
        running = None if self._tools.flash_incomplete else self._running(PROBE_TIMEOUT)
        if self._tools.flash_incomplete or (
            not self._elf.has_id(running) and (running is not None or not self._tools.can_reset)
        ):
            self._flash_runner()
            return
        if self._tools.can_reset:  # a board that does not answer is reset too: its runner may hang
            self._reset()
            # A board that answered before will answer again; a simulated board on a busy host may take long.
            if not self._elf.has_id(self._running(PROBE_TIMEOUT if running is None else BOOT_TIMEOUT)):
                self._flash_runner()

    def _flash_runner(self) -> None:
        if not self._tools.can_flash:
            return
        self._reopening(lambda: self._tools.flash(self._elf.path, self._elf.build_id))
        after = self._running(BOOT_TIMEOUT)
        if after is None:
            raise LaunchError(f"the board does not answer after it was flashed: {self._heard()}", hint=self._advice())
        if not self._elf.has_id(after):
            raise IdentityError(
                f"after flashing the board still answers with build id {after!r}, flashed was {self._elf.build_id!r}",
                hint=f"does the flash tool reach the board on {self._launcher.port}, and flash what it is given?",
            )

    def _reset(self) -> None:
        self._reopening(self._tools.reset)

    def _reopening(self, use: Callable[[], str]) -> None:
        """Close the port during the block, since some boards' tools use it themselves, and open it again afterwards."""
        self.close()
        self.log += use().encode()
        self._uart = _reopen(self._launcher)

    def store(self, data: bytes) -> None:
        """Flash a program next to the runner, which restarts.

        Raises ConfigError where the target has no tool for it.
        """
        if not self._tools.can_flash:
            raise ConfigError(
                "the program has to lie in flash, and the target names no flash tool",
                target=self.target.name,
                hint="flash: a preset or a command, in the target's launcher (hil docs boards)",
            )
        if (tool := self._launcher.flash) is not None and tool.replaces:
            raise ConfigError(
                f"the program has to lie in flash beside the runner, and {tool.name} replaces the runner",
                target=self.target.name,
                hint="leave resident: out of board.yaml",
            )
        path = self._directory / "program.elf"
        region = self.target.board.memory.resident_region
        assert region is not None and region.address is not None
        path.write_bytes(wrap(data, region.address))
        try:
            self._reopening(lambda: self._tools.flash(path, ""))
        except HarnessError as error:
            error.target = self.target.name
            raise

    # --- identification -----------------------------------------------------------------------

    def _running(self, seconds: float) -> str | None:
        """Return the build id of the runner that answers, None if no answer comes in time.

        The id is "" for another version of the protocol, or where the answer has none.

        Each HELLO has the same seq: on a slow line, or a busy host, the answer to a HELLO may come after the next HELLO
        was sent. Attempts are counted, not seconds: on a busy host this process may not run for a while.
        """
        decoder = Decoder()
        self._stray.clear()
        seq = random.randrange(1, 0x10000)
        for _ in range(math.ceil(seconds / RETRY_INTERVAL)):
            turn = Deadline.after(RETRY_INTERVAL)
            try:
                self.write(encode(ProtocolFrame(Request.HELLO, seq)), turn)
                return self._answer(decoder, seq, turn)
            except TimeoutError:
                continue
            except LinkClosed:
                raise self.explain_end("") from None
        return None

    def _answer(self, decoder: Decoder, seq: int, deadline: Deadline) -> str:
        """Return the build id in the response to a HELLO with this `seq`, "" for another version of the protocol.

        Raises TimeoutError without a response by the deadline, even if the board sends other bytes without end.
        """
        while True:
            frames = list(decoder.feed(self.read(deadline)))
            self._stray = (self._stray + b"".join(decoder.take_stray()))[-SHOWN:]
            for frame in frames:
                if (frame.type, frame.seq) == (Request.HELLO | RESPONSE, seq):
                    return protocol.build_id(frame.payload) if frame.version == VERSION else ""
            if deadline.expired:
                raise TimeoutError

    def _heard(self) -> str:
        if not self._stray:
            return "it is silent"
        return f"it sends bytes that are no frame of the protocol: {bytes(self._stray)!r}"

    def _advice(self) -> str:
        return f"is {self._launcher.baud} its baud rate, and {self._launcher.port} its port?"


def _simulator_behind(board: str) -> str:
    """Return the name and version of the simulator behind a virtual board."""
    match board:
        case "native":
            return "host"
        case "rp2040":
            return f"rp2040js {toolchain.RP2040JS}"
    return f"QEMU {toolchain.find('qemu-system-arm').version}"


def _reopen(launcher: SerialLauncher) -> Uart:
    deadline = Deadline.after(PORT_TIMEOUT)
    while True:
        try:
            return Uart(launcher.port, launcher.baud)
        except LaunchError:
            if deadline.expired:
                raise
            time.sleep(RETRY_INTERVAL)  # polled, because a port that does not exist yet cannot be waited on


def wrap(data: bytes, address: int) -> bytes:
    """Return an ELF that loads `data` at an address, for flash tools: one segment, no sections."""
    header, entry = 52, 32
    ident = b"\x7fELF\1\1\1" + bytes(9)
    # e_type EXEC, e_machine ARM, e_version, e_entry, e_phoff, e_shoff, e_flags EABI 5, sizes and counts
    fixed = struct.pack("<HHIIIIIHHHHHH", 2, 40, 1, 0, header, 0, 0x05000000, header, entry, 1, 0, 0, 0)
    start = header + entry
    segment = struct.pack("<8I", 1, start, address, address, len(data), len(data), 4, 4)
    return ident + fixed + segment + data
