"""The simulators behind virtual boards: their flash memory, and the command that runs its content."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Protocol

from cortex_m_hil.errors import FlashError
from cortex_m_hil.host import toolchain
from cortex_m_hil.host.sandbox import program_sandbox
from cortex_m_hil.runner.launchers import qemu

PT_LOAD = 1
PICO = Path(__file__).with_name("pico.cjs")


# --- machines ------------------------------------------------------------------------------------------------


class _Flash:
    """A flash memory that a simulator reads from a file when it starts."""

    def __init__(self, path: Path, base: int, size: int) -> None:
        self._path = path
        self.base = base
        self._bytes = bytearray(b"\xff" * size)

    def write(self, elf: bytes, part: float = 1.0) -> None:
        """Write the flash, erased before, for each segment of an ELF, as a flash tool does.

        `part` is the share of each segment that is written; below 1, power is lost during the write. Raises FlashError
        for an address that is not in the flash, and where `elf` is no ELF.
        """
        for address, data in segments(elf):
            at = address - self.base
            if not 0 <= at <= len(self._bytes) - len(data):
                raise FlashError(f"no flash at 0x{address:08x} for {len(data)} bytes", hint="an ELF of another board?")
            self._bytes[at : at + len(data)] = data[: int(len(data) * part)].ljust(len(data), b"\xff")

    def file(self) -> Path:
        self._path.write_bytes(self._bytes)
        return self._path


class F405:
    """The machine `f405`: QEMU's netduinoplus2, an STM32F405, whose time is the number of its instructions."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._flash = _Flash(folder / "flash.bin", 0x08000000, 1 << 20)
        self.flash = self._flash.write

    def command(self) -> list[str]:
        """Return the command line: sandboxed, no semihosting; USART2, the second serial port, is on standard I/O."""
        path = toolchain.find("qemu-system-arm").path
        quiet = [*qemu.QUIET, "-serial", "null", "-serial", "stdio"]
        image = f"loader,file={self._flash.file()},addr=0x{self._flash.base:08x},force-raw=on"
        command = [str(path), "-M", "netduinoplus2", *qemu.ICOUNT, *quiet, *qemu.SANDBOX, "-device", image]
        return program_sandbox(path, self._folder).command(command)


class Pico:
    """The machine `pico`: a Raspberry Pi Pico, simulated by rp2040js."""

    def __init__(self, folder: Path) -> None:
        self._flash = _Flash(folder / "flash.bin", 0x10000000, 2 << 20)
        self.flash = self._flash.write

    def command(self) -> list[str]:
        package = toolchain.rp2040js()
        return [str(package.node), str(PICO), str(package.folder), str(self._flash.file())]


class Native:
    """The machine `native`: a process of the host that runs the runner of the target `native`, or any executable."""

    def __init__(self, folder: Path) -> None:
        self._executable = folder / "runner"

    def flash(self, elf: bytes, part: float = 1.0) -> None:
        self._executable.unlink(missing_ok=True)  # unlinked, as it may be running
        if part < 1:
            return
        self._executable.write_bytes(elf)
        self._executable.chmod(0o700)

    def command(self) -> list[str]:
        return [str(self._executable)] if self._executable.exists() else ["sleep", "infinity"]


class Machine(Protocol):
    """A simulated machine. `command` is run at each power-up, with the content of the flash."""

    def flash(self, elf: bytes, part: float = 1.0) -> None:
        """Write an ELF to the flash; `part` is the share that is written before a loss of power, 1.0: all of it."""
        ...

    def command(self) -> list[str]: ...


MACHINES: Mapping[str, Callable[[Path], Machine]] = {"f405": F405, "pico": Pico, "native": Native}


def segments(elf: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield the physical address and the bytes of each segment that a flash tool writes.

    Raises FlashError where `elf` is no little-endian 32-bit ELF, or is cut short.
    """
    try:
        if elf[:6] != b"\x7fELF\x01\x01":
            raise FlashError("not a little-endian 32-bit ELF")
        start, count = struct.unpack_from("<I", elf, 28)[0], struct.unpack_from("<H", elf, 44)[0]
        for number in range(count):
            kind, offset, _, address, size = struct.unpack_from("<5I", elf, start + 32 * number)
            if kind == PT_LOAD and size:
                if offset + size > len(elf):
                    raise FlashError("the ELF is cut short")
                yield address, elf[offset : offset + size]
    except struct.error as error:
        raise FlashError(f"the ELF is cut short: {error}") from error
