"""Small modules that together use every portable operator of the runners, with arguments that tell them apart.

Their sizes are drawn from a seed. A module has many outputs, so that one lowering is enough for a family.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.utils._pytree import tree_leaves

from cortex_m_hil import Exported, export, flow
from cortex_m_hil.checks.signatures.refused_arguments import operator_misfits
from cortex_m_hil.diagnose.compare_runtimes import compare_runtimes
from cortex_m_hil.errors import ProgramRejected
from cortex_m_hil.flow.dut import Dut
from cortex_m_hil.lowering import Layout
from cortex_m_hil.program.lifetimes import Lifetimes
from cortex_m_hil.program.program import Program
from cortex_m_hil.program.tensor import Array
from cortex_m_hil.targets.cpu import Isa
from dim_orders import Form, Part, is_in_form, kernels, relaid, specs, up_to, without
from networks import Apply

Tensors = tuple[torch.Tensor, ...]


@dataclass(frozen=True)
class Family:
    """``exact``: ExecuTorch's kernels give the same bits; where not, their libm or order of a sum differs.

    ``layout``: images stay contiguous, as ExecuTorch's kernels need them, unless the lowering refuses that.
    ``in_executorch``: its portable library has them all.

    ``known``: bugs of ExecuTorch that it shows in that layout, and operators that ExecuTorch lacks.

    ``make`` gives module and inputs, of random sizes from torch's generator.
    """

    make: Callable[[int], tuple[nn.Module, Tensors]]
    exact: bool = True
    in_executorch: bool = True
    layout: Layout = "explicit"
    known: tuple[int | str, ...] = ()


def size(low: int = 1, high: int = 6) -> int:
    return int(torch.randint(low, high + 1, ()))


def sizes(*own: int, rank: int, low: int = 1) -> tuple[int, ...]:
    """Return the sizes that a family needs, and further dimensions behind them up to `rank`."""
    return (*own, *(size(low, 3) for _ in range(rank - len(own))))


def spread(shape: Sequence[int]) -> torch.Tensor:
    """Return numbers whose neighbours in the last dimension differ by more than 1.

    Of numbers with next to no variance ExecuTorch's kernels, and so builtin's, give another deviation than torch
    (known bug 29).
    """
    return torch.rand(tuple(shape)) + 2 * (torch.arange(shape[-1]) % 2)


def _of(function: Callable[..., Any], *inputs: torch.Tensor) -> tuple[nn.Module, Tensors]:
    return Apply(function), inputs


def _numbers(rank: int) -> tuple[nn.Module, Tensors]:
    """Return a module with the operators that are exact on floats, and its inputs."""
    x = torch.randn(sizes(size(), size(), size(), rank=rank)) * 3
    return _of(
        lambda x, y: (x.abs(), -x, torch.relu(x), functional.leaky_relu(x, 0.2), functional.hardtanh(x, -0.5, 2.0),
                      torch.sqrt(x.abs()), torch.rsqrt(x.abs()), torch.reciprocal(x), x + y, x - y, x * y,
                      x / y, torch.maximum(x, y), torch.minimum(x, y), torch.clamp(x, -1.0, 1.5), x.permute(1, 0, 2,
                      *range(3, x.dim())), x.unsqueeze(1), torch.cat((x, y), 1), torch.cat((y, x), 0)),
        x, torch.randn(x.shape),
    )  # fmt: skip


def _roundings(rank: int) -> tuple[nn.Module, Tensors]:
    """Return a module with roundings and divisions, of whole numbers and of halves (ties to even), and its inputs.

    Quotients are exact and not zero, since ExecuTorch's are not rounded, nor have its zeros ATen's sign (known bug 25).
    """
    _, _, *inner = sizes(1, 4, rank=rank)
    x = torch.cat((torch.randn(size(), 4, *inner) * 9, torch.randint(-9, 10, (2, 4, *inner)) / 2))
    y = torch.randint(1, 5, (4, *inner)) * torch.tensor((0.5, -0.5, 1.0, -1.5)).view(4, *(1 for _ in inner))
    z = torch.copysign(x.abs() + 6, x)
    return _of(
        lambda x, y, z, w: (x.ceil(), x.floor(), x.round(), x.trunc(), torch.div(z, y, rounding_mode="floor"),
                            torch.div(x, y, rounding_mode="trunc"), torch.remainder(x, y), torch.remainder(x, x + 20),
                            torch.div(z, w, rounding_mode="floor"), torch.remainder(z, w), x % 0.75, x % -2),
        x, y, z, torch.randint(1, 5, x.shape) / 2,
    )  # fmt: skip


def _functions(rank: int) -> tuple[nn.Module, Tensors]:
    x = torch.randn(sizes(size(), size(3), size(3), rank=rank)) * 4
    return _of(
        lambda x: (torch.exp(x), torch.log(x.abs()), torch.log1p(x.abs()), torch.tanh(x), torch.sigmoid(x),
                   functional.elu(x, 1.3), functional.gelu(x), functional.gelu(x, approximate="tanh"),
                   torch.pow(x, 3.0), torch.pow(x.abs(), 0.3), torch.sin(x), torch.cos(x),
                   torch.log_softmax(x, 1), torch.softmax(x, -1)), x,
    )  # fmt: skip


def _comparisons(rank: int) -> tuple[nn.Module, Tensors]:
    rows, *columns = sizes(size(), size(2), rank=rank)
    x, y, z = (torch.randint(-2, 3, shape).float() for shape in ((rows, *columns), tuple(columns), (rows, *columns)))
    return _of(
        lambda x, y, z: (x == y, x != y, x < y, x <= y, x > y, x >= y, x == 1, x != 1, x < 0.5, x <= -1, x > 1, x >= 0,
                         x == z, x != z, x < z, x <= z, x > z, x >= z, torch.where(x > y, x, y),
                         torch.where(y > 0, x, y), torch.where(x > z, z, x), torch.where(z > 0, x, z)), x, y, z,
    )  # fmt: skip


def _truths(rank: int) -> tuple[nn.Module, Tensors]:
    rows, columns, *inner = sizes(size(2), size(2), rank=rank)
    x, y, z = (
        torch.rand(rows, columns, *inner) < 0.4,
        torch.rand(size(1, 1), 1, *inner) < 0.5,
        torch.rand(rows, columns, *inner) < 0.5,
    )
    return _of(
        lambda x, y, z: (torch.logical_and(x, y), torch.logical_or(x, y), torch.logical_xor(x, y), torch.logical_not(x),
                         torch.logical_and(x, z), torch.logical_or(x, z), torch.logical_xor(x, z),
                         x.any(1), x.any(0, keepdim=True), x & y, x & ~x, x | y, x ^ y, ~x, x & z, x | z, x ^ z),
        x, y, z,
    )  # fmt: skip


def _integers(rank: int) -> tuple[nn.Module, Tensors]:
    rows, columns, *inner = sizes(size(), size(2), rank=rank)
    x, z = (torch.randint(-9, 10, (rows, columns, *inner)) for _ in range(2))
    y = torch.randint(1, 10, (rows, 1, *inner)) * (torch.randint(0, 2, (rows, 1, *inner)) * 2 - 1)
    # Remainders of one sign: ExecuTorch's have the dividend's, torch's the divisor's (known bug 30).
    return _of(
        lambda x, y, z: (
            x + y, torch.sub(x, y, alpha=3), x * y, x.abs(), -x, torch.maximum(x, y), torch.minimum(x, y),
            torch.sub(x, z, alpha=3), torch.clamp(x, -2, 5), torch.fmod(x, 4), x < y, x >= y, x == 3, x > 0,
            x.abs() % 4, x.abs() % (y.abs() + 1),
            x.sum(1), x.amax(0), x.argmin(1), x & y, x | y, x ^ y, ~x, x & z, x | z, x ^ z,
            *(torch.div(x, y, rounding_mode=mode) for mode in ("floor", "trunc"))),
        x, y, z,
    )  # fmt: skip


def _views(rank: int) -> tuple[nn.Module, Tensors]:
    rows, columns, *inner = sizes(size(3), size(4, 8), rank=rank)
    x, y = torch.randn(rows, columns, *inner), torch.randn(1, rows, 1, *inner)
    return _of(
        lambda x, y: (x[1:], x[:, :-1], x[:, 1::2], *x.split((1, 2, columns - 3), 1), *x.split((2, rows - 2), 0),
                      y.squeeze(0) + x, y.squeeze((0, 2)), y.expand(3, rows, 2, *inner), torch.flip(x, (1,)),
                      torch.flip(x, (0, 1)), functional.pad(x, (1, 2)), functional.pad(x, (0, 1, 2, 0), value=0.5),
                      torch.as_strided(x, (2, 3), (1, 2), 1), torch.stack((x, x * 2), 1), x[1], x[:, 2],
                      y.expand(2, rows, 3, *inner).reshape(2 * rows, 3, *inner), x.repeat(*(2 for _ in x.shape))), x, y,
    )  # fmt: skip


def _conversions(rank: int) -> tuple[nn.Module, Tensors]:
    """Return a module with conversions, and its inputs.

    No dimension has size 1, for which the compiler derives a dim order that is no known format.
    """
    shape = sizes(size(2), size(2), rank=rank, low=2)
    x, y = torch.randn(shape) * 5, torch.randint(-9, 10, shape)
    return _of(
        lambda x, y: ((x > 0).to(torch.float32), x.to(torch.int32), x.clone(), y.to(torch.float32),
                      (-y.abs()).to(torch.int32) % -3, x.contiguous()), x, y,
    )  # fmt: skip


def _indices(rank: int) -> tuple[nn.Module, Tensors]:
    rows, columns, *inner = sizes(size(2), size(2), 2, rank=rank)
    x, at = torch.randn(rows, columns, *inner), torch.randint(0, rows, (size(1, 4),))
    return Apply(
        lambda table, x, at: (table(at), x[at], x[:, at.clamp(max=columns - 1)], x[at, at.clamp(max=columns - 1)],
                              torch.index_select(x, 0, at),
                              torch.index_select(x, 1 - x.dim(), at.clamp(max=columns - 1))),
        nn.Embedding(rows, 5),
    ), (x, at)  # fmt: skip


def _writes(rank: int) -> tuple[nn.Module, Tensors]:
    """Return a module that writes into copies, by indices or slices, and its inputs; no element is written twice."""
    rows, columns, *inner = sizes(size(3), size(4, 8), rank=rank)
    x, row, column = (torch.randn(*shape, *inner) for shape in ((rows, columns), (columns,), (rows, 1)))
    at, along = torch.randint(0, rows, (size(1, 4),)), torch.randint(0, columns, (3,))
    across = torch.rand(rows - 1, columns, *inner).argsort(1)[:, :3]
    down = torch.rand(rows, 3, *inner).argsort(0)[: rows - 1]
    return _of(
        lambda x, row, column, at, along, across, down: (
            x.index_put((at,), row), x.index_put((at,), row, accumulate=True),
            torch.ops.aten.index_put(x, (None, along), column),
            x.index_put((at, at.clamp(max=columns - 1)), row[0]),
            x.slice_scatter(column, 1, 1, 2), x.slice_scatter(x[:, :2] * 2, 1, 0, -1, columns // 2),
            x.slice_scatter(row.unsqueeze(0), 0, 1, 2), x.gather(1, across),
            x[:, :3].gather(0, down), x.scatter(1, across[:, :1], column),
            x.scatter(0, down, x * 2), x.scatter(1, across, 0.5),
            torch.scatter(x, 0, at.view(-1, *(1 for _ in x.shape[1:])), 2.0),
            torch.ops.aten.copy(x, row), torch.ops.aten.copy(x, column), torch.ops.aten.copy(x, -x)),
        x, row, column, at, along, across, down,
    )  # fmt: skip


def _choices(rank: int) -> tuple[nn.Module, Tensors]:
    x = torch.randint(-4, 5, sizes(size(), size(2), size(2), rank=rank)).float()
    return _of(
        lambda x: (x.amax(1), x.amax((0, 2), keepdim=True), x.amin(-1), x.amin((0, 1)), x.argmax(1), x.argmax(-1, True),
                   x.argmax(), x.argmin(0), *x.max(1), *x.max(2, True), *x.min(0), *x.min(-1)), x,
    )  # fmt: skip


def _sums(rank: int) -> tuple[nn.Module, Tensors]:
    """Return a module with sums, and its inputs; not over the last dimension alone, where the wheel adds in vectors."""
    x = torch.randn(sizes(size(), size(2), size(2), rank=rank))
    return _of(
        lambda x: (x.mean(1), x.mean((0, 2), keepdim=True), x.mean(-1), x.sum((0, 1)), x.sum(0, keepdim=True),
                   x.var(1), x.var((1, 2), correction=0, keepdim=True), torch.cumsum(x, 1), torch.cumsum(x, -1)), x,
    )  # fmt: skip


def _products(rank: int) -> tuple[nn.Module, Tensors]:
    rows, inner, columns = size(), size(2, 9), size()
    x, y = torch.randn(2, rows, inner), torch.randn(2, inner, columns)
    return Apply(
        lambda x, y: (torch.bmm(x, y), torch.mm(x[1], y[0]), x.sum(-1), torch.addmm(y[0, 0], x[0], y[1]),
                      torch.addmm(torch.mm(x[0], y[0]), x[1], y[1], beta=0.5, alpha=2)),
    ), (x, y)  # fmt: skip


def _dense(rank: int) -> tuple[nn.Module, Tensors]:
    inner = size(2, 9)
    return Apply(
        lambda biased, plain, x: (biased(x), functional.silu(plain(x[0])), functional.silu(x), functional.hardswish(x),
                                  functional.hardsigmoid(x * 4)),
        nn.Linear(inner, size()), nn.Linear(inner, 3, bias=False),
    ), (torch.randn(*reversed(sizes(inner, size(), 2, rank=rank))),)  # fmt: skip


def _layers(rank: int) -> tuple[nn.Module, Tensors]:
    columns, rows, *outer = sizes(size(2, 9), size(2), size(), rank=rank)
    return Apply(
        lambda one, two, x: (one(x), two(x)), nn.LayerNorm(columns), nn.LayerNorm((rows, columns), bias=False)
    ), (spread((*outer, rows, columns)),)


def _channels(rank: int) -> tuple[nn.Module, Tensors]:
    groups, batches = size(1, 3), size(1, 2)
    channels = groups * size(1, 3)
    batch = nn.BatchNorm2d(channels)
    for tensor in (batch.running_mean, batch.running_var, batch.weight.data, batch.bias.data):
        assert tensor is not None
        tensor.copy_(torch.rand(channels) + 0.5)
    return Apply(
        lambda one, two, three, four, five, x, y, z: (one(x), two(x), three(x), four(y), five(z)),
        nn.GroupNorm(groups, channels), nn.GroupNorm(groups, channels, affine=False), batch,
        nn.InstanceNorm2d(channels), nn.InstanceNorm1d(channels, affine=True),
    ), tuple(spread((batches, channels, *(size(2) for _ in range(more)))) for more in (2, 2, 1))  # fmt: skip


def _pools(rank: int) -> tuple[nn.Module, Tensors]:
    return _of(
        lambda x: (functional.avg_pool2d(x, 2), functional.avg_pool2d(x, (3, 2), (2, 1), (1, 0)),
                   functional.avg_pool2d(x, (2, 3), (1, 2), (0, 1), count_include_pad=False),
                   functional.avg_pool2d(x, 3, 2, ceil_mode=True), functional.avg_pool2d(x, 2, divisor_override=3),
                   functional.adaptive_avg_pool2d(x, (3, 2))),
        torch.randn(size(1, 2), size(2, 4), size(4, 8), size(4, 8)),
    )  # fmt: skip


def _volumes(rank: int) -> tuple[nn.Module, Tensors]:
    x = torch.randn(size(1, 2), size(2, 3), size(4, 6), size(4, 6), size(4, 6))
    return _of(
        lambda x: (functional.avg_pool3d(x, 2), functional.avg_pool3d(x, (3, 2, 1), (2, 1, 3), (1, 0, 0)),
                   functional.avg_pool3d(x, (1, 2, 3), (1, 2, 2), (0, 1, 1), True, False),
                   functional.avg_pool3d(x, 2, divisor_override=3), functional.adaptive_avg_pool3d(x, (3, 2, 4)),
                   *functional.max_pool3d(x, (2, 3, 1), (2, 1, 1), (1, 1, 0), return_indices=True),
                   *functional.max_pool3d(x, 2, 1, 0, (1, 2, 3), return_indices=True),
                   *functional.max_pool3d(x, (3, 2, 2), (2, 3, 3), 0, 1, True, return_indices=True),
                   *functional.adaptive_max_pool3d(x, (3, 2, 4), return_indices=True),
                   *functional.adaptive_max_pool2d(x[:, 0], (3, 2), return_indices=True)), x,
    )  # fmt: skip


def _bags(rank: int) -> tuple[nn.Module, Tensors]:
    """Return a module with sums, means and maxima of rows, in bags one of which is empty, and its inputs."""
    rows, count = size(3), size(3, 8)
    kinds = [(mode, row) for mode in ("sum", "mean", "max") for row in (None, 1)]
    bag = functional.embedding_bag
    return Apply(
        lambda trained, table, at, first, factors: (
            trained(at, first), *(bag(at, table, first, mode=mode, padding_idx=row) for mode, row in kinds),
            bag(at, table, first, mode="sum", per_sample_weights=factors, include_last_offset=True)),
        nn.EmbeddingBag(rows, 3),
    ), (torch.randn(rows, size(1, 4)), torch.randint(0, rows, (count,)), torch.tensor([0, 2, 2, count]),
        torch.rand(count))  # fmt: skip


def _convolutions(rank: int) -> tuple[nn.Module, Tensors]:
    channels, out = size(2, 4), size(2, 4)
    return Apply(
        lambda one, two, three, x: (one(x), two(x), three(x), functional.max_pool2d(x, (3, 2), (2, 1), (1, 0))),
        nn.Conv2d(channels, out, (3, 2), padding=1), nn.Conv2d(channels, 2 * channels, 2, stride=2, groups=channels),
        nn.ConvTranspose2d(channels, out, 3, stride=2, bias=False),
    ), (torch.randn(size(1, 2), channels, size(4, 8), size(4, 8)),)  # fmt: skip


def _enlargements(rank: int) -> tuple[nn.Module, Tensors]:
    height, width = size(2, 6), size(2, 6)
    return _of(
        lambda x: (functional.interpolate(x, scale_factor=2), functional.interpolate(x, size=(height + 3, width - 1)),
                   functional.interpolate(x, scale_factor=(1.5, 3), mode="bilinear"),
                   functional.interpolate(x, size=(height * 2, width + 1), mode="bilinear", align_corners=True)),
        torch.randn(size(1, 2), size(2, 4), height, width),
    )  # fmt: skip


def _fills(rank: int) -> tuple[nn.Module, Tensors]:
    x = torch.randn(sizes(size(2), size(2), rank=rank))
    return _of(
        lambda x: (
            torch.full_like(x, 2.5),
            x.masked_fill(x < 0, -1.0),
            torch.arange(1, 9, 2) + 1,
            torch.full((2, 3), 1.5) + x.flatten()[0],
            torch.full((2, 3, 2, 2), 1.5),
        ),
        x,
    )


class Sum(nn.Module):
    """A state: the sum of all inputs so far."""

    sum: torch.Tensor

    def __init__(self, like: torch.Tensor) -> None:
        super().__init__()
        self.register_buffer("sum", torch.zeros_like(like))

    def forward(self, x: Any) -> Any:
        self.sum.add_(x)
        return self.sum * 2


def _states(rank: int) -> tuple[nn.Module, Tensors]:
    x = torch.randn(sizes(size(2), size(2), rank=rank))
    return Sum(x), (x,)


# Operators that ExecuTorch's portable library has not.
_OF_LAYERS = ("aten::hardsigmoid.out", "aten::hardswish.out", "aten::linear.out", "aten::silu.out")
_OF_VOLUMES = ("aten::_adaptive_avg_pool3d.out", "aten::adaptive_max_pool2d.out", "aten::adaptive_max_pool3d.out",
               "aten::avg_pool3d.out", "aten::max_pool3d_with_indices.out")  # fmt: skip
_BAGS = ("aten::_embedding_bag.out", "aten::_embedding_bag_forward_only.out")

FAMILIES = {
    "numbers": Family(_numbers),
    "roundings": Family(_roundings),
    "functions": Family(_functions, exact=False),
    "comparisons": Family(_comparisons),
    "truths": Family(_truths),
    "integers": Family(_integers),
    "views": Family(_views),
    "conversions": Family(_conversions),
    "indices": Family(_indices),
    "writes": Family(_writes),
    "choices": Family(_choices),
    "sums": Family(_sums),
    "products": Family(_products, exact=False),
    "layers": Family(_layers, exact=False),
    "channels": Family(_channels),
    "dense": Family(_dense, exact=False, in_executorch=False, known=_OF_LAYERS),
    "convolutions": Family(_convolutions, layout="channels_last", known=(43,)),
    "pools": Family(_pools, layout="channels_last"),
    "volumes": Family(_volumes, in_executorch=False, known=_OF_VOLUMES),
    "bags": Family(_bags, in_executorch=False, known=_BAGS),
    "enlargements": Family(_enlargements),
    "fills": Family(_fills),
    "states": Family(_states),
}


def drawn(family: str, seed: int, form: Form = Form.CONTIGUOUS) -> Exported:
    """Return the export of a family's module; most tensors have 4 dimensions, or 5 if the seed is odd.

    In the contiguous form tensors have any number of dimensions.
    """
    torch.manual_seed(seed)
    rank = {Form.CONTIGUOUS: 0, Form.EXPORTED: 4}.get(form, 4 + seed % 2)
    module, inputs = FAMILIES[family].make(rank)
    layout = "channels_last" if form is Form.EXPORTED else FAMILIES[family].layout
    return export(module.eval(), inputs, layout=layout)


@lru_cache(maxsize=2 * len(FAMILIES))
def _lowered(family: str, seed: int, form: Form, isa: Isa) -> tuple[Program, tuple[Array, ...]]:
    """Return the lowered program, and the outputs that torch computes."""
    exported = drawn(family, seed, form)
    expected = tuple(one.detach().numpy() for one in tree_leaves(exported.outputs))
    return flow.lower(exported, isa=isa, quantize=False), expected


ULPS = 8 * float(np.finfo(np.float32).eps)
"""The tolerance for two libm's, which differ by a unit in the last place, and for sums of ten items in two orders."""


