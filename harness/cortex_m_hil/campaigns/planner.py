"""The loops of all campaigns: ask the plan what to run, run it, record it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from typing import Protocol

from cortex_m_hil.campaigns.store import Campaign, Run, Store
from cortex_m_hil.host.deadline import Deadline


class Planner(Protocol):
    """What a campaign is made of."""

    def next(self, runs: list[Run]) -> str | None:
        """The key to run next, from what there is; None if nothing more is to be learnt."""
        ...

    def carry_out(self, key: str) -> Run: ...


def work(
    planner: Planner, store: Store, campaign: Campaign, budget: Deadline, told: Callable[[list[Run], str], None]
) -> Iterator[list[Run]]:
    """All runs so far, after each run. No run begins once the budget is spent.

    `told` gets the runs so far, and the key that is run next. What is next follows from the recorded runs alone, so a
    campaign that was killed goes on where it was.
    """
    runs = store.runs(campaign)
    while not budget.expired and (key := planner.next(runs)) is not None:
        told(runs, key)
        store.record(campaign, planner.carry_out(key))
        runs = store.runs(campaign)
        yield runs


class ParallelPlanner(Protocol):
    """What a campaign is made of whose runs do not follow from each other."""

    def next(self, runs: list[Run], under_way: Collection[str]) -> str | None:
        """The key to run next, None if there is none; those under way are being run."""
        ...

    def carry_out(self, key: str) -> Run:
        """In a thread of its own."""
        ...

    def stop(self) -> None:
        """Ends what is under way: `carry_out` then raises, and nobody hears of it."""
        ...


def work_in_parallel(
    planner: ParallelPlanner,
    store: Store,
    campaign: Campaign,
    budget: Deadline,
    told: Callable[[list[Run], str], None],
    jobs: int,
) -> Iterator[list[Run]]:
    """As `work`, with up to `jobs` runs at a time. Only the caller's thread uses the store."""
    runs = store.runs(campaign)
    under_way: dict[Future[Run], str] = {}
    with ThreadPoolExecutor(jobs) as threads:
        try:
            while True:
                while len(under_way) < jobs and not budget.expired:
                    key = planner.next(runs, tuple(under_way.values()))
                    if key is None:
                        break
                    told(runs, key)
                    under_way[threads.submit(planner.carry_out, key)] = key
                if not under_way:
                    return
                for ended in wait(under_way, return_when=FIRST_COMPLETED).done:
                    del under_way[ended]
                    store.record(campaign, ended.result())
                    runs = store.runs(campaign)
                    yield runs
        finally:
            planner.stop()
