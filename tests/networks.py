"""Small networks that several test modules run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn


class Apply(nn.Module):
    """A function of layers and tensors."""

    def __init__(self, function: Callable[..., Any], *layers: nn.Module) -> None:
        super().__init__()
        self.function = function
        self.layers = nn.ModuleList(layers)

    def forward(self, *inputs: Any) -> Any:
        return self.function(*self.layers, *inputs)


class Net(nn.Module):
    """For (1, 3, 17, 17): scratch of every kind, a tensor used twice, odd sizes, so that vectors have tails."""

    def __init__(self) -> None:
        super().__init__()
        self.entry = nn.Sequential(nn.Conv2d(3, 19, 3, stride=2, padding=1), nn.ReLU())
        self.branch = nn.Sequential(nn.Conv2d(19, 19, 3, padding=1, groups=19), nn.Conv2d(19, 19, 1))
        self.pool = nn.Sequential(nn.MaxPool2d(2), nn.AvgPool2d(2))
        self.head = nn.Linear(19 * 4, 33)

    def forward(self, x: Any) -> Any:
        x = self.entry(x)
        return self.head(torch.flatten(self.pool(x + self.branch(x) * x), 1))


class Listener(nn.Module):
    """For frames of (1, 1, 8): a convolution over the last three of them, and a GRU's cell. Both keep their state."""

    window: torch.Tensor
    hidden: torch.Tensor

    def __init__(self, features: int = 8, width: int = 12, hidden: int = 10) -> None:
        super().__init__()
        self.conv = nn.Conv2d(1, width, (3, features))
        self.reset_x, self.update_x, self.new_x = (nn.Linear(width, hidden) for _ in range(3))
        self.reset_h, self.update_h, self.new_h = (nn.Linear(hidden, hidden) for _ in range(3))
        self.head = nn.Linear(hidden, 4)
        self.register_buffer("window", torch.zeros(1, 3, features))
        self.register_buffer("hidden", torch.full((1, hidden), 0.1))

    def forward(self, x: Any) -> Any:
        window = torch.cat([self.window[:, 1:], x], 1)
        self.window.copy_(window)
        seen = torch.relu(self.conv(window.unsqueeze(1))).flatten(1)
        reset = torch.sigmoid(self.reset_x(seen) + self.reset_h(self.hidden))
        update = torch.sigmoid(self.update_x(seen) + self.update_h(self.hidden))
        new = torch.tanh(self.new_x(seen) + reset * self.new_h(self.hidden))
        hidden = new + update * (self.hidden - new)
        self.hidden.copy_(hidden)
        return self.head(hidden)


def listener(frames: int) -> tuple[nn.Module, list[tuple[torch.Tensor, ...]]]:
    """The network and so many frames, always the same."""
    generator = torch.Generator().manual_seed(11)
    torch.manual_seed(7)
    return Listener().eval(), [(torch.randn(1, 1, 8, generator=generator).cumsum(2) * 0.3,) for _ in range(frames)]
