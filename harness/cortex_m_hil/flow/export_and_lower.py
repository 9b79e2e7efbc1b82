"""Exporting and lowering a module, as the public API offers them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from cortex_m_hil import lowering
from cortex_m_hil.host.api_calls import checked_call, warn
from cortex_m_hil.lowering import Exported, Inputs, Io, Layout, LoweringOptions
from cortex_m_hil.program.program import Program
from cortex_m_hil.targets.cpu import Isa
from cortex_m_hil.targets.memory import Placed


@checked_call("hil.export")
def export(
    module: Any,
    inputs: Inputs | list[Any] | None = None,
    *,
    layout: Layout = LoweringOptions.layout,
    dynamic_shapes: Any = None,
) -> Exported:
    """Export a module in its present state, to lower and check it for any number of targets.

    Args:
        module: a `torch.nn.Module`, used in `eval()` mode. It is run and exported; it is not changed. Or a
            `torch.export.ExportedProgram`, which is exported again, with its dynamic shapes.
        inputs: a tuple or list of tensors and numbers, the arguments of `module.forward`. Their shapes and dtypes
            become the program's. None: the example inputs of the exported program.
        layout: `channels_last` turns 4-D tensors channels-last; `explicit` keeps them contiguous.
        dynamic_shapes: as `torch.export.export` takes them; each dimension has to have an upper bound. None: the shapes
            of the inputs are fixed.

    Returns:
        An object that `lower` and `check` take in place of module and inputs. Later changes of the module have no
            effect: its outputs at the time of the export are the reference `eager`.

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
    io: Io = LoweringOptions.io,
    banks: Sequence[Placed] = LoweringOptions.banks,
) -> Program:
    """Lower a module for an ISA class.

    Args:
        module: a `torch.nn.Module`, used in `eval()` mode. It is run and exported; it is not changed. Or a
            `torch.export.ExportedProgram`, as `export` takes it; or the result of `export`, which has its own layout,
            and its own inputs if none are given. A module that PT2E has converted already is lowered with
            `quantize=False`.
        inputs: a tuple or list of tensors and numbers, the arguments of `module.forward`. Their shapes and dtypes
            become the program's; their values calibrate the quantiser, unless `calibration` is given.
        isa: the ISA class to lower for.
        calibration: input tuples (at least one), of the same form as the inputs, for the quantiser's observers; None:
            the inputs.
        quantize: True quantises to int8; False lowers the float module.
        quantizer: a quantiser for `prepare_pt2e`, such as a `CortexMQuantizer`; it is not changed. None: ExecuTorch's
            quantiser for Cortex-M.
        layout: `channels_last` turns 4-D tensors channels-last; `explicit` keeps them contiguous and lets the compiler
            insert transposes (ExecuTorch 1.5 or newer).
        redzones: whether the memory plan leaves unused bytes (red zones) around every tensor, to detect stray writes.
        dynamic_shapes: as for `export`.
        io: `int8` makes all float inputs and outputs int8, by ExecuTorch's passes QuantizeInputs and QuantizeOutputs;
            {"inputs": (0,), "outputs": (0,)} does so for inputs and outputs by number. The example inputs are
            quantised.
        banks: the memory banks of a target, `target.board.memory.banks`. Several banks are planned by ExecuTorch's
            banked planning (1.5.1 or newer).

    Returns:
        The program, with its inputs and the models that compute its references. Equal exports give the same program,
        from a cache.

    Raises:
        LoweringError: the module cannot be exported, quantised or lowered, or not with dynamic shapes.
        ConfigError: an argument is wrong, or the module itself fails on these inputs.
        OutOfTargetMemory: the program's tensors do not fit the banks.
        ToolchainError: the installed ExecuTorch lacks a feature.
    """
    options = LoweringOptions(calibration, quantize, layout, redzones, quantizer, io, tuple(banks))
    program = lowering.lower(module, inputs, isa=isa, options=options, dynamic_shapes=dynamic_shapes)
    warn_of_training(program)
    return program


def warn_of_training(program: Program) -> None:
    """Issue a HilWarning if the module is in eval mode, but a submodule whose results depend on the mode is not.

    Such a mixture is deliberate or a mistake. A module that is wholly in training mode was probably just not switched
    by eval(): only a bad verdict mentions it.
    """
    training = program.training
    if training is not None and training.is_in_part:
        warn(f"{program.name}: {training}; module.eval() puts all of it in that mode, and silences this")
