"""Answers of commands: text for people or, with --json, one JSON object per line (docs/command-line.md)."""

from __future__ import annotations

import contextlib
import json
import math
import re
import sys
import textwrap
from collections.abc import Iterable, Iterator, Mapping
from contextvars import ContextVar
from dataclasses import asdict, dataclass, field, is_dataclass, replace
from enum import Enum
from pathlib import Path
from typing import Any, Final

import typer

from cortex_m_hil.cli.exit_codes import CANNOT_TELL, NO, OK
from cortex_m_hil.errors import HarnessError, LintError, Mismatch, VerdictError

SCHEMA_VERSION: Final = 1  # version of the JSON objects: raised when a field is removed, renamed, or redefined
_ACCEPTING: Final = re.compile(r"known=\[([^\]]*)\]")  # in hints of `checks.executorch_verdict`
_CAUSE: Final = re.compile(r"[\w:.]+")


def json_fields(fields: Mapping[str, str], *, each: str = "") -> str:
    """Return the end of a command's help, which describes the fields of its answer with --json.

    Args:
        fields: descriptions by field names.
        each: the subject of each line of JSON; "": the target, or the whole call.
    """
    lines = [
        textwrap.fill(f"{name}: {text}", 78, initial_indent="  ", subsequent_indent="    ")
        for name, text in fields.items()
    ]
    head = f"Fields of --json, a line for {each}:" if each else "Fields of --json:"
    return "\n".join(["\b", textwrap.fill(head, 78), *lines])


@dataclass(frozen=True)
class Call:
    """The command that was called.

    Attributes:
        command: the command's name, without `hil`.
        as_json: whether answers are printed as JSON.
        verbose: whether the log of an error is shown; None: the command has no such option.
    """

    command: str = ""
    as_json: bool = False
    verbose: bool | None = None


CALL: Final[ContextVar[Call]] = ContextVar("CALL", default=Call())  # noqa: B039 - frozen


@dataclass(frozen=True)
class Answer:
    """The answer of a command, or its answer for one target: text for people, fields for JSON, and the exit status."""

    text: str
    fields: Mapping[str, Any]
    status: int = OK

    @classmethod
    def from_blocks(
        cls, blocks: Iterable[str], fields: Mapping[str, Any], *, bad: object = False, unknown: object = False
    ) -> Answer:
        """Return an answer of blocks of text; its status is NO if `bad`, else CANNOT_TELL if `unknown`."""
        status = NO if bad else CANNOT_TELL if unknown else OK
        return cls("\n\n".join(filter(None, blocks)), fields, status)


@dataclass(frozen=True)
class Problem:
    """The description of an error. `text` is the whole description, for people."""

    type: str
    kind: str
    message: str
    text: str = field(repr=False)
    operator: str = ""
    details: tuple[tuple[str, str], ...] = ()
    hint: str = ""

    @classmethod
    def of(cls, error: HarnessError) -> Problem:
        kind = "verdict" if isinstance(error, VerdictError) else "infra"
        if isinstance(error, (LintError, Mismatch)):
            error.hint = hint_for_commands(error.hint)
        name, text = type(error).__name__, error.describe()
        return cls(name, kind, error.message, text, error.operator, error.details, error.hint)

    @property
    def fields(self) -> dict[str, Any]:
        labelled = [{"label": label, "text": text} for label, text in self.details]
        rest = {"operator": self.operator, "details": labelled, "hint": self.hint}
        return {"type": self.type, "kind": self.kind, "message": self.message, **rest}


def hint_for_commands(hint: str) -> str:
    """Return a hint for users of commands: Python calls are replaced by commands or options.

    The argument `lint=False` is removed; a command that has an option for it has put the option into the hint already.
    """
    from cortex_m_hil.checks.comparison.advice_texts import LOCALIZE
    from cortex_m_hil.checks.lint_rules.hints import UNLINTED

    hint = _ACCEPTING.sub(lambda found: " ".join(f"--known {one}" for one in _CAUSE.findall(found[1])), hint)
    return hint.partition(f"; {UNLINTED}")[0].replace(LOCALIZE, "hil localize")


@contextlib.contextmanager
def answering(*, verbose: bool | None) -> Iterator[None]:
    """Run the block as a command's work; `verbose` is as in `Call`."""
    CALL.set(replace(CALL.get(), verbose=verbose))
    with log_of_errors():
        yield


@contextlib.contextmanager
def log_of_errors() -> Iterator[None]:
    """Show the log of an error that leaves the block; without --verbose, only say that --verbose shows it."""
    try:
        yield
    except HarnessError as error:
        write_log(error.log)
        if error.log.strip() and CALL.get().verbose is False:
            error.hint = "; ".join(part for part in (error.hint, "--verbose shows the log") if part)
        raise


def write_log(log: str) -> None:
    """Print a log on standard error if --verbose asks for it."""
    if CALL.get().verbose and log.strip():
        print(log.rstrip(), file=sys.stderr)


def say(text: str) -> None:
    """Print text for people about the progress; nothing with --json."""
    if not CALL.get().as_json:
        print(text, flush=True)


def write_answer(answer: Answer) -> None:
    """Write an answer: text, or with --json an object. No other function writes answers of commands."""
    if CALL.get().as_json:
        head = {"schema_version": SCHEMA_VERSION, "command": CALL.get().command, "exit_status": answer.status}
        print(json.dumps(_plain({**head, **answer.fields}), allow_nan=False), flush=True)
    elif answer.text:
        print(answer.text, flush=True)


def write_problem(problem: Problem, status: int, fields: Mapping[str, Any] | None = None, heading: str = "") -> None:
    """Report an error: as text on standard error, or with --json in place of the answer.

    Args:
        problem: the error.
        status: the exit status of the command, or of a part of it.
        fields: further fields for JSON.
        heading: a text that precedes the text for people.
    """
    if CALL.get().as_json:
        write_answer(Answer("", {**(fields or {}), "error": problem.fields}, status))
    else:
        with contextlib.suppress(OSError):
            print(heading + problem.text, file=sys.stderr, flush=True)


def end(answer: Answer) -> None:
    """Write the only answer of a command, and end the command with its status."""
    write_answer(answer)
    raise typer.Exit(answer.status)


def _plain(value: Any) -> Any:
    """Return a value made of JSON's types; numbers that are not finite become None, as JSON lacks them."""
    if isinstance(value, Enum):
        return value.value
    if is_dataclass(value) and not isinstance(value, type):
        return _plain(asdict(value))
    if isinstance(value, Mapping):
        return {str(name): _plain(one) for name, one in value.items()}
    if isinstance(value, (str, bool, int)) or value is None:
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Path):
        return str(value)
    assert isinstance(value, Iterable)
    return [_plain(one) for one in value]
