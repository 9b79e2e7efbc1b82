"""hil compare-runtimes."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from cortex_m_hil import flow
from cortex_m_hil.cli.app import NO, app
from cortex_m_hil.cli.files import read_inputs, read_program
from cortex_m_hil.cli.options import OneTarget, Targets, resolve_target
from cortex_m_hil.cli.output import counted
from cortex_m_hil.diagnose.runtimes import Difference, compare_runtimes
from cortex_m_hil.errors import ConfigError, VerdictError
from cortex_m_hil.fuzz import judge
from cortex_m_hil.program.program import Program
from cortex_m_hil.program.tensor import HostTensor
from cortex_m_hil.targets.resolve import RUNTIMES


@app.command("compare-runtimes")
def compare_runtimes_command(
    ptes: Annotated[list[Path], typer.Argument(metavar="PROGRAM.pte...", show_default=False)],
    target: OneTarget,
    inputs: Annotated[list[Path] | None, typer.Option("--input", "-i", help="One .npy per input, in order")] = None,
    targets_file: Targets = None,
) -> None:
    """Where do builtin and an installed ExecuTorch differ? Steps programs in both, each operator on equal inputs.

    Inputs are those of --input (for one program), or those that pytest's --keep-programs left beside the program, or
    follow a formula. Exit status 1 if any operator gave other bytes, or either runtime refused a program.
    """
    if inputs and len(ptes) > 1:
        raise ConfigError("--input is for one program", hint="inputs beside P.pte are P.0.npy, P.1.npy, …")
    programs = [(program, _given(program, pte, inputs)) for pte in ptes for program in [read_program(pte)]]
    first, second = (resolve_target(target, targets_file, runtime) for runtime in RUNTIMES)
    with flow.open_dut(first) as builtin, flow.open_dut(second) as installed:
        print(f"compared  {builtin.ran().label}\nwith      {installed.ran().label}\n", flush=True)
        results = [_compare(builtin, installed, *one) for one in programs]
    compared = sum(len(result) for result in results if result is not None)
    differing = sum(one is not None for result in results for one in result or [])
    refused = results.count(None)
    print(
        f"{counted(len(programs), 'program')}, {counted(compared, 'result')} compared: {differing} differ"
        + (f"; {counted(refused, 'program')} not compared" if refused else "")
    )
    raise typer.Exit(NO if differing or refused else 0)


def _given(program: Program, pte: Path, inputs: Sequence[Path] | None) -> tuple[HostTensor, ...]:
    kept = [flow.kept_input(pte, number) for number in range(len(program.file.input_specs()))]
    if inputs or any(map(os.path.lexists, kept)):
        return read_inputs(program, inputs or kept)
    return judge.example_inputs(program)


def _compare(
    builtin: flow.Dut, installed: flow.Dut, program: Program, inputs: Sequence[HostTensor]
) -> list[Difference | None] | None:
    """Says what differs, as it is found. None if one of the two refuses the program, or fails it."""
    try:
        found = list(compare_runtimes(builtin, installed, program, inputs))
    except VerdictError as error:
        print(f"{program.name}\n    {error.describe()}", flush=True)
        return None
    differences = [one for one in found if one is not None]
    if differences:
        print(program.name)
        for one in differences:
            print(f"    {one.instruction}  {one.operator}: {one}", flush=True)
    return found
