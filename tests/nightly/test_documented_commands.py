"""The commands of README and of the pages on tools, as they stand, with the wheel, in a folder with what they name."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import pytest

from command_lines import IN_A_USERS_FOLDER, NOT_EXECUTED
from paths import REPOSITORY
from shown import blocks

DEADLINE: Final = 3600.0  # seconds for one command
HEAD: Final = """\
import torch


def test_head(hil):
    module = torch.nn.Sequential(torch.nn.Linear(64, 32), torch.nn.ReLU(), torch.nn.Linear(32, 10))
    hil.check(module, (torch.rand(1, 64),))
"""
FAILING: Final = """\
import torch


def test_model(hil):
    module = torch.nn.Sequential(torch.nn.Linear(64, 32), torch.nn.ReLU(), torch.nn.Linear(32, 10))
    hil.check(module, (torch.rand(1, 64),), eager_sqnr=90.0)
"""
NETS: Final = """\
import torch


def make():
    return torch.nn.Linear(64, 10), (torch.rand(1, 64),)
"""
MODEL: Final = """\
import torch

ModelUnderTest = torch.nn.Sequential(torch.nn.Linear(64, 32), torch.nn.ReLU(), torch.nn.Linear(32, 10))
ModelInputs = (torch.rand(1, 64),)
"""
# What ends with another exit status than 0: test_model.py fails.
FAILS: Final = re.compile(r"pytest .*test_model|hil (shrink|replay) |hil localize test_model")


def run(command: str, folder: Path, path: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PATH": path}
    return subprocess.run(
        ["bash", "-c", command], cwd=folder, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, text=True, timeout=DEADLINE, check=False,
    )  # fmt: skip


def write(folder: Path, files: Mapping[str, str]) -> None:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)


@pytest.fixture(scope="module")
def prepared(user_path: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Tests, a board, a program with inputs and outputs, bundles and a runner, by the names that the pages give."""
    folder = tmp_path_factory.mktemp("prepared")
    entries = next(block.text for block in blocks((REPOSITORY / "README.md").read_text()) if "my-m3" in block.text)
    tests = {
        "test_head.py": HEAD,
        "tests/test_mine.py": HEAD.replace("test_head", "test_mine"),
        "test_model.py": FAILING,
        "model.py": MODEL,
    }
    write(folder, {**tests, "targets.yaml": entries, "mine/nets.py": NETS, "mine/__init__.py": ""})
    shutil.copytree(REPOSITORY / "firmware" / "boards", folder / "firmware" / "boards")
    shutil.copytree(REPOSITORY / "firmware" / "boards" / "mps2", folder / "boards" / "an385")
    run("pytest --target=m4-qemu --keep-programs kept test_head.py", folder, user_path)
    (program,), (given,) = (folder / "kept").glob("*.pte"), (folder / "kept").glob("*.npy")
    shutil.copy(program, folder / "program.pte")
    shutil.copy(given, folder / "x.npy")
    run("hil run program.pte -t m4-qemu -i x.npy -o y.npy", folder, user_path)
    run("pytest --target=m4-qemu --hil-bundles=out --hil-localize test_model.py", folder, user_path)
    (bundle,) = (folder / "out").glob("*.hil.zip")
    shutil.copy(bundle, folder / "out" / "NAME.hil.zip")
    built = json.loads(run("hil build -t m4-qemu --json", folder, user_path).stdout)
    shutil.copy(built["runner"], folder / "runner.elf")
    return folder


@pytest.mark.parametrize("page", IN_A_USERS_FOLDER)
def test_the_commands_of_a_page_run(page: str, prepared: Path, user_path: str, tmp_path: Path) -> None:
    folder = tmp_path / "mine"
    shutil.copytree(prepared, folder)
    if page == "docs/boards.md":  # it makes this folder itself
        shutil.rmtree(folder / "boards")
    lines = [shown.command for block in blocks((REPOSITORY / page).read_text()) for shown in block.commands()]
    wrong = []
    for line in lines:
        if line not in NOT_EXECUTED:
            done = run(line, folder, user_path)
            if done.returncode != (1 if FAILS.match(line) else 0):
                wrong.append(f"$ {line}\nexit status {done.returncode}\n{done.stdout}")
    assert wrong == [], "\n".join(wrong)
