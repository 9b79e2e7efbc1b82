"""Bayesian search for the commit that changed how often a test fails: the posterior, and the most informative next run.

A line of commits has positions 0 … n: 0 is the old end, n the new one. With the culprit at `c` a run at a position
below `c` fails with one unknown rate, at `c` and above with another. A culprit of 1 … n is one of the commits; 0 and n
+ 1 mean that the ends do not differ: all commits have the new outcome, or all have the old one.

The formula is that of git_bayesect (Shantanu Jain, https://hauntsaninja.github.io/git_bayesect.html, MIT): Beta priors
of both rates integrated out, and the expected entropy of the posterior minimised one run ahead. The package
git_bayesect is not used: it needs scipy, gives commits that cannot be tested the probability 0, and supports neither a
rate that is exactly 0 or 1 nor ends that do not differ.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]
Counts = npt.NDArray[np.int64]
OUTSIDE: Final = 0.01  # prior probability, for each end that is not asserted, that the user's outcome is wrong


@dataclass(frozen=True)
class FailureRatePrior:
    """The prior of a failure rate: exactly `exact` (0 or 1) with probability `certainty`, else Beta(alpha, beta)."""

    exact: int
    certainty: float
    alpha: float = 0.5
    beta: float = 0.5

    def log_evidence(self, failures: Counts, passes: Counts) -> Array:
        """Return the logarithm of the probability of so many failures and passes, in one particular order."""
        rises = (self.alpha, failures), (self.beta, passes), (self.alpha + self.beta, failures + passes)
        ours, others, all_of_them = (_log_rising(start, count) for start, count in rises)
        impossible = (failures if self.exact == 0 else passes) > 0
        with np.errstate(divide="ignore"):
            exactly = np.where(impossible, -np.inf, np.log(self.certainty))
            return np.logaddexp(exactly, np.log1p(-self.certainty) + ours + others - all_of_them)


def _log_rising(start: float, count: Counts) -> Array:
    """Return log(start · (start + 1) · …) with `count` factors, for each element of `count`."""
    sums = np.concatenate([[0.0], np.cumsum(np.log(start + np.arange(count.max(initial=0))))])
    return np.asarray(sums[count])


@dataclass(frozen=True)
class Rates:
    """Priors of the rates at which old and new commits fail."""

    old: FailureRatePrior
    new: FailureRatePrior


RARELY: Final = 0.001  # the least chance of a commit between two that could not be tested; such commits are tried last
DETERMINISTIC: Final = Rates(FailureRatePrior(0, 1.0), FailureRatePrior(1, 1.0))
FLAKY: Final = Rates(FailureRatePrior(0, 0.2), FailureRatePrior(1, 0.1))


@dataclass(frozen=True)
class Posterior:
    """The probabilities that follow from the runs so far.

    Attributes:
        culprit: the probability of each culprit, a position 1 … n; 0: the old end is new already; n + 1: the new end is
            still old.
        fails_next_old: for each culprit, the probability that the next run fails at a position below it.
        fails_next_new: for each culprit, the probability that the next run fails at its position or above.
    """

    culprit: Array
    fails_next_old: Array
    fails_next_new: Array

    @property
    def outside(self) -> float:
        """Return the probability that the two ends do not differ."""
        return float(self.culprit[0] + self.culprit[-1])

    def entropy(self) -> float:
        """Return the entropy of the probabilities of the culprits, in bits."""
        return max(0.0, float(-_x_log_x(self.culprit).sum()))

    def expected_entropy(self) -> Array:
        """Return for each position, 0 … n, the expected entropy in bits after a run of this position."""
        left = np.zeros(len(self.culprit) - 1)
        for old, new in (
            (self.fails_next_old, self.fails_next_new),
            (1 - self.fails_next_old, 1 - self.fails_next_new),
        ):
            below, above = self.culprit * new, self.culprit * old  # the position has a new commit, or an old one
            total = np.cumsum(below)[:-1] + _from_above(above)[1:]
            logs = np.cumsum(_x_log_x(below))[:-1] + _from_above(_x_log_x(above))[1:]
            left += _x_log_x(total) - logs
        return left


def _from_above(values: Array) -> Array:
    return np.asarray(np.cumsum(values[::-1])[::-1])


def _x_log_x(values: Array) -> Array:
    return np.asarray(np.where(values > 0, values * np.log2(np.where(values > 0, values, 1.0)), 0.0))


def prior(weights: Sequence[float], *, old_asserted: bool = False, new_asserted: bool = False) -> Array:
    """Return the prior probability of each culprit, 0 … n + 1.

    Args:
        weights: the relative weights of the commits 1 … n.
        old_asserted: whether the old end is known to be old, so that culprit 0 is impossible.
        new_asserted: whether the new end is known to be new, so that culprit n + 1 is impossible.
    """
    inside = np.asarray(weights, dtype=np.float64)
    ends = [0.0 if old_asserted else OUTSIDE], [0.0 if new_asserted else OUTSIDE]
    inside *= (1.0 - ends[0][0] - ends[1][0]) / inside.sum()
    return np.concatenate([ends[0], inside, ends[1]])


def posterior(prior: Array, rates: Rates, failures: Counts, passes: Counts) -> Posterior | None:
    """Compute the posterior from a prior and the runs so far.

    Args:
        prior: the prior probability of each culprit, 0 … n + 1.
        rates: the priors of the failure rates.
        failures: the number of failed runs at each position, 0 … n.
        passes: the number of passed runs at each position.

    Returns:
        The posterior; None if no culprit can explain the runs.
    """
    below, failed_below = _below(passes), _below(failures)
    old = failed_below, below
    new = failures.sum() - failed_below, passes.sum() - below
    log_old, log_new = rates.old.log_evidence(*old), rates.new.log_evidence(*new)
    with np.errstate(divide="ignore", invalid="ignore"):
        logs = np.log(prior) + log_old + log_new
        if logs.max() == -np.inf:
            return None
        weights = np.exp(logs - logs.max())
        next_old = np.exp(rates.old.log_evidence(old[0] + 1, old[1]) - log_old)
        next_new = np.exp(rates.new.log_evidence(new[0] + 1, new[1]) - log_new)
    # An impossible culprit has no next run (NaN), and no weight.
    return Posterior(weights / weights.sum(), np.nan_to_num(next_old), np.nan_to_num(next_new))


def _below(counts: Counts) -> Counts:
    """Return for each culprit, 0 … n + 1, the sum of the counts at the positions below it."""
    return np.concatenate([[0], np.cumsum(counts)])


def most_informative(found: Posterior, chances: Array) -> int | None:
    """Return the commit whose test tells most about the culprit; on a tie the middle one; None if none may be tested.

    `chances` has for each position the probability that a run gives a verdict at all; 0 where
    none may be run.
    """
    gains = chances * (found.entropy() - found.expected_entropy())
    gains = np.where(chances > 0, gains, -np.inf)
    most = gains.max()
    if not np.isfinite(most):
        return None
    best = np.flatnonzero(gains >= most - 1e-9)
    return int(best[len(best) // 2])


def chances(told: npt.NDArray[np.bool_], untestable: npt.NDArray[np.bool_]) -> Array:
    """Estimate for each position the probability that its run gives a verdict, from the nearest runs on both sides.

    Commits that cannot be tested are mostly neighbours, with the same cause. Between a commit with a verdict and one
    that could not be tested the chance is interpolated linearly; between two that could not be tested it is small.

    Args:
        told: True at positions where a run gave a verdict.
        untestable: True at positions that could not be tested; the chance there is 0 unless another run gave a verdict.
    """
    known = np.flatnonzero(told | untestable)
    if not len(known):
        return np.ones(len(told))
    between = np.interp(np.arange(len(told)), known, told[known].astype(np.float64))
    return np.where(untestable & ~told, 0.0, np.maximum(between, RARELY))
