"""Detection of new levels of measured figures, such as a board's cycles, in the last of many nightlies.

The changepoint model of Hawkins, Qiu and Kang ("The Changepoint Model for Statistical Process Control", Journal of
Quality Technology 35, 2003): each night, every split of the level so far is tested by Student's t; where one is
significant, the new level begins there, and later nights are compared with it. So a step that its first night does not
show is reported by a later one, a drift when it has gone far enough, and both once. No state is kept from night to
night: the nights before are judged again, each by the data that it had.

A step that all tests of a board have in common, such as by a slower clock, is found in a series of its own. The noise
of all tests is estimated together, since one test has few nightlies.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]
Label = TypeVar("Label", bound=Hashable)
ALPHA: Final = 1e-3  # probability of a false alarm per night, for the common series of a board's tests
TESTS_ALPHA: Final = 2e-4  # the same for single tests: their noise is known well, so a small alpha costs little
PART_ALPHA: Final = 0.01  # probability that a reported shift names an operator that did not move
SHORTEST: Final = 3  # nights of a level at least, so that its end can be detected
LONGEST: Final = 100  # nights that are looked at at most at most
FEWEST: Final = 3  # tests of a board at least, for a common shift
ALL_PARTS: Final = "all operators"
_WHOLE: Final = 0.5  # cycles: a smaller step of an operator is ignored
_ROUNDING: Final = 1e-12  # least step of logarithms, for a board without any noise


@dataclass(frozen=True)
class Shift:
    """A step from the mean of a level to that of the next.

    Attributes:
        before: the mean of the level before.
        after: the mean of the new level.
        begin: the position of the first night of the level before.
        at: the position of the first night of the new level.
        stayed: for a shift of all tests together, the number of tests that did not move.
    """

    before: float
    after: float
    begin: int
    at: int
    stayed: int = 0


def shifts(series: Mapping[Label, Sequence[float]]) -> tuple[Shift | None, dict[Label, Shift]]:
    """Return the shifts of a board's tests that the last night shows.

    Args:
        series: for each test a value for each night, in order; NaN or a value that is not positive means no value.

    Returns:
        The common shift of all tests (as a ratio; None: no shift), and the shifts of tests that moved differently.
    """
    found: tuple[Shift | None, dict[Label, Shift]] = None, {}
    for found in night_by_night(series):  # noqa: B007 - the last item is used
        pass
    return found


def night_by_night(series: Mapping[Label, Sequence[float]]) -> Iterator[tuple[Shift | None, dict[Label, Shift]]]:
    """Yield the shifts detected in each night, using it and all earlier nights; in the form of `shifts`."""
    labels, logs = list(series), _logs(list(series.values()))
    own = _Levels(len(logs), logs.shape[1], TESTS_ALPHA if len(logs) >= FEWEST else ALPHA)
    shared = _Levels(1, logs.shape[1], ALPHA)
    for night, tonight in enumerate(logs.T):
        away = tonight - own.means()
        common = 0.0 if night == 0 else _common(away)
        shared.add(np.array([common]))
        own.add(tonight - (_of_others(away) if np.isfinite(common) and night else np.nan_to_num(shared.means())))
        begin, moved, found = int(shared.begins[0]), shared.new_levels().get(0), own.new_levels()
        here = logs[:, : night + 1]
        alone = {test: _shift(here[test], (begin, int(own.begins[test])), at) for test, at in found.items()}
        stayed = {test for test, one in alone.items() if _stayed(one, own.step(test, one.at))}
        together = None
        if moved is not None:
            together = Shift(1.0, float(np.exp(shared.step(0, moved))), begin, moved, len(stayed))
            shared.begin(0, moved)
        yield together, {labels[test]: one for test, one in alone.items() if test not in stayed}
        for test, at in found.items():
            if together is not None or test not in stayed:
                own.begin(test, at)


def _logs(values: Sequence[Sequence[float]]) -> Array:
    found = np.array(values, dtype=np.float64, ndmin=2)
    return np.log(found, out=np.full(found.shape, np.nan), where=found > 0)


def _common(away: Array) -> float:
    """Return how far most tests are from their levels (their median); NaN if there are fewer than `FEWEST` tests."""
    known = away[np.isfinite(away)]
    return float(np.median(known)) if len(known) >= FEWEST else float("nan")


def _of_others(away: Array) -> Array:
    """Return for each test how far most of the others are from their levels.

    A test is left out of its own median, since among few tests it would seem to have too little noise.
    """
    order = np.argsort(away)[: np.isfinite(away).sum()]
    found = np.full(len(away), np.median(away[order]))
    middle = np.array([len(order) // 2 - 1, (len(order) - 1) // 2])
    found[order] = away[order][middle + (middle >= np.arange(len(order))[:, None])].mean(axis=1)
    return found


def _shift(logs: Array, begins: Sequence[int], at: int) -> Shift:
    """Return a shift in measured values, from the night on where test and board both had their levels."""
    begin = max(one for one in begins if one < at)
    before, after = (float(np.exp(np.nanmean(part))) for part in (logs[begin:at], logs[at:]))
    return Shift(before, after, begin, at)


def _stayed(one: Shift, step: float) -> bool:
    """Tell whether the others moved and not this test: it moved by less than half of its relative step."""
    return float(np.log(one.after / one.before)) / step < 1 / 2


class _Levels:
    """The levels of several series, for the nights added so far: where each begins, and the noise of all series."""

    def __init__(self, series: int, nights: int, alpha: float) -> None:
        self._alpha = alpha
        self.begins = np.zeros(series, dtype=np.int64)
        self._nights = 0
        self._sums = np.zeros((3, series, nights + 1))  # before each night: number of values, sum, sum of squares
        self._first = np.full(series, np.nan)
        self._freedom, self._squares = 0.0, 0.0  # degrees of freedom and squared deviations of the levels that ended

    def add(self, values: Array) -> None:
        """Add a night with a value for each series; NaN where there is none."""
        self._first = np.where(np.isfinite(self._first), self._first, values)
        known = np.isfinite(values)
        small = np.where(known, values - self._first, 0.0)  # smaller numbers have more exact squares
        self._sums[:, :, self._nights + 1] = self._sums[:, :, self._nights] + np.stack([known, small, small**2])
        self._nights += 1

    def means(self) -> Array:
        """Return the mean of each series' current level; NaN where there was no value yet."""
        number, total, _ = self._level(self._nights)
        return np.asarray(self._first + total / np.maximum(number, 1), dtype=np.float64)

    def step(self, one: int, at: int) -> float:
        """Return the step of the series `one` from its current level to one that would begin at the night `at`."""
        ends = self._sums[:2, one, [self.begins[one], at, self._nights]]
        number, total = np.diff(ends)
        return float(np.diff(total / number)[0])

    def begin(self, one: int, at: int) -> None:
        """Begin a new level of the series `one` at the night `at`."""
        ended = self._sums[:, [one], at] - self._sums[:, [one], self.begins[one]]
        self._freedom += float(ended[0, 0]) - 1
        self._squares += float(_squares(ended)[0])
        self.begins[one] = at

    def new_levels(self) -> dict[int, int]:
        """Return by series where a new level begins, for new levels that the last night shows."""
        now, past = self._level(self._nights), self._level(self._nights - 1)
        judged = np.flatnonzero((now[0] > past[0]) & (past[0] >= SHORTEST))
        if not len(judged):
            return {}
        freedom = self._freedom + float(np.maximum(past[0] - 1, 0).sum())
        squares = self._squares + _squares(past).sum() + _squares(now) - _squares(past)
        splits = self._sums[:, judged, 1 : self._nights]
        before = splits - (self._sums[:, judged, self._nights] - now[:, judged])[:, :, None]
        ratios = _ratios(before, now[:, judged, None] - before, squares[judged, None], freedom, self._alpha)
        best = ratios.argmax(axis=1)
        found = zip(judged, best, ratios[np.arange(len(judged)), best], strict=True)
        return {int(one): int(at) + 1 for one, at, ratio in found if ratio > 1}

    def _level(self, end: int) -> Array:
        begun = self._sums[:, np.arange(len(self.begins)), self.begins]
        return np.asarray(self._sums[:, :, end] - begun, dtype=np.float64)


