"""A campaign that shows whether tests notice broken kernels: workers build and judge one mutant after the other."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from cortex_m_hil.campaigns import store, worker_processes
from cortex_m_hil.campaigns.planner import Planner
from cortex_m_hil.campaigns.store import Run
from cortex_m_hil.errors import ConfigError
from cortex_m_hil.maintainers.mutation import mutation_worker
from cortex_m_hil.maintainers.mutation.kernel_sources import Kernels
from cortex_m_hil.maintainers.mutation.mutation_worker import JUDGED, MutantOutcome, MutationWorkerSettings
from cortex_m_hil.maintainers.mutation.source_mutants import SourceMutant, drawn


@dataclass(frozen=True)
class MutationPlan(store.Plan):
    """The settings of a campaign of mutants, and the results of the tests' run on unmutated kernels.

    Attributes:
        tests: the arguments for pytest; empty where only ExecuTorch's suite judges.
        count: how many mutants are drawn, 0 for all.
        kernels: a digest of the sources that are mutated.
        folders: the folders of ExecuTorch's source to mutate; empty: the builtin kernels are mutated.
        upstream: whether ExecuTorch's own suite judges as well.
        redzones: whether memory plans have red zones.
        once: whether a mutant is judged on one target only, the first whose runner the mutant changes.
        localize: whether the faulty operator is localised in each killed mutant.
        seconds: by target and program, the seconds on unmutated kernels; empty until the tests have run.
        left_out: by target, how many programs are left out, because their verdicts differ from those in their tests.
        operators: the operators of the programs; mutants are drawn from code that any of these uses.
    """

    tests: tuple[str, ...]
    targets: tuple[str, ...]
    count: int
    seed: int
    kernels: str
    targets_file: str = ""
    folders: tuple[str, ...] = ()
    upstream: bool = False
    redzones: bool = False
    once: bool = False
    localize: bool = False
    seconds: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    left_out: Mapping[str, int] = field(default_factory=dict)
    operators: tuple[str, ...] = ()

    def kernels_now(self) -> Kernels:
        """Return the present sources of the kernels to mutate."""
        settings = self.settings(Path())
        return mutation_worker.kernels_of(self.folders, [settings.resolve(name) for name in self.targets])

    @property
    def asked(self) -> str:
        """Return the tests in the form of command-line arguments."""
        return " ".join([*self.tests, *(["--upstream"] if self.upstream else [])])

    def asks_like(self, other: MutationPlan) -> bool:
        """Tell whether two plans have the same settings, apart from the seed, and from what unmutated kernels gave."""
        names = "tests", "upstream", "targets", "count", "kernels", "targets_file", "folders", "redzones", "localize"
        return all(getattr(self, name) == getattr(other, name) for name in (*names, "once"))

    def mutants(self, kernels: Kernels) -> list[SourceMutant]:
        """Return the mutants that are drawn. Raise ConfigError where the kernels have changed since the beginning."""
        if kernels.digest != self.kernels:
            raise ConfigError(
                "the kernels have changed since this campaign began",
                hint="begin anew: hil dev mutate TEST -t TARGET --reset",
            )
        return drawn(kernels.mutants_of(self.operators), self.count, self.seed)

    def settings(self, ready: Path) -> MutationWorkerSettings:
        """Return the settings of the workers; `ready` is the folder of the kept programs."""
        return MutationWorkerSettings(str(ready), self.targets, self.targets_file, self.localize, self.folders)


class MutationWorkers(worker_processes.Workers):
    """The worker processes of a campaign, which run `mutation_worker`."""

    def __init__(self, settings: MutationWorkerSettings, folder: Path) -> None:
        """Prepare the workers; their logs go to `folder`."""
        super().__init__("hil dev mutate", [mutation_worker.__name__, json.dumps(asdict(settings))], folder)

    def unmutated(self, target: str) -> tuple[dict[str, float | None], list[str]]:
        """Return the seconds of each program without a mutant, and all operators of the programs.

        Seconds are None if the program's verdict differs from that in its test.
        """
        answer = self.ask({"target": target})
        return answer["seconds"], answer["operators"]


class Mutation(Planner):
    """The runs of a plan, several of which may run in parallel."""

    infra = (MutantOutcome.INFRA.value,)

    def __init__(self, plan: MutationPlan, mutants: Sequence[SourceMutant], workers: MutationWorkers) -> None:
        self.plan, self._workers = plan, workers
        self.keys = tuple(f"{mutant.name} {target}" for mutant in mutants for target in plan.targets)

    def next(self, runs: Sequence[Run], under_way: Collection[str] = ()) -> str | None:
        busy = {_mutant(key) for key in under_way} if self.plan.once else set()
        free = (key for key in self.keys_left(runs) if key not in under_way and _mutant(key) not in busy)
        return next(free, None)

    def left(self, runs: Sequence[Run]) -> int:
        return len(self.keys_left(runs))

    def keys_left(self, runs: Sequence[Run]) -> list[str]:
        """Return the keys that are still to be run."""
        done = {one.key for one in runs}
        judged = {_mutant(one.key) for one in runs if MutantOutcome(one.verdict) in JUDGED}
        over = judged if self.plan.once else set()
        return [key for key in self.keys if key not in done and _mutant(key) not in over]

    def carry_out(self, key: str) -> Run:
        name, _, target = key.rpartition(" ")
        request = {"target": target, "mutant": name, "seconds": self.plan.seconds[target]}
        return Run(**{**self._workers.ask(request)["run"], "key": key})

    def stop(self) -> None:
        self._workers.end()


def _mutant(key: str) -> str:
    """Return the mutant's name in a key, without the target."""
    return key.rpartition(" ")[0]
