"""Installed use: the wheel, an empty folder with one test, and a target on a board folder of the user's own."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from cortex_m_hil.host.paths import package_data
from paths import REPOSITORY

DEADLINE = 300.0  # seconds

TEST = """
import torch

def test_mine(hil):
    hil.check(torch.nn.Linear(8, 4), (torch.rand(2, 8),))
"""
TARGETS = """
targets:
  mine:
    cpu: cortex-m4
    board: ./boards/my-board
    launcher: {qemu: mps2-an386}
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A user's repository, with a package of its own called harness."""
    (tmp_path / "test_mine.py").write_text(TEST)
    (tmp_path / "harness").mkdir()
    (tmp_path / "harness" / "__init__.py").write_text("MINE = True\n")
    (tmp_path / "test_theirs.py").write_text("import harness\n\n\ndef test_theirs():\n    assert harness.MINE\n")
    (tmp_path / "targets.yaml").write_text(TARGETS)
    board = tmp_path / "boards" / "my-board"
    shutil.copytree(package_data("firmware") / "boards" / "mps2", board)
    text = (board / "board.yaml").read_text()
    (board / "board.yaml").write_text(text.replace("planned: 1M", "planned: 512K"))
    return tmp_path


def run(python: Path, folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [str(python), "-m", *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=DEADLINE, check=False)


def test_the_wheel_runs_a_users_test_on_a_users_board(installed_python: Path, folder: Path) -> None:
    """`python -m` puts the user's folder first on sys.path, so a package of ours called harness would not be found."""
    done = run(installed_python, folder, "pytest", "--target=mine")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 passed" in done.stdout
    assert "hil: mine · builtin (no ExecuTorch or CMSIS-NN code executed)" in done.stdout
    where = subprocess.run(
        [installed_python, "-c", "import cortex_m_hil; print(cortex_m_hil.__file__)"],
        cwd=folder,
        capture_output=True,
        text=True,
        check=True,
    )
    assert str(installed_python.parent.parent) in where.stdout, "the checkout was tested, not the wheel"


def test_the_wheel_carries_the_known_answer_and_the_default_targets(installed_python: Path, tmp_path: Path) -> None:
    done = run(installed_python, tmp_path, "cortex_m_hil.cli", "doctor", "selftest", "--target", "native")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "PASS" in done.stdout


def test_the_wheel_carries_the_docs(installed_python: Path, tmp_path: Path) -> None:
    done = run(installed_python, tmp_path, "cortex_m_hil.cli", "docs", "writing-tests")
    assert (done.returncode, done.stdout) == (0, (REPOSITORY / "docs" / "writing-tests.md").read_text()), done.stderr
    done = run(installed_python, tmp_path, "cortex_m_hil.cli", "docs", "reading a failure")
    assert "hil docs failures#reading-a-failure\n" in done.stdout, done.stdout + done.stderr


@pytest.mark.slow
def test_the_wheel_carries_the_shim_and_the_check_of_fvps(
    installed_python: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = run(installed_python, tmp_path, "cortex_m_hil.cli", "dev", "fvp-shim", "install", "models")
    assert done.returncode == 0, done.stdout + done.stderr
    monkeypatch.setenv("PATH", f"{tmp_path / 'models'}{os.pathsep}{os.environ['PATH']}")
    done = run(installed_python, tmp_path, "cortex_m_hil.cli", "doctor", "--verify-fvp", "FVP_MPS2_Cortex-M4")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "shim" in done.stdout


@pytest.mark.slow
def test_the_wheel_writes_a_nightlys_report(installed_python: Path, folder: Path) -> None:
    """With the page's template, style and script, which are no modules."""
    options = ("test_mine.py", "-t", "mine", "--store", "store.sqlite", "--report", "out")
    done = run(installed_python, folder, "cortex_m_hil.cli", "nightly", *options)
    assert done.returncode == 0, done.stdout + done.stderr
    page = (folder / "out" / "index.html").read_text()
    assert all(text in page for text in ("test_mine.py::test_mine", "color-scheme", "showModal"))
