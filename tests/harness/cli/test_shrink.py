"""hil shrink, with a kernel that has a bug."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from command_line import CANNOT_TELL, NO, OK, answer, environment, running, spawn
from cortex_m_hil.host.paths import package_data
from paths import IMPORT_ROOT, REPOSITORY
from planting import BUGS
from reruns import WITH_TEARDOWN

DEADLINE = 300.0  # seconds

TESTS = f"""
import sys

import pytest
import torch

sys.path.append({str(REPOSITORY / "tests" / "support")!r})
from planting import BUGS, network

from cortex_m_hil import HilWarning, Isa
from cortex_m_hil.runner.build import build_runner


@pytest.fixture
def runner_elf(target_spec, tmp_path):
    return build_runner(target_spec.target, firmware=BUGS["zero_point_ignored_in_padding"].plant(tmp_path))


def test_net(hil):
    hil.check(*network(), qtol=1)


def test_int8(hil):
    hil.check(*network(), qtol=1, io="int8")


def test_int8_of_wrong_calibration(hil):
    torch.manual_seed(1)
    hil.check(torch.nn.Linear(4, 4), (torch.rand(2, 4),), calibration=[(torch.rand(2, 4) * 0.01,)], io="int8")


def test_relu(hil):
    hil.check(torch.nn.Linear(4, 4), (torch.rand(2, 4),))


def test_of_its_own(hil):
    assert 1 == 2


def test_warned(hil):
    raise HilWarning("output 0 proves nothing")


def test_coarse(hil):
    hil.check(torch.nn.Linear(4, 4), (torch.rand(2, 4),), eager_sqnr=300)


def test_of_wrong_calibration(hil):
    torch.manual_seed(1)
    hil.check(torch.nn.Linear(4, 4), (torch.rand(2, 4),), calibration=[(torch.rand(2, 4) * 0.01,)])


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


@pytest.mark.slow
def test_a_bug_of_a_kernel_is_one_operator(folder: Path) -> None:
    done = spawn("shrink", "test_net.py::test_net", "-t", "native", "--json", "--budget", "240", cwd=folder)
    assert done.status == NO, done.err
    one = answer(done.out)
    assert (one["verdict"], one["operator"], one["cause"]) == ("Mismatch", "cortex_m::pad.out", "kernel")
    assert one["operators"] == 1
    assert one["elements"] < 300 and one["ended"] and "1 operator, " in done.err
    text = (folder / one["fails"]).read_text()
    assert "hil.check(Part().eval(), INPUTS, qtol=1)" in text and "test_net.py::test_net" in text
    assert passes(folder, one["fails"]) and (one["passes"] is None or passes(folder, one["passes"]))


@pytest.mark.slow
def test_a_test_that_is_repeated_is_shrunk_once(folder: Path) -> None:
    (folder / "conftest.py").write_text(WITH_TEARDOWN)
    done = spawn("shrink", "test_net.py::test_coarse", "-t", "native", "--json", "--budget", "1", cwd=folder)
    assert done.status == NO, done.err
    assert answer(done.out)["verdict"] == "Mismatch"  # `answer` takes one document


@pytest.mark.slow
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


def shim_of(package: Path, folder: Path) -> Path:
    """Runners for ExecuTorch's own tester in `folder`, built from the firmware beside `package`."""
    install = [
        sys.executable,
        "-m",
        "cortex_m_hil.cli",
        "dev",
        "fvp-shim",
        "install",
        str(folder),
        "--runner",
        "m4-qemu",
    ]
    changed = environment(PYTHONPATH=str(package))
    subprocess.run(install, env=changed, cwd=folder.parent, check=True, capture_output=True, timeout=DEADLINE)
    return folder


def upstream_status(file: Path, shim: Path) -> int:
    """Of the test without this package: its tester finds a model on PATH and a runner in EXECUTORCH_ROOT."""
    call = [sys.executable, "-m", "pytest", "-q", "-c", os.devnull, "-p", "no:cacheprovider", file.name]
    there = environment(EXECUTORCH_ROOT=str(shim), PATH=f"{shim}{os.pathsep}{os.environ['PATH']}")
    done = subprocess.run(call, env=there, cwd=file.parent, timeout=DEADLINE, check=False)
    return done.returncode


