"""Programs, inputs and outputs in files that a user names."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Final, NoReturn

import numpy as np
import typer

from cortex_m_hil import flow
from cortex_m_hil.api import load_program
from cortex_m_hil.checks.inputs import Taken, dtype_advice, lost, scalar_example
from cortex_m_hil.diagnose.instruction_counts import check_model, program_of
from cortex_m_hil.errors import ConfigError, InfraError
from cortex_m_hil.errors.text import counted
from cortex_m_hil.host import arrays
from cortex_m_hil.lowering.named_modules import NETWORKS
from cortex_m_hil.program.bundled import SUFFIXES
from cortex_m_hil.program.example_inputs import example_inputs
from cortex_m_hil.program.model import PteFile
from cortex_m_hil.program.program import Program
from cortex_m_hil.program.schema import ValueKind
from cortex_m_hil.program.tensor import Array, HostTensor, TensorSpec
from cortex_m_hil.targets.cpu import Isa

NETWORKS_HELP: Final = f"one of {', '.join(NETWORKS)}; or package.module:function, which returns (module, inputs)"
ModelArgument = Annotated[
    str, typer.Argument(metavar="MODEL", help=f"A .pte or .bpte file; {NETWORKS_HELP}", show_default=False)
]
_NUMBERS = {ValueKind.INT: "iu", ValueKind.BOOL: "b", ValueKind.DOUBLE: "f"}  # numpy's dtype kinds


@dataclass(frozen=True)
class ProgramInputs:
    """The inputs of a program.

    Attributes:
        source: says where they are from.
        is_made: they follow a formula.
    """

    inputs: tuple[HostTensor, ...]
    source: str
    is_made: bool = False


def find_inputs(program: Program, pte: Path, paths: Sequence[Path]) -> ProgramInputs:
    """Return inputs of a program: those of `paths`, else those that --keep-programs left beside the `.pte`.

    Without these they are those of the first case of a `.bpte`, or follow a formula.

    Args:
        program: the program.
        pte: its file.
        paths: the files of --input.

    Raises:
        ConfigError: the files do not fit the program.
    """
    specs = program.file.input_specs()
    kept = [flow.kept_input(pte, number) for number in range(len(specs))]
    if paths:
        return ProgramInputs(_read_inputs(program, paths), f"those of {', '.join(map(str, paths))}")
    if any(map(os.path.lexists, kept)):
        return ProgramInputs(
            _read_inputs(program, kept), f"kept beside the program: {', '.join(one.name for one in kept)}"
        )
    if program.cases:
        return ProgramInputs(program.inputs, f"those of test case 0 of {pte.name}")
    if not specs:
        return ProgramInputs((), "the program takes none")
    return ProgramInputs(example_inputs(program), FORMULA, is_made=True)


FORMULA: Final = "made by a formula, since none are given and none lie beside the program"


def programs_of(model: str, paths: Sequence[Path]) -> Callable[[Isa], tuple[Program, str]]:
    """Return a function that returns a model for an ISA class, with inputs, and text that says where these are from.

    Args:
        model: a `.pte` or `.bpte`, which is the same for each class; or what `kernels.program_of` lowers.
        paths: the files of --input.

    Raises:
        ConfigError: there is no such model, or the inputs do not fit it.
    """
    check_model(model)
    if not model.endswith(SUFFIXES):
        if paths:
            raise ConfigError("--input is for a .pte file", hint="package.module:function returns its inputs")
        return lambda isa: (program_of(model, isa), f"those that {model} brings")
    program = load_program(Path(model))
    found = find_inputs(program, Path(model), paths)
    program = replace(program, inputs=found.inputs)
    return lambda _: (program, found.source)


def _read_inputs(program: Program, paths: Sequence[Path]) -> tuple[HostTensor, ...]:
    file = program.file
    taken = [Taken.of(file, number) for number in range(len(file.inputs))]
    return _read_all(f"{program.name} takes", "input", "--input", _sized(file, file.inputs, taken), paths)


def read_expected(program: Program, paths: Sequence[Path]) -> tuple[Array, ...]:
    """Return the expected array of each output, from files.

    Raises:
        ConfigError: a file does not fit its output, or is missing: that output would be compared with nothing.
    """
    file = program.file
    given = _sized(file, file.outputs, [Taken.of_output(file, number) for number in range(len(file.outputs))])
    found = _read_all(f"{program.name} has", "output", "--expect", given, paths)
    return tuple(one.array() for one in found)


def _sized(file: PteFile, values: Sequence[int], taken: Sequence[Taken]) -> list[tuple[Taken, bool]]:
    """Return for each of `taken` whether its shape is an upper bound."""
    return [(one, file.values[value].is_dynamic) for value, one in zip(values, taken, strict=True)]


def _read_all(
    whose: str, role: str, option: str, taken: Sequence[tuple[Taken, bool]], paths: Sequence[Path]
) -> tuple[HostTensor, ...]:
    if len(taken) != len(paths):
        problem = f"{whose} {counted(len(taken), role)}, {len(paths)} {option} given"
        raise ConfigError(problem, hint=_wanted_files(option, [_wanted(*one) for one in taken]))
    pairs = enumerate(zip(paths, taken, strict=True))
    return tuple(_read_tensor(path, f"{role} {number}", *one) for number, (path, one) in pairs)


def _wanted_files(option: str, wanted: Sequence[str]) -> str:
    """Return how often to give an option, and with what each time, for a hint."""
    if len(wanted) < 2:
        return f"give one {option} ({wanted[0]})" if wanted else f"give no {option}"
    return f"give {len(wanted)} {option}, in this order: {', '.join(f'({one})' for one in wanted)}"


def _wanted(taken: Taken, is_bound: bool) -> str:
    """Return the dtype, logical shape and quantisation as text; the dim order is not the user's business here."""
    spec = taken.spec
    if spec.kind is not ValueKind.TENSOR:
        return f"a single {spec.kind.value}"
    return f"{'at most ' if is_bound else ''}{replace(taken, spec=TensorSpec.contiguous(spec.dtype, spec.shape))}"


