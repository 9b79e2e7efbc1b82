"""MLPerf Tiny's four networks, whole, as the executorch wheel ships them (weights are random, seeded)."""

from __future__ import annotations

from functools import cache

import pytest

from cortex_m_hil import Exported, export
from cortex_m_hil.lowering.named_modules import NETWORKS, network
from cortex_m_hil.pytest_plugin.fixtures import Hil

# What they need of a board, the tensors and the program.
NEEDS = {
    "deep_autoencoder": ("4K", "272K"),
    "ds_cnn": ("16K", "50K"),
    "mobilenet_v1_025": ("136K", "294K"),
    "resnet8": ("50K", "96K"),
}
assert NEEDS.keys() == NETWORKS.keys()


@cache
def exported(name: str) -> Exported:
    """Once for all targets."""
    return export(*network(name))


@pytest.mark.target_timeout(120)
@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=pytest.mark.requires(ram=ram, flash=flash)) for name, (ram, flash) in NEEDS.items()],
)
def test_network(hil: Hil, name: str) -> None:
    hil.check(exported(name), qtol=0, min_cortex_m=1)
