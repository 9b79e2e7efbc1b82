"""What runs tell of a culprit: probabilities that are right, in any order, on tests that fail at any rate."""

from __future__ import annotations

import math
import random
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bisect_trials import COMMITS, Flaky, bayesect, fewest_repeats, line, ours, trials
from cortex_m_hil.campaigns.bisection import posterior as beliefs
from cortex_m_hil.campaigns.bisection.bisect import END_TRIES, SWAPPED_TRIES, BisectionOutcome, CommitLine
from cortex_m_hil.campaigns.bisection.run_verdicts import RunVerdict
from cortex_m_hil.campaigns.store import Run

SMALL = 12  # commits
TOLD = st.sampled_from([RunVerdict.PASS, RunVerdict.FAIL, RunVerdict.INFRA, RunVerdict.BUILD])
RUNS = st.lists(st.tuples(st.integers(0, SMALL), TOLD), max_size=30)


def runs_of(made: list[tuple[int, RunVerdict]]) -> list[Run]:
    commits = line(SMALL).commits
    return [Run(commits[at].sha, told.value) for at, told in made]


@given(RUNS)
def test_probabilities_sum_to_one(made: list[tuple[int, RunVerdict]]) -> None:
    state = line(SMALL).state(runs_of(made))
    assert math.isclose(sum(state.posterior), 1.0)
    assert all(0.0 <= one <= 1.0 for one in state.posterior)
    assert 0.0 <= state.probability <= 1.0 + 1e-9 and state.bits >= 0.0


@given(RUNS, st.randoms(use_true_random=False))
def test_the_order_of_runs_does_not_matter(made: list[tuple[int, RunVerdict]], shuffler: random.Random) -> None:
    before = line(SMALL).state(runs_of(made))
    shuffler.shuffle(made)
    after = line(SMALL).state(runs_of(made))
    assert (after.outcome, after.next, after.candidates) == (before.outcome, before.next, before.candidates)
    np.testing.assert_allclose(after.posterior, before.posterior)


@given(st.integers(1, SMALL), st.integers(1, 6), st.integers(1, 6))
def test_a_failure_makes_later_culprits_less_probable(at: int, failures: int, passes: int) -> None:
    """Where the ends have passed and failed before, so that it is known which side fails."""
    made = [(0, RunVerdict.PASS)] * passes + [(SMALL, RunVerdict.FAIL)] * failures
    before, after = (line(SMALL).state(runs_of([*made, *more])).posterior for more in ([], [(at, RunVerdict.FAIL)]))
    assert sum(after[1 : at + 1]) >= sum(before[1 : at + 1]) - 1e-12
    after = line(SMALL).state(runs_of([*made, (at, RunVerdict.PASS)])).posterior
    assert sum(after[1 : at + 1]) <= sum(before[1 : at + 1]) + 1e-12


@given(st.lists(st.tuples(st.integers(0, 4), st.booleans()), max_size=5))
def test_the_evidence_is_the_integral_over_both_rates(made: list[tuple[int, bool]]) -> None:
    """Against a sum over a fine grid of rates, for the Beta part alone."""
    rates = beliefs.Rates(beliefs.FailureRatePrior(0, 0.0, 1.5, 2.0), beliefs.FailureRatePrior(1, 0.0, 2.0, 1.0))
    failures, passes = (np.array([made.count((at, fails)) for at in range(5)]) for fails in (True, False))
    before = beliefs.prior([1.0] * 4)
    found = beliefs.posterior(before, rates, failures, passes)
    assert found is not None
    grid = (np.arange(4000) + 0.5) / 4000
    densities = [grid ** (one.alpha - 1) * (1 - grid) ** (one.beta - 1) for one in (rates.old, rates.new)]
    weights = []
    for culprit, known in enumerate(before):
        sides = slice(0, culprit), slice(culprit, None)
        parts = [
            (density * grid ** failures[side].sum() * (1 - grid) ** passes[side].sum()).sum() / density.sum()
            for density, side in zip(densities, sides, strict=True)
        ]
        weights.append(known * math.prod(parts))
    np.testing.assert_allclose(found.culprit, np.array(weights) / sum(weights), rtol=2e-2)


