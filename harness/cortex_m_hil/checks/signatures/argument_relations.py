"""Relations between the dtypes, numbers and lists of a call, which signatures consist of.

Dim orders do not matter here.
"""

from __future__ import annotations

import math
from typing import Final

from cortex_m_hil.checks.signatures.operator_signature import (
    ArgumentRelation,
    OperatorCall,
    Relation,
    of_arguments,
    of_bug,
)
from cortex_m_hil.errors.known_bugs import KNOWN_BUGS
from cortex_m_hil.program.schema import SCALAR_TYPES, ValueKind
from cortex_m_hil.program.values import Value

_INTEGERS: Final = {"int8": 1 << 7, "int32": 1 << 31, "int64": 1 << 31}
"""Limits, as distances from 0, of a number argument that builtin takes with a tensor of each dtype."""


def number_is_of(name: str, *numbers: int) -> Relation:
    """Return a relation: some arguments, given by their numbers in the schema, are integers if tensor `name` is."""

    def relation(call: OperatorCall) -> str:
        dtype = call[name].dtype
        for value in map(call.value, numbers):
            if value is not None and not _is_number_of(dtype, value):
                return f"{name} is {dtype}, the number beside it {value.scalar}"
        return ""

    return ArgumentRelation(
        relation, "a number of the tensor's dtype, or the tensor converted before: x.to(torch.float32)"
    )


def _is_number_of(dtype: str, value: Value) -> bool:
    limit = _INTEGERS.get(dtype)
    if limit is None or value.kind not in (ValueKind.INT, ValueKind.DOUBLE):
        return True
    return isinstance(value.scalar, int) and -limit <= value.scalar < limit


_CONVERTED: Final = ("float32", "int32", "int64", "bool")
_READ: Final = (*_CONVERTED, "uint8", "int16")


@of_arguments("give the program a tensor of one of these, converted by whoever calls it", "dtype")
def converts(call: OperatorCall) -> str:
    """Check that builtin can copy from the input's dtype to the output's."""
    one, out = call["self"].dtype, call["out"].dtype
    if one == out or (one in _READ and out in _CONVERTED):
        return ""
    return f"{one} does not become {out} here: from {' or '.join(_READ)} to {' or '.join(_CONVERTED)}"


@of_arguments("a reshape first, that makes one of dimensions which stay side by side")
def up_to_four_dimensions(call: OperatorCall) -> str:
    """Check that a transposed tensor has at most 4 dimensions: CMSIS-NN's arm_transpose_s8 takes no more."""
    rank = len(call["input"].shape)
    return "" if 1 <= rank <= 4 else f"{rank} dimensions, and no kernel takes more than 4"


@of_bug(45)
def over_the_last_dimension(call: OperatorCall) -> str:
    """Check that a softmax is over the last dimension, which ExecuTorch's kernel and CMSIS-NN's take alone."""
    dim, rank = call.value(1), len(call["input"].shape)
    if dim is None or dim.scalar in (-1, rank - 1):
        return ""
    return f"dim is {dim.scalar}, and the last of {rank} dimensions is the only one for which there is a kernel"


@of_bug(46)
def four_dimensions_alone(call: OperatorCall) -> str:
    """Check the dimensions of a minimum or maximum: ExecuTorch's kernel passes the last four sizes on, and no other."""
    shape = call["out"].shape
    return "" if math.prod(shape[:-4]) == 1 else f"of {len(shape)} dimensions only the last four are computed"


@of_bug(46)
def no_rows_of_one_number(call: OperatorCall) -> str:
    """Check that a minimum or maximum spreads no single number along two dimensions, where it is not the only one.

    After such a row CMSIS-NN's arm_minimum_s8 and arm_maximum_s8 advance by one number, and once more by
    `height_1_diff` or `height_2_diff`, which takes back what a loop over the width would have done.
    """
    shapes = [(1, 1, 1, *call[name].shape)[-3:] for name in ("self", "other")]
    for (height, width, row), (_, along, _) in (shapes, shapes[::-1]):
        if height > 1 and width == row == 1 and along > 1:
            return "each number of one is for several rows of the other, and the wrong one is taken"
    return ""


_MOST_SHIFTED: Final = 31


@of_arguments("the softmax's input has next to no range: calibrate with samples like the data")
def shift_is_to_the_left(call: OperatorCall) -> str:
    """Check that the shift of a softmax is 0 to 31: CMSIS-NN's arm_softmax_s8 multiplies by 1 << shift."""
    shift = call.value(5)
    if shift is None or not isinstance(shift.scalar, int) or 0 <= shift.scalar <= _MOST_SHIFTED:
        return ""
    return f"input_shift is {shift.scalar}, and CMSIS-NN shifts by 0 to {_MOST_SHIFTED}"


