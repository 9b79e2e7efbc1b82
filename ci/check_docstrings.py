"""Check that docstrings of functions begin with a verb, and others with their subject; `make lint` runs this.

    python ci/check_docstrings.py harness ci tests/support

Ruff's D401 finds verbs that are not in the imperative, but accepts docstrings that begin with no verb: "What …". It
checks no docstrings of modules, classes and constants.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

LEAST: Final = 4  # words of a docstring at least
ELLIPTICAL: Final = ("How", "Of", "What", "Why")
"""First words of a docstring that leave its subject out."""
VERBS: Final = frozenset((Path(__file__).parent / "docstring_verbs.txt").read_text().split())


def problems(path: Path) -> Iterator[str]:
    """Yield a line for each docstring in a file that breaks a rule."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Expr) and (opener := _first_word(node)) in ELLIPTICAL:
            yield f"{path}:{node.lineno}: begins with {opener!r}, and not with its subject"
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        text = ast.get_docstring(node)
        if text is None:
            continue
        first = text.split()[0] if text.split() else ""
        where = f"{path}:{node.lineno}: {node.name}:"
        if first not in VERBS:
            yield f"{where} begins with {first!r}, which is no verb of ci/docstring_verbs.txt"
        elif len(text.split()) < LEAST:
            yield f"{where} has fewer than {LEAST} words: {text!r}"


def _first_word(statement: ast.Expr) -> str:
    """Return the first word of a statement that is only a string, such as a docstring; "" for others."""
    value = statement.value.value if isinstance(statement.value, ast.Constant) else None
    return value.split(" ")[0] if isinstance(value, str) else ""


def _files(path: Path) -> list[Path]:
    """Return the Python files below a folder; for a file, only the file."""
    return sorted(path.rglob("*.py")) if path.is_dir() else [path]


def main() -> int:
    """Print the problems in the folders named on the command line, and return the exit status."""
    found = [line for name in sys.argv[1:] for path in _files(Path(name)) for line in problems(path)]
    print("\n".join(found) or "docstrings: each begins with its verb or its subject")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
