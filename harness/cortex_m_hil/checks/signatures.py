"""The operators' signatures: dtypes and dim orders of the tensors that each takes, by runtime, in one table for lint.

Sources: for `builtin`, the kernels in `firmware/runtime/builtin/kernels/`; `tests/harness/checks/test_lint.py` holds
this table against them. For `executorch`, its commit cff6f4dd: the checks of `backends/cortex_m/ops/op_*.cpp` and of
`cortex_m_ops_common.h` there, `kernels/portable/cpu/op_*.cpp`, `runtime/core/exec_aten/util/tensor_util_portable.cpp`.
Where ExecuTorch checks nothing and computes something else, the table has what it computes rightly (the finds in
docs/known_bugs.md).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final, Literal

from cortex_m_hil.errors import known_bug
from cortex_m_hil.errors.text import counted
from cortex_m_hil.program.model import Instruction, PteFile, Value
from cortex_m_hil.program.schema import SCALAR_TYPES, InstructionKind, ValueKind
from cortex_m_hil.program.tensor import TensorSpec
from cortex_m_hil.targets.cpu import Isa

CHANNELS_LAST: Final = (0, 2, 3, 1)
_FLOATS: Final = "float16|float32|float64"
_REVERSED_FROM: Final = 16
"""CMSIS-NN's REVERSE_TCOL_EFFICIENT_THRESHOLD: more input channels, and strides up to 2, make it a convolution."""

_MOST_SHIFTED: Final = 31

About = Literal["dtype", "dim-order", "arguments"]


@dataclass(frozen=True, slots=True)
class Misfit:
    """Something that an instruction has and its operator does not take.

    Attributes:
        about: dtype, dim order or other arguments.
        problem: in words.
        value: the index of the value; -1 where it is not about one value.
        hint: the next step, in place of that of its rule; "" where that applies.
    """

    about: About
    problem: str
    value: int = -1
    hint: str = ""  # in place of that of its rule


# --- dim orders ------------------------------------------------------------------------------------------------------


def _strides(spec: TensorSpec) -> tuple[int, ...]:
    """Return the strides of a tensor in items, one for each dimension."""
    strides = [0] * len(spec.shape)
    stride = 1
    for dim in reversed(spec.dim_order):
        strides[dim] = stride
        stride *= spec.shape[dim]
    return tuple(strides)


def _lies_in(spec: TensorSpec, order: tuple[int, ...]) -> bool:
    """Tell whether a tensor's bytes are those of one in that dim order; dimensions of size 1 may stand anywhere."""
    if len(order) != len(spec.shape):
        return False
    wanted = _strides(TensorSpec(spec.dtype, spec.shape, order))
    return all(size == 1 or one == other for size, one, other in zip(spec.shape, _strides(spec), wanted, strict=True))


def _is_rows(spec: TensorSpec) -> bool:
    return list(spec.memory_order) == sorted(spec.memory_order)


def _is_image(spec: TensorSpec) -> bool:
    return _lies_in(spec, CHANNELS_LAST)


def _alike(one: TensorSpec, other: TensorSpec) -> bool:
    """Tell whether two tensors have one shape, with the same element at the same place."""
    return one.shape == other.shape and _lies_in(one, other.dim_order)


def _is_default(spec: TensorSpec) -> bool:
    return list(spec.dim_order) == sorted(spec.dim_order)


def _is_channels_last(spec: TensorSpec) -> bool:
    return spec.dim_order in (CHANNELS_LAST, (0, 2, 3, 4, 1))


def _counts_as_channels_last(spec: TensorSpec) -> bool:
    """Tell whether ExecuTorch takes a tensor for channels-last, as it does where both layouts are the same bytes.

    Its rule is `is_channels_last_tensor`.
    """
    if len(spec.shape) != 4:
        return False
    return spec.shape[1] == 1 or spec.shape[2:] == (1, 1) or spec.dim_order == CHANNELS_LAST


_FORMS: Final[Mapping[str, tuple[Callable[[TensorSpec], bool], str]]] = {
    "rows": (_is_rows, "contiguous"),
    "default": (_is_default, "contiguous, with dimensions of size 1 in their order too"),
    "image": (_is_image, "4-D in channels-last dim order (0, 2, 3, 1)"),
    "nhwc": (lambda spec: len(spec.shape) == 4 and _is_rows(spec), "4-D and contiguous"),
}


# --- the table's words -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Call:
    """An instruction with its tensors by their names in the schema."""

    file: PteFile
    instruction: Instruction
    tensors: Mapping[str, TensorSpec]

    def __getitem__(self, name: str) -> TensorSpec:
        return self.tensors[name]

    def value(self, at: int) -> Value | None:
        """Return an argument by its number in the schema, from the end if negative; None if the call is too short."""
        arguments = self.instruction.args[:-1]  # the last one is what the operator returns
        return self.file.values[arguments[at]] if -len(arguments) <= at < len(arguments) else None

    def ints(self, at: int) -> tuple[int, ...] | None:
        """Return the numbers of a list argument; None where it is no list of numbers."""
        value = self.value(at)
        return self.file.ints(value.index) if value is not None and value.kind is ValueKind.INT_LIST else None


Relation = Callable[[Call], str]  # returns what is wrong, "" if nothing; about dim orders by default


@dataclass(frozen=True)
class _OfArguments:
    """A relation that another dim order alone does not mend, with a hint that does."""

    relation: Relation
    hint: str
    about: About = "arguments"

    def __call__(self, call: Call) -> str:
        return self.relation(call)


def _of_arguments(hint: str, about: About = "arguments") -> Callable[[Relation], Relation]:
    return lambda relation: _OfArguments(relation, hint, about)


@dataclass(frozen=True)
class _Operand:
    """A tensor or list among an operator's arguments.

    Attributes:
        at: its number in the schema, from the end if negative.
        name: its name in the schema.
        dtype: names joined by "|", "any", "=NAME" for that of another operand, or "ints" for a list of numbers.
        form: a key of `_FORMS`; "" for any dim order.
        optional: it may be None.
    """

    at: int
    name: str
    dtype: str
    form: str = ""
    optional: bool = False


@dataclass(frozen=True)
class Signature:
    operands: tuple[_Operand, ...]
    relations: tuple[Relation, ...] = ()


def _takes(operands: str, *relations: Relation) -> Signature:
    """Return a signature of `operands`, "number name dtype [form]" separated by commas, and of relations between them.

    An operand whose name ends in "?" may be None.
    """
    found = []
    for words in (text.split() for text in operands.split(",")):
        at, name, dtype, form = [*words, ""][:4]
        found.append(_Operand(int(at), name.rstrip("?"), dtype, form, name.endswith("?")))
    return Signature(tuple(found), relations)


# --- between the tensors of a call -----------------------------------------------------------------------------------


def _same_layout(*names: str) -> Relation:
    def relation(call: Call) -> str:
        if all(_alike(call[name], call["out"]) for name in names):
            return ""
        return f"{', '.join(names)} and out must have one shape and dim order"

    return relation