def names_its_dtype(name: str) -> Relation:
    def relation(call: OperatorCall) -> str:
        given = call.value(5)
        number = given.scalar if given is not None else None
        dtypes = {SCALAR_TYPES["CHAR"]: "int8", SCALAR_TYPES["SHORT"]: "int16"}
        if isinstance(number, int) and dtypes.get(number) == call[name].dtype:
            return ""
        return f"{name} is {call[name].dtype}, its argument dtype is {number}"

    return ArgumentRelation(relation, "the file contradicts itself: lower the module anew")


_MOST_OF_16_BITS: Final = (1 << 15) - 1 - 128
"""The largest distance of a zero point from 0 for which its difference from any int8 value fits in 16 bits."""


def _zero_points(call: OperatorCall) -> dict[str, int]:
    found = {"self_zero_point": call.value(1), "other_zero_point": call.value(3)}
    return {name: one.scalar for name, one in found.items() if one is not None and isinstance(one.scalar, int)}


@of_arguments(KNOWN_BUGS[20].hint)
def product_of_32_bits(call: OperatorCall) -> str:
    if math.prod(abs(one) + 128 for one in _zero_points(call).values()) < 1 << 31:
        return ""
    return f"zero points of {' and '.join(map(str, _zero_points(call).values()))}: a product can leave int32"


@of_bug(20)
def factors_of_16_bits(call: OperatorCall) -> str:
    """Check that zero points of a product fit in 16 bits, which CMSIS-NN's arm_elementwise_mul_s8 uses on DSP."""
    for name, zero_point in _zero_points(call).items():
        if abs(zero_point) > _MOST_OF_16_BITS:
            return f"{name} is {zero_point}, which CMSIS-NN adds in 16 bits on DSP"
    return ""


_LARGEST_PRODUCT: Final = 128 * 255  # of an int8 weight and (input - zero point)


@of_bug(34)
def sums_of_32_bits(call: OperatorCall) -> str:
    """Check that a layer's sums, including the bias, fit in int32; on MVE the bias is in `kernel_sum`.

    They may exceed int32 where the range of the layer's input is nearly zero.
    """
    for name in ("bias", "kernel_sum"):
        value = call.value({"bias": 2, "kernel_sum": 3}[name])
        first = call.file.constant(value.index) if name in call.tensors and value is not None else None
        if first is None or not call[name].numel:
            continue
        weights = call["weights" if "weights" in call.tensors else "weight"]
        most = (1 << 31) - 1 - weights.numel // call[name].numel * _LARGEST_PRODUCT
        numbers = first.array().reshape(-1).tolist()
        if (found := max(numbers, key=abs)) and abs(found) > most:
            at = numbers.index(found)
            return f"{name} has {found}, at {at}: a sum that begins with it can leave int32"
    return ""


@of_bug(28)
def sums_with_scales(call: OperatorCall) -> str:
    """Check that index_put does not accumulate quantised integers: ExecuTorch ignores their scales."""
    accumulate = call.value(3)
    if accumulate is None or not accumulate.scalar or call["self"].dtype != "int8":
        return ""
    return "accumulate=True adds without scale and zero point"


@of_arguments("torch.where and masked_fill take a mask; a permute brings dimensions together")
def neighbouring_indices(call: OperatorCall) -> str:
    """Check that index and index_put get integer indices for dimensions that follow each other, as builtin needs."""
    value = call.value(1)
    items = [int(item) for item in value.items] if value is not None else []
    chosen = [axis for axis, item in enumerate(items) if item >= 0 and call.file.values[item].spec is not None]
    specs = [call.file.values[items[axis]].spec for axis in chosen]
    if other := [spec for spec in specs if spec is not None and spec.dtype not in ("int32", "int64")]:
        return f"indices are {other[0]}, the operator takes int64 or int32"
    if chosen and chosen != list(range(chosen[0], chosen[0] + len(chosen))):
        return "indices of dimensions that are not neighbours"
    return ""


def every_window_has_a_pixel(*dimensions: str) -> Relation:
    """Return a relation: no window of a dilated max pool over these last dimensions lies wholly in the padding.

    Such a window has no largest pixel, and the runtimes give different numbers for it.
    """

    @of_bug(35)
    def relation(call: OperatorCall) -> str:
        lists = [tuple(call.ints(at) or ()) for at in (1, 2, 3, 4)]
        kernel, stride, padding, dilation = lists
        if not kernel or any(len(one) not in (0, 1, len(dimensions)) for one in lists):
            return ""  # the runner reports what is wrong with the call
        given = (kernel, stride or kernel, padding or (0,), dilation or (1,))
        windows = [one * (len(dimensions) // len(one)) for one in given]
        shapes = [call[name].shape[-len(dimensions) :] for name in ("self", "out")]
        for name, size, count, steps, step, edge, spread in zip(dimensions, *shapes, *windows, strict=False):
            for first in (at * step - edge for at in range(count)):
                if not any(0 <= first + spread * one < size for one in range(steps)):
                    return f"a window lies in the padding alone ({name}: the one at {first}), and has no largest pixel"
        return ""

    return relation
