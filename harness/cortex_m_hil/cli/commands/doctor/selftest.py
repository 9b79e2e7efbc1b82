"""The command `hil doctor selftest`."""

from __future__ import annotations

from cortex_m_hil.cli.answers import NO, Answer, Problem, answer_each
from cortex_m_hil.cli.commands.doctor.group import doctor
from cortex_m_hil.cli.options import Choice, Json, Multiplier, RequireFvp, Runtime, SeveralTargets, Targets, Verbose
from cortex_m_hil.cli.output import fields_of_target, log_of_errors, ran_by, tell_log
from cortex_m_hil.errors import HarnessError


@doctor.command("selftest")
def selftest(
    target: SeveralTargets,
    require_fvp: RequireFvp = False,
    timeout_multiplier: Multiplier = 1.0,
    runtime: Runtime = "builtin",
    targets_file: Targets = None,
    verbose: Verbose = False,
    as_json: Json = False,
) -> None:
    """Run a known program with known outputs on each target. Exit status 1 if a target fails it."""
    from cortex_m_hil import flow

    choice = Choice(target, targets_file, runtime, require_fvp=require_fvp)

    def ask(name: str) -> Answer:
        try:
            with log_of_errors(verbose):
                resolved = choice.resolve(name)
                with flow.open_dut(resolved, multiplier=timeout_multiplier) as dut:
                    result = flow.selftest(dut)
        except HarnessError as error:
            problem = Problem.of(error)
            return Answer(f"FAIL  {name}: {problem.text}", {"target": name, "error": problem.fields}, NO)
        tell_log(result.log, verbose)
        return Answer(f"PASS  {ran_by(result, resolved)}", fields_of_target(resolved, result.ran))

    answer_each(choice.names, ask)
