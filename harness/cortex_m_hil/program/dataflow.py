"""Data flow of a program: which instruction wrote a value, through which views, in which quantisation."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final, NamedTuple

from cortex_m_hil.program.schema import DTYPES, LISTS_OF_TENSORS, InstructionKind, ValueKind
from cortex_m_hil.program.values import Instruction, Planned, Value

DEQUANTIZE: Final = frozenset(
    {"cortex_m::dequantize_per_tensor.out", "quantized_decomposed::dequantize_per_tensor.out"}
)
QUANTIZE: Final = frozenset({"cortex_m::quantize_per_tensor.out", "quantized_decomposed::quantize_per_tensor.out"})
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

_PARTIAL: Final = frozenset({"aten::select_copy.int_out", "aten::slice_copy.Tensor_out"})  # views of some elements only
_QUANTISING: Final = ("cortex_m::", "quantized_decomposed::")
QUANTISED: Final = ("int8", "int16")

COPY_IN_PLACE: Final = "aten::copy_"
"""The operator that writes its second argument over its first: how a program keeps its state."""


class Quantization(NamedTuple):
    """The parameters of a quantize or dequantize: an integer stands for (integer − zero point) · scale.

    ``qmin`` and ``qmax`` are the range that values saturate to; ``dtype`` is the integer's numpy name.
    """

    scale: float
    zero_point: int
    qmin: int
    qmax: int
    dtype: str


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

Memory = Planned | int
"""A key for the memory that a value lies in: values that are views of one memory have the same key."""


@dataclass(frozen=True, eq=False)
class Dataflow:
    """The data flow of a program (`PteFile.dataflow`); each of its tables is made once, on first use."""

    values: Sequence[Value]
    instructions: Sequence[Instruction]
    inputs: Sequence[int]
    outputs: Sequence[int]
    states: Sequence[int]

    # --- instructions ------------------------------------------------------------------------------------

    @cached_property
    def written(self) -> tuple[tuple[int, ...], ...]:
        """Return for each instruction the values that it writes: its last argument, or that list's items."""
        return tuple(map(self._written, self.instructions))

    def _written(self, instruction: Instruction) -> tuple[int, ...]:
        if not instruction.args or instruction.kind in (InstructionKind.JUMP_FALSE, InstructionKind.FREE):
            return ()
        last = self.values[instruction.args[-1]]
        return tuple(map(int, last.items)) if last.kind is ValueKind.TENSOR_LIST else (last.index,)

    @cached_property
    def outs(self) -> tuple[tuple[int, ...], ...]:
        """Return for each instruction the values that it writes; none where the instruction calls no kernel."""
        pairs = zip(self.instructions, self.written, strict=True)
        return tuple(values if one.kind is InstructionKind.KERNEL else () for one, values in pairs)

    @cached_property
    def written_tensors(self) -> tuple[tuple[int, ...], ...]:
        """Return for each instruction the values with data (tensors) that it writes; none where it calls no kernel."""
        return tuple(tuple(filter(self._has_bytes, outs)) for outs in self.outs)

    def _has_bytes(self, value: int) -> bool:
        spec = self.values[value].spec
        return spec is not None and spec.kind is ValueKind.TENSOR and spec.nbytes > 0

    @cached_property
    def arguments(self) -> tuple[tuple[int, ...], ...]:
        """Return for each instruction its arguments, and the items of arguments that are lists."""
        return tuple(
            tuple(item for argument in one.args for item in self._items(argument) if item >= 0)
            for one in self.instructions
        )

    def _items(self, argument: int) -> Sequence[int]:
        value = self.values[argument]
        return [int(item) for item in value.items] if value.kind in LISTS_OF_TENSORS else [argument]

    @cached_property
    def memory(self) -> tuple[Memory, ...]:
        """Return for each value the key of the memory that it lies in."""
        return tuple(
            index if (planned := value.planned) is None or not planned.nbytes else planned
            for index, value in enumerate(self.values)
        )

    @cached_property
    def scratch(self) -> frozenset[int]:
        """Return the planned byte tensors that only serve Cortex-M operators as scratch memory."""
        known = {*self.inputs, *self.states, *(value for outs in self.outs for value in outs)}
        kernels = [one for one in self.instructions if one.kind is InstructionKind.KERNEL]
        given = {value for one in kernels if one.operator.startswith("cortex_m::") for value in one.args}
        return frozenset(value for value in given - known if _is_bytes(self.values[value]))

    @cached_property
    def scratch_of(self) -> tuple[tuple[int, ...], ...]:
        """Return for each instruction the values that its kernel is given as scratch."""
        return tuple(
            tuple(value for value in dict.fromkeys(one.args) if value in self.scratch)
            if one.kind is InstructionKind.KERNEL
            else ()
            for one in self.instructions
        )

    def producer(self, value: int, before: int | None = None) -> Instruction | None:
        """Return the last instruction (below ``before``) that wrote a value, or the memory it aliases.

        A view may have no instruction: its value has the planned address of the tensor that it views. Memory is reused
        over time, so the last writer is the one that counts. None for inputs and constants.
        """
        planned = self.values[value].planned
        for instruction, outs in reversed(list(zip(self.instructions, self.outs, strict=True))[:before]):
            if any(out == value or (planned is not None and self.values[out].planned == planned) for out in outs):
                return instruction
        return None

    def _computing_instruction(self, value: int, before: int | None = None) -> Instruction | None:
        """Return the instruction that computed a value, seen through views; None for an input or a view of one."""
        instruction = self.producer(value, before)
        while instruction is not None and (instruction.operator in VIEWS or instruction.operator == COPY_IN_PLACE):
            copied = 1 if instruction.operator == COPY_IN_PLACE else 0
            source, result = self.values[instruction.args[copied]], self.values[instruction.args[-1]]
            if source.spec is None or result.spec is None or source.spec.dtype != result.spec.dtype:
                return instruction
            instruction = self.producer(source.index, instruction.index)
        return instruction

    # --- outputs and inputs ------------------------------------------------------------------------------

    @cached_property
    def _output_writers(self) -> tuple[Instruction | None, ...]:
        """Return for each output the instruction that computed it; views compute nothing."""
        return tuple(map(self._computing_instruction, self.outputs))

    @cached_property
    def computed_by(self) -> tuple[Instruction | None, ...]:
        """Return for each output the instruction that computed it; views and the final dequantize are passed over."""
        return tuple(
            self._computing_instruction(end.args[0], end.index)
            if end is not None and end.operator in DEQUANTIZE
            else end
            for end in self._output_writers
        )

    @cached_property
    def output_quantizations(self) -> tuple[Quantization | None, ...]:
        """Return for each float output the quantisation of its final dequantize, through views; None without one."""
        return tuple(map(self._dequantized, self._output_writers))

    def _dequantized(self, made_by: Instruction | None) -> Quantization | None:
        if made_by is None or made_by.operator not in DEQUANTIZE or len(made_by.args) < 7:
            return None
        scale, zero_point, qmin, qmax, number = (self.values[arg].scalar for arg in made_by.args[1:6])
        if not isinstance(scale, float) or not 0.0 < scale < math.inf:
            return None
        if not (isinstance(zero_point, int) and isinstance(qmin, int) and isinstance(qmax, int)):
            return None
        if not isinstance(number, int) or number not in DTYPES:
            return None
        return Quantization(scale, zero_point, qmin, qmax, DTYPES[number])

    @cached_property
    def input_quantizations(self) -> tuple[InputQuantization | None, ...]:
        """Return for each integer input the quantisation in the arguments of the first operator that reads it.

        The operator may read it through views. A dequantize has both scale and zero point as arguments. Operators on
        integers have the zero point; their multipliers are products of several scales. None where no such operator has
        either.
        """
        return tuple(map(self._input_quantization, self.inputs))

    def _input_quantization(self, value: int) -> InputQuantization | None:
        if self._dtype(value) not in (*QUANTISED, "uint8"):
            return None
        known = (self._argument_quantization(*reader) for reader in self._readers(value, VIEWS))
        return next((one for one in known if one is not None), None)

    @cached_property
    def dequantized_inputs(self) -> tuple[Quantization | None, ...]:
        """Return for each input the quantisation of the operator that dequantises it, through views; else None."""
        readers = ((one for one, at in self._readers(value, VIEWS) if at == 0) for value in self.inputs)
        return tuple(next(filter(None, map(self._dequantized, one)), None) for one in readers)

    @cached_property
    def input_quantizes(self) -> tuple[Instruction | None, ...]:
        """Return for each input the first operator that quantises all its elements, through views, or None."""
        return tuple(map(self._quantized_by, self.inputs))

    @cached_property
    def float_input_quantizations(self) -> tuple[InputQuantization | None, ...]:
        """Return for each input the scale and zero point of its operator in `input_quantizes`, or None."""
        return tuple(None if one is None else self._parameters(one) for one in self.input_quantizes)

    def _parameters(self, instruction: Instruction) -> InputQuantization | None:
        """Return the scale and zero point among the arguments of a quantize or dequantize, or None."""
        scalars = [self.values[value].scalar for value in instruction.args]
        if len(scalars) < 7 or not isinstance(zero_point := scalars[2], int):
            return None
        known = scalars[1] if isinstance(scalars[1], float) and 0.0 < scalars[1] < math.inf else None
        return InputQuantization(known, zero_point)

    def _quantized_by(self, value: int) -> Instruction | None:
        readers = self._readers(value, VIEWS - _PARTIAL)
        return next((one for one, at in readers if at == 0 and one.operator in QUANTIZE), None)

    def _readers(self, value: int, views: frozenset[str]) -> Iterator[tuple[Instruction, int]]:
        """Yield each kernel that reads a value, directly or through these views, with the position of the argument."""
        same = {self.memory[value]}
        for instruction, written in zip(self.instructions, self.outs, strict=True):
            if instruction.kind is InstructionKind.KERNEL:
                places = [at for at, one in enumerate(instruction.args[:-1]) if self.memory[one] in same]
                yield from ((instruction, at) for at in places)
                outs = {self.memory[one] for one in written}
                same = same | outs if 0 in places and instruction.operator in views else same - outs

    def _argument_quantization(self, instruction: Instruction, at: int) -> InputQuantization | None:
        """Return the quantisation of the argument at a position, read from the operator's other arguments, or None."""
        if instruction.operator in DEQUANTIZE and len(instruction.args) >= 7:
            return self._parameters(instruction)
        scalars = [self.values[value].scalar for value in instruction.args]
        name = instruction.operator.partition(".")[0].removesuffix("_nhwc")
        for table, sign in ((_ZERO_POINTS, 1), (_OFFSETS, -1)):
            place = table.get(name, {}).get(at, len(scalars))
            if place < len(scalars) and isinstance(zero_point := scalars[place], int):
                return InputQuantization(None, sign * zero_point)
        return None

    # --- quantised integers ------------------------------------------------------------------------------

    @property
    def quantised_arguments(self) -> Sequence[frozenset[int]]:
        """Return for each instruction which of its arguments are quantised integers: in ExecuTorch int8 or int16.

        Quantising operators write such integers, and every operator that reads a quantised integer also writes
        quantised integers.
        """
        return self._quantised_values[0]

    @property
    def quantised_outputs(self) -> frozenset[int]:
        """Return the numbers of the outputs that are quantised integers; others are indices or booleans."""
        now = self._quantised_values[1]
        return frozenset(number for number, value in enumerate(self.outputs) if now.get(self.memory[value]))

    @cached_property
    def _quantised_values(self) -> tuple[Sequence[frozenset[int]], Mapping[Memory, bool]]:
        """Return the quantised arguments of each instruction, and which memory has quantised integers at the end."""
        now: dict[Memory, bool] = {}  # a view that is no instruction shares its base's memory
        found = []
        for instruction, outs, arguments in zip(self.instructions, self.written, self.arguments, strict=True):
            given = {value for value in arguments if now.get(self.memory[value])}.difference(outs)
            found.append(frozenset(given))
            by_scale = instruction.operator.startswith(_QUANTISING) or bool(given)
            now.update((self.memory[out], by_scale and self._dtype(out) in QUANTISED) for out in outs)
        return found, now

    def _dtype(self, value: int) -> str:
        spec = self.values[value].spec
        return "" if spec is None else spec.dtype


def _is_bytes(value: Value) -> bool:
    return value.planned is not None and value.spec is not None and value.spec.dtype == "uint8"


def in_place(instruction: Instruction) -> bool:
    """Tell whether an operator writes to its first argument, as `aten::copy_` does."""
    name = instruction.operator.partition("::")[2].partition(".")[0]
    return instruction.kind is InstructionKind.KERNEL and name.endswith("_")


def states(values: Sequence[Value], inputs: Sequence[int], instructions: Sequence[Instruction]) -> tuple[int, ...]:
    """Return the program's states: the planned tensors that keep their contents from one call to the next.

    A state has an initial value in the file; or it is not an input, and the first operator that writes to it writes in
    place: for such a tensor ExecuTorch stores no initial value unless the user adds a pass.
    """
    found = {value.index for value in values if value.initial is not None}
    made = set(inputs)
    for instruction in instructions:
        if in_place(instruction) and instruction.args and instruction.args[0] not in made:
            found.add(instruction.args[0])
        made.update(instruction.args[-1:])
    return tuple(value.index for value in values if value.index in found and value.planned is not None and value.spec)
