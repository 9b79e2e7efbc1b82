"""Small modules that together use every portable operator of the runners, with arguments that tell them apart.

Their sizes are drawn from a seed. A module has many outputs, so that one lowering is enough for a family.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from cortex_m_hil import Exported, export, flow
from cortex_m_hil.diagnose.runtimes import compare_runtimes
from cortex_m_hil.flow.dut import Dut
from cortex_m_hil.lowering import Layout
from networks import Apply

Tensors = tuple[torch.Tensor, ...]


@dataclass(frozen=True)
class Family:
    """``exact``: ExecuTorch's kernels give the same bits; where not, their libm or order of a sum differs.

    ``layout``: images stay contiguous, as ExecuTorch's kernels need them, unless the lowering refuses that.
    ``in_executorch``: its portable library has them all, which leaves linear and silu to other libraries.

    ``make`` gives module and inputs, of random sizes from torch's generator.
    """

    make: Callable[[], tuple[nn.Module, Tensors]]
    exact: bool = True
    in_executorch: bool = True
    layout: Layout = "explicit"


def size(low: int = 1, high: int = 6) -> int:
    return int(torch.randint(low, high + 1, ()))


def _of(function: Callable[..., Any], *inputs: torch.Tensor) -> tuple[nn.Module, Tensors]:
    return Apply(function), inputs


def _numbers() -> tuple[nn.Module, Tensors]:
    """What is exact on floats."""
    x = torch.randn(size(), size(), size()) * 3
    return _of(
        lambda x: (x.abs(), -x, torch.relu(x), functional.leaky_relu(x, 0.2), functional.hardtanh(x, -0.5, 2.0),
                   torch.sqrt(x.abs()), torch.rsqrt(x.abs() + 0.1), torch.reciprocal(x)), x,
    )  # fmt: skip


def _roundings() -> tuple[nn.Module, Tensors]:
    """Of whole numbers and halves too, where a tie goes to the even one; and divisions whose quotients are exact and
    not zero, since ExecuTorch's are not rounded, nor have its zeros ATen's sign (find 25)."""
    x = torch.cat((torch.randn(size(), 4) * 9, torch.randint(-9, 10, (2, 4)) / 2))
    y = torch.randint(1, 5, (4,)) * torch.tensor((0.5, -0.5, 1.0, -1.5))
    return _of(
        lambda x, y, z: (x.ceil(), x.floor(), x.round(), x.trunc(), torch.div(z, y, rounding_mode="floor"),
                      torch.div(x, y, rounding_mode="trunc"), torch.remainder(x, y),
                      torch.remainder(x, x + 20), x % 0.75, x % -2),
        x, y, torch.copysign(x.abs() + 6, x),
    )  # fmt: skip


def _functions() -> tuple[nn.Module, Tensors]:
    x = torch.randn(size(), size(3), size(3)) * 4
    return _of(
        lambda x: (torch.exp(x), torch.log(x.abs() + 0.01), torch.log1p(x.abs()), torch.tanh(x), torch.sigmoid(x),
                   functional.elu(x, 1.3), functional.gelu(x), functional.gelu(x, approximate="tanh"),
                   torch.pow(x, 3.0), torch.pow(x.abs(), 0.3), torch.sin(x), torch.cos(x * 9),
                   torch.log_softmax(x, 1), torch.softmax(x, -1)), x,
    )  # fmt: skip


def _comparisons() -> tuple[nn.Module, Tensors]:
    rows, columns = size(), size(2)
    x, y = torch.randint(-2, 3, (rows, columns)).float(), torch.randint(-2, 3, (columns,)).float()
    return _of(
        lambda x, y: (x == y, x != y, x < y, x <= y, x > y, x >= y, x == 1, x != 1, x < 0.5, x <= -1, x > 1, x >= 0,
                      torch.where(x > y, x, y), torch.where(y > 0, x, y)), x, y,
    )  # fmt: skip


def _truths() -> tuple[nn.Module, Tensors]:
    x, y = torch.rand(size(2), size(2)) < 0.4, torch.rand(size(1, 1), 1) < 0.5
    return _of(
        lambda x, y: (torch.logical_and(x, y), torch.logical_or(x, y), torch.logical_xor(x, y), torch.logical_not(x),
                      x.any(1), x.any(0, keepdim=True), x & y, x & ~x, x | y, x ^ y, ~x), x, y,
    )  # fmt: skip


def _integers() -> tuple[nn.Module, Tensors]:
    rows, columns = size(), size(2)
    x, y = torch.randint(-9, 10, (rows, columns)), torch.randint(-9, 10, (rows, 1))
    # Remainders of one sign: ExecuTorch's have the dividend's, torch's the divisor's (find 30).
    return _of(
        lambda x, y: (x + y, torch.sub(x, y, alpha=3), x * y, x.abs(), -x, torch.maximum(x, y), torch.minimum(x, y),
                      torch.clamp(x, -2, 5), torch.fmod(x, 4), x < y, x >= y, x == 3, x > 0, x.to(torch.float32),
                      x.abs() % 4, x.abs() % (y.abs() + 1), (-x.abs()).to(torch.int32) % -3,
                      x.sum(1), x.amax(0), x.argmin(1), x & y, x | y, x ^ y, ~x,
                      *(torch.div(x, y + (y == 0), rounding_mode=mode) for mode in ("floor", "trunc"))), x, y,
    )  # fmt: skip


def _views() -> tuple[nn.Module, Tensors]:
    rows, columns = size(3), size(4, 8)
    x, y = torch.randn(rows, columns), torch.randn(1, rows, 1)
    return _of(
        lambda x, y: (x[1:], x[:, :-1], x[:, 1::2], *x.split((1, 2, columns - 3), 1), *x.split((2, rows - 2), 0),
                      y.squeeze(0) + x, y.squeeze((0, 2)), y.expand(3, rows, 2), torch.flip(x, (1,)),
                      torch.flip(x, (0, 1)), functional.pad(x, (1, 2)), functional.pad(x, (0, 1, 2, 0), value=0.5),
                      torch.as_strided(x, (2, 3), (1, 2), 1), torch.stack((x, x * 2), 1),
                      y.expand(2, rows, 3).reshape(2 * rows, 3), (x > 0).to(torch.float32), x.to(torch.int32)), x, y,
    )  # fmt: skip


def _indices() -> tuple[nn.Module, Tensors]:
    rows, columns = size(2), size(2)
    x, at = torch.randn(rows, columns, 2), torch.randint(0, rows, (size(1, 4),))
    return Apply(
        lambda table, x, at: (table(at), x[at], x[:, at.clamp(max=columns - 1)], x[at, at.clamp(max=columns - 1)],
                              torch.index_select(x, 0, at), torch.index_select(x, -2, at.clamp(max=columns - 1))),
        nn.Embedding(rows, 5),
    ), (x, at)  # fmt: skip


def _writes() -> tuple[nn.Module, Tensors]:
    """Into copies, at places that indices or slices name."""
    rows, columns = size(3), size(4, 8)
    x, row, column = torch.randn(rows, columns), torch.randn(columns), torch.randn(rows, 1)
    at = torch.randint(0, rows, (size(1, 4),))
    across = torch.randint(0, columns, (rows - 1, 3))
    return _of(
        lambda x, row, column, at, across: (
            x.index_put((at,), row), x.index_put((at,), row, accumulate=True),
            torch.ops.aten.index_put(x, (None, across[0]), column),
            x.index_put((at, at.clamp(max=columns - 1)), row[0]),
            x.slice_scatter(column, 1, 1, 2), x.slice_scatter(x[:, :2] * 2, 1, 0, -1, columns // 2),
            x.slice_scatter(row.view(1, -1), 0, 1, 2), x.gather(1, across),
            x[:, :3].gather(0, across.clamp(max=rows - 1)), x.scatter(1, across[:, :1], column),
            x.scatter(0, across.clamp(max=rows - 1), x * 2), x.scatter(1, across, 0.5),
            torch.scatter(x, 0, at.view(-1, 1), 2.0),
            torch.ops.aten.copy(x, row), torch.ops.aten.copy(x, column), torch.ops.aten.copy(x, -x)),
        x, row, column, at, across,
    )  # fmt: skip


def _choices() -> tuple[nn.Module, Tensors]:
    x = torch.randint(-4, 5, (size(), size(2), size(2))).float()
    return _of(
        lambda x: (x.amax(1), x.amax((0, 2), keepdim=True), x.amin(-1), x.amin((0, 1)), x.argmax(1), x.argmax(-1, True),
                   x.argmax(), x.argmin(0), *x.max(1), *x.max(2, True), *x.min(0), *x.min(-1)), x,
    )  # fmt: skip


def _sums() -> tuple[nn.Module, Tensors]:
    """But for those over the last dimension alone, which the wheel adds in vectors."""
    x = torch.randn(size(), size(2), size(2))
    return _of(
        lambda x: (x.mean(1), x.mean((0, 2), keepdim=True), x.mean(-1), x.sum((0, 1)), x.sum(0, keepdim=True),
                   x.var(1), x.var((1, 2), correction=0, keepdim=True), torch.cumsum(x, 1), torch.cumsum(x, -1)), x,
    )  # fmt: skip


def _products() -> tuple[nn.Module, Tensors]:
    rows, inner, columns = size(), size(2, 9), size()
    x, y = torch.randn(2, rows, inner), torch.randn(2, inner, columns)
    return Apply(
        lambda x, y: (torch.bmm(x, y), torch.mm(x[1], y[0]), x.sum(-1), torch.addmm(y[0, 0], x[0], y[1]),
                      torch.addmm(torch.mm(x[0], y[0]), x[1], y[1], beta=0.5, alpha=2)),
    ), (x, y)  # fmt: skip


def _dense() -> tuple[nn.Module, Tensors]:
    inner = size(2, 9)
    return Apply(
        lambda biased, plain, x: (biased(x), functional.silu(plain(x[0]))),
        nn.Linear(inner, size()), nn.Linear(inner, 3, bias=False),
    ), (torch.randn(2, size(), inner),)  # fmt: skip


def _layers() -> tuple[nn.Module, Tensors]:
    rows, columns = size(2), size(2, 9)
    return Apply(
        lambda one, two, x: (one(x), two(x)), nn.LayerNorm(columns), nn.LayerNorm((rows, columns), bias=False)
    ), (torch.randn(size(), rows, columns) + 1,)


def _channels() -> tuple[nn.Module, Tensors]:
    groups, batches = size(1, 3), size(1, 2)
    channels = groups * size(1, 3)
    batch = nn.BatchNorm2d(channels)
    for tensor in (batch.running_mean, batch.running_var, batch.weight.data, batch.bias.data):
        assert tensor is not None
        tensor.copy_(torch.rand(channels) + 0.5)
    return Apply(
        lambda one, two, three, four, five, x: (one(x), two(x), three(x), four(x), five(x.flatten(2))),
        nn.GroupNorm(groups, channels), nn.GroupNorm(groups, channels, affine=False), batch,
        nn.InstanceNorm2d(channels), nn.InstanceNorm1d(channels, affine=True),
    ), (torch.randn(batches, channels, size(2), size(2)) + 1,)  # fmt: skip


def _pools() -> tuple[nn.Module, Tensors]:
    return _of(
        lambda x: (functional.avg_pool2d(x, 2), functional.avg_pool2d(x, (3, 2), (2, 1), (1, 0)),
                   functional.avg_pool2d(x, (2, 3), (1, 2), (0, 1), count_include_pad=False),
                   functional.avg_pool2d(x, 3, 2, ceil_mode=True), functional.avg_pool2d(x, 2, divisor_override=3),
                   functional.adaptive_avg_pool2d(x, (3, 2))),
        torch.randn(size(1, 2), size(1, 3), size(4, 8), size(4, 8)),
    )  # fmt: skip


def _enlargements() -> tuple[nn.Module, Tensors]:
    height, width = size(2, 6), size(2, 6)
    return _of(
        lambda x: (functional.interpolate(x, scale_factor=2), functional.interpolate(x, size=(height + 3, width - 1)),
                   functional.interpolate(x, scale_factor=(1.5, 3), mode="bilinear"),
                   functional.interpolate(x, size=(height * 2, width + 1), mode="bilinear", align_corners=True)),
        torch.randn(size(1, 2), size(1, 3), height, width),
    )  # fmt: skip


def _fills() -> tuple[nn.Module, Tensors]:
    x = torch.randn(size(2), size(2))
    return _of(lambda x: (torch.full_like(x, 2.5), x.masked_fill(x < 0, -1.0), torch.arange(1, 9, 2) + 1), x)


FAMILIES = {
    "numbers": Family(_numbers),
    "roundings": Family(_roundings),
    "functions": Family(_functions, exact=False),
    "comparisons": Family(_comparisons),
    "truths": Family(_truths),
    "integers": Family(_integers),
    "views": Family(_views),
    "indices": Family(_indices),
    "writes": Family(_writes),
    "choices": Family(_choices),
    "sums": Family(_sums),
    "products": Family(_products, exact=False),
    "layers": Family(_layers, exact=False),
    "channels": Family(_channels),
    "dense": Family(_dense, exact=False, in_executorch=False),
    "pools": Family(_pools, layout="channels_last"),
    "enlargements": Family(_enlargements),
    "fills": Family(_fills),
}


def drawn(family: str, seed: int) -> Exported:
    torch.manual_seed(seed)
    module, inputs = FAMILIES[family].make()
    return export(module.eval(), inputs, layout=FAMILIES[family].layout)


ULPS = 8 * float(np.finfo(np.float32).eps)
"""Of what two libm's differ by, a unit in the last place each, and sums of ten items of a few units in two orders."""


def agree(builtin: Dut, executorch: Dut, family: str, seed: int) -> None:
    """AssertionError where the two runtimes compute something else, after any instruction where they should not."""
    lowered = flow.lower(drawn(family, seed), isa=builtin.target.isa, quantize=False)
    if FAMILIES[family].exact:
        found = [one for one in compare_runtimes(builtin, executorch, lowered, lowered.inputs) if one is not None]
        assert found == [], "\n".join(f"{one.operator}: {one}" for one in found)
        return
    ours, theirs = (flow.run(one, lowered).outputs for one in (builtin, executorch))
    assert len(ours) == len(theirs) > 0
    for one, other in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(one.array(), other.array(), rtol=ULPS, atol=ULPS)
