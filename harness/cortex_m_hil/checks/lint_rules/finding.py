"""The argument of every lint rule, `LintSubject`, and its results, `LintFinding`."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final

from cortex_m_hil.errors.known_bugs import KNOWN_BUGS, known_bug
from cortex_m_hil.errors.text import counted
from cortex_m_hil.program.program import Program, ScratchNeed
from cortex_m_hil.program.pte_file import PteFile
from cortex_m_hil.program.values import Instruction
from cortex_m_hil.targets.target import Target


class Rule(str, Enum):
    """The subject of a rule of lint, such as the layout or an operator's dtypes."""

    LAYOUT = "layout"
    ISA = "isa"
    DTYPE = "dtype"
    DIM_ORDER = "dim-order"
    ARGUMENTS = "arguments"
    OUTPUT = "output"
    SCRATCH = "scratch"
    SCRATCH_NOTE = "scratch-note"
    OVERLAP = "overlap"
    OPERATOR = "operator"
    RELEASE = "release"
    DELEGATE = "delegate"
    FALLBACK_NOTE = "fallback-note"
    FLOAT_NOTE = "float-note"
    STATE_NOTE = "state-note"
    BUILTIN_NOTE = "builtin-note"
    PLANNED_POOL = "planned-pool"
    PROGRAM_POOL = "program-pool"


NOTES: Final = frozenset({Rule.SCRATCH_NOTE, Rule.FLOAT_NOTE, Rule.FALLBACK_NOTE, Rule.STATE_NOTE, Rule.BUILTIN_NOTE})
"""Rules whose findings are notes, which raise no error."""


@dataclass(frozen=True, slots=True)
class LintFinding:
    """A reason why a program does not fit a target, or a note.

    Attributes:
        rule: the rule that the program breaks.
        message: the finding in words.
        operator: the name of the operator; "" where the finding is about none.
        instruction: the number of the instruction; -1 where the finding is about none.
        value: the index of the value; -1 where the finding is about none.
        cause: the cause; "" where it is not known.
        hint: the next step; "": the one in `HINTS` for the rule.
        details: further lines, each with its label.
        bug: the number of the known bug of ExecuTorch that is the cause, also at the end of the message; None: no known
            bug.
        runtime: the runtime whose rule is broken, if it is not the runtime that runs the program; else "".
    """

    rule: Rule
    message: str
    operator: str = ""
    instruction: int = -1
    value: int = -1
    cause: str = ""
    hint: str = ""
    details: tuple[tuple[str, str], ...] = ()
    bug: int | None = None
    runtime: str = ""

    @property
    def is_note(self) -> bool:
        return self.rule in NOTES

    @property
    def cause_key(self) -> int | str:
        """Return the cause in the form in which users accept it: the number of the known bug, else the operator."""
        return self.bug if self.bug is not None else self.operator


@dataclass(frozen=True)
class LintSubject:
    """A program, with the target and runtime that would run it.

    Attributes:
        program: the program.
        target: the target.
        operators: the names of the runner's operators; None if unknown.
        scratch: the result of `lowering.scratch.scratch_needs` for the target's ISA class; empty where ExecuTorch is
            not installed.
        runtime: the runtime that would execute the program.
        mended: numbers of the known bugs that this runtime does not have.
    """

    program: Program
    target: Target
    operators: Collection[str] | None
    scratch: Sequence[ScratchNeed]
    runtime: str
    mended: Collection[int] = ()

    @property
    def file(self) -> PteFile:
        return self.program.file

    def finding(
        self,
        rule: Rule,
        text: str,
        instruction: Instruction,
        value: int = -1,
        *,
        cause: str = "",
        hint: str = "",
        details: tuple[tuple[str, str], ...] = (),
        bug: int | None = None,
    ) -> LintFinding:
        """Return a finding about an instruction; its message begins with the instruction's place."""
        nodes, number = self.program.nodes, instruction.index
        node = nodes[number] if number < len(nodes) else ""
        where = f"operator {number}" + (f", {node}" if node else "")
        message = with_bug(f"{where}: {text}", bug)
        return LintFinding(rule, message, instruction.operator, number, value, cause, hint, details, bug)


def with_bug(message: str, bug: int | None) -> str:
    """Return a message with the known bug that is its cause appended, if there is one."""
    return message if bug is None else f"{message} ({known_bug(bug)})"


def and_others(findings: Sequence[LintFinding]) -> str:
    """Return how many findings there are behind the first, for the end of its message; "" where there is one."""
    return f" (and {counted(len(findings) - 1, 'more lint finding')})" if len(findings) > 1 else ""


def bug_details(finding: LintFinding) -> list[tuple[str, str]]:
    """Return the lines about the known bug that a finding comes from, if one is known."""
    if finding.bug is None:
        return []
    known = KNOWN_BUGS[finding.bug]
    return [("known bug", f"{finding.bug}: {known.name} (hil docs known_bugs)"), ("upstream", known.upstream)]


LintRule = Callable[[LintSubject], Iterable[LintFinding]]
