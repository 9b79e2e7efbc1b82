"""Check that programs use every operator of the builtin runtime, with different values of each attribute.

    pytest --target=native --keep-programs FOLDER tests/targets
    python ci/kernel_coverage.py FOLDER

Prints what is missing; the exit status is 1 if anything is. A kernel that swaps height and width, or ignores an
attribute, is detected only by a program whose outputs change by it.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from cortex_m_hil.program.pte_file import PteFile
from cortex_m_hil.program.pte_reader import read_methods
from cortex_m_hil.program.schema import InstructionKind, ValueKind
from cortex_m_hil.program.values import Instruction

OPERATORS: Final = Path(__file__).parent.parent / "firmware" / "runtime" / "builtin" / "operators.inc"

Read = Callable[[PteFile, Instruction], Any]  # returns the value of an attribute in an instruction
DIFFER: Final = "unequal"
"""The value of an attribute whose numbers differ within one instruction, so that a single program detects a swap."""


def operators() -> list[str]:
    """Return the operators of the builtin runtime, except operators that only the harness's own tests call."""
    names = re.findall(r'^HIL_OPERATOR\("([^"]+)"', OPERATORS.read_text(), re.M)
    return [name for name in names if not name.startswith("hil_test::")]


def pair(at: int, item: int) -> Read:
    """Return a reader of the height (`item` 0) or width (1) in a list of integers, the argument `at`.

    A list of one item stands for both; an empty list (a pool's stride) stands for the size of the window.
    """
    return lambda file, call: (file.ints(call.args[at]) * 2 or ("none", "none"))[item]


def is_oblong(at: int) -> Read:
    return lambda file, call: DIFFER if len(set(file.ints(call.args[at]))) > 1 else "equal"


def scalar(at: int) -> Read:
    return lambda file, call: file.values[call.args[at]].scalar


def is_none(at: int) -> Read:
    return lambda file, call: "None" if file.values[call.args[at]].kind is ValueKind.NULL else "given"


def shape(at: int, dim: int) -> Read:
    def read(file: PteFile, call: Instruction) -> Any:
        spec = file.values[call.args[at]].spec
        return spec.shape[dim] if spec is not None and spec.shape else None

    return read


def rank(at: int) -> Read:
    def read(file: PteFile, call: Instruction) -> Any:
        spec = file.values[call.args[at]].spec
        return len(spec.shape) if spec is not None else None

    return read


def dtype(at: int) -> Read:
    def read(file: PteFile, call: Instruction) -> Any:
        spec = file.values[call.args[at]].spec
        return spec.dtype if spec is not None else None

    return read


def varies(at: int) -> Read:
    """Return a reader that tells whether a constant tensor's elements differ.

    It is for multipliers, shifts and biases of several channels.
    """

    def read(file: PteFile, call: Instruction) -> Any:
        constant = file.constant(call.args[at])
        unequal = constant is not None and len(set(constant.array().reshape(-1).tolist())) > 1
        return DIFFER if unequal else "equal"

    return read


def is_broadcast(at: int) -> Read:
    def read(file: PteFile, call: Instruction) -> Any:
        one, other = file.values[call.args[at]].spec, file.values[call.args[-1]].spec
        return one is not None and other is not None and one.shape != other.shape

    return read


def pairs(**places: int) -> dict[str, Read]:
    found: dict[str, Read] = {}
    for name, at in places.items():
        found |= {f"{name} height": pair(at, 0), f"{name} width": pair(at, 1), f"{name} oblong": is_oblong(at)}
    return found


def oblongs(**places: int) -> dict[str, Read]:
    return {f"{name} oblong": is_oblong(at) for name, at in places.items()}


def weights(offsets: int) -> dict[str, Read]:
    return {
        "kernel height": shape(1, 1),
        "kernel width": shape(1, 2),
        "input offset": scalar(offsets),
        "output offset": scalar(offsets + 1),
        "multipliers a channel": varies(offsets + 2),
    }


