"""The command `hil doctor selftest`."""

from __future__ import annotations

from cortex_m_hil.cli.command_output import Answer, Problem, json_fields, log_of_errors, write_log
from cortex_m_hil.cli.commands.doctor.doctor_group import doctor
from cortex_m_hil.cli.error_output import answer_each
from cortex_m_hil.cli.exit_codes import NO
from cortex_m_hil.cli.options import SeveralTargets, TargetOptions
from cortex_m_hil.cli.progress import runner_of, status
from cortex_m_hil.cli.run_result_output import RAN_FIELDS, fields_of_target, ran_by
from cortex_m_hil.errors import HarnessError


@doctor.command(
    "selftest",
    log=True,
    epilog=json_fields(
        {
            **RAN_FIELDS,
        }
    ),
)
def selftest(
    target: SeveralTargets,
    on: TargetOptions,
) -> None:
    """Run a known program with known outputs on each target. Exit status 1 if a target fails it."""
    from cortex_m_hil import flow

    choice = on.choose(target)

    def ask(name: str) -> Answer:
        try:
            with log_of_errors():
                resolved = choice.resolve(name)
                with status(runner_of(resolved)), on.open(resolved) as dut:
                    result = flow.selftest(dut)
        except HarnessError as error:
            problem = Problem.of(error)
            return Answer(f"FAIL  {name}: {problem.text}", {"target": name, "error": problem.fields}, NO)
        write_log(result.log)
        return Answer(f"PASS  {ran_by(result, resolved)}", fields_of_target(resolved, result.ran))

    answer_each(choice.names, ask)
