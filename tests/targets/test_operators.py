"""Small nets that together use every operator of the built-in runtime, the integer ones in both layouts.

Each names the operators it is there for, so that a compiler that chooses others is noticed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import pytest
import torch
from torch import nn

from cortex_m_hil import Exported, export
from cortex_m_hil.checks.comparison.tolerance import Tolerance
from cortex_m_hil.errors import LintError, Mismatch, ProgramRejected
from cortex_m_hil.lowering import Layout
from cortex_m_hil.pytest_plugin.fixtures import Hil
from networks import Apply
from wheel import require

LAYOUTS = ("channels_last", "explicit")
# Against fake-quant, which computes in float: a value halfway between two quanta may go either way, and a quantum of
# these nets is some 0.02. Against the dialect nothing is allowed but the table's differences.
ATOL = 0.05


@dataclass(frozen=True)
class Case:
    """``operators`` without namespace ``cortex_m``; those of ``images`` end in _nhwc in the explicit layout.

    ``known``: bugs of ExecuTorch that it shows, of ``images`` in both layouts, else in channels-last order alone.
    """

    module: Callable[[], nn.Module]
    shapes: tuple[tuple[int, ...], ...]
    operators: tuple[str, ...]
    images: bool = False
    deviation: float = 1.0  # of the inputs, for quanta that are small against the tolerance
    mean: float = 0.0  # of the last channel, for sums that grow; the others' are smaller
    argument: str = ""  # that the operators must have to be chosen
    known: tuple[int, ...] = ()

    def wanted(self, layout: Layout) -> set[str]:
        suffix = "_nhwc" if self.images and layout == "explicit" else ""
        return {name if "::" in name else f"cortex_m::{name}{suffix}.out" for name in self.operators}

    def module_and_inputs(self) -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
        inputs = tuple(torch.randn(shape) * self.deviation for shape in self.shapes)
        if self.mean:
            inputs = tuple(x + self.mean * torch.linspace(0.8, 1, x.shape[1]).reshape(-1, 1, 1) for x in inputs)
        return self.module(), inputs


def image(
    module: Callable[[], nn.Module], shape: tuple[int, ...], *operators: str, known: tuple[int, ...] = ()
) -> Case:
    return Case(module, (shape,), operators, images=True, known=known)


def conv(inputs: int, outputs: int, *args: Any, **options: Any) -> Callable[[], nn.Module]:
    return lambda: nn.Conv2d(inputs, outputs, *args, **options)


def depthwise(channels: int, multiplier: int, **options: Any) -> Callable[[], nn.Module]:
    return lambda: nn.Conv2d(channels, channels * multiplier, groups=channels, **options)


def transposed(inputs: int, outputs: int, *args: Any, **options: Any) -> Callable[[], nn.Module]:
    return lambda: nn.ConvTranspose2d(inputs, outputs, *args, **options)


TRANSPOSED = "quantized_transpose_conv2d"
CONV, DEPTHWISE = "quantized_conv2d", "quantized_depthwise_conv2d"
AVERAGE, LARGEST = "quantized_avg_pool2d", "quantized_max_pool2d"

IMAGES = {
    "conv_3x3": image(conv(3, 16, 3, stride=2, padding=1), (1, 3, 15, 13), CONV),
    "conv_1x1": image(conv(20, 5, 1), (1, 20, 4, 6), CONV),
    # An odd number of pixels and channels: what blocks of two, four and sixteen leave.
    "conv_1x1_odd": image(conv(23, 7, 1), (1, 23, 5, 5), CONV),
    "conv_odd": image(conv(5, 7, 3, padding=1), (1, 5, 5, 5), CONV),
    "conv_1xn": image(conv(8, 6, (1, 5), padding=(0, 2)), (1, 8, 1, 20), CONV),
    "conv_batches": image(conv(4, 7, 3), (3, 4, 6, 5), CONV),
    "conv_no_bias": image(conv(5, 9, (2, 3), bias=False), (1, 5, 7, 7), CONV),
    "conv_grouped": image(conv(8, 12, 3, padding=1, groups=4), (1, 8, 6, 6), CONV),
    "conv_wide_padding": image(conv(2, 3, 3, padding=3), (1, 2, 4, 4), CONV),
    "conv_relu": image(lambda: nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU()), (1, 3, 8, 8), CONV),
    "conv_strides": image(conv(3, 5, (3, 2), stride=(1, 2), padding=(2, 1)), (1, 3, 7, 9), CONV),
    "conv_dilated": image(conv(4, 6, (2, 3), dilation=(3, 2), padding=(1, 2)), (1, 4, 9, 8), CONV),
    "conv_relu6": image(lambda: nn.Sequential(nn.Conv2d(3, 8, 1), nn.ReLU6()), (1, 3, 8, 8), CONV),
    "depthwise": image(depthwise(19, 1, kernel_size=3, padding=1), (1, 19, 8, 7), DEPTHWISE),
    "depthwise_strided": image(depthwise(16, 1, kernel_size=(5, 3), stride=2, padding=1), (1, 16, 11, 9), DEPTHWISE),
    "depthwise_multiplier": image(depthwise(5, 3, kernel_size=3, padding=1), (1, 5, 6, 7), DEPTHWISE),
    "depthwise_strides": image(
        depthwise(6, 1, kernel_size=(2, 3), stride=(2, 1), padding=(1, 2)), (1, 6, 8, 7), DEPTHWISE
    ),
    "depthwise_dilated": image(depthwise(5, 1, kernel_size=3, dilation=(2, 1), padding=2), (1, 5, 8, 7), DEPTHWISE),
    "depthwise_multiplier_4": image(depthwise(3, 4, kernel_size=3, padding=1), (1, 3, 6, 7), DEPTHWISE),
    "depthwise_multiplier_strides": image(
        depthwise(3, 2, kernel_size=(3, 2), stride=(1, 2), dilation=(1, 2), padding=(0, 1), bias=False),
        (1, 3, 7, 8),
        DEPTHWISE,
    ),
    "transposed": image(transposed(5, 7, 3), (1, 5, 4, 6), TRANSPOSED),
    "transposed_strided": image(
        transposed(4, 6, (5, 2), stride=(2, 3), padding=(2, 1)), (2, 4, 5, 3), TRANSPOSED, known=(1,)
    ),
    "transposed_sparse": image(transposed(3, 2, 1, stride=3, bias=False), (1, 3, 3, 4), TRANSPOSED, known=(21,)),
    "avg_pool_3x3": image(lambda: nn.AvgPool2d(3, 2, 1, count_include_pad=False), (1, 17, 9, 9), AVERAGE),
    "avg_pool_oblong": image(
        lambda: nn.AvgPool2d((2, 5), (1, 2), (1, 2), count_include_pad=False), (2, 3, 6, 9), AVERAGE
    ),
    "avg_pool_tall": image(lambda: nn.AvgPool2d((3, 1), (2, 1)), (1, 5, 9, 4), AVERAGE),
    "avg_pool_padding_counts": image(lambda: nn.AvgPool2d((3, 2), 2, (1, 0)), (1, 3, 7, 6), AVERAGE),
    "avg_pool_ceil": Case(
        lambda: nn.AvgPool2d(3, 2, ceil_mode=True), ((1, 4, 8, 8),), (AVERAGE,), images=True, argument="ceil_mode"
    ),
    "avg_pool_sums": Case(  # of more than 16 bits
        lambda: nn.AvgPool2d(24), ((1, 3, 24, 24),), (AVERAGE,), images=True, deviation=0.3, mean=8.0
    ),
    "max_pool_2x2": image(lambda: nn.MaxPool2d(2), (1, 18, 8, 6), LARGEST),
    "max_pool_oblong": image(lambda: nn.MaxPool2d((2, 3), (1, 2), (1, 0)), (1, 3, 6, 9), LARGEST),
    "max_pool_relu": image(lambda: nn.Sequential(nn.MaxPool2d((3, 2), (2, 1)), nn.ReLU()), (1, 3, 6, 8), LARGEST),
    "max_pool_3x3": image(lambda: nn.MaxPool2d(3, 2, 1), (2, 5, 9, 7), LARGEST),
}


def promoted(function: Callable[[torch.Tensor], torch.Tensor], *tail: nn.Module) -> Callable[[], nn.Module]:
    """`tail` and `function` after a sigmoid, in a network that has a hardswish.

    When ExecuTorch replaces the hardswish it derives all dtypes anew, in a graph of integers, and torch says that a
    sigmoid of integers is float. So minimum, maximum and permute after it remain ATen's, on int8
    (`decompose_hardswish_pass.py`; `aten_to_cortex_m_pass.py`, which asks for int8).
    """
    head = (nn.Linear(9, 8), nn.Hardswish(), nn.Linear(8, 12), nn.Sigmoid())
    return lambda: Apply(lambda network, x: function(network(x)), nn.Sequential(*head, *tail))


OTHERS = {
    "add": Case(lambda: Apply(torch.add), ((2, 3, 7), (2, 3, 7)), ("quantized_add",)),
    "add_images": Case(lambda: Apply(torch.add), ((1, 5, 4, 3), (1, 5, 4, 3)), ("quantized_add",)),
    "add_relu": Case(lambda: Apply(lambda x, y: torch.relu(x + y)), ((3, 7), (3, 7)), ("quantized_add",)),
    "mul": Case(lambda: Apply(torch.mul), ((5, 13), (5, 13)), ("quantized_mul",)),
    "sigmoid": Case(nn.Sigmoid, ((3, 47),), ("quantized_activation",), deviation=3),
    "tanh": Case(nn.Tanh, ((2, 3, 5),), ("quantized_activation",), deviation=2),
    "silu": Case(nn.SiLU, ((1, 4, 5, 3),), ("quantized_activation",), deviation=4),
    "log": Case(lambda: Apply(lambda x: torch.log(x * x + 1)), ((4, 9),), ("quantized_activation",)),
    "linear_rows": Case(lambda: nn.Linear(7, 5, bias=False), ((2, 3, 7),), ("quantized_linear",)),
    "linear_relu6": Case(
        lambda: nn.Sequential(nn.Linear(19, 6), nn.ReLU6()), ((3, 19),), ("quantized_linear",), deviation=5
    ),
    "minimum": Case(lambda: Apply(torch.minimum), ((2, 3, 5), (2, 3, 5)), ("minimum",)),
    "maximum_broadcast_4d": Case(lambda: Apply(torch.maximum), ((2, 1, 3, 1), (4, 1, 5)), ("maximum",)),
    "maximum": Case(lambda: Apply(torch.maximum), ((2, 3, 5), (2, 3, 5)), ("maximum",)),
    "maximum_broadcast": Case(lambda: Apply(torch.maximum), ((2, 1, 4), (3, 1)), ("maximum",)),
    "softmax": Case(lambda: nn.Softmax(-1), ((6, 37),), ("softmax",)),
    "softmax_short": Case(lambda: nn.Softmax(-1), ((2, 3, 5),), ("softmax",)),
    "mul_images": Case(lambda: Apply(torch.mul), ((1, 5, 4, 3), (1, 5, 4, 3)), ("quantized_mul",)),
    "minimum_broadcast": Case(lambda: Apply(torch.minimum), ((3, 1), (2, 1, 4)), ("minimum",)),
    "transpose": Case(lambda: Apply(lambda x: x.permute(2, 0, 1)), ((3, 4, 5),), ("transpose",)),
    "div": Case(lambda: Apply(lambda x, y: x / (y * y + 1)), ((4, 9), (4, 9)), ("quantized_div",)),
    "batch_matmul": Case(
        lambda: Apply(torch.bmm), ((3, 5, 19), (3, 19, 7)), ("quantized_batch_matmul",), deviation=0.3
    ),
    "hardswish": Case(lambda: nn.Sequential(nn.Linear(9, 7), nn.Hardswish()), ((4, 9),), ("quantized_mul",)),
    "hardswish_promoted": Case(
        promoted(lambda x: x, nn.Linear(12, 7), nn.Hardswish()), ((4, 9),), ("aten::minimum.out",)
    ),
    "minimum_promoted": Case(
        promoted(lambda x: torch.minimum(x.unsqueeze(1), x[1])), ((4, 9),), ("aten::minimum.out",), deviation=9
    ),
    "maximum_promoted": Case(
        promoted(lambda x: torch.maximum(x, x[:, 5].unsqueeze(1))), ((4, 9),), ("aten::maximum.out",), deviation=9
    ),
    "permute_promoted": Case(
        promoted(lambda x: x.reshape(2, 3, 8).permute(2, 0, -2)), ((4, 9),), ("aten::permute_copy.out",)
    ),
    "relu": Case(lambda: Apply(torch.relu), ((3, 4, 5),), ("aten::clamp.out",)),
    "batch_matmul_offsets": Case(
        lambda: Apply(lambda x, y: torch.bmm(x + 1, y - 0.5)), ((2, 3, 8), (2, 8, 5)), ("quantized_batch_matmul",)
    ),
    "relu_image": Case(lambda: Apply(torch.relu), ((2, 3, 4, 5),), ("aten::clamp.out",)),
    "hardtanh": Case(lambda: nn.Hardtanh(-0.5, 0.25), ((3, 5),), ("aten::clamp.out",)),
    "cat_images": Case(
        lambda: Apply(lambda x, y: torch.cat((x, y, x), 1)),
        ((2, 3, 4, 5), (2, 2, 4, 5)),
        ("aten::cat.out",),
        known=(22,),
    ),
    "cat_first": Case(lambda: Apply(lambda x, y: torch.cat((x, y), -2)), ((2, 3), (4, 3)), ("aten::cat.out",)),
    "amax_keepdim": Case(
        lambda: Apply(lambda x: torch.amax(x, (-1,), keepdim=True)), ((3, 4, 5),), ("aten::amax.out",)
    ),
    "cat": Case(lambda: Apply(lambda x, y: torch.cat((x, y), 1)), ((2, 3, 4), (2, 5, 4)), ("aten::cat.out",)),
    "amax": Case(lambda: Apply(lambda x: torch.amax(x, (0, 2))), ((3, 4, 5),), ("aten::amax.out",)),
    "select": Case(lambda: Apply(lambda x: x[:, 1]), ((3, 4, 5),), ("aten::select_copy.int_out",)),
    "select_backwards": Case(lambda: Apply(lambda x: x.select(-1, -2)), ((3, 4, 5),), ("aten::select_copy.int_out",)),
    "slice": Case(lambda: Apply(lambda x: x[:, 1:3] + x[:, -2:]), ((3, 4, 5),), ("aten::slice_copy.Tensor_out",)),
    "slice_apart": Case(lambda: Apply(lambda x: x[..., 1::2]), ((3, 4, 5),), ("aten::slice_copy.Tensor_out",)),
    "pad": Case(lambda: nn.ConstantPad1d((2, 3), 0.0), ((3, 5),), ("pad",)),
    "pad_value": Case(lambda: nn.ConstantPad2d((1, 2, 3, 4), 0.5), ((1, 3, 4, 5),), ("pad",)),
    "pad_batch": Case(
        lambda: Apply(lambda x: nn.functional.pad(x, (1, 0, 0, 2, 0, 0, 1, 2))), ((2, 1, 4, 5),), ("pad",)
    ),
    "pad_column": Case(lambda: nn.ConstantPad2d((1, 2, 3, 4), 0.5), ((1, 3, 4, 1),), ("pad",)),
    "pad_pixel": Case(lambda: nn.ConstantPad2d((1, 2, 3, 4), 0.5), ((1, 3, 1, 1),), ("pad",)),
    "pad_one_channel": Case(lambda: nn.ConstantPad2d((1, 0, 2, 1), 0.0), ((1, 1, 4, 5),), ("pad",)),
}


def aten(module: Callable[[], nn.Module], operator: str, *shapes: tuple[int, ...], known: tuple[int, ...] = ()) -> Case:
    return Case(module, shapes, (f"aten::{operator}.out",), known=known)


FLOATS = {
    "add": aten(lambda: Apply(torch.add), "add", (2, 3, 4), (2, 3, 4)),
    "add_alpha": aten(lambda: Apply(lambda x, y: torch.add(x, y, alpha=0.3)), "add", (2, 3, 4), (2, 3, 4)),
    "add_broadcast": aten(lambda: Apply(torch.add), "add", (2, 1, 5, 1), (3, 1, 4)),
    "add_scalar": aten(lambda: Apply(lambda x: x + torch.full((3,), 2.5)), "add", (2, 3)),
    "sub": aten(lambda: Apply(lambda x, y: torch.sub(x, y, alpha=2)), "sub", (7,), (3, 7)),
    "mul": aten(lambda: Apply(torch.mul), "mul", (2, 8, 5, 5), (1, 8, 1, 1), known=(5,)),
    "mul_rows": aten(lambda: Apply(torch.mul), "mul", (3, 5), (3, 5)),
    "div_broadcast": aten(lambda: Apply(torch.div), "div", (2, 3, 4), (3, 1)),
    "div": aten(lambda: Apply(torch.div), "div", (1,), (2, 3, 4)),
    "minimum": aten(lambda: Apply(torch.minimum), "minimum", (2, 1, 5), (3, 1)),
    "minimum_rows": aten(lambda: Apply(torch.minimum), "minimum", (3, 5), (3, 5)),
    "maximum": aten(lambda: Apply(torch.maximum), "maximum", (2, 3, 4, 5), (2, 3, 4, 5)),
    "permute": aten(lambda: Apply(lambda x: x.permute(0, -1, 1)), "permute_copy", (3, 4, 5)),
    "clamp": aten(lambda: Apply(lambda x: torch.clamp(x, -0.5, 0.8)), "clamp", (4, 5)),
    "clamp_above": aten(lambda: Apply(lambda x: torch.clamp(x, max=0.3)), "clamp", (3, 5)),
    "clamp_below": aten(lambda: Apply(lambda x: torch.clamp(x, min=0.1)), "clamp", (2, 3, 4, 5)),
    "amax": aten(lambda: Apply(lambda x: torch.amax(x, (0, 2), keepdim=True)), "amax", (3, 4, 5)),
    "amax_negative": aten(lambda: Apply(lambda x: torch.clamp(x, max=-0.1).amax(0)), "amax", (3, 5)),
    "amax_of_all": aten(lambda: Apply(torch.amax), "amax", (3, 4, 5)),
    "cat": aten(lambda: Apply(lambda x, y: torch.cat((x, y, x), -1)), "cat", (3, 4), (3, 2)),
    "softmax": aten(lambda: nn.Softmax(1), "_softmax", (4, 9, 5)),
    "softmax_last": aten(lambda: nn.Softmax(-1), "_softmax", (4, 19)),
    # Items of a row further apart than float's exponent reaches, or than one step of the exponential's polynomial.
    "softmax_far": Case(lambda: nn.Softmax(1), ((8, 2, 5),), ("aten::_softmax.out",), deviation=100),
    "softmax_spread": Case(lambda: nn.Softmax(-1), ((6, 37),), ("aten::_softmax.out",), deviation=3),
    "conv": aten(conv(3, 6, 3, stride=2, padding=1), "convolution", (2, 3, 8, 7)),
    "conv_dilated": aten(conv(4, 6, (2, 3), dilation=2, groups=2, bias=False), "convolution", (1, 4, 8, 7)),
    "conv_1d": aten(lambda: nn.Conv1d(4, 6, 3, stride=2, padding=1), "convolution", (2, 4, 9)),
    "transposed": aten(
        transposed(4, 6, 3, stride=2, padding=1, output_padding=1, dilation=2, groups=2), "convolution", (1, 4, 5, 6)
    ),
    "conv_valid": aten(conv(3, 4, (2, 3), padding="valid"), "convolution", (1, 3, 6, 7)),
    "conv_oblong": aten(
        conv(3, 4, (3, 2), stride=(1, 3), padding=(2, 1), dilation=(2, 1)), "convolution", (1, 3, 9, 8)
    ),
    "transposed_oblong": aten(
        transposed(3, 4, (2, 3), stride=(3, 2), padding=(0, 2), output_padding=(2, 0), dilation=(1, 3), bias=False),
        "convolution",
        (2, 3, 4, 5),
    ),
    "transposed_depthwise": aten(transposed(4, 4, 3, stride=2, padding=1, groups=4), "convolution", (2, 4, 5, 3)),
    "transposed_1d": aten(lambda: nn.ConvTranspose1d(3, 2, 4, stride=3), "convolution", (2, 3, 5)),
    "transposed_1d_padded": aten(
        lambda: nn.ConvTranspose1d(4, 6, 3, stride=2, padding=2, output_padding=1, groups=2), "convolution", (1, 4, 5)
    ),
    "conv_1d_dilated": aten(
        lambda: nn.Conv1d(4, 6, 2, padding=3, dilation=3, groups=2, bias=False), "convolution", (1, 4, 9)
    ),
    "max_pool": aten(
        lambda: nn.MaxPool2d((2, 3), (2, 1), (1, 0), (1, 2), ceil_mode=True), "max_pool2d_with_indices", (2, 3, 5, 8)
    ),
    "max_pool_no_stride": aten(
        lambda: Apply(lambda x: nn.functional.max_pool2d(x, (2, 3))), "max_pool2d_with_indices", (2, 3, 5, 8)
    ),
    "max_pool_over_the_edge": aten(
        lambda: nn.MaxPool2d((3, 2), 2, ceil_mode=True), "max_pool2d_with_indices", (1, 2, 6, 9)
    ),
}

# ExecuTorch's operators take the sizes of these as they stand, whatever the dim order, so in channels-last order they
# would be wrong without a word. The built-in runtime refuses them.
CONTIGUOUS = {
    "minimum_broadcast": Case(lambda: Apply(torch.minimum), ((1, 2, 3, 1), (4, 1, 1, 3)), ("minimum",)),
    "transpose_4d": Case(lambda: Apply(lambda x: x.permute(0, 3, 1, 2)), ((2, 3, 4, 5),), ("transpose",)),
}

# The explicit layout has no broadcasts over channels and no pooling but CMSIS-NN's; there, new dimensions are views.
CHANNELS_LAST = {
    "add_per_channel": Case(lambda: Apply(torch.add), ((1, 6, 4, 3), (1, 6, 1, 1)), ("quantized_add",)),
    "mul_per_channel": Case(lambda: Apply(torch.mul), ((1, 6, 1, 1), (1, 6, 4, 3)), ("quantized_mul",)),
    "unsqueeze": Case(lambda: Apply(lambda x: x.unsqueeze(1)), ((3, 4, 5),), ("aten::unsqueeze_copy.out",)),
    "unsqueeze_last": Case(lambda: Apply(lambda x: x.unsqueeze(-1)), ((3, 4, 5),), ("aten::unsqueeze_copy.out",)),
    # CMSIS-NN takes it as a scalar, whatever the other's dim order; other broadcasts have to be contiguous.
    "minimum_of_one_item": Case(lambda: Apply(torch.minimum), ((1, 6, 4, 3), (1,)), ("minimum",)),
    "max_pool_ceil": Case(
        lambda: nn.MaxPool2d(3, 2, 1, ceil_mode=True),
        ((1, 1, 4, 4),),
        ("aten::max_pool2d_with_indices.out",),
        known=(6,),
    ),
    "max_pool_dilated": Case(
        lambda: nn.MaxPool2d(2, 1, dilation=2), ((2, 3, 6, 7),), ("aten::max_pool2d_with_indices.out",)
    ),
}


@cache
def exported(case: Case, layout: Layout = "channels_last") -> Exported:
    """Once for all targets. Only one test asks for each: so the numbers are those that its seed gives."""
    return export(*case.module_and_inputs(), layout=layout)


def check(hil: Hil, case: Case, layout: Layout) -> None:
    require(case.wanted(layout), layout=layout, argument=case.argument)
    program = hil.lower(exported(case, layout))
    assert case.wanted(layout) <= {instruction.operator for instruction in program.file.instructions}
    known = case.known if case.images or layout == "channels_last" else ()
    comparison = hil.verify(program, Tolerance(qtol=0, atol=ATOL), known=known).comparison
    assert comparison.outputs[0].max_quanta is not None


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", IMAGES)
def test_image(hil: Hil, name: str, layout: Layout) -> None:
    check(hil, IMAGES[name], layout)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", OTHERS)
def test_other(hil: Hil, name: str, layout: Layout) -> None:
    check(hil, OTHERS[name], layout)


@pytest.mark.parametrize("name", FLOATS)
def test_float(hil: Hil, name: str) -> None:
    case = FLOATS[name]
    program = hil.lower(exported(case), quantize=False)
    assert case.wanted("channels_last") <= {instruction.operator for instruction in program.file.instructions}
    hil.verify(program, Tolerance(atol=1e-6, rtol=1e-5, eager_sqnr=100.0), known=case.known)


@pytest.mark.parametrize("masked", [-1e4, -1e9])
def test_softmax_of_masked_scores(hil: Hil, masked: float) -> None:
    """The scale is 16 and more, so only what is largest counts: ties share it."""
    later = torch.ones(6, 6, dtype=torch.bool).triu(1)
    module = Apply(lambda x: torch.softmax(x.masked_fill(later, masked), -1))
    program = hil.lower(module, (torch.randn(2, 6, 6),))
    assert "cortex_m::softmax.out" in {instruction.operator for instruction in program.file.instructions}
    outputs = hil.verify(program, Tolerance(qtol=0, eager_sqnr=-1000.0)).comparison.outputs
    assert outputs[0].max_quanta == 0


def test_greater_or_equal(hil: Hil) -> None:
    hil.check(
        Apply(torch.ge), (torch.randint(-2, 2, (4, 5)).float(), torch.randint(-2, 2, (5,)).float()), quantize=False
    )


@pytest.mark.parametrize("name", CHANNELS_LAST)
def test_channels_last(hil: Hil, name: str) -> None:
    check(hil, CHANNELS_LAST[name], "channels_last")


@pytest.mark.parametrize("name", CONTIGUOUS)
def test_contiguous(hil: Hil, name: str) -> None:
    check(hil, CONTIGUOUS[name], "explicit")


@pytest.mark.parametrize("name", CONTIGUOUS)
def test_not_contiguous_is_refused_by_lint(hil: Hil, name: str) -> None:
    with pytest.raises(LintError, match="contiguous"):
        check(hil, CONTIGUOUS[name], "channels_last")


@pytest.mark.parametrize("name", CONTIGUOUS)
def test_not_contiguous_is_caught_without_lint(hil: Hil, name: str) -> None:
    """ExecuTorch computes something else and says nothing; the comparison does."""
    case = CONTIGUOUS[name]
    require(case.wanted("channels_last"), argument=case.argument)
    builtin = hil.dut.resolved.runtime == "builtin"
    verdict, said = (ProgramRejected, "not contiguous") if builtin else (Mismatch, "elements (off|sit at)")
    with pytest.raises(verdict, match=said):
        hil.check(*case.module_and_inputs(), qtol=0, atol=ATOL, lint=False)


# What ExecuTorch lowers and the built-in runtime refuses, with a part of what it says.
REFUSED = {
    # The quantizer takes it for channels-last; the operator gets dim 1 all the same.
    "softmax": (Case(lambda: nn.Softmax(1), ((2, 6, 1, 1),), ("softmax",)), "last dimension only"),
    # One operand channels-last, the other contiguous.
    "div": (
        Case(
            lambda: Apply(lambda x, y: x / (y * y + 1).view(2, 3, 4, 5)), ((2, 3, 4, 5), (2, 3, 20)), ("quantized_div",)
        ),
        "one shape and dim order needed",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(hil: Hil, name: str) -> None:
    case, said = REFUSED[name]
    require(case.wanted("channels_last"))
    if hil.dut.resolved.runtime != "builtin":
        pytest.skip("ExecuTorch's operators refuse other things")
    with pytest.raises(ProgramRejected, match=said):
        hil.check(*case.module_and_inputs(), qtol=0, atol=ATOL, lint=False)


class Mixed(nn.Module):
    """What networks do between these operators: branches, sums, pools, and a head."""

    def __init__(self) -> None:
        super().__init__()
        self.entry = nn.Sequential(nn.Conv2d(3, 12, 3, padding=1), nn.ReLU())
        self.branch = nn.Sequential(nn.Conv2d(12, 12, 3, padding=1, groups=12), nn.Conv2d(12, 12, 1))
        self.pool = nn.Sequential(nn.MaxPool2d(2), nn.AvgPool2d(3))
        self.head = nn.Linear(12 * 4, 10)

    def forward(self, x: Any) -> Any:
        x = self.entry(x)
        x = self.pool(x + self.branch(x))
        return torch.softmax(self.head(torch.flatten(x, 1)), dim=-1)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_mixed(hil: Hil, layout: Layout) -> None:
    require((), layout=layout)
    hil.check(Mixed(), (torch.randn(1, 3, 12, 12),), layout=layout, qtol=0, atol=ATOL)
