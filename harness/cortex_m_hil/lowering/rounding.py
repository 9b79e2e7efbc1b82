"""Bounds on how far rounding alone can move the outputs of a fake-quantised network.

Fake-quant computes in float32 and rounds once; the Cortex-M operators compute in integers with a 31-bit multiplier and
round twice. The two agree except for values near the middle between two integers, which may be rounded up by one and
down by the other; and such a difference changes the following layers. So the fake-quantised graph is run a few more
times with a small disturbance before each rounding of an activation. The comparison uses the outputs of these disturbed
runs.
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


class _Disturbed(fx.Interpreter):
    """An interpreter that adds a disturbance before each quantize_per_tensor, with a random generator of its own."""

    def __init__(self, model: Any, direction: str, seed: int) -> None:
        super().__init__(model)
        self._direction = direction
        self._random = torch.Generator().manual_seed(seed)
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

    def _disturbance(self, value: Any) -> Any:
        """Return the disturbance of each element, from -1 to 1, as a multiple of the amplitude."""
        if self._direction == "random":
            return torch.rand(value.shape, generator=self._random) * 2 - 1
        outward = torch.sign(value)
        return {"up": 1.0, "down": -1.0, "outward": outward, "inward": -outward}[self._direction]

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
