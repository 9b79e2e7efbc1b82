"""MobileNetV2 through ExecuTorch's own compiler: its bundled program and its intermediates, on the target."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest

from command_line import OK, answer, spawn
from compiling import compiled
from paths import REPOSITORY

# torchvision's, by whose name the compiler knows it, is not needed: the architecture is the same.
MODEL: Final = f"""\
import sys

import torch

sys.path.append({str(REPOSITORY / "tests" / "support")!r})
from published_networks import mobilenet_v2

torch.manual_seed(0)
ModelUnderTest, ModelInputs = mobilenet_v2()
"""
SAVE_INPUT: Final = """
import numpy
numpy.save("x.npy", ModelInputs[0].numpy())
"""


@pytest.fixture
def model(tmp_path: Path) -> Path:
    (tmp_path / "mv2.py").write_text(MODEL + SAVE_INPUT)
    return tmp_path / "mv2.py"


def test_a_bundled_program(model: Path) -> None:
    path = compiled(model, "--quantize", "--bundleio")
    ran = answer(spawn("run", path, "-t", "m55-qemu", "--timeout-multiplier", 10, "--json", cwd=model.parent).out)
    assert (ran["exit_status"], ran["case"]) == (OK, 0)
    assert ran["compared"]["outputs"][0]["sqnr_db"] > 20
    assert ran["compared"]["warnings"] == []


def test_intermediates(model: Path) -> None:
    path = compiled(model, "--quantize", "--intermediates=inter")
    assert answer(spawn("lint", path, "-t", "m55-qemu", "--json", cwd=model.parent).out)["fits"] is True
    run = ("run", path, "-t", "m55-qemu", "-i", "x.npy", "--timeout-multiplier", 10, "--json")
    ran = answer(spawn(*run, cwd=model.parent).out)
    assert ran["outputs"] == [{"dtype": "float32", "shape": [1, 1000]}]
