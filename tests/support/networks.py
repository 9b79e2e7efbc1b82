"""Small networks that several test modules run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn


class Apply(nn.Module):
    """A module that calls a function of layers and tensors."""

    def __init__(self, function: Callable[..., Any], *layers: nn.Module) -> None:
        super().__init__()
        self.function = function
        self.layers = nn.ModuleList(layers)

    def forward(self, *inputs: Any) -> Any:
        return self.function(*self.layers, *inputs)


class Net(nn.Module):
    """A network for (1, 3, 17, 17): scratch of every kind, a tensor used twice, and sizes that fill no vector."""

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
    """A network for frames of (1, 1, 8): a convolution over the last three frames, and a GRU cell. Both keep state."""

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

    def step(self, x: Any, window: Any, hidden: Any) -> tuple[Any, Any, Any]:
        """Return the output for a frame and the state before it, and the state after."""
        window = torch.cat([window[:, 1:], x], 1)
        seen = torch.relu(self.conv(window.unsqueeze(1))).flatten(1)
        reset = torch.sigmoid(self.reset_x(seen) + self.reset_h(hidden))
        update = torch.sigmoid(self.update_x(seen) + self.update_h(hidden))
        new = torch.tanh(self.new_x(seen) + reset * self.new_h(hidden))
        hidden = new + update * (hidden - new)
        return self.head(hidden), window, hidden

    def forward(self, x: Any) -> Any:
        output, window, hidden = self.step(x, self.window, self.hidden)
        self.window.copy_(window)
        self.hidden.copy_(hidden)
        return output


class Unrolled(nn.Module):
    """A network that takes all of (1, frames, 8) in one call: its state is an input and an output.

    ``step`` returns the output for a frame and the state before it, and the state after.
    """

    def __init__(self, step: Callable[[Any, Any, Any], tuple[Any, Any, Any]], *layers: nn.Module) -> None:
        super().__init__()
        self.step = step
        self.layers = nn.ModuleList(layers)

    def forward(self, frames: Any, window: Any, hidden: Any) -> Any:
        outputs = []
        for number in range(frames.shape[1]):
            output, window, hidden = self.step(frames[:, number : number + 1], window, hidden)
            outputs.append(output)
        return torch.stack(outputs, 1), window, hidden


def listener(frames: int) -> tuple[Listener, list[tuple[torch.Tensor, ...]]]:
    """Return the network and `frames` frames, always the same."""
    generator = torch.Generator().manual_seed(11)
    torch.manual_seed(7)
    return Listener().eval(), [(torch.randn(1, 1, 8, generator=generator).cumsum(2) * 0.3,) for _ in range(frames)]


class CachedAttention(nn.Module):
    """Attention of a token of (1, 1, 8) to all earlier tokens, whose keys and values are kept as state.

    ``write(cache, position, row)`` puts a row into a cache, in one of the ways of models. Layers have no bias: with
    one, ExecuTorch does not lower the product of a layer and of anything else (known bug 27).
    """

    keys: torch.Tensor
    values: torch.Tensor
    mask: torch.Tensor

    def __init__(self, write: Callable[[Any, Any, Any], None], length: int, width: int = 8) -> None:
        super().__init__()
        self.write = write
        self.query, self.key, self.value, self.head = (nn.Linear(width, width, bias=False) for _ in range(4))
        self.register_buffer("keys", torch.zeros(1, length, width))
        self.register_buffer("values", torch.zeros(1, length, width))
        self.register_buffer("mask", torch.ones(length, length).triu(1) * -50)

    def forward(self, x: Any, position: Any) -> Any:
        self.write(self.keys, position, self.key(x))
        self.write(self.values, position, self.value(x))
        seen = torch.bmm(self.query(x), self.keys.transpose(1, 2)) + self.mask[position]
        return self.head(torch.bmm(torch.softmax(seen, -1), self.values))

    def at_once(self, tokens: torch.Tensor) -> torch.Tensor:
        """Return the outputs for each of (1, length, 8), from an empty cache."""
        seen = torch.bmm(self.query(tokens), self.key(tokens).transpose(1, 2)) + self.mask
        outputs: torch.Tensor = self.head(torch.bmm(torch.softmax(seen, -1), self.value(tokens)))
        return outputs


def _by_index(cache: Any, position: Any, row: Any) -> None:
    cache[:, position] = row


def _by_copy(cache: Any, position: Any, row: Any) -> None:
    cache.index_copy_(1, position, row)


def _by_scatter(cache: Any, position: Any, row: Any) -> None:
    cache.scatter_(1, position.view(1, 1, 1).expand_as(row), row)


def _by_choice(cache: Any, position: Any, row: Any) -> None:
    cache.copy_(torch.where((torch.arange(cache.shape[1]) == position).view(1, -1, 1), row, cache))


CACHE_WRITES = {"index": _by_index, "copy": _by_copy, "scatter": _by_scatter, "choice": _by_choice}


def cached_attention(way: str, length: int = 12) -> tuple[CachedAttention, torch.Tensor]:
    """Return the network with one of CACHE_WRITES, and the tokens of a sequence."""
    torch.manual_seed(5)
    module = CachedAttention(CACHE_WRITES[way], length).eval()
    return module, torch.randn(1, length, 8)
