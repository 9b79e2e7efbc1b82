"""hil lint."""

from __future__ import annotations

from pathlib import Path

import typer

from cortex_m_hil import flow
from cortex_m_hil.checks.lint import LintFinding
from cortex_m_hil.cli.app import NO, app
from cortex_m_hil.cli.files import read_program
from cortex_m_hil.cli.options import OneTarget, Pte, Runtime, Targets, Verbose, resolve_target
from cortex_m_hil.cli.output import counted, log_of_errors
from cortex_m_hil.errors import ToolchainError
from cortex_m_hil.program.program import Program
from cortex_m_hil.targets.resolve import Resolved


@app.command("lint")
def lint_command(
    pte: Pte, target: OneTarget, runtime: Runtime = "builtin", targets_file: Targets = None, verbose: Verbose = False
) -> None:
    """Does the program fit the target? The runner is booted for its list of operators, the program is not run."""
    resolved = resolve_target(target, targets_file, runtime)
    program = read_program(pte)
    operators, unchecked = _operators(resolved, verbose)
    findings = flow.findings(program, resolved.target, operators, resolved.runtime)
    for finding in findings:
        print(_finding(finding))
    if any(not finding.is_note for finding in findings):
        raise typer.Exit(NO)
    print(_summary(pte, program, resolved) + unchecked)


def _operators(resolved: Resolved, verbose: bool) -> tuple[tuple[str, ...] | None, str]:
    """What the runner has; where it cannot be built or booted, None and why: the file alone can be linted still."""
    try:
        with log_of_errors(verbose), flow.open_dut(resolved) as dut:
            return dut.session().identity.operators, ""
    except ToolchainError as error:
        return None, f"; NOT checked: whether the runner has these operators ({error.message}; {error.hint})"


def _finding(finding: LintFinding) -> str:
    level = "note" if finding.is_note else "error"
    operator = f" [{finding.operator}]" if finding.operator else ""
    return f"{level}: {finding.rule.value}: {finding.message}{operator}"


def _summary(path: Path, program: Program, resolved: Resolved) -> str:
    file, target = program.file, resolved.target
    layout = "no operator whose layout depends on the ISA class"
    if any(instruction.operator == "cortex_m::quantized_linear.out" for instruction in file.instructions):
        layout = f"{'MVE' if target.isa.value == 'MVE' else 'DSP/SCALAR'} layout"
    return (
        f"{path} fits {resolved.display_name}: {counted(len(file.operators), 'operator')} in "
        f"{counted(len(file.instructions), 'instruction')}, "
        f"{file.planned_bytes} of {target.board.pools.planned} planned bytes, "
        f"{file.size} of {target.board.program_room} program bytes, {layout}"
    )
