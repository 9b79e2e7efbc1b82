"""A check of hints: every option in an error's hint must exist in the command that the hint is about."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from typing import Any, Final

import typer

from cortex_m_hil.cli.__main__ import load_commands

_OF_VBOARD: Final = {"--name", "--baud", "--seed", "--help"}  # options of an argparse program, unknown to typer
_OPTION: Final = re.compile(r"(?<![\w-])--[a-z][a-z0-9-]*")
_CLAUSES: Final = re.compile(r"[;,:()]|\bor\b|\s--\s")  # after a lone -- another command begins
_PROGRAM: Final = re.compile(r"\b(hil|pytest|git|npm|pip|python3?|cmake)\s.*?--")


def check_hints(arguments: Sequence[object], out: str, err: str) -> None:
    """Raise AssertionError if an error of this call of `hil` names an option that does not exist."""
    words = [str(argument) for argument in arguments]
    wrong = [(hint, option) for hint in _hints(out, err) for option in strange_options(words, hint)]
    assert wrong == [], f"hil {' '.join(words)}"


def strange_options(words: Sequence[str], hint: str) -> list[str]:
    """Return the options in a hint that do not exist in their command: the one named before, else the called one."""
    found = []
    for clause in _CLAUSES.split(hint):
        program = _PROGRAM.search(clause)
        if program is None:
            known = _options(words)
        elif program[1] == "hil":
            known = _options(clause[program.end(1) :].split())
        else:
            continue
        found += [option for option in _OPTION.findall(clause) if option not in known]
    return found


def _hints(out: str, err: str) -> Iterator[str]:
    """Yield the hints of errors in a command's output, which is text or `--json`."""
    yield from re.findall(r"^  → (.*)", err, re.MULTILINE)
    for line in out.splitlines():
        if line.startswith('{"schema_version"') and "error" in (answer := json.loads(line)):
            yield answer["error"]["hint"]


def _options(words: Sequence[str]) -> set[str]:
    """Return the options of the command that these words call, and of the groups that it is in."""
    if words[:2] == ["board", "virtual"]:
        return _OF_VBOARD
    command: Any = typer.main.get_command(load_commands(words[0] if words else ""))
    found = {"--help"}
    for word in [*words, ""]:
        found |= {name for parameter in command.params for name in (*parameter.opts, *parameter.secondary_opts)}
        if word not in getattr(command, "commands", {}):
            break
        command = command.commands[word]
    return found
