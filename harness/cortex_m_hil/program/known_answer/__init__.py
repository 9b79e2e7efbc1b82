"""A tiny program for each ISA class with its right outputs, to check a board before blaming a user's program.

It needs no torch.
`lowering/known_answer_generator.py` made the files: a quantised linear layer whose bias dominates.
"""

from __future__ import annotations

import functools
import json
from dataclasses import dataclass
from importlib.resources import files
from typing import Final

import numpy as np

from cortex_m_hil.program.tensor import HostTensor
from cortex_m_hil.targets.cpu import Isa

INPUTS: Final = 16
OUTPUTS: Final = 8
DATA: Final = "known_answer.json"


@dataclass(frozen=True, slots=True)
class KnownAnswer:
    """A `.pte`, its inputs, and the outputs that every correct runtime computes, bit for bit."""

    program: bytes
    inputs: tuple[HostTensor, ...]
    expected: tuple[HostTensor, ...]


def file_name(isa: Isa) -> str:
    return f"{isa.value.lower()}.pte"


@functools.cache
def known_answer(isa: Isa) -> KnownAnswer:
    """Return the self-test's program of an ISA class: float32[1, 16] in, float32[1, 8] out."""
    folder = files(__package__)
    data = json.loads((folder / DATA).read_text())[isa.value]
    return KnownAnswer(
        program=(folder / file_name(isa)).read_bytes(),
        inputs=(_tensor(data["inputs"]),),
        expected=(_tensor(data["expected"]),),
    )


def _tensor(values: list[float]) -> HostTensor:
    return HostTensor.from_array(np.array([values], dtype=np.float32))
