"""Would these tests notice a broken kernel? Mutant after mutant, each built and judged by a worker process."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

from cortex_m_hil.campaigns import workers
from cortex_m_hil.campaigns.store import Run
from cortex_m_hil.errors import ConfigError, LaunchError
from cortex_m_hil.maintainers.mutation import mutation_worker
from cortex_m_hil.maintainers.mutation.kernel_sources import Kernels
from cortex_m_hil.maintainers.mutation.mutants import Mutant, drawn
from cortex_m_hil.maintainers.mutation.mutation_worker import JUDGED, Outcome, Settings

INFRA_IN_A_ROW: Final = 4  # runs, after which something else is wrong


@dataclass(frozen=True)
class Plan:
    """What is asked.

    Attributes:
        tests: what pytest is given; none where it is ExecuTorch's suite alone.
        upstream: whether ExecuTorch's own suite is judged by as well.
        count: how many mutants are drawn, 0 for all.
        folders: of ExecuTorch's source, which are mutated; without, the builtin kernels are.
        redzones: whether memory plans have red zones.
        once: whether a mutant is judged on the first target only whose runner it changes.
        localize: whether the operator of each that is killed is looked for.
        kernels: a digest of the sources that the mutants are of.
        seconds: of each program on each target, without a mutant; empty until the tests have run.
        left_out: how many programs of each target do not end there as in their tests.
        operators: of the programs: mutants are drawn from what any of these reaches.
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

    @classmethod
    def of(cls, fields: Mapping[str, Any]) -> Plan:
        """From what `asdict` made of one, and JSON of that."""
        names = "tests", "targets", "operators", "folders"
        return cls(**{**fields, **{name: tuple(fields.get(name, ())) for name in names}})

    def kernels_now(self) -> Kernels:
        """Those that its mutants are of, as they are now."""
        settings = self.settings(Path())
        return mutation_worker.kernels_of(self.folders, [settings.resolve(name) for name in self.targets])

    @property
    def asked(self) -> str:
        """What is run, as it is asked for on a command line."""
        return " ".join([*self.tests, *(["--upstream"] if self.upstream else [])])

    def as_fields(self) -> dict[str, Any]:
        return asdict(self)

    def asks_like(self, other: Plan) -> bool:
        """Whether they differ in nothing but what the tests' run told, and the seed."""
        names = "tests", "upstream", "targets", "count", "kernels", "targets_file", "folders", "redzones", "localize"
        return all(getattr(self, name) == getattr(other, name) for name in (*names, "once"))

    def mutants(self, kernels: Kernels) -> list[Mutant]:
        """Those that are drawn. ConfigError where these are not the kernels that it was begun with."""
        if kernels.digest != self.kernels:
            raise ConfigError(
                "the kernels have changed since it was begun", hint="begin anew: hil dev mutate TEST -t TARGET --reset"
            )
        return drawn(kernels.mutants_of(self.operators), self.count, self.seed)

    def settings(self, ready: Path) -> Settings:
        """`ready` has the kept programs."""
        return Settings(str(ready), self.targets, self.targets_file, self.localize, self.folders)


class Workers(workers.Workers):
    """Processes of `mutation_worker`."""

    def __init__(self, settings: Settings, folder: Path) -> None:
        """`folder` has their logs."""
        super().__init__("hil dev mutate", [mutation_worker.__name__, json.dumps(asdict(settings))], folder)

    def unmutated(self, target: str) -> tuple[dict[str, float | None], list[str]]:
        """Seconds of each program without a mutant, None where it does not end as in its test; all operators."""
        answer = self.ask({"target": target})
        return answer["seconds"], answer["operators"]


class Mutation:
    """Carries out the runs of a plan, several at a time."""

    def __init__(self, plan: Plan, mutants: Sequence[Mutant], workers: Workers) -> None:
        self.plan, self._workers = plan, workers
        self.keys = tuple(f"{mutant.name} {target}" for mutant in mutants for target in plan.targets)
        self._in_vain = 0

    def next(self, runs: Sequence[Run], under_way: Collection[str] = ()) -> str | None:
        """LaunchError if run after run teaches nothing; the next call of `hil dev mutate` goes on."""
        if self._in_vain >= INFRA_IN_A_ROW:
            why = runs[-1].error
            raise LaunchError(f"nothing was learnt in {self._in_vain} runs: {why}", hint="mend that, and go on")
        busy = {_mutant(key) for key in under_way} if self.plan.once else set()
        left = (key for key in self.left(runs) if key not in under_way and _mutant(key) not in busy)
        return next(left, None)

    def left(self, runs: Sequence[Run]) -> list[str]:
        """Keys that are still to be run."""
        done = {one.key for one in runs}
        judged = {_mutant(one.key) for one in runs if Outcome(one.verdict) in JUDGED}
        over = judged if self.plan.once else set()
        return [key for key in self.keys if key not in done and _mutant(key) not in over]

    def carry_out(self, key: str) -> Run:
        name, _, target = key.rpartition(" ")
        request = {"target": target, "mutant": name, "seconds": self.plan.seconds[target]}
        run = Run(**{**self._workers.ask(request)["run"], "key": key})
        self._in_vain = self._in_vain + 1 if run.verdict == Outcome.INFRA.value else 0
        return run

    def stop(self) -> None:
        self._workers.end()


def _mutant(key: str) -> str:
    """Its name, without the target."""
    return key.rpartition(" ")[0]
