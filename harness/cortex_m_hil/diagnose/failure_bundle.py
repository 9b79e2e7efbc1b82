"""Bundles: one file with a program that failed, its inputs and outputs, and the runner that ran it.

A bundle is replayed without torch and ExecuTorch (`diagnose.replay`). It may come from a stranger: anything wrong with
its file (`diagnose.failure_bundle_file`) is a ConfigError.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import platform
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Final

from cortex_m_hil import flow
from cortex_m_hil.checks.comparison.tolerance import Tolerance
from cortex_m_hil.diagnose.budgets import Budget
from cortex_m_hil.diagnose.failure_bundle_schema import (
    SCHEMA_VERSION,
    BudgetEntry,
    BundleJudgement,
    BundleMachine,
    Description,
    IntermediateEntry,
    ProgramEntry,
    Recorded,
    ReferencesEntry,
    ScratchEntry,
    TargetEntry,
    TensorEntry,
    ToleranceEntry,
)  # fmt: skip
from cortex_m_hil.errors import HarnessError, VerdictError
from cortex_m_hil.flow.dut import Dut
from cortex_m_hil.host import files
from cortex_m_hil.program.program import DISTURBED, Intermediate, Program, References, ScratchNeed
from cortex_m_hil.program.tensor import HostTensor
from cortex_m_hil.runner.run_results import Ran
from cortex_m_hil.targets.cpu import Isa

SINGLE: Final = ("dialect", "quantized", "eager", "expected")  # references that have one run each
_PACKAGES: Final = ("executorch-cortex-m-hil", "torch", "executorch")
_LOG_LIMIT: Final = 1 << 20  # the newest characters that are kept


@dataclass(frozen=True)
class BundleTask:
    """A task for a target: a program to run on inputs, and the way its run is judged.

    Attributes:
        program: the program.
        inputs: the inputs of the run.
        tolerance: the tolerance of the comparison; None: outputs are not compared.
        linted: as for `flow.run`.
        redzones: whether memory is watched.
        excluded: as for `flow.run`.
        budget: limits on what the program may take; None: no limits.
        known: as for `flow.judge_on_executorch`.
        expected: as for `flow.judge_on_executorch`.
    """

    program: Program
    inputs: tuple[HostTensor, ...]
    tolerance: Tolerance | None = None
    linted: bool = True
    redzones: bool = False
    excluded: tuple[str, ...] = ()
    budget: Budget | None = None
    known: tuple[int | str, ...] = ()
    expected: tuple[int | str, ...] = ()


@dataclass(frozen=True, eq=False)
class Bundle:
    """The content of a bundle's file.

    Attributes:
        description: the content of bundle.json.
        task: the task that was run; its program has references, intermediates and scratch needs, as from `lower`.
        references: the references that the outputs were compared with.
        outputs: the target's outputs; empty where they are not known.
        intermediates: the dialect's values by instruction; empty where they are not known.
        elf: the bytes of the runner's ELF.
        log: what the target printed.
    """

    description: Description
    task: BundleTask
    references: References
    outputs: tuple[HostTensor, ...]
    intermediates: tuple[Intermediate, ...]
    elf: bytes = field(repr=False)
    log: str = field(repr=False)

    @property
    def judges(self) -> bool:
        """Tell whether a replay compares outputs; it does not if the test did not."""
        return self.task.tolerance is None or any(getattr(self.references, name) is not None for name in SINGLE)


@dataclass(frozen=True, eq=False)
class Attempt:
    """A task that was run, and the facts about its target; `bundle` makes a bundle of it.

    `error` is None if the task passed. `references` is None if the task ended before the comparison. `ticks` are
    those of the run, by the clock of `ran`; None where it did not end.
    """

    task: BundleTask
    error: VerdictError | None
    dut: Dut
    ran: Ran | None
    seconds: float
    log: str
    references: References | None = None
    outputs: tuple[HostTensor, ...] = ()
    intermediates: tuple[Intermediate, ...] = ()
    ticks: int | None = None

    @classmethod
    def from_task(cls, dut: Dut, task: BundleTask, error: VerdictError | None, checked: flow.Checked | None) -> Attempt:
        ran, seconds = dut.last_ran(), dut.seconds
        if checked is None:
            return cls(task, error, dut, ran, seconds, error.log if error is not None else "")
        result = checked.result
        return cls(task, error, dut, ran, seconds, result.log, checked.references, result.outputs)

    def bundle(self, test: str, *, seed: int | None = None, rerun: str = "", with_runner: bool = True) -> Bundle:
        """Return a bundle of the attempt.

        Args:
            test: the name of the failed test.
            seed: the seed of the run; None: no seed.
            rerun: the command that runs the test again.
            with_runner: False leaves the runner's ELF out.

        Raises:
            ConfigError: the ELF does not exist any more.
        """
        scratch, references = _scratch(self.task.program, self.dut.target.isa), self._references()
        description = Description(
            schema_version=SCHEMA_VERSION,
            test=test,
            seed=seed,
            rerun=rerun,
            machine=self._machine(),
            verdict=Recorded.of(self.error) if self.error is not None else Recorded.passed(),
            judgement=_judgement(self.task, self.seconds),
            program=_described(self.task, self.dut.target.isa, scratch),
            references=_counted(references),
            outputs=tuple(map(TensorEntry.of, self.outputs)),
            intermediates=tuple(map(_of_intermediate, self.intermediates)),
        )
        elf, log = files.read(self.dut.elf.path, files.ELF_LIMIT) if with_runner else b"", self.log[-_LOG_LIMIT:]
        return Bundle(description, self.task, references, self.outputs, self.intermediates, elf, log)

    def _references(self) -> References:
        """Return the references, even if the outputs were not compared with them yet.

        Without references, a replay would pass with any outputs. If they cannot be computed, there are none: an error
        here must not hide the error that is being reported.
        """
        if self.references is not None:
            return self.references
        if self.task.tolerance is not None and self.task.program.reference is not None:
            with contextlib.suppress(Exception):
                return self.task.program.reference(self.task.inputs)
        return References()

    def _machine(self) -> BundleMachine:
        resolved, elf, ran = self.dut.resolved, self.dut.elf, self.ran
        return BundleMachine(
            requested=TargetEntry.of(resolved.requested),
            target=TargetEntry.of(resolved.target),
            fallback_reason=resolved.fallback_reason,
            shim=resolved.shim,
            engine=ran.engine if ran is not None else "",
            runtime=resolved.runtime,
            runtime_version=ran.runtime_version if ran is not None else "",
            build_id=elf.build_id,
            config=elf.config,
            versions=versions(),
        )


def versions() -> dict[str, str]:
    """Return the versions of Python and of installed packages, without importing them."""
    found = {"python": platform.python_version()}
    for name in _PACKAGES:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            found[name] = importlib.metadata.version(name)
    return found


def _scratch(program: Program, isa: Isa) -> tuple[ScratchNeed, ...] | None:
    """Return a program's scratch needs; None for invalid arguments, for which lint refuses the program."""
    try:
        return flow.scratch_needs(program, isa)
    except HarnessError:
        return None


