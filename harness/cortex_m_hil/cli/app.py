"""The application `hil`, and its groups of commands."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any, Final, TypeVar

import typer
from typer.core import TyperCommand, TyperGroup

from cortex_m_hil.cli.command_output import CALL, Call
from cortex_m_hil.cli.error_output import UsageError, exit_statuses
from cortex_m_hil.cli.options import with_options
from cortex_m_hil.host.version import __version__

Function = TypeVar("Function", bound=Callable[..., Any])

# The commands of `hil --help`, at most 20. Commands that are not listed here come from other packages.
SECTIONS: Final[Mapping[str, tuple[str, ...]]] = {
    "Run and check": ("run", "lint", "evaluate", "launch", "replay"),
    "Understand a program": ("inspect", "profile", "localize", "shrink", "compare-runtimes"),
    "Many runs": ("nightly", "results", "bisect"),
    "Boards": ("board",),
    "Set up": ("doctor", "targets", "build", "executorch", "docs"),
    "For maintainers": ("dev",),
}


class Commands(TyperGroup):
    """A group of commands that handles errors before typer handles some of them in its own way."""

    def make_context(self, *arguments: Any, **options: Any) -> Any:  # --help prints during this call
        with exit_statuses():
            return super().make_context(*arguments, **options)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Note the called command and whether it answers in JSON, before its arguments are checked."""
        CALL.set(Call(as_json=_asks_for_json(args)))
        name, command, rest = super().resolve_command(ctx, args)
        path = f"{ctx.command_path} {name}".partition(" ")[2]  # without hil
        CALL.set(replace(CALL.get(), command=path))
        return name, command, rest

    def invoke(self, ctx: Any) -> Any:
        with exit_statuses():
            return super().invoke(ctx)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the commands of `hil` under their headings; commands of a group are written as typer does."""
        if ctx.parent is not None:
            super().format_commands(ctx, formatter)
            return
        listed = {name: self.get_command(ctx, name) for name in self.list_commands(ctx)}
        width = max(map(len, listed), default=0)
        named = {name for names in SECTIONS.values() for name in names}
        sections = {**SECTIONS, "From other packages": tuple(name for name in listed if name not in named)}
        for heading, names in sections.items():
            rows = [self._row(name, listed[name], width, formatter) for name in names if name in listed]
            if rows:
                with formatter.section(heading):
                    formatter.write_dl(rows)

    @staticmethod
    def _row(name: str, command: Any, width: int, formatter: Any) -> tuple[str, str]:
        return name.ljust(width), command.get_short_help_str(formatter.width - width - 6)


class Command(TyperCommand):
    """A command whose usage line shows the metavars of its arguments unchanged."""

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """Return the pieces of the usage line, without the braces and second brackets that typer adds to a metavar."""
        pieces = [self.options_metavar] if self.options_metavar else []
        for one in self.get_params(ctx):
            is_named = one.param_type_name == "argument" and one.metavar
            pieces += [str(one.metavar)] if is_named else one.get_usage_pieces(ctx)
        return pieces

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write arguments and options; arguments by their metavars alone, without the Python type that typer adds."""
        rows: dict[str, list[tuple[str, str]]] = {"Arguments": [], "Options": []}
        for one in self.get_params(ctx):
            shown = one.get_help_record(ctx)
            if shown is not None and one.param_type_name == "argument":
                rows["Arguments"].append((str(one.metavar), shown[1]))
            elif shown is not None:
                rows["Options"].append(shown)
        for heading, listed in rows.items():
            if listed:
                with formatter.section(heading):
                    formatter.write_dl(listed)


class TakesPytestOptions(Command):
    """A command that passes all arguments after -- to pytest."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        try:
            return super().parse_args(ctx, args)
        except UsageError as error:
            if type(error).__name__ == "NoSuchOption":  # click's class, or that of typer's copy
                error.message += f"; pytest's own options go after --: -- {error.option_name} …"
            raise


def _asks_for_json(args: Sequence[str]) -> bool:
    """Tell whether words contain --json; if some words are wrong, typer does not tell which it understood."""
    own = args[: args.index("--")] if "--" in args else args
    return "--json" in own


# --- the application -----------------------------------------------------------------------------------------


class App(typer.Typer):
    """An application, or a group of commands."""

    def command(
        self, name: str | None = None, *, log: bool = False, json: bool = True, **more: Any
    ) -> Callable[[Function], Function]:
        """Add a function as a command, with the options that `with_options` adds to it.

        `log` and `json` are its arguments.
        """

        def add(function: Function) -> Function:
            super(App, self).command(name, **{"cls": Command, **more})(with_options(function, log=log, json=json))
            return function

        return add


def application() -> App:
    """Return the application `hil`; commands register themselves when their modules are imported."""
    made = App(
        cls=Commands,
        help="ExecuTorch programs on Arm Cortex-M, in simulators and on boards.",
        epilog="Exit status: 0 passed, 1 failed, 2 inconclusive, 130 interrupted: see hil docs command-line.",
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    made.callback()(_root)
    return made


def group(*, runs_alone: bool = False) -> App:
    """Return a group of commands, such as `hil board`.

    Args:
        runs_alone: whether the group can be called without one of its commands.
    """
    return App(
        cls=Commands, no_args_is_help=not runs_alone, invoke_without_command=runs_alone, rich_markup_mode=None,
        pretty_exceptions_enable=False,
    )  # fmt: skip


def _version(asked: bool) -> None:
    if asked:
        print(f"hil {__version__}")
        raise typer.Exit


def _root(version: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True)] = False) -> None:
    pass


app = application()