def _read_tensor(path: Path, role: str, taken: Taken, is_bound: bool) -> HostTensor:
    """Return the array of a file in the program's dim order and the target's byte order.

    Args:
        path: the file.
        role: what messages call the input or output.
        taken: what it takes.
        is_bound: whether its shape is an upper bound.

    Raises:
        ConfigError: the file cannot be read, or its array has another dtype or shape.
    """
    spec = taken.spec

    def refuse(dtype: np.dtype[Any], shape: tuple[int, ...], hint: str, more: str = "") -> NoReturn:
        problem = f"{path} is {dtype.name}{list(shape)}; {role} of the program is {_wanted(taken, is_bound)}"
        raise ConfigError(problem + more, hint=hint)

    def check(dtype: np.dtype[Any], shape: tuple[int, ...]) -> None:
        if spec.kind is not ValueKind.TENSOR:
            if shape != () or dtype.kind not in _NUMBERS[spec.kind]:
                example = f"numpy.array({scalar_example(spec.kind)})"
                refuse(dtype, shape, f"an array without dimensions: numpy.save(file, {example})")
        elif not (spec.within(shape) if is_bound else shape == spec.shape):
            refuse(dtype, shape, "the shape is the logical one, however the program lays the tensor out in memory")
        elif dtype.kind not in "biuf":
            refuse(dtype, shape, f"an array of {spec.dtype}")

    array = arrays.read_array(path, check)
    if spec.kind is not ValueKind.TENSOR:
        return _scalar(path, array.item())
    if array.dtype.name != spec.dtype:  # ">f4" is called float32 too
        refuse(array.dtype, array.shape, dtype_advice(taken, array), lost(taken, array))
    return HostTensor.from_array(array, spec.dim_order)


def _scalar(path: Path, value: int | float | bool) -> HostTensor:
    try:
        return HostTensor.from_scalar(value)
    except ConfigError as error:
        error.message = f"{path}: {error.message}"
        raise


def check_outputs(program: Program, paths: Sequence[Path]) -> None:
    """Raise ConfigError, before anything is run, where --output names too many files or one that cannot be written."""
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
