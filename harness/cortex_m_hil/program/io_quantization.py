"""Scale, zero point and range of inputs and outputs that are integers, as ExecuTorch's passes leave them in a `.pte`.

`QuantizeInputs` and `QuantizeOutputs` of `exir/passes/quantize_io_pass.py` remove the quantize and the dequantize
operator from a program, and write their arguments into constant methods: `input0_scale`, `input0_zp`, …
"""

from __future__ import annotations

import math
from typing import Any, Final, NoReturn

import numpy as np

from cortex_m_hil.errors import ProgramRejected
from cortex_m_hil.program.dataflow import Quantization
from cortex_m_hil.program.methods import DEFAULT_METHOD
from cortex_m_hil.program.pte_file import PteFile
from cortex_m_hil.program.schema import DTYPES
from cortex_m_hil.program.tensor import Array

KEYS: Final = ("scale", "zp", "quant_min", "quant_max", "dtype")
QUANTA: Final = ("int8", "uint8", "int16", "uint16")  # dtypes of quanta; other integers are indices and counts
_HINT: Final = "ExecuTorch's QuantizeInputs and QuantizeOutputs write all five: scale, zp, quant_min, quant_max, dtype"


def input_quantization(file: PteFile, number: int) -> Quantization | None:
    """Return the quantisation of an input whose integers are quanta; None if it has none.

    It is read from the program's constant methods for the input, else from the instruction that dequantises the input.

    Raises:
        ProgramRejected: the constants are incomplete, or are not a valid quantisation.
    """
    if file.input_specs()[number].dtype not in QUANTA:
        return None
    return _of_constants(file, "input", number) or file.dataflow.dequantized_inputs[number]


def output_quantization(file: PteFile, number: int) -> Quantization | None:
    """Return the quantisation of an output whose integers are quanta, read from the program's constant methods.

    Returns None and raises errors as `input_quantization` does.
    """
    return _of_constants(file, "output", number) if file.output_specs()[number].dtype in QUANTA else None


def quantized(values: Array, by: Quantization) -> tuple[Array, int]:
    """Return floats as quantised integers, and how many of them saturate. No value may be NaN.

    The arithmetic is that of the operator `quantize_per_tensor`, which the lowering removed from the program: float32,
    multiplied by the inverse of the scale, halves rounded to even.
    """
    with np.errstate(over="ignore", under="ignore"):
        scaled = np.rint(values.astype(np.float32) * np.float32(1.0 / by.scale)) + np.float32(by.zero_point)
    saturated = int(((scaled < by.qmin) | (scaled > by.qmax)).sum())
    return np.clip(scaled, by.qmin, by.qmax).astype(by.dtype), saturated


def dequantized(values: Array, by: Quantization) -> Array:
    """Return the float32 numbers that quantised integers represent, as `dequantize_per_tensor` computes them."""
    found: Array = (values.astype(np.int32) - by.zero_point).astype(np.float32) * np.float32(by.scale)
    return found


def _of_constants(file: PteFile, role: str, number: int) -> Quantization | None:
    """Return the quantisation that the constant methods of one input or output give; None without any.

    A constant's name begins with the method's name if the pass was told one. Otherwise it belongs to `forward`, or to
    the only method.
    """
    names = {key: f"{file.method}_{role}{number}_{key}" for key in KEYS}
    if not names.values() & file.constants.keys() and (len(file.methods) < 2 or file.method == DEFAULT_METHOD):
        names = {key: f"{role}{number}_{key}" for key in KEYS}
    found = {key: file.constants[name] for key, name in names.items() if name in file.constants}
    if not found:
        return None

    def refuse(problem: str) -> NoReturn:
        where = f"{file.source or 'program'}, method {file.method}, {role} {number}"
        raise ProgramRejected(f"{where}: {problem}", hint=_HINT)

    if missing := [names[key] for key in KEYS if key not in found]:
        refuse(f"the program has a constant {names[next(iter(found))]}, and no {' and no '.join(missing)}")
    for key, value in found.items():
        kind = float if key == "scale" else int
        if type(value) is not kind:
            told = repr(value) if isinstance(value, int | float | str) else type(value).__name__
            refuse(f"{names[key]} is {told}, and has to be {'a float' if kind is float else 'an integer'}")
    spec = file.input_specs()[number] if role == "input" else file.output_specs()[number]
    return _checked(found, names, spec.dtype, refuse)


def _checked(found: dict[str, Any], names: dict[str, str], dtype: str, refuse: Any) -> Quantization:
    """Return the quantisation that these constants give; call `refuse` with the reason if they are invalid."""
    scale, zero_point, low, high, number = (found[key] for key in KEYS)
    if DTYPES.get(number) != dtype:
        refuse(f"{names['dtype']} is {number} ({DTYPES.get(number, 'no dtype')}), and the tensor is {dtype}")
    with np.errstate(all="ignore"):
        narrow = float(np.float32(scale))
        if not (0 < narrow < math.inf and np.isfinite(np.float32(1 / narrow))):
            refuse(f"{names['scale']} is {scale!r}, and has to be positive and finite in float32, as its inverse")
    bounds = np.iinfo(dtype)
    if not bounds.min <= low < high <= bounds.max:
        refuse(f"{names['quant_min']} and {names['quant_max']} are {low} and {high}, which is no range of {dtype}")
    if not low <= zero_point <= high:
        refuse(f"{names['zp']} is {zero_point}, and the range is {low} to {high}")
    return Quantization(scale, zero_point, low, high, dtype)