_FEW_DIMENSIONS = ("aten::arange.start_out", "aten::scalar_tensor.out")
_TWO_OR_THREE = (*_FEW_DIMENSIONS, *_BAGS, "aten::addmm.out", "aten::as_strided_copy.out", "aten::bmm.out",
                 "aten::embedding.out", "aten::mm.out")  # fmt: skip
_VIEWS = ("aten::squeeze_copy.dims_out", "aten::unsqueeze_copy.out")
NOT_IN_FORM: Mapping[Form, Mapping[str, tuple[str, ...]]] = {
    Form.CHANNELS_LAST: {"no tensor of four dimensions": _TWO_OR_THREE, "a view of contiguous tensors": _VIEWS},
    Form.MIXED: {
        "no tensor of four dimensions": _TWO_OR_THREE,
        "a view of contiguous tensors": _VIEWS,
        "one tensor": ("aten::full.out",),
    },
    Form.ANY: {"one dimension at most": _FEW_DIMENSIONS, "a view of contiguous tensors": _VIEWS},
}
"""Operators that no family shows in a form, and why; views are kernels in the form `exported`."""

_CONTIGUOUS_ONLY = ("aten::linear.out", "aten::native_layer_norm.out", "aten::view_copy.out")
_TABLES_AND_PRODUCTS = ("aten::addmm.out", "aten::bmm.out", "aten::embedding.out", "aten::mm.out")
_LIKE_INPUT = ("aten::_native_batch_norm_legit.no_stats_out", "aten::_native_batch_norm_legit_no_training.out",
               "aten::native_group_norm.out")  # fmt: skip
