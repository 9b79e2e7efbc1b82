"""Imitates the files of an installed ExecuTorch, for tests that find one and check whether it fits."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

from cortex_m_hil.targets.executorch_prefix import operators_of_wheel

FLAGS = {
    "m0-qemu": ["-mcpu=cortex-m0"],
    "m4-qemu": ["-mcpu=cortex-m4", "-mfloat-abi=hard", "-mfpu=fpv4-sp-d16"],
    "m55-qemu": ["-mcpu=cortex-m55", "-mfloat-abi=hard"],
}


def make_prefix(
    folder: Path, flags: list[str], identifier: str = "ET12", version: str = "", without: str = "no operator"
) -> Path:
    """Write a prefix: one object of that CPU, with the schema's name in it; with a version as if hil had built it.

    Its registry names the Cortex-M operators of the wheel's release, but for ``without``.
    """
    library = folder / "lib"
    (library / "cmake" / "ExecuTorch").mkdir(parents=True)
    (library / "cmake" / "ExecuTorch" / "executorch-config.cmake").touch()
    source = folder / "program.c"
    there = "".join(f'"{name}\\0" ' for name in operators_of_wheel() if name != without)
    constants = f'const char identifier[] = "{identifier}", operators[] = {there};'
    source.write_text(f"{constants} float twice(float x) {{ return x + x; }}\n")
    subprocess.run(
        ["arm-none-eabi-gcc", "-mthumb", *flags, "-c", str(source), "-o", str(folder / "program.o")], check=True
    )
    for name in ("executorch_core", "cortex_m_ops_lib"):
        subprocess.run(["arm-none-eabi-ar", "rc", str(library / f"lib{name}.a"), str(folder / "program.o")], check=True)
    if version:
        (folder / "hil.json").write_text(json.dumps({"version": version}))
    return folder
