"""The hints of lint: the next step after each finding, by its rule. A known bug's is in `errors.known_bugs`."""

from __future__ import annotations

from typing import Final

from cortex_m_hil.checks import missing_operator_hints
from cortex_m_hil.checks.lint_rules.finding import LintFinding, Rule
from cortex_m_hil.errors.known_bugs import KNOWN_BUGS
from cortex_m_hil.targets.executorch_prefix import INSTALL

UNLINTED: Final = "lint=False"
"""The way a call leaves the lint out, for hints; a command with an option for it puts that in its place."""
IN_FLOAT: Final = "quantize=False lowers the module in float; else change the module, so that another operator is there"
_LOWER_ANEW: Final = f"lower the module for this target's ISA class; {UNLINTED} runs this program as it is"
HINTS: Final = {
    Rule.LAYOUT: _LOWER_ANEW,
    Rule.ISA: _LOWER_ANEW,
    Rule.DTYPE: IN_FLOAT,
    Rule.DIM_ORDER: KNOWN_BUGS[36].hint,
    Rule.ARGUMENTS: IN_FLOAT,
    Rule.OUTPUT: "wrap the module in one whose forward returns only the tensors",
    Rule.OVERLAP: "a defect of ExecuTorch's memory planning: report it with the program",
    Rule.SCRATCH: "lower the module for this target's ISA class",
    Rule.OPERATOR: missing_operator_hints.ELSEWHERE,
    Rule.RELEASE: f"{INSTALL} builds the wheel's release",
    Rule.DELEGATE: "lower the module without a partitioner for that delegate",
    Rule.PLANNED_POOL: "use a larger target; hil inspect fit tells the least memory that a program runs in",
    Rule.PROGRAM_POOL: "use a larger target; hil inspect size tells what its bytes are for",
}
"""The next step, by the rule of a finding."""


def next_step(finding: LintFinding) -> str:
    """Return the hint of a finding that stops something; "" for a note."""
    if finding.is_note:
        return ""
    return finding.hint or (KNOWN_BUGS[finding.bug].hint if finding.bug is not None else HINTS[finding.rule])