REFUSED: Mapping[Form, Mapping[str, tuple[str, ...]]] = {
    Form.CHANNELS_LAST: {"contiguous": _CONTIGUOUS_ONLY, "its views are contiguous": _LIKE_INPUT[:1]},
    Form.MIXED: {"contiguous": _CONTIGUOUS_ONLY, "out like input": _LIKE_INPUT},
    Form.ANY: {
        "contiguous": (*_CONTIGUOUS_ONLY, *_BAGS, *_TABLES_AND_PRODUCTS),
        "out like input": _LIKE_INPUT,
    },
}
"""Operators that `builtin` refuses, and what it takes instead; so does ExecuTorch, where it has them."""

BY_TORCH_ALONE = (
    "aten::_adaptive_avg_pool2d.out", "aten::_adaptive_avg_pool3d.out", "aten::_log_softmax.out",
    "aten::_native_batch_norm_legit_no_training.out", "aten::_softmax.out", "aten::adaptive_max_pool2d.out",
    "aten::adaptive_max_pool3d.out", "aten::amax.out", "aten::amin.out", "aten::any.out", "aten::argmax.out",
    "aten::argmin.out", "aten::avg_pool2d.out", "aten::avg_pool3d.out", "aten::constant_pad_nd.out", "aten::copy_",
    "aten::cumsum.out", "aten::expand_copy.out", "aten::flip.out", "aten::full_like.out", "aten::gather.out",
    "aten::hardsigmoid.out", "aten::hardswish.out", "aten::index.Tensor_out", "aten::index_put.out",
    "aten::index_select.out", "aten::max.dim_max", "aten::max_pool3d_with_indices.out", "aten::mean.out",
    "aten::min.dim_min", "aten::native_group_norm.out", "aten::permute_copy.out", "aten::repeat.out",
    "aten::scatter.src_out", "aten::scatter.value_out", "aten::select_copy.int_out", "aten::silu.out",
    "aten::slice_copy.Tensor_out", "aten::slice_scatter.out", "aten::split_with_sizes_copy.out",
    "aten::sum.IntList_out",
)  # fmt: skip
"""Operators that only torch computes right on channels-last tensors: ExecuTorch's kernels refuse such tensors, compute
as if they were contiguous (known bug 36), or are missing; and state of theirs stays contiguous."""


