"""The command `hil compare-runtimes`."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

import typer

from cortex_m_hil import flow
from cortex_m_hil.cli.app import app
from cortex_m_hil.cli.command_output import Answer, Problem, end, json_fields, say
from cortex_m_hil.cli.exit_codes import CANNOT_TELL, NO, OK
from cortex_m_hil.cli.options import MultiplierOptions, OneTarget, ProgramOptions
from cortex_m_hil.cli.program_files import ProgramInputs, find_inputs
from cortex_m_hil.cli.run_result_output import fields_of_target
from cortex_m_hil.diagnose.compare_runtimes import Difference, compare_runtimes
from cortex_m_hil.errors import ConfigError, ToolchainError, VerdictError
from cortex_m_hil.errors.text import counted
from cortex_m_hil.program.program import Program
from cortex_m_hil.targets.runtimes import RUNTIMES


@app.command(
    "compare-runtimes",
    epilog=json_fields(
        {
            "target": "the target that was named",
            "runtimes": "a list of both runtimes, each with the fields of hil doctor selftest",
            "programs": (
                "a list of program, inputs (where they are from), compared (values), differences, and error where a "
                "runtime refused the program"
            ),
        }
    ),
)
def compare_runtimes_command(
    ptes: Annotated[
        list[Path], typer.Argument(metavar="PROGRAM.pte...", help=".pte or .bpte files", show_default=False)
    ],
    target: OneTarget,
    on: MultiplierOptions,
    given: ProgramOptions,
) -> None:
    """Show where hil's own runtime and ExecuTorch differ.

    Both run each program operator by operator; each operator gets the same inputs on both.

    Inputs are those of --input (for one program), or those that pytest's --keep-programs left beside the program, or
    are generated, the same every time. Exit status 1 if any operator gave other bytes, or either runtime refused a
    program; else 2 if a program has operators that only a newer ExecuTorch than the installed one has.
    """
    if given.inputs and len(ptes) > 1:
        raise ConfigError("--input is for one program", hint="inputs beside P.pte are P.0.npy, P.1.npy, …")
    loaded = [(given.load(pte), pte) for pte in ptes]
    programs = [
        (program, find_inputs(program, pte, given.inputs or [], quantize=given.quantize)) for program, pte in loaded
    ]
    first, second = (replace(on, runtime=runtime).resolve(target) for runtime in RUNTIMES)
    with on.open(first) as builtin, on.open(second) as installed:
        say(f"compared  {builtin.ran().label}\nwith      {installed.ran().label}\n")
        results = [_compare(builtin, installed, *one) for one in programs]
        runtimes = [fields_of_target(dut.resolved, dut.ran()) for dut in (builtin, installed)]
    compared = sum(result.compared for result in results)
    differing = sum(len(result.differences) for result in results)
    newer = sum(result.is_newer for result in results)
    refused = sum(result.error is not None for result in results) - newer
    text = f"{counted(len(programs), 'program')}, {counted(compared, 'result')} compared: {differing} differ"
    text += f"; {counted(refused, 'program')} not compared" if refused else ""
    text += f"; {counted(newer, 'program')} for a newer ExecuTorch" if newer else ""
    fields = {"target": target, "runtimes": runtimes, "programs": [result.fields for result in results]}
    end(Answer(text, fields, NO if differing or refused else CANNOT_TELL if newer else OK))


@dataclass(frozen=True)
class _Result:
    """The comparison of one program: how many values were compared, and the differences; or why it was not possible.

    Attributes:
        is_newer: whether it was not possible because the installed ExecuTorch is older than the wheel.
    """

    program: str
    inputs: str
    compared: int = 0
    differences: tuple[Difference, ...] = ()
    error: Problem | None = None
    is_newer: bool = False

    @property
    def fields(self) -> dict[str, object]:
        found = {
            "program": self.program,
            "inputs": self.inputs,
            "compared": self.compared,
            "differences": self.differences,
        }
        return found if self.error is None else {**found, "error": self.error.fields}


def _compare(builtin: flow.Dut, installed: flow.Dut, program: Program, found: ProgramInputs) -> _Result:
    """Compare a program on two runtimes, and return the differences.

    The result has an error if the program is refused or fails on one of the runtimes.
    """
    if found.saturated is not None:
        say(f"{program.name}: inputs: {found.source}")
    try:
        values = list(compare_runtimes(builtin, installed, program, found.inputs))
    except (VerdictError, ToolchainError) as error:
        problem = Problem.of(error)
        say(f"{program.name}\n    {problem.text}")
        return _Result(program.name, found.source, error=problem, is_newer=isinstance(error, ToolchainError))
    differences = tuple(one for one in values if one is not None)
    if differences:
        say("\n".join([program.name, *(f"    {one.instruction}  {one.operator}: {one}" for one in differences)]))
    return _Result(program.name, found.source, len(values), differences)