_INTEGERS: Final = {"int8": 1 << 7, "int32": 1 << 31, "int64": 1 << 31}
"""Limits of the numbers that builtin takes beside a tensor, as distances from 0; 32 bits beside a tensor of 64, too."""


def _number_is_of(name: str, *numbers: int) -> Relation:
    """Return a relation by which some arguments, given by their numbers in the schema, are integers where `name` is."""

    def relation(call: Call) -> str:
        dtype = call[name].dtype
        for value in map(call.value, numbers):
            if value is not None and not _is_number_of(dtype, value):
                return f"{name} is {dtype}, the number beside it {value.scalar}"
        return ""

    return _OfArguments(relation, "a number of the tensor's dtype, or the tensor converted before: x.to(torch.float32)")


def _is_number_of(dtype: str, value: Value) -> bool:
    limit = _INTEGERS.get(dtype)
    if limit is None or value.kind not in (ValueKind.INT, ValueKind.DOUBLE):
        return True
    return isinstance(value.scalar, int) and -limit <= value.scalar < limit


def _sum_or_product(call: Call) -> str:
    """Check for one shape and dim order, or for an operand with one item a channel and channels innermost."""
    one, other, out = call["self"], call["other"], call["out"]
    if _alike(one, out) and _alike(other, out):
        return ""
    whole, part = (other, one) if one.numel < other.numel else (one, other)
    per_channel = len(part.shape) == len(whole.shape) == 4 and part.numel == part.shape[1] == whole.shape[1]
    if per_channel and whole.numel and _alike(whole, out) and _is_image(out):
        return ""
    return "one shape and dim order needed, or one item a channel in channels-last dim order"


def _broadcasts_as_stored(call: Call) -> str:
    """Check the operands of CMSIS-NN's minimum and maximum, which get the sizes as they stand in any dim order."""
    one, other, out = call["self"], call["other"], call["out"]
    by_scalar = other.numel == 1 and len(other.shape) <= len(out.shape)
    if _alike(one, out) and (by_scalar or _alike(other, out)):
        return ""
    if len(out.shape) <= 4 and all(_is_rows(spec) for spec in (one, other, out)):
        return ""
    return "not contiguous, and shapes or dim orders differ: it is computed as if contiguous"


@_of_arguments("a reshape first, that makes one of dimensions which stay side by side")
def _up_to_four_dimensions(call: Call) -> str:
    """Check that a transposed tensor has at most 4 dimensions: CMSIS-NN's arm_transpose_s8 takes no more."""
    rank = len(call["input"].shape)
    return "" if 1 <= rank <= 4 else f"{rank} dimensions, and no kernel takes more than 4"


def _pads_in_order(call: Call) -> str:
    order = CHANNELS_LAST if _counts_as_channels_last(call["input"]) else tuple(range(len(call["input"].shape)))
    return "" if all(_lies_in(call[name], order) for name in ("input", "out")) else "input and out differ in dim order"


@_of_arguments("the softmax's input has next to no range: calibrate with samples like the data")
def _shifts_to_the_left(call: Call) -> str:
    """Check that the shift of a softmax is 0 to 31: CMSIS-NN's arm_softmax_s8 multiplies by 1 << shift."""
    shift = call.value(5)
    if shift is None or not isinstance(shift.scalar, int) or 0 <= shift.scalar <= _MOST_SHIFTED:
        return ""
    return f"input_shift is {shift.scalar}, and CMSIS-NN shifts by 0 to {_MOST_SHIFTED}"


def _has_its_dim_order(call: Call) -> str:
    """Check that a copy's output lies in the dim order of its argument dim_order.

    Where a dimension has size 1, the compiler may name two orders of the same bytes.
    """
    wanted, out = call.ints(2), call["out"]
    if wanted is None or (sorted(wanted) == list(range(len(out.shape))) and _lies_in(out, wanted)):
        return ""
    return f"its argument dim_order is {list(wanted)}, and out has {list(out.dim_order)}"


def _names_its_dtype(name: str) -> Relation:
    def relation(call: Call) -> str:
        given = call.value(5)
        number = given.scalar if given is not None else None
        dtypes = {SCALAR_TYPES["CHAR"]: "int8", SCALAR_TYPES["SHORT"]: "int16"}
        if isinstance(number, int) and dtypes.get(number) == call[name].dtype:
            return ""
        return f"{name} is {call[name].dtype}, its argument dtype is {number}"

    return _OfArguments(relation, "the file contradicts itself: lower the module anew")


def _same_order(call: Call) -> str:
    """Check that all named tensors of a call have one dim order, as ExecuTorch's `tensors_have_same_dim_order` does."""
    specs = tuple(call.tensors.values())
    if all(map(_is_default, specs)) or all(map(_is_channels_last, specs)):
        return ""
    return "all must be contiguous, or all in channels-last dim order"


def _input_and_out_in_order(call: Call) -> str:
    """Check that a convolution's tensors are contiguous or channels-last, as ExecuTorch's portable kernels need them.

    Input and output must have the same of these two dim orders.
    """
    if not all(_is_default(spec) or _is_channels_last(spec) for spec in call.tensors.values()):
        return "a tensor is neither contiguous nor in channels-last dim order"
    return _same_order(Call(call.file, call.instruction, {name: call[name] for name in ("input", "out")}))


_MOST_OF_16_BITS: Final = (1 << 15) - 1 - 128
"""The largest distance of a zero point from 0 at which its difference from any int8 fits in 16 bits."""
_LITTLE_RANGE: Final = (
    "what is multiplied has next to no range: calibrate with samples like the data, or write "
    "x * torch.nn.functional.relu6(x + 3) / 6 for a hardswish, which is computed in float"
)


def _zero_points(call: Call) -> dict[str, int]:
    found = {"self_zero_point": call.value(1), "other_zero_point": call.value(3)}
    return {name: one.scalar for name, one in found.items() if one is not None and isinstance(one.scalar, int)}


@_of_arguments(_LITTLE_RANGE)
def _product_of_32_bits(call: Call) -> str:
    if math.prod(abs(one) + 128 for one in _zero_points(call).values()) < 1 << 31:
        return ""
    return f"zero points of {' and '.join(map(str, _zero_points(call).values()))}: a product can leave int32"


@_of_arguments(_LITTLE_RANGE)
def _factors_of_16_bits(call: Call) -> str:
    """Check that zero points of a product fit in 16 bits.

    CMSIS-NN's arm_elementwise_mul_s8 adds them in 16 bits on DSP (find 20 in docs/known_bugs.md).
    """
    for name, zero_point in _zero_points(call).items():
        if abs(zero_point) > _MOST_OF_16_BITS:
            return f"{name} is {zero_point}, which CMSIS-NN adds in 16 bits on DSP ({known_bug(20)})"
    return ""


_LARGEST_PRODUCT: Final = 128 * 255  # of an int8 weight and an input less its zero point


