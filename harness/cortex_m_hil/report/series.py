"""Measured figures, such as a board's cycles, over many nightlies: is the last one of the level of those before it?

The levels of a series are found by E-divisive with the means of distances (Matteson and James, "A Nonparametric
Approach for Multiple Change Point Analysis of Multivariate Data", JASA 109, 2014), as MongoDB's tools and Hunter do for
benchmarks (Fleming and others, arXiv 2301.03034). Whether the last value leaves the level is a test by Student's t, as
in Hunter: a permutation test cannot be sure of one value. The noise is that of all tests of the board together, since
one test has few nightlies; what they do together, as with a slower clock, is tested as one.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]
Label = TypeVar("Label", bound=Hashable)
ALPHA: Final = 1e-3  # of one nightly on one board: the probability of a false alarm
LEVEL_ALPHA: Final = 0.01  # of a change point within the past
PERMUTATIONS: Final = 199
SHORTEST: Final = 3  # nightlies of a level, for its end to be seen
LONGEST: Final = 100  # nightlies that are looked at


@dataclass(frozen=True)
class Shift:
    """From the mean of the level to the last value."""

    before: float
    after: float


def change_points(values: Sequence[float]) -> list[int]:
    """Where a new level begins, in order. Deterministic."""
    found: list[int] = []
    waiting = [(0, np.asarray(values, dtype=np.float64))]
    while waiting:
        begin, part = waiting.pop()
        at, statistic = _best_split(part)
        if at and _is_significant(part, statistic):
            found.append(begin + at)
            waiting += [(begin, part[:at]), (begin + at, part[at:])]
    return sorted(found)


def _best_split(values: Array) -> tuple[int, float]:
    """The position with the greatest energy distance between what is left and right of it; 0 if it is too short."""
    count = len(values)
    if count < 2 * SHORTEST:
        return 0, 0.0
    distances = np.abs(values[:, None] - values[None, :])
    sums = np.zeros((count + 1, count + 1))
    sums[1:, 1:] = distances.cumsum(0).cumsum(1)
    at = np.arange(SHORTEST, count - SHORTEST + 1)
    left, right = at.astype(np.float64), (count - at).astype(np.float64)
    within_left, total = sums[at, at], sums[count, count]
    between = sums[at, count] - within_left
    within_right = total - within_left - 2 * between
    means = 2 * between / (left * right), within_left / (left * (left - 1)), within_right / (right * (right - 1))
    statistics = left * right / count * (means[0] - means[1] - means[2])
    best = int(statistics.argmax())
    return int(at[best]), float(statistics[best])


def _is_significant(values: Array, statistic: float) -> bool:
    """By permutations, no more of them than it takes to know."""
    random, as_great = np.random.default_rng(0), 0
    for _ in range(PERMUTATIONS):
        as_great += _best_split(random.permutation(values))[1] >= statistic
        if (as_great + 1) / (PERMUTATIONS + 1) > LEVEL_ALPHA:
            return False
    return statistic > 0


def shifts(series: Mapping[Label, Sequence[float]]) -> tuple[Shift | None, dict[Label, Shift]]:
    """Of the tests of one board: of all of them together (as ratios), and of those that moved otherwise than these.

    Each series is in the order of the nightlies, and its last value is judged; not if it is too short, or has a value
    that is not positive.
    """
    known = {label: np.log(np.asarray(values[-LONGEST:])) for label, values in series.items() if _fits(values)}
    if not known:
        return None, {}
    levels = {label: values[_level(values[:-1]) :] for label, values in known.items()}
    means = {label: float(level[:-1].mean()) for label, level in levels.items()}
    together = _together(levels, means)
    common = float(np.mean([level[-1] - means[label] for label, level in levels.items()]))
    alone = common if together is not None else 0.0
    moved = {label: level[-1] - means[label] - alone for label, level in levels.items()}
    limits = _limits(levels, means)
    found = {label: _shift(levels[label], means[label]) for label, by in moved.items() if abs(by) > limits[label]}
    return together, found


def _fits(values: Sequence[float]) -> bool:
    return len(values) > SHORTEST and min(values) > 0


def _level(values: Array) -> int:
    """Where the last level begins."""
    return max([0, *change_points(list(values))])


def _shift(level: Array, mean: float) -> Shift:
    return Shift(float(np.exp(mean)), float(np.exp(level[-1])))


def _together(levels: Mapping[Label, Array], means: Mapping[Label, float]) -> Shift | None:
    """The mean of all tests, night for night, as far back as all have their level; None if it did not move."""
    if len(levels) < 2:
        return None
    length = min(map(len, levels.values()))
    nights = np.mean([level[-length:] - means[label] for label, level in levels.items()], axis=0)
    past, last = nights[:-1], float(nights[-1])
    limit = _students(ALPHA / 2, len(past) - 1) * float(past.std(ddof=1)) * float(np.sqrt(1 + 1 / len(past)))
    return Shift(1.0, float(np.exp(last))) if abs(last - float(past.mean())) > limit + _ROUNDING else None


_ROUNDING: Final = 1e-12  # of logarithms: a board that always takes the same cycles has no noise at all


def _limits(levels: Mapping[Label, Array], means: Mapping[Label, float]) -> dict[Label, float]:
    """How far the last value of each may be from its mean."""
    squares = sum(float(((level[:-1] - means[label]) ** 2).sum()) for label, level in levels.items())
    freedom = sum(len(level) - 2 for level in levels.values())
    noise = float(np.sqrt(squares / freedom))
    quantile = _students(ALPHA / 2 / len(levels), freedom)
    return {
        label: quantile * noise * float(np.sqrt(1 + 1 / (len(one) - 1))) + _ROUNDING for label, one in levels.items()
    }


def _students(tail: float, freedom: int) -> float:
    """The value that Student's t with so many degrees of freedom exceeds with this probability."""
    from scipy.stats import t

    return float(t.isf(tail, freedom))
