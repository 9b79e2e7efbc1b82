"""Portable operators on many random shapes against the wheel's, and all ordinary models on the three ISA classes."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import cortex_m_hil
from cortex_m_hil import OpenTarget, flow
from cortex_m_hil.flow.dut import Dut
from cortex_m_hil.targets.load import load_targets
from cortex_m_hil.targets.resolve import resolve
from dim_orders import Form
from ordinary_models import MODELS, Way, check
from portable_operators import FAMILIES, agree

SEEDS = range(10, 18)


@pytest.fixture(scope="module")
def runtimes() -> Iterator[tuple[Dut, Dut]]:
    targets = load_targets()
    with (
        flow.open_dut(resolve("native", targets)) as builtin,
        flow.open_dut(resolve("native", targets, runtime="executorch")) as executorch,
    ):
        yield builtin, executorch


@pytest.mark.parametrize("family", [name for name, one in FAMILIES.items() if one.in_executorch])
@pytest.mark.parametrize("seed", SEEDS)
def test_random_shapes(runtimes: tuple[Dut, Dut], family: str, seed: int) -> None:
    agree(*runtimes, family, seed)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("seed", SEEDS)
def test_random_dim_orders(runtimes: tuple[Dut, Dut], family: str, seed: int) -> None:
    for form in (Form.EXPORTED, Form.CHANNELS_LAST, Form.MIXED, Form.ANY):
        agree(*runtimes, family, seed, form)


@pytest.fixture(scope="module", params=["m4-qemu", "m55-qemu", "m0-qemu"])
def opened(request: pytest.FixtureRequest) -> Iterator[OpenTarget]:
    with cortex_m_hil.open(request.param) as target:
        yield target


@pytest.mark.parametrize("way", Way)
@pytest.mark.parametrize("name", MODELS)
def test_ordinary_models(opened: OpenTarget, name: str, way: Way) -> None:
    check(opened, name, way)