@pytest.mark.slow
def test_a_test_of_executorchs_own_tester_fails_on_the_runner_with_the_bug_and_on_no_other(
    folder: Path, tmp_path: Path
) -> None:
    order = [
        "shrink",
        "test_net.py::test_net",
        "-t",
        "m4-qemu",
        "--format",
        "executorch",
        "--budget",
        "60",
        "-o",
        "out",
    ]
    done = spawn(*order, cwd=folder)
    assert done.status == NO, done.err
    [file] = (folder / "out").glob("*_fails.py")
    text = file.read_text()
    assert ".test_implementation(qtol=1, atol=0.001)" in text and "cortex_m_hil" not in text
    wrong = tmp_path / "wrong"
    wrong.mkdir()
    shutil.copytree(IMPORT_ROOT, wrong / "harness", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(package_data("targets.yaml"), wrong)
    BUGS["zero_point_ignored_in_padding"].plant(wrong)
    assert upstream_status(file, shim_of(wrong / "harness", tmp_path / "planted")) == 1
    assert upstream_status(file, shim_of(IMPORT_ROOT, tmp_path / "sound")) == 0


@pytest.mark.slow
def test_what_executorchs_tester_cannot_show_is_told(folder: Path) -> None:
    done = spawn("shrink", "test_net.py::test_of_another_class", "-t", "native", "--format", "executorch", cwd=folder)
    assert done.status == CANNOT_TELL
    assert "ExecuTorch's tester cannot show it: it has no check that ends in LintError" in done.err
    assert done.err.count("ConfigError") == 1 and "→ leave out --format executorch" in done.err
    coarse = spawn("shrink", "test_net.py::test_coarse", "-t", "native", "--format", "executorch", cwd=folder)
    assert coarse.status == CANNOT_TELL and "it has no bound of SQNR" in coarse.err


@pytest.mark.slow
def test_an_interrupt_leaves_the_smallest_part_so_far(folder: Path) -> None:
    with running("shrink", "test_net.py::test_net", "-t", "native", "--budget", "240", cwd=folder) as process:
        assert process.stderr is not None
        assert "operator" in process.stderr.readline()
        os.kill(process.pid, signal.SIGINT)
        _, err = process.communicate(timeout=60)
    [file] = (folder / "shrunk").glob("*_fails.py")
    assert process.returncode == 130 and f"interrupted: the smallest part so far: shrunk/{file.name}\n" in err
    assert passes(folder, f"shrunk/{file.name}")  # a whole test, which only the planted bug fails


@pytest.mark.slow
def test_a_failure_of_calibration_is_told_as_one(folder: Path) -> None:
    done = spawn("shrink", "test_net.py::test_of_wrong_calibration", "-t", "native", cwd=folder)
    assert done.status == CANNOT_TELL and "does not fail when it is lowered by itself" in done.err
    assert "→ a part is calibrated with its own inputs, and the test gives calibration=: " in done.err


BANKS = """
targets:
  native-banks:
    cpu: host
    isa: scalar
    board: native
    launcher: native
    memory:
      regions: {fast: {size: 8K}}
      banks: [{region: fast, size: 2K}, {region: host, size: 1M}]
"""


@pytest.mark.slow
def test_a_test_of_int8_inputs_is_cut_down_with_floats_and_on_a_target_with_banks(folder: Path) -> None:
    (folder / "targets.yaml").write_text(BANKS)
    done = spawn("shrink", "test_net.py::test_int8", "-t", "native-banks", "--budget", "60", "--json", cwd=folder)
    found = answer(done.out)
    assert done.status == NO and (found["operator"], found["cause"]) == ("cortex_m::pad.out", "kernel"), done.err
    assert "io=" not in (folder / found["fails"]).read_text()
    told = spawn("shrink", "test_net.py::test_int8_of_wrong_calibration", "-t", "native", cwd=folder)
    assert told.status == CANNOT_TELL and "→ a part takes and gives floats, and the test has io=" in told.err


@pytest.mark.slow
def test_what_there_is_nothing_to_shrink_of(folder: Path) -> None:
    nothing = spawn("shrink", "test_net.py::test_relu", "-t", "native", cwd=folder)
    assert (nothing.status, nothing.out) == (OK, "test_net.py::test_relu: nothing fails\n")
    own = spawn("shrink", "test_net.py::test_of_its_own", "-t", "native", cwd=folder)
    assert own.status == CANNOT_TELL and "fails, and not by a verdict on a program" in own.err
    again = "→ pytest --hil-target=native --hil-timeout-multiplier=1.0 test_net.py::"
    assert f"{again}test_of_its_own" in own.err
    warned = spawn("shrink", "test_net.py::test_warned", "-t", "native", cwd=folder)
    assert warned.status == CANNOT_TELL and "output 0 proves nothing\n" in warned.err
    assert "→ this is no verdict on the program" in warned.err
    several = spawn("shrink", "test_net.py", "-t", "native,m4-qemu", cwd=folder)
    assert several.status == CANNOT_TELL and "one target is taken here" in several.err
    none = spawn("shrink", "test_no.py", "-t", "native", cwd=folder)
    assert none.status == CANNOT_TELL and "test_no.py" in none.err
