"""Check that docstrings of functions begin with an imperative verb and are whole sentences; `make lint` runs this.

    python ci/check_docstrings.py harness ci tests/support

Ruff's D401 finds verbs that are not in the imperative, but accepts docstrings that begin with no verb: "What …".
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

LEAST: Final = 4  # words of a docstring at least
VERBS: Final = frozenset((Path(__file__).parent / "docstring_verbs.txt").read_text().split())


def problems(path: Path) -> Iterator[str]:
    """Yield a line for each docstring of a function in a file that breaks a rule."""
    for node in ast.walk(ast.parse(path.read_text())):
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


def _files(path: Path) -> list[Path]:
    """Return the Python files below a folder; for a file, only the file."""
    return sorted(path.rglob("*.py")) if path.is_dir() else [path]


def main() -> int:
    """Print the problems in the folders named on the command line, and return the exit status."""
    found = [line for name in sys.argv[1:] for path in _files(Path(name)) for line in problems(path)]
    print("\n".join(found) or "docstrings: every one begins with a verb")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
