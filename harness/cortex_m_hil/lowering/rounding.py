"""Bounds on how far rounding alone can move the outputs of a quantised network.

Fake-quant computes in float32 and rounds once; the Cortex-M operators compute in integers with a 31-bit multiplier and
round twice. The two agree except for values near the middle between two integers, which may be rounded up by one and
down by the other; and such a difference changes the following layers. So the fake-quantised graph is run a few more
times with a small disturbance before each rounding of an activation. The comparison uses the outputs of these disturbed
runs.

The lowered program is the dialect's to the bit, but for its float operators: ATen adds in another order than the
kernels do, and other libraries' functions differ in the last bits. Where such a result is quantised, a value near the
middle between two integers is rounded up by one and down by the other. So the dialect is run a few more times with
small disturbances of these results, if there are any.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

import torch
from torch import fx

RUNS: Final = ("up", "down", "outward", "inward", "random", "random", "random", "random", "last up", "last down")
"""Direction of the disturbances in each run: the same for all elements, like another rounding mode, or random.

In the last two runs only one element of the last operator is disturbed, by a whole quantum: if there are few outputs,
random disturbances may change none of them.
"""

DISTURBANCE: Final = 1 / 64
"""Size of the disturbance in quanta.

The kernels' first rounding is to 2^shift of a quantum, and the layers of ordinary networks have shifts of
-6 and less (CMSIS-NN, arm_nn_requantize)."""

FLOAT_RUNS: Final = ("up", "down", "random", "random")
"""Direction of the disturbances in each run of the dialect."""

FLOAT_DISTURBANCE: Final = 2**-19
"""Size of the disturbance of a float operator's result, as a share of its largest value.

Layer norms and matrix products of ATen and of the runtimes' kernels differ by up to half of it (measured)."""

_EXACT: Final = frozenset(
    (
        "_clone_dim_order", "_to", "_to_dim_order", "abs", "add", "alias", "amax", "amin", "arange", "cat", "ceil",
        "clamp", "clone", "constant_pad_nd", "copy", "dequantize_per_channel", "dequantize_per_tensor", "detach", "div",
        "embedding", "empty", "expand", "flip", "floor", "full", "full_like", "gather", "hardtanh", "index",
        "index_select", "leaky_relu", "lift_fresh", "masked_fill", "max", "max_pool2d_with_indices", "maximum", "min",
        "minimum", "mul", "neg", "new_full", "ones", "permute", "pixel_shuffle", "pixel_unshuffle", "reciprocal",
        "reflection_pad2d", "relu", "repeat", "replication_pad2d", "round", "rsub", "scalar_tensor", "select", "sign",
        "slice", "split", "split_with_sizes", "sqrt", "squeeze", "stack", "sub", "t", "transpose", "trunc", "unbind",
        "unsqueeze", "upsample_nearest2d", "view", "where", "zeros",
    )
)  # fmt: skip
"""Operators whose float results IEEE 754 defines to the bit: data movement, selections, and single roundings."""

_LAST: Final = {"last up": 1.0, "last down": -1.0}
_SEED: Final = 0x5EED
_QUANTIZED: Final = torch.ops.quantized_decomposed
_MOVING: Final = tuple(
    getattr(torch.ops.aten, name).default for name in ("view", "reshape", "permute", "clone", "contiguous", "unsqueeze")
)
_HARD_SIGMOIDS: Final = (torch.ops.aten.hardsigmoid.default, torch.ops.aten.hardsigmoid_.default)
_HARD_SWISHES: Final = (torch.ops.aten.hardswish.default, torch.ops.aten.hardswish_.default)


def disturbed(model: Any | None) -> list[Callable[..., Any]]:
    """Return for each direction in RUNS a function that runs the fake-quantised graph with disturbed roundings.

    The functions are deterministic: equal arguments give equal outputs. If `model` is None, the list is empty.
    """
    if model is None:
        return []
    return [_Disturbed(model, direction, _SEED + number).run for number, direction in enumerate(RUNS)]


def with_disturbed_floats(dialect: Any) -> list[Callable[..., Any]]:
    """Return for each direction in FLOAT_RUNS a function that runs the dialect with disturbed float results.

    The list is empty if no quantised value depends on a float result that libraries round differently. The functions
    are deterministic, as those of `disturbed`.
    """
    if not isinstance(dialect, fx.GraphModule) or not (found := _inexact_before_integers(dialect.graph)):
        return []
    return [
        _DisturbedFloats(dialect, direction, _SEED + number, found).run for number, direction in enumerate(FLOAT_RUNS)
    ]


class _Directed(fx.Interpreter):
    """An interpreter that disturbs values in one direction, with a random generator of its own."""

    def __init__(self, model: Any, direction: str, seed: int) -> None:
        super().__init__(model)
        self._direction = direction
        self._random = torch.Generator().manual_seed(seed)

    def _disturbance(self, value: Any) -> Any:
        """Return the disturbance of each element, from -1 to 1, as a multiple of the amplitude."""
        if self._direction == "random":
            return torch.rand(value.shape, generator=self._random) * 2 - 1
        outward = torch.sign(value)
        return {"up": 1.0, "down": -1.0, "outward": outward, "inward": -outward}[self._direction]


