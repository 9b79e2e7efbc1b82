"""The command `hil localize`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from cortex_m_hil import flow
from cortex_m_hil.campaigns.bisection.run_verdicts import first_error
from cortex_m_hil.cli.app import app
from cortex_m_hil.cli.command_output import Answer, Problem, json_fields, say, write_answer, write_log, write_problem
from cortex_m_hil.cli.exit_codes import CANNOT_TELL, NO, OK
from cortex_m_hil.cli.options import DAY, MultiplierOptions, SeveralTargets
from cortex_m_hil.cli.progress import runner_of, status
from cortex_m_hil.cli.pytest_runs import named_tests, pytest_command
from cortex_m_hil.cli.run_result_output import RAN_FIELDS
from cortex_m_hil.diagnose.failure_bundle import Bundle
from cortex_m_hil.diagnose.failure_bundle_file import SUFFIX, read_bundle
from cortex_m_hil.diagnose.localize import localize
from cortex_m_hil.diagnose.replay import boot, open_target
from cortex_m_hil.errors import ConfigError, HarnessError
from cortex_m_hil.flow.dut import Dut
from cortex_m_hil.host import subprocesses
from cortex_m_hil.host.folders import TemporaryFolder
from cortex_m_hil.targets.resolve import Resolved
from cortex_m_hil.targets.runtimes import ONE

_FAILED: Final = ("FAIL", "XPASS")
_TOLD: Final = ("test", "target", "runs_as", "runtime", "runtime_version", "engine", "program")


@app.command(
    "localize",
    log=True,
    epilog=json_fields(
        {
            "test": "the id of the test",
            "program": "the name of the program",
            "target": RAN_FIELDS["target"],
            "runs_as": "the target that ran",
            "runtime": "builtin or executorch",
            "runtime_version": RAN_FIELDS["runtime_version"],
            "engine": RAN_FIELDS["engine"],
            "conclusions": "a list of sentences, the most serious first",
            "causes": "the operators that the conclusions name: a list of cause, instruction, operator",
            "causes.cause": (
                "layout (arguments laid out for another ISA class), kernel (other values on right inputs), graph (a "
                "pass built the wrong graph), quantisation (coarse), not_compared (fake-quant has no such value, so "
                "the graph may be wrong)"
            ),
            "rows": "a list with an item for each value that an instruction writes",
            "rows.instruction": "the instruction's number in the program",
            "rows.operator": "the instruction's operator",
            "rows.node": "the instruction's node in the exported graph",
            "rows.module": "the path of the module that the node is from",
            "rows.source": "the line of the user's code, as file:line",
            "rows.value": "dtype and shape of the value",
            "rows.known": (
                "whether there is a reference, from ExecuTorch's Python operators on the host; if not, distance, "
                "elements and distinct are null"
            ),
            "rows.inputs_right": "whether all its inputs were equal to the references",
            "rows.distance": "the largest difference from the reference, in quanta; of floats in their own unit",
            "rows.elements": "how many elements differ from the reference",
            "rows.at_fault": "whether the kernel is wrong: other values on right inputs, or it overwrote other values",
            "rows.wrong_layout": "for arguments laid out for another ISA class, that class and the target's; else null",
            "rows.damaged": "the instructions whose values it overwrote",
            "rows.graph_quanta": "quanta from the reference to fake-quant on equal inputs; null if not known",
            "rows.sqnr_db": "signal-to-quantisation-noise ratio against the float module, in dB; null if not known",
            "rows.distinct": "how many different numbers the value has",
        },
        each="each program, and for each test that failed (error)",
    ),
)
def localize_command(
    what: Annotated[
        str, typer.Argument(metavar="WHAT", help="A test file, a test's id, or a bundle (.hil.zip)", show_default=False)
    ],
    target: SeveralTargets,
    on: MultiplierOptions,
    runtime: Annotated[
        str | None, typer.Option("--runtime", metavar="RUNTIME", help=f"{ONE} [default: auto, or what ran the bundle]")
    ] = None,
) -> None:
    """Show which operators differ from the references. The one that introduces the error is named.

    WHAT is a test file or node id, as for pytest, whose tests are run on each target and localised even if they pass;
    or a bundle that a test left with --hil-localize. Exit status 1 if an operator is at fault, or its arguments are
    laid out for another ISA class, or a test fails.
    """
    if what.endswith(SUFFIX):
        bundle = _with_intermediates(Path(what))
        on = replace(on, runtime=runtime or bundle.description.machine.runtime)
        on.choose(target).answer_each(lambda resolved: _of_bundle(bundle, resolved, on.timeout_multiplier))
    named_tests([what])
    on = replace(on, runtime=runtime or on.runtime)
    raise typer.Exit(_of_tests(what, on.for_pytest(on.choose(target).names)))


# --- a bundle ------------------------------------------------------------------------------------------------


def _with_intermediates(path: Path) -> Bundle:
    bundle = read_bundle(path)
    if not bundle.intermediates:
        what = f"{path} has no reference values for each instruction"
        raise ConfigError(what, hint="pytest --hil-bundles FOLDER --hil-localize writes it, where outputs are wrong")
    return bundle


def _of_bundle(bundle: Bundle, resolved: Resolved, multiplier: float) -> Answer:
    """Return the answer for a bundle, localised on a target."""
    program = bundle.task.program
    with TemporaryFolder() as folder:
        with status(runner_of(resolved)):
            opened = open_target(bundle, resolved, folder, multiplier=multiplier)
        with status(f"{resolved.display_name}: running {program.name} by single steps"), opened.dut as dut:
            boot(dut)
            _require_fit(bundle, dut)
            found, ran = localize(dut, program), dut.ran()
            if bundle.task.linted and not found.is_wrong:
                flow.judge_on_executorch(dut, program, bundle.task.known, bundle.task.expected)
    told = (bundle.description.test, resolved.name, ran.target, ran.runtime, ran.runtime_version, ran.engine)
    head = dict(zip(_TOLD, (*told, program.name), strict=True))
    lines = [*(f"notice: {notice}" for notice in opened.notices), *found.lines(), "", *found.plot()]
    return _answer(head, found.fields(), lines, is_wrong=found.is_wrong)


def _require_fit(bundle: Bundle, dut: Dut) -> None:
    """Raise LintError, or another verdict of lint, where the program does not fit the target.

    A program for another ISA class computes other values in every kernel, which must not be reported as faults.
    """
    if bundle.task.linted or dut.target.isa is not bundle.description.program.scratch_isa:
        flow.ProgramLint(dut, bundle.task.program).require()


def _answer(head: dict[str, Any], fields: dict[str, Any], lines: Sequence[str], *, is_wrong: bool) -> Answer:
    title = f"{head['test']}: {head['program']} on {head['runs_as']} · {head['runtime']} {head['runtime_version']}"
    text = "\n".join([f"{title} on {head['engine']}", *lines, ""])
    return Answer(text, {**head, **fields}, NO if is_wrong else OK)


# --- tests ---------------------------------------------------------------------------------------------------


def _of_tests(what: str, options: Sequence[str]) -> int:
    """Run the tests, report the localisations, and return the exit status.

    Args:
        what: the file of tests, or a test's id.
        options: options for pytest.

    Raises:
        ConfigError: pytest could not run the tests, or no program was compared with references.
    """
    with TemporaryFolder() as folder:
        into, log = folder / "localised", folder / "log"
        command = pytest_command("cortex_m_hil.pytest_plugin.localize_plugin", [what])
        with status(f"pytest {what}, by single steps where outputs are wrong"):
            ended = subprocesses.run([*command, *options, f"--hil-localize-into={into}"], log, DAY)
        said = log.read_text(errors="replace")
        told = _of_last_attempts(into.read_text().splitlines()) if into.exists() else []
    write_log(said)
    if ended not in (0, 1) or not told:
        raise ConfigError(first_error(said), hint=f"pytest {what} shows it; it takes a file of tests, or a test's id")
    statuses = [_tell(one) for one in told]
    if not any("fields" in one for one in told) and max(statuses) == OK:
        raise ConfigError(
            f"{what}: no program was compared with references", hint="name tests that call hil.check or hil.verify"
        )
    return max(statuses)


def _of_last_attempts(lines: Sequence[str]) -> list[dict[str, Any]]:
    """Return the records in the plugin's file, for repeated tests only those of the last attempt."""
    found: list[dict[str, Any]] = []
    for one in map(json.loads, lines):
        if "begun" in one:
            found = [other for other in found if other["test"] != one["test"]]
        else:
            found.append(one)
    return found


def _tell(one: dict[str, Any]) -> int:
    """Answer for one record of the file that `localize_plugin` wrote, and return its exit status.

    Args:
        one: the record, of a program that was localised or of a test that ended.
    """
    if "fields" in one:
        answer = _answer({name: one[name] for name in _TOLD}, one["fields"], one["lines"], is_wrong=one["is_wrong"])
        write_answer(answer)
        return answer.status
    if one["error"] is None:
        say(f"{one['test']}: {one['verdict'].lower()}\n")
        return NO if one["verdict"] in _FAILED else OK
    return _tell_error(one)


def _tell_error(one: dict[str, Any]) -> int:
    error, kind = one["error"], "verdict" if one["verdict"] in _FAILED else "infra"
    details = tuple((label, text) for label, text in error["details"])
    message, operator, hint = f"{one['test']}: {error['message']}", error["operator"], error["hint"]
    text = f"{error['type']}: {HarnessError(message, operator=operator, details=details, hint=hint)}"
    problem = Problem(error["type"], kind, message, text, operator, details, hint)
    status = NO if kind == "verdict" else CANNOT_TELL
    write_problem(problem, status, {"target": one["target"]})
    return status
