"""The command `hil launch`."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from cortex_m_hil.cli.app import app
from cortex_m_hil.cli.command_output import CALL, Answer, json_fields
from cortex_m_hil.cli.error_output import answer_each
from cortex_m_hil.cli.options import DAY, FvpOptions, OneTarget, within
from cortex_m_hil.cli.run_result_output import RAN_FIELDS, TARGET_FIELDS
from cortex_m_hil.errors import ConfigError
from cortex_m_hil.flow.launch_elf import Ended, Launch
from cortex_m_hil.flow.launch_elf import launch as launch_program
from cortex_m_hil.host import timeouts
from cortex_m_hil.targets.resolve import Resolved


@app.command(
    "launch",
    log=True,
    epilog=json_fields(
        {
            "target": TARGET_FIELDS["target"],
            "runs_as": TARGET_FIELDS["runs_as"],
            "reason": TARGET_FIELDS["reason"],
            "shim": TARGET_FIELDS["shim"],
            "engine": RAN_FIELDS["engine"],
            "elf": "the file",
            "ended_by": "exit, eot or until",
            "seconds": "how long it took",
        }
    ),
)
def launch(
    elf: Annotated[
        Path, typer.Argument(metavar="ELF", help="A program for the target's CPU and memory map", show_default=False)
    ],
    target: OneTarget,
    on: FvpOptions,
    arguments: Annotated[
        list[str] | None,
        typer.Argument(metavar="[-- ARGUMENT...]", help="Arguments of the program", show_default=False),
    ] = None,
    timeout: Annotated[
        float,
        typer.Option(
            "--timeout", metavar="SECONDS", callback=within(0.01, DAY), help="Seconds of the simulator's CPU time"
        ),
    ] = timeouts.LAUNCH,
    until: Annotated[
        str | None,
        typer.Option("--until", metavar="REGEX", help="Text that the program prints when it has done its work"),
    ] = None,
    folder: Annotated[
        Path | None,
        typer.Option(
            "--folder", metavar="FOLDER", help="Folder that semihosting may read and write [default: an empty one]"
        ),
    ] = None,
) -> None:
    """Run an ELF of your own, and show its console.

    It has to end with exit status 0, send ASCII EOT to its console, or print text that matches --until.
    """
    order = Launch(elf, timeout, arguments or (), _folder(folder), _pattern(until))

    def ask(name: str) -> Answer:
        resolved = on.resolve(name)
        ended = launch_program(resolved, order, _show)
        what = f"{resolved.display_name} on {ended.engine}: {elf.name} ended by {ended.by} after {ended.seconds:.1f} s"
        print(what, file=sys.stderr, flush=True)
        return Answer("", {**_fields_of(resolved, ended), "elf": elf})

    answer_each([target], ask)


def _fields_of(resolved: Resolved, ended: Ended) -> dict[str, Any]:
    target = {"target": resolved.name, "runs_as": resolved.target.name, "reason": resolved.fallback_reason}
    how = {"engine": ended.engine, "ended_by": ended.by, "seconds": ended.seconds}
    return {**target, "shim": resolved.shim, **how}


def _show(text: str) -> None:
    """Print the program's output on standard output; with --json, whose answer goes there, on standard error."""
    print(text, end="", flush=True, file=sys.stderr if CALL.get().as_json else sys.stdout)


def _folder(path: Path | None) -> Path | None:
    if path is not None and not path.is_dir():
        raise ConfigError(f"--folder {path}: there is no such folder", hint="mkdir it")
    return path and path.absolute()


def _pattern(text: str | None) -> re.Pattern[str] | None:
    try:
        return re.compile(text, re.MULTILINE) if text is not None else None
    except re.error as error:
        problem = f"--until {text!r} is no regular expression: {error}"
        raise ConfigError(problem, hint="a backslash before what is meant literally") from None
