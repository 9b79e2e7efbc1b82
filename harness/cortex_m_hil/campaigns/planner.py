"""The loops of all campaigns: ask the planner what to run, carry it out, record it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from typing import Protocol

from cortex_m_hil.campaigns.store import Campaign, Run, Store
from cortex_m_hil.host.deadline import Deadline


class Planner(Protocol):
    """A campaign whose next run follows from the runs before it."""

    def next(self, runs: list[Run]) -> str | None:
        """Return the key to run next, given all runs so far; None if nothing more is to be learnt."""
        ...

    def carry_out(self, key: str) -> Run: ...


def work(
    planner: Planner, store: Store, campaign: Campaign, budget: Deadline, told: Callable[[list[Run], str], None]
) -> Iterator[list[Run]]:
    """Execute the runs of a campaign; no run begins once the budget is spent.

    The next key follows from the recorded runs alone, so a campaign that was killed goes on where it was.

    Args:
        planner: decides what is run, and runs it.
        store: has the runs so far, and gets each new one.
        campaign: the one whose runs these are.
        budget: the deadline for the beginning of a run.
        told: called before each run with the runs so far and the key that is run next.

    Yields:
        All runs so far, after each run.
    """
    runs = store.runs(campaign)
    while not budget.expired and (key := planner.next(runs)) is not None:
        told(runs, key)
        store.record(campaign, planner.carry_out(key))
        runs = store.runs(campaign)
        yield runs


class ParallelPlanner(Protocol):
    """A campaign whose runs do not follow from each other, so that several can be under way."""

    def next(self, runs: list[Run], under_way: Collection[str]) -> str | None:
        """Return the key to run next, None if there is none; the keys in `under_way` are being run."""
        ...

    def carry_out(self, key: str) -> Run:
        """Run a key; this is called in a thread of its own."""
        ...

    def stop(self) -> None:
        """End the runs that are under way: their `carry_out` then raises, and the error is not reported."""
        ...


def work_in_parallel(
    planner: ParallelPlanner,
    store: Store,
    campaign: Campaign,
    budget: Deadline,
    told: Callable[[list[Run], str], None],
    jobs: int,
) -> Iterator[list[Run]]:
    """Execute the runs of a campaign as `work` does, with up to `jobs` at a time.

    Only the caller's thread uses the store.
    """
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
