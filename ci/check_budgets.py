"""Check the budgets of this repository: rooms and the arrows between them, words, commands. `make lint` runs this.

    python ci/check_budgets.py

A room is a folder of the package, its `__init__`, `api.py`, `ci/` or `firmware/`. There is an arrow from one room to
another if any module of the first imports one of the second, also if for type checkers only. The floor of a room is 1
if it imports no other room, else one above the highest floor that it imports. Limits may only be lowered: a change that
needs more must save elsewhere.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

import grimp

from cortex_m_hil.cli.app import SECTIONS

ROOT: Final = Path(__file__).resolve().parents[1]
PACKAGE: Final = "cortex_m_hil"
LIMITS: Final = {
    "rooms": 18,
    "arrows between rooms": 105,
    "floors": 12,
    "code lines of a function": 45,
    "commands of hil --help": 20,
    "words of README.md": 1_400,
    "words of CHANGELOG.md": 1_500,
    "pages of docs": 20,
    "words of docs": 39_800,
}


def room_of(module: str) -> str:
    """Return the room of a module by its dotted name."""
    parts = module.split(".")
    return parts[1] if len(parts) > 1 else "__init__"


def arrows() -> set[tuple[str, str]]:
    """Return pairs of rooms; the first room of a pair imports the second."""
    graph = grimp.build_graph(PACKAGE, exclude_type_checking_imports=False)
    found = {
        (room_of(module), room_of(imported))
        for module in graph.modules
        for imported in graph.find_modules_directly_imported_by(module)
    }
    for path in (ROOT / "ci").glob("*.py"):
        found |= {("ci", room_of(name)) for name in _imported(path, graph.modules)}
    return {(one, other) for one, other in found if one != other}


def _imported(path: Path, modules: Iterable[str]) -> Iterable[str]:
    """Yield the modules of the package that a script imports."""
    known = set(modules)
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == PACKAGE:
            names = {f"{node.module}.{one.name}" for one in node.names}
            yield from (names & known) or {str(node.module)}


def floors(pairs: Iterable[tuple[str, str]]) -> int:
    """Return the number of floors; import-linter checks that there are no circles."""
    below: dict[str, set[str]] = {}
    for one, other in pairs:
        below.setdefault(one, set()).add(other)
    heights: dict[str, int] = {}

    def height(room: str) -> int:
        """Return the floor of a room, 1 for one that imports no other."""
        if room not in heights:
            heights[room] = 1 + max(map(height, below.get(room, ())), default=0)
        return heights[room]

    return max(map(height, below))


def sources() -> Iterable[Path]:
    """Return the Python files of the package and of `ci/`."""
    return [*(ROOT / "harness").rglob("*.py"), *(ROOT / "ci").glob("*.py")]


def code_lines(path: Path) -> Iterable[int]:
    """Yield the lines of each function in a file, without its docstring, blank lines and comments."""
    text = path.read_text()
    lines = text.splitlines()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            first = node.body[1] if ast.get_docstring(node) and len(node.body) > 1 else node.body[0]
            head = lines[node.lineno - 1 : node.body[0].lineno - 1]
            own = [*head, *lines[first.lineno - 1 : node.end_lineno]]
            yield sum(bool(line.strip()) and not line.strip().startswith("#") for line in own)


def words(paths: Iterable[Path]) -> int:
    """Return the number of words in files."""
    return sum(len(path.read_text().split()) for path in paths)


def figures() -> Mapping[str, int]:
    """Return each figure that has a limit, by its name."""
    pairs = arrows()
    pages = sorted((ROOT / "docs").glob("*.md"))
    return {
        "rooms": len({room for pair in pairs for room in pair}) + 1,  # firmware imports nothing
        "arrows between rooms": len(pairs),
        "floors": floors(pairs),
        "code lines of a function": max(lines for path in sources() for lines in code_lines(path)),
        "commands of hil --help": sum(map(len, SECTIONS.values())),
        "words of README.md": words([ROOT / "README.md"]),
        "words of CHANGELOG.md": words([ROOT / "CHANGELOG.md"]),
        "pages of docs": len(pages),
        "words of docs": words(pages),
    }


def main() -> int:
    """Print each figure with its limit, and return the exit status: 1 if a limit is exceeded."""
    found = figures()
    for name, limit in LIMITS.items():
        over = "  OVER" if found[name] > limit else ""
        print(f"{name:24} {found[name]:6} of {limit}{over}")
    return int(any(found[name] > limit for name, limit in LIMITS.items()))


if __name__ == "__main__":
    sys.exit(main())
