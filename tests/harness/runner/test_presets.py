"""`firmware/CMakePresets.json`: runners by CMake alone, of the same targets as the harness's."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from cortex_m_hil.host import toolchain
from cortex_m_hil.host.paths import package_data
from cortex_m_hil.runner.launchers.qemu import QemuLauncher
from cortex_m_hil.runner.memory_files import memory_files
from cortex_m_hil.targets.cpu import cpus
from cortex_m_hil.targets.load import load_board, load_targets
from known_bugs.showing import PATCHES
from paths import REPOSITORY
from planting import FOLDER as PLANTED

FIRMWARE = package_data("firmware")
BOARD = "${sourceDir}/boards/"


def presets() -> dict[str, dict[str, str]]:
    """Name to cache variables, of those that name a CPU."""
    file: dict[str, Any] = json.loads((FIRMWARE / "CMakePresets.json").read_text())
    found = {one["name"]: one["cacheVariables"] for one in file["configurePresets"] if "cacheVariables" in one}
    return {name: variables for name, variables in found.items() if "HIL_CPU" in variables}


def test_each_qemu_machine_and_each_board_has_a_preset() -> None:
    targets = load_targets()
    strongest = {
        name
        for name, target in targets.items()
        if isinstance(target.launcher, QemuLauncher) and target.isa is cpus()[target.cpu].isas[0]
    }
    assert strongest <= presets().keys()
    boards = {path.name for path in (FIRMWARE / "boards").iterdir() if path.is_dir()}
    assert boards == {variables["HIL_BOARD_DIR"].removeprefix(BOARD) for variables in presets().values()}


@pytest.mark.parametrize("name", sorted(presets()))
def test_a_preset_is_for_the_target_of_its_name(name: str) -> None:
    variables, target = presets()[name], load_targets().get(name)
    assert variables["HIL_ISA"] in {isa.value for isa in cpus()[variables["HIL_CPU"]].isas}
    if target is not None:
        board = variables["HIL_BOARD_DIR"].removeprefix(BOARD)
        assert (variables["HIL_CPU"], variables["HIL_ISA"], board) == (target.cpu, target.isa.value, target.board.name)


def configure(folder: Path, name: str) -> None:
    environment = {**os.environ, "HIL_SCHEMA_DIR": str(toolchain.schema_directory())}
    command = ["cmake", "--preset", name, "-B", str(folder), f"-DHIL_PYTHON={sys.executable}"]
    done = subprocess.run(command, cwd=FIRMWARE, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_memory_is_that_of_the_board(tmp_path: Path) -> None:
    """CMake asks for what is made of `board.yaml` where nobody gives it: here shared memory, and flash for programs."""
    configure(tmp_path, "stm32f4")
    made = {path.name: path.read_text() for path in (tmp_path / "memory").iterdir()}
    assert made == memory_files(load_board(FIRMWARE / "boards" / "stm32f4"))
    assert re.search(r"-T\S+/memory/runner\.ld", (tmp_path / "build.ninja").read_text())


@pytest.mark.slow
def test_a_preset_builds_a_runner(tmp_path: Path) -> None:
    configure(tmp_path, "m0-qemu")
    subprocess.run(["cmake", "--build", str(tmp_path)], capture_output=True, check=True)
    assert (tmp_path / "runner.elf").is_file()


def test_a_flatc_without_headers_of_its_version_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Such as that of the executorch wheel, first on PATH in an activated virtual environment."""
    other = tmp_path / "bin" / "flatc"
    other.parent.mkdir()
    other.write_text("#!/bin/sh\necho flatc version 1.2.3\n")
    other.chmod(0o755)
    monkeypatch.setenv("PATH", str(other.parent), prepend=os.pathsep)
    configure(tmp_path / "build", "m0-qemu")
    chosen = (tmp_path / "build" / "CMakeCache.txt").read_text()
    assert f"HIL_FLATC:FILEPATH={toolchain.flatbuffers().flatc.path}\n" in chosen
    for tool in Path("/usr/bin").iterdir():
        if tool.name in ("cmake", "ninja", "sh") or tool.name.startswith("arm-none-eabi-"):
            (other.parent / tool.name).symlink_to(tool)
    monkeypatch.setenv("PATH", str(other.parent))
    with pytest.raises(AssertionError, match=r"on PATH \(seen:\s+\S+/flatc\s+\(flatc version 1"):
        configure(tmp_path / "other", "m0-qemu")


def test_every_planted_bug_applies_to_the_firmware_as_it_is() -> None:
    """Patches that only the nightly builds; without `--fuzz=0`, `patch` would accept context that has changed."""
    patches = [*PLANTED.rglob("*.patch"), *PATCHES.glob("*.patch")]
    assert len(patches) >= 22
    for path in patches:
        command = ["patch", "--dry-run", "--batch", "--fuzz=0", "-p1", "-i", str(path)]
        done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False, timeout=60)
        assert done.returncode == 0, f"{path}: {done.stdout}"
