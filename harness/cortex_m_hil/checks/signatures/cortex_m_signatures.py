"""The signatures of cortex_m's operators, shared by both runtimes, and relations for one runtime or ISA class only."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from cortex_m_hil.checks.signatures import argument_relations as arguments
from cortex_m_hil.checks.signatures import convolution_relations as convolutions
from cortex_m_hil.checks.signatures import dim_order_relations as orders
from cortex_m_hil.checks.signatures.operator_signature import Relation, Signature, signature


def _convolution(form: str, offsets: int) -> Signature:
    return signature(
        f"0 input int8 {form}, 1 weight int8 rows, 2 bias? int32, {offsets + 2} requantize_multipliers int32, "
        f"{offsets + 3} requantize_shifts int32, -1 out int8 {form}",
        arguments.sums_of_32_bits,
    )


def _cortex_m() -> dict[str, Signature]:
    """Return the signatures of cortex_m's operators, which both runtimes share.

    Calls that only `builtin` refuses are included if ExecuTorch computes them wrongly.
    """
    pair = "0 self int8, {} other int8, -1 out int8"
    found = {
        "dequantize_per_tensor": signature(
            "0 input int8|int16, -1 out float32", arguments.names_its_dtype("input"), orders.same_layout("input")
        ),
        "maximum": signature(pair.format(1), orders.broadcasts_as_stored),
        "minimum": signature(pair.format(1), orders.broadcasts_as_stored),
        "pad": signature("0 input int8, -1 out int8", orders.pads_in_order),
        "quantize_per_tensor": signature(
            "0 input float32, -1 out int8|int16", arguments.names_its_dtype("out"), orders.same_layout("input")
        ),
        "quantized_activation": signature("0 input int8, 1 lut int8, -1 out int8"),
        "quantized_add": signature(pair.format(4), orders.sum_or_product),
        "quantized_batch_matmul": signature("0 lhs int8 rows, 2 rhs_transposed int8 rows, -1 out int8 rows"),
        "quantized_div": signature(
            "0 self int8|int16, 2 other =self, -1 out =self", orders.same_layout("self", "other")
        ),
        "quantized_linear": signature(
            "0 input int8 rows, 1 weights int8 rows, 2 bias? int32, 3 kernel_sum? int32, -1 out int8 rows",
            arguments.sums_of_32_bits,
        ),
        "quantized_mul": signature(pair.format(2), orders.sum_or_product, arguments.product_of_32_bits),
        "softmax": signature(
            "0 input int8 rows, -1 out int8 rows", arguments.over_the_last_dimension, arguments.shift_is_to_the_left
        ),
        "transpose": signature("0 input int8 rows, -1 out int8 rows", arguments.up_to_four_dimensions, bug=7),
    }
    for suffix, form in (("", "image"), ("_nhwc", "nhwc")):
        found[f"quantized_avg_pool2d{suffix}"] = signature(f"0 input int8 {form}, -1 out int8 {form}")
        found[f"quantized_max_pool2d{suffix}"] = signature(f"0 input int8 {form}, -1 out int8 {form}")
        found[f"quantized_conv2d{suffix}"] = _convolution(form, 6)
        found[f"quantized_depthwise_conv2d{suffix}"] = _convolution(form, 7)
        found[f"quantized_transpose_conv2d{suffix}"] = _convolution(form, 7)
    return {f"cortex_m::{name}.out": signature for name, signature in found.items()}


CORTEX_M: Final[Mapping[str, Signature]] = _cortex_m()
DEFECTS: Final[Mapping[str, tuple[Relation, ...]]] = {
    **dict.fromkeys(
        ("cortex_m::maximum.out", "cortex_m::minimum.out"),
        (arguments.four_dimensions_alone, arguments.no_rows_of_one_number),
    ),
    "cortex_m::quantized_avg_pool2d.out": (orders.channels_last_to_executorch,),
    "cortex_m::quantized_conv2d.out": (orders.channels_last_to_executorch, convolutions.grouped_convolution_has_bias),
    "cortex_m::quantized_conv2d_nhwc.out": (convolutions.grouped_convolution_has_bias,),
    "cortex_m::quantized_depthwise_conv2d.out": (orders.channels_last_to_executorch,),
    "cortex_m::quantized_max_pool2d.out": (orders.channels_last_to_executorch,),
    "cortex_m::quantized_transpose_conv2d.out": (orders.channels_last_to_executorch, *convolutions.EVERY_ROW_ONCE),
    "cortex_m::quantized_transpose_conv2d_nhwc.out": convolutions.EVERY_ROW_ONCE,
}
"""Further relations for ExecuTorch with CMSIS-NN, which refuses or computes wrongly the calls that violate them."""
ON_DSP: Final[Mapping[str, tuple[Relation, ...]]] = {"cortex_m::quantized_mul.out": (arguments.factors_of_16_bits,)}
"""Further relations on DSP, for both runtimes: calls that CMSIS-NN computes wrongly, builtin refuses."""
DEFECTS_ON_MVE: Final[Mapping[str, tuple[Relation, ...]]] = {
    f"cortex_m::quantized_{name}.out": (convolutions.one_row_read_to_its_end,) for name in ("conv2d", "conv2d_nhwc")
}
