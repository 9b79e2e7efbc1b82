"""Checking a program on a target: lint it, run it, and compare its outputs."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatch
from functools import cached_property, partial
from pathlib import Path

from cortex_m_hil.checks.comparison.advice_texts import SIZE
from cortex_m_hil.checks.comparison.compare_outputs import compare
from cortex_m_hil.checks.comparison.comparison_result import Comparison, FindingKind
from cortex_m_hil.checks.comparison.tolerance import Tolerance
from cortex_m_hil.checks.executorch_verdict import raise_for_executorch
from cortex_m_hil.checks.input_checks import require_fit
from cortex_m_hil.checks.lint import explain, lint, lint_elsewhere, raise_findings, would_refuse
from cortex_m_hil.checks.lint_rules.finding import LintFinding
from cortex_m_hil.errors import InfraError, Mismatch, VerdictError
from cortex_m_hil.flow.dut import Dut
from cortex_m_hil.flow.hang_diagnosis import hang_diagnosed
from cortex_m_hil.flow.single_run import Guards, execute, execute_loaded, load, operator_that_keeps_its_size
from cortex_m_hil.host import files
from cortex_m_hil.lowering.scratch import scratch_needs
from cortex_m_hil.program.program import Program, References
from cortex_m_hil.program.tensor import Array, HostTensor
from cortex_m_hil.runner.run_results import RunResult
from cortex_m_hil.targets.executorch_prefix import mended_bugs
from cortex_m_hil.targets.target import Target


@dataclass(frozen=True)
class Checked:
    """The results of `verify`: the run, the comparison, and the references that the outputs were compared with."""

    program: Program
    result: RunResult
    comparison: Comparison
    references: References = field(default_factory=References)


def verify(
    dut: Dut,
    program: Program,
    *,
    tolerance: Tolerance,
    linted: bool = True,
    excluded: Sequence[str] = (),
    guards: Guards | None = None,
    observe: Callable[[Checked], None] = lambda _: None,
) -> Checked:
    """Verify a program on a target: lint and run it on its own inputs, and compare the outputs with its references.

    Args:
        dut: the target.
        program: the program.
        tolerance: the tolerance of the comparison.
        linted: False skips the lint.
        excluded: patterns of operators that lint treats as missing.
        guards: makes the guard that watches memory during the run; None: memory is not watched.
        observe: called with the results before a bad verdict on them is raised.

    Raises:
        InfraError, VerdictError: `run` raises it, or the comparison fails.
    """
    lint = ProgramLint(dut, program, linted, excluded)
    with lint.explaining_verdicts():
        result = _result(dut, program, program.inputs, lint, guards)
        references = program.reference(program.inputs) if program.reference else References()
        comparison = compare(program.file, result.outputs, references, tolerance, result.unwritten)
        if any(finding.kind is FindingKind.SHAPE for finding in comparison.findings):
            comparison = _with_size_keeping_operator(dut, program, comparison)
        checked = Checked(program, result, comparison, references)
        observe(checked)
        try:
            comparison.raise_for_verdict(dut.resolved.display_name)
        except VerdictError as error:
            if program.training is not None:
                error.details = (*error.details, ("mode", str(program.training)))
            raise
    return checked


def run(
    dut: Dut,
    program: Program,
    inputs: tuple[HostTensor, ...] | None = None,
    *,
    linted: bool = True,
    excluded: Sequence[str] = (),
    guards: Guards | None = None,
    complete: bool = True,
) -> RunResult:
    """Run a program once; twice if an output looks unwritten, or if a guard watches memory.

    Args:
        dut: the target.
        program: the program.
        inputs: the inputs; None: the program's own.
        linted: False skips the lint; inputs that do not fit the program raise a ConfigError even then.
        excluded: patterns of operators that lint treats as missing, though the runner has them.
        guards: makes the guard that watches memory, such as `diagnose.lifetime_check.WatchedMemory`; None: no guard.
        complete: True: an unwritten element of an output is a Mismatch; False: `RunResult.unwritten` has a mask of
            these elements.

    Raises:
        ConfigError: the inputs do not fit the program.
        InfraError: the target or its tools fail.
        VerdictError: the program is refused, or fails. A program that does not end raises TargetHang only if the target
            passes its self-test afterwards.
    """
    given = program.inputs if inputs is None else inputs
    lint = ProgramLint(dut, program, linted, excluded)
    with lint.explaining_verdicts():
        result = _result(dut, program, given, lint, guards)
        if complete:
            _refuse_unwritten(program, result.unwritten, dut.target.name, result.log)
    return result


def _result(
    dut: Dut, program: Program, inputs: tuple[HostTensor, ...], lint: ProgramLint, guards: Guards | None
) -> RunResult:
    """Run a linted program on inputs that fit, and return the result; raises the errors of `run`."""
    require_fit(program, inputs, dut.target.name, dut.resolved.runtime)
    keep(dut, program, inputs)
    session = dut.session()
    lint.require()
    with hang_diagnosed(dut, program, inputs):
        result = execute(dut, session, program, inputs, guards(program) if guards else None)
    return result


def stream(
    dut: Dut, program: Program, samples: Iterable[tuple[HostTensor, ...]], *, linted: bool = True
) -> Iterator[tuple[HostTensor, ...]]:
    """Load a program once, and yield its outputs for each sample. Raises the errors of `run`."""
    lint = ProgramLint(dut, program, linted)
    lint.require()
    with lint.explaining_verdicts():
        session, loaded = dut.session(), False
        for inputs in samples:
            require_fit(program, inputs, dut.target.name, dut.resolved.runtime)
            with hang_diagnosed(dut, program, inputs):
                if not loaded:
                    load(session, program)
                    loaded = True
                outputs, unwritten, _ = execute_loaded(dut, session, inputs)
            _refuse_unwritten(program, unwritten, dut.target.name, session.log)
            yield tuple(outputs)


# --- lint ----------------------------------------------------------------------------------------------------


def findings(
    program: Program, target: Target, operators: Sequence[str] | None, runtime: str
) -> tuple[LintFinding, ...]:
    """Return all findings of lint; `operators` are the names of the runner's operators, None if unknown."""
    mended = mended_bugs(target) if runtime == "executorch" else frozenset()
    scratch = scratch_needs(program, target.isa)
    return lint(program, target, operators=operators, scratch=scratch, runtime=runtime, mended=mended)


