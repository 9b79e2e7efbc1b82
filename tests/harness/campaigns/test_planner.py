"""Several runs at a time, and one process that records them."""

from __future__ import annotations

import threading
from collections.abc import Collection, Sequence
from pathlib import Path

import pytest

from cortex_m_hil.campaigns import planner
from cortex_m_hil.campaigns.store import Run, Store, StoredCampaign
from cortex_m_hil.errors import LaunchError
from cortex_m_hil.host.deadline import Deadline

DEADLINE = 30.0  # seconds
KEYS = tuple("abcdefgh")


class Together(planner.Planner):
    """Each run ends when `jobs` of them are under way."""

    def __init__(self, jobs: int) -> None:
        self._barrier = threading.Barrier(jobs, timeout=DEADLINE)
        self.stopped = threading.Event()

    def next(self, runs: Sequence[Run], under_way: Collection[str] = ()) -> str | None:
        done = {run.key for run in runs} | set(under_way)
        return next((key for key in KEYS if key not in done), None)

    def carry_out(self, key: str) -> Run:
        self._barrier.wait()
        return Run(key, "done")

    def stop(self) -> None:
        self.stopped.set()


class Failing(Together):
    """The first run fails, the others wait to be stopped."""

    def carry_out(self, key: str) -> Run:
        if key == KEYS[0]:
            raise LaunchError("no")
        assert self.stopped.wait(DEADLINE)
        raise LaunchError("stopped")


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "store.sqlite")


def begin(store: Store) -> StoredCampaign:
    return store.begin("test", "here", {})


def ignored(runs: list[Run], key: str) -> None:
    """Nobody is told."""


@pytest.mark.parametrize("jobs", [0, 1, 2, 4])
def test_as_many_as_jobs_run_at_a_time_and_each_once(store: Store, jobs: int) -> None:
    together, campaign, told = Together(max(jobs, 1)), begin(store), list[str]()
    seen = list(
        planner.work(together, store, campaign, Deadline.after(DEADLINE), lambda _, key: told.append(key), jobs)
    )
    assert [len(runs) for runs in seen] == list(range(1, len(KEYS) + 1))
    assert sorted(run.key for run in store.runs(campaign)) == sorted(told) == list(KEYS)
    assert together.stopped.is_set()


def test_no_run_begins_when_the_budget_is_spent(store: Store) -> None:
    together = Together(1)
    assert list(planner.work(together, store, begin(store), Deadline.after(0), ignored, 2)) == []


class InVain(Together):
    infra = ("infra",)

    def carry_out(self, key: str) -> Run:
        return Run(key, "infra", "told")


@pytest.mark.parametrize("jobs", [0, 1])
def test_a_campaign_stops_where_nothing_is_learnt_and_the_next_call_tries_again(store: Store, jobs: int) -> None:
    campaign = begin(store)
    for done in (4, 8):
        with pytest.raises(LaunchError, match="nothing was learnt in 4 runs: told"):
            list(planner.work(InVain(1), store, campaign, Deadline.after(DEADLINE), ignored, jobs))
        assert len(store.runs(campaign)) == done


def test_what_ends_one_run_ends_all(store: Store) -> None:
    campaign = begin(store)
    with pytest.raises(LaunchError, match="no"):
        list(planner.work(Failing(1), store, campaign, Deadline.after(DEADLINE), ignored, 3))
    assert store.runs(campaign) == []


def test_who_takes_no_more_ends_it(store: Store) -> None:
    together, campaign = Together(1), begin(store)
    loop = planner.work(together, store, campaign, Deadline.after(DEADLINE), ignored, 1)
    next(loop)
    loop.close()  # type: ignore[attr-defined]
    assert together.stopped.is_set() and len(store.runs(campaign)) == 1