def _judgement(task: BundleTask, seconds: float) -> BundleJudgement:
    tolerance = None if task.tolerance is None else ToleranceEntry.of(task.tolerance)
    budget = None if task.budget is None else BudgetEntry(**_shallow(task.budget))
    return BundleJudgement(
        tolerance=tolerance, linted=task.linted, redzones=task.redzones, excluded=task.excluded, seconds=seconds,
        budget=budget, known=task.known, expected=task.expected,
    )  # fmt: skip


def _described(task: BundleTask, isa: Isa, scratch: Sequence[ScratchNeed] | None) -> ProgramEntry:
    return ProgramEntry(
        name=task.program.name,
        method=task.program.file.method,
        isa=task.program.isa,
        nodes=task.program.nodes,
        size_without_redzones=task.program.size_without_redzones,
        inputs=tuple(map(TensorEntry.of, task.inputs)),
        scratch_isa=isa,
        scratch=None if scratch is None else tuple(ScratchEntry(**_shallow(one)) for one in scratch),
    )


def _of_intermediate(one: Intermediate) -> IntermediateEntry:
    has = {"quantized": one.quantized is not None, "eager": one.eager is not None}
    return IntermediateEntry(**{**_shallow(one), **has, "dialect": tuple(map(TensorEntry.of, one.dialect))})


def _counted(references: References) -> ReferencesEntry:
    counts = {name: None if (one := getattr(references, name)) is None else len(one) for name in SINGLE}
    disturbed, floats = (tuple(map(len, getattr(references, name))) for name in DISTURBED)
    return ReferencesEntry(**counts, disturbed=disturbed, disturbed_floats=floats)


def _shallow(value: Any) -> dict[str, Any]:
    return {one.name: getattr(value, one.name) for one in fields(value)}
