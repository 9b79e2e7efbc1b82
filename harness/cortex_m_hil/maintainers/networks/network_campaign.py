"""A campaign of generated programs: workers judge them in rounds, each drawn from what earlier rounds reached."""

from __future__ import annotations

import json
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from cortex_m_hil.campaigns import store, worker_processes
from cortex_m_hil.campaigns.planner import Planner
from cortex_m_hil.campaigns.store import Run
from cortex_m_hil.errors import LaunchError
from cortex_m_hil.maintainers.networks import network_worker as models_worker
from cortex_m_hil.maintainers.networks.generator import ROUND, Generator
from cortex_m_hil.maintainers.networks.network_judge import NetworkJudgement
from cortex_m_hil.maintainers.networks.network_worker import NetworkOutcome, NetworkWorkerSettings, unpacked
from cortex_m_hil.maintainers.networks.recipe import Recipe


@dataclass(frozen=True)
class NetworkPlan(store.Plan):
    """The settings of a campaign of generated programs.

    Attributes:
        count: the number of programs; 0: as many as the time allows.
        seed: the seed from which the programs are drawn.
        generator: the digest of the generator (`generator.generator_digest`), since another generator draws other
            programs from the same seed.
    """

    targets: tuple[str, ...]
    runtimes: tuple[str, ...]
    count: int
    seed: int
    targets_file: str = ""
    generator: str = ""

    @property
    def asked(self) -> str:
        """Return the command for this plan, without `--seconds`."""
        file = f" --targets-file {self.targets_file}" if self.targets_file else ""
        runtimes = "".join(f" --runtime {name}" for name in self.runtimes)
        count = f" --count {self.count}" if self.count else ""
        return f"hil dev fuzz --models -t {','.join(self.targets)}{runtimes}{count} --seed {self.seed}{file}"

    @property
    def settings(self) -> NetworkWorkerSettings:
        return NetworkWorkerSettings(self.targets, self.runtimes, self.targets_file)


class NetworkWorkers(worker_processes.Workers):
    """The worker processes of a campaign, which run `network_worker`."""

    def __init__(self, plan: NetworkPlan, folder: Path) -> None:
        """Prepare the workers; their logs go to `folder`."""
        super().__init__("hil dev fuzz", [models_worker.__name__, json.dumps(asdict(plan.settings))], folder)


class Programs(Planner):
    """The programs of a campaign, several of which may be judged in parallel.

    Each program is determined by the seed, its number and the programs of earlier rounds, so it is the same with any
    number of workers. A round begins when the last one has ended.
    """

    infra = (NetworkOutcome.INFRA.value,)

    def __init__(self, plan: NetworkPlan, workers: NetworkWorkers) -> None:
        self.plan, self._workers = plan, workers
        self._generator = Generator(plan.seed)
        self._drawn: list[Recipe] = []
        self._stopped = False

    def next(self, runs: Sequence[Run], under_way: Collection[str] = ()) -> str | None:
        """Return the key of the next program; None if there is none, or if the round must end first."""
        programs = by_number(runs)
        number = next(one for one in range(len(programs) + len(under_way) + 1)
                      if one not in programs and str(one) not in under_way)  # fmt: skip
        if self.plan.count and number >= self.plan.count:
            return None
        return str(number) if self._draw_up_to(number, programs) else None

    def left(self, runs: Sequence[Run]) -> int:
        return max(0, self.plan.count - len(by_number(runs)))

    def _draw_up_to(self, number: int, programs: Mapping[int, Run]) -> bool:
        """Draw the programs up to a number, and tell whether that was possible.

        It is not while an earlier round has not ended: the generator first learns from its results.
        """
        while len(self._drawn) <= number:
            at = len(self._drawn)
            if at and at % ROUND == 0:
                before = range(at - ROUND, at)
                if not all(one in programs for one in before):
                    return False
                reached = [unpacked(programs[one].figures["reached"]) for one in before]
                self._generator.learn([self._drawn[one] for one in before], reached)
            self._drawn.append(self._generator.draw(at))
        return True

    def carry_out(self, key: str) -> Run:
        """Judge the program with this key and return its run.

        A program that crashes its worker, for example by a crash of torch, gives an infra error; other programs go on.
        """
        recipe = self._drawn[int(key)]
        try:
            answer = self._workers.ask({"recipe": asdict(recipe)})
        except LaunchError as error:
            if self._stopped:
                raise
            nothing = {
                "recipe": asdict(recipe),
                "classes": recipe.classes,
                **models_worker.fields_of(NetworkJudgement()),
            }
            return Run(key, NetworkOutcome.INFRA.value, error.message, 0.0, time.time(), nothing)
        return Run(**{**answer["run"], "key": key})

    def stop(self) -> None:
        self._stopped = True
        self._workers.end()


def by_number(runs: Iterable[Run]) -> dict[int, Run]:
    """Return the runs of programs by number, without the runs that shrink."""
    return {int(run.key): run for run in runs if run.key.isdecimal()}


@dataclass(frozen=True)
class Defect:
    """All failures of one kind in one operator.

    Attributes:
        known: the bug of docs/known_bugs.md that explains it, "" for a new bug.
        programs: how many programs fail in this way.
        first: the number of the first of these programs.
        example: the fields of a failure of the first program.
    """

    kind: str
    operator: str
    known: str
    programs: int
    first: int
    example: Mapping[str, Any]

    @property
    def name(self) -> str:
        return " ".join(filter(None, (self.operator, self.kind)))


def defects(runs: Iterable[Run]) -> list[Defect]:
    """Return one defect for each operator and kind that the runs show, in the order of their first programs."""
    found: dict[tuple[str, str, str], Defect] = {}
    for number, run in sorted(by_number(runs).items()):
        failures = {(one["kind"], one["operator"], one["known"]): one for one in reversed(run.figures["failures"])}
        for key, failure in failures.items():
            before = found.get(key)
            first, example = (before.first, before.example) if before else (number, failure)
            found[key] = Defect(*key, before.programs + 1 if before else 1, first, example)
    return list(found.values())


class Shrinking(Planner):
    """The second phase of a campaign: it shrinks the first program of each new defect and writes the tests."""

    def __init__(
        self, plan: NetworkPlan, runs: Sequence[Run], workers: NetworkWorkers, out: Path, budget: float
    ) -> None:
        """Collect the new defects of the runs; `out` is the folder of the tests, `budget` the seconds for each."""
        self._plan, self._workers, self._out, self._budget = plan, workers, out, budget
        programs = by_number(runs)
        self._asked = {
            f"shrink {one.name}": {"recipe": programs[one.first].figures["recipe"], "failure": dict(one.example)}
            for one in defects(runs) if not one.known
        }  # fmt: skip

    def next(self, runs: Sequence[Run], under_way: Collection[str] = ()) -> str | None:
        done = {run.key for run in runs}
        return next((key for key in self._asked if key not in done and key not in under_way), None)

    def left(self, runs: Sequence[Run]) -> int:
        return len(self._asked.keys() - {run.key for run in runs})

    def carry_out(self, key: str) -> Run:
        more = {"out": str(self._out), "budget": self._budget, "asked": self._plan.asked}
        return Run(**{**self._workers.ask({**self._asked[key], **more})["run"], "key": key})

    def stop(self) -> None:
        self._workers.end()
