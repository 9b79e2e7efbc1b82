"""Make the tables in docs/known_bugs.md from the table of known bugs, and the programs that show them.

python ci/known_bugs_table.py
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[1]
if str(ROOT / "tests" / "support") not in sys.path:
    sys.path.append(str(ROOT / "tests" / "support"))

from cortex_m_hil.errors.known_bugs import KNOWN_BUGS  # noqa: E402 - found by the line above
from known_bugs.bugs import BUGS, How, KnownBug, Shown  # noqa: E402

PAGE: Final = ROOT / "docs" / "known_bugs.md"
_BLOCK: Final = re.compile(r"(<!-- table: (\w+) -->\n).*?(?=<!-- end -->)", re.DOTALL)
_NUMBERED: Final = "| number | what is wrong | where | caught by | workaround |\n|---|---|---|---|---|\n"
_THREADS: Final = "| what is wrong | where | caught by |\n|---|---|---|\n"
_ALL: Final = {"m4-qemu", "m0-qemu", "m55-qemu"}  # one of each ISA class


def rendered(page: str) -> str:
    """Return the page with its tables and its count made again."""
    made = {"bugs": _numbered(), "threads": _threads(), "count": _count(BUGS)}
    return _BLOCK.sub(lambda block: block[1] + made[block[2]], page)


def _count(bugs: Iterable[KnownBug]) -> str:
    """Return a sentence with the number of bugs by how they are shown; each bug counts for its best way."""
    kinds = [_kind(bug) for bug in bugs]
    counts = ", ".join(f"{kinds.count(kind)} {kind}" for kind in _KINDS)
    return f"{len(kinds)} bugs: {counts}.\n"


_KINDS: Final = (
    "real",
    "foreseen",
    "planted",
    "by tests elsewhere in this repository only",
    "not shown",
)


def _kind(bug: KnownBug) -> str:
    hows = {shown.how for shown in bug.shown}
    best = next((how.value for how in (How.REAL, How.FORESEEN, How.PLANTED) if how in hows), "")
    return best or _KINDS[3 if bug.shown_by else 4]


def _numbered() -> str:
    """Return the table of the bugs that this project found, by number."""
    numbered = {int(number): bug for bug in BUGS for number in _numbers(bug)}
    first: dict[str, int] = {}
    rows = []
    for number, bug in sorted(numbered.items()):
        rows.append(_numbered_row(bug, number, first.setdefault(KNOWN_BUGS[number].workaround, number)))
    return _NUMBERED + "".join(rows)


def _threads() -> str:
    """Return the table of the bugs that are known only from ExecuTorch's and CMSIS-NN's issues."""
    bugs = [bug for bug in BUGS if not _numbers(bug)]
    return _THREADS + "".join(_row(f"**{bug.name}**: {bug.symptom}", _links(bug), _caught(bug)) for bug in bugs)


def _numbers(bug: KnownBug) -> list[str]:
    return [one.removeprefix("known bug ") for one in bug.upstream if one.startswith("known bug ")]


def _numbered_row(bug: KnownBug, number: int, first: int) -> str:
    """Return the row of a bug; a long workaround is written out for the first bug only that has it."""
    found = KNOWN_BUGS[number]
    workaround = found.workaround if first == number or len(found.workaround) < 40 else f"see bug {first}"
    workaround += "" if found.tried else " (not tried)"
    where = ", ".join(filter(None, (found.where, _links(bug))))
    return _row(str(number), f"**{bug.name}**: {found.what}", where, _caught(bug), workaround)


def _row(*cells: str) -> str:
    return f"| {' | '.join(cells)} |\n"


def _links(bug: KnownBug) -> str:
    return ", ".join(_link(one) for one in bug.upstream if not one.startswith("known bug "))


def _caught(bug: KnownBug) -> str:
    return "; ".join(_all_caught(bug))


def _all_caught(bug: KnownBug) -> Iterator[str]:
    """Yield check, operator and targets for each way in which a bug is shown, and the tests that show it."""
    for shown in bug.shown:
        yield f"{shown.how.value}: {shown.caught}{_operator(shown)}{_targets(shown)}"
    yield from (f"`{test}`" for test in bug.shown_by)
    if bug.why_not:
        yield f"not shown: {bug.why_not}"


def _operator(shown: Shown) -> str:
    return f", `{shown.caught.operator}`" if shown.caught.operator else ""


def _targets(shown: Shown) -> str:
    """Return the targets on which it shows, in brackets; of all ISA classes nothing, which the page explains."""
    if {*shown.shows} == _ALL:
        return ""
    hidden = f"; passes on {', '.join(shown.hidden)}" if shown.hidden else ""
    return f" ({', '.join(shown.shows)}{hidden})"


def _link(reference: str) -> str:
    repository, _, number = reference.partition("#")
    name = "CMSIS-NN " if repository.endswith("CMSIS-NN") else ""
    return f"[{name}#{number}](https://github.com/{repository}/issues/{number})"


if __name__ == "__main__":
    PAGE.write_text(rendered(PAGE.read_text()))
