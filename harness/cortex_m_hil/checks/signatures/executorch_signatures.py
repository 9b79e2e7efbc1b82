"""The signatures of ExecuTorch's portable operators; equal signatures share a row."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Final

from cortex_m_hil.checks.signatures import argument_relations as arguments
from cortex_m_hil.checks.signatures import dim_order_relations as orders
from cortex_m_hil.checks.signatures.builtin_signatures import BUILTIN
from cortex_m_hil.checks.signatures.operator_signature import Signature, same_for, signature

_FLOATS: Final = "float16|float32|float64"
_INTEGRAL: Final = "uint8|int8|int16|int32|int64|bool"
_IN_PLACE: Final = "0 self any, 1 src =self"


def _same_batches(factors: str) -> Signature:
    """Return the signature of a normalisation by channel, which ExecuTorch computes for contiguous tensors only."""
    return signature(f"0 input {_FLOATS} default, {factors}, -3 out =input default, -2 mean =input, -1 rstd =input")


_ROWS: Final[Mapping[str, Signature]] = {
    **same_for(
        "aten::add.out aten::div.out aten::div.out_mode aten::eq.Tensor_out aten::ge.Tensor_out "
        "aten::gt.Tensor_out aten::le.Tensor_out aten::logical_and.out aten::logical_or.out "
        "aten::logical_xor.out aten::lt.Tensor_out aten::maximum.out aten::minimum.out aten::mul.out "
        "aten::ne.Tensor_out aten::remainder.Tensor_out aten::sub.out",
        signature("0 self any, 1 other any, -1 out any", orders.same_order, orders.broadcasts_contiguous),
    ),
    **same_for(
        "aten::cos.out aten::exp.out aten::fmod.Scalar_out aten::log.out aten::log1p.out aten::logical_not.out "
        "aten::pow.Tensor_Scalar_out aten::reciprocal.out aten::remainder.Scalar_out aten::rsqrt.out "
        "aten::sigmoid.out aten::sin.out aten::sqrt.out aten::tanh.out",
        signature("0 self any, -1 out any", orders.same_order),
    ),
    **same_for(
        "aten::ceil.out aten::elu.out aten::floor.out aten::gelu.out aten::hardtanh.out aten::leaky_relu.out "
        "aten::relu.out aten::round.out aten::trunc.out",
        signature(f"0 self {_FLOATS}, -1 out =self", orders.same_order),
    ),
    **same_for(
        "aten::as_strided_copy.out aten::flip.out aten::index.Tensor_out aten::permute_copy.out aten::repeat.out "
        "aten::select_copy.int_out aten::slice_copy.Tensor_out aten::view_copy.out",
        signature("0 self any default, -1 out =self default"),
    ),
    **same_for(
        "aten::eq.Scalar_out aten::ge.Scalar_out aten::gt.Scalar_out aten::le.Scalar_out aten::lt.Scalar_out "
        "aten::ne.Scalar_out",
        signature(f"0 self {_FLOATS}|int32|int64|bool, -1 out any", orders.same_order),
    ),
    **same_for(
        "aten::abs.out aten::clamp.out aten::neg.out aten::upsample_bilinear2d.vec_out "
        "aten::upsample_nearest2d.vec_out",
        signature("0 self any, -1 out =self", orders.same_order),
    ),
    **same_for(
        "aten::any.out aten::cumsum.out aten::expand_copy.out aten::full_like.out aten::sum.IntList_out",
        signature("0 self any default, -1 out any default"),
    ),
    **same_for(
        "aten::_adaptive_avg_pool2d.out aten::_log_softmax.out aten::_softmax.out",
        signature(f"0 self {_FLOATS} default, -1 out =self default"),
    ),
    **same_for(
        "aten::bitwise_and.Tensor_out aten::bitwise_or.Tensor_out aten::bitwise_xor.Tensor_out",
        signature(f"0 self {_INTEGRAL}, 1 other any, -1 out any", orders.same_order, orders.broadcasts_contiguous),
    ),
    **same_for(
        "aten::_native_batch_norm_legit.no_stats_out aten::native_group_norm.out",
        _same_batches("1 weight? =input, 2 bias? =input"),
    ),
    **same_for("aten::amax.out aten::amin.out", signature("0 self any default, 1 dim ints, -1 out =self default")),
    **same_for("aten::arange.start_out aten::scalar_tensor.out", signature("-1 out any")),
    **same_for("aten::argmax.out aten::argmin.out", signature("0 self any default, -1 out int64 default")),
    **same_for(
        "aten::bmm.out aten::mm.out", signature("0 self any default, 1 mat2 =self default, -1 out =self default")
    ),
    **same_for(
        "aten::max.dim_max aten::min.dim_min",
        signature("0 self any default, 3 out =self default, 4 indices int64 default"),
    ),
    "aten::_native_batch_norm_legit_no_training.out": _same_batches(
        "1 weight? =input, 2 bias? =input, 3 running_mean =input, 4 running_var =input"
    ),
    "aten::addmm.out": signature(
        "0 self any default, 1 mat1 =self default, 2 mat2 =self default, -1 out =self default"
    ),
    "aten::avg_pool2d.out": signature(f"0 self {_FLOATS}|int64 default, -1 out =self default"),
    "aten::bitwise_not.out": signature(f"0 self {_INTEGRAL}, -1 out =self", orders.same_order),
    "aten::cat.out": signature("0 tensors any, -1 out any", orders.inputs_joined_as_stored, orders.same_order),
    "aten::constant_pad_nd.out": signature(f"0 self {_FLOATS}|int32|int64|bool default, -1 out =self default"),
    "aten::convolution.out": signature(
        f"0 input {_FLOATS}, 1 weight =input, -1 out =input", orders.input_and_out_in_order, orders.weight_in_order
    ),
    "aten::copy.out": signature(f"{_IN_PLACE}, -1 out =self", orders.same_order, orders.copy_keeps_storage_order),
    "aten::copy_": signature(_IN_PLACE, orders.same_order),
    "aten::embedding.out": signature("0 weight any default, 1 indices int32|int64 default, -1 out =weight default"),
    "aten::gather.out": signature("0 self any default, 2 index int64 default, -1 out =self default"),
    "aten::index_put.out": signature(
        "0 self any default, 2 values =self default, -1 out =self default", arguments.sums_with_scales
    ),
    "aten::index_select.out": signature("0 self any default, 2 index int32|int64, -1 out =self default"),
    "aten::max_pool2d_with_indices.out": signature(
        "0 self any, 6 out =self, 7 indices int64",
        orders.known_orders,
        orders.indices_as_out,
        arguments.every_window_has_a_pixel("height", "width"),
    ),
    "aten::mean.out": signature(f"0 self any default, -1 out {_FLOATS} default"),
    "aten::native_layer_norm.out": _same_batches("2 weight? =input, 3 bias? =input"),
    "aten::scatter.src_out": signature(
        "0 self any default, 2 index int64 default, 3 src =self default, -1 out =self default"
    ),
    "aten::scatter.value_out": signature(
        f"0 self {_FLOATS}|int32|int64|bool default, 2 index int64 default, -1 out =self default"
    ),
    "aten::slice_scatter.out": signature("0 self any default, 1 src any default, -1 out =self default"),
    "aten::split_with_sizes_copy.out": signature("0 self any default, 3 out =self default", orders.same_order),
    "aten::squeeze_copy.dims_out": signature("0 self any, -1 out =self", orders.same_order, orders.same_byte_layout),
    "aten::unsqueeze_copy.out": signature("0 self any, -1 out =self", orders.same_byte_layout),
    "aten::var.correction_out": signature(f"0 self {_FLOATS}, -1 out =self default", orders.known_orders),
    "aten::where.self_out": signature(
        "0 condition bool|uint8, 1 self any, 2 other any, -1 out any", orders.same_order, orders.broadcasts_contiguous
    ),
    "dim_order_ops::_clone_dim_order.out": signature(
        "0 self any, -1 out =self", orders.has_its_dim_order, orders.has_known_order
    ),
    "dim_order_ops::_to_dim_order_copy.out": signature(
        "0 self any, -1 out any", orders.has_its_dim_order, orders.has_known_order
    ),
}
EXECUTORCH: Final[Mapping[str, Signature]] = {
    name: replace(row, bug=37 if name == "aten::_softmax.out" else 36) for name, row in _ROWS.items()
}
"""The signature of each operator.