def _squares(sums: Array) -> Array:
    """Return the sums of squared differences from the mean, from numbers of values, their sums and sums of squares."""
    number, total, squares = sums
    return np.asarray(np.maximum(squares - total**2 / np.maximum(number, 1), 0.0), dtype=np.float64)


def _ratios(before: Array, after: Array, squares: Array, freedom: float, alpha: float) -> Array:
    """Return the distance of the means around each split, relative to the threshold by noise: [series, splits].

    A split with n nights after it has the share 1 / (n (n + 1)) of the probability of a false alarm; they sum to one.
    """
    possible = (before[0] > 0) & (after[0] > 0)
    left, right = (np.where(possible, part[0], 1.0) for part in (before, after))
    steps = np.where(possible, after[1] / right - before[1] / left, 0.0)
    scale = 1 / left + 1 / right
    noise = np.sqrt(np.maximum(squares - steps**2 / scale, 0.0) / freedom * scale)
    nights = np.arange(1, right.max() + 1)
    quantiles = _students(alpha / len(before[0]) / 2 / (nights * (nights + 1)), freedom)
    limits = quantiles[right.astype(np.int64) - 1] * noise + _ROUNDING
    return np.asarray(np.abs(steps) / limits, dtype=np.float64)


def _students(tails: Array, freedom: float) -> Array:
    """Return the values that Student's t with so many degrees of freedom exceeds with the probabilities `tails`."""
    # SciPy is used only for this: quantiles of tails as small as 1e-9, which no smaller package computes exactly.
    from scipy.special import stdtrit

    return np.asarray(-stdtrit(freedom, tails), dtype=np.float64)