def findings_elsewhere(program: Program, target: Target, runtime: str) -> tuple[LintFinding, ...]:
    """Return findings about instructions that the other runtime would refuse or compute wrongly.

    Of ExecuTorch they are those of the installed one; without one, of the wheel's release.
    """
    mended = mended_bugs(target) if runtime == "builtin" else frozenset()
    scratch = scratch_needs(program, target.isa)
    return lint_elsewhere(program, target, scratch=scratch, runtime=runtime, mended=mended)


def findings_everywhere(
    program: Program, target: Target, operators: Sequence[str] | None, runtime: str
) -> tuple[LintFinding, ...]:
    """Return all findings of lint, and the findings for the other runtime about calls that these do not refuse."""
    own = findings(program, target, operators, runtime)
    refused = {(one.rule, one.instruction) for one in own if not one.is_note}
    others = findings_elsewhere(program, target, runtime)
    return (*own, *(one for one in others if (one.rule, one.instruction) not in refused))


@dataclass(frozen=True)
class ProgramLint:
    """The lint of a program on a target, done once: before a run, or after a bad verdict of a run without lint.

    Attributes:
        linted: whether to lint before the run; if not, the runner is not asked for its operators then.
        excluded: patterns of operators that lint treats as missing, though the runner has them.
    """

    dut: Dut
    program: Program
    linted: bool = True
    excluded: Sequence[str] = ()

    @cached_property
    def findings(self) -> tuple[LintFinding, ...]:
        offered = self._offered() if self.linted else None
        return findings(self.program, self.dut.target, offered, self.dut.resolved.runtime)

    def _offered(self) -> list[str]:
        names = self.dut.session().identity.operators
        return [name for name in names if not any(map(partial(fnmatch, name), self.excluded))]

    def everywhere(self) -> tuple[LintFinding, ...]:
        """Return the findings for both runtimes."""
        return findings_everywhere(self.program, self.dut.target, self._offered(), self.dut.resolved.runtime)

    def require(self) -> None:
        """Refuse a program that does not fit the target, unless `linted` is False.

        Raises:
            LintError, UnsupportedOperator, OutOfTargetMemory: the program does not fit.
            ToolchainError: the runner's ExecuTorch is of another release than the wheel, and lacks an operator.
        """
        if self.linted:
            raise_findings(self.findings, self.dut.target.name)

    @contextlib.contextmanager
    def explaining_verdicts(self) -> Iterator[None]:
        """Add to the verdict of a run without lint the error that lint would have raised, and the next step."""
        try:
            yield
        except VerdictError as error:
            if not self.linted:
                explain(error, self.findings)
            raise


