"""The console script `hil`. Each module of `cli/commands` adds its command to the application by being imported."""

from __future__ import annotations

import importlib
import io
import os
import pkgutil
import sys
from collections.abc import Sequence
from typing import NoReturn

from cortex_m_hil.cli import commands
from cortex_m_hil.cli.answers import CALL, Call
from cortex_m_hil.cli.app import app, exit_statuses


def _open_standard_streams() -> None:
    """On /dev/null where our caller closed them: nobody wants to read, so the exit status alone is to tell.

    Else the next file or pipe that is opened would be standard output, or that of a tool.
    """
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(number)
        except OSError:
            opened = os.open(os.devnull, os.O_RDWR)  # the lowest number that is free
            os.dup2(opened, number)
            if opened != number:
                os.close(opened)
        if getattr(sys, name) is None:
            setattr(sys, name, open(number, "w" if number else "r", closefd=False))  # noqa: SIM115


def load_commands() -> None:
    for module in pkgutil.iter_modules(commands.__path__):
        importlib.import_module(f"{commands.__name__}.{module.name}")


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """The console script. `arguments` default to the process's own."""
    _open_standard_streams()
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # an arrow on a Latin-1 terminal is no reason to fail
    load_commands()
    CALL.set(Call())
    with exit_statuses():  # also of what is left to typer to print
        app(None if arguments is None else list(arguments), prog_name="hil")
    raise SystemExit(0)  # not reached: typer ends the process itself


if __name__ == "__main__":
    main()
