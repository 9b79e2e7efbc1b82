"""The signatures of `builtin`'s operators outside the namespace cortex_m; equal signatures share a row."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from cortex_m_hil.checks.signatures import argument_relations as arguments
from cortex_m_hil.checks.signatures import dim_order_relations as orders
from cortex_m_hil.checks.signatures.operator_signature import Signature, same_for, signature

_NUMBERS: Final = "float32|int32|int64"
_CHOSEN: Final = "float32|int8|int32|int64"
_ITEMS: Final = "float32|int8|int32|int64|bool"
_UNQUANTISED: Final = "float32|int32|int64|bool"
_IN_PLACE: Final = "0 self any, 1 src =self"
_FACTORS: Final = "1 weight? float32, 2 bias? float32"


def _normalises(statistics: str, form: str = "") -> Signature:
    """Return the signature of a normalisation in builtin.

    Args:
        statistics: the operands between the input and the three outputs, in the syntax of `signature`.
        form: the form of input and output, a key of `FORMS`.
    """
    return signature(
        f"0 input float32 {form}, {statistics}, -3 out float32 {form}, -2 mean float32, -1 rstd float32",
        orders.same_layout("input"),
    )


BUILTIN: Final[Mapping[str, Signature]] = {
    **same_for(
        "aten::_adaptive_avg_pool2d.out aten::_adaptive_avg_pool3d.out aten::_log_softmax.out aten::_softmax.out "
        "aten::avg_pool2d.out aten::avg_pool3d.out aten::ceil.out aten::cos.out aten::cumsum.out aten::elu.out "
        "aten::exp.out aten::floor.out aten::gelu.out aten::hardsigmoid.out aten::hardswish.out "
        "aten::hardtanh.out aten::leaky_relu.out aten::log.out aten::log1p.out aten::mean.out "
        "aten::pow.Tensor_Scalar_out aten::reciprocal.out aten::relu.out aten::round.out aten::rsqrt.out "
        "aten::sigmoid.out aten::silu.out aten::sin.out aten::sqrt.out aten::tanh.out aten::trunc.out "
        "aten::upsample_bilinear2d.vec_out aten::upsample_nearest2d.vec_out aten::var.correction_out",
        signature("0 self float32, -1 out =self"),
    ),
    **same_for(
        "aten::as_strided_copy.out aten::expand_copy.out aten::flip.out aten::permute_copy.out aten::repeat.out "
        "aten::select_copy.int_out aten::slice_copy.Tensor_out aten::squeeze_copy.dims_out "
        "aten::unsqueeze_copy.out",
        signature("0 self any, -1 out =self"),
    ),
    **same_for(
        "aten::eq.Tensor_out aten::ge.Tensor_out aten::gt.Tensor_out aten::le.Tensor_out aten::lt.Tensor_out "
        "aten::ne.Tensor_out",
        signature(f"0 self {_ITEMS}, 1 other =self, -1 out bool"),
    ),
    **same_for(
        "aten::eq.Scalar_out aten::ge.Scalar_out aten::gt.Scalar_out aten::le.Scalar_out aten::lt.Scalar_out "
        "aten::ne.Scalar_out",
        signature(f"0 self {_UNQUANTISED}, -1 out bool", arguments.number_is_of("self", 1)),
    ),
    **same_for(
        "aten::bitwise_and.Tensor_out aten::bitwise_or.Tensor_out aten::bitwise_xor.Tensor_out",
        signature("0 self int32|int64|bool, 1 other =self, -1 out =self"),
    ),
    **same_for(
        "aten::div.out_mode aten::mul.out aten::remainder.Tensor_out",
        signature(f"0 self {_NUMBERS}, 1 other =self, -1 out =self"),
    ),
    **same_for(
        "aten::logical_and.out aten::logical_or.out aten::logical_xor.out",
        signature("0 self bool, 1 other bool, -1 out bool"),
    ),
    **same_for("aten::_native_batch_norm_legit.no_stats_out aten::native_group_norm.out", _normalises(_FACTORS)),
    **same_for(
        "aten::_embedding_bag.out aten::_embedding_bag_forward_only.out",
        signature(
            "0 weight float32 rows, 1 indices int32|int64, 2 offsets int32|int64, 6 per_sample_weights? float32, "
            "9 out0 float32 rows, 10 out1 =offsets, 11 out2 =offsets, 12 out3 =offsets rows"
        ),
    ),
    **same_for(
        "aten::adaptive_max_pool2d.out aten::adaptive_max_pool3d.out",
        signature("0 self float32, 2 out =self, 3 indices int64"),
    ),
    **same_for("aten::abs.out aten::neg.out", signature(f"0 self {_NUMBERS}, -1 out =self")),
    **same_for(
        "aten::add.out aten::sub.out",
        signature(f"0 self {_NUMBERS}, 1 other =self, -1 out =self", arguments.number_is_of("self", 2)),
    ),
    **same_for("aten::amax.out aten::amin.out", signature("0 self float32|int8|int64, 1 dim ints, -1 out =self")),
    **same_for("aten::any.out aten::logical_not.out", signature("0 self bool, -1 out bool")),
    **same_for("aten::argmax.out aten::argmin.out", signature("0 self float32|int8|int64, -1 out int64")),
    **same_for(
        "aten::bmm.out aten::mm.out", signature("0 self float32 rows, 1 mat2 float32 rows, -1 out float32 rows")
    ),
    **same_for("aten::copy.out aten::slice_scatter.out", signature(f"{_IN_PLACE}, -1 out =self")),
    **same_for("aten::gather.out aten::index_select.out", signature("0 self any, 2 index int32|int64, -1 out =self")),
    **same_for(
        "aten::max.dim_max aten::min.dim_min", signature("0 self float32|int8|int64, 3 out =self, 4 indices int64")
    ),
    **same_for("aten::maximum.out aten::minimum.out", signature(f"0 self {_CHOSEN}, 1 other =self, -1 out =self")),
    "aten::_native_batch_norm_legit_no_training.out": _normalises(
        f"{_FACTORS}, 3 running_mean float32, 4 running_var float32"
    ),
    "aten::addmm.out": signature("0 self float32, 1 mat1 float32 rows, 2 mat2 float32 rows, -1 out float32 rows"),
    "aten::arange.start_out": signature("-1 out float32|int64"),
    "aten::bitwise_not.out": signature("0 self int32|int64|bool, -1 out =self"),
    "aten::cat.out": signature("0 tensors =out, -1 out any"),
    "aten::clamp.out": signature(f"0 self {_CHOSEN}, -1 out =self", arguments.number_is_of("self", 1, 2)),
    "aten::constant_pad_nd.out": signature(f"0 self {_UNQUANTISED}, -1 out =self", arguments.number_is_of("self", 2)),
    "aten::convolution.out": signature("0 input float32, 1 weight float32, 2 bias? float32, -1 out float32"),
    "aten::copy_": signature(_IN_PLACE),
    "aten::div.out": signature("0 self float32, 1 other float32, -1 out float32"),
    "aten::embedding.out": signature("0 weight any rows, 1 indices int32|int64 rows, -1 out =weight rows"),
    "aten::fmod.Scalar_out": signature("0 self int32|int64, -1 out =self", arguments.number_is_of("self", 1)),
    "aten::full.out": signature(f"-1 out {_ITEMS}", arguments.number_is_of("out", 1)),
    "aten::full_like.out": signature(f"0 self any, -1 out {_ITEMS}", arguments.number_is_of("out", 1)),
    "aten::index.Tensor_out": signature("0 self any, -1 out =self", arguments.neighbouring_indices),
    "aten::index_put.out": signature(
        "0 self any, 2 values =self, -1 out =self", arguments.neighbouring_indices, arguments.sums_with_scales
    ),
    "aten::linear.out": signature("0 input float32 rows, 1 weight float32 rows, 2 bias? float32, -1 out float32 rows"),
    "aten::max_pool2d_with_indices.out": signature(
        "0 self int8|float32, 6 out =self, 7 indices int64", arguments.every_window_has_a_pixel("height", "width")
    ),
    "aten::max_pool3d_with_indices.out": signature(
        "0 self float32, 6 out =self, 7 indices int64", arguments.every_window_has_a_pixel("depth", "height", "width")
    ),
    "aten::native_layer_norm.out": _normalises("2 weight? float32, 3 bias? float32", "rows"),
    "aten::remainder.Scalar_out": signature(f"0 self {_NUMBERS}, -1 out =self", arguments.number_is_of("self", 1)),
    "aten::scalar_tensor.out": signature(f"-1 out {_ITEMS}", arguments.number_is_of("out", 0)),
    "aten::scatter.src_out": signature("0 self any, 2 index int32|int64, 3 src =self, -1 out =self"),
    "aten::scatter.value_out": signature(
        f"0 self {_UNQUANTISED}, 2 index int32|int64, -1 out =self", arguments.number_is_of("self", 3)
    ),
    "aten::split_with_sizes_copy.out": signature("0 self any, 3 out =self"),
    "aten::sum.IntList_out": signature("0 self float32|int64, -1 out =self"),
    "aten::view_copy.out": signature("0 self any rows, -1 out =self rows"),
    "aten::where.self_out": signature("0 condition bool, 1 self any, 2 other =self, -1 out =self"),
    "dim_order_ops::_clone_dim_order.out": signature("0 self any, -1 out =self", orders.has_its_dim_order),
    "dim_order_ops::_to_dim_order_copy.out": signature(
        "0 self any, -1 out any",
        arguments.converts,
        orders.has_its_dim_order,
    ),
}