class _DisturbedFloats(_Directed):
    """An interpreter that disturbs the results of given float operators, each by a share of its largest value."""

    def __init__(self, model: Any, direction: str, seed: int, nodes: frozenset[fx.Node]) -> None:
        super().__init__(model, direction, seed)
        self._nodes = nodes

    def run_node(self, n: fx.Node) -> Any:
        result = super().run_node(n)
        if n not in self._nodes:
            return result
        return tuple(map(self._disturbed, result)) if isinstance(result, tuple) else self._disturbed(result)

    def _disturbed(self, value: Any) -> Any:
        if not isinstance(value, torch.Tensor) or not value.is_floating_point() or not value.numel():
            return value
        finite = torch.nan_to_num(value, nan=0.0, posinf=0.0, neginf=0.0)
        return value + FLOAT_DISTURBANCE * finite.abs().max() * self._disturbance(value)


def _inexact_before_integers(graph: fx.Graph) -> frozenset[fx.Node]:
    """Return the float operators of a lowered graph that libraries round differently, and that integers depend on."""
    behind: set[fx.Node] = set()  # nodes that a quantised value depends on by floats alone
    found = set()
    for node in reversed(graph.nodes):
        name = _operator(node)
        if name.startswith("quantize_per_"):
            behind.update(node.all_input_nodes)
        elif node in behind and not name.startswith("dequantize_per_"):
            behind.update(node.all_input_nodes)
            if name and name not in _EXACT:
                found.add(node)
    return frozenset(found)


def _operator(node: fx.Node) -> str:
    """Return the name of a node's operator without namespace, overload and "_copy"; "" for what computes nothing."""
    schema = getattr(node.target, "_schema", None)
    if node.op != "call_function" or schema is None:
        return ""
    name: str = schema.name.partition("::")[2]
    return name.removesuffix("_copy") or name


class _Disturbed(_Directed):
    """An interpreter that adds a disturbance before each quantize_per_tensor of a fake-quantised graph."""

    def __init__(self, model: Any, direction: str, seed: int) -> None:
        super().__init__(model, direction, seed)
        self._last = set(_last_roundings(model)) if direction in _LAST else set()
        self._constants: dict[fx.Node, Any] = {}  # see `_hard_swish_rounding`

    def run_node(self, n: fx.Node) -> Any:
        if n.target in _HARD_SWISHES:
            # Computed before the node, which may overwrite its input.
            self._constants[n] = self._hard_swish_rounding(n.args[0])
        if n.target is not _QUANTIZED.quantize_per_tensor.default:
            return super().run_node(n)
        (value, scale, *rest), options = self.fetch_args_kwargs_from_env(n)
        if self._direction in _LAST:
            moved = value + scale * self._median_step(value) if n in self._last else value
            return n.target(moved, scale, *rest, **options)
        amplitude = DISTURBANCE * scale + self._constant_rounding(n.args[0], scale)
        return n.target(value + amplitude * self._disturbance(value), scale, *rest, **options)

    def _median_step(self, value: Any) -> Any:
        """Return 1 or -1 for the median element, 0 for the others.

        Of three or more elements the median is neither the largest nor the smallest.
        """
        shift = torch.zeros(value.numel())
        if not value.numel():
            return shift.reshape(value.shape)
        shift[value.flatten().argsort()[value.numel() // 2]] = _LAST[self._direction]
        return shift.reshape(value.shape)

    def _constant_rounding(self, node: Any, scale: float) -> Any:
        """Return the largest change of an operator's output because its constants are rounded to whole quanta.

        The 0.5 in a hard sigmoid becomes a rounded offset of the output (ExecuTorch, activation_fusion_pass.py).
        """
        return _rounding_error(0.5, scale) if node.target in _HARD_SIGMOIDS else self._constants.get(node, 0.0)

    def _hard_swish_rounding(self, before: Any) -> Any:
        """Return the largest change of a hard swish's output because its constants are rounded.

        Both 3s of x·(min(x, 3) + 3)/6 are rounded to the input's quanta (ExecuTorch, decompose_hardswish_pass.py).
        """
        if before.target is not _QUANTIZED.dequantize_per_tensor.default:
            return 0.0
        return self.env[before].abs() * _rounding_error(3.0, before.args[1]) / 3


def _last_roundings(model: Any) -> Iterator[fx.Node]:
    """Yield for each output the node that first quantises the result of its last operator.

    The result may be quantised again after that, to a finer scale.
    """
    quantize, dequantize = _QUANTIZED.quantize_per_tensor.default, _QUANTIZED.dequantize_per_tensor.default
    output = next(node for node in model.graph.nodes if node.op == "output")
    for last in output.all_input_nodes:
        node: Any = last
        found = None
        while node.target in (quantize, dequantize, *_MOVING):
            found = node if node.target is quantize else found
            node = node.args[0]
        if found is not None:
            yield found


def _rounding_error(value: float, scale: float) -> float:
    """Return the distance of a value from the nearest multiple of the scale."""
    return abs(round(value / scale) * scale - value)
