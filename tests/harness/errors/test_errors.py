"""Errors: one that says nothing of the program comes with what to do about it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from cortex_m_hil import errors
from cortex_m_hil.errors.known_bugs import known_bug
from paths import REPOSITORY

PACKAGE = REPOSITORY / "harness" / "cortex_m_hil"
# What pytest shows as a usage error is one line: the plugin's messages have the next step in their text.
MODULES = sorted(path for path in PACKAGE.rglob("*.py") if "pytest_plugin" not in path.parts)


# Those that have no hint of their class.
WITHOUT_DEFAULT = {
    name
    for name, one in vars(errors).items()
    if isinstance(one, type) and issubclass(one, errors.InfraError) and not one.default_hint
}


def calls(path: Path) -> Iterator[ast.Call]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in WITHOUT_DEFAULT:
            yield node


def without_next_step(path: Path) -> list[int]:
    """The lines of those that are made without a hint, or with an empty one."""
    hints = {
        call.lineno: [ast.unparse(one.value) for one in call.keywords if one.arg == "hint"] for call in calls(path)
    }
    return [line for line, found in hints.items() if not found or found == ["''"]]


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_every_infra_error_has_a_next_step(path: Path) -> None:
    assert without_next_step(path) == []


def test_these_need_one_and_others_have_that_of_their_class() -> None:
    assert {"ConfigError", "ToolchainError", "BoardBusy", "BoardWedged", "IdentityError"} <= WITHOUT_DEFAULT
    assert errors.LinkError("gone").hint == errors.LinkError.default_hint != ""
    assert errors.LinkError("gone", hint="the cable").hint == "the cable"


def test_an_error_without_a_next_step_is_found(tmp_path: Path) -> None:
    path = tmp_path / "module.py"
    path.write_text("raise ConfigError('a')\nraise ConfigError('b', hint='c')\nraise ConfigError('d', hint='')\n")
    assert without_next_step(path) == [1, 3]


def bare_bug_numbers(path: Path) -> list[int]:
    """Return the lines of texts, docstrings apart, that name a known bug by its number alone."""
    tree = ast.parse(path.read_text())
    docstrings = {id(one.value) for one in ast.walk(tree) if isinstance(one, ast.Expr)}
    texts = [one for one in ast.walk(tree) if isinstance(one, ast.Constant) and id(one) not in docstrings]
    return [one.lineno for one in texts if isinstance(one.value, str) and re.search(r"\bknown bugs? \d", one.value)]


@pytest.mark.parametrize("path", sorted(PACKAGE.rglob("*.py")), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_a_known_bug_is_not_named_by_its_number_alone(path: Path) -> None:
    assert bare_bug_numbers(path) == []


def test_a_known_bug_by_its_number_alone_is_found(tmp_path: Path) -> None:
    path = tmp_path / "module.py"
    path.write_text('"""Of known bug 1."""\nA = "it fails (known bug 2)"\nB = f"{A}: known bug 3"\nC = known_bug(4)\n')
    assert bare_bug_numbers(path) == [2, 3]
    assert known_bug(4) == "known bug 4 of ExecuTorch"
