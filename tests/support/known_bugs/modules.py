"""Small modules that show the bugs, always with the same weights and inputs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from networks import Apply

Sample = tuple[nn.Module, tuple[torch.Tensor, ...]]
"""A module and its example inputs."""


def sample(make: Callable[[], nn.Module], *shapes: tuple[int, ...], scale: float = 1.0) -> Callable[[], Sample]:
    """Return a function that makes the module and normally distributed inputs of these shapes, times ``scale``."""

    def made() -> Sample:
        torch.manual_seed(7)
        return make().eval(), tuple(torch.randn(shape) * scale for shape in shapes)

    return made


def biased_layer() -> Sample:
    """Return a fully connected layer whose outputs are almost nothing but its bias."""
    torch.manual_seed(7)
    return nn.Linear(512, 10), (torch.rand(1, 512) * 0.002,)


def transposed(kernel: int, stride: int | tuple[int, int], padding: int = 0, channels: int = 3) -> Callable[[], Sample]:
    return sample(lambda: nn.ConvTranspose2d(channels, 4, kernel, stride=stride, padding=padding), (1, channels, 4, 9))


def grouped() -> Sample:
    """Return a convolution of two groups without bias."""
    return sample(lambda: nn.Conv2d(4, 6, 3, groups=2, bias=False), (1, 4, 6, 6))()


def ramp() -> Sample:
    """Return the grouped convolution with positive weights, on a ramp: all sums are beyond what was calibrated."""
    module, _ = grouped()
    with torch.no_grad():
        for weight in module.parameters():
            weight.abs_()
    return module, (torch.arange(1.0, 145.0).reshape(1, 4, 6, 6),)


def doubled(in_a_branch: bool) -> Callable[[], Sample]:
    """Return a function that makes a sum and a layer; the sum may be in a branch of `torch.cond` for an input."""

    def work(layer: nn.Module, x: torch.Tensor, choice: torch.Tensor) -> Any:
        return layer(torch.cond(choice, lambda y: y + y, lambda y: y - y, (x,)) if in_a_branch else x + x)

    def made() -> Sample:
        torch.manual_seed(7)
        return Apply(work, nn.Linear(12, 4)).eval(), (torch.randn(4, 12), torch.tensor(True))

    return made


def chosen() -> Sample:
    """Return the module and inputs of `doubled`, with `torch.where` in place of branches."""
    _, inputs = doubled(True)()
    return Apply(lambda layer, x, choice: layer(torch.where(choice, x + x, x - x)), nn.Linear(12, 4)).eval(), inputs


def nearly_all_bias() -> nn.Module:
    """Return a layer whose bias no int32 holds where its inputs are tiny."""
    layer = nn.Linear(8, 8)
    with torch.no_grad():
        layer.weight *= 0.01
        layer.bias.fill_(0.5)
    return layer


def behind_a_sigmoid(activation: Callable[[], nn.Module]) -> nn.Module:
    return nn.Sequential(nn.Conv2d(3, 8, 3), nn.Sigmoid(), nn.Conv2d(8, 8, 1), activation())


def softmax_after(activation: Callable[[], nn.Module]) -> Callable[[], Sample]:
    return sample(lambda: nn.Sequential(nn.Linear(8, 8), activation(), nn.Linear(8, 4)), (3, 8))


def hard_sigmoid(bias: float) -> Callable[[], Sample]:
    """Return a function that makes a layer and a hard sigmoid, all below a half if ``bias`` is -1, above if it is 1."""

    def made() -> Sample:
        layer = nn.Conv2d(1, 1, 1)
        nn.init.constant_(layer.weight, 0.5)
        nn.init.constant_(layer.bias, bias)  # type: ignore[arg-type]
        torch.manual_seed(7)
        return nn.Sequential(layer, nn.Hardsigmoid()), (torch.rand(1, 1, 8, 8),)

    return made


def gate(bias: float) -> Callable[[], Sample]:
    """Return a function that makes two layers and a relu between; it passes nothing if ``bias`` is far below 0."""

    def made() -> Sample:
        torch.manual_seed(7)
        first, last = nn.Linear(4, 4), nn.Linear(4, 4)
        nn.init.constant_(first.bias, bias)
        nn.init.constant_(last.bias, 1.0)
        return nn.Sequential(first, nn.ReLU(), last), (torch.rand(3, 4),)

    return made


def clamped() -> Sample:
    """Return a relu, and `ordinary` values as its inputs."""
    return nn.ReLU(), ordinary()


def far_outside() -> Sample:
    """Return a relu, calibrated with `ordinary` values, and inputs of which two are some 40,000 quanta large."""
    (values,) = ordinary()
    values = values.clone()
    values[0, :2] = 157.0
    return nn.ReLU(), (values,)


def ordinary() -> tuple[torch.Tensor, ...]:
    return (torch.linspace(0.0, 1.0, 256).reshape(1, 256),)
