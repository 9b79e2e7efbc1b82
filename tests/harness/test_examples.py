"""The examples as a user runs them: each in a folder of its own, with the wheel, by the commands of its README."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import Final

import pytest

from paths import REPOSITORY
from shown import blocks

EXAMPLES = REPOSITORY / "examples"
DEADLINE = 600.0  # seconds
NAMES = ("evaluate", "model_tests", "own_board", "own_firmware", "script")
SAID = {
    "python tasks.py": r"digits.npz: 357 samples\n",
    "hil evaluate": r"tasks:\w+ +m4-qemu +DSP +(top-1|AUC) +0\.\d+",
    "pytest": r"\d+ passed",
    "hil targets": "sensor-node",
    "make": "firmware.elf",
    "hil doctor selftest": "PASS  bare-metal",
    "python measure.py": r"m4-qemu +DSP .* dB\nm55-qemu +MVE .* dB\n",
}


def commands(readme: Path) -> list[str]:
    return [shown.command for block in blocks(readme.read_text()) for shown in block.commands()]


def run(command: str, folder: Path, path: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        shlex.split(command), cwd=folder, env={**os.environ, "PATH": path}, capture_output=True, text=True,
        timeout=DEADLINE, check=False,
    )  # fmt: skip


# `evaluate` trains a network; `model_tests` runs pytest as `own_board` does, and the script is run by the test below.
LONG: Final = ("evaluate", "model_tests", "script")


@pytest.mark.slow
@pytest.mark.parametrize("name", [pytest.param(name, marks=[pytest.mark.slow] * (name in LONG)) for name in NAMES])
def test_the_readmes_commands_run(name: str, user_path: str, tmp_path: Path) -> None:
    folder = tmp_path / name
    shutil.copytree(EXAMPLES / name, folder, ignore=shutil.ignore_patterns("__pycache__", ".*"))
    called = commands(folder / "README.md")
    assert called
    for command in called:
        done = run(command, folder, user_path)
        assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
        (said,) = [text for start, text in SAID.items() if command.startswith(start)]
        assert re.search(said, done.stdout), f"{command}\n{done.stdout}"
        assert "skipped" not in done.stdout and "warning" not in done.stdout


@pytest.mark.slow
def test_the_script_tells_errors_of_the_program_from_others(user_path: str, tmp_path: Path) -> None:
    shutil.copy(EXAMPLES / "script" / "measure.py", tmp_path)
    done = run("python measure.py m4-qmeu native", tmp_path, user_path)
    assert done.returncode == 3, done.stdout + done.stderr
    assert "did you mean 'm4-qemu'" in done.stdout and re.search("native +SCALAR", done.stdout)


def test_every_example_is_run_and_listed() -> None:
    assert {readme.parent.name for readme in EXAMPLES.glob("*/README.md")} == set(NAMES)
    listed = (EXAMPLES / "README.md").read_text()
    assert all(f"({name}/README.md)" in listed for name in NAMES)
