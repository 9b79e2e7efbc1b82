"""The command `hil shrink`."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Iterator, Sequence
from enum import Enum
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from cortex_m_hil.campaigns.bisection.run_verdicts import first_error
from cortex_m_hil.cli.app import app
from cortex_m_hil.cli.command_output import Answer, json_fields, write_answer, write_log
from cortex_m_hil.cli.exit_codes import NO, OK
from cortex_m_hil.cli.options import DAY, OneTarget, TimedOptions, folder_to_write, within
from cortex_m_hil.cli.pytest_runs import pytest_command
from cortex_m_hil.diagnose.localize import Cause
from cortex_m_hil.diagnose.shrink import SO_FAR, Symptom
from cortex_m_hil.errors import ConfigError
from cortex_m_hil.errors.text import counted
from cortex_m_hil.host import timeouts
from cortex_m_hil.host.deadline import Deadline
from cortex_m_hil.runner.launchers.process import Process
from cortex_m_hil.targets.connection import LinkClosed

_PREFIX: Final = b"hil-shrink "


class Format(str, Enum):
    """The format of the test that is written."""

    PYTEST = "pytest"
    EXECUTORCH = "executorch"


@app.command(
    "shrink",
    log=True,
    epilog=json_fields(
        {
            "test": "the test that was shrunk",
            "target": "the target that the test failed on",
            "fails": "the file of the part that fails",
            "passes": "the file of the largest part that passes (null: none was found)",
            "verdict": "what both the test and the part fail by",
            "operator": "the operator that fails",
            "cause": "the first cause that hil localize tells (null: none)",
            "operators": "how many operators of the float module the part has",
            "elements": "how many elements the part's inputs and weights have",
            "tried": "how many parts were run",
            "ended": "whether the search came to its end; false where --budget was spent first",
        },
        each="each test that was shrunk; if nothing fails, one line with null in every field",
    ),
)
def shrink_command(
    test: Annotated[str, typer.Argument(metavar="TEST", help="A test file, or a test's id", show_default=False)],
    target: OneTarget,
    on: TimedOptions,
    out: Annotated[
        Path,
        typer.Option("--out", "-o", metavar="FOLDER", callback=folder_to_write, help="Folder to write the tests to"),
    ] = Path("shrunk"),
    kind: Annotated[
        Format,
        typer.Option(
            "--format",
            metavar="pytest|executorch",
            help="Write tests for this package's hil.check, or for ExecuTorch's CortexMTester",
        ),
    ] = Format.PYTEST,
    budget: Annotated[
        float,
        typer.Option(
            "--budget", metavar="SECONDS", callback=within(1, DAY), help="Seconds of search for each failing test"
        ),
    ] = timeouts.SHRINKING,
) -> None:
    """Cut a failing module down to the part that is wrong.

    The part fails with the same class of verdict, at the operator that hil localize names, for the same cause. It is
    written as a test, and so is the largest part that passes. Exit status 1 where a test fails.
    """
    options = on.for_pytest([on.resolve(target).name])
    own = [f"--hil-shrink-into={out}", f"--hil-shrink-format={kind.value}", f"--hil-shrink-budget={budget}"]
    command = pytest_command("cortex_m_hil.pytest_plugin.shrink_plugin", [test])
    process = Process([*command, "-n0", *options, *own])
    try:
        told, said = _listen(process)
        status = process.wait(DAY)
    finally:
        process.close()
    log = said + process.log.decode(errors="replace")
    write_log(log)
    call = shlex.join(["pytest", *options, test])
    if status not in (0, 1):
        raise ConfigError(first_error(log), hint=f"{call} shows it; it takes a file of tests, or a test's id")
    _answer_and_exit(told, test, call if status == 1 else "")


def _listen(process: Process) -> tuple[list[dict[str, Any]], str]:
    """Return the plugin's messages, and the rest of pytest's output; progress is shown on standard error at once.

    Raises:
        KeyboardInterrupt: the message names the test files written so far.
    """
    told, said, written = [], [], {}
    try:
        for line in _lines(process):
            if not line.startswith(_PREFIX):
                said.append(line.decode(errors="replace"))
                continue
            one = json.loads(line.removeprefix(_PREFIX))
            if "fails" in one:
                written[one["test"]] = one["fails"]
            if "progress" in one:
                print(f"{one['test']}: {one['progress']}", file=sys.stderr, flush=True)
            else:
                told.append(one)
    except KeyboardInterrupt:
        raise KeyboardInterrupt(f"{SO_FAR}: {', '.join(written.values())}" if written else "") from None
    return told, "\n".join(said)


def _lines(process: Process) -> Iterator[bytes]:
    process.end_input()
    begun, deadline = b"", Deadline.after(DAY)
    while True:
        try:
            *whole, begun = (begun + process.read(deadline)).split(b"\n")
        except LinkClosed:
            yield begun
            return
        yield from whole


def _answer_and_exit(told: Sequence[dict[str, Any]], test: str, again: str) -> None:
    """Write the answers, and end the command.

    Args:
        told: the plugin's messages.
        test: the test's id.
        again: the command that runs the test once more, if it failed; "" if it passed.

    Raises:
        ConfigError: a test failed, and nothing was shrunk.
    """
    problems = [one for one in told if "problem" in one]
    shrunk = [one for one in told if "fails" in one]
    for one in shrunk:
        write_answer(Answer(_text(one), one, NO))
    if shrunk:
        raise typer.Exit(NO)
    if problems:
        first = problems[0]
        raise ConfigError(f"{first['test']}: {first['problem']}", hint=first["hint"])
    if again:
        raise ConfigError(f"{test} fails, and not by a verdict on a program", hint=f"{again} shows why")
    write_answer(Answer(f"{test}: nothing fails", dict.fromkeys(_FIELDS), OK))
    raise typer.Exit(OK)


_FIELDS: Final = (
    *("test", "target", "fails", "passes", "verdict", "operator", "cause", "operators", "elements", "tried", "ended"),
)


def _text(one: dict[str, Any]) -> str:
    symptom = Symptom(one["verdict"], one["operator"], Cause(one["cause"]) if one["cause"] else None)
    size = f"{counted(one['operators'], 'operator')}, {counted(one['elements'], 'element')}"
    end = f"{counted(one['tried'], 'part')} tried" + ("" if one["ended"] else "; the budget is spent")
    lines = [f"{one['test']}: {symptom}: {size} ({end})", f"  fails   {one['fails']}"]
    lines.append(f"  passes  {one['passes'] or 'none: no part was seen to pass'}")
    if one["cause"] and one["operators"] > 1:
        lines.append(f"  note    {one['operator']} is named by hil localize; with fewer operators no part failed alike")
    return "\n".join([*lines, ""])
