"""Where ExecuTorch's Python operators give something else than the kernels: a quantum at ties, and a layout."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from cortex_m_hil.lowering import lower
from cortex_m_hil.lowering.dialect_differences import DIALECT_DIFFERENCES, DialectDifference, exact_form
from cortex_m_hil.lowering.reference import kernel_arithmetic
from cortex_m_hil.targets.cpu import Isa
from wheel import require

NOTHING = torch.zeros(0, dtype=torch.uint8)
ONE = 1 << 30, 1  # multiplier and shift of a scale of one


@pytest.fixture(scope="module", autouse=True)
def registered() -> None:
    """Whatever is lowered first loads ExecuTorch's operators, in the order that it needs."""
    lower(torch.nn.Linear(2, 2), (torch.zeros(1, 2),), isa=Isa.DSP)


def operator(name: str) -> Any:
    return getattr(torch.ops.cortex_m, name.removeprefix("cortex_m::")).default


def exact(name: str, arguments: tuple[Any, ...]) -> torch.Tensor:
    found = exact_form(operator(name))
    assert found is not None
    return found(*arguments)


def pooled(image: torch.Tensor, kernel: int, stride: int, padding: int) -> tuple[Any, ...]:
    return image, [kernel, kernel], [stride, stride], [padding, padding], False, 0, *ONE, NOTHING


def away_from_zero(value: Fraction) -> int:
    whole = int(abs(value) + Fraction(1, 2))
    return whole if value > 0 else -whole


def means(image: list[list[int]], kernel: int, stride: int, padding: int, windows: int) -> list[Fraction]:
    """Of the pixels of each window that are of the image, one row of windows after another."""
    size = len(image)
    begins = [one * stride - padding for one in range(windows)]
    spans = [range(max(0, begin), min(size, begin + kernel)) for begin in begins]
    parts = ([image[y][x] for y in rows for x in columns] for rows in spans for columns in spans)
    return [Fraction(sum(pixels), len(pixels)) for pixels in parts]


@pytest.mark.slow
@given(st.data())
def test_an_average_is_that_of_the_windows_pixels_with_halves_away_from_zero(data: st.DataObject) -> None:
    size = data.draw(st.integers(2, 6))
    kernel = data.draw(st.integers(1, size))
    stride, padding = data.draw(st.integers(1, 3)), data.draw(st.integers(0, kernel // 2))
    row = st.lists(st.integers(-128, 127), min_size=size, max_size=size)
    image = data.draw(st.lists(row, min_size=size, max_size=size))
    given = pooled(torch.tensor(image, dtype=torch.int8)[None, None], kernel, stride, padding)
    found = exact("quantized_avg_pool2d", given)[0, 0]
    expected = [away_from_zero(mean) for mean in means(image, kernel, stride, padding, len(found))]
    assert found.flatten().tolist() == expected


@given(st.integers(-128, 127), st.integers(-128, 127), st.integers(-128, 127), st.sampled_from([0.5, 1.0, 0.3]))
def test_a_quotient_has_halves_away_from_zero(one: int, other: int, zero: int, scale: float) -> None:
    given = torch.tensor([one], dtype=torch.int8), 0, torch.tensor([other], dtype=torch.int8), zero, 0, scale
    quotient = np.float32(one) / np.float32(other - zero) * np.float32(scale) if other != zero else np.float32(0)
    expected = max(-128, min(127, away_from_zero(Fraction(float(quotient)))))
    assert exact("quantized_div", given).item() == expected


def averages() -> tuple[Any, ...]:
    """Of four pixels each, of every remainder."""
    generator = torch.Generator().manual_seed(1)
    return pooled(torch.randint(-64, 64, (1, 2, 8, 16), dtype=torch.int8, generator=generator), 2, 2, 0)


TIES: dict[str, Callable[[], tuple[Any, ...]]] = {
    "cortex_m::quantized_avg_pool2d": averages,
    "cortex_m::quantized_avg_pool2d_nhwc": lambda: (averages()[0].permute(0, 2, 3, 1).contiguous(), *averages()[1:]),
    "cortex_m::quantized_div": lambda: (
        torch.arange(-9, 9, dtype=torch.int8), 0, torch.full((18,), 2, dtype=torch.int8), 0, 0, 1.0,
    ),
}  # fmt: skip


def test_the_padding_of_one_pixel_has_the_layout_that_the_operator_says() -> None:
    """ExecuTorch's own has another than its meta function. Where it has that, `in_its_layout` goes."""
    called = operator("cortex_m::pad")
    pixel = torch.tensor([5, 7], dtype=torch.int8).as_strided((1, 2, 1, 1), (2, 1, 1, 1))  # as pools give it
    arguments = pixel, [0, 1, 1, 0], [0, 1, 1, 0], 3
    said = called(*(one.to("meta") if isinstance(one, torch.Tensor) else one for one in arguments))
    theirs = called(*arguments)
    with kernel_arithmetic():
        ours = called(*arguments)
    assert ours.tolist() == theirs.tolist()
    assert ours.stride() == said.stride() != theirs.stride()


@pytest.mark.parametrize(
    "entry", [one for one in DIALECT_DIFFERENCES if one.operator in TIES], ids=lambda entry: entry.operator
)
def test_executorchs_operator_differs_by_a_quantum_at_ties(entry: DialectDifference) -> None:
    """Where it does not any more, the entry goes."""
    explicit = entry.operator.endswith("_nhwc")
    require([f"{entry.operator}.out"], layout="explicit" if explicit else "channels_last")
    called, arguments = operator(entry.operator), TIES[entry.operator]()
    theirs = called(*arguments)
    with kernel_arithmetic():
        ours = called(*arguments)
    assert (ours.dtype, ours.shape) == (theirs.dtype, theirs.shape)
    off = (ours.int() - theirs.int()).abs()
    assert off.max() == 1 and 0 < (off > 0).float().mean() < 0.6
