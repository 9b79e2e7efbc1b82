"""A worker process (`worker_processes.Worker`) that builds mutants of the kernels and judges them."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from enum import Enum
from pathlib import Path
from typing import Any, Final

from cortex_m_hil.campaigns.planner import ATTEMPTS
from cortex_m_hil.campaigns.store import Plan, Run
from cortex_m_hil.campaigns.worker_processes import answer_requests
from cortex_m_hil.checks.elf import executed_digest
from cortex_m_hil.diagnose.localize import localize
from cortex_m_hil.errors import BuildError, ConfigError, HarnessError, InfraError, Mismatch
from cortex_m_hil.flow.dut import Dut
from cortex_m_hil.host import files
from cortex_m_hil.host.folders import TemporaryFolder
from cortex_m_hil.host.paths import package_data
from cortex_m_hil.maintainers.mutation.executorch_tree import SourceTree
from cortex_m_hil.maintainers.mutation.kept_programs import (
    Noticed,
    ReadyProgram,
    first_noticed,
    kept_in,
    ordered,
    timed,
)
from cortex_m_hil.maintainers.mutation.kernel_sources import Kernels
from cortex_m_hil.maintainers.mutation.source_mutants import SourceMutant
from cortex_m_hil.runner import linked_executorch
from cortex_m_hil.runner.build import BuildTree
from cortex_m_hil.targets.load import load_user_targets
from cortex_m_hil.targets.resolve import Resolved, resolve


class MutantOutcome(str, Enum):
    """The outcome of a mutant on a target."""

    KILLED = "killed"
    SURVIVED = "survived"
    UNCHANGED = "no change"  # the runner has the same code and data as without the mutant
    NOT_BUILT = "not built"
    INFRA = "infra"  # infra errors prevented the judgement


JUDGED: Final = (MutantOutcome.KILLED, MutantOutcome.SURVIVED)


def runtime_of(folders: Sequence[str]) -> str:
    return "executorch" if folders else "builtin"


def kernels_of(folders: Sequence[str], resolved: Sequence[Resolved]) -> Kernels:
    """Return the builtin kernels, or with `folders` the kernels in the ExecuTorch source of these targets.

    Raises:
        ConfigError: a target has no source, or the targets have different sources.
    """
    if not folders:
        return Kernels.read(package_data("firmware"))
    sources = {linked_executorch.build_settings(one.target).source for one in resolved}
    if len(sources) != 1:
        raise ConfigError("its targets are built from several ExecuTorch sources", hint="one campaign for each")
    (source,) = sources
    assert source is not None
    return Kernels.of_source(source, folders)


@dataclass(frozen=True)
class MutationWorkerSettings(Plan):
    """The targets, programs and kernels that a worker works on.

    Attributes:
        ready: a folder of kept programs, with a subfolder for each target.
        localize: whether the faulty operator is localised.
        folders: the folders of ExecuTorch's source to mutate; empty: the builtin kernels are mutated.
    """

    ready: str
    targets: tuple[str, ...]
    targets_file: str = ""
    localize: bool = False
    folders: tuple[str, ...] = ()

    @property
    def runtime(self) -> str:
        return runtime_of(self.folders)

    def resolve(self, name: str) -> Resolved:
        known = load_user_targets(Path(self.targets_file) if self.targets_file else None)
        return resolve(name, known, runtime=self.runtime)

    def programs(self, target: str) -> list[ReadyProgram]:
        return kept_in(Path(self.ready) / files.file_name_for(target))


class MutatedTarget:
    """The sources of one target's runner, which is built again for each mutant, and the target's programs."""

    def __init__(self, resolved: Resolved, programs: Sequence[ReadyProgram], kernels: Kernels, folder: Path) -> None:
        """Build the unmutated runner in a folder."""
        self._resolved, self._kernels = resolved, kernels
        self._programs = list(programs)
        builtin = resolved.runtime == "builtin"
        self._tree = (
            BuildTree(resolved.target, folder, lenient=True) if builtin else SourceTree(resolved.target, folder)
        )
        elf = self._tree.build({})
        self._digest = executed_digest(elf.path)
        copy = Path(shutil.copy2(elf.path, folder / "unmutated.elf"))
        self.unmutated = Dut(resolved, replace(elf, path=copy))

    def time(self) -> dict[str, float | None]:
        """Return the seconds of each program without a mutant; None if its verdict differs from that in its test."""
        return {program.name: seconds for program, seconds in timed(self.unmutated, self._programs)}

    def operators(self) -> list[str]:
        """Return the operators of all programs together."""
        return sorted(frozenset().union(*(one.operators for one in self._programs)))

    def judge(self, mutant: SourceMutant, seconds: Mapping[str, float], *, localized: bool) -> Run:
        """Judge a mutant with the programs that have `seconds`, and return the run.

        `localized`: whether the faulty operator is localised.
        """
        began, operators = time.monotonic(), self._kernels.operators(mutant)
        programs = [ReadyProgram(one.path, seconds[one.name]) for one in self._programs if one.name in seconds]
        outcome, why, more = self._outcome(mutant, ordered(programs, operators), localized)
        figures: dict[str, Any] = {"top": self._kernels.top}
        told = {name: getattr(mutant, name) for name in ("path", "line", "column", "function", "refuses", "change")}
        figures |= {**told, "kind": mutant.kind.value, "operators": sorted(operators), **more}
        figures |= {"target": self._resolved.name, "isa": self._resolved.target.isa.value}
        if outcome is MutantOutcome.SURVIVED:
            figures["diff"] = self._kernels.diff(mutant)
        return Run("", outcome.value, why, round(time.monotonic() - began, 3), time.time(), figures)

    def _outcome(
        self, mutant: SourceMutant, programs: Sequence[ReadyProgram], localized: bool
    ) -> tuple[MutantOutcome, str, dict[str, Any]]:
        try:
            elf = self._tree.build(self._kernels.changed(mutant))
        except BuildError as error:
            return MutantOutcome.NOT_BUILT, error.message.splitlines()[0], {}
        if executed_digest(elf.path) == self._digest:
            return MutantOutcome.UNCHANGED, "", {}
        problem = ""
        for _ in range(ATTEMPTS):
            try:
                with Dut(self._resolved, elf) as dut:
                    noticed = first_noticed(dut, self.unmutated, programs)
                    more = self._localized(dut, noticed, mutant) if localized and noticed is not None else {}
            except InfraError as error:
                problem = f"{type(error).__name__}: {error.message}"
            else:
                return (
                    (MutantOutcome.SURVIVED, "", {}) if noticed is None else (MutantOutcome.KILLED, str(noticed), more)
                )
        return MutantOutcome.INFRA, problem, {}

    def _localized(self, dut: Dut, noticed: Noticed, mutant: SourceMutant) -> dict[str, Any]:
        """Return the operators that are named as the cause, and whether the mutant belongs to any of them.

        For wrong outputs these are the faulty operators found by `localize`, else the operator in the verdict.
        """
        named = sorted(set(_named(dut, noticed)))
        return {"named": named, "localized": bool(named) and set(named) <= self._kernels.operators(mutant)}


def _named(dut: Dut, noticed: Noticed) -> Iterator[str]:
    program = noticed.program.bundle.task.program
    if noticed.type == Mismatch.__name__ and program.intermediates is not None:
        try:
            yield from (row.operator for row in localize(dut, program).at_fault)
        except HarnessError:
            return
    elif noticed.operator:
        yield noticed.operator.partition(" ")[0]


class _Server:
    """The part of a worker that answers requests; it builds each target's runner on first use."""

    def __init__(self, settings: MutationWorkerSettings, stack: ExitStack) -> None:
        self._settings, self._stack = settings, stack
        self._kernels = kernels_of(settings.folders, [settings.resolve(name) for name in settings.targets])
        self._targets: dict[str, MutatedTarget] = {}

    def answer(self, request: Mapping[str, Any]) -> dict[str, Any]:
        target = self._target(request["target"])
        if "mutant" not in request:
            return {"seconds": target.time(), "operators": target.operators()}
        mutant = self._kernels.by_name[request["mutant"]]
        run = target.judge(mutant, request["seconds"], localized=self._settings.localize)
        return {"run": asdict(run)}

    def _target(self, target: str) -> MutatedTarget:
        if target not in self._targets:
            folder = self._stack.enter_context(TemporaryFolder("hil-mutate-"))
            resolved, programs = self._settings.resolve(target), self._settings.programs(target)
            self._targets[target] = made = MutatedTarget(resolved, programs, self._kernels, folder)
            self._stack.callback(made.unmutated.close)
        return self._targets[target]


if __name__ == "__main__":
    answer_requests(MutationWorkerSettings, lambda settings, stack: _Server(settings, stack).answer)
