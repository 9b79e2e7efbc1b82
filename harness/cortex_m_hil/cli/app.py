"""`hil`: the application, and what ends it."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from typing import Annotated, Any, NoReturn

import typer
from typer.core import TyperGroup

import cortex_m_hil
from cortex_m_hil.errors import HarnessError, VerdictError

NO, CANNOT_TELL, INTERRUPTED, NO_READER = 1, 2, 130, 141


# --- errors and exit statuses --------------------------------------------------------------------------------


@contextlib.contextmanager
def exit_statuses() -> Iterator[None]:
    """Turns what a user can cause into a message on standard error and an exit status; a bug keeps its traceback."""
    try:
        try:
            yield
        finally:
            sys.stdout.flush()  # here and not at the interpreter's end, where a full disk is only a warning
    except HarnessError as error:
        end_with(error.describe(), NO if isinstance(error, VerdictError) else CANNOT_TELL)
    except KeyboardInterrupt:
        end_with("interrupted", INTERRUPTED)
    except BrokenPipeError:
        _drop_output()
        raise SystemExit(NO_READER) from None
    except OSError as error:
        where = f": {error.filename}" if error.filename else ""
        _drop_output()
        end_with(f"{type(error).__name__}: {error.strerror or error}{where}", CANNOT_TELL)


def end_with(message: str, status: int) -> NoReturn:
    with contextlib.suppress(OSError):
        print(message, file=sys.stderr, flush=True)
    raise SystemExit(status) from None


def _drop_output() -> None:
    """Lets the interpreter's last flush succeed."""
    with contextlib.suppress(OSError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


class Commands(TyperGroup):
    """Handles errors before typer answers some of them in its own way."""

    def make_context(self, *arguments: Any, **options: Any) -> Any:  # where --help prints
        with exit_statuses():
            return super().make_context(*arguments, **options)

    def invoke(self, ctx: Any) -> Any:
        with exit_statuses():
            return super().invoke(ctx)


# --- options -------------------------------------------------------------------------------------------------

app = typer.Typer(
    cls=Commands,
    help="ExecuTorch programs on Arm Cortex-M, in simulators and on boards.",
    epilog="Exit status: 0 yes, 1 no, 2 could not tell (see the message), 130 interrupted.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(asked: bool) -> None:
    if asked:
        print(f"hil {cortex_m_hil.__version__}")
        raise typer.Exit


@app.callback()
def _root(version: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True)] = False) -> None:
    pass
