"""hil shrink, with a kernel that has a bug."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from command_line import CANNOT_TELL, NO, OK, answer, environment, spawn
from paths import REPOSITORY

DEADLINE = 300.0  # seconds

TESTS = f"""
import sys

import pytest
import torch

sys.path.append({str(REPOSITORY / "tests")!r})
from planting import BUGS, network

from cortex_m_hil import Isa
from cortex_m_hil.runner.build import build_runner


@pytest.fixture
def runner_elf(target_spec, tmp_path):
    return build_runner(target_spec.target, firmware=BUGS["zero_point_ignored_in_padding"].plant(tmp_path))


def test_net(hil):
    hil.check(*network(), qtol=1)


def test_relu(hil):
    hil.check(torch.nn.Linear(4, 4), (torch.rand(2, 4),))


def test_of_its_own(hil):
    assert 1 == 2


def test_of_another_class(hil):
    torch.manual_seed(1)
    net = torch.nn.Sequential(torch.nn.Linear(64, 32), torch.nn.ReLU(), torch.nn.Linear(32, 10))
    hil.check(net, (torch.rand(1, 64) * 0.002,), isa=Isa.MVE)
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "test_net.py").write_text(TESTS)
    return tmp_path


def passes(folder: Path, file: str) -> bool:
    """A test that was written, with kernels that have no bug."""
    command = [sys.executable, "-m", "pytest", "-q", "--hil-target=native", file]
    return subprocess.run(command, cwd=folder, env=environment(), timeout=DEADLINE, check=False).returncode == 0


def test_a_bug_of_a_kernel_is_one_operator(folder: Path) -> None:
    done = spawn("shrink", "test_net.py::test_net", "-t", "native", "--json", "--budget", "240", cwd=folder)
    assert done.status == NO, done.err
    one = answer(done.out)
    assert (one["verdict"], one["operator"], one["operators"]) == ("Mismatch", "cortex_m::pad.out", 1)
    assert one["elements"] < 300 and one["ended"] and "1 operator, " in done.err
    text = (folder / one["fails"]).read_text()
    assert "hil.check(Part().eval(), INPUTS, qtol=1)" in text and "test_net.py::test_net" in text
    assert passes(folder, one["fails"]) and (one["passes"] is None or passes(folder, one["passes"]))


def test_a_layout_of_another_class_is_one_operator(folder: Path) -> None:
    done = spawn(
        "shrink", "test_net.py::test_of_another_class", "-t", "native", "--json", "--budget", "240", cwd=folder
    )
    assert done.status == NO, done.err
    one = answer(done.out)
    assert (one["verdict"], one["operators"]) == ("LintError", 1) and "linear" in one["operator"]
    text = (folder / one["fails"]).read_text()
    assert "isa=Isa.MVE" in text and "from cortex_m_hil import Isa\n" in text
    assert not passes(folder, one["fails"]) and (one["passes"] is None or passes(folder, one["passes"]))


def test_a_test_of_executorchs_own_tester(folder: Path) -> None:
    order = ["shrink", "test_net.py::test_net", "-t", "native", "--format", "executorch", "--budget", "30", "-o", "out"]
    done = spawn(*order, cwd=folder)
    assert done.status == NO, done.err
    [file] = (folder / "out").glob("*_fails.py")
    text = file.read_text()
    assert ".test_implementation(qtol=1, atol=0.001)" in text and "cortex_m_hil" not in text
    compile(text, str(file), "exec")


def test_what_there_is_nothing_to_shrink_of(folder: Path) -> None:
    nothing = spawn("shrink", "test_net.py::test_relu", "-t", "native", cwd=folder)
    assert (nothing.status, nothing.out) == (OK, "test_net.py::test_relu: nothing fails\n")
    own = spawn("shrink", "test_net.py::test_of_its_own", "-t", "native", cwd=folder)
    assert own.status == CANNOT_TELL and "fails, and not by a verdict on a program" in own.err
    several = spawn("shrink", "test_net.py", "-t", "native,m4-qemu", cwd=folder)
    assert several.status == CANNOT_TELL and "one target is taken here" in several.err
    none = spawn("shrink", "test_no.py", "-t", "native", cwd=folder)
    assert none.status == CANNOT_TELL and "test_no.py" in none.err
