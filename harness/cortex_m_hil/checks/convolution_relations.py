"""Convolutions that CMSIS-NN refuses or computes wrongly: relations of which ExecuTorch's signatures are made."""

from __future__ import annotations

from typing import Final

from cortex_m_hil.checks.operator_signature import OperatorCall, of_arguments
from cortex_m_hil.errors import known_bug
from cortex_m_hil.errors.text import counted
from cortex_m_hil.program.tensor import TensorSpec

_REVERSED_FROM: Final = 16
"""CMSIS-NN's REVERSE_TCOL_EFFICIENT_THRESHOLD: more input channels, and strides up to 2, make it a convolution."""


@of_arguments("give the convolution a bias, of zeros if need be")
def grouped_convolution_has_bias(call: OperatorCall) -> str:
    """Check that a grouped convolution has a bias.

    For a grouped convolution without a bias, CMSIS-NN reads biases from a null pointer that it has advanced (known bug
    9 in docs/known_bugs.md).
    """
    depth, channels = call["weight"].shape[-1:], call["input"].shape[-1 if _is_nhwc(call) else 1 :][:1]
    if "bias" in call.tensors or depth == channels:
        return ""
    return (
        "a grouped convolution without a bias: CMSIS-NN advances the null pointer and adds what lies there "
        f"({known_bug(9)})"
    )


def _is_nhwc(call: OperatorCall) -> bool:
    return call.instruction.operator.endswith("_nhwc.out")


def _image_sizes(spec: TensorSpec, nhwc: bool) -> tuple[int, int, int]:
    """Return height, width and channels of an image."""
    shape = spec.shape
    return (shape[1], shape[2], shape[3]) if nhwc else (shape[2], shape[3], shape[1])


@of_arguments(
    "padding=0, a kernel of at least the stride's size (zeros at its end) and a slice of y.contiguous() compute the "
    "same"
)
def every_output_row_written(call: OperatorCall) -> str:
    """Check that CMSIS-NN's transposed convolution computes a call right.

    The result is wrong if the scratch is too small (known bug 1 in docs/known_bugs.md), if the vertical padding is no
    multiple of the stride (known bug 2), or if the kernel has fewer rows than stride and padding together (known bug
    21).
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


@of_arguments("a kernel with a row of zeros above and below, and a row more of padding at both ends, computes the same")
def one_row_read_to_its_end(call: OperatorCall) -> str:
    """Check that CMSIS-NN's arm_convolve_1_x_n_s8 computes a convolution of one row rightly on MVE.

    It ignores vertical padding, and needs a horizontal one whose end the last window reaches (known bug 39 in
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
