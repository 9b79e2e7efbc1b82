"""Data flow of a program: which instruction wrote a value, through which views, in which quantisation."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from cortex_m_hil.program.model import Instruction, PteFile, Value
from cortex_m_hil.program.schema import DTYPES, LISTS_OF_TENSORS, InstructionKind, ValueKind

# --- following values back -------------------------------------------------------------------------------

DEQUANTIZE: Final = frozenset(
    {"cortex_m::dequantize_per_tensor.out", "quantized_decomposed::dequantize_per_tensor.out"}
)
VIEWS: Final = frozenset(
    {
        "aten::alias_copy.out",
        "aten::clone.out",
        "aten::expand_copy.out",
        "aten::permute_copy.out",
        "aten::select_copy.int_out",
        "aten::slice_copy.Tensor_out",
        "aten::squeeze_copy.dim_out",
        "aten::squeeze_copy.dims_out",
        "aten::transpose_copy.int_out",
        "aten::unsqueeze_copy.out",
        "aten::view_copy.out",
        "cortex_m::transpose.out",
        "dim_order_ops::_clone_dim_order.out",
        "dim_order_ops::_to_dim_order_copy.out",
        "executorch_prim::et_view.default",
    }
)
"""Operators whose every output element is an element of their first argument, unchanged."""

_QUANTISING: Final = ("cortex_m::", "quantized_decomposed::")
QUANTISED: Final = ("int8", "int16")

COPY_IN_PLACE: Final = "aten::copy_"
"""The operator that writes its second argument over its first: how a program keeps its state."""


class OutputQuantization(NamedTuple):
    """The parameters of a float output's final dequantize; ``dtype`` is the integer's numpy name."""

    scale: float
    zero_point: int
    qmin: int
    qmax: int
    dtype: str


def written_tensors(file: PteFile, position: int) -> list[int]:
    """Return the values with bytes that the instruction at a position writes; none where it is no kernel."""
    instruction = file.instructions[position]
    outs = written(file, instruction) if instruction.kind is InstructionKind.KERNEL else ()
    specs = ((value, file.values[value].spec) for value in outs)
    return [value for value, spec in specs if spec is not None and spec.kind is ValueKind.TENSOR and spec.nbytes]


def producer(file: PteFile, value: int, before: int | None = None) -> Instruction | None:
    """Return the last instruction (below ``before``) that wrote a value, or the memory it aliases.

    A view that costs nothing is no instruction: its value just has the planned address of its base. Memory is reused
    over time, so the last writer is the one that counts. None for inputs and constants.
    """
    planned = file.values[value].planned
    for instruction in reversed(file.instructions[:before]):
        if instruction.kind is not InstructionKind.KERNEL:
            continue
        for arg in written(file, instruction):
            if arg == value or (planned is not None and file.values[arg].planned == planned):
                return instruction
    return None


def written(file: PteFile, instruction: Instruction) -> tuple[int, ...]:
    """Return the values that an instruction writes: its last argument, or where that is a list, what it lists.

    Operators with several outs have a list.
    """
    if not instruction.args or instruction.kind in (InstructionKind.JUMP_FALSE, InstructionKind.FREE):
        return ()
    last = file.values[instruction.args[-1]]
    if last.kind is ValueKind.TENSOR_LIST:
        return tuple(int(item) for item in last.items)
    return (last.index,)


def arguments(file: PteFile, instruction: Instruction) -> Iterator[int]:
    """Yield the values that an instruction is given, those in lists too."""
    for argument in instruction.args:
        value = file.values[argument]
        items = [int(item) for item in value.items] if value.kind in LISTS_OF_TENSORS else [argument]
        yield from (item for item in items if item >= 0)


def memory_of(file: PteFile, value: int) -> object:
    """Return a key for the memory that a value lies in: values that are views of one memory have the same."""
    planned = file.values[value].planned
    return planned if planned is not None and planned.nbytes else value


def quantised_arguments(file: PteFile) -> list[frozenset[int]]:
    """Return for each instruction which of its arguments are integers that stand for numbers by a scale.

    They are what Cortex-M operators give, and what others make of it; in files of ExecuTorch int8 or int16.
    """
    return _quantised(file)[0]


def quantised_outputs(file: PteFile) -> frozenset[int]:
    """Return the numbers of the outputs that are integers that stand for numbers by a scale, by the same distinction.

    Other integers were chosen, as an index or a truth value was.
    """
    now = _quantised(file)[1]
    return frozenset(number for number, value in enumerate(file.outputs) if now.get(memory_of(file, value)))


def _quantised(file: PteFile) -> tuple[list[frozenset[int]], Mapping[object, bool]]:
    """Return such arguments of each instruction, and by memory whether it ends as such integers."""
    now: dict[object, bool] = {}  # by memory, which a view that is no instruction shares with its base
    found = []
    for instruction in file.instructions:
        outs = written(file, instruction)
        given = {value for value in arguments(file, instruction) if now.get(memory_of(file, value))}.difference(outs)
        found.append(frozenset(given))
        by_scale = instruction.operator.startswith(_QUANTISING) or bool(given)
        now.update((memory_of(file, out), by_scale and _dtype(file, out) in QUANTISED) for out in outs)
    return found, now


def _dtype(file: PteFile, value: int) -> str:
    spec = file.values[value].spec
    return "" if spec is None else spec.dtype


def scratch_values(file: PteFile) -> frozenset[int]:
    """Return the planned bytes that Cortex-M operators work in: no instruction's output, no input and no state."""
    kernels = [one for one in file.instructions if one.kind is InstructionKind.KERNEL]
    known = {*file.inputs, *file.states, *(value for one in kernels for value in written(file, one))}
    given = {value for one in kernels if one.operator.startswith("cortex_m::") for value in one.args}
    return frozenset(value for value in given - known if _is_bytes(file.values[value]))


