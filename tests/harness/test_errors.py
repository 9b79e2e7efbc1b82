"""Errors: a mistake of the user's comes with what to do about it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from cortex_m_hil import errors
from paths import REPOSITORY

PACKAGE = REPOSITORY / "harness" / "cortex_m_hil"
# What pytest shows as a usage error is one line: the plugin's messages have the next step in their text.
MODULES = sorted(path for path in PACKAGE.rglob("*.py") if "pytest_plugin" not in path.parts)


def calls(path: Path, name: str) -> Iterator[ast.Call]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == name:
            yield node


def without_next_step(path: Path) -> list[int]:
    """The lines of those that are made without a hint, or with an empty one."""
    hints = {
        call.lineno: [ast.unparse(one.value) for one in call.keywords if one.arg == "hint"]
        for call in calls(path, errors.ConfigError.__name__)
    }
    return [line for line, found in hints.items() if not found or found == ["''"]]


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_every_mistake_of_the_users_has_a_next_step(path: Path) -> None:
    assert without_next_step(path) == []


def test_one_without_is_found(tmp_path: Path) -> None:
    path = tmp_path / "module.py"
    path.write_text("raise ConfigError('a')\nraise ConfigError('b', hint='c')\nraise ConfigError('d', hint='')\n")
    assert without_next_step(path) == [1, 3]