@_of_arguments(
    "beside this bias the layer's input has next to no range: scale it up, calibrate anew, or leave it in float "
    "(quantize=False)"
)
def _sums_of_32_bits(call: Call) -> str:
    """Check that sums which begin with a layer's bias fit in int32, also on MVE where `kernel_sum` has the bias.

    They may leave int32 where the layer's input has next to no range (find 34 in docs/known_bugs.md).
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
            return f"{name} has {found}, at {at}: a sum that begins with it can leave int32 ({known_bug(34)})"
    return ""


@_of_arguments("x.reshape(x.shape) before the operator, which puts dimensions of size 1 in their order", "dim-order")
def _known_orders(call: Call) -> str:
    """Check that input and output are in a dim order that ExecuTorch's max pool and var know.

    Their `tensor_is_default_or_channels_last_dim_order` refuses others of the same bytes, which the exporter derives
    for a single channel (find 6 in docs/known_bugs.md).
    """
    if all(_is_default(call[name]) or _is_channels_last(call[name]) for name in ("self", "out")):
        return ""
    return f"self or out is neither contiguous nor in channels-last dim order, even if its bytes are ({known_bug(6)})"


def _broadcasts_contiguous(call: Call) -> str:
    """Check that the output is contiguous where shapes differ.

    ExecuTorch's portable operators that broadcast write a channels-last output in contiguous order (find 5 in
    docs/known_bugs.md).
    """
    out = call["out"]
    if _is_rows(out) or all(spec.shape == out.shape for spec in call.tensors.values()):
        return ""
    return f"portable operators that broadcast write a channels-last out in contiguous order ({known_bug(5)})"


def _copies_as_stored(call: Call) -> str:
    """Check that a copy's source has the bytes of its output.

    ExecuTorch takes the bytes of a source of the same shape as they are, and broadcasts another in contiguous order
    (find 36 in docs/known_bugs.md).
    """
    src, out = call["src"], call["out"]
    if _alike(src, out) or (src.shape != out.shape and _is_rows(src) and _is_rows(out)):
        return ""
    return (
        "ExecuTorch takes the bytes of src as they are, and out has another dim order or broadcasts it "
        f"({known_bug(36)})"
    )


def _keeps_its_bytes(call: Call) -> str:
    """Check that input and output are the same elements in the same bytes.

    ExecuTorch's squeeze and unsqueeze copy the bytes as they are, whatever the dim orders (find 36 in
    docs/known_bugs.md).
    """
    if call["self"].numel == call["out"].numel and not call["self"].reads_as(call["out"]):
        return (
            f"ExecuTorch copies the bytes as they are, and in out's dim order they are other elements ({known_bug(36)})"
        )
    return ""


def _has_known_order(call: Call) -> str:
    """Check that a copy's output is contiguous or channels-last, as its argument dim_order says, or else as self is."""
    out, wanted = call["out"], call.ints(2) or call["self"].dim_order
    if wanted == out.dim_order and (_is_default(out) or _is_channels_last(out)):
        return ""
    return f"to dim order {list(wanted)}, and out has {list(out.dim_order)}: both must be contiguous, or channels-last"


def _indices_as_out(call: Call) -> str:
    """Check that indices lie as the output does.

    ExecuTorch's max pool writes indices where the output's items lie (find 36 in docs/known_bugs.md).
    """
    if _alike(call["indices"], call["out"]):
        return ""
    return f"ExecuTorch writes indices where out's items lie, and their dim order is another ({known_bug(36)})"


def _joins_as_stored(call: Call) -> str:
    """Check that tensors are joined along the first dimension, or are contiguous.

    ExecuTorch's cat joins memory as if it were contiguous (find 22 in docs/known_bugs.md).
    """
    dim, out = call.value(1), call["out"]
    if _is_rows(out) or (dim is not None and dim.scalar in (0, -len(out.shape))):
        return _same_order(call)
    return (
        "not contiguous: ExecuTorch's cat takes sizes as they stand, and joins along another dimension "
        f"({known_bug(22)})"
    )


def _channels_last_to_executorch(call: Call) -> str:
    if all(_counts_as_channels_last(call[name]) for name in ("input", "out")):
        return ""
    return "input and out must have dim order (0, 2, 3, 1)"


@_of_arguments("give the convolution a bias, of zeros if need be")
def _grouped_with_bias(call: Call) -> str:
    """Check that a grouped convolution has a bias.

    Without one, CMSIS-NN adds what lies behind the null pointer to the sums (find 9 in docs/known_bugs.md).
    """
    depth, channels = call["weight"].shape[-1:], call["input"].shape[-1 if _is_nhwc(call) else 1 :][:1]
    if "bias" in call.tensors or depth == channels:
        return ""
    return (
        "a grouped convolution without a bias: CMSIS-NN advances the null pointer and adds what lies there "
        f"({known_bug(9)})"
    )


def _is_nhwc(call: Call) -> bool:
    return call.instruction.operator.endswith("_nhwc.out")


def _image_sizes(spec: TensorSpec, nhwc: bool) -> tuple[int, int, int]:
    """Return height, width and channels of an image."""
    shape = spec.shape
    return (shape[1], shape[2], shape[3]) if nhwc else (shape[2], shape[3], shape[1])


@_of_arguments(
    "padding=0, a kernel of at least the stride's size (zeros at its end) and a slice of y.contiguous() compute the "
    "same"
)
def _rows_all_written(call: Call) -> str:
    """Check that CMSIS-NN's transposed convolution computes a call rightly.

    It does not where the scratch is too small (find 1 in docs/known_bugs.md), where the vertical padding is no
    multiple of the stride (find 2), and where the kernel has fewer rows than stride and padding together (find 21).
    """
    stride, paddings = call.ints(3) or (), call.ints(4) or ()
    if len(stride) != 2 or len(paddings) != 2 or any(len(call[name].shape) != 4 for name in ("input", "weight", "out")):
        return ""
    (stride_y, stride_x), padding = stride, paddings[0]
    _, width, channels = _image_sizes(call["input"], _is_nhwc(call))
    if min(stride_y, stride_x) < 1 or (max(stride_y, stride_x) <= 2 and channels > _REVERSED_FROM):
        return ""
    if padding % stride_y:
        return (
            f"a vertical padding of {padding} is no multiple of the stride {stride_y}: CMSIS-NN skips the rows of one "
            f"row of the input, and all after them are wrong ({known_bug(2)})"
        )
    _, height, kernel, _ = call["weight"].shape
    if (beyond := stride_y + padding - height) > 0:
        return (
            f"a kernel of {height} rows, less than the stride {stride_y} and the padding {padding}: CMSIS-NN writes "
            f"{beyond} more rows than out has ({known_bug(21)})"
        )
    columns = (width - 1) * stride_x + max(kernel, stride_x)
    used = max(height, stride_y) * columns * _image_sizes(call["out"], _is_nhwc(call))[2] * 4
    scratch = call.value(13)
    planned = scratch.spec.nbytes if scratch is not None and scratch.spec is not None else used
    if used <= planned:
        return ""
    return f"CMSIS-NN uses {used} bytes of its {planned} bytes of scratch ({known_bug(1)})"


