"""MobileNetV2, MobileNetV3-small and a small STResNet, with random weights whose outputs are informative.

The MobileNets are as published: Sandler et al. 2018 (arXiv 1801.04381, table 2), Howard et al. 2019 (arXiv 1905.02244,
table 2). The numbers of parameters are those of torchvision's reference implementations. `STResNet` is a small member
of a published family; its docstring lists the deviations. `Llama` is ExecuTorch's, made small.
"""

from __future__ import annotations

from typing import Any, Final

import torch
from torch import nn

Inputs = tuple[torch.Tensor, ...]
IMAGE: Final = (1, 3, 224, 224)


def make_divisible(channels: float, divisor: int = 8) -> int:
    """Return the nearest multiple of `divisor` that is at least 0.9 of the number, as both papers' code does."""
    rounded = max(divisor, int(channels + divisor / 2) // divisor * divisor)
    return rounded if rounded >= 0.9 * channels else rounded + divisor


def _convolution(
    inputs: int, outputs: int, kernel: int, stride: int = 1, groups: int = 1, activation: type[nn.Module] | None = None
) -> list[nn.Module]:
    layers: list[nn.Module] = [
        nn.Conv2d(inputs, outputs, kernel, stride, padding=kernel // 2, groups=groups, bias=False),
        nn.BatchNorm2d(outputs, eps=1e-3),
    ]
    return [*layers, activation()] if activation else layers


class _SqueezeExcite(nn.Module):
    """A gate that scales each channel by a function of the means of all channels."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        squeezed = make_divisible(channels / 4)
        self.gate = nn.Sequential(
            nn.AdaptiveAvgPool2d(1),
            nn.Conv2d(channels, squeezed, 1),
            nn.ReLU(),
            nn.Conv2d(squeezed, channels, 1),
            nn.Hardsigmoid(),
        )

    def forward(self, x: Any) -> Any:
        return x * self.gate(x)


class _InvertedResidual(nn.Module):
    """A block that expands channels, filters each, and projects; added to its input where the shapes are equal."""

    def __init__(
        self,
        inputs: int,
        expanded: int,
        outputs: int,
        *,
        kernel: int,
        stride: int,
        activation: type[nn.Module],
        squeeze: bool = False,
    ) -> None:
        super().__init__()
        layers = _convolution(inputs, expanded, 1, activation=activation) if expanded != inputs else []
        layers += _convolution(expanded, expanded, kernel, stride, groups=expanded, activation=activation)
        if squeeze:
            layers.append(_SqueezeExcite(expanded))
        self.layers = nn.Sequential(*layers, *_convolution(expanded, outputs, 1))
        self.is_residual = stride == 1 and inputs == outputs

    def forward(self, x: Any) -> Any:
        return x + self.layers(x) if self.is_residual else self.layers(x)


class MobileNetV2(nn.Module):
    """MobileNetV2, from (1, 3, 224, 224) to (1, 1000), with 3,504,872 parameters."""

    # Columns: expansion, output channels, number of blocks, stride of the first block.
    STAGES: Final = (
        (1, 16, 1, 1),
        (6, 24, 2, 2),
        (6, 32, 3, 2),
        (6, 64, 4, 2),
        (6, 96, 3, 1),
        (6, 160, 3, 2),
        (6, 320, 1, 1),
    )

    def __init__(self) -> None:
        super().__init__()
        layers, channels = _convolution(3, 32, 3, 2, activation=nn.ReLU6), 32
        for expansion, outputs, count, first_stride in self.STAGES:
            for index in range(count):
                stride = 1 if index else first_stride
                block = _InvertedResidual(
                    channels, channels * expansion, outputs, kernel=3, stride=stride, activation=nn.ReLU6
                )
                layers, channels = [*layers, block], outputs
        layers += _convolution(channels, 1280, 1, activation=nn.ReLU6)
        self.features = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten())
        self.classifier = nn.Sequential(nn.Dropout(0.2), nn.Linear(1280, 1000))

    def forward(self, x: Any) -> Any:
        return self.classifier(self.features(x))


class MobileNetV3Small(nn.Module):
    """MobileNetV3-small, from (1, 3, 224, 224) to (1, 1000), with 2,542,856 parameters."""

    # Columns: kernel, expanded channels, output channels, squeeze and excite, activation, stride.
    BLOCKS: Final = (
        (3, 16, 16, True, nn.ReLU, 2),
        (3, 72, 24, False, nn.ReLU, 2),
        (3, 88, 24, False, nn.ReLU, 1),
        (5, 96, 40, True, nn.Hardswish, 2),
        (5, 240, 40, True, nn.Hardswish, 1),
        (5, 240, 40, True, nn.Hardswish, 1),
        (5, 120, 48, True, nn.Hardswish, 1),
        (5, 144, 48, True, nn.Hardswish, 1),
        (5, 288, 96, True, nn.Hardswish, 2),
        (5, 576, 96, True, nn.Hardswish, 1),
        (5, 576, 96, True, nn.Hardswish, 1),
    )

    def __init__(self) -> None:
        super().__init__()
        layers, channels = _convolution(3, 16, 3, 2, activation=nn.Hardswish), 16
        for kernel, expanded, outputs, squeeze, activation, stride in self.BLOCKS:
            block = _InvertedResidual(
                channels, expanded, outputs, kernel=kernel, stride=stride, activation=activation, squeeze=squeeze
            )
            layers, channels = [*layers, block], outputs
        layers += _convolution(channels, 576, 1, activation=nn.Hardswish)
        self.features = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten())
        self.classifier = nn.Sequential(nn.Linear(576, 1024), nn.Hardswish(), nn.Dropout(0.2), nn.Linear(1024, 1000))

    def forward(self, x: Any) -> Any:
        return self.classifier(self.features(x))


class _FactorisedResidual(nn.Module):
    """A basic block of ResNet, each of whose 3 x 3 convolutions is three of lower rank."""

    def __init__(self, inputs: int, outputs: int, rank: int, stride: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            *_factorised(inputs, outputs, rank, stride), nn.ReLU(), *_factorised(outputs, outputs, rank)
        )
        self.shortcut = nn.Sequential(*(_convolution(inputs, outputs, 1, stride) if inputs != outputs else ()))
        self.activation = nn.ReLU()
        self.is_residual = True

    def forward(self, x: Any) -> Any:
        return self.activation(self.shortcut(x) + self.layers(x))


def _factorised(inputs: int, outputs: int, rank: int, stride: int = 1) -> list[nn.Module]:
    """Return Tucker's factors of a 3 x 3 convolution: to fewer channels, 3 x 3 on these, and back."""
    return [
        nn.Conv2d(inputs, rank, 1, bias=False),
        nn.Conv2d(rank, rank, 3, stride, padding=1, bias=False),
        nn.Conv2d(rank, outputs, 1, bias=False),
        nn.BatchNorm2d(outputs, eps=1e-3),
    ]


class STResNet(nn.Module):
    """STResNet, from (1, 3, 64, 64) to (1, 10): a ResNet with factorised convolutions.

    The family: arXiv 2601.05364, 2511.11716 (its search for the ranks). Deviations: the ranks, found there by a search,
    are a quarter of the outputs here; widths, image and classes are small ones; one block a stage, so ResNet-10.
    """

    WIDTHS: Final = (16, 32, 64, 128)

    def __init__(self) -> None:
        super().__init__()
        layers, channels = [*_convolution(3, 16, 3, 2, activation=nn.ReLU), nn.MaxPool2d(3, 2, 1)], 16
        for index, outputs in enumerate(self.WIDTHS):
            block = _FactorisedResidual(channels, outputs, max(8, outputs // 4), stride=2 if index else 1)
            layers, channels = [*layers, block], outputs
        self.features = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten())
        self.classifier = nn.Linear(channels, 10)

    def forward(self, x: Any) -> Any:
        return self.classifier(self.features(x))


def with_statistics(network: nn.Module, shape: tuple[int, ...], images: int = 8) -> nn.Module:
    """Return the network for inference, with statistics of random images in its batch norms: else its outputs vanish.

    The results of residual blocks are made small compared with their inputs, as in a trained network; otherwise the
    rounding errors of 50 layers exceed the outputs. Weights and images depend on the state of torch's generator.
    """
    norms = [module for module in network.modules() if isinstance(module, nn.BatchNorm2d)]
    residual = (_InvertedResidual, _FactorisedResidual)
    blocks = [module for module in network.modules() if isinstance(module, residual) and module.is_residual]
    added = [block.layers[-1] for block in blocks]
    for norm in norms:
        norm.momentum = None  # the mean of all batches, not a moving average
        nn.init.uniform_(norm.weight, *((0.2, 0.4) if norm in added else (0.8, 1.2)))
        nn.init.uniform_(norm.bias, -0.2, 0.2)
    with torch.no_grad():
        network.train()(torch.randn(images, *shape[1:]))
    return network.eval()


def mobilenet_v2(image: tuple[int, ...] = IMAGE) -> tuple[nn.Module, Inputs]:
    """Return MobileNetV2 with its inputs, for `hil profile published_networks:mobilenet_v2`."""
    return with_statistics(MobileNetV2(), image), (torch.randn(image),)


def mobilenet_v3_small(image: tuple[int, ...] = IMAGE) -> tuple[nn.Module, Inputs]:
    """Return MobileNetV3-small with its inputs, for `hil profile published_networks:mobilenet_v3_small`."""
    return with_statistics(MobileNetV3Small(), image), (torch.randn(image),)


def stresnet(image: tuple[int, ...] = (1, 3, 64, 64)) -> tuple[nn.Module, Inputs]:
    """Return STResNet with its inputs, for `hil profile published_networks:stresnet`."""
    return with_statistics(STResNet(), image), (torch.randn(image),)


class Llama(nn.Module):
    """ExecuTorch's Llama, two small layers of it with a cache of keys and values: for a token of (1, 1) at a position
    of (1,), the logits of `vocabulary` tokens."""

    def __init__(self, tokens: int, vocabulary: int) -> None:
        super().__init__()
        from executorch.examples.models.llama.llama_transformer import construct_transformer
        from executorch.examples.models.llama.model_args import ModelArgs

        self.layers = construct_transformer(
            ModelArgs(
                dim=32, n_layers=2, n_heads=4, n_kv_heads=2, hidden_dim=64, vocab_size=vocabulary, max_batch_size=1,
                max_seq_len=tokens, max_context_len=tokens, use_kv_cache=True, enable_dynamic_shape=False,
            )
        )  # fmt: skip
        with torch.no_grad():
            for parameter in self.parameters():
                parameter.copy_(torch.randn_like(parameter) * 0.3)

    def forward(self, token: Any, position: Any) -> Any:
        return self.layers(token, {"input_pos": position})


def llama(tokens: int = 8, vocabulary: int = 64) -> tuple[nn.Module, Inputs]:
    """Return Llama with its first inputs."""
    return Llama(tokens, vocabulary).eval(), (torch.randint(0, vocabulary, (1, 1)), torch.tensor([0]))
