"""ExecuTorch's own compiler for Arm, `aot_arm_compiler` of its wheel, called as by its users."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Final

COMPILER: Final = "executorch.backends.arm.scripts.aot_arm_compiler"
DEADLINE: Final = 1800.0  # seconds for one compilation


def compiled(model: Path, *options: str, target: str = "cortex-m55") -> Path:
    """Compile a file with `ModelUnderTest` and `ModelInputs`, in its folder, and return the path of the program."""
    command = [sys.executable, "-m", COMPILER, "-m", model.name, "-t", target, *options]
    done = subprocess.run(
        command,
        cwd=model.parent,
        capture_output=True,
        text=True,
        timeout=DEADLINE,
        check=False,
        stdin=subprocess.DEVNULL,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    said = [line.rpartition(" ")[2] for line in done.stdout.splitlines() if "PTE file saved as" in line]
    assert len(said) == 1, done.stdout
    return model.parent / said[0]
