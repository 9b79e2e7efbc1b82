"""Reads the architecture that an ELF was compiled for."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from cortex_m_hil.host import toolchain

MAGIC: Final = b"\x7fELF"
ARM: Final = 40  # e_machine of 32-bit Arm


def built_for(path: Path) -> str:
    """Return the architecture that an executable, or an archive's first object, was compiled for: `armv8-m.main+fp.dp`.

    It is read from the build attributes that the compiler writes into the file (Addenda to the ABI for the Arm
    Architecture, 3.3.5). For code of other processors the text begins with "no Cortex-M".
    """
    tool = toolchain.find("arm-none-eabi-readelf").path
    said = toolchain.run_tool([str(tool), "-A", str(path)], 60).out
    first = said.split("\nFile: ")[0 if not said.startswith("\n") else 1]
    tags = dict(re.findall(r"^\s*(Tag_\w+): (.*)$", first, re.MULTILINE))
    base = {
        "v6-M": "armv6-m",
        "v6S-M": "armv6-m",
        "v7": "armv7-m",
        "v7E-M": "armv7e-m",
        "v8-M.baseline": "armv8-m.base",
        "v8-M.mainline": "armv8-m.main",
        "v8.1-M.mainline": "armv8-m.main",
    }.get(tags.get("Tag_CPU_arch", ""))
    if base is None or tags.get("Tag_CPU_arch_profile") not in (None, "Microcontroller"):
        return f"no Cortex-M ({tags.get('Tag_CPU_arch', 'no Arm code')})"
    single = "SP only" in tags.get("Tag_ABI_HardFP_use", "")
    fp = ("+fp" if single else "+fp.dp") if {"Tag_ABI_VFP_args", "Tag_FP_arch"} <= tags.keys() else ""
    dsp = "+dsp" if base == "armv7e-m" or "Tag_DSP_extension" in tags else ""
    mve = {"MVE Integer and FP": "+mve.fp", "MVE Integer only": "+mve"}.get(tags.get("Tag_MVE_arch", ""), "")
    return base + fp + dsp + mve