def moved_parts(
    before: Sequence[Mapping[str, int]], after: Sequence[Mapping[str, int]]
) -> dict[str, tuple[float, float]]:
    """Return the operators whose cycles moved between two sets of nights by more than noise, largest step first.

    An operator has its own noise, or that of all operators if it seems to have less.

    Args:
        before: the cycles by operator, for each night of the level before.
        after: the cycles by operator, for each night of the new level.

    Returns:
        By operator the means before and after. If more than half of the operators moved by the same factor, as with a
        slower clock, only `ALL_PARTS` with the sums.
    """
    names = sorted({name for night in (*before, *after) for name in night})
    nights = len(before) + len(after)
    if not names or min(len(before), len(after)) < 1 or nights < SHORTEST:
        return {}
    old, new = (
        np.array([[night.get(name, 0) for name in names] for night in of], dtype=float) for of in (before, after)
    )
    was, is_now = old.mean(axis=0), new.mean(axis=0)
    if not was.any():
        return {}
    squares = ((old - was) ** 2).sum(axis=0) + ((new - is_now) ** 2).sum(axis=0)
    level = np.maximum(was, is_now)
    noise = np.sqrt(np.maximum(squares, level**2 * squares.sum() / (level**2).sum()) / (nights - 2))
    [quantile] = _students(np.array([PART_ALPHA / 2 / len(names)]), nights - 2)
    limit = quantile * noise * np.sqrt(1 / len(before) + 1 / len(after)) + _WHOLE
    moved = np.flatnonzero(np.abs(is_now - was) > limit)
    otherwise = np.abs(is_now - was * is_now.sum() / was.sum()) > limit
    if len(moved) > len(names) / 2 and len(names) > 1 and not otherwise.any():
        return {ALL_PARTS: (float(was.sum()), float(is_now.sum()))}
    largest = sorted(moved, key=lambda one: -abs(is_now[one] - was[one]))
    return {names[one]: (float(was[one]), float(is_now[one])) for one in largest}
