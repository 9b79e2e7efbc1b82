"""Programs that take and give int8: the dialect's integers on each target, and fewer instructions than with floats."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

import published_networks
from cortex_m_hil.lowering.named_modules import NETWORKS, network
from cortex_m_hil.program.io_quantization import quantized
from cortex_m_hil.pytest_plugin.fixtures import Hil


def small_convolution_network() -> nn.Module:
    layers = nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.AvgPool2d(2), nn.Conv2d(8, 4, 3)
    return nn.Sequential(*layers)


@pytest.mark.parametrize(
    ("made", "shape"), [(lambda: nn.Linear(64, 10), (1, 64)), (small_convolution_network, (1, 3, 12, 12))]
)
def test_int8_in_and_out(hil: Hil, made: type[nn.Module], shape: tuple[int, ...]) -> None:
    torch.manual_seed(0)
    module, inputs = made(), (torch.randn(shape),)
    [figures] = hil.check(module, inputs, io="int8").outputs
    assert figures.max_quanta == 0 and figures.sqnr_db is not None and figures.sqnr_db > 20

    in_floats, in_int8 = hil.lower(module, inputs), hil.lower(module, inputs, io="int8")
    before = [one.operator for one in in_floats.file.instructions]
    after = [one.operator for one in in_int8.file.instructions]
    gone = {"cortex_m::quantize_per_tensor.out", "cortex_m::dequantize_per_tensor.out"}
    assert after == [one for one in before if one not in gone] and len(after) == len(before) - 2

    floats, integers = hil.run(in_floats), hil.run(in_int8)
    by = in_int8.output_quantization(0)
    assert by is not None
    np.testing.assert_array_equal(quantized(floats.outputs[0].array(), by)[0], integers.outputs[0].array())
    again = hil.run(in_int8, in_floats.inputs, quantize_inputs=True)
    assert again.outputs == integers.outputs and again.saturated is not None and again.saturated <= 0.01
    if floats.instructions is not None and integers.instructions is not None:
        converted = in_floats.file.input_specs()[0].numel + in_floats.file.output_specs()[0].numel
        assert integers.instructions < floats.instructions - converted  # at least one for each value


@pytest.mark.slow
@pytest.mark.target_timeout(600)
@pytest.mark.requires(ram="2M", flash="4M")
@pytest.mark.parametrize("name", [*NETWORKS, "mobilenet_v2"])
def test_whole_networks_with_int8_in_and_out(hil: Hil, name: str) -> None:
    """`pytest -s` shows the CPU instructions that the two conversions took."""
    module, inputs = published_networks.mobilenet_v2() if name == "mobilenet_v2" else network(name)
    in_floats, in_int8 = (hil.lower(module, inputs, io=io) for io in ("float", "int8"))
    comparison = hil.check(module, inputs, io="int8")
    assert comparison.outputs[0].max_quanta == 0
    names = [{one.operator for one in program.file.instructions} for program in (in_floats, in_int8)]
    conversions = {"cortex_m::quantize_per_tensor.out", "cortex_m::dequantize_per_tensor.out"}
    assert conversions <= names[0] and not conversions & names[1]
    floats, integers = hil.run(in_floats), hil.run(in_int8)
    by = in_int8.output_quantization(0)
    assert by is not None
    np.testing.assert_array_equal(quantized(floats.outputs[0].array(), by)[0], integers.outputs[0].array())
    print(f"\n{name} on {hil.target.name}: {floats.instructions} instructions, {integers.instructions} in int8")