CONV: Final = (
    pairs(stride=3, padding=4, dilation=5)
    | weights(6)
    | {"bias": is_none(2), "shifts a channel": varies(9), "groups": shape(1, 3), "batches": shape(0, 0)}
)
DEPTHWISE: Final = pairs(stride=3, padding=4, dilation=5) | weights(7) | {"depth multiplier": scalar(6)}
TRANSPOSED: Final = pairs(stride=3, padding=4) | weights(7) | {"batches": shape(0, 0)}
POOL: Final = pairs(kernel=1, stride=2, padding=3) | {"batches": shape(0, 0)}
BROADCAST: Final = {"self broadcast": is_broadcast(0), "other broadcast": is_broadcast(1)}
BOTH: Final = {"dtype": dtype(0)}

ATTRIBUTES: Final[Mapping[str, Mapping[str, Read]]] = {
    "aten::_embedding_bag_forward_only.out": {
        "mode": scalar(4), "per_sample_weights": is_none(6), "include_last_offset": scalar(7), "padding_idx": scalar(8),
    },
    "aten::_log_softmax.out": {"dim": scalar(1)},
    "aten::_softmax.out": {"dim": scalar(1), "rank": rank(0)},
    "aten::abs.out": BOTH,
    "aten::add.out": {"alpha": scalar(2), **BROADCAST},
    "aten::addmm.out": {"self broadcast": is_broadcast(0), "beta": scalar(3), "alpha": scalar(4)},
    "aten::amax.out": {"keepdim": scalar(2), **BOTH},
    "aten::any.out": {"dim": scalar(1), "keepdim": scalar(2)},
    "aten::argmax.out": {"dim": scalar(1), "keepdim": scalar(2)},
    "aten::argmin.out": {"dim": scalar(1), **BOTH},
    "aten::avg_pool2d.out": {
        **pairs(kernel=1, stride=2, padding=3), "ceil_mode": scalar(4), "count_include_pad": scalar(5),
        "divisor_override": is_none(6),
    },
    "aten::avg_pool3d.out": {
        **oblongs(kernel=1, stride=2, padding=3), "ceil_mode": scalar(4), "count_include_pad": scalar(5),
        "divisor_override": is_none(6),
    },
    "aten::bitwise_and.Tensor_out": {"other broadcast": is_broadcast(1), **BOTH},
    "aten::bitwise_not.out": BOTH,
    "aten::bitwise_or.Tensor_out": BOTH,
    "aten::bitwise_xor.Tensor_out": BOTH,
    "aten::cat.out": {"dim": scalar(1), **{"dtype": dtype(2)}, "rank": rank(2)},
    "aten::clamp.out": {"min": is_none(1), "max": is_none(2), **BOTH},
    "aten::constant_pad_nd.out": {"value": scalar(2)},
    "aten::convolution.out": {
        **pairs(stride=3, padding=4, dilation=5), "transposed": scalar(6), "output padding": pair(7, 0),
        "output padding oblong": is_oblong(7), "groups": scalar(8), "bias": is_none(2), "rank": rank(0),
    },
    "aten::copy.out": {"src broadcast": is_broadcast(1)},
    "aten::cumsum.out": {"dim": scalar(1)},
    "aten::div.out": BROADCAST,
    "aten::div.out_mode": {"rounding_mode": scalar(2), **BOTH},
    "aten::gather.out": {"dim": scalar(1)},
    "aten::index_put.out": {"accumulate": scalar(3)},
    "aten::index_select.out": {"dim": scalar(1)},
    "aten::linear.out": {"bias": is_none(2), "rank": rank(0)},
    "aten::max.dim_max": {"dim": scalar(1), "keepdim": scalar(2)},
    "aten::max_pool2d_with_indices.out": {
        **pairs(kernel=1, stride=2, padding=3, dilation=4), "ceil_mode": scalar(5), **BOTH,
    },
    "aten::max_pool3d_with_indices.out": {
        **oblongs(kernel=1, stride=2, padding=3, dilation=4), "ceil_mode": scalar(5),
    },
    "aten::maximum.out": {"other broadcast": is_broadcast(1), **BOTH},
    "aten::mean.out": {"keepdim": scalar(2)},
    "aten::min.dim_min": {"dim": scalar(1)},
    "aten::minimum.out": {**BROADCAST, **BOTH},
    "aten::mul.out": {"other broadcast": is_broadcast(1)},
    "aten::native_group_norm.out": {"weight": is_none(1), "groups": scalar(6)},
    "aten::native_layer_norm.out": {"bias": is_none(3)},
    "aten::neg.out": BOTH,
    "aten::pow.Tensor_Scalar_out": {"exponent": scalar(1)},
    "aten::remainder.Scalar_out": {"other": scalar(1), **BOTH},
    "aten::remainder.Tensor_out": {"other broadcast": is_broadcast(1), **BOTH},
    "aten::scatter.src_out": {"dim": scalar(1)},
    "aten::scatter.value_out": {"dim": scalar(1), "value": scalar(3)},
    "aten::select_copy.int_out": {"dim": scalar(1), "index": scalar(2)},
    "aten::slice_copy.Tensor_out": {"dim": scalar(1), "start": scalar(2), "step": scalar(4)},
    "aten::slice_scatter.out": {"dim": scalar(2), "start": scalar(3), "end": scalar(4), "step": scalar(5)},
    "aten::split_with_sizes_copy.out": {"dim": scalar(2)},
    "aten::sub.out": {"alpha": scalar(2), "self broadcast": is_broadcast(0)},
    "aten::sum.IntList_out": {"keepdim": scalar(2), **BOTH},
    "aten::unsqueeze_copy.out": {"dim": scalar(1)},
    "aten::upsample_bilinear2d.vec_out": {"align_corners": scalar(2), "scale_factors": is_none(3)},
    "aten::upsample_nearest2d.vec_out": {"scale_factors": is_none(2)},
    "aten::var.correction_out": {"correction": scalar(2), "keepdim": scalar(3)},
    "aten::where.self_out": {"condition broadcast": is_broadcast(0)},
    "cortex_m::maximum.out": BROADCAST,
    "cortex_m::minimum.out": BROADCAST,
    "cortex_m::quantized_add.out": {"self zero point": scalar(1), "rank": rank(0)},
    "cortex_m::quantized_avg_pool2d.out": POOL | {"ceil_mode": scalar(4)},
    "cortex_m::quantized_batch_matmul.out": {"lhs zero point": scalar(1), "rhs zero point": scalar(3)},
    "cortex_m::quantized_conv2d.out": CONV,
    "cortex_m::quantized_conv2d_nhwc.out": CONV,
    "cortex_m::quantized_depthwise_conv2d.out": DEPTHWISE,
    "cortex_m::quantized_depthwise_conv2d_nhwc.out": DEPTHWISE,
    "cortex_m::quantized_linear.out": {"bias": is_none(2), "rank": rank(0)},
    "cortex_m::quantized_max_pool2d.out": POOL | {"activation_min": scalar(8)},
    "cortex_m::quantized_max_pool2d_nhwc.out": POOL,
    "cortex_m::quantized_mul.out": {"self zero point": scalar(1), "other zero point": scalar(3), "rank": rank(0)},
    "cortex_m::quantized_transpose_conv2d.out": TRANSPOSED,
    "cortex_m::quantized_transpose_conv2d_nhwc.out": TRANSPOSED,
    "cortex_m::softmax.out": {"size": shape(0, -1)},
    "cortex_m::transpose.out": {"rank": rank(0)},
}  # fmt: skip
"""For each operator, the attributes that must have at least two values among the programs."""


def gaps(files: Iterable[PteFile]) -> Iterator[str]:
    """Yield a line for each operator that no program uses, and each attribute that has the same value in all."""
    calls: dict[str, list[tuple[PteFile, Instruction]]] = {}
    for file in files:
        for instruction in file.instructions:
            if instruction.kind is InstructionKind.KERNEL:
                calls.setdefault(instruction.operator, []).append((file, instruction))
    for operator in operators():
        if operator not in calls:
            yield f"{operator}: no program uses it"
            continue
        for name, read in ATTRIBUTES.get(operator, {}).items():
            values = {read(*call) for call in calls[operator]}
            if len(values) < 2 and values != {DIFFER}:
                yield f"{operator}: {name} is {values.pop()} in all programs"


def main(folder: str) -> int:
    files = [one for path in sorted(Path(folder).glob("*.pte")) for one in read_methods(path.read_bytes(), path.name)]
    found = list(gaps(files))
    print("\n".join(found) or f"every operator and attribute in {len(files)} methods")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
