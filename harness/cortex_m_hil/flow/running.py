"""Running one program on a target: lint, execution, and the cause of a hang."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Iterable, Iterator, Sequence
from fnmatch import fnmatch
from functools import partial
from pathlib import Path

from cortex_m_hil.checks.inputs import require_fit
from cortex_m_hil.checks.lint import UNLINTED, LintFinding, lint, next_step, raise_findings
from cortex_m_hil.errors import (
    InfraError,
    Mismatch,
    ToolchainError,
    VerdictError,
)
from cortex_m_hil.flow.dut import Dut
from cortex_m_hil.flow.execution import Guard, Guards, execute, execute_loaded, load
from cortex_m_hil.flow.hang import explain_silence
from cortex_m_hil.host import files
from cortex_m_hil.program.program import Program, ScratchNeed
from cortex_m_hil.program.tensor import Array, HostTensor
from cortex_m_hil.runner.results import RunResult
from cortex_m_hil.runner.session.session import ResponseTimeout, Session
from cortex_m_hil.targets.cpu import Isa
from cortex_m_hil.targets.model import Target


def scratch_needs(program: Program, isa: Isa) -> tuple[ScratchNeed, ...]:
    """Return the scratch sizes that the program knows, else those of the wheel's CMSIS-NN; none without either."""
    if program.scratch is not None:
        return program.scratch(isa)
    from cortex_m_hil.lowering.scratch import scratch_of

    with contextlib.suppress(ToolchainError):
        return scratch_of(program, isa)
    return ()


def findings(
    program: Program, target: Target, operators: Sequence[str] | None, runtime: str
) -> tuple[LintFinding, ...]:
    """Return all findings of the lint; `operators` is the runner's list, None if unknown."""
    return lint(program, target, operators=operators, scratch=scratch_needs(program, target.isa), runtime=runtime)


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
    """Run a program once (twice where an output looks unwritten, or under a guard).

    Args:
        dut: the target.
        program: the program.
        inputs: None: the program's own.
        linted: False skips the lint; inputs that do not fit the program are a ConfigError all the same.
        excluded: patterns of operators that lint takes for absent, though the runner has them.
        guards: makes the program's guard, for instance `diagnose.lifetimes.WatchedMemory`; None: no memory is watched.
        complete: an unwritten element of an output is a Mismatch; False: `RunResult.unwritten` has a mask of them.

    Raises:
        ConfigError: the inputs do not fit the program.
        InfraError: the target or its tools fail.
        VerdictError: the program is refused, or fails. A program that does not end is TargetHang only if the target
            passes
            its self-test afterwards.
    """
    given = program.inputs if inputs is None else inputs
    require_fit(program, given, dut.target.name, dut.resolved.runtime)
    keep(dut, program, given)
    session = dut.session()
    if linted:
        require_lint(dut, program, excluded)
    with contextlib.nullcontext() if linted else telling_what_lint_knows(dut, program):
        return _run(dut, session, program, given, guards(program) if guards else None, complete=complete)


def _run(
    dut: Dut, session: Session, program: Program, given: tuple[HostTensor, ...], guard: Guard | None, *, complete: bool
) -> RunResult:
    try:
        result = execute(dut, session, program, given, guard)
    except ResponseTimeout as stuck:
        problem = explain_silence(dut, program, given, stuck, session.log)
    else:
        if complete:
            _refuse_unwritten(program, result.unwritten, dut.target.name, result.log)
        return result
    raise problem


@contextlib.contextmanager
def telling_what_lint_knows(dut: Dut, program: Program) -> Iterator[None]:
    """Add to a bad verdict of a run without lint what lint would have refused, and the next step."""
    try:
        yield
    except VerdictError as error:
        known = findings(program, dut.target, None, dut.resolved.runtime)
        grave = [finding for finding in known if not finding.is_note]
        if grave and all(label != "lint" for label, _ in error.details):
            more = f" (and {len(grave) - 1} more)" if len(grave) > 1 else ""
            error.hint = next_step(grave[0]).partition(f"; {UNLINTED}")[0]
            error.details = (*error.details, ("lint", f"{grave[0].message}{more}; not asked before ({UNLINTED})"))
        raise


def stream(
    dut: Dut, program: Program, samples: Iterable[tuple[HostTensor, ...]], *, linted: bool = True
) -> Iterator[tuple[HostTensor, ...]]:
    """Yield the outputs of a program for each sample; it is loaded once. Raises what `run` does."""
    session = dut.session()
    if linted:
        require_lint(dut, program)
    loaded = False
    for inputs in samples:
        require_fit(program, inputs, dut.target.name, dut.resolved.runtime)
        try:
            if not loaded:
                load(session, program)
                loaded = True
            outputs, unwritten, _ = execute_loaded(dut, session, program, inputs)
        except ResponseTimeout as stuck:
            problem = explain_silence(dut, program, inputs, stuck, session.log)
        else:
            _refuse_unwritten(program, unwritten, dut.target.name, session.log)
            yield tuple(outputs)
            continue
        raise problem


def require_lint(dut: Dut, program: Program, excluded: Sequence[str] = ()) -> None:
    """Lint a program for a target and its runner.

    Raises:
        LintError, UnsupportedOperator, OutOfTargetMemory: the program does not fit.
    """
    offered = [name for name in dut.session().identity.operators if not any(map(partial(fnmatch, name), excluded))]
    raise_findings(findings(program, dut.target, offered, dut.resolved.runtime), dut.target.name)


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
    """Return the path of an input of a program that was kept."""
    return pte.with_suffix(f".{number}.npy")


def keep(dut: Dut, program: Program, inputs: Sequence[HostTensor]) -> None:
    """Write a program with its inputs, once, to the target's folder for kept programs, if it has one.

    Raises:
        InfraError: it cannot be written.
    """
    if (folder := dut.keep) is None:
        return
    content = hashlib.sha256(b"".join([program.pte, *(value.data for value in inputs)])).hexdigest()
    path = folder / f"{files.name_for(dut.what)}-{content[:8]}.pte"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for number, value in enumerate(inputs):
            kept_input(path, number).write_bytes(value.npy())
        path.write_bytes(program.pte)
    except OSError as error:
        what = f"cannot keep the program in {folder}: {error.strerror}"
        raise InfraError(what, hint="another --keep-programs") from error
