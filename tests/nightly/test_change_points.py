"""How often a board's step is told, and how often there was none: `pytest -s` prints the figures of docs/nightly.md."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import pytest

from cortex_m_hil.campaigns.report.change_points import ALPHA, SHORTEST, Shift, night_by_night

BOARDS, TESTS, NOISE, COMMON = 200, 20, 0.003, 0.002
LATER = 5  # nights after the first of a step


def told(
    seed: int, nights: int, tests: int, by: Callable[[int], float] = lambda _: 1.0
) -> Iterator[tuple[int, Shift | None, dict[int, Shift]]]:
    """Of a board on which so many tests take so many times their cycles, by night: the nights that tell something."""
    random = np.random.default_rng(seed)
    of_nights = random.normal(0, COMMON, nights)
    cycles = random.integers(10_000, 10_000_000, TESTS)
    series = {
        test: [
            float(one * np.exp(random.normal(0, NOISE) + common) * (by(night) if test < tests else 1))
            for night, common in enumerate(of_nights)
        ]
        for test, one in enumerate(cycles)
    }
    for night, (together, alone) in enumerate(night_by_night(series)):
        if together is not None or alone:
            yield night, together, alone


def test_of_noise_little_is_told() -> None:
    nights = 40
    false = sum(len(list(told(seed, nights, 0))) for seed in range(BOARDS)) / BOARDS / (nights - SHORTEST)
    print(f"\nfalse alarms a nightly: {false:.2%}")
    assert false < 2 * ALPHA


@pytest.mark.parametrize("at", [5, 10, 30])
@pytest.mark.parametrize("tests", [1, TESTS])
def test_a_step_is_told(at: int, tests: int) -> None:
    """3 %, from the `at`-th nightly on."""
    delays, others = [], 0
    for seed in range(BOARDS):
        nights = list(told(seed, at + LATER, tests, lambda night: 1.03 if night >= at - 1 else 1.0))
        right = [
            night - at + 1
            for night, together, alone in nights
            if night >= at - 1 and (together if tests == TESTS else 0 in alone)
        ]
        delays += right[:1]
        others += len(nights) - len(right[:1])
    within = [sum(delay <= nights for delay in delays) / BOARDS for nights in (0, 1, 2, LATER)]
    false = others / BOARDS / (at + LATER - SHORTEST)
    print(f"\n| {at} | {tests} | {' | '.join(f'{one:.1%}' for one in within)} | {false:.2%} |")
    assert within[-1] > 0.98 and (at == 5 or within[0] > 0.95) and false < 2 * ALPHA


@pytest.mark.parametrize("quiet", [4, 15])
def test_a_drift_is_told(quiet: int) -> None:
    """0.2 % a night, for 26 nights."""

    def by(night: int) -> float:
        return float(1.002 ** max(0, night - quiet + 1))

    found = [
        [night - quiet + 1 for night, together, _ in told(seed, quiet + 26, TESTS, by) if together and night >= quiet]
        for seed in range(BOARDS)
    ]
    first = [one[0] for one in found if one]
    often = sum(map(len, found)) / BOARDS
    print(
        f"\nafter {quiet}: {len(first) / BOARDS:.0%}, first on {np.quantile(first, [0.1, 0.5, 0.9])}, {often:.1f} times"
    )
    assert len(first) == BOARDS
