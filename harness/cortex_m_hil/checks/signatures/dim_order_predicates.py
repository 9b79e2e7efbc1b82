"""Predicates on the place of a tensor's elements in memory; different dim orders may mean the same places."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from cortex_m_hil.program.tensor import TensorSpec

CHANNELS_LAST: Final = (0, 2, 3, 1)


def _strides(spec: TensorSpec) -> tuple[int, ...]:
    """Return the strides of a tensor in items, one for each dimension."""
    strides = [0] * len(spec.shape)
    stride = 1
    for dim in reversed(spec.dim_order):
        strides[dim] = stride
        stride *= spec.shape[dim]
    return tuple(strides)


def is_stored_in(spec: TensorSpec, order: tuple[int, ...]) -> bool:
    """Tell whether a tensor's bytes are the same in that dim order; dimensions of size 1 make no difference."""
    if len(order) != len(spec.shape):
        return False
    wanted = _strides(TensorSpec(spec.dtype, spec.shape, order))
    return all(size == 1 or one == other for size, one, other in zip(spec.shape, _strides(spec), wanted, strict=True))


def is_contiguous(spec: TensorSpec) -> bool:
    return list(spec.memory_order) == sorted(spec.memory_order)


def is_image(spec: TensorSpec) -> bool:
    return is_stored_in(spec, CHANNELS_LAST)


def are_stored_alike(one: TensorSpec, other: TensorSpec) -> bool:
    """Tell whether two tensors have the same shape, and each element at the same place in memory."""
    return one.shape == other.shape and is_stored_in(one, other.dim_order)


def is_default(spec: TensorSpec) -> bool:
    return list(spec.dim_order) == sorted(spec.dim_order)


def is_channels_last(spec: TensorSpec) -> bool:
    return spec.dim_order in (CHANNELS_LAST, (0, 2, 3, 4, 1))


def counts_as_channels_last(spec: TensorSpec) -> bool:
    """Tell whether ExecuTorch takes a tensor for channels-last (`is_channels_last_tensor`).

    It does so too if contiguous and channels-last order are the same bytes (one channel, or 1x1).
    """
    if len(spec.shape) != 4:
        return False
    return spec.shape[1] == 1 or spec.shape[2:] == (1, 1) or spec.dim_order == CHANNELS_LAST


FORMS: Final[Mapping[str, tuple[Callable[[TensorSpec], bool], str]]] = {
    "rows": (is_contiguous, "contiguous"),
    "default": (is_default, "contiguous, with dimensions of size 1 in their order too"),
    "image": (is_image, "4-D in channels-last dim order (0, 2, 3, 1)"),
    "nhwc": (lambda spec: len(spec.shape) == 4 and is_contiguous(spec), "4-D and contiguous"),
}
