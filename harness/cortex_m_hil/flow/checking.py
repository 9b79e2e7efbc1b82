"""Checking a module or a program on a target: lower, lint, run, compare."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from cortex_m_hil import lowering
from cortex_m_hil.checks.advice import SIZE
from cortex_m_hil.checks.compare import compare
from cortex_m_hil.checks.comparison import Comparison, FindingKind
from cortex_m_hil.checks.tolerance import Tolerance
from cortex_m_hil.errors import ConfigError, VerdictError
from cortex_m_hil.errors.text import shown
from cortex_m_hil.flow.dut import Dut
from cortex_m_hil.flow.execution import Guards, operator_that_keeps_its_size
from cortex_m_hil.flow.running import run, telling_what_lint_knows
from cortex_m_hil.host.calls import checked_call, warn
from cortex_m_hil.lowering import Exported, Inputs, Layout, LoweringOptions
from cortex_m_hil.program.program import Program, References
from cortex_m_hil.program.tensor import Array, HostTensor
from cortex_m_hil.runner.results import RunResult
from cortex_m_hil.targets.cpu import Isa


@checked_call("hil.export")
def export(
    module: Any,
    inputs: Inputs | list[Any] | None = None,
    *,
    layout: Layout = LoweringOptions.layout,
    dynamic_shapes: Any = None,
) -> Exported:
    """Export a module as it is now, to lower and check it for any number of targets without a new export for each.

    Args:
        module: a `torch.nn.Module`, used in `eval()` mode. It is run and exported; it is not changed. Or a
            `torch.export.ExportedProgram`, which is exported anew, with its dynamic shapes.
        inputs: a tuple or list of tensors and numbers, the arguments of `module.forward`. Their shapes and dtypes
            become the program's. None: those of the exported program.
        layout: `channels_last` turns 4-D tensors channels-last; `explicit` keeps them contiguous.
        dynamic_shapes: as `torch.export.export` takes them; each dimension has to have an upper bound. None: the shapes
            of the inputs are fixed.

    Returns:
        What `lower` and `check` take in place of module and inputs. The module may change afterwards: what it gave for
        the inputs is the reference `eager`.

    Raises:
        LoweringError: the module cannot be exported.
        ConfigError: an argument is wrong, or the module itself fails on these inputs.
    """
    return lowering.export(module, inputs, layout, dynamic_shapes)


@checked_call("hil.lower")
def lower(
    module: Any,
    inputs: Inputs | list[Any] | None = None,
    *,
    isa: Isa,
    calibration: Iterable[Sequence[Any]] | None = LoweringOptions.calibration,
    quantize: bool = LoweringOptions.quantize,
    quantizer: Any = LoweringOptions.quantizer,
    layout: Layout = LoweringOptions.layout,
    redzones: bool = LoweringOptions.redzones,
    dynamic_shapes: Any = None,
) -> Program:
    """Lower a module for an ISA class.

    Args:
        module: a `torch.nn.Module`, used in `eval()` mode. It is run and exported; it is not changed. Or a
            `torch.export.ExportedProgram`, as `export` takes it; or what `export` gave: its layout is that of
            the export, and so are its inputs where none are given. What PT2E has converted already is lowered with
            `quantize=False`.
        inputs: a tuple or list of tensors and numbers, the arguments of `module.forward`. Their shapes and dtypes
            become the program's; their values calibrate it, unless `calibration` does.
        isa: the path that it is lowered for.
        calibration: input tuples (at least one), like the inputs, for the quantiser's observers; None: the inputs.
        quantize: to int8; False lowers the float module.
        quantizer: such as `prepare_pt2e` takes, a `CortexMQuantizer` for one; it is not changed. None: ExecuTorch's for
            Cortex-M, for the layout.
        layout: `channels_last` turns 4-D tensors channels-last; `explicit` keeps them contiguous and lets the compiler
            insert transposes (ExecuTorch 1.5 or newer).
        redzones: plan memory that no tensor owns around every tensor.
        dynamic_shapes: as `export` takes them.

    Returns:
        The program, with the inputs and with what computes its references. Equal exports give the same program, from
        a cache.

    Raises:
        LoweringError: the module cannot be exported, quantised or lowered, or not with dynamic shapes.
        ConfigError: an argument is wrong, or the module itself fails on these inputs.
        ToolchainError: the installed ExecuTorch lacks something.
    """
    options = LoweringOptions(calibration, quantize, layout, redzones, quantizer)
    program = lowering.lower(module, inputs, isa=isa, options=options, dynamic_shapes=dynamic_shapes)
    warn_of_training(program)
    return program


def warn_of_training(program: Program) -> None:
    """Issue a HilWarning where the module is in eval mode and a submodule whose results depend on the mode is not.

    Someone has set that mode. A module that is wholly in training mode may just be as torch made it: there is no
    warning then, only a line in a bad verdict.
    """
    training = program.training
    if training is not None and training.is_in_part:
        warn(f"{program.name}: {training}; module.eval() puts all of it in that mode, and silences this")


@dataclass(frozen=True)
class Checked:
    """The results of `verify`: the run, the comparison, and the references that the outputs were compared with."""

    program: Program
    result: RunResult
    comparison: Comparison
    references: References = field(default_factory=References)


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
    """Verify a program on a target: lint, run and compare it, on its own inputs and with the references it brings.

    Args:
        dut: the target.
        program: the program.
        tolerance: of the comparison.
        linted: False skips the lint.
        excluded: patterns of operators that lint takes for absent.
        guards: makes the program's guard; None: no memory is watched.
        observe: gets the results before a bad verdict on them is raised.

    Raises:
        InfraError, VerdictError: what `run` raises, and the verdict of the comparison.
    """
    with nullcontext() if linted else telling_what_lint_knows(dut, program):
        return _verified(dut, program, tolerance, linted, excluded, guards, observe)


def _verified(
    dut: Dut, program: Program, tolerance: Tolerance, linted: bool, excluded: Sequence[str], guards: Guards | None,
    observe: Callable[[Checked], None],
) -> Checked:  # fmt: skip
    result = run(dut, program, linted=linted, excluded=excluded, guards=guards, complete=False)
    references = program.reference(program.inputs) if program.reference else References()
    comparison = compare(program.file, result.outputs, references, tolerance, result.unwritten)
    if any(finding.kind is FindingKind.SHAPE for finding in comparison.findings):
        comparison = _naming_what_keeps_its_size(dut, program, comparison)
    checked = Checked(program, result, comparison, references)
    observe(checked)
    try:
        comparison.raise_for_verdict(dut.resolved.display_name)
    except VerdictError as error:
        if program.training is not None:
            error.details = (*error.details, ("mode", str(program.training)))
        raise
    return checked


def _naming_what_keeps_its_size(dut: Dut, program: Program, comparison: Comparison) -> Comparison:
    """Return the comparison with the name of the operator that left its output at the upper bounds, if there is one."""
    keeps = operator_that_keeps_its_size(dut.session(), program)
    if not keeps:
        return comparison
    count = len(program.file.outputs)
    return replace(comparison, operators=(keeps,) * count, advice=(SIZE,) * count)


def arrange(program: Program, arrays: Sequence[Any]) -> tuple[HostTensor, ...]:
    """Return arrays of logical shape (numbers for scalars), laid out in the dim orders that the program wants.

    No value is changed; `require_fit` checks whether dtypes and shapes are the program's.
    """
    specs = program.file.input_specs()
    orders = [specs[number].dim_order if number < len(specs) else () for number in range(len(arrays))]
    return tuple(_sent(number, *both) for number, both in enumerate(zip(arrays, orders, strict=True)))


def _sent(number: int, value: Any, order: tuple[int, ...]) -> HostTensor:
    try:
        if isinstance(value, HostTensor):
            return value
        if isinstance(value, (bool, int, float)):
            return HostTensor.from_scalar(value)
        array = _array(value)
        return HostTensor.from_array(array, order if len(order) == array.ndim else None)
    except ConfigError as error:
        error.message = f"input {number}: {error.message}"
        raise


def _array(value: Any) -> Array:
    """Return a value with a dtype as an array; raise ConfigError for others.

    NumPy would choose the dtype of a list, which may not hold its values.
    """
    if isinstance(value, (list, tuple)):
        raise ConfigError(f"{shown(value)} has no dtype", hint="an array: numpy.array(values), or torch.tensor(values)")
    try:
        array: Array = np.asanyarray(value)
    except (RuntimeError, TypeError, ValueError) as error:
        first = (str(error).splitlines() or [""])[0]
        raise ConfigError(f"{shown(value)} is no array: {first}", hint="x.detach().numpy()") from error
    if array.dtype.kind not in "biufc":
        raise ConfigError(f"{shown(value)} is no tensor, array or number", hint="an array of numbers: numpy.array(…)")
    return array
