"""How far rounding alone can move the outputs of a fake-quantised network.

Fake-quant computes in float32 and rounds once; the Cortex-M operators compute in integers with a 31-bit multiplier and
round twice. The two agree but for values near the middle between two integers, where either may go either way; and what
goes the other way is carried on by the layers behind it. So the fake-quantised graph is run a few more times with a
small disturbance before each rounding of an activation. The outputs of these runs are what the comparison judges by.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

import torch
from torch import fx

RUNS: Final = ("up", "down", "outward", "inward", "random", "random", "random", "random", "last up", "last down")
"""Direction of the disturbances of each run: one way everywhere, as one rounding mode against another, or by chance. In
the last two nothing is disturbed but one element of the last operator, by a whole quantum: of few outputs, chance may
have moved none.
"""

DISTURBANCE: Final = 1 / 64
"""In quanta. The kernels' first rounding is to 2^shift of a quantum, and the layers of ordinary networks have shifts of
-6 and less (CMSIS-NN, arm_nn_requantize)."""

_LAST: Final = {"last up": 1.0, "last down": -1.0}
_SEED: Final = 0x5EED
_QUANTIZED: Final = torch.ops.quantized_decomposed
_MOVING: Final = tuple(
    getattr(torch.ops.aten, name).default for name in ("view", "reshape", "permute", "clone", "contiguous", "unsqueeze")
)
_HARD_SIGMOIDS: Final = (torch.ops.aten.hardsigmoid.default, torch.ops.aten.hardsigmoid_.default)
_HARD_SWISHES: Final = (torch.ops.aten.hardswish.default, torch.ops.aten.hardswish_.default)


def disturbed(model: Any | None) -> list[Callable[..., Any]]:
    """For each of RUNS what to call in place of the fake-quantised graph; nothing where there is none.

    The same arguments give the same outputs, always.
    """
    if model is None:
        return []
    return [_Disturbed(model, direction, _SEED + number).run for number, direction in enumerate(RUNS)]


class _Disturbed(fx.Interpreter):
    """Runs a graph with something added before each quantize_per_tensor. Has a generator of its own."""

    def __init__(self, model: Any, direction: str, seed: int) -> None:
        super().__init__(model)
        self._direction = direction
        self._random = torch.Generator().manual_seed(seed)
        self._last = set(_last_roundings(model)) if direction in _LAST else set()
        self._constants: dict[fx.Node, Any] = {}  # what the constants of a hard swish may move its output by

    def run_node(self, n: fx.Node) -> Any:
        if n.target in _HARD_SWISHES:
            self._constants[n] = self._hard_swish(n.args[0])  # now, as it may overwrite its input
        if n.target is not _QUANTIZED.quantize_per_tensor.default:
            return super().run_node(n)
        (value, scale, *rest), options = self.fetch_args_kwargs_from_env(n)
        if self._direction in _LAST:
            moved = value + scale * self._one(value) if n in self._last else value
            return n.target(moved, scale, *rest, **options)
        amplitude = DISTURBANCE * scale + self._own_constants(n.args[0], scale)
        return n.target(value + amplitude * self._shift(value), scale, *rest, **options)

    def _one(self, value: Any) -> Any:
        """1 or -1 for the middle element that is neither the largest nor the smallest, 0 for the others."""
        shift = torch.zeros(value.numel())
        if not value.numel():
            return shift.reshape(value.shape)
        shift[value.flatten().argsort()[value.numel() // 2]] = _LAST[self._direction]
        return shift.reshape(value.shape)

    def _shift(self, value: Any) -> Any:
        """From -1 to 1, for each element."""
        if self._direction == "random":
            return torch.rand(value.shape, generator=self._random) * 2 - 1
        outward = torch.sign(value)
        return {"up": 1.0, "down": -1.0, "outward": outward, "inward": -outward}[self._direction]

    def _own_constants(self, node: Any, scale: float) -> Any:
        """What an operator's output is moved by, at most, because the lowering rounds its constants to whole quanta.

        A hard sigmoid's half becomes an offset of the output, rounded (ExecuTorch, activation_fusion_pass.py).
        """
        return _rounded_away(0.5, scale) if node.target in _HARD_SIGMOIDS else self._constants.get(node, 0.0)

    def _hard_swish(self, before: Any) -> Any:
        """Of x·(min(x, 3) + 3)/6 both threes are rounded as the input is (ExecuTorch, decompose_hardswish_pass.py)."""
        if before.target is not _QUANTIZED.dequantize_per_tensor.default:
            return 0.0
        return self.env[before].abs() * _rounded_away(3.0, before.args[1]) / 3


def _last_roundings(model: Any) -> Iterator[fx.Node]:
    """The node for each output that first quantises what its last operator gave: it may be quantised again, to a scale
    whose quantum is a part of the first one's.
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


def _rounded_away(value: float, scale: float) -> float:
    """How far a value is from the nearest whole number of quanta."""
    return abs(round(value / scale) * scale - value)
