"""Lint: checks that a `.pte` fits a target, before any run, from the file alone, without torch."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Final

from cortex_m_hil.checks.comparison.advice_texts import FEEDS, TARGET
from cortex_m_hil.checks.lint_rules import (
    argument_findings,
    interface_findings,
    isa_findings,
    memory_findings,
    missing_kernel_findings,
)
from cortex_m_hil.checks.lint_rules.finding import (
    NOTES,
    LintFinding,
    LintRule,
    LintSubject,
    Rule,
    and_others,
    bug_details,
)
from cortex_m_hil.checks.lint_rules.hints import UNLINTED, next_step
from cortex_m_hil.errors import (
    HarnessError,
    LintError,
    OutOfTargetMemory,
    ToolchainError,
    UnsupportedOperator,
    VerdictError,
)
from cortex_m_hil.program.program import Program, ScratchNeed
from cortex_m_hil.targets.target import Target

RULES: Final[tuple[LintRule, ...]] = (
    isa_findings.layout,
    isa_findings.isa_class,
    interface_findings.outputs,
    memory_findings.views,
    argument_findings.signatures,
    memory_findings.scratch,
    memory_findings.overlaps,
    missing_kernel_findings.delegates,
    missing_kernel_findings.lacking,
    missing_kernel_findings.left_in_float,
    interface_findings.state,
    memory_findings.banks,
    memory_findings.program_room,
)
"""The rules, in the order of their findings."""
_ELSEWHERE: Final[Mapping[str, tuple[str, tuple[LintRule, ...], LintRule]]] = {
    "builtin": (
        "executorch",
        (argument_findings.signatures, memory_findings.scratch),
        missing_kernel_findings.lacking_in_executorch,
    ),
    "executorch": ("builtin", (argument_findings.signatures,), missing_kernel_findings.lacking_in_builtin),
}
"""For each runtime that executes a program: the other one, the rules for its calls, and that for what it lacks."""
_OF_CALLS: Final = frozenset({Rule.DTYPE, Rule.DIM_ORDER, Rule.ARGUMENTS, Rule.SCRATCH, Rule.OPERATOR})
"""The findings of `_ELSEWHERE`: a caller may accept them on both runtimes, by known bug or operator."""
_UNSUPPORTED: Final = frozenset({Rule.OPERATOR, Rule.DELEGATE})
_MEMORY: Final = frozenset({Rule.PLANNED_POOL, Rule.PROGRAM_POOL})
_RELEASE: Final = frozenset({Rule.RELEASE})
_ERRORS: Final[tuple[tuple[type[HarnessError], frozenset[Rule]], ...]] = (
    (LintError, frozenset(Rule) - NOTES - _UNSUPPORTED - _MEMORY - _RELEASE),
    (UnsupportedOperator, _UNSUPPORTED),
    (OutOfTargetMemory, _MEMORY),
    (ToolchainError, _RELEASE),
)


def lint(
    program: Program,
    target: Target,
    *,
    operators: Collection[str] | None,
    scratch: Sequence[ScratchNeed] = (),
    runtime: str = "builtin",
    mended: Collection[int] = (),
) -> tuple[LintFinding, ...]:
    """Return all findings about a program on a target, in the order of `RULES`.

    The arguments are the attributes of `LintSubject`.
    """
    subject = LintSubject(program, target, operators, scratch, runtime, mended)
    return tuple(finding for rule in RULES for finding in rule(subject))


def lint_elsewhere(
    program: Program,
    target: Target,
    *,
    scratch: Sequence[ScratchNeed] = (),
    runtime: str = "builtin",
    mended: Collection[int] = (),
) -> tuple[LintFinding, ...]:
    """Return findings about instructions that the other runtime would refuse or compute wrongly on the same target.

    `mended` are the known bugs that the other runtime does not have. If that is builtin, the findings are notes, since
    programs are made for ExecuTorch.
    """
    other, rules, lacking = _ELSEWHERE[runtime]
    subject = LintSubject(program, target, None, scratch, other, mended)
    found = (replace(one, runtime=other) for rule in (*rules, lacking) for one in rule(subject) if not one.is_note)
    if other == "executorch":
        return tuple(found)
    return tuple(
        replace(one, rule=Rule.BUILTIN_NOTE, message=f"only ExecuTorch takes it: {one.message}") for one in found
    )


def missing_elsewhere(program: Program, target: Target, runtime: str) -> tuple[str, ...]:
    """Return the operators of a program that the other runtime than `runtime` does not have, as far as is known."""
    other, _, lacking = _ELSEWHERE[runtime]
    return tuple(one.operator for one in lacking(LintSubject(program, target, None, (), other)))


def explain(error: VerdictError, findings: Sequence[LintFinding]) -> None:
    """Add to the verdict of a run without lint the error that lint would have raised, and the next step.

    A layout for another ISA class replaces the verdict's cause, unless that names more than the target or operator.

    Raises:
        ToolchainError: the runner lacks an operator because its ExecuTorch is older than the wheel.
    """
    if isinstance(error, UnsupportedOperator):
        raise_findings([one for one in findings if one.rule is Rule.RELEASE], error.target)
    grave = [finding for finding in findings if not finding.is_note]
    if not grave or any(label == "lint" for label, _ in error.details):
        return
    layout = next((finding for finding in grave if finding.rule is Rule.LAYOUT), None)
    known = [(label, _by_layout(text, layout) if label == "cause" else text) for label, text in error.details]
    error.details = (*known, ("lint", would_refuse(findings)))
    error.hint = next_step(grave[0]).partition(f"; {UNLINTED}")[0]


def would_refuse(findings: Sequence[LintFinding]) -> str:
    """Return a line with the gravest finding, for a run without lint; "" if there are only notes or nothing."""
    grave = [finding for finding in findings if not finding.is_note]
    return f"{grave[0].message}{and_others(grave)}; lint was off ({UNLINTED})" if grave else ""


def _by_layout(cause: str, layout: LintFinding | None) -> str:
    if layout is None or not (cause == TARGET.cause or cause.endswith(FEEDS)):
        return cause
    return f"the layout: {layout.message.partition('; lower it')[0]}"


def raise_findings(findings: Sequence[LintFinding], target_name: str) -> None:
    """Raise the error of the gravest findings; notes alone raise nothing.

    The message is the first of these findings; the others follow in the log.

    Raises:
        LintError: layout, dtypes, scratch and the like do not fit.
        UnsupportedOperator: otherwise, if an operator or delegate is missing.
        OutOfTargetMemory: otherwise, if a memory is too small.
        ToolchainError: otherwise, if an operator is missing because the runner's ExecuTorch is older than the wheel.
    """
    grave = [finding for finding in findings if not finding.is_note]
    for error, rules in _ERRORS:
        mine = [finding for finding in grave if finding.rule in rules]
        if mine:
            log = "\n".join(f"{finding.rule.value}: {finding.message}" for finding in findings)
            message = mine[0].message
            if error is UnsupportedOperator:
                message = "; ".join(finding.message for finding in mine)
            raised = error(
                message + and_others(grave),
                target=target_name,
                operator=mine[0].operator,
                details=[
                    *([("cause", mine[0].cause)] if mine[0].cause else []),
                    *bug_details(mine[0]),
                    *mine[0].details,
                ],
                hint=next_step(mine[0]),
                log=log,
            )
            if isinstance(raised, VerdictError):
                raised.causes = _causes(grave)
            raise raised


def _causes(grave: Sequence[LintFinding]) -> tuple[int | str, ...]:
    """Return the causes of findings that a caller may accept; () where one of them may not be."""
    about = [finding for finding in grave if finding.rule is not Rule.RELEASE]
    if not all(finding.bug is not None or finding.rule in _OF_CALLS for finding in about):
        return ()
    return tuple(dict.fromkeys(finding.cause_key for finding in about))
