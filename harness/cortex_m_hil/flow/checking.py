"""The pipeline of a test: lower, lint, run, compare."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from cortex_m_hil.checks.compare import compare
from cortex_m_hil.checks.comparison import Comparison
from cortex_m_hil.checks.tolerance import Tolerance
from cortex_m_hil.flow.dut import Dut
from cortex_m_hil.flow.execution import Guards
from cortex_m_hil.flow.running import run
from cortex_m_hil.program.program import Program, References
from cortex_m_hil.program.tensor import HostTensor
from cortex_m_hil.results import RunResult
from cortex_m_hil.targets.cpu import Isa


def lower(module: Any, inputs: tuple[Any, ...], *, isa: Isa, **options: Any) -> Program:
    """`lowering.lower`; torch is imported here and not before."""
    from cortex_m_hil import lowering

    return lowering.lower(module, inputs, isa=isa, **options)


@dataclass(frozen=True)
class Checked:
    """What `check` found on the way."""

    program: Program
    result: RunResult
    comparison: Comparison


def check(
    dut: Dut,
    module: Any,
    inputs: tuple[Any, ...],
    *,
    tolerance: Tolerance,
    isa: Isa | None = None,
    linted: bool = True,
    observe: Callable[[Checked], None] = lambda _: None,
    calibration: Iterable[tuple[Any, ...]] | None = None,
    quantize: bool = True,
    layout: str = "channels_last",
    redzones: bool = False,
    guards: Guards | None = None,
) -> Checked:
    """Lowers, lints, runs, compares; raises on a bad verdict, after telling `observe` what was measured."""
    options = {"calibration": calibration, "quantize": quantize, "layout": layout, "redzones": redzones}
    program = lower(module, inputs, isa=isa or dut.target.isa, **options)
    return verify(dut, program, tolerance=tolerance, linted=linted, observe=observe, guards=guards)


def verify(
    dut: Dut,
    program: Program,
    *,
    tolerance: Tolerance,
    linted: bool = True,
    excluded: Sequence[str] = (),
    guards: Guards | None = None,
    observe: Callable[[Checked], None] = lambda _: None,
) -> Checked:
    """`check` of a program that exists already, on its own inputs and with the references it brings."""
    result = run(dut, program, linted=linted, excluded=excluded, guards=guards, complete=False)
    references = program.reference(program.inputs) if program.reference else References()
    comparison = compare(program.file, result.outputs, references, tolerance, result.unwritten)
    checked = Checked(program, result, comparison)
    observe(checked)
    comparison.raise_for_verdict(dut.resolved.display_name)
    return checked


def arrange(program: Program, arrays: Sequence[Any]) -> tuple[HostTensor, ...]:
    """Arrays of logical shape (numbers for scalars), laid out in the dim orders that the program wants."""
    specs = program.file.input_specs()
    tensors = []
    for number, value in enumerate(arrays):
        if isinstance(value, HostTensor):
            tensors.append(value)
        elif isinstance(value, (bool, int, float)):
            tensors.append(HostTensor.from_scalar(value))
        else:
            array = np.asarray(value)
            order = specs[number].dim_order if number < len(specs) else ()
            tensors.append(HostTensor.from_array(array, order if len(order) == array.ndim else None))
    return tuple(tensors)
