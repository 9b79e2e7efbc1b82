"""Small models as people write them: operators other than convolutions, some of which stay ATen operators."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional

from cortex_m_hil import OpenTarget
from cortex_m_hil.errors import HarnessError, LintError, LoweringError
from cortex_m_hil.lowering import Layout
from networks import Apply


class Way(Enum):
    """The way in which a model is lowered."""

    QUANTIZED = "quantized"
    FLOAT = "float"


@dataclass(frozen=True)
class Obstacle:
    """The error that a model ends with, and a part of its message."""

    error: type[HarnessError]
    said: str


@dataclass(frozen=True)
class Model:
    """A model with its inputs and its obstacles.

    ``inputs``: shapes of standard normal numbers; (-limit, *shape) is of indices below the limit. ``obstacles``: the
    error that it ends with, by the way in which it is lowered.
    """

    module: Callable[[], nn.Module]
    inputs: tuple[tuple[int, ...], ...]
    layout: Layout = "channels_last"
    obstacles: Mapping[Way, Obstacle] = field(default_factory=dict)

    def made(self) -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
        return self.module().eval(), tuple(_input(shape) for shape in self.inputs)


def check(target: OpenTarget, name: str, way: Way) -> None:
    """Run the model `name` of MODELS and compare its outputs, or check that it fails with the expected error."""
    torch.manual_seed(1)
    model, known = MODELS[name], KNOWN.get((name, way), ())
    module, inputs = model.made()
    obstacle = model.obstacles.get(way)
    expected = pytest.raises(obstacle.error, match=obstacle.said) if obstacle is not None else nullcontext()
    with expected:
        if way is Way.QUANTIZED:
            target.check(module, inputs, layout=model.layout, known=known)
        else:
            target.check(
                module, inputs, layout=model.layout, known=known, quantize=False, atol=1e-5, rtol=1e-5, eager_sqnr=100.0
            )


def _input(shape: tuple[int, ...]) -> torch.Tensor:
    return torch.randint(0, -shape[0], shape[1:]) if shape[0] < 0 else torch.randn(shape)


class Ecg(nn.Module):
    """A network of convolutions over time and a global mean."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv1d(1, 8, 7, stride=2, padding=3), nn.BatchNorm1d(8), nn.ReLU(), nn.MaxPool1d(2),
            nn.Conv1d(8, 16, 5, padding=2), nn.ReLU(),
        )  # fmt: skip
        self.head = nn.Linear(16, 5)

    def forward(self, x: Any) -> Any:
        return self.head(self.body(x).mean(-1))


class Recurrent(nn.Module):
    """A recurrent layer, and a head on its last state."""

    def __init__(self, layer: nn.Module, states: int) -> None:
        super().__init__()
        self.layer, self.head = layer, nn.Linear(states, 4)

    def forward(self, x: Any) -> Any:
        return self.head(self.layer(x)[0][:, -1])


class Attention(nn.Module):
    """Attention with one head, written out."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.query, self.key, self.value = (nn.Linear(width, width) for _ in range(3))
        self.scale = width**-0.5

    def forward(self, x: Any) -> Any:
        scores = torch.matmul(self.query(x), self.key(x).transpose(-2, -1)) * self.scale
        return torch.matmul(torch.softmax(scores, -1), self.value(x))


class Transformer(nn.Module):
    """A block of a transformer: attention and a feed-forward part, each with a layer norm before it."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = nn.MultiheadAttention(width, 2, batch_first=True)
        self.feed = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))

    def forward(self, x: Any) -> Any:
        normal = self.first(x)
        x = x + self.attention(normal, normal, normal, need_weights=False)[0]
        return x + self.feed(self.second(x))


class Excite(nn.Module):
    """A block with squeeze and excite."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3, padding=1)
        self.squeeze = nn.Sequential(nn.Linear(8, 4), nn.ReLU(), nn.Linear(4, 8), nn.Sigmoid())

    def forward(self, x: Any) -> Any:
        x = torch.relu(self.conv(x))
        weight = self.squeeze(x.mean((2, 3)))
        return x * weight[:, :, None, None]


class Texts(nn.Module):
    """A classifier of texts: embedded tokens, their mean, and a head."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.head = nn.Embedding(20, 8), nn.Linear(8, 3)

    def forward(self, tokens: Any) -> Any:
        return self.head(self.table(tokens).mean(1))


