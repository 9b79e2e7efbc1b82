"""Branches that are taken by values: only the one that is taken runs."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from cortex_m_hil.pytest_plugin.fixtures import Hil
from networks import Apply

X = torch.linspace(-1, 2, 12).reshape(1, 3, 4)


def one_branch(x: Any) -> Any:
    return torch.cond(x.sum() > 0, lambda y: y + 1, lambda y: y * 2 - 1, (x,))


def branches_in_a_branch(x: Any) -> Any:
    def positive(y: Any) -> Any:
        return torch.cond(y.amax() > 1, lambda z: z / 2, lambda z: z + 0.5, (y,))

    return torch.relu(torch.cond(x.sum() > 0, positive, lambda y: y * 2 - 1, (x,)) + x)


@pytest.mark.parametrize("work", [one_branch, branches_in_a_branch])
def test_each_branch_is_taken(hil: Hil, work: Any) -> None:
    for x in (X, -X, X / 4):
        hil.check(Apply(work), (x,), quantize=False)
