"""The tables in docs/known_bugs.md, made from tests/support/known_bugs/bugs.py with `python ci/known_bugs_table.py`."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[1]
if str(ROOT / "tests" / "support") not in sys.path:
    sys.path.append(str(ROOT / "tests" / "support"))

from known_bugs.bugs import BUGS, FINDS, THREADS, How, KnownBug, Shown  # noqa: E402 - found by the line above
from known_bugs.finds import FOUND, UNTRIED  # noqa: E402

PAGE: Final = ROOT / "docs" / "known_bugs.md"
_BLOCK: Final = re.compile(r"(<!-- table: (\w+) -->\n).*?(?=<!-- end -->)", re.DOTALL)
_HEAD: Final = "| bug | upstream | shown by | on | caught by | operator |\n|---|---|---|---|---|---|\n"
_FINDS_HEAD: Final = "| find | what is wrong | where | caught by | workaround |\n|---|---|---|---|---|\n"
_SAID: Final = "by the message"  # the value of `named_by` that the table leaves out


def rendered(page: str) -> str:
    """Return the page with its tables and its count made anew."""
    made = {"threads": _table(THREADS), "finds": _finds(), "count": _count(THREADS + FINDS)}
    return _BLOCK.sub(lambda block: block[1] + made[block[2]], page)


def _count(bugs: Iterable[KnownBug]) -> str:
    """Return a table of how many bugs are shown in which way, by the best way of each."""
    kinds = [_kind(bug) for bug in bugs]
    rows = "".join(f"| {kind} | {kinds.count(kind)} |\n" for kind in dict.fromkeys(_KINDS))
    return f"| shown | bugs |\n|---|---|\n{rows}| all | {len(kinds)} |\n"


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


def _table(bugs: Iterable[KnownBug]) -> str:
    return _HEAD + "".join(f"| {' | '.join(row)} |\n" for bug in bugs for row in _rows(bug))


def _finds() -> str:
    """Return the table of finds, one row for each by its number, those of upstream's threads too."""
    numbered = {int(one.split()[1]): bug for bug in BUGS for one in bug.upstream if one.startswith("find ")}
    rows = []
    for number, bug in sorted(numbered.items()):
        find = FOUND[number]
        links = [_link(one) for one in bug.upstream if not one.startswith("find ")]
        caught = "as [above](#threads)" if bug in THREADS else "; ".join(_all_caught(bug))
        workaround = f"{find.workaround} (not tried)" if number in UNTRIED else find.workaround
        cells = (str(number), f"**{bug.name}**: {find.what}", ", ".join([find.where, *links]), caught, workaround)
        rows.append(f"| {' | '.join(cells)} |\n")
    return _FINDS_HEAD + "".join(rows)


def _all_caught(bug: KnownBug) -> Iterator[str]:
    """Yield check, operator and targets of each way in which it is shown, and the tests that show it."""
    for shown in bug.shown:
        _, on, check, _ = _shown(shown)
        yield f"{shown.how.value}: {check}, `{shown.caught.operator}` ({on})"
    yield from (f"`{test}`" for test in bug.shown_by)
    yield from _not_shown_words(bug)


def _rows(bug: KnownBug) -> Iterator[tuple[str, ...]]:
    first = (f"**{bug.name}**: {bug.symptom}", ", ".join(map(_link, bug.upstream)))
    for cells in (*map(_shown, bug.shown), *_elsewhere(bug), *_not_shown(bug)):
        yield (*first, *cells)
        first = ("", "")


def _shown(shown: Shown) -> tuple[str, ...]:
    hidden = f"; passes on {', '.join(shown.hidden)}" if shown.hidden else ""
    named = f"`{shown.caught.operator}`, by {shown.caught.named_by.value}".removesuffix(f", {_SAID}")
    operator = named if shown.caught.operator else "–"
    return f"{shown.how.value}: {shown.words}", f"{', '.join(shown.shows)}{hidden}", f"{shown.caught}", operator


def _elsewhere(bug: KnownBug) -> Iterator[tuple[str, ...]]:
    if bug.shown_by:
        yield ", ".join(f"`{test}`" for test in bug.shown_by), "", "", ""


def _not_shown(bug: KnownBug) -> Iterator[tuple[str, ...]]:
    for words in _not_shown_words(bug):
        yield words, "", "", ""


def _not_shown_words(bug: KnownBug) -> Iterator[str]:
    if bug.why_not:
        yield f"not shown: {bug.why_not}"


def _link(reference: str) -> str:
    repository, _, number = reference.partition("#")
    if not number:
        return f"[{reference}](#finds)"
    name = "CMSIS-NN " if repository.endswith("CMSIS-NN") else ""
    return f"[{name}#{number}](https://github.com/{repository}/issues/{number})"


if __name__ == "__main__":
    PAGE.write_text(rendered(PAGE.read_text()))
