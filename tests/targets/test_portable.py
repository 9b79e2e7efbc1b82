"""The portable operators on every target, family by family, and models that need them."""

from __future__ import annotations

from functools import cache

import pytest

from cortex_m_hil import Exported
from cortex_m_hil.checks.comparison.tolerance import Tolerance
from cortex_m_hil.pytest_plugin.fixtures import Hil
from ordinary_models import Way, check
from portable_operators import FAMILIES, drawn

SEED = 2


@cache
def exported(family: str) -> Exported:
    """Once for all targets."""
    return drawn(family, SEED)


@pytest.mark.parametrize("family", FAMILIES)
def test_family(hil: Hil, family: str) -> None:
    program = hil.lower(exported(family), quantize=False)
    hil.verify(program, Tolerance(atol=1e-6, rtol=1e-5, eager_sqnr=100.0), known=FAMILIES[family].known)


COMPACT = ("mlp", "ecg", "gru", "transformer", "embedding", "leaky_relu", "group_norm", "upsample_bilinear", "temporal",
           "squeeze_excite", "pad_reflect", "argmax")  # fmt: skip
"""Of MODELS; tests/nightly has all."""


@pytest.mark.parametrize("way", Way)
@pytest.mark.parametrize("name", COMPACT)
def test_model(hil: Hil, name: str, way: Way) -> None:
    check(hil, name, way)