@_of_arguments(
    "a kernel with a row of zeros above and below, and a row more of padding at both ends, computes the same"
)
def _row_to_its_end(call: Call) -> str:
    """Check that CMSIS-NN's arm_convolve_1_x_n_s8 computes a convolution of one row rightly on MVE.

    It ignores vertical padding, and needs a horizontal one whose end the last window reaches (find 39 in
    docs/known_bugs.md).
    """
    stride, padding, dilation = (call.ints(at) or () for at in (3, 4, 5))
    shapes = [call[name].shape for name in ("input", "weight", "out")]
    if any(len(one) != 2 for one in (stride, padding, dilation)) or any(len(one) != 4 for one in shapes):
        return ""  # the runner says what is wrong with it
    height, width, channels = _image_sizes(call["input"], _is_nhwc(call))
    columns = _image_sizes(call["out"], _is_nhwc(call))[1]
    _, rows, kernel, depth = call["weight"].shape
    is_row = (
        height == rows == 1
        and stride[1] > 0
        and dilation[1] == 1
        and channels == depth
        and stride[1] * channels % 4 == 0
    )
    if not is_row or (kernel == 1 and padding == (0, 0) and dilation[0] == 1):
        return ""
    reached = (columns - 1) * stride[1] + kernel - width  # of the padding at both ends
    padded = 2 * -(-padding[1] // stride[1])  # windows that are partly in it
    if reached == 2 * padding[1] and padded > columns:
        return ""  # this one is left to arm_convolve_s8
    if padding[0]:
        wrong = "a vertical padding"
    elif (padding[1], reached) == (0, -1):
        wrong = "a last column that no window reaches"
    elif reached != 2 * padding[1]:
        unreached = counted(2 * padding[1] - reached, "column")
        return (
            f"CMSIS-NN refuses, on MVE, a row that ends with {unreached} out of reach of any window ({known_bug(39)})"
        )
    elif kernel > 1 and padding[1] and (padding[1] - 1) % stride[1]:
        wrong = f"a stride of {stride[1]} and a padding of {padding[1]}"  # the kernel reads behind the row
    else:
        return ""
    return f"CMSIS-NN computes a row with {wrong} wrongly on MVE ({known_bug(39)})"


# --- the table -------------------------------------------------------------------------------------------------------

_NUMBERS: Final = "float32|int32|int64"
_CHOSEN: Final = "float32|int8|int32|int64"
_ITEMS: Final = "float32|int8|int32|int64|bool"
_UNQUANTISED: Final = "float32|int32|int64|bool"

_COPY: Final = _takes("0 self any, -1 out =self")
_IN_PLACE: Final = "0 self any, 1 src =self"
_POOL: Final = "0 self int8|float32, 6 out =self, 7 indices int64"
_FUNCTION: Final = _takes("0 self float32, -1 out =self")
_FUNCTION_OF_NUMBERS: Final = _takes(f"0 self {_NUMBERS}, -1 out =self")
_ARITHMETIC: Final = _takes(f"0 self {_NUMBERS}, 1 other =self, -1 out =self")
_SUM: Final = _takes(f"0 self {_NUMBERS}, 1 other =self, -1 out =self", _number_is_of("self", 2))
_CHOICE: Final = _takes(f"0 self {_CHOSEN}, 1 other =self, -1 out =self")
_COMPARISON: Final = _takes(f"0 self {_ITEMS}, 1 other =self, -1 out bool")
_COMPARISON_TO_NUMBER: Final = _takes(f"0 self {_UNQUANTISED}, -1 out bool", _number_is_of("self", 1))
_LOGICAL: Final = _takes("0 self bool, 1 other bool, -1 out bool")
_LARGEST: Final = _takes("0 self float32|int8|int64, 1 dim ints, -1 out =self")
_LARGEST_AT: Final = _takes("0 self float32|int8|int64, -1 out int64")
_BITS: Final = _takes("0 self int32|int64|bool, 1 other =self, -1 out =self")
_PRODUCT: Final = _takes("0 self float32 rows, 1 mat2 float32 rows, -1 out float32 rows")


_CONVERTED: Final = ("float32", "int32", "int64", "bool")
_READ: Final = (*_CONVERTED, "uint8", "int16")


def _converts(call: Call) -> str:
    """Check that builtin copies between these dtypes, or to the same one."""
    one, out = call["self"].dtype, call["out"].dtype
    if one == out or (one in _READ and out in _CONVERTED):
        return ""
    return f"{one} does not become {out} here: from {' or '.join(_READ)} to {' or '.join(_CONVERTED)}"


@_of_arguments("add to the whole tensor, as with torch.where, or leave it in float")
def _sums_with_scales(call: Call) -> str:
    """Check that index_put does not accumulate quantised integers: ExecuTorch adds them as they are."""
    accumulate = call.value(3)
    if accumulate is None or not accumulate.scalar or call["self"].dtype != "int8":
        return ""
    return "accumulate=True adds without scale and zero point"


@_of_arguments("torch.where and masked_fill take a mask; a permute brings dimensions together")
def _neighbouring_indices(call: Call) -> str:
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


@_of_arguments("pad the image before the pool, with a number of your choice, or pool without dilation")
def _windows_with_pixels(call: Call) -> str:
    """Check that no window of a dilated pool lies in the padding alone.

    Such a window has no largest pixel, and each runtime gives another number for it.
    """
    lists = [call.ints(at) for at in (1, 2, 3, 4)]
    if any(one is not None and len(one) not in (0, 1, 2) for one in lists):
        return ""  # the runner says what is wrong with it
    kernel, stride, padding, dilation = (tuple(one or ()) for one in lists)
    windows = (kernel, stride or kernel, padding or (0,), dilation or (1,))
    for dim, name in enumerate(("height", "width")):
        size, steps, step, edge, spread = (
            call["self"].shape[2 + dim], *(one[dim] if len(one) == 2 else one[0] for one in windows)
        )  # fmt: skip
        for at in range(call["out"].shape[2 + dim]):
            first = at * step - edge
            if not any(0 <= first + spread * one < size for one in range(steps)):
                return f"a window lies in the padding alone ({name}: the one at {first}), and has no largest pixel"
    return ""


def _normalises(statistics: str, form: str = "") -> Signature:
    """Return the signature of a normalisation in builtin.

    Args:
        statistics: the operands between the input and the three outputs, as `_takes` has them.
        form: of input and output.
    """
    return _takes(
        f"0 input float32 {form}, {statistics}, -3 out float32 {form}, -2 mean float32, -1 rstd float32",
        _same_layout("input"),
    )


_FACTORS: Final = "1 weight? float32, 2 bias? float32"
_LARGEST_BOTH: Final = _takes("0 self float32|int8|int64, 3 out =self, 4 indices int64")

BUILTIN: Final[Mapping[str, Signature]] = {
    "aten::_adaptive_avg_pool2d.out": _FUNCTION,
    "aten::_log_softmax.out": _FUNCTION,
    "aten::_native_batch_norm_legit.no_stats_out": _normalises(_FACTORS),
    "aten::_native_batch_norm_legit_no_training.out": _normalises(
        f"{_FACTORS}, 3 running_mean float32, 4 running_var float32"
    ),
    "aten::_softmax.out": _FUNCTION,
    "aten::abs.out": _FUNCTION_OF_NUMBERS,
    "aten::add.out": _SUM,
    "aten::addmm.out": _takes("0 self float32, 1 mat1 float32 rows, 2 mat2 float32 rows, -1 out float32 rows"),
    "aten::amax.out": _LARGEST,
    "aten::amin.out": _LARGEST,
    "aten::any.out": _takes("0 self bool, -1 out bool"),
    "aten::arange.start_out": _takes("-1 out float32|int64"),
    "aten::argmax.out": _LARGEST_AT,
    "aten::argmin.out": _LARGEST_AT,
    "aten::as_strided_copy.out": _COPY,
    "aten::avg_pool2d.out": _FUNCTION,
    "aten::bitwise_and.Tensor_out": _BITS,
    "aten::bitwise_not.out": _takes("0 self int32|int64|bool, -1 out =self"),
    "aten::bitwise_or.Tensor_out": _BITS,
    "aten::bitwise_xor.Tensor_out": _BITS,
    "aten::bmm.out": _PRODUCT,
    "aten::cat.out": _takes("0 tensors =out, -1 out any"),
    "aten::ceil.out": _FUNCTION,
    "aten::clamp.out": _takes(f"0 self {_CHOSEN}, -1 out =self", _number_is_of("self", 1, 2)),
    "aten::constant_pad_nd.out": _takes(f"0 self {_UNQUANTISED}, -1 out =self", _number_is_of("self", 2)),
    "aten::convolution.out": _takes("0 input float32, 1 weight float32, 2 bias? float32, -1 out float32"),
    "aten::copy.out": _takes(f"{_IN_PLACE}, -1 out =self"),
    "aten::copy_": _takes(_IN_PLACE),
    "aten::cos.out": _FUNCTION,
    "aten::cumsum.out": _FUNCTION,
    "aten::div.out": _takes("0 self float32, 1 other float32, -1 out float32"),
    "aten::div.out_mode": _ARITHMETIC,
    "aten::elu.out": _FUNCTION,
    "aten::embedding.out": _takes("0 weight any rows, 1 indices int32|int64 rows, -1 out =weight rows"),
    "aten::exp.out": _FUNCTION,
    "aten::expand_copy.out": _COPY,
    "aten::flip.out": _COPY,
    "aten::floor.out": _FUNCTION,
    "aten::fmod.Scalar_out": _takes("0 self int32|int64, -1 out =self", _number_is_of("self", 1)),
    "aten::full.out": _takes(f"-1 out {_ITEMS}", _number_is_of("out", 1)),
    "aten::full_like.out": _takes(f"0 self any, -1 out {_ITEMS}", _number_is_of("out", 1)),
    "aten::gather.out": _takes("0 self any, 2 index int32|int64, -1 out =self"),
    "aten::gelu.out": _FUNCTION,
    "aten::hardtanh.out": _FUNCTION,
    "aten::index.Tensor_out": _takes("0 self any, -1 out =self", _neighbouring_indices),
    "aten::index_put.out": _takes("0 self any, 2 values =self, -1 out =self", _neighbouring_indices, _sums_with_scales),
    "aten::index_select.out": _takes("0 self any, 2 index int32|int64, -1 out =self"),
    "aten::leaky_relu.out": _FUNCTION,
    "aten::linear.out": _takes("0 input float32 rows, 1 weight float32 rows, 2 bias? float32, -1 out float32 rows"),
    "aten::log.out": _FUNCTION,
    "aten::log1p.out": _FUNCTION,
    "aten::logical_and.out": _LOGICAL,
    "aten::logical_not.out": _takes("0 self bool, -1 out bool"),
    "aten::logical_or.out": _LOGICAL,
    "aten::logical_xor.out": _LOGICAL,
    "aten::max.dim_max": _LARGEST_BOTH,
    "aten::max_pool2d_with_indices.out": _takes(_POOL, _windows_with_pixels),
    "aten::maximum.out": _CHOICE,
    "aten::mean.out": _FUNCTION,
    "aten::min.dim_min": _LARGEST_BOTH,
    "aten::minimum.out": _CHOICE,
    "aten::mm.out": _PRODUCT,
    "aten::mul.out": _ARITHMETIC,
    "aten::native_group_norm.out": _normalises(_FACTORS),
    "aten::native_layer_norm.out": _normalises("2 weight? float32, 3 bias? float32", "rows"),
    "aten::neg.out": _FUNCTION_OF_NUMBERS,
    "aten::permute_copy.out": _COPY,
    "aten::pow.Tensor_Scalar_out": _FUNCTION,
    "aten::reciprocal.out": _FUNCTION,
    "aten::relu.out": _FUNCTION,
    "aten::remainder.Scalar_out": _takes(f"0 self {_NUMBERS}, -1 out =self", _number_is_of("self", 1)),
    "aten::remainder.Tensor_out": _ARITHMETIC,
    "aten::repeat.out": _COPY,
    "aten::round.out": _FUNCTION,
    "aten::rsqrt.out": _FUNCTION,
    "aten::scalar_tensor.out": _takes(f"-1 out {_ITEMS}", _number_is_of("out", 0)),
    "aten::scatter.src_out": _takes("0 self any, 2 index int32|int64, 3 src =self, -1 out =self"),
    "aten::scatter.value_out": _takes(
        f"0 self {_UNQUANTISED}, 2 index int32|int64, -1 out =self", _number_is_of("self", 3)
    ),
    "aten::select_copy.int_out": _COPY,
    "aten::sigmoid.out": _FUNCTION,
    "aten::silu.out": _FUNCTION,
    "aten::sin.out": _FUNCTION,
    "aten::slice_copy.Tensor_out": _COPY,
    "aten::slice_scatter.out": _takes(f"{_IN_PLACE}, -1 out =self"),
    "aten::split_with_sizes_copy.out": _takes("0 self any, 3 out =self"),
    "aten::sqrt.out": _FUNCTION,
    "aten::squeeze_copy.dims_out": _COPY,
    "aten::sub.out": _SUM,
    "aten::sum.IntList_out": _takes("0 self float32|int64, -1 out =self"),
    "aten::tanh.out": _FUNCTION,
    "aten::trunc.out": _FUNCTION,
    "aten::unsqueeze_copy.out": _COPY,
    "aten::upsample_bilinear2d.vec_out": _FUNCTION,
    "aten::upsample_nearest2d.vec_out": _FUNCTION,
    "aten::var.correction_out": _FUNCTION,
    "aten::view_copy.out": _takes("0 self any rows, -1 out =self rows"),
    "aten::where.self_out": _takes("0 condition bool, 1 self any, 2 other =self, -1 out =self"),
    "dim_order_ops::_clone_dim_order.out": _takes("0 self any, -1 out =self", _has_its_dim_order),
    "dim_order_ops::_to_dim_order_copy.out": _takes(
        "0 self any, -1 out any",
        _OfArguments(_converts, "give the program a tensor of one of these, converted by whoever calls it", "dtype"),
        _has_its_dim_order,
    ),
    **{f"aten::{name}.Tensor_out": _COMPARISON for name in ("eq", "ge", "gt", "le", "lt", "ne")},
    **{f"aten::{name}.Scalar_out": _COMPARISON_TO_NUMBER for name in ("eq", "ge", "gt", "le", "lt", "ne")},
}

_ANY_BINARY: Final = _takes("0 self any, 1 other any, -1 out any", _same_order, _broadcasts_contiguous)

_INTEGRAL: Final = "uint8|int8|int16|int32|int64|bool"
_BITS_OF_ANY: Final = _takes(f"0 self {_INTEGRAL}, 1 other any, -1 out any", _same_order, _broadcasts_contiguous)


_ANY: Final = _takes("0 self any, -1 out any", _same_order)
_LARGEST_BOTH_DEFAULT: Final = _takes("0 self any default, 3 out =self default, 4 indices int64 default")
_ANY_DEFAULT: Final = _takes("0 self any default, -1 out any default")
_FLOAT: Final = _takes(f"0 self {_FLOATS}, -1 out =self", _same_order)
_FLOAT_DEFAULT: Final = _takes(f"0 self {_FLOATS} default, -1 out =self default")
_TO_NUMBER: Final = _takes(f"0 self {_FLOATS}|int32|int64|bool, -1 out any", _same_order)
_PRODUCT_OF_ANY: Final = _takes("0 self any default, 1 mat2 =self default, -1 out =self default")


def _same_batches(factors: str) -> Signature:
    """Return the signature of a normalisation by the channel, which ExecuTorch has for contiguous tensors only."""
    return _takes(f"0 input {_FLOATS} default, {factors}, -3 out =input default, -2 mean =input, -1 rstd =input")


EXECUTORCH: Final[Mapping[str, Signature]] = {
    "aten::_adaptive_avg_pool2d.out": _FLOAT_DEFAULT,
    "aten::_log_softmax.out": _FLOAT_DEFAULT,
    "aten::_native_batch_norm_legit.no_stats_out": _same_batches("1 weight? =input, 2 bias? =input"),
    "aten::_native_batch_norm_legit_no_training.out": _same_batches(
        "1 weight? =input, 2 bias? =input, 3 running_mean =input, 4 running_var =input"
    ),
    "aten::_softmax.out": _FLOAT_DEFAULT,
    "aten::abs.out": _takes("0 self any, -1 out =self", _same_order),
    "aten::add.out": _ANY_BINARY,
    "aten::addmm.out": _takes("0 self any default, 1 mat1 =self default, 2 mat2 =self default, -1 out =self default"),
    "aten::amax.out": _takes("0 self any default, 1 dim ints, -1 out =self default"),
    "aten::amin.out": _takes("0 self any default, 1 dim ints, -1 out =self default"),
    "aten::any.out": _ANY_DEFAULT,
    "aten::arange.start_out": _takes("-1 out any"),
    "aten::argmax.out": _takes("0 self any default, -1 out int64 default"),
    "aten::argmin.out": _takes("0 self any default, -1 out int64 default"),
    "aten::as_strided_copy.out": _takes("0 self any default, -1 out =self default"),
    "aten::avg_pool2d.out": _takes(f"0 self {_FLOATS}|int64 default, -1 out =self default"),
    "aten::bitwise_and.Tensor_out": _BITS_OF_ANY,
    "aten::bitwise_not.out": _takes(f"0 self {_INTEGRAL}, -1 out =self", _same_order),
    "aten::bitwise_or.Tensor_out": _BITS_OF_ANY,
    "aten::bitwise_xor.Tensor_out": _BITS_OF_ANY,
    "aten::bmm.out": _PRODUCT_OF_ANY,
    "aten::cat.out": _takes("0 tensors any, -1 out any", _joins_as_stored),
    "aten::ceil.out": _FLOAT,
    "aten::clamp.out": _takes("0 self any, -1 out =self", _same_order),
    "aten::constant_pad_nd.out": _takes(f"0 self {_FLOATS}|int32|int64|bool default, -1 out =self default"),
    "aten::convolution.out": _takes(f"0 input {_FLOATS}, 1 weight =input, -1 out =input", _input_and_out_in_order),
    "aten::copy.out": _takes(f"{_IN_PLACE}, -1 out =self", _same_order, _copies_as_stored),
    "aten::copy_": _takes(_IN_PLACE, _same_order),
    "aten::cos.out": _ANY,
    "aten::cumsum.out": _ANY_DEFAULT,
    "aten::div.out": _ANY_BINARY,
    "aten::div.out_mode": _ANY_BINARY,
    "aten::elu.out": _FLOAT,
    "aten::embedding.out": _takes("0 weight any default, 1 indices int32|int64 default, -1 out =weight default"),
    "aten::exp.out": _ANY,
    "aten::expand_copy.out": _ANY_DEFAULT,
    "aten::flip.out": _takes("0 self any default, -1 out =self default"),
    "aten::floor.out": _FLOAT,
    "aten::fmod.Scalar_out": _ANY,
    "aten::full_like.out": _ANY_DEFAULT,
    "aten::gather.out": _takes("0 self any default, 2 index int64 default, -1 out =self default"),
    "aten::gelu.out": _FLOAT,
    "aten::hardtanh.out": _FLOAT,
    "aten::index.Tensor_out": _takes("0 self any default, -1 out =self default"),
    "aten::index_put.out": _takes(
        "0 self any default, 2 values =self default, -1 out =self default", _sums_with_scales
    ),
    "aten::index_select.out": _takes("0 self any default, 2 index int32|int64, -1 out =self default"),
    "aten::leaky_relu.out": _FLOAT,
    "aten::log.out": _ANY,
    "aten::log1p.out": _ANY,
    "aten::logical_and.out": _ANY_BINARY,
    "aten::logical_not.out": _ANY,
    "aten::logical_or.out": _ANY_BINARY,
    "aten::logical_xor.out": _ANY_BINARY,
    "aten::max.dim_max": _LARGEST_BOTH_DEFAULT,
    "aten::max_pool2d_with_indices.out": _takes(
        "0 self any, 6 out =self, 7 indices int64", _known_orders, _indices_as_out, _windows_with_pixels
    ),
    "aten::maximum.out": _ANY_BINARY,
    "aten::mean.out": _takes(f"0 self any default, -1 out {_FLOATS} default"),
    "aten::min.dim_min": _LARGEST_BOTH_DEFAULT,
    "aten::minimum.out": _ANY_BINARY,
    "aten::mm.out": _PRODUCT_OF_ANY,
    "aten::mul.out": _ANY_BINARY,
    "aten::native_group_norm.out": _same_batches("1 weight? =input, 2 bias? =input"),
    "aten::native_layer_norm.out": _same_batches("2 weight? =input, 3 bias? =input"),
    "aten::neg.out": _takes("0 self any, -1 out =self", _same_order),
    "aten::permute_copy.out": _takes("0 self any default, -1 out =self default"),
    "aten::pow.Tensor_Scalar_out": _ANY,
    "aten::reciprocal.out": _ANY,
    "aten::relu.out": _FLOAT,
    "aten::remainder.Scalar_out": _ANY,
    "aten::remainder.Tensor_out": _ANY_BINARY,
    "aten::repeat.out": _takes("0 self any default, -1 out =self default"),
    "aten::round.out": _FLOAT,
    "aten::rsqrt.out": _ANY,
    "aten::scalar_tensor.out": _takes("-1 out any"),
    "aten::scatter.src_out": _takes(
        "0 self any default, 2 index int64 default, 3 src =self default, -1 out =self default"
    ),
    "aten::scatter.value_out": _takes(
        f"0 self {_FLOATS}|int32|int64|bool default, 2 index int64 default, -1 out =self default"
    ),
    "aten::select_copy.int_out": _takes("0 self any default, -1 out =self default"),
    "aten::sigmoid.out": _ANY,
    "aten::sin.out": _ANY,
    "aten::slice_copy.Tensor_out": _takes("0 self any default, -1 out =self default"),
    "aten::slice_scatter.out": _takes("0 self any default, 1 src any default, -1 out =self default"),
    "aten::split_with_sizes_copy.out": _takes("0 self any default, 3 out =self default", _same_order),
    "aten::sqrt.out": _ANY,
    "aten::squeeze_copy.dims_out": _takes("0 self any, -1 out =self", _same_order, _keeps_its_bytes),
    "aten::sub.out": _ANY_BINARY,
    "aten::sum.IntList_out": _ANY_DEFAULT,
    "aten::tanh.out": _ANY,
    "aten::trunc.out": _FLOAT,
    "aten::unsqueeze_copy.out": _takes("0 self any, -1 out =self", _keeps_its_bytes),
    "aten::upsample_bilinear2d.vec_out": _takes("0 self any, -1 out =self", _same_order),
    "aten::upsample_nearest2d.vec_out": _takes("0 self any, -1 out =self", _same_order),
    "aten::var.correction_out": _takes(f"0 self {_FLOATS}, -1 out =self default", _known_orders),
    "aten::view_copy.out": _takes("0 self any default, -1 out =self default"),
    "aten::where.self_out": _takes(
        "0 condition bool|uint8, 1 self any, 2 other any, -1 out any", _same_order, _broadcasts_contiguous
    ),
    "dim_order_ops::_clone_dim_order.out": _takes("0 self any, -1 out =self", _has_its_dim_order, _has_known_order),
    "dim_order_ops::_to_dim_order_copy.out": _takes("0 self any, -1 out any", _has_its_dim_order, _has_known_order),
    **{f"aten::{name}.Tensor_out": _ANY_BINARY for name in ("eq", "ge", "gt", "le", "lt", "ne")},
    **{f"aten::{name}.Scalar_out": _TO_NUMBER for name in ("eq", "ge", "gt", "le", "lt", "ne")},
}


_SCALE_KEPT: Final = ("aten::upsample_bilinear2d.vec_out", "aten::upsample_nearest2d.vec_out")


def _takes_int8(signature: Signature, name: str) -> bool:
    wanted = next(one.dtype for one in signature.operands if one.name == name)
    return (
        _takes_int8(signature, wanted[1:]) if wanted.startswith("=") else "int8" in wanted.split("|") or wanted == "any"
    )


def _only_there() -> Iterator[str]:
    """Yield the operators that take int8 in ExecuTorch and not in builtin, where copies and choices alone take it."""
    for operator, signature in EXECUTORCH.items():
        first = signature.operands[0].name
        if first != "out" and _takes_int8(signature, first) and not _takes_int8(BUILTIN[operator], first):
            yield operator


BLIND_TO_SCALES: Final = frozenset(
    {
        "aten::constant_pad_nd.out",
        "aten::convolution.out",
        "aten::hardtanh.out",
        "aten::relu.out",
        *(f"aten::{name}.Scalar_out" for name in ("eq", "ge", "gt", "le", "lt", "ne")),
        *_only_there(),
    }
).difference(_SCALE_KEPT)
"""Operators of ExecuTorch that take quantised integers and compute on them without scales: wrong, without an error."""


def _convolution(form: str, offsets: int, weight: str = "rows") -> str:
    return (
        f"0 input int8 {form}, 1 weight int8 {weight}, 2 bias? int32, {offsets + 2} requantize_multipliers int32, "
        f"{offsets + 3} requantize_shifts int32, -1 out int8 {form}"
    )


def _cortex_m() -> dict[str, Signature]:
    """Return the signatures of cortex_m's operators, which both runtimes share.

    What `builtin` refuses besides, ExecuTorch refuses or computes wrongly.
    """
    pair = "0 self int8, {} other int8, -1 out int8"
    found = {
        "dequantize_per_tensor": _takes(
            "0 input int8|int16, -1 out float32", _names_its_dtype("input"), _same_layout("input")
        ),
        "maximum": _takes(pair.format(1), _broadcasts_as_stored),
        "minimum": _takes(pair.format(1), _broadcasts_as_stored),
        "pad": _takes("0 input int8, -1 out int8", _pads_in_order),
        "quantize_per_tensor": _takes(
            "0 input float32, -1 out int8|int16", _names_its_dtype("out"), _same_layout("input")
        ),
        "quantized_activation": _takes("0 input int8, 1 lut int8, -1 out int8"),
        "quantized_add": _takes(pair.format(4), _sum_or_product),
        "quantized_batch_matmul": _takes("0 lhs int8 rows, 2 rhs_transposed int8 rows, -1 out int8 rows"),
        "quantized_div": _takes("0 self int8|int16, 2 other =self, -1 out =self", _same_layout("self", "other")),
        "quantized_linear": _takes(
            "0 input int8 rows, 1 weights int8 rows, 2 bias? int32, 3 kernel_sum? int32, -1 out int8 rows",
            _sums_of_32_bits,
        ),
        "quantized_mul": _takes(pair.format(2), _sum_or_product, _product_of_32_bits),
        "softmax": _takes("0 input int8 rows, -1 out int8 rows", _shifts_to_the_left),
        "transpose": _takes("0 input int8 rows, -1 out int8 rows", _up_to_four_dimensions),
    }
    for suffix, form in (("", "image"), ("_nhwc", "nhwc")):
        found[f"quantized_avg_pool2d{suffix}"] = _takes(f"0 input int8 {form}, -1 out int8 {form}")
        found[f"quantized_max_pool2d{suffix}"] = _takes(f"0 input int8 {form}, -1 out int8 {form}")
        found[f"quantized_conv2d{suffix}"] = _takes(_convolution(form, 6), _sums_of_32_bits)
        found[f"quantized_depthwise_conv2d{suffix}"] = _takes(_convolution(form, 7), _sums_of_32_bits)
        found[f"quantized_transpose_conv2d{suffix}"] = _takes(_convolution(form, 7), _sums_of_32_bits)
    return {f"cortex_m::{name}.out": signature for name, signature in found.items()}


_CORTEX_M: Final[Mapping[str, Signature]] = _cortex_m()

_DEFECTS: Final[Mapping[str, tuple[Relation, ...]]] = {
    "cortex_m::quantized_avg_pool2d.out": (_channels_last_to_executorch,),
    "cortex_m::quantized_conv2d.out": (_channels_last_to_executorch, _grouped_with_bias),
    "cortex_m::quantized_conv2d_nhwc.out": (_grouped_with_bias,),
    "cortex_m::quantized_depthwise_conv2d.out": (_channels_last_to_executorch,),
    "cortex_m::quantized_max_pool2d.out": (_channels_last_to_executorch,),
    "cortex_m::quantized_transpose_conv2d.out": (_channels_last_to_executorch, _rows_all_written),
    "cortex_m::quantized_transpose_conv2d_nhwc.out": (_rows_all_written,),
}
"""Calls that ExecuTorch with CMSIS-NN refuses or computes wrongly besides."""


_ON_DSP: Final[Mapping[str, tuple[Relation, ...]]] = {"cortex_m::quantized_mul.out": (_factors_of_16_bits,)}
"""Calls that neither runtime computes on DSP: builtin refuses what CMSIS-NN computes wrongly."""

_DEFECTS_ON_MVE: Final[Mapping[str, tuple[Relation, ...]]] = {
    f"cortex_m::quantized_{name}.out": (_row_to_its_end,) for name in ("conv2d", "conv2d_nhwc")
}


def signature_of(operator: str, runtime: str, isa: Isa | None = None) -> Signature | None:
    """Return an operator's signature; None where nothing is known of it.

    Args:
        operator: its name.
        runtime: what will execute it.
        isa: the target's class; None: what holds for all classes.
    """
    shared = _CORTEX_M.get(operator)
    if shared is None:
        return (BUILTIN if runtime == "builtin" else EXECUTORCH).get(operator)
    relations = (*shared.relations, *(_ON_DSP.get(operator, ()) if isa is Isa.DSP else ()))
    if runtime != "builtin":
        of_class = _DEFECTS_ON_MVE.get(operator, ()) if isa is Isa.MVE else ()
        relations = (*relations, *_DEFECTS.get(operator, ()), *of_class)
    return Signature(shared.operands, relations)


_AMAX: Final = f"write x.amax(dim) for x.max(dim)[0], of which ExecuTorch makes a call without a list ({known_bug(26)})"

# --- asking it -------------------------------------------------------------------------------------------------------


def misfits(file: PteFile, instruction: Instruction, runtime: str, isa: Isa | None = None) -> Iterator[Misfit]:
    """Yield what is wrong with an instruction's dtypes; where they are right, with dim orders and other arguments.

    Args:
        file: the program's file.
        instruction: one of its instructions.
        runtime: what will execute it.
        isa: the target's class; None: what holds for all classes is checked.
    """
    signature = signature_of(instruction.operator, runtime, isa)
    if instruction.kind is not InstructionKind.KERNEL or signature is None:
        return
    arguments = Call(file, instruction, {})
    found = [named for operand in signature.operands for named in _named(arguments, operand)]
    call = Call(file, instruction, {name: value.spec for name, _, value in found if value.spec is not None})
    wrong = [misfit for name, operand, value in found for misfit in _wrong_dtype(name, operand, value, call)]
    yield from wrong
    missing = [
        operand for operand in signature.operands if not operand.optional and arguments.value(operand.at) is None
    ]
    if not wrong and not missing:
        yield from _wrong_orders(signature, found, call)


def blind_to_scales(file: PteFile, instruction: Instruction, quantised: frozenset[int]) -> Iterator[Misfit]:
    """Yield each quantised argument of an operator that knows no scales; `quantised` are the values that have one."""
    if instruction.operator not in BLIND_TO_SCALES:
        return
    call = Call(file, instruction, {})
    for operand in EXECUTORCH[instruction.operator].operands:
        for name, _, value in _named(call, operand):
            if operand.at >= 0 and value.index in quantised:
                yield Misfit("dtype", f"{name} is {value.spec}, quantised", value.index)


def takes(file: PteFile, instruction: Instruction, runtime: str, isa: Isa) -> bool:
    """Tell whether the runtime is known to take an instruction as it is, on a target of the class."""
    known = signature_of(instruction.operator, runtime, isa) is not None
    return known and not any(misfits(file, instruction, runtime, isa))


_Named = tuple[str, _Operand, Value]


def _named(call: Call, operand: _Operand) -> Iterator[_Named]:
    """Yield name and value of an argument, or of each item of a list; nothing if it is None or the call too short."""
    value = call.value(operand.at)
    if value is None or (operand.optional and value.kind is ValueKind.NULL):
        return
    if value.kind is ValueKind.TENSOR_LIST:
        for number, item in enumerate(value.items):
            yield f"{operand.name}[{number}]", operand, call.file.values[int(item)]
    else:
        yield operand.name, operand, value


def _wrong_dtype(name: str, operand: _Operand, value: Value, call: Call) -> Iterator[Misfit]:
    if operand.dtype == "ints":
        if value.kind is not ValueKind.INT_LIST:
            problem = f"{name} is {value.kind.value}, the operator takes IntList"
            yield Misfit("dtype", problem, value.index, _AMAX if value.kind is ValueKind.INT else "")
        return
    if value.kind is not ValueKind.TENSOR or value.spec is None:
        yield Misfit("dtype", f"{name} is a {value.kind.value}, the operator takes a Tensor", value.index)
        return
    wanted = operand.dtype
    if wanted.startswith("="):
        other = call.tensors.get(wanted[1:])
        wanted = other.dtype if other is not None else "any"
    if wanted != "any" and value.spec.dtype not in wanted.split("|"):
        dtypes = wanted.replace("|", " or ")
        yield Misfit("dtype", f"{name} is {value.spec}, the operator takes {dtypes}", value.index)


def _wrong_orders(signature: Signature, found: list[_Named], call: Call) -> Iterator[Misfit]:
    for name, operand, value in found:
        if operand.form and value.spec is not None:
            fits, words = _FORMS[operand.form]
            if not fits(value.spec):
                yield Misfit("dim-order", f"{name} is {value.spec}, the operator takes it {words}", value.index)
    for relation in signature.relations:
        problem = relation(call)
        if problem:
            told = f"{problem}: {', '.join(f'{name} is {spec}' for name, spec in call.tensors.items())}"
            if isinstance(relation, _OfArguments):
                yield Misfit(relation.about, told, hint=relation.hint)
            else:
                yield Misfit("dim-order", told)
