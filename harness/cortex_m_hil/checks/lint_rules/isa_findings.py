"""Rules on the ISA class that a program is lowered for: its own, and the layout of each operator's arguments."""

from __future__ import annotations

from collections.abc import Iterator

from cortex_m_hil.checks.argument_layout import wrong_layout
from cortex_m_hil.checks.lint_rules.finding import LintFinding, LintSubject, Rule


def layout(subject: LintSubject) -> Iterator[LintFinding]:
    isa = subject.target.isa
    for instruction in subject.file.instructions:
        if (wrong := wrong_layout(subject.file, instruction, isa)) is not None:
            text = f"{wrong.problem}; lower it with isa=Isa.{isa.name}"
            yield subject.finding(Rule.LAYOUT, text, instruction, wrong.value, cause=wrong.cause)


def isa_class(subject: LintSubject) -> Iterator[LintFinding]:
    known, target = subject.program.isa, subject.target
    if known is not None and known is not target.isa:
        yield LintFinding(
            Rule.ISA,
            f"the program was lowered for {known.value}, and {target.name} ({target.cpu}) is {target.isa.value}: "
            f"lower it with isa=Isa.{target.isa.name}",
        )
