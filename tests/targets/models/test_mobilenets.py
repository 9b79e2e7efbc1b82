"""MobileNetV2 and V3-small for images of 224 x 224: fully lowered, and right on the target.

The numbers of operators are those that ExecuTorch's own tests of torchvision's networks expect.
"""

from __future__ import annotations

from collections import Counter
from typing import Any, Final

import pytest

import published_networks
from cortex_m_hil.checks.lint import lint
from cortex_m_hil.checks.lint_rules.finding import Rule
from cortex_m_hil.pytest_plugin.fixtures import Hil
from cortex_m_hil.targets.load import load_targets

PARAMETERS: Final = {"mobilenet_v2": 3_504_872, "mobilenet_v3_small": 2_542_856}
MACS: Final = {"mobilenet_v2": 300_774_272, "mobilenet_v3_small": 56_510_400}  # the papers say 300 and 56 million
QUANTIZED: Final = {
    "mobilenet_v2": {"conv2d": 35, "depthwise_conv2d": 17, "add": 10, "avg_pool2d": 1, "linear": 1},
    "mobilenet_v3_small": {
        "conv2d": 41,
        "depthwise_conv2d": 11,
        "add": 6,
        "avg_pool2d": 10,
        "linear": 2,
        "mul": 28,
    },
}
# What lint says of a board with 2 MB for programs and 768 KB for tensors.
TOO_SMALL: Final = {
    "mobilenet_v2": {Rule.PROGRAM_POOL, Rule.PLANNED_POOL},
    "mobilenet_v3_small": {Rule.PROGRAM_POOL},
}
# What computes nothing, and what is on Cortex-M kernels without the prefix `quantized_`.
OTHERS: Final = {
    "dim_order_ops::_clone_dim_order.out",
    "cortex_m::quantize_per_tensor.out",
    "cortex_m::dequantize_per_tensor.out",
    "cortex_m::minimum.out",
}


def make(name: str) -> tuple[Any, tuple[Any, ...]]:
    made: tuple[Any, tuple[Any, ...]] = getattr(published_networks, name)()
    return made


@pytest.mark.parametrize("name", PARAMETERS)
def test_it_has_the_published_number_of_parameters(name: str) -> None:
    module, _ = make(name)
    assert sum(parameter.numel() for parameter in module.parameters()) == PARAMETERS[name]


@pytest.mark.slow
@pytest.mark.target_timeout(600)
@pytest.mark.requires(ram="2M", flash="4M")
@pytest.mark.parametrize("name", PARAMETERS)
def test_network(hil: Hil, name: str) -> None:
    program = hil.lower(*make(name))
    called = Counter(instruction.operator for instruction in program.file.instructions)
    quantized = {f"cortex_m::quantized_{kind}.out": count for kind, count in QUANTIZED[name].items()}
    assert {operator: count for operator, count in called.items() if operator not in OTHERS} == quantized
    assert program.partition.cortex_m_macs == 1
    assert program.partition.macs == MACS[name]
    findings = lint(program, load_targets()["alif-e8"], operators=None)
    assert {one.rule for one in findings} & {Rule.PROGRAM_POOL, Rule.PLANNED_POOL} == TOO_SMALL[name]
    hil.verify(program)
