"""Relations that exclude convolutions which CMSIS-NN refuses or computes wrongly, for ExecuTorch's signatures."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from cortex_m_hil.checks.signatures.operator_signature import OperatorCall, of_bug
from cortex_m_hil.errors.text import counted
from cortex_m_hil.program.tensor import TensorSpec

_REVERSED_FROM: Final = 16
"""CMSIS-NN's REVERSE_TCOL_EFFICIENT_THRESHOLD: above it, with strides up to 2, a convolution is computed."""
_REVERSED_STRIDE: Final = 2


@of_bug(9)
def grouped_convolution_has_bias(call: OperatorCall) -> str:
    """Check that a grouped convolution has a bias: else CMSIS-NN reads it from a null pointer that it has advanced."""
    depth, channels = call["weight"].shape[-1:], call["input"].shape[-1 if _is_nhwc(call) else 1 :][:1]
    if "bias" in call.tensors or depth == channels:
        return ""
    return "a grouped convolution without a bias: CMSIS-NN advances the null pointer and adds what lies there"


def _is_nhwc(call: OperatorCall) -> bool:
    return call.instruction.operator.endswith("_nhwc.out")


def _image_sizes(spec: TensorSpec, nhwc: bool) -> tuple[int, int, int]:
    """Return height, width and channels of an image."""
    shape = spec.shape
    return (shape[1], shape[2], shape[3]) if nhwc else (shape[2], shape[3], shape[1])


@dataclass(frozen=True)
class _Transposed:
    """The sizes of a transposed convolution; a pair is (height, width)."""

    stride: tuple[int, int]
    paddings: tuple[int, int]
    kernel: tuple[int, int]
    width: int
    channels: int

    @property
    def is_reversed(self) -> bool:
        """Tell whether CMSIS-NN computes it as a convolution with the reversed kernel."""
        return max(self.stride) <= _REVERSED_STRIDE and self.channels > _REVERSED_FROM

    @classmethod
    def from_call(cls, call: OperatorCall) -> _Transposed | None:
        """Return the sizes of a call; None where they are invalid."""
        stride, paddings = call.ints(3) or (), call.ints(4) or ()
        images = [call[name].shape for name in ("input", "weight", "out")]
        if len(stride) != 2 or len(paddings) != 2 or any(len(shape) != 4 for shape in images) or min(stride) < 1:
            return None
        _, width, channels = _image_sizes(call["input"], _is_nhwc(call))
        _, height, columns, _ = call["weight"].shape
        return cls((stride[0], stride[1]), (paddings[0], paddings[1]), (height, columns), width, channels)

    @classmethod
    def by_rows(cls, call: OperatorCall) -> _Transposed | None:
        """Return the sizes of a call that CMSIS-NN computes row by row; None of any other."""
        sizes = cls.from_call(call)
        return None if sizes is None or sizes.is_reversed else sizes


@of_bug(44)
def kernel_covers_the_padding(call: OperatorCall) -> str:
    """Check that the convolution with the reversed kernel has no negative padding, for which CMSIS-NN reads no input.

    Its padding is the kernel's size less one, less the padding.
    """
    sizes = _Transposed.from_call(call)
    if sizes is None or not sizes.is_reversed:
        return ""
    for axis, kernel, padding in zip(("height", "width"), sizes.kernel, sizes.paddings, strict=True):
        if padding >= kernel:
            return (
                f"a padding of {padding} and a kernel of {kernel} in its {axis}: CMSIS-NN reads no input, and the "
                "output is the bias"
            )
    return ""


@of_bug(2)
def padding_is_a_multiple_of_the_stride(call: OperatorCall) -> str:
    """Check that CMSIS-NN's transposed convolution writes all rows: vertical padding is a multiple of the stride."""
    sizes = _Transposed.by_rows(call)
    if sizes is None or not sizes.paddings[0] % sizes.stride[0]:
        return ""
    return (
        f"a vertical padding of {sizes.paddings[0]} is no multiple of the stride {sizes.stride[0]}: CMSIS-NN skips the "
        "rows of one row of the input, and all after them are wrong"
    )


@of_bug(21)
def kernel_covers_stride_and_padding(call: OperatorCall) -> str:
    """Check that CMSIS-NN's transposed convolution writes no rows beyond the output."""
    sizes = _Transposed.by_rows(call)
    if sizes is None or (beyond := sizes.stride[0] + sizes.paddings[0] - sizes.kernel[0]) <= 0:
        return ""
    return (
        f"a kernel of {sizes.kernel[0]} rows, less than the stride {sizes.stride[0]} and the padding "
        f"{sizes.paddings[0]}: CMSIS-NN writes {beyond} more rows than out has"
    )


@of_bug(1)
def scratch_holds_the_rows(call: OperatorCall) -> str:
    """Check that the scratch of CMSIS-NN's transposed convolution is large enough.

    Its size function may return too little.
    """
    sizes, scratch = _Transposed.by_rows(call), call.value(13)
    if sizes is None or scratch is None or scratch.spec is None:
        return ""
    (stride_y, stride_x), (rows, kernel) = sizes.stride, sizes.kernel
    columns = (sizes.width - 1) * stride_x + max(kernel, stride_x)
    used = max(rows, stride_y) * columns * _image_sizes(call["out"], _is_nhwc(call))[2] * 4
    return (
        f"CMSIS-NN uses {used} bytes of its {scratch.spec.nbytes} bytes of scratch"
        if used > scratch.spec.nbytes
        else ""
    )


EVERY_ROW_ONCE: Final = (
    kernel_covers_the_padding,
    padding_is_a_multiple_of_the_stride,
    kernel_covers_stride_and_padding,
    scratch_holds_the_rows,
)
"""The relations that hold if CMSIS-NN's transposed convolution writes each row of its output, and nothing else."""


@of_bug(39)
def one_row_read_to_its_end(call: OperatorCall) -> str:
    """Check that CMSIS-NN's arm_convolve_1_x_n_s8 computes a convolution of one row correctly on MVE.

    The function ignores vertical padding, and is right only if the last window reaches the end of the horizontal
    padding.
    """
    stride, padding, dilation = (call.ints(at) or () for at in (3, 4, 5))
    shapes = [call[name].shape for name in ("input", "weight", "out")]
    if any(len(one) != 2 for one in (stride, padding, dilation)) or any(len(one) != 4 for one in shapes):
        return ""  # the runner reports what is wrong with the call
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
    reached = (columns - 1) * stride[1] + kernel - width  # columns of padding at both ends that are used
    padded = 2 * -(-padding[1] // stride[1])  # windows that are partly in the padding
    if reached == 2 * padding[1] and padded > columns:
        return ""  # CMSIS-NN uses arm_convolve_s8 for this call
    if padding[0]:
        wrong = "a vertical padding"
    elif (padding[1], reached) == (0, -1):
        wrong = "a last column that no window reaches"
    elif reached != 2 * padding[1]:
        unreached = counted(2 * padding[1] - reached, "column")
        return f"CMSIS-NN refuses, on MVE, a row that ends with {unreached} out of reach of any window"
    elif kernel > 1 and padding[1] and (padding[1] - 1) % stride[1]:
        wrong = f"a stride of {stride[1]} and a padding of {padding[1]}"  # the kernel reads beyond the row
    else:
        return ""
    return f"CMSIS-NN computes a row with {wrong} wrongly on MVE"
