"""What fits the product, and what does not."""

from __future__ import annotations

import pytest
import torch

from cortex_m_hil import OpenTarget
from cortex_m_hil.errors import OutOfTargetMemory


def test_the_filter_runs(hil: OpenTarget) -> None:
    module = torch.nn.Sequential(torch.nn.Linear(64, 32), torch.nn.ReLU(), torch.nn.Linear(32, 8))
    hil.check(module, (torch.rand(1, 64),))


def test_what_is_too_large_is_refused_before_it_runs(hil: OpenTarget) -> None:
    """10,000 float32 numbers go in and come out: 80,000 bytes, where the product has 32K."""
    with pytest.raises(OutOfTargetMemory, match="32768"):
        hil.check(torch.nn.ReLU(), (torch.rand(1, 10_000),))
