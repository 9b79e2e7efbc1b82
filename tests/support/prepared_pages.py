"""Files that pages name and that differ for every user: data sets, ELFs, a history of commits, a second checkout."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

import numpy as np

from cortex_m_hil.lowering.named_modules import load_named_module
from documented import Shell, write
from file_texts import TEST_OF_KNOWN_ANSWER
from paths import REPOSITORY
from repositories import Repository
from small_programs import small_program

PASSING: Final = """\
import torch


def test_model(hil):
    hil.check(torch.nn.ReLU(), (torch.rand(1, 8) - 0.5,))
"""
FLOATS: Final = """\
from pathlib import Path

import torch

import cortex_m_hil as hil

program = hil.lower(torch.nn.Sigmoid(), (torch.rand(1, 8),), isa=hil.Isa.DSP, quantize=False)
Path("floats.pte").write_bytes(program.pte)
"""
TRAINED: Final = """\
import torch


def trained():
    layer = torch.nn.Linear(4, 2)
    layer.weight.data = torch.tensor([[-1.0] * 4, [1.0] * 4])
    layer.bias.data = torch.zeros(2)
    return layer, (torch.ones(1, 4),)
"""
KEPT: Final = """\
import torch
from model import trained


def test_trained(hil):
    torch.manual_seed(0)
    samples = [(torch.randn(1, 4),) for _ in range(100)]
    hil.check(trained()[0], samples[0], calibration=samples)
"""
RECIPE: Final = """\
import recipe
import torch


def test_head(hil):
    hil.check(torch.nn.Linear(64, 10), (torch.rand(1, 64),), eager_sqnr=recipe.SQNR)
"""
KEYWORDS: Final = 8  # fewer samples than tell a collapse: the network is not trained
HELLO: Final = 'void work(void) { say("*** Booting Zephyr OS ***\\n"); put("Hello World! mps2\\r\\n"); }'
RUNNER: Final = """
void work(void) {
  static char words[200];
  const void* line[2] = {words, (void*)200};
  call(0x15, line);
  const void* file[3] = {"input.bin", (void*)1, (void*)9};
  say(words), say("\\n"), say(call(1, file) < 0 ? "no input\\n" : "Inferences: 1\\n");
}
"""


def _elfs(shell: Shell) -> None:
    folder = shell.folder
    small_program(folder, HELLO, name="zephyr.elf")
    (folder / "build" / "zephyr").mkdir(parents=True)
    shutil.copy(folder / "zephyr.elf", folder / "build" / "zephyr")
    small_program(folder, RUNNER, cpu="cortex-m55", name="executor_runner.elf")
    write(folder, {"files/input.bin": "1234", "files/model.pte": "5678"})


def _data_sets(shell: Shell) -> None:
    """Write the data sets. The float network labels the keywords, so it is right, as a trained one would be."""
    numbers = np.random.default_rng(0)
    inputs = numbers.normal(0, 1, (400, 4)).astype("float32")
    np.savez(shell.folder / "test.npz", inputs=inputs, labels=(inputs.sum(axis=1) > 0).astype(int))
    write(shell.folder, {"model.py": TRAINED, "test_trained.py": KEPT})
    shutil.rmtree(shell.folder / "kept")
    kept = shell.run("pytest --target=m4-qemu --keep-programs kept test_trained.py")
    assert kept.status == 0, kept.said
    (program,) = (shell.folder / "kept").glob("*.pte")
    shutil.copy(program, shell.folder / "program.pte")
    module, (example,) = load_named_module("ds_cnn")
    rows = []
    for number in range(KEYWORDS):
        sample = numbers.integers(-128, 128, (1, 49, 10), dtype="int8")
        answer = int(module.eval()(example.new_tensor(sample.astype("float32")).reshape(example.shape)).argmax())
        rows.append(f"{number}.bin, 12, {answer}\n")
        (shell.folder / "datasets" / "kws01").mkdir(parents=True, exist_ok=True)
        (shell.folder / "datasets" / "kws01" / f"{number}.bin").write_bytes(sample.tobytes())
    write(shell.folder, {"datasets/kws01/y_labels.csv": "".join(rows)})


def _history(path: Path, good: str, bad: str) -> None:
    """Make six commits, the fourth of which makes the test fail."""
    made = Repository(path)
    for number in range(6):
        made.commit({"src/recipe.py": f"SQNR = {90.0 if number > 2 else 10.0}\n", "notes": f"{number}\n"})
    made.git("tag", good, made.commits[0])
    made.git("tag", bad, made.commits[-1])


def _executorch(shell: Shell) -> None:
    """Write a repository in place of ExecuTorch's, with the Python that the test imports: the real one is gigabytes."""
    _history(Path(shell.environment["HOME"]) / "executorch", "v1.3.1", "v1.4.0")
    write(shell.folder, {"test_head.py": RECIPE})


def _readme(shell: Shell) -> None:
    _elfs(shell)
    _history(shell.folder / "PATH", "GOOD", "BAD")
    write(shell.folder, {"nightly.yaml": "tests: [tests]\ntargets: [m4-qemu]\n"})


def _boards(shell: Shell) -> None:
    write(shell.folder, {"tests/targets/test_it.py": TEST_OF_KNOWN_ANSWER})


def _programs(shell: Shell) -> None:
    write(shell.folder, {"floats.py": FLOATS})
    floats = shell.run("python floats.py")
    assert floats.status == 0, floats.said


def _small_suites(shell: Shell) -> None:
    (shell.folder / "ci").symlink_to(REPOSITORY / "ci")
    write(shell.folder, {"tests/targets/test_it.py": TEST_OF_KNOWN_ANSWER, "test_model.py": PASSING})
    other = shell.folder.parent / "other"
    write(other, {"tests/targets/test_it.py": TEST_OF_KNOWN_ANSWER})
    (other / ".venv").mkdir(parents=True)
    (other / ".venv" / "bin").symlink_to(shell.environment["PATH"].partition(":")[0])


PREPARE: Final[Mapping[str, Callable[[Shell], None]]] = {
    "README.md": _readme,
    "docs/bisect.md": _executorch,
    "docs/boards.md": _boards,
    "docs/command-line.md": _programs,
    "docs/memory.md": _programs,
    "docs/own-firmware.md": _elfs,
    "docs/your-program.md": _programs,
    "docs/evaluate.md": _data_sets,
    "docs/maintainers.md": _small_suites,
}
