"""The command `hil lint`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from cortex_m_hil import flow
from cortex_m_hil.checks.lint_rules.finding import LintFinding, Rule
from cortex_m_hil.checks.lint_rules.hints import next_step
from cortex_m_hil.cli.app import app
from cortex_m_hil.cli.command_output import Answer, hint_for_commands, json_fields, log_of_errors
from cortex_m_hil.cli.exit_codes import CANNOT_TELL, NO, OK
from cortex_m_hil.cli.options import Known, MethodOption, Pte, RuntimeOptions, SeveralTargets, accepted_on_command_line
from cortex_m_hil.cli.run_result_output import TARGET_FIELDS, fields_of_target
from cortex_m_hil.errors import ToolchainError
from cortex_m_hil.errors.text import counted
from cortex_m_hil.program.program import Program
from cortex_m_hil.program.pte_file import PteFile
from cortex_m_hil.targets.memory import Memory
from cortex_m_hil.targets.resolve import Resolved

UNMEASURED: Final = "method pool and stack (hil inspect fit measures them)"


@app.command(
    "lint",
    log=True,
    epilog=json_fields(
        {
            **TARGET_FIELDS,
            "program": "the file",
            "method": "the method that was checked",
            "fits": "whether all findings are notes; null (undecided) where the others are all of the rule release: "
            "the runner's ExecuTorch is older than the wheel",
            "not_checked": (
                "what was not checked: method pool, stack, and operators if the runner does not list its own"
            ),
            "findings": (
                "a list of rule, is_note, message, operator, instruction, cause, hint (empty of a note), known_bug (a "
                "number, or null), runtime (executorch where that alone does not take what builtin runs; else empty)"
            ),
        }
    ),
)
def lint_command(
    pte: Pte,
    target: SeveralTargets,
    on: RuntimeOptions,
    given: MethodOption,
    known: Known = None,
) -> None:
    """Check whether a program fits each target.

    The runner is built for its list of operators, the program is not run. No board is needed. Where the runtime is
    builtin, what ExecuTorch would refuse or compute wrongly is found too.
    """
    choice, program, accepted = on.choose(target, live=False), given.load(pte), accepted_on_command_line(known)
    choice.answer_each(lambda resolved: _lint(pte, program, resolved, accepted))


def _lint(pte: Path, program: Program, resolved: Resolved, accepted: Sequence[int | str]) -> Answer:
    operators, unknown = _operators(resolved)
    unchecked = "; ".join(filter(None, (unknown, UNMEASURED)))
    findings = flow.findings_everywhere(program, resolved.target, operators, resolved.runtime)
    fits = _fits(findings, accepted)
    summary = _summary(program, resolved) if fits else _misfit(fits, program.file.label, resolved.display_name)
    lines = [*map(_finding, findings), f"{summary}; NOT checked: {unchecked}"]
    fields = {
        "program": pte,
        "method": program.file.method,
        "fits": fits,
        "not_checked": unchecked,
        "findings": [_fields(one) for one in findings],
    }
    status = CANNOT_TELL if fits is None else OK if fits else NO
    return Answer("\n".join(lines), {**fields_of_target(resolved), **fields}, status)


def _fits(findings: Sequence[LintFinding], accepted: Sequence[int | str]) -> bool | None:
    """Tell whether a program fits; None where it takes an ExecuTorch of the wheel's release to tell."""
    rules = {one.rule for one in findings if not (one.is_note or (one.runtime and one.cause_key in accepted))}
    return None if rules == {Rule.RELEASE} else not rules


def _misfit(fits: bool | None, label: str, place: str) -> str:
    return f"whether {label} fits {place} cannot be told" if fits is None else f"{label} does not fit {place}"


def _operators(resolved: Resolved) -> tuple[tuple[str, ...] | None, str]:
    """Return the runner's operators and "", or None and the reason why they are not known.

    They are None if the runner cannot be built or asked; then the file is linted without them.
    """
    try:
        with log_of_errors():
            operators, why = flow.runner_operators(resolved)
    except ToolchainError as error:
        operators, why = None, "; ".join(filter(None, (error.message, error.hint)))
    return operators, f"whether the runner has these operators ({why})" if why else ""


def _fields(finding: LintFinding) -> dict[str, object]:
    return {
        "rule": finding.rule,
        "is_note": finding.is_note,
        "message": finding.message,
        "operator": finding.operator,
        "instruction": finding.instruction if finding.instruction >= 0 else None,
        "cause": finding.cause,
        "hint": hint_for_commands(next_step(finding)),
        "known_bug": finding.bug,
        "runtime": finding.runtime,
    }


def _finding(finding: LintFinding) -> str:
    level = "note" if finding.is_note else f"{finding.runtime}: error".removeprefix(": ")
    operator = f" [{finding.operator}]" if finding.operator else ""
    below = [f"  {label}: {text}" for label, text in finding.details]
    below += [] if finding.is_note else [f"  → {hint_for_commands(next_step(finding))}"]
    return "\n".join([f"{level}: {finding.rule.value}: {finding.message}{operator}", *below])


def _planned(file: PteFile, memory: Memory) -> str:
    """Return a text with planned and available bytes, for each bank if there are several."""
    if len(memory.banks) == 1:
        return f"{file.bytes_in_banks(memory)[0]} of {memory.planned} planned bytes"
    taken = zip(file.bytes_in_banks(memory), memory.banks, strict=True)
    return ", ".join(f"{nbytes} of {bank.size} planned bytes in bank {bank.region}" for nbytes, bank in taken)


def _summary(program: Program, resolved: Resolved) -> str:
    file, target = program.file, resolved.target
    layout = "no operator whose layout depends on the ISA class"
    if any(instruction.operator == "cortex_m::quantized_linear.out" for instruction in file.instructions):
        layout = f"{'MVE' if target.isa.value == 'MVE' else 'DSP/SCALAR'} layout"
    return (
        f"{file.label} fits {resolved.display_name}: {counted(len(file.operators), 'operator')} in "
        f"{counted(len(file.instructions), 'call')}, "
        f"{_planned(file, target.board.memory)}, "
        f"{file.size} of {target.board.memory.program_room} program bytes, {layout}"
    )
