"""Answers of a command that an error ends, as a whole or for one of its targets, and the exit status that follows."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import typer

from cortex_m_hil.cli.command_output import CALL, Answer, Problem, log_of_errors, write_answer, write_problem
from cortex_m_hil.cli.exit_codes import CANNOT_TELL, INTERRUPTED, NO_READER, status_of
from cortex_m_hil.errors import HarnessError

UsageError: Any = typer.BadParameter.__base__  # click's class, or that of typer's own copy of click


@contextlib.contextmanager
def exit_statuses() -> Iterator[None]:
    """Turn errors that a user can cause into an answer and an exit status; a bug of hil keeps its traceback."""
    try:
        try:
            yield
        finally:
            sys.stdout.flush()  # flushed here, since at the interpreter's end a full disk is only a warning
    except HarnessError as error:
        problem, status = Problem.of(error), status_of(error)
    except KeyboardInterrupt as interruption:
        hint = str(interruption)
        text = f"interrupted: {hint}" if hint else "interrupted"
        problem, status = Problem("Interrupted", "infra", "interrupted", text, hint=hint), INTERRUPTED
    except BrokenPipeError:
        _drop_output()
        raise SystemExit(NO_READER) from None
    except OSError as error:
        problem, status = _of_the_system(error), CANNOT_TELL
    except UsageError as error:
        if not CALL.get().as_json:
            raise  # typer shows the usage as well
        problem, status = of_usage(error), CANNOT_TELL
    else:
        return
    with contextlib.suppress(OSError):
        write_problem(problem, status)
    _drop_output_if_full()
    raise SystemExit(status)


def _of_the_system(error: OSError) -> Problem:
    where = f": {error.filename}" if error.filename else ""
    name, message = type(error).__name__, f"{error.strerror or error}{where}"
    return Problem(name, "infra", message, f"{name}: {message}")


def of_usage(error: Any) -> Problem:
    message = error.format_message()
    path = error.ctx.command_path if error.ctx is not None else "hil"
    return Problem("UsageError", "infra", message, message, hint=f"{path} --help")


def _drop_output_if_full() -> None:
    """Let the interpreter's last flush succeed."""
    try:
        sys.stdout.flush()
    except OSError:
        _drop_output()


def _drop_output() -> None:
    with contextlib.suppress(OSError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def answer_each(names: Sequence[str], ask: Callable[[str], Answer]) -> None:
    """Write an answer for each target, and end the command with the highest of their exit statuses.

    An error is the answer for its target; the other targets are asked too.

    Args:
        names: the names of the targets.
        ask: returns the answer for a target of that name.
    """
    heading = "{}: " if len(names) > 1 else ""
    raise typer.Exit(answer_each_part(({"target": name}, heading.format(name), partial(ask, name)) for name in names))


def answer_each_case(names: Sequence[str], cases: int, ask: Callable[[str, int], Answer]) -> None:
    """Write an answer for each target and test case of a program, as `answer_each` does for each target."""
    parts = (
        ({"target": name, "case": case}, f"{name}, test case {case}: ", partial(ask, name, case))
        for name in names
        for case in range(cases)
    )
    raise typer.Exit(answer_each_part(parts))


def answer_each_part(parts: Iterable[tuple[Mapping[str, Any], str, Callable[[], Answer]]]) -> int:
    """Write an answer for each part of a command, and return the highest of their exit statuses.

    Args:
        parts: for each part the fields that name it in an answer with an error, the text in front of an error, and what
            returns its answer.
    """
    return max([_answer_one(*part) for part in parts])


def _answer_one(fields: Mapping[str, Any], heading: str, ask: Callable[[], Answer]) -> int:
    try:
        with log_of_errors():
            answer = ask()
    except HarnessError as error:
        status = status_of(error)
        write_problem(Problem.of(error), status, fields, heading)
        return status
    write_answer(answer)
    return answer.status
