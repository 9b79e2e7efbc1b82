"""Makes the programs beside this file: `python tests/fuzz_seeds/make.py`. Needs torch and executorch.

Small, so that most of a file is fields and not weights. Weights follow a formula, as the canary's do.
"""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch

from harness.lowering import lower
from harness.targets import Isa


def _fill(module: torch.nn.Module) -> torch.nn.Module:
    with torch.no_grad():
        for number, parameter in enumerate(module.parameters()):
            values = ((5 * np.arange(parameter.numel()) + number) % 13 - 6) / 16
            parameter.copy_(torch.from_numpy(values.astype(np.float32)).reshape(parameter.shape))
    return module.eval()


def _input(*shape: int) -> tuple[Any, ...]:
    values = (5 * np.arange(int(np.prod(shape))) % 17 - 8) / 8
    return (torch.from_numpy(values.astype(np.float32)).reshape(shape),)


def _autoencoder() -> torch.nn.Module:
    sizes = (16, 8, 3, 8, 16)
    layers: list[torch.nn.Module] = []
    for inner, outer in pairwise(sizes):
        layers += [torch.nn.Linear(inner, outer), torch.nn.ReLU()]
    return torch.nn.Sequential(*layers[:-1])


def main() -> None:
    """`conv.pte` has scratch and lists, for the host's lint; the built-in runtime may lack its operators."""
    folder = Path(__file__).parent
    conv = torch.nn.Sequential(torch.nn.Conv2d(2, 3, 3, padding=1), torch.nn.AvgPool2d(2))
    for name, module, inputs in (
        ("linear", torch.nn.Linear(9, 5), _input(2, 9)),
        ("autoencoder", _autoencoder(), _input(1, 16)),
        ("conv", conv, _input(1, 2, 4, 4)),
    ):
        (folder / f"{name}.pte").write_bytes(lower(_fill(module), inputs, isa=Isa.SCALAR, name=name).pte)


if __name__ == "__main__":
    main()
