"""Bugs of kernels, planted one at a time into a copy of the firmware, to test which checks find and name them.

Each bug is a patch in `planted_bugs/`, which begins with the bug's name, the affected operators, and the ISA classes on
which it shows.
"""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import torch
from torch import nn

from cortex_m_hil.host.paths import package_data
from cortex_m_hil.targets.cpu import Isa

FOLDER: Final = Path(__file__).parent / "planted_bugs"
DEADLINE: Final = 60.0  # seconds for `patch`
SIDE: Final = 24  # pixels of the network's image


class Network(nn.Module):
    """A network for (1, 3, `side`, `side`): every operator that has a bug, and channels that fill no block.

    The sums of a large pool exceed 16 bits (where `side` is 24), and hide what is wrong in a few pixels; a small one
    shows that.
    """

    def __init__(self, side: int) -> None:
        super().__init__()
        self.small, self.large = (side // 4 + 1, side // 2 + 1), (side // 2 + 2, side + 2)
        self.entry = nn.Sequential(nn.Conv2d(3, 19, 3, stride=(2, 1), padding=1), nn.ReLU())
        self.depthwise = nn.Conv2d(19, 19, 3, padding=1, groups=19)
        self.exit = nn.Sequential(nn.Conv2d(19, 37, 1), nn.ReLU())
        self.overall, self.head = nn.Linear(37, 10), nn.Linear(4 * 37, 10)

    def forward(self, x: Any) -> Any:
        x = self.entry(x)
        x = nn.functional.pad(x + self.depthwise(x), (1, 1, 1, 1))
        x = self.exit(x)
        large, small = (nn.functional.avg_pool2d(x, window) for window in (self.large, self.small))
        return self.overall(torch.flatten(large, 1)) + self.head(torch.flatten(small, 1))


def network(side: int = SIDE) -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
    """Return the network for images of `side` × `side` (a multiple of 4) and its inputs, always the same."""
    torch.manual_seed(5)
    return Network(side).eval(), (torch.rand(1, 3, side, side) * 2 - 0.7,)


@dataclass(frozen=True)
class Bug:
    """A bug of a kernel, and the `operators` that have it, by name without namespace and overload."""

    patch: Path
    name: str
    operators: frozenset[str]
    classes: frozenset[Isa]

    def plant(self, folder: Path) -> Path:
        """Return a copy of the firmware that has the bug."""
        return plant(self.patch, folder)


def plant(patch: Path, folder: Path) -> Path:
    """Return a copy of the firmware with a patch. Raise an error where it does not apply any more."""
    shutil.copytree(package_data("firmware"), folder / "firmware")
    apply = ["patch", "--batch", "--silent", "-p1", "-i", str(patch)]
    subprocess.run(apply, cwd=folder, check=True, timeout=DEADLINE)
    return folder / "firmware"


def _read(patch: Path) -> Bug:
    name, operators, classes, *_ = patch.read_text().splitlines()
    found = [line.partition(": ")[2].split() for line in (operators, classes)]
    return Bug(patch, name, frozenset(found[0]), frozenset(Isa(one) for one in found[1]))


BUGS: Final = {patch.stem: _read(patch) for patch in sorted(FOLDER.glob("*.patch"))}
