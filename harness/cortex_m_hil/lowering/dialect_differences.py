"""Replacements for ExecuTorch's Python operators whose results differ from their kernels' in ties or layouts.

A single difference grows to several quanta in later operators. So the dialect is run with the kernel's computation in
place of such an operator, and no tolerance is needed for it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import torch
from torch.utils import _pytree as pytree


@dataclass(frozen=True)
class DialectDifference:
    """An operator whose Python implementation differs from its kernel.

    Attributes:
        operator: the operator, `namespace::name`.
        reason: how the Python implementation and the kernel differ.
        source: the kernel's file.
        exact: takes the arguments of the operator by name, and returns the kernel's result.
    """

    operator: str
    reason: str
    source: str
    exact: Callable[[Mapping[str, Any]], torch.Tensor]


def _average(given: Mapping[str, Any]) -> torch.Tensor:
    """Return the mean of each pooling window, halves rounded away from zero; pixels of the padding are not counted."""
    image = given["input"].double()  # exact for sums of int8
    kernel, stride, padding = (given[name] for name in ("kernel_size", "stride", "padding"))
    ceil = given.get("ceil_mode", False)  # executorch 1.4.1 has no such argument
    sums, counts = (
        torch.nn.functional.avg_pool2d(one, kernel, stride, padding, ceil, divisor_override=1).long()
        for one in (image, torch.ones_like(image))
    )
    means = torch.div(sums.abs() + counts // 2, counts, rounding_mode="floor") * sums.sign()
    return means.to(torch.int8)


def _average_nhwc(given: Mapping[str, Any]) -> torch.Tensor:
    image = given["input"].permute(0, 3, 1, 2)
    return _average({**given, "input": image}).permute(0, 2, 3, 1).contiguous()


def _quotient(given: Mapping[str, Any]) -> torch.Tensor:
    """Return the float32 quotient as the operator does, but round halves away from zero; a divisor of 0 gives 0."""
    one, other = (
        (given[name].to(torch.int32) - given[f"{name}_zero_point"]).to(torch.float32) for name in ("self", "other")
    )
    quotient = torch.where(other != 0, one / other, torch.zeros_like(one)) * given["output_scale"]
    whole: torch.Tensor = torch.floor(quotient.abs().double() + 0.5) * quotient.sign() + given["output_zero_point"]
    kind = torch.iinfo(given["self"].dtype)
    return whole.clamp(kind.min, kind.max).to(given["self"].dtype)


_MEAN: Final = (
    "a mean that lies halfway between two integers: CMSIS-NN rounds the integers' mean away from zero, the dialect the "
    "float mean less the zero point to even"
)
DIALECT_DIFFERENCES: Final = (
    DialectDifference("cortex_m::quantized_avg_pool2d", _MEAN, "CMSIS-NN arm_avgpool_s8.c", _average),
    DialectDifference("cortex_m::quantized_avg_pool2d_nhwc", _MEAN, "CMSIS-NN arm_avgpool_s8.c", _average_nhwc),
    DialectDifference(
        "cortex_m::quantized_div",
        "a quotient that lies halfway between two integers: ExecuTorch's kernel rounds it away from zero, the dialect "
        "to even",
        "ExecuTorch op_quantized_div.cpp",
        _quotient,
    ),
)
"""All operators whose Python implementation differs from the kernel.

Tests/targets/test_differences.py fails for an entry whose difference no longer occurs.
"""
_EXACT: Final = {f"{one.operator.replace('::', '.')}.default": one.exact for one in DIALECT_DIFFERENCES}


def exact_form(operator: Any) -> Callable[..., torch.Tensor] | None:
    """Return a function that computes a dialect's operator as its kernel does; None where the two do not differ."""
    exact = _EXACT.get(str(operator))
    if exact is None:
        return None
    names = [argument.name for argument in operator._schema.arguments]
    return lambda *args, **kwargs: exact({**dict(zip(names, args, strict=False)), **kwargs})


def in_its_layout(operator: Any, args: Any, kwargs: Any, found: Any) -> Any:
    """Return the result of a dialect operator, with the strides of its meta function, which the program has too.

    Results for images of one pixel can have other strides. They make no difference there, but a later operator takes
    them for the layout, and pads the wrong dimensions (executorch 1.5.1 backends/cortex_m/ops/operators.py, `pad_impl`
    and `is_channels_last`).

    Args:
        operator: a torch operator; results of operators outside `cortex_m` are returned unchanged.
        args: the operator's positional arguments.
        kwargs: the operator's keyword arguments.
        found: the operator's result.
    """
    if operator.namespace != "cortex_m" or not isinstance(found, torch.Tensor):
        return found
    args, kwargs = pytree.tree_map_only(torch.Tensor, lambda one: one.to("meta"), (args, kwargs))
    said = operator(*args, **kwargs)
    if said.stride() == found.stride() or said.shape != found.shape:  # different shapes are reported by the comparison
        return found
    return torch.empty_strided(said.shape, said.stride(), dtype=found.dtype).copy_(found)
