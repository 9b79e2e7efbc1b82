"""The multiply-accumulates (MACs) of an instruction, by a formula for each operator."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Final, NamedTuple

from cortex_m_hil.program.pte_file import PteFile
from cortex_m_hil.program.schema import InstructionKind, ValueKind
from cortex_m_hil.program.tensor import TensorSpec
from cortex_m_hil.program.values import Instruction


class _Macs(NamedTuple):
    """A formula for multiply-accumulates: elements of the tensor `of`, times the sizes of the tensor `by` in `dims`.

    `of` and `by` are numbers of arguments.
    """

    of: int
    by: int
    dims: slice


_OUT: Final = -1
_ALL_BUT_FIRST, _ALL_BUT_LAST, _LAST = slice(1, None), slice(None, -1), slice(-1, None)
_MACS: Final[Mapping[str, _Macs]] = {
    # Weights: OHWI; IHWO with I = 1; OHWI (the schemas in ExecuTorch's backends/cortex_m/ops/operators.yaml).
    **{f"cortex_m::quantized_conv2d{form}.out": _Macs(_OUT, 1, _ALL_BUT_FIRST) for form in ("", "_nhwc")},
    **{f"cortex_m::quantized_depthwise_conv2d{form}.out": _Macs(_OUT, 1, _ALL_BUT_LAST) for form in ("", "_nhwc")},
    **{f"cortex_m::quantized_transpose_conv2d{form}.out": _Macs(0, 1, _ALL_BUT_LAST) for form in ("", "_nhwc")},
    "cortex_m::quantized_linear.out": _Macs(_OUT, 1, _LAST),
    "cortex_m::quantized_batch_matmul.out": _Macs(_OUT, 0, _LAST),
    # Weights: OI and the kernel.
    "aten::convolution.out": _Macs(_OUT, 1, _ALL_BUT_FIRST),
    "aten::linear.out": _Macs(_OUT, 1, _LAST),
    "aten::mm.out": _Macs(_OUT, 0, _LAST),
    "aten::bmm.out": _Macs(_OUT, 0, _LAST),
    "aten::addmm.out": _Macs(_OUT, 1, _LAST),
}
"""Multiply-accumulates by operator, as `torch.utils.flop_counter` counts them (it has two operations for each):
those with padding count, biases and requantising do not. Every other operator of `_KNOWN` has none."""

_TRANSPOSED: Final = _Macs(0, 1, _ALL_BUT_FIRST)  # weights: IO and the kernel
_TRANSPOSED_AT: Final = 6  # argument of aten::convolution
_KNOWN: Final = ("aten::", "dim_order_ops::", "executorch_prim::", "quantized_decomposed::")
_CORTEX_M_WITHOUT: Final = frozenset(
    f"cortex_m::{name}.out"
    for name in (
        *("quantize_per_tensor", "dequantize_per_tensor", "quantized_add", "quantized_mul", "quantized_div"),
        *("quantized_activation", "minimum", "maximum", "softmax", "transpose", "pad", "quantized_avg_pool2d"),
        *("quantized_avg_pool2d_nhwc", "quantized_max_pool2d", "quantized_max_pool2d_nhwc"),
    )
)


def macs_of(file: PteFile, instruction: Instruction) -> int | None:
    """Return the multiply-accumulates of an instruction by its shapes; None where they are not known."""
    operator = instruction.operator
    if instruction.kind not in (InstructionKind.KERNEL, InstructionKind.DELEGATE):
        return 0
    formula = _MACS.get(operator)
    if formula is None:
        return 0 if operator in _CORTEX_M_WITHOUT or operator.startswith(_KNOWN) else None
    if operator == "aten::convolution.out" and _scalar(file, instruction, _TRANSPOSED_AT):
        formula = _TRANSPOSED
    of, by = (_argument(file, instruction, at) for at in (formula.of, formula.by))
    return None if of is None or by is None else of.numel * math.prod(by.shape[formula.dims])


def _argument(file: PteFile, instruction: Instruction, at: int) -> TensorSpec | None:
    """Return the spec of an argument that is a tensor; None where it is none: the program has not been checked yet."""
    args = instruction.args
    spec = file.values[args[at]].spec if -len(args) <= at < len(args) else None
    return spec if spec is not None and spec.kind is ValueKind.TENSOR else None


def _scalar(file: PteFile, instruction: Instruction, at: int) -> object:
    return file.values[instruction.args[at]].scalar if at < len(instruction.args) else None
