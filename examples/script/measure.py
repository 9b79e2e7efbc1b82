"""What a network takes on each of several targets: python measure.py TARGET..."""

from __future__ import annotations

import sys
from pathlib import Path

import torch

import cortex_m_hil as hil


def network() -> torch.nn.Module:
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(32, 16), torch.nn.ReLU(), torch.nn.Linear(16, 4))


def measure(name: str, inputs: tuple[torch.Tensor]) -> str:
    """A line of the table. Raises VerdictError where the outputs are wrong."""
    with hil.open(name) as target:
        program = target.lower(network(), inputs)
        Path(f"sensor-{target.isa.value.lower()}.pte").write_bytes(program.pte)
        checked = target.verify(program)
    program_bytes, tensor_bytes = (checked.result.stats[part].used for part in ("program", "planned"))
    sqnr = checked.comparison.outputs[0].sqnr_db
    return f"{name:10} {target.isa.value:6} {program_bytes:9} {tensor_bytes:9} {sqnr:6.1f} dB"


def main(names: list[str]) -> int:
    status = 0
    inputs = (torch.rand(1, 32, generator=torch.Generator().manual_seed(1)),)
    print(f"{'target':10} {'path':6} {'program':>9} {'tensors':>9}   SQNR  (bytes)")
    for name in names:
        try:
            print(measure(name, inputs))
        except hil.VerdictError as error:  # about the program
            print(f"{name:10} {error.describe()}")
            status = max(status, 1)
        except hil.InfraError as error:  # not about the program
            print(f"{name:10} {error.describe()}")
            status = 3
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
