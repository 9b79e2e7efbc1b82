"""Programs, inputs and outputs in files that a user names."""

from __future__ import annotations

import os
import shlex
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from cortex_m_hil import flow
from cortex_m_hil.errors import ConfigError, InfraError
from cortex_m_hil.fuzz.judge import example_inputs
from cortex_m_hil.host import arrays
from cortex_m_hil.program.model import PteFile
from cortex_m_hil.program.program import Program
from cortex_m_hil.program.schema import ValueKind
from cortex_m_hil.program.tensor import Array, HostTensor, TensorSpec
from cortex_m_hil.text import counted

_NUMBERS = {ValueKind.INT: "iu", ValueKind.BOOL: "b", ValueKind.DOUBLE: "f"}  # numpy's dtype kinds


def read_inputs(program: Program, paths: Sequence[Path]) -> tuple[HostTensor, ...]:
    file = program.file
    return _read_all(f"{program.name} takes", "input", "--input", _sized(file, file.inputs, file.input_specs()), paths)


def find_inputs(program: Program, pte: Path, paths: Sequence[Path]) -> tuple[HostTensor, ...]:
    """Those of `paths`; else those that --keep-programs left beside the `.pte`.

    Else those of the first case of a `.bpte`, or such as follow a formula.
    """
    kept = [flow.kept_input(pte, number) for number in range(len(program.file.input_specs()))]
    if paths or any(map(os.path.lexists, kept)):
        return read_inputs(program, paths or kept)
    return program.inputs or example_inputs(program)


def read_expected(program: Program, paths: Sequence[Path]) -> tuple[Array, ...]:
    """An array for each output: one that is left out would be compared with nothing."""
    file = program.file
    specs = _sized(file, file.outputs, file.output_specs())
    found = _read_all(f"{program.name} has", "output", "--expect", specs, paths)
    return tuple(one.array() for one in found)


def _sized(file: PteFile, values: Sequence[int], specs: Sequence[TensorSpec]) -> list[tuple[TensorSpec, bool]]:
    """Each spec, and whether its shape is an upper bound."""
    return [(spec, file.values[value].is_dynamic) for value, spec in zip(values, specs, strict=True)]


def _read_all(
    whose: str, role: str, option: str, specs: Sequence[tuple[TensorSpec, bool]], paths: Sequence[Path]
) -> tuple[HostTensor, ...]:
    if len(specs) != len(paths):
        wanted = " ".join(f"{option} {number}.npy ({_wanted(*spec)})" for number, spec in enumerate(specs))
        problem = f"{whose} {counted(len(specs), role)}, {len(paths)} {option} given"
        raise ConfigError(problem, hint=f"give {wanted or f'no {option}'}")
    pairs = enumerate(zip(paths, specs, strict=True))
    return tuple(_read_tensor(path, f"{role} {number}", *spec) for number, (path, spec) in pairs)


def _wanted(spec: TensorSpec, is_bound: bool) -> str:
    """Dtype and logical shape; the dim order is not the user's business here."""
    if spec.kind is not ValueKind.TENSOR:
        return f"a single {spec.kind.value}"
    return f"{'at most ' if is_bound else ''}{spec.dtype}{list(spec.shape)}"


def _read_tensor(path: Path, role: str, spec: TensorSpec, is_bound: bool) -> HostTensor:
    """The array in the program's dim order and the target's byte order. ConfigError if it is another's."""

    def check(dtype: np.dtype[Any], shape: tuple[int, ...]) -> None:
        if spec.kind is not ValueKind.TENSOR:
            good = shape == () and dtype.kind in _NUMBERS[spec.kind]
            hint = "an array without dimensions: numpy.save(file, numpy.array(value))"
        else:
            fits = spec.within(shape) if is_bound else shape == spec.shape
            good = dtype.name == spec.dtype and fits  # ">f4" is called float32 too
            hint = f"array.astype({spec.dtype!r})"
            if not fits:
                hint = "the shape is the logical one, however the program lays the tensor out in memory"
        if not good:
            problem = f"{path} is {dtype.name}{list(shape)}; {role} of the program is {_wanted(spec, is_bound)}"
            raise ConfigError(problem, hint=hint)

    array = arrays.read_array(path, check)
    if spec.kind is not ValueKind.TENSOR:
        return _scalar(path, array.item(), spec)
    return HostTensor.from_array(array.astype(array.dtype.newbyteorder("<")), spec.dim_order)


def _scalar(path: Path, value: int | float | bool, spec: TensorSpec) -> HostTensor:
    try:
        return HostTensor.from_scalar(value)
    except struct.error:
        problem = f"{path}: {value} does not fit {_wanted(spec, False)}, which has 64 bits"
        raise ConfigError(problem, hint="save a smaller number") from None


def check_outputs(program: Program, paths: Sequence[Path]) -> None:
    """Before anything is run: what can be known of --output."""
    has = len(program.file.outputs)
    if len(paths) > has:
        problem = f"{program.name} has {counted(has, 'output')}, {len(paths)} --output given"
        raise ConfigError(problem, hint=f"give at most {has} --output")
    for path in paths:
        if path.is_dir() or not path.absolute().parent.is_dir():
            what, hint = "it is a folder", f"name a file in it: --output {path / 'output.npy'}"
            if not path.is_dir():
                what, hint = "its folder does not exist", f"mkdir -p {shlex.quote(str(path.parent))}"
            raise ConfigError(f"cannot write --output {path}: {what}", hint=hint)


def write_output(path: Path, output: HostTensor) -> None:
    try:
        path.write_bytes(output.npy())
    except OSError as error:
        raise InfraError(f"cannot write --output {path}: {error.strerror}", hint="another --output") from error
