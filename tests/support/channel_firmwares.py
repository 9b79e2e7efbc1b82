"""A firmware of the host with channels, built here with sanitizers, for tests that need no simulator."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Final

from cortex_m_hil.targets.load import load_targets
from cortex_m_hil.targets.resolve import Resolved, resolve
from paths import REPOSITORY

SOURCES: Final = Path(__file__).with_name("channel_firmware")
FLAGS: Final = ("-std=gnu11", "-g", "-O1", "-Wall", "-Wextra", "-Werror", "-fsanitize=address,undefined")


def library(folder: Path) -> list[str]:
    """Compile the target library with channels into a folder, and return its objects; each is compiled once."""
    folder.mkdir(exist_ok=True)
    firmware = REPOSITORY / "firmware"
    sources = [*map(str, sorted((firmware / "target_library").glob("*.c"))), str(SOURCES / "no_runtime.c")]
    if not any(folder.glob("*.o")):
        command = ["gcc", *FLAGS, "-fno-sanitize-recover=all", "-DHIL_CHANNELS=1", f"-I{firmware}", "-c", *sources]
        subprocess.run(command, cwd=folder, check=True, timeout=120)
    return [str(path) for path in folder.glob("*.o")]


def channel_firmware(folder: Path, objects: list[str], *definitions: str) -> Resolved:
    """Build the firmware into a folder, with the macros that change it, and return it as a target."""
    shutil.copytree(SOURCES, folder, dirs_exist_ok=True)
    firmware = REPOSITORY / "firmware"
    includes = [f"-I{firmware}", f"-I{firmware / 'target_library'}"]
    files = [str(SOURCES / "firmware.c"), *objects, "-o", str(folder / "firmware.elf")]
    given = [f"-D{one}" for one in definitions]
    subprocess.run(["gcc", *FLAGS, "-DHIL_CHANNELS=1", *includes, *given, *files], check=True, timeout=120)
    return resolve("channels", load_targets(folder / "targets.yaml"))
