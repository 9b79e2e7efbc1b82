"""The inner loops of each ISA class give what their scalar forms give, computed on the target and by NumPy."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from torch import nn

from cortex_m_hil import flow
from cortex_m_hil.flow.dut import Dut
from cortex_m_hil.program.tensor import HostTensor
from cortex_m_hil.targets.load import load_targets
from cortex_m_hil.targets.resolve import resolve
from misbehaving import OPTIONS, program

Array = npt.NDArray[np.int8]
NAMES = ("m55-fvp", "m4-fvp", "m0plus-fvp")

DOTS: Any = torch.library.Library("hil_test", "FRAGMENT")  # type: ignore[no-untyped-call]
DOTS.define("dots(Tensor a, Tensor b, int a_offset, int b_offset) -> Tensor")
DOTS.define("dots.out(Tensor a, Tensor b, int a_offset, int b_offset, *, Tensor(a!) out) -> Tensor(a!)")
DOTS.impl("dots", lambda a, b, p, q: a.new_zeros(7, dtype=torch.int32), "CompositeExplicitAutograd")
DOTS.impl("dots.out", lambda a, b, p, q, *, out: out.zero_(), "CompositeExplicitAutograd")


DOTS.define("blocks(Tensor a, Tensor b, Tensor words, int offset) -> Tensor")
DOTS.define("blocks.out(Tensor a, Tensor b, Tensor words, int offset, *, Tensor(a!) out) -> Tensor(a!)")
DOTS.impl("blocks", lambda a, b, w, p: a.new_zeros(8, dtype=torch.int32), "CompositeExplicitAutograd")
DOTS.impl("blocks.out", lambda a, b, w, p, *, out: out.zero_(), "CompositeExplicitAutograd")


class Blocks(nn.Module):
    def __init__(self, offset: int) -> None:
        super().__init__()
        self.offset = offset

    def forward(self, a: Any, b: Any, words: Any) -> Any:
        return torch.ops.hil_test.blocks(a, b, words, self.offset)


class Dots(nn.Module):
    def __init__(self, offsets: tuple[int, int]) -> None:
        super().__init__()
        self.offsets = offsets

    def forward(self, a: Any, b: Any) -> Any:
        return torch.ops.hil_test.dots(a, b, *self.offsets)


def dots_by_host(a: Array, b: Array, offsets: tuple[int, int]) -> list[int]:
    """What every ISA must put out: see test_dots in firmware/runtime/builtin/kernels/testing.cpp."""
    wide = [vector.astype(np.int64) for vector in (a, b)]
    terms = wide[0] * wide[1], wide[0], (wide[0] + offsets[0]) * (wide[1] + offsets[1])
    ranges = [(start, count) for start in range(len(a) + 1) for count in range(len(a) - start + 1)]
    sums = []
    for form, term in enumerate(terms):
        before = np.concatenate([[0], np.cumsum(term)])
        total = sum(int(before[start + count] - before[start]) for start, count in ranges)
        if form != 1:  # the accumulators' first values
            total += sum(start * 0x01000193 + count for start, count in ranges)
        sums.append((total + 2**31) % 2**32 - 2**31)
    return [len(ranges), 0, 0, 0, *sums]


@pytest.fixture(scope="module")
def test_duts() -> Iterator[list[Dut]]:
    opened = [flow.open_dut(resolve(name, load_targets()), options=OPTIONS) for name in NAMES]
    yield opened
    for dut in opened:
        dut.close()


@pytest.mark.slow
@pytest.mark.parametrize("length", [1, 15, 16, 33, 70])
@pytest.mark.parametrize("offsets", [(0, 0), (128, 0), (-127, 128), (255, -255)])
def test_inner_loops_equal_their_scalar_form(test_duts: list[Dut], length: int, offsets: tuple[int, int]) -> None:
    random = np.random.default_rng([length, *map(abs, offsets)])
    a, b = (random.integers(-128, 128, length, np.int8) for _ in range(2))
    a[: length // 4] = b[: length // 4] = -128  # the largest product
    tensors = tuple(torch.from_numpy(vector) for vector in (a, b))
    lowered = program(Dots(offsets), tensors)
    for dut in test_duts:
        result = flow.run(dut, lowered, tuple(HostTensor.from_array(vector) for vector in (a, b)))
        assert result.outputs[0].array().tolist() == dots_by_host(a, b, offsets), dut.target.name


@pytest.mark.slow
@pytest.mark.parametrize("offset", [0, 128, -127])
def test_blocks_equal_their_scalar_form(test_duts: list[Dut], offset: int) -> None:
    """Sums of blocks of channels, their outputs, and sums of quantised items: see kernels/testing_blocks.cpp."""
    random = np.random.default_rng(abs(offset))
    a, b = (random.integers(-128, 128, 64, np.int8) for _ in range(2))
    words = random.integers(-(2**31), 2**31, 80, np.int32)
    a[:20] = b[:20] = -128  # the largest product
    vectors = a, b, words
    lowered = program(Blocks(offset), tuple(torch.from_numpy(vector) for vector in vectors))
    for dut in test_duts:
        result = flow.run(dut, lowered, tuple(HostTensor.from_array(vector) for vector in vectors))
        compared, different = result.outputs[0].array().reshape(4, 2).T.tolist()
        assert different == [0, 0, 0, 0], dut.target.name
        assert compared == [5319, 1322, 64, 65], dut.target.name
