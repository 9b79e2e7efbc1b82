"""Describes a fault of the core. Source of the bits: Armv7-M ARM B3.2.15–16, Armv8-M ARM D1.2 (CFSR, HFSR)."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from cortex_m_hil.errors import ToolchainError
from cortex_m_hil.host import toolchain
from cortex_m_hil.runner.links.protocol import PayloadReader

_EXCEPTIONS = {2: "NMI", 3: "HardFault", 4: "MemManage", 5: "BusFault", 6: "UsageFault", 7: "SecureFault"}
_CFSR = {
    0: "IACCVIOL: instruction fetch from a forbidden address",
    1: "DACCVIOL: data access to a forbidden address",
    3: "MUNSTKERR: MPU fault on exception return",
    4: "MSTKERR: MPU fault while stacking: the stack has probably overflowed",
    5: "MLSPERR: MPU fault while saving FP state",
    8: "IBUSERR: instruction fetch failed on the bus",
    9: "PRECISERR: data access failed on the bus",
    10: "IMPRECISERR: an earlier write failed on the bus",
    11: "UNSTKERR: bus error on exception return",
    12: "STKERR: bus error while stacking: the stack has probably overflowed",
    13: "LSPERR: bus error while saving FP state",
    16: "UNDEFINSTR: undefined instruction",
    17: "INVSTATE: jump to an address without the Thumb bit",
    18: "INVPC: broken exception return",
    19: "NOCP: coprocessor (FPU, MVE) not present or not enabled",
    20: "STKOF: stack limit reached",
    24: "UNALIGNED: unaligned access",
    25: "DIVBYZERO: division by zero",
}
_MMARVALID, _BFARVALID = 1 << 7, 1 << 15
_VECTTBL = 1 << 1
_LEAST_EXCEPTION, _MOST_EXCEPTION = 1, 511  # exception numbers in IPSR, 9 bits; 0 is thread mode
_REGISTERS = ("r0", "r1", "r2", "r3", "r12", "lr", "pc", "xpsr")
SYMBOL_TIMEOUT = 20.0  # seconds


@dataclass(frozen=True)
class Fault:
    """The body of a FAULT event (docs/protocol.md). `cfsr`, `hfsr`, `mmfar`, `bfar` are None on cores without them."""

    instruction: int
    exception: int
    cfsr: int | None
    hfsr: int | None
    mmfar: int | None
    bfar: int | None
    registers: dict[str, int]
    operator: str

    @classmethod
    def parse(cls, reader: PayloadReader, instructions: int) -> Fault:
        """Parse a FAULT event; `instructions` is how many the loaded program has. Raises ProtocolError."""
        instruction = reader.number("instruction", "i", -1, instructions - 1)
        exception = reader.number("exception", "I", _LEAST_EXCEPTION, _MOST_EXCEPTION)
        has_status = reader.number("has_status", "B", 0, 1)
        told = [reader.number(name, "I") for name in ("cfsr", "hfsr", "mmfar", "bfar")]
        cfsr, hfsr, mmfar, bfar = told if has_status else (None,) * 4
        registers = {name: reader.number(name, "I") for name in (*_REGISTERS, "sp")}
        return cls(instruction, exception, cfsr, hfsr, mmfar, bfar, registers, reader.text("operator"))

    @property
    def causes(self) -> list[str]:
        found = [text for bit, text in _CFSR.items() if (self.cfsr or 0) >> bit & 1]
        if (self.hfsr or 0) & _VECTTBL:
            found.append("VECTTBL: the vector table could not be read")
        return found

    @property
    def address(self) -> int | None:
        """Return the data address that faulted, None where the core recorded no address."""
        if self.cfsr is not None and self.cfsr & _BFARVALID:
            return self.bfar
        if self.cfsr is not None and self.cfsr & _MMARVALID:
            return self.mmfar
        return None

    def describe(self) -> str:
        """Return exception, causes and address in words."""
        name = _EXCEPTIONS.get(self.exception, f"exception {self.exception}")
        why = "; ".join(self.causes) or (
            "no status registers on this core" if self.cfsr is None else "no cause recorded"
        )
        return f"{name} ({why})" + (f" at address 0x{self.address:08x}" if self.address is not None else "")

    def places(self, elf: Path | None) -> list[tuple[str, str]]:
        """Return program counter and link register, each with function and file:line where these are known."""
        if not any(self.registers[name] for name in _REGISTERS):
            return [("pc", "unknown: the exception frame could not be stacked")]
        return [(name, f"0x{self.registers[name]:08x}{symbol(elf, self.registers[name])}") for name in ("pc", "lr")]

    def dump(self) -> str:
        """Return all registers as text, for the log."""
        status = {"cfsr": self.cfsr, "hfsr": self.hfsr, "mmfar": self.mmfar, "bfar": self.bfar}
        return " ".join(f"{key}=0x{value:08x}" for key, value in (self.registers | status).items() if value is not None)


def symbol(elf: Path | None, address: int) -> str:
    """Return ` in function at file:line` of a code address, "" where that is not known."""
    if elf is None:
        return ""
    try:
        tool = toolchain.find("arm-none-eabi-addr2line").path
        command = [str(tool), "-f", "-C", "-e", str(elf), hex(address & ~1)]
        lines = toolchain.run_tool(command, SYMBOL_TIMEOUT).out.splitlines()
    except ToolchainError:
        return ""
    if len(lines) < 2 or lines[0] == "??":
        return ""
    function = lines[0].replace("(anonymous namespace)::", "").split("(")[0]
    # In debug information the build's folder is called `build`, the sources' folder `firmware`; addr2line joins both.
    place = lines[1].split(" ")[0].removeprefix("build/")
    return f" in {function} at {place}"
