"""The console script `hil`.

The module of a command adds it to the application when it is imported: `cli/commands/lint.py` adds `hil lint`. Other
packages, and this package's tools for maintainers, add commands by entry points of the group `cortex_m_hil.commands`.
Only the module of the called command is imported, and none for `hil --help`.
"""

from __future__ import annotations

import ast
import contextlib
import importlib
import importlib.metadata
import importlib.util
import io
import os
import pkgutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, NoReturn

import typer

from cortex_m_hil.cli import commands
from cortex_m_hil.cli.app import app, application
from cortex_m_hil.cli.command_output import CALL, Call
from cortex_m_hil.cli.error_output import exit_statuses
from cortex_m_hil.errors import ConfigError, ToolchainError

GROUP: Final = "cortex_m_hil.commands"  # the group of entry points by which other packages add commands
# Command names of version 0.1, which work for one more release.
RENAMED: Final[Mapping[tuple[str, ...], tuple[str, ...]]] = {
    ("bench", "kernels"): ("profile",),
    ("bench",): ("profile",),
    ("cache",): ("doctor", "cache"),
    ("fit",): ("inspect", "fit"),
    ("fuzz",): ("dev", "fuzz"),
    ("fvp-shim",): ("dev", "fvp-shim"),
    ("inspect", "instructions"): ("profile",),
    ("mutate",): ("dev", "mutate"),
    ("partition",): ("inspect", "partition"),
    ("selftest",): ("doctor", "selftest"),
    ("size",): ("inspect", "size"),
    ("upstream",): ("dev", "upstream"),
    ("vboard",): ("board", "virtual"),
}


def _open_standard_streams() -> None:
    """Open standard streams that our caller closed on /dev/null.

    Otherwise the next file or pipe that is opened would become the standard output of this process or of a tool.
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


def command_modules() -> dict[str, str]:
    """Return the module of each command by name: first this package's commands, then those of entry points."""
    found = {
        one.name.replace("_", "-"): f"{commands.__name__}.{one.name}" for one in pkgutil.iter_modules(commands.__path__)
    }
    for point in sorted(importlib.metadata.entry_points(group=GROUP), key=lambda point: point.name):
        found.setdefault(point.name, point.value)
    return found


def load_commands(called: str = "") -> typer.Typer:
    """Return the application with the command `called`, or with all commands if there is none of that name."""
    modules = command_modules()
    if called in modules:
        _import(called, modules[called])
        return app
    for name, module in modules.items():
        with contextlib.suppress(ToolchainError):  # the error is shown if that command is called
            _import(name, module)
    return app


def _import(name: str, module: str) -> None:
    """Import a command's module. Raise ToolchainError where a package that it needs is not installed."""
    try:
        importlib.import_module(module)
    except ModuleNotFoundError as error:
        own = module.startswith("cortex_m_hil.")
        hint = "pip install 'executorch-cortex-m-hil[maintainers]'" if own else f"pip install {error.name}"
        raise ToolchainError(f"hil {name} needs the package {error.name}, which is not installed", hint=hint) from error


def overview() -> typer.Typer:
    """Return an application that has only names and descriptions of commands, read from their modules' source."""
    made = application()
    for name, module in sorted(command_modules().items()):
        spec = importlib.util.find_spec(module)
        if spec is not None and spec.origin is not None:
            made.command(name, help=_description(Path(spec.origin)))(lambda: None)
    return made


def _description(path: Path) -> str:
    """Return the docstring of a module's command, or of the callback of its group of commands."""
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.FunctionDef):
            decorators = [ast.unparse(one.func) for one in node.decorator_list if isinstance(one, ast.Call)]
            if any(one == "app.command" or one.endswith(".callback") for one in decorators):
                return ast.get_docstring(node) or ""
    raise AssertionError(f"{path} has no command")


def renamed(words: Sequence[str]) -> list[str]:
    """Return the words of a command line with a former name of a command replaced, and say so on standard error.

    Raises:
        ConfigError: the command has become a script of the repository.
    """
    if tuple(words[:2]) in {("bench", "lowering"), ("bench", "matrix")}:
        moved = f"python ci/bench.py {words[1]}"
        raise ConfigError(f"hil bench {words[1]} measures the harness itself", hint=f"in a checkout: {moved}")
    for old, new in RENAMED.items():
        if tuple(words[: len(old)]) == old:
            print(f"hil {' '.join(old)} is now hil {' '.join(new)}", file=sys.stderr)
            return [*new, *words[len(old) :]]
    return list(words)


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run the console script. `arguments` default to the process's own."""
    _open_standard_streams()
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # a Latin-1 terminal cannot print an arrow, which must not be an error
    given = sys.argv[1:] if arguments is None else list(arguments)
    CALL.set(Call())
    with exit_statuses():  # also for texts that typer prints
        given = renamed(given)
        called = given[0] if given and not given[0].startswith("-") else ""
        (load_commands(called) if called else overview())(given, prog_name="hil")
    raise SystemExit(0)  # not reached: typer ends the process itself


if __name__ == "__main__":
    main()
