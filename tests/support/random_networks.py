"""Random correct networks: a seed gives a network and its inputs, of the shapes that small models have.

Images go through convolutions of all kinds, MobileNet's blocks, branches and pools; rows through an autoencoder;
sequences through attention. Whatever is built here ExecuTorch lowers completely, so any verdict but a pass is
false.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

Inputs = tuple[torch.Tensor, ...]
Shape = tuple[int, ...]

ACTIVATIONS: tuple[Callable[[], nn.Module], ...] = (
    nn.ReLU, nn.ReLU6, nn.Hardtanh, nn.Hardsigmoid, nn.Hardswish, nn.Sigmoid, nn.Tanh, nn.SiLU,
)  # fmt: skip
FUSED: tuple[Callable[[], nn.Module], ...] = (nn.ReLU, nn.ReLU6, nn.Hardtanh, nn.Hardswish)


class Branches(nn.Module):
    """A module whose branches take the same tensor; a function of two tensors combines their results."""

    def __init__(self, join: Callable[[Any, Any], Any], left: nn.Module, right: nn.Module) -> None:
        super().__init__()
        self.join, self.left, self.right = join, left, right

    def forward(self, x: Any) -> Any:
        return self.join(self.left(x), self.right(x))


class ResidualNorms(nn.Module):
    """Linear layers on rows of 80, each behind a layer norm, which stays in float, and beside a shortcut."""

    def __init__(self, depth: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Sequential(nn.LayerNorm(80), nn.Linear(80, 80)) for _ in range(depth))
        self.norm = nn.LayerNorm(80)

    def forward(self, x: torch.Tensor) -> Any:
        for layer in self.layers:
            x = x + layer(x)
        return self.norm(x)


class Transposed(nn.Module):
    """A module that swaps rows and columns of a (batch, rows, columns) tensor.

    Only for the network's input: behind a layer executorch 1.5.1 lowers it to an operator that no runner has.
    """

    def forward(self, x: Any) -> Any:
        return x.permute(0, 2, 1)


def network(seed: int) -> tuple[nn.Module, Inputs]:
    """Return network and inputs number ``seed``; leave the global generators alone."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        made = _Builder(random.Random(seed))
        shape, layers = made.choice((made.images, made.images, made.images, made.rows, made.sequences))()
        spread = made.choice((torch.rand, torch.randn))
        return nn.Sequential(*layers).eval(), (spread(shape),)


