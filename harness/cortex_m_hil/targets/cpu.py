"""CPUs, and what follows from them: ISA classes, and the architecture that a runner says.

The table is `firmware/cpus.json`, a row for each CPU. The CMake toolchain file reads it as well: `flags` tell
GCC of the floating-point unit, and `without` is appended to -mcpu for a lesser class.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from cortex_m_hil.host.paths import package_data


class Isa(str, Enum):
    """CMSIS-NN's three paths, and so the three ahead-of-time layouts."""

    MVE = "MVE"
    DSP = "DSP"
    SCALAR = "SCALAR"


@dataclass(frozen=True)
class Cpu:
    """A row of the table.

    `isas`: strongest class first, which is the default; the others are legal overrides (ExecuTorch's
    `backends/cortex_m/target_config.py`; it does not name the Cortex-M52).
    `architecture`: what GCC's predefined macros say of its flags, without DSP and MVE. They do not tell Armv8.1-M from
    Armv8-M.
    `part`: bits 15:4 of SCB->CPUID (the cores' technical reference manuals), 0 unknown.
    `gcc`: the first major version of GCC that knows the CPU, 0 where any does that this project has seen.
    """

    name: str
    isas: tuple[Isa, ...]
    architecture: str
    part: int = 0
    gcc: int = 0

    @property
    def has_fpu(self) -> bool:
        """Whether it can be compiled for with a floating-point unit; `fpu: false` of a target is one without."""
        return "+fp" in self.architecture


# The host can impersonate each class: the contract of a layout is plain C++.
HOST = Cpu("host", (Isa.SCALAR, Isa.DSP, Isa.MVE), "host")
_ALWAYS_DSP = "armv7e-m"  # GCC cannot leave it out


@functools.cache
def cpus() -> Mapping[str, Cpu]:
    """All CPUs by name, the host too."""
    table = json.loads((package_data("firmware") / "cpus.json").read_text())
    found = [
        Cpu(name, tuple(map(Isa, row["isas"])), row["architecture"], int(row.get("part", "0"), 16), row.get("gcc", 0))
        for name, row in table.items()
    ]
    return {cpu.name: cpu for cpu in (*found, HOST)}


def cpu_name(spelling: str) -> str:
    """The CPU of a target string of ExecuTorch's: `cortex-m55`, or `cortex-m55+int8`, as its README names it.

    What is no such string is left as it is, for whoever asks whether there is such a CPU.
    """
    name = spelling.removesuffix("+int8")
    return name if name.startswith("cortex-m") else spelling


def architecture(cpu: str, isa: Isa, fpu: bool = True) -> str:
    """What a runner must have been compiled for, as its handshake says it: `armv8-m.main+fp.dp+dsp+mve.fp`."""
    base = cpus()[cpu].architecture
    if cpu == HOST.name:
        return base
    if not fpu:
        base = base.partition("+fp")[0]
    dsp = isa is not Isa.SCALAR or base.startswith(_ALWAYS_DSP)
    return base + ("+dsp" if dsp else "") + (("+mve.fp" if fpu else "+mve") if isa is Isa.MVE else "")
