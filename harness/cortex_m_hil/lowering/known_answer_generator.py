"""Generator of the self-test's programs. `python -m cortex_m_hil.lowering.known_answer_generator` rewrites them.

Weights, bias and input follow explicit formulas, so that every version of torch gives the same numbers. The bias is
large compared with the products: a runtime that ignores the bias cannot pass.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from cortex_m_hil.lowering.installed_executorch import executorch_api
from cortex_m_hil.lowering.pipeline import lower
from cortex_m_hil.program import known_answer
from cortex_m_hil.program.known_answer import DATA, INPUTS, OUTPUTS, file_name
from cortex_m_hil.program.program import Program
from cortex_m_hil.targets.cpu import Isa


def module() -> Any:
    """Return a linear layer 16 → 8 with weight[o, i] = ((7o + 3i) mod 17 - 8) / 32 and bias[o] = (o - 3) / 2."""
    torch = executorch_api().torch
    linear = torch.nn.Linear(INPUTS, OUTPUTS)
    rows, columns = np.indices((OUTPUTS, INPUTS))
    with torch.no_grad():
        linear.weight.copy_(torch.from_numpy(((7 * rows + 3 * columns) % 17 - 8) / 32))
        linear.bias.copy_(torch.from_numpy((np.arange(OUTPUTS) - 3) / 2))
    return linear


def inputs() -> tuple[Any, ...]:
    """Return a tuple with the input x[i] = (5i mod 11 - 5) / 8, of shape [1, 16]."""
    values = ((5 * np.arange(INPUTS)) % 11 - 5) / 8
    return (executorch_api().torch.from_numpy(values.astype(np.float32)[None]),)


def known_answer_program(isa: Isa) -> Program:
    """Return the self-test's program of an ISA class, with its reference."""
    return lower(module(), inputs(), isa=isa, name=f"self-test-{isa.value.lower()}")


def write_known_answers(folder: Path) -> None:
    """Write a `.pte` for each ISA class, and one JSON file with the input and expected output, the same for all."""
    data: dict[str, dict[str, list[float]]] = {}
    for isa in Isa:
        program = known_answer_program(isa)
        assert program.reference is not None
        expected = program.reference(program.inputs).dialect
        assert expected is not None
        (folder / file_name(isa)).write_bytes(program.pte)
        data[isa.value] = {
            # Writing a float32 as a decimal number loses nothing.
            "inputs": [float(item) for item in program.inputs[0].array().flat],
            "expected": [float(item) for item in expected[0].flat],
        }
    (folder / DATA).write_text(json.dumps(data, indent=1) + "\n")


if __name__ == "__main__":
    write_known_answers(Path(known_answer.__file__).parent)
