"""The loop of all campaigns: ask the planner what to run, carry it out, record it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Executor, Future, ThreadPoolExecutor, wait
from typing import Any, Final

from cortex_m_hil.campaigns.store import Run, Store, StoredCampaign
from cortex_m_hil.errors import LaunchError
from cortex_m_hil.host.deadline import Deadline

ATTEMPTS: Final = 2  # tries of a run that ends in an infra error
INFRA_IN_A_ROW: Final = 4  # runs that taught nothing, one after the other, after which a campaign stops


class Planner:
    """A campaign's choice of runs. It follows from the recorded runs alone, so a killed campaign goes on where it was.

    Attributes:
        infra: the verdicts of runs that teach nothing.
    """

    infra: Collection[str] = ()

    def next(self, runs: Sequence[Run], under_way: Collection[str] = ()) -> str | None:
        """Return the key to run next, given all runs so far; None if there is none, or none before others have ended.

        Args:
            runs: all runs so far.
            under_way: keys that are being run.
        """
        raise NotImplementedError

    def left(self, runs: Sequence[Run]) -> int:
        """Return about how many runs are left; 0 if and only if the campaign is complete."""
        raise NotImplementedError

    def carry_out(self, key: str) -> Run:
        """Run a key, in a thread of its own where several runs are under way at a time."""
        raise NotImplementedError

    def stop(self) -> None:
        """End the runs that are under way: their `carry_out` then raises, and the error is not reported."""


class _Here(Executor):
    """An executor that calls the function in the caller's thread, before `submit` returns."""

    def submit(self, function: Callable[..., Any], /, *arguments: Any, **named: Any) -> Future[Any]:
        done = Future[Any]()
        done.set_result(function(*arguments, **named))
        return done


def work(
    planner: Planner,
    store: Store,
    campaign: StoredCampaign,
    budget: Deadline,
    told: Callable[[list[Run], str], None],
    jobs: int = 0,
) -> Iterator[list[Run]]:
    """Execute the runs of a campaign; no run begins once the budget is spent. Only the caller's thread uses the store.

    Args:
        planner: decides what is run, and runs it.
        store: has the runs so far, and gets each new one.
        campaign: the one whose runs these are.
        budget: the deadline for the beginning of a run.
        told: called before each run with the runs so far and the key that is run next.
        jobs: how many runs are under way at a time, each in a thread of its own; 0: one, in this thread.

    Yields:
        All runs so far, after each run.

    Raises:
        LaunchError: the last runs taught nothing. The next call tries again.
    """
    runs, in_vain = store.runs(campaign), 0
    under_way: dict[Future[Run], str] = {}
    with ThreadPoolExecutor(jobs) if jobs else _Here() as threads:
        try:
            while True:
                while len(under_way) < max(jobs, 1) and not budget.expired:
                    _check_learning(runs, in_vain)
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
                    in_vain = in_vain + 1 if runs[-1].verdict in planner.infra else 0
                    yield runs
        finally:
            planner.stop()


def _check_learning(runs: Sequence[Run], in_vain: int) -> None:
    if in_vain >= INFRA_IN_A_ROW:
        why, figures = runs[-1].error, runs[-1].figures
        hint, log = str(figures.get("hint", "mend that, and go on")), str(figures.get("log", ""))
        raise LaunchError(f"nothing was learnt in {in_vain} runs: {why}", log=log, hint=hint)