class Temporal(nn.Module):
    """A block of dilated causal convolutions with a residual."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv1d(4, 8, 3, dilation=1), nn.Conv1d(8, 8, 3, dilation=2)
        self.short = nn.Conv1d(4, 8, 1)

    def forward(self, x: Any) -> Any:
        y = torch.relu(self.first(functional.pad(x, (2, 0))))
        y = torch.relu(self.second(functional.pad(y, (4, 0))))
        return torch.relu(y + self.short(x))


def _convolved(*layers: nn.Module) -> Callable[[], nn.Module]:
    return lambda: nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), *layers)


def _applied(function: Callable[..., Any], *layers: Callable[[], nn.Module]) -> Callable[[], nn.Module]:
    return lambda: Apply(function, *(layer() for layer in layers))


_IMAGE = ((1, 3, 8, 8),)
_ROWS = ((2, 16),)
_TIME = ((1, 10, 6),)
_VIEW = Obstacle(LintError, "is a view of value .* without a copy")
"""Known bug 24 (docs/known_bugs.md)."""
_NO_SCALE = Obstacle(LintError, "on integers ExecuTorch computes without their scales")
"""A number is compared with quantised integers."""

MODELS = {
    "mlp": Model(lambda: nn.Sequential(nn.Linear(16, 12), nn.ReLU(), nn.Linear(12, 4), nn.LogSoftmax(-1)), _ROWS),
    "ecg": Model(Ecg, ((1, 1, 64),)),
    "gru": Model(lambda: Recurrent(nn.GRU(6, 8, batch_first=True), 8), _TIME),
    "lstm": Model(lambda: Recurrent(nn.LSTM(6, 8, batch_first=True), 8), _TIME),
    "rnn": Model(lambda: Recurrent(nn.RNN(6, 8, batch_first=True), 8), _TIME),
    "layer_norm": Model(lambda: nn.Sequential(nn.Linear(16, 12), nn.LayerNorm(12), nn.ReLU(), nn.Linear(12, 4)), _ROWS),
    "attention": Model(
        lambda: Attention(8),
        ((1, 5, 8),),
        obstacles={Way.QUANTIZED: Obstacle(LoweringError, "expected scalar type torch.int8")},
    ),
    "transformer": Model(lambda: Transformer(8), ((1, 5, 8),)),
    "embedding": Model(Texts, ((-20, 2, 7),)),
    "leaky_relu": Model(_convolved(nn.BatchNorm2d(8), nn.LeakyReLU(0.1), nn.Conv2d(8, 4, 3)), _IMAGE),
    "gelu": Model(_convolved(nn.GELU(), nn.Conv2d(8, 4, 3)), _IMAGE),
    "gelu_tanh": Model(_convolved(nn.GELU("tanh"), nn.Conv2d(8, 4, 3)), _IMAGE),
    "silu": Model(_convolved(nn.SiLU(), nn.Conv2d(8, 4, 3)), _IMAGE),
    "elu": Model(_convolved(nn.ELU(), nn.Conv2d(8, 4, 3)), _IMAGE),
    "softplus": Model(lambda: nn.Sequential(nn.Linear(16, 12), nn.Softplus(), nn.Linear(12, 4)), _ROWS),
    "mish": Model(_convolved(nn.Mish(), nn.Conv2d(8, 4, 3)), _IMAGE),
    "prelu": Model(_convolved(nn.PReLU(8), nn.Conv2d(8, 4, 3)), _IMAGE),
    "hardswish": Model(
        _convolved(nn.Hardswish(), nn.Conv2d(8, 4, 1), nn.Hardsigmoid()),
        _IMAGE,
        obstacles={Way.FLOAT: Obstacle(LoweringError, "DecomposeHardswishPass")},
    ),
    "group_norm": Model(_convolved(nn.GroupNorm(2, 8), nn.ReLU()), _IMAGE),
    "instance_norm": Model(_convolved(nn.InstanceNorm2d(8), nn.ReLU()), _IMAGE),
    "pixel_shuffle": Model(
        _convolved(nn.PixelShuffle(2)),
        _IMAGE,
        obstacles=dict.fromkeys(Way, _VIEW),
    ),
    "upsample_nearest": Model(_convolved(nn.Upsample(scale_factor=2), nn.Conv2d(8, 3, 3)), _IMAGE),
    "upsample_bilinear": Model(_convolved(nn.Upsample(scale_factor=2, mode="bilinear")), _IMAGE),
    "temporal": Model(Temporal, ((1, 4, 20),)),
    "squeeze_excite": Model(Excite, _IMAGE),
    "depthwise": Model(
        lambda: nn.Sequential(
            nn.Conv2d(3, 8, 3, stride=2, padding=1),
            nn.ReLU6(),
            nn.Conv2d(8, 8, 3, padding=1, groups=8),
            nn.ReLU6(),
            nn.Conv2d(8, 6, 1),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
            nn.Linear(6, 3),
        ),
        _IMAGE,
    ),
    "unet": Model(
        _applied(
            lambda down, up, last, x: last(torch.cat((x, up(torch.relu(down(x)))), 1)),
            lambda: nn.Conv2d(3, 8, 3, stride=2, padding=1),
            lambda: nn.ConvTranspose2d(8, 3, 2, stride=2),
            lambda: nn.Conv2d(6, 2, 1),
        ),
        _IMAGE,
    ),
    "argmax": Model(_applied(lambda layer, x: layer(x).argmax(-1), lambda: nn.Linear(16, 7)), _ROWS),
    "top_of_rows": Model(_applied(lambda layer, x: tuple(layer(x).max(1)), lambda: nn.Linear(16, 7)), _ROWS),
    "cumsum": Model(_applied(lambda layer, x: layer(torch.cumsum(x, 1)), lambda: nn.Linear(16, 4)), _ROWS),
    "pad_reflect": Model(lambda: nn.Sequential(nn.ReflectionPad2d(1), nn.Conv2d(3, 4, 3)), _IMAGE),
    "pad_replicate": Model(lambda: nn.Sequential(nn.ReplicationPad2d(1), nn.Conv2d(3, 4, 3)), _IMAGE),
    "pad_constant": Model(lambda: nn.Sequential(nn.ConstantPad2d((1, 2, 0, 1), 0.5), nn.Conv2d(3, 4, 3)), _IMAGE),
    "einsum": Model(
        _applied(lambda layer, x: torch.einsum("bij,bkj->bik", layer(x), x), lambda: nn.Linear(8, 8)), ((2, 5, 8),)
    ),
    "where": Model(
        _applied(lambda layer, x: torch.where(x > 0, layer(x), x * 0.1), lambda: nn.Linear(16, 16)),
        _ROWS,
        obstacles={Way.QUANTIZED: _NO_SCALE},
    ),
    "masked": Model(
        _applied(lambda layer, x: layer(x.masked_fill(x < 0, 0.0)), lambda: nn.Linear(16, 4)),
        _ROWS,
        obstacles={Way.QUANTIZED: _NO_SCALE},
    ),
    "standardised": Model(
        _applied(
            lambda layer, x: layer((x - x.mean(-1, True)) / (x.std(-1, keepdim=True) + 1e-5)), lambda: nn.Linear(16, 4)
        ),
        _ROWS,
    ),
    "rms_norm": Model(
        _applied(lambda layer, x: layer(x * torch.rsqrt((x * x).mean(-1, True) + 1e-5)), lambda: nn.Linear(16, 4)),
        _ROWS,
    ),
    "avg_pool": Model(_convolved(nn.AvgPool2d(2), nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten()), _IMAGE),
    "split": Model(
        _applied(
            lambda layer, x: sum(part * (i + 1) for i, part in enumerate(layer(x).chunk(3, -1))),
            lambda: nn.Linear(16, 12),
        ),
        _ROWS,
    ),
    "distances": Model(
        _applied(
            lambda layer, x: torch.sqrt((layer(x).unsqueeze(1) - x[:, :3].unsqueeze(2)).pow(2).sum(-1)),
            lambda: nn.Linear(16, 5),
        ),
        _ROWS,
    ),
    "lookup": Model(_applied(lambda layer, x, at: layer(x)[:, at], lambda: nn.Linear(16, 9)), ((2, 16), (-9, 4))),
    "stack": Model(
        _applied(
            lambda a, b, x: torch.stack((a(x), b(x)), 1).tanh(), lambda: nn.Linear(16, 4), lambda: nn.Linear(16, 4)
        ),
        _ROWS,
    ),
    "shuffled": Model(
        _convolved(nn.ChannelShuffle(2), nn.Conv2d(8, 8, 1), nn.ReLU()),
        _IMAGE,
        obstacles=dict.fromkeys(Way, _VIEW),
    ),
    "gated": Model(lambda: nn.Sequential(nn.Linear(16, 12), nn.GLU(), nn.Linear(6, 4)), _ROWS),
    "rolled": Model(
        _applied(lambda layer, x: layer(torch.roll(x, 1, 1)) + torch.flip(x, (1,)), lambda: nn.Linear(16, 16)), _ROWS
    ),
}
"""The models by name."""


def _of(way: Way, names: str, *known: int | str) -> dict[tuple[str, Way], tuple[int | str, ...]]:
    return {(name, way): known for name in names.split()}


_LINEAR, _SILU = "aten::linear.out", "aten::silu.out"
KNOWN: Mapping[tuple[str, Way], tuple[int | str, ...]] = {
    **_of(
        Way.FLOAT,
        "mlp ecg gru transformer embedding argmax lstm rnn layer_norm attention softplus top_of_rows "
        "cumsum einsum where masked standardised rms_norm split distances lookup stack gated rolled",
        _LINEAR,
    ),
    **_of(Way.FLOAT, "leaky_relu group_norm pad_reflect pad_replicate pad_constant", 36),
    **_of(Way.FLOAT, "squeeze_excite", 42, _LINEAR),
    **_of(Way.FLOAT, "silu", _SILU),
    **_of(Way.FLOAT, "prelu", 42),
    **_of(Way.FLOAT, "depthwise", 43, _LINEAR),
    **_of(Way.FLOAT, "unet", 22),
    **_of(Way.QUANTIZED, "gru lstm rnn", _LINEAR),
    **_of(Way.QUANTIZED, "group_norm pad_reflect pad_replicate", 36),
    **_of(Way.QUANTIZED, "prelu", 42),
    **_of(Way.QUANTIZED, "unet", 22),
}
"""The causes for which MODELS would fail on ExecuTorch: known bugs by number, and operators that it lacks."""