def test_the_expected_entropy_is_that_of_both_outcomes() -> None:
    failures, passes = np.array([0, 0, 1, 0, 2]), np.array([2, 1, 0, 1, 0])
    before = beliefs.prior([1.0, 4.0, 1.0, 1.0])

    def after(at: int, fails: int) -> beliefs.Posterior:
        one = np.eye(5, dtype=np.int64)[at]
        made = beliefs.posterior(before, beliefs.FLAKY, failures + one * fails, passes + one * (1 - fails))
        assert made is not None
        return made

    now = beliefs.posterior(before, beliefs.FLAKY, failures, passes)
    assert now is not None
    for at, expected in enumerate(now.expected_entropy()):
        is_new = np.arange(6) <= at
        fails = float((now.culprit * np.where(is_new, now.fails_next_new, now.fails_next_old)).sum())
        assert math.isclose(expected, fails * after(at, 1).entropy() + (1 - fails) * after(at, 0).entropy())


@pytest.mark.parametrize("culprit", range(1, COMMITS + 1, 7))
def test_a_deterministic_search_takes_what_git_bisect_takes(culprit: int) -> None:
    search = line(COMMITS, deterministic=True)
    runs: list[Run] = []
    while (state := search.state(runs)).next is not None:
        told = RunVerdict.FAIL if state.next >= culprit else RunVerdict.PASS
        runs.append(Run(search.commits[state.next].sha, told.value))
    assert (state.outcome, state.candidates, len(runs)) == (BisectionOutcome.FOUND, (culprit,), 2 + 6)


def test_culprit_and_parent_are_run_again() -> None:
    search = line(COMMITS)
    runs: list[Run] = []
    while (state := search.state(runs)).next is not None:
        told = RunVerdict.FAIL if state.next >= 20 else RunVerdict.PASS
        runs.append(Run(search.commits[state.next].sha, told.value))
    counts = [sum(run.key == search.commits[at].sha for run in runs) for at in (19, 20)]
    assert state.candidates == (20,) and min(counts) >= 2 and len(runs) <= 16


@pytest.mark.parametrize(
    ("deterministic", "old", "new", "counts"),
    [
        (True, RunVerdict.PASS, RunVerdict.PASS, (1, 1)),
        (True, RunVerdict.FAIL, RunVerdict.FAIL, (1, 1)),
        (True, RunVerdict.FAIL, RunVerdict.PASS, (1, 1)),
        (False, RunVerdict.PASS, RunVerdict.PASS, (1, END_TRIES)),
        (False, RunVerdict.FAIL, RunVerdict.FAIL, (END_TRIES, 1)),
        (False, RunVerdict.FAIL, RunVerdict.PASS, (SWAPPED_TRIES, SWAPPED_TRIES)),
    ],
)
def test_ends_that_are_not_as_said_are_both_run_first_and_told(
    deterministic: bool, old: RunVerdict, new: RunVerdict, counts: tuple[int, int]
) -> None:
    search = line(8, deterministic=deterministic)
    ran: list[int] = []
    runs: list[Run] = []
    while (state := search.state(runs)).next is not None:
        ran.append(state.next)
        runs.append(Run(search.commits[state.next].sha, (old if state.next == 0 else new).value))
    assert state.outcome is BisectionOutcome.STATED_OUTCOME_WRONG
    assert ran[:2] == [8, 0] and (ran.count(0), ran.count(8)) == counts and len(ran) == sum(counts)


def test_a_flaky_end_that_is_late_as_said_goes_on() -> None:
    search = line(8)
    made = [(8, RunVerdict.PASS)] * (END_TRIES - 1) + [(0, RunVerdict.PASS)]
    runs = [Run(search.commits[at].sha, told.value) for at, told in made]
    assert search.state(runs).next == 8
    state = search.state([*runs, Run(search.commits[8].sha, RunVerdict.FAIL.value)])
    assert state.outcome is BisectionOutcome.UNDER_WAY


def test_an_end_that_is_asserted_is_not_run_where_the_other_is_not_as_said() -> None:
    made = line(8)
    search = CommitLine(replace(made.plan, old_asserted=True), made.commits)
    runs: list[Run] = []
    while (state := search.state(runs)).next is not None:
        runs.append(Run(search.commits[state.next].sha, RunVerdict.PASS.value))
    assert state.outcome is BisectionOutcome.STATED_OUTCOME_WRONG
    assert [run.key for run in runs] == [search.commits[8].sha] * END_TRIES


def test_a_deterministic_test_that_is_not_is_a_contradiction() -> None:
    search = line(8, deterministic=True)
    told = [(8, RunVerdict.FAIL), (0, RunVerdict.PASS), (4, RunVerdict.FAIL), (6, RunVerdict.PASS)]
    assert (
        search.state([Run(search.commits[at].sha, one.value) for at, one in told]).outcome
        is BisectionOutcome.CONTRADICTION
    )