_DRAWS = {Form.CHANNELS_LAST: 1, Form.MIXED: 4, Form.ANY: 2}
"""Cases for one lowering: so many dim orders that operators of two tensors meet each combination."""


@dataclass(frozen=True)
class Compared:
    """The operators with tensors of a form that `builtin` computed, and those that ExecuTorch computed as well."""

    met: frozenset[str] = frozenset()
    computed: frozenset[str] = frozenset()
    by_both: frozenset[str] = frozenset()

    def __or__(self, other: Compared) -> Compared:
        return Compared(self.met | other.met, self.computed | other.computed, self.by_both | other.by_both)


def agree(builtin: Dut, executorch: Dut, family: str, seed: int, form: Form = Form.CONTIGUOUS) -> Compared:
    """Compare the outputs of `builtin` with torch's, and with those of ExecuTorch's kernels.

    Raise AssertionError where `builtin` differs from torch, or from ExecuTorch's kernels after any instruction that by
    lint's table they take; or does not refuse what lint says that it refuses.
    """
    as_lowered = form in (Form.CONTIGUOUS, Form.EXPORTED)
    base = form if as_lowered else Form.CHANNELS_LAST  # one lowering for the three forms that are laid out anew
    program, expected = _lowered(family, seed, base, builtin.target.isa)
    if as_lowered:
        return _agree_on(builtin, executorch, family, program, form, expected)
    torch.manual_seed(seed)
    found = Compared()
    for draw in range(_DRAWS[form]):
        laid = relaid(program, form, draw)
        found |= _agree_on(builtin, executorch, family, laid, form, expected)
    return found


