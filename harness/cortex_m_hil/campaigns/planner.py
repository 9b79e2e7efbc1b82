"""The loop of all campaigns: ask the planner for the next run, carry it out, record it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Executor, Future, ThreadPoolExecutor, wait
from typing import Any, Final

from cortex_m_hil.campaigns.store import Run, Store, StoredCampaign
from cortex_m_hil.errors import LaunchError
from cortex_m_hil.host.deadline import Deadline

ATTEMPTS: Final = 2  # tries of a run that ends in an infra error
INFRA_IN_A_ROW: Final = 4  # infra errors in a row after which a campaign stops


class Planner:
    """Chooses a campaign's runs. The choice depends only on the recorded runs, so a killed campaign can be resumed.

    Attributes:
        infra: the verdicts of runs that say nothing, because of an infra error.
    """

    infra: Collection[str] = ()

    def next(self, runs: Sequence[Run], under_way: Collection[str] = ()) -> str | None:
        """Return the key to run next, given all runs so far; None if none is left, or if current runs must end first.

        Args:
            runs: all runs so far.
            under_way: the keys of current runs.
        """
        raise NotImplementedError

    def left(self, runs: Sequence[Run]) -> int:
        """Estimate how many runs are left; 0 if and only if the campaign is complete."""
        raise NotImplementedError

    def carry_out(self, key: str) -> Run:
        """Run a key, in a thread of its own where several runs are under way at a time."""
        raise NotImplementedError

    def stop(self) -> None:
        """Stop the current runs: their `carry_out` raises an error, which is not reported."""


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
        planner: chooses the runs and carries them out.
        store: has the runs so far, and records each new one.
        campaign: the campaign to work on.
        budget: the deadline after which no run begins.
        told: called before each run with the runs so far and the key of the next run.
        jobs: the number of parallel runs, each in a thread of its own; 0: one at a time, in this thread.

    Yields:
        All runs so far, after each run.

    Raises:
        LaunchError: the last runs had infra errors. The next call tries again.
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