class _Builder:
    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self.choice = chance.choice

    # --- images ----------------------------------------------------------------------------------------------

    def images(self) -> tuple[Shape, list[nn.Module]]:
        """Return the shape and the layers of a network on images.

        Most have few blocks: a block has up to ten operators, and lowering one takes a good part of a second.
        """
        batch, channels, size = self.choice((1, 1, 2, 4)), self.choice((1, 3, 4, 8)), self.choice((8, 9, 12, 16))
        shape = (batch, channels, size, size)
        layers: list[nn.Module] = []
        for _ in range(self.chance.choice((1, 1, 2, 2, 3, 4, 5))):
            layer, channels, size = self.choice(
                (self.convolution, self.depthwise, self.grouped, self.transposed, self.pool, self.activation,
                 self.residual, self.inverted, self.squeeze, self.concatenation, self.convolution, self.product)
            )(channels, size)  # fmt: skip
            layers.append(layer)
        return shape, layers + self.choice((self.no_head, self.no_head, self.head, self.pooled_head))(channels, size)

    def followed(self, layer: nn.Module, channels: int) -> nn.Module:
        """Return a layer followed by a batch norm, an activation, both or neither."""
        norm = [self.norm(channels)] if self.chance.random() < 0.3 else []
        active = [self.choice(FUSED)()] if self.chance.random() < 0.6 else []
        return nn.Sequential(layer, *norm, *active)

    def norm(self, channels: int) -> nn.Module:
        norm = nn.BatchNorm2d(channels)
        nn.init.uniform_(norm.weight, 0.5, 1.5)
        nn.init.normal_(norm.bias, std=0.2)
        torch.nn.init.normal_(norm.running_mean, std=0.2)  # type: ignore[arg-type]
        torch.nn.init.uniform_(norm.running_var, 0.5, 1.5)  # type: ignore[arg-type]
        return norm

    def convolution(self, channels: int, size: int) -> tuple[nn.Module, int, int]:
        out, kernel, stride = self.choice((4, 6, 8, 16)), self.choice((1, 3, 3, 5)), self.choice((1, 1, 2))
        layer = nn.Conv2d(channels, out, kernel, stride, kernel // 2, bias=self.chance.random() < 0.8)
        return self.followed(layer, out), out, (size - 1) // stride + 1

    def depthwise(self, channels: int, size: int) -> tuple[nn.Module, int, int]:
        out, stride = channels * self.choice((1, 1, 2)), self.choice((1, 1, 2))
        layer = nn.Conv2d(channels, out, 3, stride, 1, groups=channels)
        return self.followed(layer, out), out, (size - 1) // stride + 1

    def grouped(self, channels: int, size: int) -> tuple[nn.Module, int, int]:
        groups = 2 if channels % 2 == 0 else 1
        return self.followed(nn.Conv2d(channels, 2 * groups, 3, padding=1, groups=groups), 2 * groups), 2 * groups, size

    def transposed(self, channels: int, size: int) -> tuple[nn.Module, int, int]:
        if size > 8:
            return self.convolution(channels, size)
        out = self.choice((4, 6))
        layer = nn.ConvTranspose2d(channels, out, 2, stride=2)
        return nn.Sequential(layer, *([nn.ReLU()] if self.chance.random() < 0.5 else [])), out, size * 2

    def pool(self, channels: int, size: int) -> tuple[nn.Module, int, int]:
        if size < 4:
            return self.activation(channels, size)
        return self.choice((nn.MaxPool2d, nn.AvgPool2d))(2), channels, size // 2

    def activation(self, channels: int, size: int) -> tuple[nn.Module, int, int]:
        """Return an activation of any value: one that is lowered to a table.

        executorch 1.5.1 lowers those that are made of several operators only behind a layer (clamps: known bug 16 of
        docs/known_bugs.md).
        """
        active = self.choice(ACTIVATIONS)
        instead: dict[Callable[[], nn.Module], Callable[[], nn.Module]]
        instead = {
            nn.ReLU: nn.Tanh, nn.ReLU6: nn.Sigmoid, nn.Hardtanh: nn.Tanh, nn.Hardswish: nn.SiLU,
            nn.Hardsigmoid: nn.Sigmoid,
        }  # fmt: skip
        return instead.get(active, active)(), channels, size

    def same(self, channels: int) -> nn.Module:
        return nn.Sequential(nn.Conv2d(channels, channels, 3, padding=1), self.choice(FUSED)())

    def residual(self, channels: int, size: int) -> tuple[nn.Module, int, int]:
        """Return ResNet's block: the relu is behind the addition as well."""
        block = Branches(torch.add, nn.Identity(), self.same(channels))
        return nn.Sequential(block, *([nn.ReLU()] if self.chance.random() < 0.5 else [])), channels, size

    def inverted(self, channels: int, size: int) -> tuple[nn.Module, int, int]:
        """Return MobileNetV2's block: expand, filter by channel, project, add."""
        wide, active = channels * self.choice((2, 3)), self.choice((nn.ReLU6, nn.Hardswish))
        body = nn.Sequential(
            nn.Conv2d(channels, wide, 1, bias=False), self.norm(wide), active(),
            nn.Conv2d(wide, wide, 3, padding=1, groups=wide, bias=False), self.norm(wide), active(),
            nn.Conv2d(wide, channels, 1, bias=False), self.norm(channels),
        )  # fmt: skip
        return Branches(torch.add, nn.Identity(), body), channels, size

    def squeeze(self, channels: int, size: int) -> tuple[nn.Module, int, int]:
        """Return MobileNetV3's gate: a factor for every channel.

        Of more than a half, and of a relu that lets something through: ExecuTorch lowers a hard sigmoid wrongly whose
        outputs are all less, and a layer whose inputs are all zero (docs/known_bugs.md, known bugs 14 and 15).
        """
        first, last = nn.Conv2d(channels, 4, 1), nn.Conv2d(4, channels, 1)
        nn.init.constant_(first.bias, 0.5)  # type: ignore[arg-type]
        nn.init.constant_(last.bias, 1.0)  # type: ignore[arg-type]
        gate = nn.Sequential(nn.AdaptiveAvgPool2d(1), first, nn.ReLU(), last, nn.Hardsigmoid())
        return Branches(torch.mul, nn.Identity(), gate), channels, size

    def concatenation(self, channels: int, size: int) -> tuple[nn.Module, int, int]:
        return Branches(_cat, *self.alike(channels, channels, 4)), channels + 4, size

    def alike(self, channels: int, *outs: int) -> tuple[nn.Module, ...]:
        """Return convolutions whose outputs share one quantisation, as for a concatenation: all with a relu, or none.

        A clamp before that, whose bounds are not the shared range's, executorch 1.5.1 lowers wrongly.
        """
        active = [nn.ReLU()] if self.chance.random() < 0.5 else []
        return tuple(nn.Sequential(nn.Conv2d(channels, out, 3, padding=1), *active) for out in outs)

    def product(self, channels: int, size: int) -> tuple[nn.Module, int, int]:
        return Branches(torch.mul, nn.Identity(), nn.Conv2d(channels, channels, 1)), channels, size

    def no_head(self, channels: int, size: int) -> list[nn.Module]:
        return []

    def head(self, channels: int, size: int) -> list[nn.Module]:
        end = [nn.Softmax(-1)] if self.chance.random() < 0.5 else []
        return [nn.Flatten(), nn.Linear(channels * size * size, 10), *end]

    def pooled_head(self, channels: int, size: int) -> list[nn.Module]:
        return [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, self.choice((2, 10)))]

    # --- rows and sequences ----------------------------------------------------------------------------------

    def rows(self) -> tuple[Shape, list[nn.Module]]:
        """Return an autoencoder, or one half of it."""
        widths = [self.choice((32, 64, 128)), *(self.choice((8, 16, 32, 64)) for _ in range(self.chance.randint(1, 9)))]
        layers: list[nn.Module] = []
        for inputs, outputs in itertools.pairwise(widths):
            layers += [
                nn.Linear(inputs, outputs),
                *([self.choice(ACTIVATIONS)()] if self.chance.random() < 0.7 else []),
            ]
        return (self.choice((1, 1, 4)), widths[0]), layers

    def sequences(self) -> tuple[Shape, list[nn.Module]]:
        """Return a network on square sequences, so that products of two of them have the same shape."""
        size = self.choice((6, 8, 10))
        layers: list[nn.Module] = [Transposed(), nn.Linear(size, size)] if self.chance.random() < 0.4 else []
        for _ in range(self.chance.randint(1, 3)):
            layers.append(self.choice((self.product_of_matrices, self.feeding, self.weights, self.extremum))(size))
        return (self.choice((1, 2, 4)), size, size), layers

    def product_of_matrices(self, size: int) -> nn.Module:
        return Branches(torch.bmm, nn.Linear(size, size), nn.Linear(size, size))

    def extremum(self, size: int) -> nn.Module:
        """Return a maximum or minimum of two tensors of rows.

        ExecuTorch's operators compare channels-last images in the wrong order, and builtin refuses them.
        """
        return Branches(self.choice((torch.minimum, torch.maximum)), nn.Linear(size, size), nn.Linear(size, size))

    def feeding(self, size: int) -> nn.Module:
        body = nn.Sequential(nn.Linear(size, 2 * size), self.choice(ACTIVATIONS)(), nn.Linear(2 * size, size))
        return Branches(torch.add, nn.Identity(), body)

    def weights(self, size: int) -> nn.Module:
        return nn.Sequential(nn.Linear(size, size), nn.Softmax(-1), nn.Linear(size, size))


def _cat(left: Any, right: Any) -> Any:
    return torch.cat((left, right), dim=1)
