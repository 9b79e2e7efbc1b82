"""The verdict on a program that the runtime builtin computes correctly, but that would fail on ExecuTorch.

A cause is the number of a known bug, or the name of an operator that ExecuTorch lacks or whose call it refuses.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final

from cortex_m_hil.checks.lint_rules.finding import LintFinding, and_others, bug_details
from cortex_m_hil.checks.lint_rules.hints import next_step
from cortex_m_hil.errors import ConfigError, KnownBugAbsent, WouldFailOnExecuTorch
from cortex_m_hil.errors.known_bugs import KNOWN_BUGS, known_bug
from cortex_m_hil.errors.text import shown
from cortex_m_hil.targets.target import Target

ALL: Final = "all"
"""Stands for all causes: programs are not judged by whether they would fail on ExecuTorch."""


def accepted_words(words: Sequence[str]) -> tuple[int | str, ...]:
    """Parse causes given as words on a command line or in an ini file; raise ConfigError as `accepted_causes` does."""
    return accepted_causes([int(one) if one.isascii() and one.isdecimal() else one for one in words])


def accepted_causes(causes: Collection[int | str]) -> tuple[int | str, ...]:
    """Check the numbers of known bugs, and names of operators, that a caller accepts, and return them.

    Raises:
        ConfigError: a cause is neither.
    """
    for one in causes:
        is_number = type(one) is int and one in KNOWN_BUGS
        if not is_number and not (isinstance(one, str) and "::" in one):
            hint = "the number of a row of hil docs known_bugs, or the name of an operator such as aten::linear.out"
            raise ConfigError(f"known: {shown(one)} is no known bug of ExecuTorch", hint=hint)
    return tuple(causes)


def raise_for_executorch(
    findings: Sequence[LintFinding], target: Target, known: Collection[int | str], expected: Collection[int | str]
) -> None:
    """Raise the verdict on a program that the runtime builtin computes correctly, if it would fail on ExecuTorch.

    Args:
        findings: the findings of `lint_elsewhere`.
        target: the target.
        known: the causes that the caller accepts.
        expected: the accepted causes that have to occur; a known bug that does not show on the target's ISA class is
            ignored.

    Raises:
        WouldFailOnExecuTorch: a finding has a cause that is not accepted.
        KnownBugAbsent: an expected cause was not found.
    """
    wrong = [one for one in findings if one.cause_key not in known and ALL not in known]
    if wrong:
        first, causes = wrong[0], tuple(dict.fromkeys(one.cause_key for one in wrong))
        raised = WouldFailOnExecuTorch(
            first.message + and_others(wrong),
            target=target.name,
            operator=first.operator,
            details=[*bug_details(first), *first.details],
            hint=f"{next_step(first)}; known={list(causes)!r} accepts it",
            log="\n".join(f"{one.rule.value}: {one.message}" for one in wrong) if len(wrong) > 1 else "",
        )
        raised.causes = causes
        raise raised
    require_occurring({one.cause_key for one in findings}, target, expected)


def require_occurring(found: Collection[int | str], target: Target, expected: Collection[int | str]) -> None:
    """Raise KnownBugAbsent for an expected cause that was not found, unless it is a known bug of other ISA classes."""
    for one in expected:
        known = KNOWN_BUGS[one] if isinstance(one, int) else None
        if one not in found and (known is None or known.isa in ("", target.isa.value)):
            what = f"{known_bug(one)} ({known.name})" if isinstance(one, int) and known is not None else one
            raise KnownBugAbsent(
                f"{what} is accepted, and does not occur in this program",
                target=target.name,
                hint=f"leave {one!r} out of what is accepted (known)",
            )
