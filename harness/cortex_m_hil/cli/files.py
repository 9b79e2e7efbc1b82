"""Programs, inputs and outputs in files that a user names."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from cortex_m_hil.api import load_program
from cortex_m_hil.cli.output import counted
from cortex_m_hil.errors import ConfigError, InfraError
from cortex_m_hil.host import files
from cortex_m_hil.program.program import Program
from cortex_m_hil.program.schema import ValueKind
from cortex_m_hil.program.tensor import HostTensor, TensorSpec

_NUMBERS = {ValueKind.INT: "iu", ValueKind.BOOL: "b", ValueKind.DOUBLE: "f"}  # numpy's dtype kinds


def read_program(path: Path) -> Program:
    return load_program(path)


def read_inputs(program: Program, paths: Sequence[Path]) -> tuple[HostTensor, ...]:
    specs = program.file.input_specs()
    if len(specs) != len(paths):
        wanted = " ".join(f"--input {number}.npy ({_wanted(spec)})" for number, spec in enumerate(specs))
        raise ConfigError(
            f"{program.name} takes {counted(len(specs), 'input')}, {len(paths)} given",
            hint=f"give {wanted or 'no --input'}",
        )
    return tuple(_read_input(path, number, spec) for number, (path, spec) in enumerate(zip(paths, specs, strict=True)))


def _wanted(spec: TensorSpec) -> str:
    """Dtype and logical shape; the dim order is not the user's business here."""
    return f"{spec.dtype}{list(spec.shape)}" if spec.kind is ValueKind.TENSOR else f"a single {spec.kind.value}"


def _read_input(path: Path, number: int, spec: TensorSpec) -> HostTensor:
    """The array in the program's dim order and the target's byte order. ConfigError if it is another's."""

    def check(dtype: np.dtype[Any], shape: tuple[int, ...]) -> None:
        if spec.kind is not ValueKind.TENSOR:
            good = shape == () and dtype.kind in _NUMBERS[spec.kind]
        else:
            good = (dtype.name, shape) == (spec.dtype, spec.shape)  # ">f4" is called float32 too
        if not good:
            raise ConfigError(
                f"{path} is {dtype.name}{list(shape)}; input {number} of the program is {_wanted(spec)}",
                hint="shapes are logical; the layout in memory is seen to here",
            )

    array = files.read_array(path, check)
    if spec.kind is not ValueKind.TENSOR:
        return _scalar(path, array.item(), spec)
    return HostTensor.from_array(array.astype(array.dtype.newbyteorder("<")), spec.dim_order)


def _scalar(path: Path, value: int | float | bool, spec: TensorSpec) -> HostTensor:
    try:
        return HostTensor.from_scalar(value)
    except struct.error:
        raise ConfigError(f"{path}: {value} does not fit {_wanted(spec)}, which has 64 bits") from None


def check_outputs(program: Program, paths: Sequence[Path]) -> None:
    """Before anything is run: what can be known of --output."""
    has = len(program.file.outputs)
    if len(paths) > has:
        raise ConfigError(f"{program.name} has {counted(has, 'output')}, {len(paths)} --output given")
    for path in paths:
        if path.is_dir() or not path.absolute().parent.is_dir():
            what = "it is a folder" if path.is_dir() else "its folder does not exist"
            raise ConfigError(f"cannot write --output {path}: {what}")


def write_output(path: Path, output: HostTensor) -> None:
    try:
        path.write_bytes(output.npy())
    except OSError as error:
        raise InfraError(f"cannot write --output {path}: {error.strerror}") from error
