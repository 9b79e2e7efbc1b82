"""The three ISA classes give the same bits: whole programs, and the inner loops beside their scalar forms."""

from __future__ import annotations

import dataclasses
import struct
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from executorch.examples.models.mlperf_tiny.deep_autoencoder import DeepAutoEncoderModel
from executorch.examples.models.mlperf_tiny.ds_cnn import DSCNNKWSModel
from executorch.examples.models.mlperf_tiny.mobilenet_v1_025 import MobileNetV1025Model
from executorch.examples.models.mlperf_tiny.resnet8 import ResNet8Model
from torch import nn

from cortex_m_hil import flow
from cortex_m_hil.flow.dut import Dut
from cortex_m_hil.lowering import Layout
from cortex_m_hil.program.program import Program
from cortex_m_hil.program.tensor import HostTensor
from cortex_m_hil.targets.cpu import Isa
from cortex_m_hil.targets.load import load_targets
from cortex_m_hil.targets.resolve import resolve
from misbehaving import OPTIONS, program
from networks import Net

Array = npt.NDArray[np.int8]
NAMES = {Isa.MVE: "m55-fvp", Isa.DSP: "m4-fvp", Isa.SCALAR: "m0plus-fvp"}


CASES: dict[str, Callable[[], tuple[nn.Module, tuple[int, ...]]]] = {
    "net": lambda: (Net(), (1, 3, 17, 17)),
    "linear": lambda: (nn.Linear(67, 21), (5, 67)),
    "depth_multiplier": lambda: (nn.Conv2d(5, 15, 3, groups=5), (1, 5, 9, 8)),
    "grouped": lambda: (nn.Conv2d(6, 9, (2, 3), groups=3, padding=1), (1, 6, 9, 8)),
    "softmax": lambda: (nn.Softmax(-1), (9, 45)),
}


@pytest.fixture(scope="module")
def duts() -> Iterator[dict[Isa, Dut]]:
    opened = {isa: flow.open_dut(resolve(name, load_targets())) for isa, name in NAMES.items()}
    yield opened
    for dut in opened.values():
        dut.close()


def agree(duts: dict[Isa, Dut], module: nn.Module, inputs: tuple[Any, ...], layout: Layout = "channels_last") -> Any:
    """The bits that all agree on."""
    bits = {}
    exported = flow.export(module, inputs, layout=layout)
    for isa, dut in duts.items():
        assert dut.target.isa is isa
        result = flow.run(dut, flow.lower(exported, isa=isa))
        bits[isa] = result.outputs[0].array()
    assert bits[Isa.MVE].tobytes() == bits[Isa.DSP].tobytes() == bits[Isa.SCALAR].tobytes()
    return bits[Isa.SCALAR]


def test_an_average_pool_of_executorch_1_4_1(duts: dict[Isa, Dut]) -> None:
    """It has no ceil_mode, which is False here."""
    dut = duts[Isa.SCALAR]
    now = flow.lower(nn.AvgPool2d(3, 2), (torch.randn(1, 4, 9, 9),), isa=Isa.SCALAR)
    (call,) = (one for one in now.file.instructions if one.operator == "cortex_m::quantized_avg_pool2d.out")
    before = [value for place, value in enumerate(call.args) if place != 4]
    assert len(before) == 10
    pte = now.pte.replace(struct.pack("<I11i", 11, *call.args), struct.pack("<I11i", 10, *before, 0))
    result = flow.run(dut, dataclasses.replace(Program.from_bytes(pte, "1.4.1"), inputs=now.inputs))
    assert result.outputs == flow.run(dut, now).outputs


@pytest.mark.parametrize("layout", ["channels_last", "explicit"])
@pytest.mark.parametrize("name", CASES)
def test_the_classes_agree_bit_for_bit(duts: dict[Isa, Dut], name: str, layout: Layout) -> None:
    torch.manual_seed(1)
    module, shape = CASES[name]()
    assert len(np.unique(agree(duts, module, (torch.randn(shape),), layout))) > 8


@pytest.mark.parametrize("model", [DeepAutoEncoderModel, DSCNNKWSModel, MobileNetV1025Model, ResNet8Model])
def test_the_classes_agree_on_mlperf_tiny(duts: dict[Isa, Dut], model: Any) -> None:
    torch.manual_seed(1)
    network = model()
    assert len(np.unique(agree(duts, network.get_eager_model(), network.get_example_inputs()))) > 1


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
    opened = [flow.open_dut(resolve(name, load_targets()), options=OPTIONS) for name in NAMES.values()]
    yield opened
    for dut in opened:
        dut.close()


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
