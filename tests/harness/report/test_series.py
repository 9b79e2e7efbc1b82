"""Boards' cycles over many nightlies: steps are found, noise is not."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cortex_m_hil.report.series import SHORTEST, change_points, shifts

Series = Mapping[int, list[float]]


def board(
    seed: int, nights: int = 15, tests: int = 20, noise: float = 0.003, common: float = 0.0
) -> dict[int, list[float]]:
    """Cycles of each test on each night: of its own noise, and of one that all tests of a night share."""
    random = np.random.default_rng(seed)
    of_nights = random.normal(0, common, nights)
    return {
        test: [float(cycles * np.exp(random.normal(0, noise) + night)) for night in of_nights]
        for test, cycles in enumerate(random.integers(10_000, 10_000_000, tests))
    }


def changed(series: Series, tests: list[int], by: float) -> Series:
    """The last night's, so many times as slow."""
    return {label: [*values[:-1], values[-1] * by] if label in tests else values for label, values in series.items()}


@pytest.mark.parametrize("at", [10, 20])
def test_a_level_begins_where_it_does(at: int) -> None:
    random = np.random.default_rng(at)
    values = [*random.normal(100, 1, at), *random.normal(103, 1, 30 - at)]
    [found] = change_points(values)
    assert abs(found - at) <= 1


def test_noise_has_few_change_points() -> None:
    random = np.random.default_rng(1)
    assert sum(bool(change_points(list(random.normal(100, 1, 30)))) for _ in range(100)) <= 5


@given(st.lists(st.floats(1, 1e9), max_size=12))
@settings(max_examples=50)
def test_change_points_are_positions_apart(values: list[float]) -> None:
    found = [0, *change_points(values), len(values)]
    assert all(later - earlier >= SHORTEST for earlier, later in pairwise(found) if found[1:-1])
    assert change_points(values) == change_points(values)


def test_a_board_that_is_slower_is_told_once() -> None:
    for seed in range(10):
        together, alone = shifts(changed(board(seed, common=0.002), list(range(20)), 1.03))
        assert together is not None and together.after == pytest.approx(1.03, abs=0.01) and alone == {}


def test_a_test_that_is_slower_is_told_alone() -> None:
    for seed in range(10):
        together, alone = shifts(changed(board(seed), [7], 1.03))
        assert together is None and set(alone) == {7}
        assert alone[7].after / alone[7].before == pytest.approx(1.03, abs=0.012)


def test_of_noise_nothing_is_told() -> None:
    told = [shifts(board(seed, common=0.002)) for seed in range(50)]
    assert sum(together is not None or bool(alone) for together, alone in told) <= 1


def test_a_level_of_before_is_past() -> None:
    series = {label: [value * (1.2 if night < 8 else 1) for night, value in enumerate(values)]
              for label, values in board(3, nights=20).items()}  # fmt: skip
    assert shifts(series) == (None, {})


def test_a_board_without_noise_has_exact_figures() -> None:
    series: Series = {test: [1000.0] * 5 for test in range(4)}
    assert shifts(series) == (None, {})
    together, alone = shifts(changed(series, [2], 1.001))
    assert set(alone) == {2} or together is not None


@pytest.mark.parametrize("values", [[], [1.0], [1.0, 2.0, 3.0], [1.0, 1.0, 1.0, 0.0]])
def test_what_is_too_short_is_not_judged(values: list[float]) -> None:
    assert shifts({0: values, 1: values}) == (None, {})
