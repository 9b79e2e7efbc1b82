"""hil run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cortex_m_hil import flow
from cortex_m_hil.cli.app import app
from cortex_m_hil.cli.files import check_outputs, read_inputs, read_program, write_output
from cortex_m_hil.cli.options import Multiplier, OneTarget, Pte, RequireFvp, Runtime, Targets, Verbose, resolve_target
from cortex_m_hil.cli.output import log_of_errors, tell_log, tell_result
from cortex_m_hil.diagnose.redzones import RedZones


@app.command("run")
def run(
    pte: Pte,
    target: OneTarget,
    inputs: Annotated[list[Path] | None, typer.Option("--input", "-i", help="One .npy per input, in order")] = None,
    outputs: Annotated[
        list[Path] | None, typer.Option("--output", "-o", help="Where to write outputs, in order")
    ] = None,
    no_lint: Annotated[bool, typer.Option("--no-lint", help="Run it even if it does not fit")] = False,
    redzones: Annotated[bool, typer.Option("--redzones", help="Watch the memory that no tensor owns")] = False,
    require_fvp: RequireFvp = False,
    timeout_multiplier: Multiplier = 1.0,
    runtime: Runtime = "builtin",
    targets_file: Targets = None,
    verbose: Verbose = False,
) -> None:
    """Run a program once.

    Inputs are .npy files of the program's logical shape and dtype, however they lie in memory: a channels-last
    input of shape [1, 3, 8, 8] is given as an array of shape (1, 3, 8, 8). Outputs are written the same way.
    """
    resolved = resolve_target(target, targets_file, runtime, require_fvp=require_fvp)
    program = read_program(pte)
    given = read_inputs(program, inputs or [])
    check_outputs(program, outputs or [])
    with log_of_errors(verbose), flow.open_dut(resolved, multiplier=timeout_multiplier) as dut:
        result = flow.run(dut, program, given, linted=not no_lint, guards=RedZones if redzones else None)
        identity = dut.session().identity
    tell_log(result.log, verbose)
    tell_result(result, identity, resolved)
    if redzones:
        print(f"red zones intact: {RedZones(program).describe()}")
    for path, output in zip(outputs or [], result.outputs, strict=False):
        write_output(path, output)
