"""Boards' cycles over many nightlies: steps are found, noise is not."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cortex_m_hil.campaigns.report.change_points import (
    ALL_PARTS,
    Shift,
    moved_parts,
    night_by_night,
    shifts,
)

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


def judged(series: Series) -> Iterator[tuple[int, Shift | None, dict[int, Shift]]]:
    """The nights on which something is told."""
    for night, (together, alone) in enumerate(night_by_night(series)):
        if together is not None or alone:
            yield night, together, alone


def slowed(series: Series, tests: list[int], by: Callable[[int], float]) -> Series:
    return {
        label: [value * (by(night) if label in tests else 1) for night, value in enumerate(values)]
        for label, values in series.items()
    }


@pytest.mark.parametrize("at", [10, 20])
def test_a_level_begins_where_it_does(at: int) -> None:
    random = np.random.default_rng(at)
    values = [*random.normal(100, 1, at), *random.normal(103, 1, 30 - at)]
    [(night, _, alone)] = judged({0: values})
    assert abs(alone[0].at - at) <= 1 and night - at <= 4


@pytest.mark.first_only
@pytest.mark.parametrize(("tests", "boards"), [(1, 30), (2, 30), (3, 30), (20, 60)])
def test_of_noise_little_is_told(tests: int, boards: int) -> None:
    """0.5 % of the nights at most; tests/nightly/test_change_points.py measures it."""
    told = sum(len(list(judged(board(seed, 25, tests, common=0.002)))) for seed in range(boards))
    assert told <= 0.005 * boards * 25


def test_noise_that_seemed_small_at_first_is_learned() -> None:
    """Where three nights are alike by chance, the fourth is told, and not each after it."""
    values = [1.0, 1.0000001, 1.0, *np.random.default_rng(0).normal(1, 0.01, 30)]
    assert len(list(judged({0: values}))) <= 3


@given(st.lists(st.lists(st.floats(1, 1e9) | st.just(0.0), min_size=9, max_size=9), min_size=1, max_size=5))
@settings(max_examples=50)
def test_what_a_night_shows_is_decided_by_the_nights_until_then(values: list[list[float]]) -> None:
    series = dict(enumerate(values))
    for night, told in enumerate(night_by_night(series)):
        assert shifts({label: one[: night + 1] for label, one in series.items()}) == told


def test_a_step_is_told_once_and_by_a_later_night_if_the_first_does_not_show_it() -> None:
    """3 % at the fifth night: four nights know little of a board's noise."""
    when = []
    for seed in range(30):
        series = slowed(board(seed, 11, common=0.002), list(range(20)), lambda night: 1.03 if night >= 4 else 1)
        [(night, together, alone)] = judged(series)
        assert together is not None and (together.at, alone) == (4, {})
        when.append(night - 4)
    assert max(when) <= 3 and sum(night <= 1 for night in when) >= 18


def test_a_drift_is_told_when_it_has_gone_far_enough() -> None:
    """0.2 % a night; and again when it has gone as far again."""
    for seed in range(20):
        series = slowed(board(seed, 30, common=0.002), list(range(20)), lambda night: 1.002 ** max(0, night - 3))
        [(first, *_), *more] = judged(series)
        assert first <= 20 and len(more) <= 4


def test_where_most_tests_are_slower_the_others_are_not_faster() -> None:
    for seed in range(10):
        series = slowed(board(seed, common=0.002), list(range(12)), lambda night: 1.03 if night >= 9 else 1)
        [(_, together, alone)] = judged(series)
        assert together is not None and together.stayed in (7, 8) and alone == {}
        assert together.after == pytest.approx(1.03, abs=0.01)


def test_a_test_that_is_missing_on_some_nights_is_no_change_of_the_others() -> None:
    random = np.random.default_rng(0)
    series = {
        label: [value if random.random() < 0.9 else math.nan for value in values[(3 * label) % 20 :]]
        for label, values in board(0, 60, common=0.002).items()
    }
    longest = max(map(len, series.values()))
    aligned = {label: [*[math.nan] * (longest - len(values)), *values] for label, values in series.items()}
    assert list(judged(aligned)) == []


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


CYCLES = {"conv": 20_000, "linear": 12_000, "softmax": 6_000, "add": 2_000}


def nights_of_operators(seed: int, number: int, **by: float) -> list[dict[str, int]]:
    random = np.random.default_rng(seed)
    return [
        {name: round(of * by.get(name, 1) * float(random.normal(1, 0.003))) for name, of in CYCLES.items()}
        for _ in range(number)
    ]


def test_the_operator_that_is_slower_is_named_and_no_other() -> None:
    found = [
        tuple(moved_parts(nights_of_operators(seed, 10), nights_of_operators(seed + 1000, 1, linear=1.05)))
        for seed in range(100)
    ]
    assert found.count(("linear",)) >= 95


def test_where_all_operators_are_slower_that_is_said() -> None:
    slower = dict.fromkeys(CYCLES, 1.03)
    found = [
        moved_parts(nights_of_operators(seed, 10), nights_of_operators(seed + 1000, 1, **slower)) for seed in range(100)
    ]
    assert sum(set(one) == {ALL_PARTS} for one in found) >= 95


def test_of_the_noise_of_operators_nothing_is_named() -> None:
    found = [moved_parts(nights_of_operators(seed, 10), nights_of_operators(seed + 1000, 1)) for seed in range(100)]
    assert sum(map(bool, found)) <= 3


def test_an_operator_that_is_new_or_gone_is_named_largest_first() -> None:
    after = [{**night, "conv_fast": 500, "linear": 0} for night in nights_of_operators(1, 2)]
    assert list(moved_parts(nights_of_operators(0, 10), after)) == ["linear", "conv_fast"]


@pytest.mark.parametrize("before", [[], [{}], [{}, {}, {}], [{"a": 0}] * 3])
def test_of_operators_without_a_past_nothing_is_named(before: list[dict[str, int]]) -> None:
    assert moved_parts(before, [{"a": 1}]) == {}
