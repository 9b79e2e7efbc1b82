"""CPUs, and what follows from them: ISA classes and architectures."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum


class Isa(str, Enum):
    """CMSIS-NN's three paths, and so the three ahead-of-time layouts."""

    MVE = "MVE"
    DSP = "DSP"
    SCALAR = "SCALAR"


# Strongest class first: it is the default, the others are legal overrides.
# Source: CortexMTargetConfig in executorch/backends/cortex_m/target_config.py.
CPU_ISAS: Mapping[str, tuple[Isa, ...]] = {
    "cortex-m0": (Isa.SCALAR,),
    "cortex-m0plus": (Isa.SCALAR,),
    "cortex-m3": (Isa.SCALAR,),
    "cortex-m23": (Isa.SCALAR,),
    "cortex-m4": (Isa.DSP, Isa.SCALAR),
    "cortex-m7": (Isa.DSP, Isa.SCALAR),
    "cortex-m33": (Isa.DSP, Isa.SCALAR),
    "cortex-m35p": (Isa.DSP, Isa.SCALAR),
    "cortex-m55": (Isa.MVE, Isa.DSP, Isa.SCALAR),
    "cortex-m85": (Isa.MVE, Isa.DSP, Isa.SCALAR),
    # The host can impersonate each class: the contract of a layout is plain C++.
    "host": (Isa.SCALAR, Isa.DSP, Isa.MVE),
}


# What GCC's predefined macros say of the flags in firmware/cmake/arm-none-eabi.cmake, without DSP and MVE.
# They do not tell Armv8.1-M from Armv8-M.
ARCHITECTURES: Mapping[str, str] = {
    "cortex-m0": "armv6-m",
    "cortex-m0plus": "armv6-m",
    "cortex-m3": "armv7-m",
    "cortex-m23": "armv8-m.base",
    "cortex-m4": "armv7e-m+fp",
    "cortex-m7": "armv7e-m+fp",
    "cortex-m33": "armv8-m.main+fp",
    "cortex-m35p": "armv8-m.main+fp",
    "cortex-m55": "armv8-m.main+fp.dp",
    "cortex-m85": "armv8-m.main+fp.dp",
    "host": "host",
}
ALWAYS_DSP = "armv7e-m"  # GCC cannot leave it out
