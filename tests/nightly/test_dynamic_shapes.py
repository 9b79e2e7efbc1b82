"""Dynamic shapes on an installed ExecuTorch: what its Cortex-M kernels make of inputs below the upper bounds."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import nn
from torch.export import Dim

import cortex_m_hil as hil
from cortex_m_hil.errors import Mismatch, ProgramRejected, TargetFault, VerdictError
from cortex_m_hil.targets.load import load_targets
from installed import installed_executorch

ROWS = ({0: Dim("batch", min=1, max=8)},)


class Turned(nn.Module):
    def forward(self, x: Any) -> Any:
        return x.permute(1, 0)


class Flat(nn.Module):
    def forward(self, x: Any) -> Any:
        return x.reshape(x.shape[0], -1)


class Plus(nn.Module):
    def forward(self, x: Any) -> Any:
        return x + x


@pytest.fixture(scope="module", params=["m4-qemu", "m55-qemu", "m0-qemu"])
def target(request: pytest.FixtureRequest) -> Iterator[hil.api.OpenTarget]:
    with installed_executorch(load_targets()[request.param]), hil.open(request.param, runtime="executorch") as opened:
        yield opened


def rows(count: int, *rest: int) -> tuple[torch.Tensor]:
    return (torch.rand(count, *(rest or (16,))),)


@pytest.mark.parametrize(
    ("module", "inputs", "error", "operator"),
    [
        (nn.Linear(16, 8), (16,), Mismatch, "cortex_m::quantized_linear"),
        (nn.Softmax(-1), (16,), Mismatch, "cortex_m::softmax"),
        (Turned(), (16,), Mismatch, "cortex_m::transpose"),
        (nn.AvgPool2d(2), (4, 8, 8), Mismatch, "cortex_m::pad"),
        (nn.MaxPool2d(2), (4, 8, 8), ProgramRejected, "cortex_m::quantized_max_pool2d"),
        (Plus(), (16,), TargetFault, "cortex_m::quantized_add"),
        (nn.Tanh(), (16,), TargetFault, "cortex_m::quantized_activation"),
    ],
    ids=["linear", "softmax", "permute", "average pool", "max pool", "add", "tanh"],
)
def test_a_quantised_kernel_that_does_not_resize_is_named(
    target: hil.api.OpenTarget, module: nn.Module, inputs: tuple[int, ...], error: type[VerdictError], operator: str
) -> None:
    """And is right at the upper bounds."""
    torch.manual_seed(0)
    largest = rows(8, *inputs)
    target.check(module, largest, dynamic_shapes=ROWS)
    with pytest.raises(error) as raised:
        target.check(module, largest, more_inputs=[rows(3, *inputs)], dynamic_shapes=ROWS)
    assert raised.value.operator.startswith(f"{operator}.out")
    assert (
        "inputs",
        f"more_inputs[0], {target.lower(module, rows(3, *inputs)).inputs[0].spec}",
    ) in raised.value.details
    if error is Mismatch:
        assert "shape: float32[" in raised.value.message
        assert "a kernel that does not resize its output" in dict(raised.value.details)["cause"]


@pytest.mark.parametrize("quantize", [True, False])
def test_what_resizes_is_right_at_every_size(target: hil.api.OpenTarget, quantize: bool) -> None:
    """Operators on sizes are ExecuTorch's own; quantize_per_tensor and dequantize_per_tensor resize."""
    torch.manual_seed(0)
    more = [rows(count, 4, 4) for count in (3, 1, 8)]
    target.check(Flat(), rows(8, 4, 4), more_inputs=more, quantize=quantize, dynamic_shapes=ROWS)


def test_portable_kernels_are_right_at_every_size(target: hil.api.OpenTarget) -> None:
    torch.manual_seed(0)
    module, more = nn.Conv2d(4, 8, 3), [rows(count, 4, 8, 8) for count in (3, 1, 8)]
    target.check(module, rows(4, 4, 8, 8), more_inputs=more, quantize=False, dynamic_shapes=ROWS)
