"""Install this project, with the versions in constraints.txt, into an environment of the job, and put that on PATH.

The variable EXTRAS has extras of the project, such as `upstream`; INSTALL has further arguments for pip.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import venv
from pathlib import Path

from github_actions import append

ROOT = Path(__file__).resolve().parents[1]


def command(python: Path, extras: str, install: str) -> list[str]:
    """Return a pip command that resolves all packages at once, so that torch always has its exact version."""
    project = f"{ROOT}[{extras}]" if extras else str(ROOT)
    pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    return [*pip, "--constraint", str(ROOT / "constraints.txt"), project, *shlex.split(install)]


def main() -> None:
    folder = Path(os.environ["RUNNER_TEMP"]) / "hil-venv"
    venv.create(folder, with_pip=True)
    done = subprocess.run(command(folder / "bin" / "python", os.environ["EXTRAS"], os.environ["INSTALL"]), check=False)
    append("GITHUB_PATH", str(folder / "bin"))
    sys.exit(done.returncode)


if __name__ == "__main__":
    main()
