"""The console script `hil`. Each module of `cli/commands` adds its command to the application by being imported.

That of `hil lint` is `lint.py`. Only the module of the command that is called is imported, and none for `hil --help`.
"""

from __future__ import annotations

import ast
import importlib
import io
import os
import pkgutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

import typer

from cortex_m_hil.cli import commands
from cortex_m_hil.cli.answers import CALL, Call
from cortex_m_hil.cli.app import app, application, exit_statuses


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


def load_commands(called: str = "") -> typer.Typer:
    """The application with the command that is called, or with all of them where there is no such."""
    names = [module.name for module in pkgutil.iter_modules(commands.__path__)]
    wanted = called.replace("-", "_")
    for name in [wanted] if wanted in names else names:
        importlib.import_module(f"{commands.__name__}.{name}")
    return app


def overview() -> typer.Typer:
    """An application that knows its commands by name and description only, as their modules have them."""
    made = application()
    for module in pkgutil.iter_modules(commands.__path__):
        path = Path(commands.__path__[0], f"{module.name}.py")
        made.command(module.name.replace("_", "-"), help=_description(path))(lambda: None)
    return made


def _description(path: Path) -> str:
    """The docstring of the function that is `app`'s command, or the callback of a group of commands."""
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.FunctionDef):
            decorators = [ast.unparse(one.func) for one in node.decorator_list if isinstance(one, ast.Call)]
            if any(one == "app.command" or one.endswith(".callback") for one in decorators):
                return ast.get_docstring(node) or ""
    raise AssertionError(f"{path} has no command")


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """The console script. `arguments` default to the process's own."""
    _open_standard_streams()
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # an arrow on a Latin-1 terminal is no reason to fail
    given = sys.argv[1:] if arguments is None else list(arguments)
    called = given[0] if given and not given[0].startswith("-") else ""
    CALL.set(Call())
    with exit_statuses():  # also of what is left to typer to print
        (load_commands(called) if called else overview())(given, prog_name="hil")
    raise SystemExit(0)  # not reached: typer ends the process itself


if __name__ == "__main__":
    main()
