"""How often a board's step is told, and how often there was none: `pytest -s` prints the table of docs/nightly.md."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from cortex_m_hil.report.series import shifts

BOARDS, TESTS, NOISE, COMMON = 300, 20, 0.003, 0.002


def board(random: np.random.Generator, nights: int) -> dict[int, list[float]]:
    of_nights = random.normal(0, COMMON, nights)
    cycles = random.integers(10_000, 10_000_000, TESTS)
    return {
        test: [float(one * np.exp(random.normal(0, NOISE) + night)) for night in of_nights]
        for test, one in enumerate(cycles)
    }


def judged(nights: int, step: float, tests: range) -> Counter[str]:
    """Of boards on whose last night these tests are so much slower: what was told rightly, wrongly, and not."""
    random, found = np.random.default_rng(nights), Counter[str]()
    for _ in range(BOARDS):
        series = board(random, nights)
        for test in tests:
            series[test][-1] *= 1 + step
        together, alone = shifts(series)
        every = len(tests) == TESTS
        hit = together is not None if every else any(test in alone for test in tests)
        false = set(alone) - set(tests) or (together is not None and not every)
        found["told"] += bool(hit and step)
        found["false"] += bool(false or (not step and (together or alone)))
    return found


@pytest.mark.parametrize("nights", [5, 10, 30])
def test_steps_are_told_and_noise_is_not(nights: int) -> None:
    none, one, every = (judged(nights, *asked) for asked in ((0.0, range(0)), (0.03, range(1)), (0.03, range(TESTS))))
    told = [one["told"] / BOARDS, every["told"] / BOARDS]
    false = (none["false"] + one["false"]) / (2 * BOARDS)
    print(f"| {nights} | {told[0]:.1%} | {told[1]:.1%} | {false:.2%} |")
    assert false < 0.01 and told[0] > 0.95 and (nights < 10 or told[1] > 0.95)
