"""CPUs, with their ISA classes and the architecture that a runner for them reports.

The table is `firmware/cpus.json`, a row for each CPU. The CMake toolchain file reads it as well: `flags` select the
floating-point unit for GCC, and `without` is appended to -mcpu to leave out extensions that the chosen ISA class lacks.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from cortex_m_hil.host.paths import package_data


class Isa(str, Enum):
    """An ISA class: one of CMSIS-NN's three code paths. Programs are lowered differently for each."""

    MVE = "MVE"
    DSP = "DSP"
    SCALAR = "SCALAR"


@dataclass(frozen=True)
class Cpu:
    """A row of the table of CPUs.

    Attributes:
        name: the name for GCC's -mcpu, such as `cortex-m55`.
        isas: ISA classes that a target may choose, the most capable first, which is the default (ExecuTorch's
            `backends/cortex_m/target_config.py`; it does not name the Cortex-M52).
        architecture: the architecture by GCC's predefined macros, without DSP and MVE. The macros do not distinguish
            Armv8.1-M from Armv8-M.
        part: bits 15:4 of SCB->CPUID (the cores' technical reference manuals); 0: unknown.
        gcc: the first major version of GCC that knows the CPU; 0: every version that this project supports.
    """

    name: str
    isas: tuple[Isa, ...]
    architecture: str
    part: int = 0
    gcc: int = 0

    @property
    def has_fpu(self) -> bool:
        """Tell whether the CPU can have a floating-point unit; a target with `fpu: false` is a core without it."""
        return "+fp" in self.architecture


# The host can stand for each ISA class: the layout of a program is interpreted by plain C++.
HOST = Cpu("host", (Isa.SCALAR, Isa.DSP, Isa.MVE), "host")
_ALWAYS_DSP = "armv7e-m"  # GCC cannot leave out the DSP extension of this architecture


@functools.cache
def cpus() -> Mapping[str, Cpu]:
    """Return all CPUs by name, including the host."""
    table = json.loads((package_data("firmware") / "cpus.json").read_text())
    found = [
        Cpu(name, tuple(map(Isa, row["isas"])), row["architecture"], int(row.get("part", "0"), 16), row.get("gcc", 0))
        for name, row in table.items()
    ]
    return {cpu.name: cpu for cpu in (*found, HOST)}


def cpu_name(spelling: str) -> str:
    """Return the CPU that a target string of ExecuTorch names: `cortex-m55`, or `cortex-m55+int8`, as in its README.

    Any other string is returned as it is, so that the caller can check whether there is such a CPU.
    """
    name = spelling.removesuffix("+int8")
    return name if name.startswith("cortex-m") else spelling


def architecture(cpu: str, isa: Isa, fpu: bool = True) -> str:
    """Return the architecture that a runner's handshake must report, such as `armv8-m.main+fp.dp+dsp+mve.fp`."""
    base = cpus()[cpu].architecture
    if cpu == HOST.name:
        return base
    if not fpu:
        base = base.partition("+fp")[0]
    dsp = isa is not Isa.SCALAR or base.startswith(_ALWAYS_DSP)
    return base + ("+dsp" if dsp else "") + (("+mve.fp" if fpu else "+mve") if isa is Isa.MVE else "")
