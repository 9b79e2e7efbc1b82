"""Bundles: one file with a program that failed, its inputs and outputs, and the runner that ran it.

It replays without torch and ExecuTorch (`diagnose.replay`). It may come from a stranger: whatever is wrong with its
file (`diagnose.bundle_file`) is a ConfigError.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import platform
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Final

from cortex_m_hil import flow
from cortex_m_hil.checks.tolerance import Tolerance
from cortex_m_hil.diagnose.budgets import Budget
from cortex_m_hil.diagnose.bundle_description import (
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
from cortex_m_hil.program.program import Intermediate, Program, References, ScratchNeed
from cortex_m_hil.program.tensor import HostTensor
from cortex_m_hil.runner.results import Ran
from cortex_m_hil.targets.cpu import Isa

SINGLE: Final = ("dialect", "quantized", "eager", "expected")  # references of which there is one run each
_PACKAGES: Final = ("executorch-cortex-m-hil", "torch", "executorch")
_LOG_LIMIT: Final = 1 << 20  # characters, the newest


@dataclass(frozen=True)
class BundleTask:
    """A task for a target: to run a program on inputs, and how that is judged.

    Attributes:
        program: the program.
        inputs: its inputs.
        tolerance: None where outputs are compared with nothing.
        linted: as `flow.run` takes it.
        redzones: memory is watched.
        excluded: as `flow.run` takes it.
        budget: what the program may take; None: it is not limited.
        known: as `flow.judge_on_executorch` takes it.
        expected: as `flow.judge_on_executorch` takes it.
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
        task: what was run; its program has references, intermediates and scratch needs, as from `lower`.
        references: those that were compared with.
        outputs: what the target gave; empty where that is not known.
        intermediates: the dialect's values by instruction; empty where they are not known.
        elf: the runner.
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
        """Tell whether a replay judges outputs: they are compared with something, unless the test compared nothing."""
        return self.task.tolerance is None or any(getattr(self.references, name) is not None for name in SINGLE)


@dataclass(frozen=True, eq=False)
class Attempt:
    """A task that was run, with what is known of the target; `bundle` makes a bundle of it.

    `error` is None where it passed. `references` is None where the task did not come so far.
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

    @classmethod
    def of(cls, dut: Dut, task: BundleTask, error: VerdictError | None, checked: flow.Checked | None) -> Attempt:
        ran, seconds = dut.last_ran(), dut.seconds
        if checked is None:
            return cls(task, error, dut, ran, seconds, error.log if error is not None else "")
        result = checked.result
        return cls(task, error, dut, ran, seconds, result.log, checked.references, result.outputs)

    def bundle(self, test: str, *, seed: int | None = None, rerun: str = "", with_runner: bool = True) -> Bundle:
        """Return a bundle of the attempt.

        Args:
            test: names what failed.
            seed: of the run; None: there was none.
            rerun: the command that runs it again.
            with_runner: False leaves the runner's ELF out.

        Raises:
            ConfigError: the ELF is gone.
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
        """Return the references, also those that nothing was compared with yet.

        Without them, a replay that gives outputs would pass whatever they are. There are none where they cannot be
        computed: an error here must not hide the one that is being reported.
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
    """Return the versions of Python and of the packages that are installed; nothing is imported for it."""
    found = {"python": platform.python_version()}
    for name in _PACKAGES:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            found[name] = importlib.metadata.version(name)
    return found


def _scratch(program: Program, isa: Isa) -> tuple[ScratchNeed, ...] | None:
    """Return a program's scratch needs; None where its arguments make no sense, for which lint refuses it."""
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
    return ReferencesEntry(**counts, disturbed=tuple(map(len, references.disturbed)))


def _shallow(value: Any) -> dict[str, Any]:
    return {one.name: getattr(value, one.name) for one in fields(value)}
