"""The commands of README and of the pages on tools, as they stand, with the wheel, in a folder with what they name."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Final

import pytest

from command_lines import CHECKOUTS, IN_A_CHECKOUT, IN_A_USERS_FOLDER, NOT_EXECUTED, TUTORIALS, WITH_CHECKOUTS
from documented import Shell, environment_of, shell, write
from installed import executorch_of_this_machine
from paths import REPOSITORY
from prepared_pages import PREPARE
from shown import blocks, text_of

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
# What ends with another exit status than 0: test_model.py fails, and a virtual board runs until Ctrl-C.
STATUSES: Final = {
    r"pytest .*test_model|hil (shrink|replay) |hil localize test_model": 1,
    r"hil board virtual f405$": 130,
}
# What pages say that these print.
SAID: Final = {
    "hil launch build/zephyr/zephyr.elf -t m3-qemu --until 'Hello World'": "Hello World",
    "hil launch executor_runner.elf -t m55-qemu --folder files -- -m model.pte -i input.bin": "Inferences: 1",
    "hil bisect run -- pytest --target=m4-qemu test_head.py::test_head": "is the first bad commit",
    "hil evaluate model:trained --data test.npz -t m4-qemu --min-top1 0.85": "top-1",
    "pytest --target=vboard-f405 tests/targets": "1 passed",
}


@pytest.fixture(scope="module")
def prepared(user_path: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Tests, a board, a program with inputs and outputs, bundles and a runner, by the names that the pages give."""
    made = tmp_path_factory.mktemp("prepared")
    folder = made / "folder"
    folder.mkdir()
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
    opened = Shell(folder, environment_of(user_path, made))
    opened.run("pytest --target=m4-qemu --keep-programs kept test_head.py")
    (program,), (given,) = (folder / "kept").glob("*.pte"), (folder / "kept").glob("*.npy")
    shutil.copy(program, folder / "program.pte")
    shutil.copy(given, folder / "x.npy")
    opened.run("hil run program.pte -t m4-qemu -i x.npy -o y.npy")
    opened.run("pytest --target=m4-qemu --hil-bundles=out --hil-localize test_model.py")
    (bundle,) = (folder / "out").glob("*.hil.zip")
    shutil.copy(bundle, folder / "out" / "NAME.hil.zip")
    built = json.loads(opened.run("hil build -t m4-qemu --json 2>messages").said)
    shutil.copy(built["runner"], folder / "runner.elf")
    return folder


def status_of(line: str) -> int:
    return next((status for pattern, status in STATUSES.items() if re.match(pattern, line)), 0)


@pytest.mark.parametrize("page", IN_A_USERS_FOLDER)
def test_the_commands_of_a_page_run(page: str, prepared: Path, user_path: str, tmp_path: Path) -> None:
    folder = tmp_path / "mine"
    shutil.copytree(prepared, folder)
    lines = commands_of(page)
    if set(lines) <= NOT_EXECUTED:
        pytest.skip("HIL_TEST_CHECKOUTS names no folder with ExecuTorch's and CMSIS-NN's")
    installs = bool(CHECKOUTS) and not WITH_CHECKOUTS.isdisjoint(lines)
    found = executorch_of_this_machine() if installs else nullcontext()
    with found, shell(folder, environment_of(user_path, tmp_path), DEADLINE) as opened:
        if page in PREPARE:
            PREPARE[page](opened)
        if installs:
            _with_executorch(opened)
        _execute(opened, lines)


@pytest.mark.parametrize("page", IN_A_CHECKOUT)
def test_the_commands_of_a_page_run_in_this_repository(page: str, user_path: str, tmp_path: Path) -> None:
    folder = tmp_path / "clone"
    subprocess.run(["git", "clone", "--quiet", str(REPOSITORY), str(folder)], check=True, timeout=DEADLINE)
    (folder / ".venv").symlink_to(sys.prefix)
    with shell(folder, environment_of(user_path, tmp_path), DEADLINE) as opened:
        _execute(opened, commands_of(page))


def commands_of(page: str) -> list[str]:
    """Return the commands of a page, but for those of a section that is a tutorial."""
    text = text_of(page)
    for tutorial in TUTORIALS:
        if tutorial.startswith(f"{page}#"):
            text = text.replace(text_of(tutorial), "")
    return [shown.command for block in blocks(text) for shown in block.commands()]


def _with_executorch(opened: Shell) -> None:
    """Checkouts where the docs have them, and installed: a page need not begin with that."""
    for name in ("executorch", "CMSIS-NN"):
        Path(opened.environment["HOME"], name).symlink_to(Path(CHECKOUTS, name).absolute())
    installed = opened.run("hil executorch install --source ~/executorch --cpu cortex-m4 --cmsis-nn ~/CMSIS-NN")
    assert installed.status == 0, installed.said


def _execute(opened: Shell, lines: Sequence[str]) -> None:
    wrong = []
    for line in lines:
        if line not in NOT_EXECUTED:
            done = opened.run(line)
            if done.status != status_of(line) or SAID.get(line, "") not in done.said:
                wrong.append(f"$ {line}\nexit status {done.status}\n{done.said}")
    assert wrong == [], "\n".join(wrong)
