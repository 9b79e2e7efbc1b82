"""The sample on Zephyr and on FreeRTOS, which the user names, in QEMU: tests pass, and what is planted is found."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import Final

import pytest

from cortex_m_hil.runner.target_library import write_target_library
from paths import REPOSITORY

SAMPLE: Final = REPOSITORY / "examples" / "own_firmware"
DEADLINE: Final = 900.0  # seconds, with two builds of Zephyr
KERNELS: Final = {  # a file of its sources, and the variable with their folder; targets
    "zephyr": ("ZEPHYR_BASE", "Kconfig.zephyr", ("zephyr-m3", "zephyr-m55")),
    "freertos": ("FREERTOS_KERNEL", "tasks.c", ("freertos",)),
}
LOCALIZE: Final = """
import torch

def test_no_kernel_is_at_fault(hil):
    program = hil.lower(torch.nn.Sequential(torch.nn.Linear(16, 16), torch.nn.ReLU()), (torch.rand(1, 16),))
    assert not hil.localize(program).at_fault
"""
FEATURES: Final = ("pipeline.c", "(mean * 8u >> bits) - 8u", "(mean * 8u >> bits) - 7u")
KERNEL: Final = (
    "build/hil_target/runtime/builtin/kernels/linear.cpp",
    "return linear.bias == nullptr ? 0 : linear.bias->as<int32_t>()[feature];",
    "return linear.bias == nullptr ? 0 : linear.bias->as<int32_t>()[feature] + 4000;",
)

pytestmark = pytest.mark.slow


def run(folder: Path, path: str, *arguments: str) -> str:
    command = ["pytest", "-p", "no:cacheprovider", *arguments]
    done = subprocess.run(
        command, cwd=folder, env={**os.environ, "PATH": path}, capture_output=True, text=True, timeout=DEADLINE,
        check=False,
    )  # fmt: skip
    return done.stdout + done.stderr


def plant(folder: Path, name: str, right: str, wrong: str) -> None:
    text = (folder / name).read_text()
    assert text.count(right) == 1
    (folder / name).write_text(text.replace(right, wrong))


@pytest.mark.parametrize("kernel", KERNELS)
def test_the_sample_passes_and_an_error_in_its_features_and_in_a_kernel_is_named(
    kernel: str, tmp_path: Path, user_path: str
) -> None:
    variable, source, targets = KERNELS[kernel]
    if not Path(os.environ.get(variable, ""), source).is_file():
        pytest.skip(f"{variable} names no folder with {source} (examples/own_firmware/{kernel}/README.md)")
    if kernel == "zephyr" and not shutil.which("west"):
        pytest.skip("no west on PATH (examples/own_firmware/zephyr/README.md)")
    folder = tmp_path / "sample"
    shutil.copytree(SAMPLE, folder, ignore=shutil.ignore_patterns("build", "__pycache__"))
    write_target_library(folder / "build" / "hil_target")
    (folder / "test_kernels.py").write_text(LOCALIZE)
    said = run(folder, user_path, f"--target={','.join(targets)}")
    assert f"{5 * len(targets)} passed in " in said, said
    plant(folder, *FEATURES)
    plant(folder, *KERNEL)
    said = run(folder, user_path, f"--target={targets[0]}")
    assert "the stage features departs first" in said and "operator='cortex_m::quantized_linear.out'" in said, said
    assert "3 failed, 2 passed" in said, said  # the firmware's name, and the latencies, are right
