"""Simulate searches for a culprit at known failure rates; count the runs of each, and how often it is right.

    python ci/bisect_trials.py --trials 200 --seed 1

`hil bisect` is compared with the procedure of git_bayesect (the formula of its paper, Jeffreys priors, both ends taken
as right, ends at the confidence), and with a plain bisection that repeats each commit's run until enough failures are
counted, with the fewest repeats that are right as often as `hil bisect`. The plain one is given both failure rates,
which are unknown in practice.
"""

from __future__ import annotations

import argparse
import math
import random
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from cortex_m_hil.campaigns.bisection import posterior as beliefs
from cortex_m_hil.campaigns.bisection.bisect import BisectionOutcome, BisectionPlan, CommitLine, Source
from cortex_m_hil.campaigns.bisection.run_verdicts import RunVerdict
from cortex_m_hil.campaigns.git_history import Commit
from cortex_m_hil.campaigns.store import Run

RATES: Final = ((1.0, 0.0), (0.9, 0.0), (0.33, 0.0), (0.9, 0.1), (0.7, 0.3))  # failure rates of bad and of good commits
COMMITS: Final = 64
MOST_REPEATS: Final = 200
_JEFFREYS: Final = beliefs.Rates(beliefs.FailureRatePrior(0, 0.0), beliefs.FailureRatePrior(1, 0.0))


@dataclass(frozen=True)
class Trial:
    """The result of one search for a culprit.

    Attributes:
        claimed: whether the search ended with a culprit.
        right: whether it is the true culprit.
        runs: the number of runs that the search took.
    """

    claimed: bool
    right: bool
    runs: int


class Flaky:
    """A simulated test that fails at the rates `bad` and `good`, with a culprit at a random position."""

    def __init__(self, generator: random.Random, bad: float, good: float, commits: int = COMMITS) -> None:
        self._random, self._bad, self._good = generator, bad, good
        self.commits, self.culprit = commits, generator.randint(1, commits)
        self.runs = 0

    def fails(self, position: int) -> bool:
        self.runs += 1
        return self._random.random() < (self._bad if position >= self.culprit else self._good)


def line(commits: int, *, deterministic: bool = False) -> CommitLine:
    """Return a line of invented commits, for which there is no repository."""
    made = [Commit(f"{number:040d}", "", "", "", ()) for number in range(commits + 1)]
    return CommitLine(BisectionPlan(Source("/"), made[0].sha, made[-1].sha, deterministic=deterministic), made)


def ours(test: Flaky, *, deterministic: bool = False) -> Trial:
    search = line(test.commits, deterministic=deterministic)
    runs: list[Run] = []
    while (state := search.state(runs)).next is not None:
        told = RunVerdict.FAIL if test.fails(state.next) else RunVerdict.PASS
        runs.append(Run(search.commits[state.next].sha, told.value))
    found = state.outcome is BisectionOutcome.FOUND
    return Trial(found, found and state.candidates == (test.culprit,), test.runs)


def bayesect(test: Flaky) -> Trial:
    before = beliefs.prior([1.0] * test.commits, old_asserted=True, new_asserted=True)
    failures, passes = (np.zeros(test.commits + 1, np.int64) for _ in range(2))
    while True:
        found = beliefs.posterior(before, _JEFFREYS, failures, passes)
        assert found is not None
        if found.culprit.max() >= 0.95:
            return Trial(True, int(found.culprit.argmax()) == test.culprit, test.runs)
        position = beliefs.most_informative(found, np.ones(test.commits + 1))
        assert position is not None
        (failures if test.fails(position) else passes)[position] += 1


def plain(test: Flaky, repeats: int, enough: int) -> Trial:
    """Search by running both ends, and halving; a commit is bad if `enough` of at most `repeats` runs fail."""

    def is_bad(position: int) -> bool:
        failed = passed = 0
        while failed < enough and passed <= repeats - enough:
            if test.fails(position):
                failed += 1
            else:
                passed += 1
        return failed >= enough

    if not is_bad(test.commits) or is_bad(0):
        return Trial(False, False, test.runs)
    good, bad = 0, test.commits
    while bad - good > 1:
        middle = (good + bad) // 2
        good, bad = (good, middle) if is_bad(middle) else (middle, bad)
    return Trial(True, bad == test.culprit, test.runs)


def _at_least(repeats: int, enough: int, rate: float) -> float:
    """Return the probability of at least `enough` failures in `repeats` runs."""
    return sum(math.comb(repeats, k) * rate**k * (1 - rate) ** (repeats - k) for k in range(enough, repeats + 1))


def fewest_repeats(bad: float, good: float, accuracy: float) -> tuple[int, int]:
    """Return the fewest repeats, and how many failures of these mean bad, with which bisecting 64 commits is accurate.

    Args:
        bad: the failure rate of bad commits.
        good: the failure rate of good commits.
        accuracy: the required share of right results, if half of the tested commits are bad.
    """
    steps = math.log2(COMMITS) / 2 + 1  # runs of bad commits, and as many of good ones
    for repeats in range(1, MOST_REPEATS):
        for enough in range(1, repeats + 1):
            right = _at_least(repeats, enough, bad) ** steps * (1 - _at_least(repeats, enough, good)) ** steps
            if right >= accuracy:
                return repeats, enough
    raise AssertionError(f"no number of repeats tells {bad} from {good}")


@dataclass(frozen=True)
class Row:
    """A row of the table: the results of one procedure for one pair of failure rates.

    Attributes:
        right: the share of right results among trials that claimed a culprit.
        claimed: the number of trials that claimed a culprit.
        median: the median number of runs in all trials.
        p90: the 90th percentile of the runs in all trials.
    """

    procedure: str
    bad: float
    good: float
    right: float
    claimed: int
    trials: int
    median: float
    p90: float


def row(procedure: str, rates: tuple[float, float], trials: Sequence[Trial]) -> Row:
    claims = [one for one in trials if one.claimed]
    runs = sorted(one.runs for one in trials)
    right = sum(one.right for one in claims) / max(1, len(claims))
    p90 = runs[min(len(runs) - 1, math.ceil(0.9 * len(runs)))]
    return Row(procedure, *rates, right, len(claims), len(trials), statistics.median(runs), p90)


def trials(rates: tuple[float, float], number: int, seed: int, search: Callable[[Flaky], Trial]) -> list[Trial]:
    """Run a procedure on `number` tests; the same culprits for each procedure."""
    return [search(Flaky(random.Random(f"{seed} {rates} {one}"), *rates)) for one in range(number)]


def rows(rates: tuple[float, float], number: int, seed: int) -> list[Row]:
    mine = row("hil bisect", rates, trials(rates, number, seed, ours))
    repeats, enough = fewest_repeats(*rates, min(mine.right, 0.999))
    return [
        mine,
        row("git bayesect", rates, trials(rates, number, seed, bayesect)),
        row(f"{enough} of {repeats}", rates, trials(rates, number, seed, lambda test: plain(test, repeats, enough))),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    print("| bad/good | procedure | right | of | runs, median | 90 % |\n|---|---|---|---|---|---|")
    for rates in RATES:
        for one in rows(rates, given.trials, given.seed):
            share = f"{one.right:.1%} | {one.claimed}"
            print(
                f"| {rates[0]:.0%}/{rates[1]:.0%} | {one.procedure} | {share} | {one.median:g} | {one.p90:g} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
