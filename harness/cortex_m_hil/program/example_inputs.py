"""Inputs for a program that has no example inputs, computed by a formula."""

from __future__ import annotations

import numpy as np

from cortex_m_hil.program.program import Program
from cortex_m_hil.program.tensor import HostTensor, TensorSpec


def example_inputs(program: Program) -> tuple[HostTensor, ...]:
    """Return inputs for a program that has none: multiples of 1/8 between -1 and 1, the same on every machine.

    An input that is a number gets the number that the program was lowered with.
    """
    own = [program.file.values[index].scalar for index in program.file.inputs]
    specs = program.file.input_specs()
    return tuple(
        _example(spec) if number is None or isinstance(number, str) else HostTensor.from_scalar(number)
        for spec, number in zip(specs, own, strict=True)
    )


def _example(spec: TensorSpec) -> HostTensor:
    steps = (np.arange(spec.numel) * 5 % 17 - 8) / 8
    values = steps if spec.dtype.startswith("float") else steps * 8
    if spec.dtype == "bool" or spec.dtype.startswith("u"):
        values = np.abs(values)
    return HostTensor(spec, values.astype(np.dtype(spec.dtype).newbyteorder("<")).tobytes())