def refused_by_lint(dut: Dut, program: Program) -> str:
    """Return a line with the gravest finding of lint, for either runtime, for a program that is run without lint.

    Return "" otherwise.
    """
    return would_refuse(findings_everywhere(program, dut.target, None, dut.resolved.runtime))


def judge_on_executorch(
    dut: Dut, program: Program, known: Collection[int | str] = (), expected: Collection[int | str] = ()
) -> frozenset[int | str]:
    """Judge without a run whether a program that has passed on a target would fail on ExecuTorch.

    Args:
        dut: the target. If it runs ExecuTorch, its lint and the run have judged the program already, and an expected
            cause counts as occurring if lint foresees it: ExecuTorch on the host has operators that others lack.
        program: the program.
        known: causes that the caller accepts: known bugs by number, or operators by name.
        expected: the accepted causes that have to occur.

    Returns:
        The accepted causes that occur.

    Raises:
        WouldFailOnExecuTorch: ExecuTorch refuses the program, or computes it wrongly, by a cause that is not accepted.
        KnownBugAbsent: an expected cause does not occur.
    """
    runs_there = dut.resolved.runtime == "executorch"
    found = () if runs_there and not known else findings_elsewhere(program, dut.target, "builtin")
    if runs_there:
        found = tuple(one for one in found if one.cause_key in known)
    raise_for_executorch(found, dut.target, known, expected)
    return frozenset(one.cause_key for one in found)


# --- steps of the sequence ---------------------------------------------------------------------------------


def _with_size_keeping_operator(dut: Dut, program: Program, comparison: Comparison) -> Comparison:
    """Return the comparison.

    If an operator left its output at the upper bounds of its shape, it names this operator.
    """
    keeps = operator_that_keeps_its_size(dut.session(), program)
    if not keeps:
        return comparison
    count = len(program.file.outputs)
    return replace(comparison, computed_by=(keeps,) * count, advice=(SIZE,) * count)


def _refuse_unwritten(program: Program, unwritten: Sequence[Array], target: str, log: str) -> None:
    for number, mask in enumerate(unwritten):
        if mask.any():
            made_by = program.file.dataflow.computed_by[number]
            hint = "its kernel leaves elements out; hil compare-runtimes tells whether ExecuTorch's does too"
            raise Mismatch(
                f"{int(mask.sum())} of {mask.size} elements of output {number} were never written",
                target=target,
                operator=made_by.operator if made_by is not None else "",
                hint=hint if made_by is not None else "no operator of the program writes it: lower the module again",
                log=log,
            )


def kept_input(pte: Path, number: int) -> Path:
    """Return the path of the file with an input of a kept program."""
    return pte.with_suffix(f".{number}.npy")


def keep(dut: Dut, program: Program, inputs: Sequence[HostTensor]) -> None:
    """Write a program with its inputs, once, to the target's folder for kept programs, if it has one.

    Raises:
        InfraError: a file cannot be written.
    """
    if (folder := dut.keep) is None:
        return
    content = hashlib.sha256(b"".join([program.identity, *(value.data for value in inputs)])).hexdigest()
    path = folder / f"{files.file_name_for(dut.what)}-{content[:8]}.pte"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for number, value in enumerate(inputs):
            kept_input(path, number).write_bytes(value.npy())
        path.write_bytes(program.pte)
    except OSError as error:
        what = f"cannot keep the program in {folder}: {error.strerror}"
        raise InfraError(what, hint="another --keep-programs") from error
