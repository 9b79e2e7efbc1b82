"""Relations between the dim orders and shapes of a call's tensors, which signatures consist of."""

from __future__ import annotations

from cortex_m_hil.checks.signatures.dim_order_predicates import (
    CHANNELS_LAST,
    are_stored_alike,
    counts_as_channels_last,
    is_channels_last,
    is_contiguous,
    is_default,
    is_image,
    is_stored_in,
)
from cortex_m_hil.checks.signatures.operator_signature import OperatorCall, Relation, of_bug


def same_layout(*names: str) -> Relation:
    def relation(call: OperatorCall) -> str:
        if all(are_stored_alike(call[name], call["out"]) for name in names):
            return ""
        return f"{', '.join(names)} and out must have one shape and dim order"

    return relation


def sum_or_product(call: OperatorCall) -> str:
    """Check that both operands have one shape and dim order, or one has an item per channel, channels innermost."""
    one, other, out = call["self"], call["other"], call["out"]
    if are_stored_alike(one, out) and are_stored_alike(other, out):
        return ""
    whole, part = (other, one) if one.numel < other.numel else (one, other)
    per_channel = len(part.shape) == len(whole.shape) == 4 and part.numel == part.shape[1] == whole.shape[1]
    if per_channel and whole.numel and are_stored_alike(whole, out) and is_image(out):
        return ""
    return "one shape and dim order needed, or one item a channel in channels-last dim order"


@of_bug(7, "dim-order")
def broadcasts_as_stored(call: OperatorCall) -> str:
    """Check the operands of CMSIS-NN's minimum and maximum, which are given logical sizes whatever the dim order is."""
    one, other, out = call["self"], call["other"], call["out"]
    by_scalar = other.numel == 1 and len(other.shape) <= len(out.shape)
    if are_stored_alike(one, out) and (by_scalar or are_stored_alike(other, out)):
        return ""
    if len(out.shape) <= 4 and all(is_contiguous(spec) for spec in (one, other, out)):
        return ""
    return "not contiguous, and shapes or dim orders differ: it is computed as if contiguous"


@of_bug(18, "dim-order")
def pads_in_order(call: OperatorCall) -> str:
    order = CHANNELS_LAST if counts_as_channels_last(call["input"]) else tuple(range(len(call["input"].shape)))
    return (
        "" if all(is_stored_in(call[name], order) for name in ("input", "out")) else "input and out differ in dim order"
    )


def has_its_dim_order(call: OperatorCall) -> str:
    """Check that a copy's output has the dim order of the argument dim_order.

    Where a dimension has size 1, different dim orders may mean the same bytes.
    """
    wanted, out = call.ints(2), call["out"]
    if wanted is None or (sorted(wanted) == list(range(len(out.shape))) and is_stored_in(out, wanted)):
        return ""
    return f"its argument dim_order is {list(wanted)}, and out has {list(out.dim_order)}"


@of_bug(42, "dim-order")
def same_order(call: OperatorCall) -> str:
    """Check that all named tensors of a call have one dim order, as ExecuTorch's `tensors_have_same_dim_order` does."""
    specs = tuple(call.tensors.values())
    if all(map(is_default, specs)) or all(map(is_channels_last, specs)):
        return ""
    return "all must be contiguous, or all in channels-last dim order"


@of_bug(42, "dim-order")
def input_and_out_in_order(call: OperatorCall) -> str:
    """Check that a convolution's input and output have one dim order, as ExecuTorch's portable kernel requires."""
    return same_order(OperatorCall(call.file, call.instruction, {name: call[name] for name in ("input", "out")}))


@of_bug(43, "dim-order")
def weight_in_order(call: OperatorCall) -> str:
    """Check the dim order of a convolution's weight, which may differ where a group has one channel.

    ExecuTorch takes the weight of a transposed convolution in any order (`check_convolution_args`).
    """
    transposed = call.value(6)
    if transposed is not None and transposed.scalar:
        return ""
    if is_default(call["weight"]) or is_channels_last(call["weight"]) or input_and_out_in_order(call):
        return ""
    return "weight is neither contiguous nor in channels-last dim order"


@of_bug(6, "dim-order")
def known_orders(call: OperatorCall) -> str:
    """Check that input and output are in a dim order that ExecuTorch's max pool and var know.

    With one channel, several dim orders mean the same bytes, and the exporter may choose one that ExecuTorch refuses
    (`tensor_is_default_or_channels_last_dim_order`).
    """
    if all(is_default(call[name]) or is_channels_last(call[name]) for name in ("self", "out")):
        return ""
    return "self or out is neither contiguous nor in channels-last dim order, even if its bytes are"


@of_bug(5, "dim-order")
def broadcasts_contiguous(call: OperatorCall) -> str:
    """Check that the output is contiguous where shapes differ, since portable operators then write contiguously.

    Tensors of two dim orders are accepted here: another relation refuses them, and is checked first.
    """
    out = call["out"]
    if is_contiguous(out) or all(spec.shape == out.shape for spec in call.tensors.values()) or same_order(call):
        return ""
    return "portable operators that broadcast write a channels-last out in contiguous order"


@of_bug(36, "dim-order")
def copy_keeps_storage_order(call: OperatorCall) -> str:
    """Check that a copy's source has the bytes of its output.

    ExecuTorch copies the bytes of a source that has the output's shape, and broadcasts any other source in contiguous
    order.
    """
    src, out = call["src"], call["out"]
    if are_stored_alike(src, out) or (src.shape != out.shape and is_contiguous(src) and is_contiguous(out)):
        return ""
    return "ExecuTorch takes the bytes of src as they are, and out has another dim order or broadcasts it"


@of_bug(36, "dim-order")
def same_byte_layout(call: OperatorCall) -> str:
    """Check that the bytes of the input, in the output's dim order, are the same elements.

    ExecuTorch's squeeze and unsqueeze copy the bytes unchanged, and ignore the dim orders of input and output.
    """
    if call["self"].numel == call["out"].numel and not call["self"].reads_as(call["out"]):
        return "ExecuTorch copies the bytes as they are, and in out's dim order they are other elements"
    return ""


@of_bug(38, "dim-order")
def has_known_order(call: OperatorCall) -> str:
    """Check that a copy's output is contiguous or channels-last, and in the requested dim order.

    The requested one is the argument `dim_order` if it is given, else the dim order of `self`.
    """
    out, wanted = call["out"], call.ints(2) or call["self"].dim_order
    if wanted == out.dim_order and (is_default(out) or is_channels_last(out)):
        return ""
    return f"to dim order {list(wanted)}, and out has {list(out.dim_order)}: both must be contiguous, or channels-last"


@of_bug(36, "dim-order")
def indices_as_out(call: OperatorCall) -> str:
    """Check that a max pool's indices have the dim order of its output, at whose offsets they are written."""
    if are_stored_alike(call["indices"], call["out"]):
        return ""
    return "ExecuTorch writes indices where out's items lie, and their dim order is another"


@of_bug(22, "dim-order")
def inputs_joined_as_stored(call: OperatorCall) -> str:
    """Check that tensors are joined along the first dimension, or are contiguous, since cat copies their memory."""
    dim, out = call.value(1), call["out"]
    if is_contiguous(out) or (dim is not None and dim.scalar in (0, -len(out.shape))):
        return ""
    return "not contiguous: ExecuTorch's cat takes sizes as they stand, and joins along another dimension"


@of_bug(42, "dim-order")
def channels_last_to_executorch(call: OperatorCall) -> str:
    if all(counts_as_channels_last(call[name]) for name in ("input", "out")):
        return ""
    return "input and out must have dim order (0, 2, 3, 1)"
