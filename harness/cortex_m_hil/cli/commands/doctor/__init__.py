"""The command `hil doctor`, which tries the tools of this machine if no subcommand is given."""

from __future__ import annotations

from typing import Annotated

import typer

from cortex_m_hil.cli import doctor_probes as doctor_probes
from cortex_m_hil.cli.app import app
from cortex_m_hil.cli.command_output import Answer, end, json_fields, say
from cortex_m_hil.cli.commands.doctor import cache, selftest
from cortex_m_hil.cli.commands.doctor.doctor_group import doctor
from cortex_m_hil.cli.exit_codes import NO, OK
from cortex_m_hil.cli.options import Json, Targets
from cortex_m_hil.cli.progress import with_status
from cortex_m_hil.cli.tables import row_of
from cortex_m_hil.targets.load import load_user_targets
from cortex_m_hil.targets.target import Target

__all__ = ["cache", "selftest"]

app.add_typer(doctor, name="doctor")


@doctor.callback(
    epilog=json_fields(
        {
            "checks": (
                "a list of name, state (ok, absent, FAIL), found, action; with --verify-fvp there are target and "
                "findings (text, state, found) instead"
            ),
        }
    )
)
def _doctor(
    context: typer.Context,
    verify: Annotated[
        str | None,
        typer.Option(
            "--verify-fvp",
            metavar="NAME",
            help="Only check that this FVP, an executable or a target, behaves as hil assumes",
        ),
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="Skip checks that import ExecuTorch, or build or run firmware")
    ] = False,
    targets_file: Targets = None,
    as_json: Json = False,
) -> None:
    """Try each tool that the targets shipped with hil need. Exit status 1 if they do not all work."""
    if context.invoked_subcommand is not None:
        return
    targets = load_user_targets(targets_file)
    end(_examine(targets, quick) if verify is None else _verify_fvp(verify, targets))


def _examine(targets: dict[str, Target], quick: bool) -> Answer:
    """Run the probes, and print each row as soon as its probe ends, since the first ones take long to build runners.

    Args:
        targets: all known targets.
        quick: whether to skip the probes that import ExecuTorch or run a program.
    """
    probes = [probe for probe in doctor_probes.probes(targets) if not (quick and probe.thorough)]
    widths = max(len(state.value) for state in doctor_probes.State), max(len(probe.name) for probe in probes)
    checks = []
    for check in with_status(probes, lambda probe: probe.status, doctor_probes.Probe.examine):
        action = [f"→ {check.action}"] if check.action else []
        say(row_of((check.state.value, check.name, check.found, *action), widths))
        checks.append(check)
    fine = all(check.state is not doctor_probes.State.FAILED for check in checks)
    good = "What was looked at is fine; no program was run." if quick else "The default targets work."
    verdict = good if fine else "The default targets do not all work: see FAIL."
    return Answer(f"\n{verdict}", {"checks": checks}, OK if fine else NO)


def _verify_fvp(name: str, targets: dict[str, Target]) -> Answer:
    from cortex_m_hil.diagnose import verify_fvp

    target = verify_fvp.target_of_model(name, targets)
    fvp_session = verify_fvp.FvpSession(target)
    assumptions = list(verify_fvp.assumptions(fvp_session))
    findings = list(
        with_status(assumptions, lambda assumption: assumption.text, lambda assumption: assumption.examine())
    )
    fine = all(finding.state is not verify_fvp.AssumptionState.FAILS for finding in findings)
    fields = {"target": target.name, "findings": findings}
    return Answer(verify_fvp.assumptions_as_markdown(fvp_session, findings), fields, OK if fine else NO)