An operand in another form than its signature allows comes from known bug 36 or 37.
"""
_SCALE_KEPT: Final = ("aten::upsample_bilinear2d.vec_out", "aten::upsample_nearest2d.vec_out")


def _takes_int8(known: Signature, name: str) -> bool:
    wanted = next(one.dtype for one in known.operands if one.name == name)
    if wanted.startswith("="):
        return _takes_int8(known, wanted[1:])
    return wanted == "any" or "int8" in wanted.split("|")


def _int8_in_executorch_alone() -> Iterator[str]:
    """Yield the operators that take int8 in ExecuTorch but not in builtin.

    In builtin only operators that copy or choose elements take int8.
    """
    for operator, known in EXECUTORCH.items():
        first = known.operands[0].name
        if first != "out" and _takes_int8(known, first) and not _takes_int8(BUILTIN[operator], first):
            yield operator


BLIND_TO_SCALES: Final = frozenset(
    {
        "aten::constant_pad_nd.out",
        "aten::convolution.out",
        "aten::hardtanh.out",
        "aten::relu.out",
        *(f"aten::{name}.Scalar_out" for name in ("eq", "ge", "gt", "le", "lt", "ne")),
        *_int8_in_executorch_alone(),
    }
).difference(_SCALE_KEPT)
"""Operators of ExecuTorch that take quantised integers and compute on them without scales: wrong, without an error."""
