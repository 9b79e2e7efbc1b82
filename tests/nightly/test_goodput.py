"""The share of a line's rate that is payload: against the clock, so not where other work shares the machine."""

from __future__ import annotations

import pytest

from goodput import measure


@pytest.mark.parametrize(
    ("baud", "corrupt", "share", "nbytes"),
    [
        (115200, 0.0, 0.90, 40_000),
        (115200, 0.001, 0.75, 80_000),
        (921600, 0.0, 0.90, 400_000),
        (921600, 0.001, 0.75, 600_000),
    ],
)
def test_goodput(baud: int, corrupt: float, share: float, nbytes: int) -> None:
    """Of three attempts the best: a busy host only takes away."""
    found = []
    for seed in range(3):
        found.append(measure(baud, corrupt, nbytes, seed).mean)
        if found[-1] >= share:
            return
    assert max(found) >= share
