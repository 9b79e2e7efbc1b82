"""Lower networks of a few layers for every ISA class into FOLDER, and print the time of a lowering, as JSON.

    python ci/lowered_programs.py FOLDER

`ci/versions.py` runs this with each release of ExecuTorch and torch, and compares the files. The times are CPU seconds
for one network, by hil and by ExecuTorch's own tester (bench_lowering.py).
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import torch
from torch import nn

from bench_lowering import cpu_seconds
from cortex_m_hil.errors import HarnessError
from cortex_m_hil.lowering import lower
from cortex_m_hil.lowering.disk_cache import disk
from cortex_m_hil.targets.cpu import Isa

NETWORK: Final = "deep_autoencoder"  # the network whose lowering is timed


class Residual(nn.Module):
    """A sum, a product and a concatenation of a convolution's outputs."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(4, 4, 3, padding=1)

    def forward(self, x: Any) -> Any:
        y = self.conv(x)
        return torch.cat((x + y, x * y), 1)


class Attention(nn.Module):
    """A product of matrices, a softmax and a transposition."""

    def forward(self, x: Any) -> Any:
        return torch.softmax(x @ x.transpose(1, 2), -1) @ x


NETWORKS: Final[dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]]] = {
    "layers": (lambda: nn.Sequential(nn.Linear(24, 16), nn.ReLU(), nn.Linear(16, 10), nn.Softmax(-1)), (1, 24)),
    "convolutions": (
        lambda: nn.Sequential(
            nn.Conv2d(3, 8, 3, stride=2, padding=1), nn.BatchNorm2d(8), nn.ReLU6(),
            nn.Conv2d(8, 16, 3, groups=8, padding=1), nn.Hardswish(), nn.Conv2d(16, 8, 1), nn.MaxPool2d(2),
        ),
        (1, 3, 16, 16),
    ),
    "transposed": (lambda: nn.Sequential(nn.ConvTranspose2d(4, 6, 3, stride=2), nn.AvgPool2d(2)), (1, 4, 6, 6)),
    "residual": (Residual, (1, 4, 8, 8)),
    "attention": (Attention, (1, 6, 8)),
    "recurrent": (lambda: nn.GRU(4, 6, batch_first=True), (1, 3, 4)),
}  # fmt: skip


def main(folder: Path) -> None:
    """Write the programs, and print the times.

    For a network that a release refuses, a file with the message is written.
    """
    disk.enabled = False
    folder.mkdir(parents=True, exist_ok=True)
    for name, (made, shape) in NETWORKS.items():
        torch.manual_seed(0)
        module, inputs = made().eval(), (torch.randn(shape),)
        for isa in Isa:
            path = folder / f"{name}-{isa.value}"
            try:
                path.with_suffix(".pte").write_bytes(lower(module, inputs, isa=isa).pte)
            except HarnessError as error:
                path.with_suffix(".refused").write_text(error.message)
    print(json.dumps(cpu_seconds(NETWORK)))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