def test_commits_that_cannot_be_tested_are_candidates_beside_the_culprit() -> None:
    search = line(8, deterministic=True)
    told = [
        (8, RunVerdict.FAIL),
        (0, RunVerdict.PASS),
        (3, RunVerdict.PASS),
        (4, RunVerdict.BUILD),
        (5, RunVerdict.INFRA),
        (5, RunVerdict.INFRA),
    ]
    state = search.state([Run(search.commits[at].sha, one.value) for at, one in [*told, (6, RunVerdict.FAIL)]])
    assert (state.outcome, state.candidates) == (BisectionOutcome.FOUND, (4, 5, 6))


def test_infra_alone_is_tried_again_and_evidence_counts_before_it() -> None:
    search = line(2, deterministic=True)
    ends = [Run(search.commits[2].sha, "fail"), Run(search.commits[0].sha, "pass")]
    middle = search.commits[1].sha
    assert search.state([*ends, Run(middle, "infra")]).next == 1
    assert search.state([*ends, Run(middle, "infra"), Run(middle, "infra")]).candidates == (1, 2)
    assert search.state([*ends, Run(middle, "infra"), Run(middle, "infra"), Run(middle, "pass")]).candidates == (2,)


@pytest.mark.parametrize(("rates", "most"), [((1.0, 0.0), 16), ((0.9, 0.1), 80)])
def test_simulated_searches_are_right(rates: tuple[float, float], most: int) -> None:
    made = trials(rates, 12, 5, ours)
    assert sum(one.right for one in made) >= 11
    assert sorted(one.runs for one in made)[6] <= most


def test_the_procedures_to_compare_with() -> None:
    assert bayesect(Flaky(random.Random(1), 1.0, 0.0)).right
    assert fewest_repeats(1.0, 0.0, 0.99) == (1, 1)
    repeats, enough = fewest_repeats(0.9, 0.1, 0.97)
    assert 1 < enough < repeats < 10


def test_a_likely_commit_is_run_sooner() -> None:
    """With git_bayesect's formula the weight enters as the prior, so evidence overrides it."""
    weights = [1.0] * 16
    weights[12] = 4.0
    flat, tilted = (beliefs.prior(one) for one in ([1.0] * 16, weights))
    assert math.isclose(tilted[13] / tilted[12], 4.0) and math.isclose(sum(tilted), 1.0)
    none = np.zeros(17, np.int64)
    nexts = []
    for before in (flat, tilted):
        found = beliefs.posterior(before, beliefs.DETERMINISTIC, none, none)
        assert found is not None
        nexts.append(beliefs.most_informative(found, np.ones(17)))
    first, second = nexts
    assert first is not None and second is not None and second > first


def test_a_range_of_one_commit_needs_its_ends_alone() -> None:
    search = line(1, deterministic=True)
    runs = [Run(search.commits[1].sha, "fail"), Run(search.commits[0].sha, "pass")]
    assert search.state(runs).candidates == (1,) and search.state(runs).next is None


def test_chances_follow_the_nearest_runs() -> None:
    nothing = np.zeros(9, np.bool_)
    assert beliefs.chances(nothing, nothing).tolist() == [1.0] * 9
    told, untestable = nothing.copy(), nothing.copy()
    told[8] = untestable[[0, 4]] = True
    rarely = beliefs.RARELY
    assert beliefs.chances(told, untestable).tolist() == [0, rarely, rarely, rarely, 0, 0.25, 0.5, 0.75, 1]


@pytest.mark.parametrize("testable_from", [0, 100, 229, 245])
def test_a_stretch_that_cannot_be_tested_takes_few_runs(testable_from: int) -> None:
    """755 commits, as between two releases of ExecuTorch; the culprit is 246."""
    size, culprit = 756, 246
    failures, passes = np.zeros(size, np.int64), np.zeros(size, np.int64)
    untestable, before = np.zeros(size, np.bool_), beliefs.prior([1.0] * (size - 1), old_asserted=True)
    for _ in range(60):
        found = beliefs.posterior(before, beliefs.DETERMINISTIC, failures, passes)
        assert found is not None
        if found.culprit.max() > 0.95:
            break
        chances = beliefs.chances(failures + passes > 0, untestable)
        chances[0] = 0
        position = beliefs.most_informative(found, chances)
        assert position is not None
        if position < testable_from:
            untestable[position] = True
        else:
            (failures if position >= culprit else passes)[position] += 1
    told = failures.sum() + passes.sum()
    print(testable_from, told, untestable.sum())
    assert found is not None and int(found.culprit.argmax()) == culprit
    assert told <= 14 and untestable.sum() <= 10
