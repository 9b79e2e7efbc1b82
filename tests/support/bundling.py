"""Bundled programs (`.bpte`), written by ExecuTorch's own serialiser."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from executorch.devtools import BundledProgram
from executorch.devtools.bundled_program.config import MethodTestCase, MethodTestSuite
from executorch.devtools.bundled_program.serialize import serialize_from_bundled_program_to_flatbuffer

from cortex_m_hil.host.compiler_state.state import compiler_state

Values = Sequence[Any]


def bundle(pte: Path, cases: Sequence[tuple[Values, Values | None]], method: str = "forward") -> bytes:
    """Return the `.bpte` of a `.pte` with test cases: inputs and expected outputs as arrays, tensors or numbers."""
    suite = MethodTestSuite(
        method, [MethodTestCase(_torch(inputs), outputs and _torch(outputs)) for inputs, outputs in cases]
    )
    with compiler_state.own_work():  # later lowerings of this process keep their keys
        bundled = BundledProgram(None, [suite], pte_file_path=str(pte))
        return bytes(serialize_from_bundled_program_to_flatbuffer(bundled))


def _torch(values: Values) -> list[Any]:
    return [value if isinstance(value, (bool, int, float, torch.Tensor)) else torch.tensor(value) for value in values]
