"""hil doctor."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import Annotated, NoReturn

import typer

from cortex_m_hil.cli import probes as doctor_probes
from cortex_m_hil.cli.app import NO, app
from cortex_m_hil.cli.options import Json, Targets, targets_of
from cortex_m_hil.cli.output import print_table, with_status
from cortex_m_hil.fvp import verify as verify_fvp
from cortex_m_hil.targets.model import Target

# --- commands ------------------------------------------------------------------------------------------------


@app.command("doctor")
def doctor(
    as_json: Json = False,
    verify: Annotated[
        str | None,
        typer.Option("--verify-fvp", metavar="NAME", help="Instead: execute what we assume of this model or target"),
    ] = None,
    targets_file: Targets = None,
) -> None:
    """Try every tool, simulator and package. Exit status 1 if the default targets do not all work."""
    if verify is not None:
        _verify_fvp(verify_fvp.find(verify, targets_of(targets_file)), as_json)
    checks = _examine(list(doctor_probes.probes(targets_of(targets_file))))
    fine = all(check.state is not doctor_probes.State.FAILED for check in checks)
    if as_json:
        print(json.dumps({"ok": fine, "checks": [asdict(check) for check in checks]}, indent=2))
    else:
        print_table(
            ("", "what", "found", "what to do"),
            [(check.state.value, check.name, check.found, check.action) for check in checks],
        )
        print("\nThe default targets work." if fine else "\nThe default targets do not all work: see FAIL.")
    raise typer.Exit(0 if fine else NO)


def _verify_fvp(target: Target, as_json: bool) -> NoReturn:
    fvp_session = verify_fvp.FvpSession(target)
    assumptions = list(verify_fvp.assumptions(fvp_session))
    findings = []
    for assumption in with_status(assumptions, lambda assumption: assumption.text):
        findings.append(assumption.examine())
    fine = all(finding.state is not verify_fvp.State.FAILS for finding in findings)
    if as_json:
        print(json.dumps({"ok": fine, "findings": [asdict(finding) for finding in findings]}, indent=2))
    else:
        print(verify_fvp.markdown(fvp_session, findings))
    raise typer.Exit(0 if fine else NO)


def _examine(probes: Sequence[doctor_probes.Probe]) -> list[doctor_probes.Check]:
    return [probe.examine() for probe in with_status(probes, lambda probe: probe.name)]
