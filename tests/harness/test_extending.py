"""The recipes of docs/extending.md, each applied to a copy of this repository, and shown to work by its commands."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from paths import REPOSITORY
from shown import Edit, Shown, blocks

PAGE = REPOSITORY / "docs" / "extending.md"
DEADLINE = 300.0  # seconds for one command: a runner may have to be built


@dataclass(frozen=True)
class Recipe:
    title: str
    edits: tuple[Edit, ...]
    shown: tuple[Shown, ...]


def recipes() -> Iterator[Recipe]:
    for section in re.split(r"^(?=##+ )", PAGE.read_text(), flags=re.MULTILINE)[1:]:
        edits, shown = [], []
        for block in blocks(section):
            if block.language == "console":
                shown += list(block.commands())
                continue
            edit = block.edit()
            assert edit, f"no place in the line before a block: {block.before!r}"
            edits.append(edit)
        if edits or shown:
            yield Recipe(section.splitlines()[0].lstrip("# "), tuple(edits), tuple(shown))


RECIPES = list(recipes())
QUICK = ("A lint rule", "A CLI command", "An error class")  # which build no runner, and lower nothing


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """What git knows of this repository, and what is not committed yet."""
    listed = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(listed, cwd=REPOSITORY, capture_output=True, text=True, check=True).stdout
    root = tmp_path / "copy"
    for name in filter(None, names.split("\0")):
        if (source := REPOSITORY / name).is_file():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, root / name)
    return root


def run(root: Path, command: str) -> str:
    """Both streams of a command, in a shell whose `hil` is the copy's; `pip install` goes to a folder beside it."""
    tools, packages = root.parent / "bin", root.parent / "packages"
    tools.mkdir(exist_ok=True)
    for name, call in (
        ("hil", " -m cortex_m_hil.cli"),
        ("python", ""),
        *((tool, f" -m {tool}") for tool in ("mypy", "pip", "pytest")),
    ):
        (tools / name).write_text(f'#!/bin/sh\nexec "{sys.executable}"{call} "$@"\n')
        (tools / name).chmod(0o755)
    environment = {
        **os.environ,
        "PATH": f"{tools}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": f"{root / 'harness'}{os.pathsep}{packages}",
        "PYTHONDONTWRITEBYTECODE": "1",
        "PIP_TARGET": str(packages),
        "PIP_NO_DEPS": "1",
        "PIP_NO_INDEX": "1",
        "PIP_NO_BUILD_ISOLATION": "0",  # pip's word for: in this environment
        "COLUMNS": "250",
    }
    done = subprocess.run(
        ["sh", "-c", command], cwd=root, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        timeout=DEADLINE, check=False,
    )  # fmt: skip
    return done.stdout


@pytest.mark.first_only
@pytest.mark.parametrize(
    "recipe",
    [
        pytest.param(one, id=one.title.replace(" ", "-"), marks=[pytest.mark.slow] * (one.title not in QUICK))
        for one in RECIPES
    ],
)
def test_a_recipe_works_as_it_stands(recipe: Recipe, copy: Path) -> None:
    assert recipe.edits and any(shown.expected for shown in recipe.shown)
    first = next(shown for shown in recipe.shown if shown.expected)
    assert first.missing(run(copy, first.command)), "it works without the recipe"
    for edit in recipe.edits:
        edit.apply(copy)
    for shown in recipe.shown:
        said = run(copy, shown.command)
        assert shown.missing(said) == [], said


def test_every_section_of_the_page_is_a_recipe() -> None:
    headings = re.findall(r"^##+ (.+)$", PAGE.read_text(), re.MULTILINE)
    assert [recipe.title for recipe in RECIPES] == headings
    assert len(headings) >= 8 and {*QUICK} <= {*headings}
