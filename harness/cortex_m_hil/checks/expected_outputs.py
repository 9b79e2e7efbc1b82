"""A user's expected outputs: checks that arrays fit a program's outputs, and the program with them as reference.

Files and arrays, from the command line and the API, are all checked here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final, NoReturn

import numpy as np

from cortex_m_hil.checks.input_checks import InputQuantizer, Taken, as_array, dtype_advice, lost, scalar_example
from cortex_m_hil.errors import ConfigError
from cortex_m_hil.errors.text import counted
from cortex_m_hil.program.program import Program, References
from cortex_m_hil.program.schema import ValueKind
from cortex_m_hil.program.tensor import Array, HostTensor

_NUMBERS: Final = {ValueKind.INT: "iu", ValueKind.BOOL: "b", ValueKind.DOUBLE: "f"}  # numpy's dtype kinds


def expecting(
    program: Program, inputs: tuple[HostTensor, ...], expected: tuple[Array, ...], *, by_sqnr: bool = False
) -> Program:
    """Return the program with these inputs, and with these expected outputs as its only reference.

    Args:
        program: the program.
        inputs: the inputs.
        expected: the expected outputs.
        by_sqnr: whether they were computed by other arithmetic, so that quantised outputs are judged by their SQNR.
    """
    references = References(expected=expected, eager=expected if by_sqnr else None)
    return replace(program, inputs=inputs, reference=lambda _: references)


def in_quanta(program: Program) -> Program:
    """Return the program with its quantised outputs judged by their distance in quanta alone, not by SQNR."""
    reference = program.reference
    if reference is None:
        return program

    def without_eager(given: tuple[HostTensor, ...]) -> References:
        found = reference(given)
        return found if found.expected is None else replace(found, eager=None)

    return replace(program, reference=without_eager)


def expected_outputs(program: Program, values: Sequence[Any]) -> tuple[Array, ...]:
    """Return the expected array of each output, without a conversion.

    Args:
        program: the program.
        values: arrays of logical shape and the outputs' dtypes; numbers for scalars.

    Raises:
        ConfigError: the values do not fit the program's outputs in number, dtype or shape.
    """
    taken = outputs_taken(program)
    if len(taken) != len(values):
        what = f"{program.name} has {counted(len(taken), 'output')}, {len(values)} expected given"
        raise ConfigError(what, hint=f"expected=({''.join(f'{one.described}, ' for one in taken).rstrip()})")
    pairs = enumerate(zip(values, taken, strict=True))
    return tuple(
        fitted(_array(value, f"expected[{number}]"), one, f"output {number}", f"expected[{number}]").array()
        for number, (value, one) in pairs
    )


def outputs_taken(program: Program) -> list[Taken]:
    """Return the spec and quantisation that the expected array of each output must have."""
    return [Taken.of_output(program.file, number) for number in range(len(program.file.outputs))]


def _array(value: Any, place: str) -> Array:
    if isinstance(value, HostTensor):
        return value.array()
    if isinstance(value, bool | int | float):
        return np.asarray(value)
    try:
        return as_array(value)
    except ConfigError as error:
        error.message = f"{place}: {error.message}"
        raise


def require_form(dtype: np.dtype[Any], shape: tuple[int, ...], taken: Taken, role: str, place: str) -> None:
    """Require that an array has the dtype kind and shape of an input or output; values are not looked at.

    Args:
        dtype: the array's dtype.
        shape: the array's shape.
        taken: the spec of the input or output.
        role: the name of the input or output in messages.
        place: the name of the array in messages.

    Raises:
        ConfigError: the array has another shape, or is not of numbers.
    """
    spec = taken.spec
    if spec.kind is not ValueKind.TENSOR:
        if shape != () or dtype.kind not in _NUMBERS[spec.kind]:
            example = f"numpy.array({scalar_example(spec.kind)})"
            _refuse(dtype, shape, taken, role, place, hint=f"an array without dimensions: {example}")
    elif not (spec.within(shape) if taken.is_bound else shape == spec.shape):
        hint = "the shape is the logical one, however the program lays the tensor out in memory"
        _refuse(dtype, shape, taken, role, place, hint=hint)
    elif dtype.kind not in "biuf":
        _refuse(dtype, shape, taken, role, place, hint=f"an array of {spec.dtype}")


def fitted(array: Array, taken: Taken, role: str, place: str, quantizer: InputQuantizer | None = None) -> HostTensor:
    """Return an array in the program's dim order and the target's byte order; no value is converted.

    Args:
        array: an array of logical shape.
        taken: the spec of the input or output.
        role: the name of the input or output in messages.
        place: the name of the array in messages.
        quantizer: quantises floats for an input of quanta; None: floats are not to be quantised.

    Raises:
        ConfigError: the array has another dtype or shape.
    """
    require_form(array.dtype, array.shape, taken, role, place)
    spec = taken.spec
    if spec.kind is not ValueKind.TENSOR:
        try:
            return HostTensor.from_scalar(array.item())
        except ConfigError as error:
            error.message = f"{place}: {error.message}"
            raise
    if quantizer is not None:
        array = quantizer.quantize(array, taken, place)
    if array.dtype.name != spec.dtype:  # the name of ">f4" is float32 too
        hint, more = dtype_advice(taken, array), lost(taken, array)
        _refuse(array.dtype, array.shape, taken, role, place, hint=hint, more=more)
    return HostTensor.from_array(array, spec.dim_order)


def _refuse(
    dtype: np.dtype[Any], shape: tuple[int, ...], taken: Taken, role: str, place: str, *, hint: str, more: str = ""
) -> NoReturn:
    problem = f"{place} is {dtype.name}{list(shape)}; {role} of the program is {taken.described}"
    raise ConfigError(problem + more, hint=hint)