def _agree_on(
    builtin: Dut, executorch: Dut, family: str, program: Program, form: Form, expected: tuple[Array, ...]
) -> Compared:
    views = _wrong_views(program)
    ours, theirs = (_refused(program, dut.resolved.runtime) for dut in (builtin, executorch))
    mine = without(program, ours, views)
    outputs = flow.run(builtin, mine.program, linted=False, complete=False).outputs
    for at in mine.outputs:
        np.testing.assert_allclose(outputs[at].array(), expected[at], rtol=1e-5, atol=1e-5)
    for instruction in ours:
        part = up_to(program, instruction)
        if set(part.instructions) & ours == {instruction}:  # the refusal is of this instruction
            with pytest.raises(ProgramRejected) as caught:
                flow.run(builtin, part.program, linted=False, complete=False)
            assert (caught.value.operator or "").startswith(program.file.instructions[instruction].operator)
    if FAMILIES[family].in_executorch:
        assert ours <= theirs, "refused, and ExecuTorch computes it"
    both = without(program, ours | theirs, views)
    if FAMILIES[family].in_executorch:
        _same(builtin, executorch, both, exact=FAMILIES[family].exact)
    met = [one for one in kernels(program.file) if is_in_form(specs(program.file, one), form)]
    return Compared(
        frozenset(one.operator for one in met),
        frozenset(one.operator for one in met if one.index in mine.instructions),
        frozenset(one.operator for one in met if one.index in both.instructions and FAMILIES[family].in_executorch),
    )


def _wrong_views(program: Program) -> set[int]:
    """Return the values that no runtime computes right: known bug 24."""
    values = program.file.values
    pairs = ((view.value, values[view.base].spec, values[view.value].spec) for view in Lifetimes(program.file).views)
    return {view for view, base, spec in pairs if base is not None and spec is not None and not base.reads_as(spec)}


def _refused(program: Program, runtime: str) -> set[int]:
    return {one.index for one in kernels(program.file) if list(operator_misfits(program.file, one, runtime))}


def _same(builtin: Dut, executorch: Dut, part: Part, *, exact: bool) -> None:
    if exact:
        found = [
            one for one in compare_runtimes(builtin, executorch, part.program, part.program.inputs) if one is not None
        ]
        assert found == [], "\n".join(f"{one.operator}: {one}" for one in found)
        return
    ours, theirs = (flow.run(one, part.program, linted=False, complete=False).outputs for one in (builtin, executorch))
    for at in part.outputs:
        np.testing.assert_allclose(ours[at].array(), theirs[at].array(), rtol=ULPS, atol=ULPS)
