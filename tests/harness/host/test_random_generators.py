"""Generators are seeded and put back, and torch has the same numbers whenever it is imported."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from cortex_m_hil.host.random_generators import RandomStream, seed, seeded

DEADLINE = 120.0  # seconds, in which torch is imported


def draw() -> tuple[float, float, float]:
    return random.random(), float(np.random.rand()), torch.rand(1).item()


def test_a_seed_decides_all_three() -> None:
    seed(7)
    first = draw()
    seed(7)
    assert draw() == first
    seed(8)
    assert not set(draw()) & set(first)


def test_a_block_leaves_no_trace_though_it_raises() -> None:
    seed(1)
    expected = [draw() for _ in range(3)]
    seed(1)
    found = [draw()]
    with pytest.raises(KeyError), seeded(2):
        inside = draw()
        raise KeyError
    found.append(draw())
    stream = RandomStream(1)
    with stream.resumed(), stream.resumed():
        assert draw() == expected[0]
    found.append(draw())
    with stream.resumed():
        assert [draw(), draw()] == expected[1:]
    assert found == expected and inside not in expected


# What is printed: what a module draws that imports torch, and what is drawn behind it, outside and inside of a block.
IMPORTS_TORCH = """
import json, sys
from pathlib import Path
if sys.argv[1] == "early":
    import torch
import random
from cortex_m_hil.host.random_generators import ModuleSeeder, seed, seeded
sys.meta_path.insert(0, ModuleSeeder(5, Path.cwd()))
sys.path.insert(0, str(Path.cwd()))
seed(1)
found = [random.random()]
if sys.argv[1] == "between":
    import torch
with seeded(2):
    if sys.argv[1] == "within":
        import torch
    found.append(random.random())
if sys.argv[2] == "shared":
    import shared
import model
import torch, shared
assert type(model.__loader__).__name__ == model.__spec__.loader.__class__.__name__ == "SourceFileLoader"
print(json.dumps([found, torch.rand(1).item(), random.random(), model.WEIGHTS, shared.WEIGHTS]))
"""


@pytest.mark.slow
def test_torch_and_modules_have_the_same_numbers_in_whatever_order_they_are_imported(tmp_path: Path) -> None:
    (tmp_path / "shared.py").write_text("import torch\nWEIGHTS = torch.rand(2).tolist()\n")
    (tmp_path / "model.py").write_text("import shared, torch\nWEIGHTS = torch.rand(3).tolist()\n")
    (tmp_path / "run.py").write_text(IMPORTS_TORCH)
    found = []
    for when, first in (("early", ""), ("between", "shared"), ("within", ""), ("late", "shared")):
        call = [sys.executable, "run.py", when, first]
        done = subprocess.run(call, cwd=tmp_path, capture_output=True, text=True, timeout=DEADLINE, check=False)
        assert done.returncode == 0, done.stderr
        found.append(json.loads(done.stdout))
    assert found[1:] == found[:1] * 3
    assert found[0][3][:2] == found[0][4]  # each module begins anew


def test_what_is_installed_is_left_alone(tmp_path: Path) -> None:
    """Also in an environment that is none of this interpreter's, as a `.pth` file may name one."""
    for folder in ("mine", "venv/site-packages", "elsewhere"):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / f"module_of_{Path(folder).parts[0]}.py").write_text(
            "import random\nDRAWN = random.random()\n"
        )
    places = [str(tmp_path / folder) for folder in ("mine", "venv/site-packages", "elsewhere")]
    script = (
        "import random, sys\nfrom pathlib import Path\n"
        "from cortex_m_hil.host.random_generators import ModuleSeeder, seed\n"
        f"sys.path[:0] = {places}\nsys.meta_path.insert(0, ModuleSeeder(5, Path({places[0]!r})))\nseed(1)\n"
        "import module_of_mine, module_of_elsewhere, module_of_venv\n"
        "expected = [random.Random(5).random()] * 2 + [random.Random(1).random()]\n"
        "assert [module_of_mine.DRAWN, module_of_elsewhere.DRAWN, module_of_venv.DRAWN] == expected\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True, timeout=DEADLINE)