def _is_bytes(value: Value) -> bool:
    return value.planned is not None and value.spec is not None and value.spec.dtype == "uint8"


def in_place(instruction: Instruction) -> bool:
    """Tell whether an operator writes to its first argument, as `aten::copy_` does."""
    name = instruction.operator.partition("::")[2].partition(".")[0]
    return instruction.kind is InstructionKind.KERNEL and name.endswith("_")


def states(values: Sequence[Value], inputs: Sequence[int], instructions: Sequence[Instruction]) -> tuple[int, ...]:
    """Return the planned tensors that the next call finds as this one leaves them.

    These are the tensors that the file has an initial value for, and those that an operator writes in place before any
    has made them, and that are no input: ExecuTorch leaves the latter unset unless a pass of the user's asks for more.
    """
    found = {value.index for value in values if value.initial is not None}
    made = set(inputs)
    for instruction in instructions:
        if in_place(instruction) and instruction.args and instruction.args[0] not in made:
            found.add(instruction.args[0])
        made.update(instruction.args[-1:])
    return tuple(value.index for value in values if value.index in found and value.planned is not None and value.spec)


def skip_views(file: PteFile, instruction: Instruction | None) -> Instruction | None:
    """Return the instruction that computed what a chain of views ends in; None if the chain begins at an input.

    Args:
        file: the program.
        instruction: the last of the chain; it is returned if it is no view.
    """
    while instruction is not None and (instruction.operator in VIEWS or instruction.operator == COPY_IN_PLACE):
        copied = 1 if instruction.operator == COPY_IN_PLACE else 0
        source, result = file.values[instruction.args[copied]], file.values[instruction.args[-1]]
        if source.spec is None or result.spec is None or source.spec.dtype != result.spec.dtype:
            return instruction
        instruction = producer(file, source.index, instruction.index)
    return instruction


