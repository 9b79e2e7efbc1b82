"""The workarounds that lint names for known bugs, applied: each module is lowered, and lint accepts it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

import torch
from torch import nn
from torch.nn import functional

from known_bugs.bugs import BUGS, FILE_ONLY, GROUPED, Shown, module
from known_bugs.modules import behind_a_sigmoid, chosen, nearly_all_bias, sample
from known_bugs.showing import Setup
from networks import Apply


@dataclass(frozen=True)
class Step:
    """A step of a hint, by its ``words``, and the module that follows it; ``same``: both compute the same."""

    words: str
    setup: Setup
    same: bool = True


def foreseen() -> list[tuple[str, Shown]]:
    """Return the bugs that lint finds from the file alone, each by a key: its last reference, and the operator."""
    return [
        (f"{bug.upstream[-1]} {shown.caught.operator}", shown)
        for bug in BUGS
        for shown in bug.shown
        if not shown.wrong.runs and shown.caught.operator
    ]


def _wider(kernel: int, stride: tuple[int, int], padding: int, channels: int = 3) -> Setup:
    """Return the convolution of `transposed` without padding, and with a kernel of at least its stride."""

    def make() -> nn.Module:
        given = nn.ConvTranspose2d(channels, 4, kernel, stride=stride, padding=padding)
        size = [max(kernel, one) for one in stride]
        made = nn.ConvTranspose2d(channels, 4, size, stride=stride)  # type: ignore[arg-type]
        with torch.no_grad():
            made.weight.zero_()
            made.weight[:, :, :kernel, :kernel] = given.weight
            made.bias.copy_(given.bias)  # type: ignore[union-attr, arg-type]
        rows, columns = (slice(padding, -(one - kernel if one > kernel else padding) or None) for one in size)
        return Apply(lambda layer, x: layer(x).contiguous()[:, :, rows, columns], made)

    return replace(FILE_ONLY, network=sample(make, (1, channels, 4, 9)))


def _filled_up(given: nn.Conv2d, rows: int, columns: int) -> nn.Module:
    """Return the layer with so many rows and columns of zeros on each side of the kernel, and of padding."""
    theirs: Any = given.padding
    padding: Any = [one + more for one, more in zip(theirs, (rows, columns), strict=True)]
    size: Any = [one + 2 * more for one, more in zip(given.kernel_size, (rows, columns), strict=True)]
    stride: Any = given.stride
    made = nn.Conv2d(given.in_channels, given.out_channels, size, stride=stride, padding=padding)
    with torch.no_grad():
        made.weight.copy_(functional.pad(given.weight, (columns, columns, rows, rows)))
        made.bias.copy_(given.bias)  # type: ignore[union-attr, arg-type]
    return made


def _dense(given: nn.Conv2d) -> nn.Module:
    """Return a convolution of one group that computes what one of a channel a group does."""
    made = nn.Conv2d(given.in_channels, given.out_channels, 2)
    with torch.no_grad():
        made.weight.zero_()
        for number, kernel in enumerate(given.weight):
            made.weight[number, number * given.groups // given.out_channels] = kernel[0]
        made.bias.copy_(given.bias)  # type: ignore[union-attr, arg-type]
    return made


class Least(nn.Module):
    """A module that returns the smaller of the input and a constant of its own."""

    bound: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.bound: torch.Tensor
        self.register_buffer("bound", torch.full((3,), 0.5))

    def forward(self, x: Any) -> Any:
        return torch.minimum(x, self.bound)


class Positive(nn.Module):
    """A module that returns what is above zero, by a constant of its own."""

    zero: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("zero", torch.zeros(1))

    def forward(self, x: Any) -> Any:
        return torch.maximum(x, self.zero)


def _hardswish() -> nn.Module:
    layer = nn.Linear(8, 8, bias=False)
    with torch.no_grad():
        layer.weight *= 1e-3
    return nn.Sequential(layer, Apply(lambda x: x * functional.relu6(x + 3) / 6))


class Hardswish(nn.Module):
    """A hardswish of images whose numbers are buffers with one item a channel."""

    three: torch.Tensor
    sixth: torch.Tensor

    def __init__(self, channels: int = 8) -> None:
        super().__init__()
        self.register_buffer("three", torch.full((1, channels, 1, 1), 3.0))
        self.register_buffer("sixth", torch.full((1, channels, 1, 1), 1 / 6))

    def forward(self, x: Any) -> Any:
        return x * (functional.relu6(x + self.three) * self.sixth)


_CONTIGUOUS: Final = "x.contiguous() before the operator"

STEPS: Final[Mapping[str, Step]] = {
    "known bug 1 quantized_transpose_conv2d": Step("a kernel of at least the stride's size", _wider(1, (1, 2), 0)),
    "known bug 2 quantized_transpose_conv2d": Step("padding=0", _wider(3, (2, 2), 1)),
    "known bug 21 quantized_transpose_conv2d": Step("a kernel of at least the stride's size", _wider(1, (2, 1), 0)),
    "known bug 44 quantized_transpose_conv2d": Step("padding=0", _wider(1, (1, 1), 1, channels=20)),
    "known bug 45 softmax": Step(
        "torch.softmax(x.flatten(1), 1)",
        module(lambda: Apply(lambda x: torch.softmax(x.flatten(1), 1).reshape(x.shape)), (2, 8, 1, 1)),
    ),
    "known bug 46 minimum": Step(
        "torch.minimum(x, y.expand(x.shape))",
        module(
            lambda: Apply(lambda x, y: torch.minimum(x, y.expand(x.shape))),
            *((1, 4, 3, 3), (1, 4, 1, 1)),
            layout="explicit",
        ),
    ),
    "known bug 46 maximum": Step(
        "x.flatten(1)",
        module(
            lambda: Apply(lambda x, y: torch.maximum(x.flatten(1), y.flatten(1)).reshape(x.shape)),
            *((2, 2, 4, 3, 3), (2, 2, 4, 3, 3)),
            layout="explicit",
        ),
    ),
    "pytorch/executorch#19825 quantized_avg_pool2d": Step(
        "lower the module for this target's ISA class", module(lambda: nn.AvgPool2d(2), (1, 4, 8, 8))
    ),
    "known bug 9 quantized_conv2d": Step(
        "give the convolution a bias", replace(FILE_ONLY, network=GROUPED.network), same=False
    ),
    "known bug 5 mul": Step(
        "x.reshape(x.shape) where height and width are 1",
        module(lambda: Apply(lambda x, y: x.contiguous() * y.reshape(y.shape)), (2, 8, 5, 5), (1, 8, 1, 1)),
    ),
    "known bug 6 max_pool2d_with_indices": Step(
        "x.reshape(x.shape) before the operator",
        module(
            lambda: Apply(lambda pool, x: pool(x.reshape(x.shape)), nn.MaxPool2d(3, 2, 1, ceil_mode=True)),
            (1, 1, 4, 4),
        ),
    ),
    "known bug 7 minimum": Step(
        _CONTIGUOUS,
        module(lambda: Apply(lambda x, y: torch.minimum(x.contiguous(), y.contiguous())), (1, 2, 3, 4), (1, 2, 3, 4)),
    ),
    "known bug 7 transpose": Step(
        _CONTIGUOUS, module(lambda: Apply(lambda x: x.contiguous().permute(0, 3, 1, 2)), (2, 3, 4, 5))
    ),
    "known bug 10 quantized_depthwise_conv2d": Step(
        "a kernel filled up with zeros to 3×3, and padding=1",
        module(lambda: _filled_up(nn.Conv2d(1, 16, 1), 1, 1), (1, 1, 6, 6)),
    ),
    "known bug 12 convolution": Step(
        "put it behind the cat, or behind each input",
        module(
            lambda: Apply(
                lambda a, b, x: functional.hardtanh(torch.cat((a(x), b(x)), 0)), nn.Conv2d(3, 4, 1), nn.Conv2d(3, 4, 1)
            ),
            (1, 3, 5, 5),
        ),
        same=False,
    ),
    "known bug 13 minimum": Step("keep it in a registered buffer", module(Least, (2, 3))),
    "known bug 16 relu": Step(
        "torch.maximum(x, self.zero)", module(lambda: nn.Sequential(nn.Linear(8, 8), nn.ReLU(), Positive()), (3, 8))
    ),
    "known bug 20 quantized_mul": Step("x * torch.nn.functional.relu6(x + 3) / 6", module(_hardswish, (3, 8))),
    "known bug 22 cat": Step(
        _CONTIGUOUS,
        module(lambda: Apply(lambda x, y: torch.cat((x.contiguous(), y.contiguous()), 1)), (2, 3, 4, 5), (2, 3, 4, 5)),
    ),
    "known bug 24 dequantize_per_tensor": Step(
        'layout="explicit"',
        module(lambda: nn.Sequential(nn.Conv2d(3, 8, 1), nn.ChannelShuffle(2)), (2, 3, 4, 5), layout="explicit"),
    ),
    "known bug 26 amax": Step("x.amax(dim)", module(lambda: Apply(lambda x: x.amax(1)), (2, 3, 4))),
    "known bug 31 copy": Step(
        "torch.cat((x[..., -1:], x, x[..., :1]), -1)",
        module(
            lambda: Apply(lambda layer, x: layer(torch.cat((x[..., -1:], x, x[..., :1]), -1)), nn.Linear(12, 4)),
            (4, 3, 10),
        ),
    ),
    "known bug 34 quantized_linear": Step(
        "scale it up", replace(FILE_ONLY, network=sample(nearly_all_bias, (3, 8))), same=False
    ),
    "known bug 35 max_pool2d_with_indices": Step(
        "pad the image before the pool",
        module(
            lambda: Apply(lambda x: functional.max_pool2d(functional.pad(x, (1, 1, 1, 1), value=-4.0), 2, 1, 0, 6)),
            (1, 2, 5, 5),
        ),
        same=False,
    ),
    "known bug 36 flip": Step(
        _CONTIGUOUS, module(lambda: Apply(lambda x: x.contiguous().flip(2)), (2, 3, 4, 5), quantize=False)
    ),
    "known bug 37 _softmax": Step(
        _CONTIGUOUS,
        module(lambda: Apply(lambda x: torch.softmax(x.contiguous(), 3)), (2, 3, 4, 5), quantize=False),
    ),
    "known bug 38 _clone_dim_order": Step(
        "x.reshape(x.shape) before the copy",
        module(lambda: Apply(lambda x: x.reshape(x.shape).clone()), (2, 1, 4, 5), quantize=False),
    ),
    "known bug 39 quantized_conv2d": Step(
        "a kernel with a row of zeros above and below",
        module(lambda: _filled_up(nn.Conv2d(4, 3, (1, 3), stride=(1, 2)), 1, 0), (1, 4, 1, 8)),
    ),
    "known bug 41 add": Step("torch.where in place of torch.cond", replace(FILE_ONLY, network=chosen), same=False),
    "known bug 42 minimum": Step(
        "x * (relu6(x + three) * sixth)",
        replace(FILE_ONLY, network=sample(lambda: behind_a_sigmoid(Hardswish), (1, 3, 8, 8))),
    ),
    "known bug 43 convolution": Step(
        "groups=1 with a kernel that is zero for the other channels",
        module(lambda: _dense(nn.Conv2d(2, 4, 2, groups=2)), (2, 2, 4, 6), quantize=False),
    ),
}
