"""The text of files and scripts that several test modules write or run."""

from __future__ import annotations

from typing import Final

TEST_OF_KNOWN_ANSWER: Final = """\
import numpy

from cortex_m_hil.program.known_answer import known_answer


def test_runs(run_pte, target_spec):
    run_pte(known_answer(target_spec.target.isa).program, [numpy.zeros((1, 16), "float32")])
"""
TWO_LAYERS: Final = """
import torch

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = torch.nn.Linear(8, 4), torch.nn.Linear(4, {width})

    def forward(self, x):
        return self.second(self.first(x))

def make():
    torch.manual_seed(0)
    return Net(), (torch.rand(1, 8),)
"""
HIL_AND_ITS_IMPORTS: Final = """
import sys
from cortex_m_hil.cli.__main__ import main
try: main(sys.argv[1:])
finally: print("imported", *(name for name in sys.modules if name.partition(".")[0] in ("torch", "executorch")))
"""
"""Runs `hil`, and prints which modules of torch and ExecuTorch were imported."""