def output_quantization(file: PteFile, output_index: int) -> OutputQuantization | None:
    """Return the quantisation of a float output: that of the dequantize it comes from, through views; else None."""
    made_by = skip_views(file, producer(file, file.outputs[output_index]))
    if made_by is None or made_by.operator not in DEQUANTIZE or len(made_by.args) < 7:
        return None
    scale, zero_point, qmin, qmax, number = (file.values[arg].scalar for arg in made_by.args[1:6])
    if not isinstance(scale, float) or not 0.0 < scale < math.inf:
        return None
    if not (isinstance(zero_point, int) and isinstance(qmin, int) and isinstance(qmax, int)):
        return None
    if not isinstance(number, int) or number not in DTYPES:
        return None
    return OutputQuantization(scale, zero_point, qmin, qmax, DTYPES[number])


class InputQuantization(NamedTuple):
    """The quantisation of an integer input; ``scale`` is None where the program does not say it."""

    scale: float | None
    zero_point: int


# By operator, without its layout: the argument that is a tensor's zero point, by the argument that is the tensor.
# An offset is the zero point's negative (`aten_to_cortex_m_pass.py` of ExecuTorch).
_ZERO_POINTS: Final = {
    "cortex_m::quantized_add": {0: 1, 4: 5},
    "cortex_m::quantized_mul": {0: 1, 2: 3},
    "cortex_m::quantized_div": {0: 1, 2: 3},
    "cortex_m::quantized_batch_matmul": {0: 1, 2: 3},
    "cortex_m::quantized_avg_pool2d": {0: 5},
    "cortex_m::quantized_max_pool2d": {0: 6},
    "cortex_m::softmax": {0: 2},
}
_OFFSETS: Final = {
    "cortex_m::quantized_linear": {0: 4},
    "cortex_m::quantized_conv2d": {0: 6},
    "cortex_m::quantized_depthwise_conv2d": {0: 7},
    "cortex_m::quantized_transpose_conv2d": {0: 7},
}


def input_quantization(file: PteFile, input_index: int) -> InputQuantization | None:
    """Return what the first operator that reads an integer input, maybe through views, knows of its quantisation.

    A dequantize knows all of it. Operators that compute on integers know the zero point; the multipliers that they have
    hold only products of the scale with others. None where nothing is known.
    """
    spec = file.values[file.inputs[input_index]].spec
    if spec is None or spec.dtype not in (*QUANTISED, "uint8"):
        return None
    same = {memory_of(file, file.inputs[input_index])}
    for instruction in (one for one in file.instructions if one.kind is InstructionKind.KERNEL):
        places = [at for at, value in enumerate(instruction.args[:-1]) if memory_of(file, value) in same]
        for at in places:
            if (found := _known_of(file, instruction, at)) is not None:
                return found
        outs = {memory_of(file, value) for value in written(file, instruction)}
        same = same | outs if 0 in places and instruction.operator in VIEWS else same - outs
    return None


def _known_of(file: PteFile, instruction: Instruction, at: int) -> InputQuantization | None:
    """Return the quantisation of the argument at a position, as the operator's other arguments tell it; else None."""
    scalars = [file.values[value].scalar for value in instruction.args]
    if instruction.operator in DEQUANTIZE and len(scalars) >= 7:
        scale, zero_point = scalars[1:3]
        if not isinstance(zero_point, int):
            return None
        known = scale if isinstance(scale, float) and 0.0 < scale < math.inf else None
        return InputQuantization(known, zero_point)
    name = instruction.operator.partition(".")[0].removesuffix("_nhwc")
    for table, sign in ((_ZERO_POINTS, 1), (_OFFSETS, -1)):
        place = table.get(name, {}).get(at, len(scalars))
        if place < len(scalars) and isinstance(zero_point := scalars[place], int):
            return InputQuantization(None, sign * zero_point)
    return None


def computing_operator(file: PteFile, output_index: int) -> Instruction | None:
    """Return the instruction that computed an output, behind views and the final dequantize."""
    made_by = skip_views(file, producer(file, file.outputs[output_index]))
    if made_by is not None and made_by.operator in DEQUANTIZE:
        made_by = skip_views(file, producer(file, made_by.args[0], made_by.index))
    return made_by
