"""hil selftest."""

from __future__ import annotations

from typing import Annotated

import typer

from cortex_m_hil import flow, launchers
from cortex_m_hil.cli.app import NO, app
from cortex_m_hil.cli.options import Multiplier, RequireFvp, Runtime, Targets, Verbose, targets_of
from cortex_m_hil.cli.output import log_of_errors, ran_by, tell_log
from cortex_m_hil.errors import HarnessError
from cortex_m_hil.targets.resolve import check_runtime, resolve, select


@app.command("selftest")
def selftest(
    target: Annotated[list[str], typer.Option("--target", "-t", help="Names, globs, comma lists or 'all'; repeatable")],
    require_fvp: RequireFvp = False,
    timeout_multiplier: Multiplier = 1.0,
    runtime: Runtime = "builtin",
    targets_file: Targets = None,
    verbose: Verbose = False,
) -> None:
    """Run a known program with known outputs on each target. Exit status 1 if a target fails it."""
    known = targets_of(targets_file)
    check_runtime(runtime)
    failed = 0
    for name in select(target, known):
        try:
            with log_of_errors(verbose):
                resolved = launchers.name_stand_in(resolve(name, known, runtime=runtime, require_fvp=require_fvp))
                with flow.open_dut(resolved, multiplier=timeout_multiplier) as dut:
                    result = flow.selftest(dut)
        except HarnessError as error:
            failed += 1
            print(f"FAIL  {name}: {error.describe()}", flush=True)
            continue
        tell_log(result.log, verbose)
        print(f"PASS  {ran_by(result, resolved)}", flush=True)
    raise typer.Exit(NO if failed else 0)
