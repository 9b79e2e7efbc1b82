"""Check that docstrings of functions begin with a verb, and others with their subject; `make lint` runs this.

    python ci/check_docstrings.py harness ci tests/support

Ruff's D401 finds verbs that are not in the imperative, but accepts docstrings that begin with no verb: "What …". It
checks no docstrings of modules, classes and constants. A reference of a docstring, such as `text.counted`, has to be
to a name that is in a module of that name.
"""

from __future__ import annotations

import ast
import re
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Final

LEAST: Final = 4  # words of a docstring at least
ELLIPTICAL: Final = ("How", "Of", "What", "Why")
"""First words of a docstring that leave its subject out."""
VERBS: Final = frozenset((Path(__file__).parent / "docstring_verbs.txt").read_text().split())
FILES: Final = ("cpp", "fbs", "h", "json", "ld", "py", "yaml")
"""Suffixes of files: `board.yaml` is no reference to a name of the module `board`."""
_REFERENCE: Final = re.compile(r"`+(?:\w+\.)*([a-z]\w*)\.([A-Za-z]\w*)(?:\(\))?`+")


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


def words_by_module(package: Path) -> dict[str, set[str]]:
    """Return the words in each module below a folder, by its name; of a room also the names of its modules."""
    found: dict[str, set[str]] = defaultdict(set)
    for path in package.rglob("*.py"):
        module = path.parent if path.stem == "__init__" else path
        found[module.parent.name].add(module.stem)
        found[module.stem] |= set(re.findall(r"\w+", path.read_text()))
    del found[package.name]  # its entry points have names like `cortex_m_hil.commands`
    return found


def dead_references(path: Path, known: dict[str, set[str]]) -> Iterator[str]:
    """Yield a line for each reference in a file's docstrings to a name that its module does not have.

    Args:
        path: the file.
        known: the words of each module, from `words_by_module`.
    """
    for node in ast.walk(ast.parse(path.read_text())):
        if not isinstance(node, ast.Expr) or not isinstance(node.value, ast.Constant):
            continue
        for module, name in _REFERENCE.findall(str(node.value.value)):
            if module in known and name not in known[module] and name not in FILES:
                yield f"{path}:{node.lineno}: `{module}.{name}`: the module {module} has no such name"


def _first_word(statement: ast.Expr) -> str:
    """Return the first word of a statement that is only a string, such as a docstring; "" for others."""
    value = statement.value.value if isinstance(statement.value, ast.Constant) else None
    return value.split(" ")[0] if isinstance(value, str) else ""


def _files(path: Path) -> list[Path]:
    """Return the Python files below a folder; for a file, only the file."""
    return sorted(path.rglob("*.py")) if path.is_dir() else [path]


def main() -> int:
    """Print the problems in the folders named on the command line, and return the exit status."""
    files = [path for name in sys.argv[1:] for path in _files(Path(name))]
    known = words_by_module(Path("harness/cortex_m_hil"))
    found = [line for path in files for line in (*problems(path), *dead_references(path, known))]
    print("\n".join(found) or "docstrings: each begins with its verb or its subject, and refers to names that exist")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
