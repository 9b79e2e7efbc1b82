"""hil doctor."""

from __future__ import annotations

from typing import Annotated

import typer

from cortex_m_hil.api import load_targets
from cortex_m_hil.cli import probes as doctor_probes
from cortex_m_hil.cli.answers import NO, OK, Answer, end
from cortex_m_hil.cli.app import app
from cortex_m_hil.cli.options import Json, Targets
from cortex_m_hil.cli.output import table, with_status
from cortex_m_hil.fvp import verify as verify_fvp
from cortex_m_hil.targets.model import Target


@app.command("doctor")
def doctor(
    verify: Annotated[
        str | None,
        typer.Option("--verify-fvp", metavar="NAME", help="Instead: execute what we assume of this model or target"),
    ] = None,
    targets_file: Targets = None,
    as_json: Json = False,
) -> None:
    """Try every tool, simulator and package. Exit status 1 if the default targets do not all work."""
    targets = load_targets(targets_file)
    end(_examine(targets) if verify is None else _verify_fvp(verify_fvp.find(verify, targets)))


def _examine(targets: dict[str, Target]) -> Answer:
    probes = list(doctor_probes.probes(targets))
    checks = [probe.examine() for probe in with_status(probes, lambda probe: probe.name)]
    fine = all(check.state is not doctor_probes.State.FAILED for check in checks)
    rows = [(check.state.value, check.name, check.found, check.action) for check in checks]
    verdict = "The default targets work." if fine else "The default targets do not all work: see FAIL."
    text = f"{table(('', 'what', 'found', 'what to do'), rows)}\n\n{verdict}"
    return Answer(text, {"checks": checks}, OK if fine else NO)


def _verify_fvp(target: Target) -> Answer:
    fvp_session = verify_fvp.FvpSession(target)
    assumptions = list(verify_fvp.assumptions(fvp_session))
    findings = []
    for assumption in with_status(assumptions, lambda assumption: assumption.text):
        findings.append(assumption.examine())
    fine = all(finding.state is not verify_fvp.State.FAILS for finding in findings)
    fields = {"target": target.name, "findings": findings}
    return Answer(verify_fvp.markdown(fvp_session, findings), fields, OK if fine else NO)
