"""The one loop of all campaigns: ask the plan what to run, run it, record it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
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
