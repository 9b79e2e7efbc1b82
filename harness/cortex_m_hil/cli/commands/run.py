"""hil run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cortex_m_hil import flow
from cortex_m_hil.cli.answers import Answer, answer_each
from cortex_m_hil.cli.app import app
from cortex_m_hil.cli.files import check_outputs, read_inputs, read_program, write_output
from cortex_m_hil.cli.options import (
    Choice,
    Json,
    Multiplier,
    Pte,
    RequireFvp,
    Runtime,
    SeveralTargets,
    Targets,
    Verbose,
)  # fmt: skip
from cortex_m_hil.cli.output import fields_of_result, fields_of_target, lines_of_result, log_of_errors, tell_log
from cortex_m_hil.diagnose.redzones import RedZones
from cortex_m_hil.errors import ConfigError


@app.command("run")
def run(
    pte: Pte,
    target: SeveralTargets,
    inputs: Annotated[list[Path] | None, typer.Option("--input", "-i", help="One .npy per input, in order")] = None,
    outputs: Annotated[
        list[Path] | None, typer.Option("--output", "-o", help="Where to write outputs, in order; for one target")
    ] = None,
    no_lint: Annotated[bool, typer.Option("--no-lint", help="Run it even if it does not fit")] = False,
    redzones: Annotated[bool, typer.Option("--redzones", help="Watch the memory that no tensor owns")] = False,
    require_fvp: RequireFvp = False,
    timeout_multiplier: Multiplier = 1.0,
    runtime: Runtime = "builtin",
    targets_file: Targets = None,
    verbose: Verbose = False,
    as_json: Json = False,
) -> None:
    """Run a program once on each target.

    Inputs are .npy files of the program's logical shape and dtype, however they lie in memory: a channels-last
    input of shape [1, 3, 8, 8] is given as an array of shape (1, 3, 8, 8). Outputs are written the same way.
    """
    choice = Choice(target, targets_file, runtime, require_fvp=require_fvp)
    program = read_program(pte)
    given = read_inputs(program, inputs or [])
    check_outputs(program, outputs or [])
    if outputs and len(choice.names) > 1:
        raise ConfigError("--output is for one target", hint="hil run for each target, with files of its own")

    def ask(name: str) -> Answer:
        resolved = choice.resolve(name)
        with log_of_errors(verbose), flow.open_dut(resolved, multiplier=timeout_multiplier) as dut:
            result = flow.run(dut, program, given, linted=not no_lint, guards=RedZones if redzones else None)
            identity = dut.session().identity
        tell_log(result.log, verbose)
        for path, output in zip(outputs or [], result.outputs, strict=False):
            write_output(path, output)
        zones = RedZones(program).describe() if redzones else ""
        lines = [*lines_of_result(result, identity, resolved), *([f"red zones intact: {zones}"] if zones else [])]
        fields = {"program": pte, "build_id": identity.build_id, "redzones": zones or None}
        fields |= fields_of_target(resolved, result.ran) | fields_of_result(result, identity)
        return Answer("\n".join(lines), fields)

    answer_each(choice.names, ask)
