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
FLAGS: Final = (
    *("-std=gnu11", "-g", "-O1", "-Wall", "-Wextra", "-Werror", "-DHIL_CHANNELS=1"),
    *("-fsanitize=address,undefined", "-fno-sanitize-recover=all"),
)


def channel_firmware(folder: Path) -> Resolved:
    """Build the firmware into a folder, and return it as a target."""
    shutil.copytree(SOURCES, folder, dirs_exist_ok=True)
    firmware = REPOSITORY / "firmware"
    includes = [f"-I{firmware}", f"-I{firmware / 'target_library'}"]
    sources = [*map(str, sorted((firmware / "target_library").glob("*.c"))), *map(str, sorted(SOURCES.glob("*.c")))]
    command = ["gcc", *FLAGS, *includes, *sources, "-o", str(folder / "firmware.elf")]
    subprocess.run(command, check=True, timeout=120)
    return resolve("channels", load_targets(folder / "targets.yaml"))
