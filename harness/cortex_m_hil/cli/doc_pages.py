"""Pages of the documentation, cut into sections, and a search in them."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from cortex_m_hil.host.paths import package_data

_HEADING: Final = re.compile(r"(#+) (.+)")
_FENCE: Final = "```"
_WIDTH: Final = 160  # characters of a section's text that a search shows at most
_FILLER: Final = re.compile(
    "an?|and|are|can|do|does|for|from|how|i[nst]?|my|of|on|or|the|this|to|wh(at|en|ere|ich|o|y)|with"
)


@dataclass(frozen=True)
class Section:
    """A section of a page: a heading and the text below it.

    Attributes:
        page: the page's name for `hil docs`.
        heading: the text of the heading, without `#`.
        above: the headings of the enclosing sections, the page's title first; empty for the title itself.
        own: the lines below the heading up to the next heading of any level.
        whole: the heading and the lines up to the next heading of its level; of the title: up to the next heading.
    """

    page: str
    heading: str
    above: tuple[str, ...]
    own: tuple[str, ...]
    whole: tuple[str, ...]

    @property
    def name(self) -> str:
        """Return the section's name, `page#anchor`, for `hil docs` and for links."""
        return f"{self.page}#{anchor(self.heading)}"


def anchor(heading: str) -> str:
    """Return the anchor of a heading by GitHub's rule: lower case, hyphens for spaces, no other punctuation."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def pages() -> dict[str, Path]:
    """Return the file of each page by name, from the wheel or from a checkout."""
    return {path.stem: path for path in sorted(package_data("docs").glob("*.md"))}


def title(page: Path) -> str:
    """Return the heading that a page begins with."""
    return page.read_text().partition("\n")[0].removeprefix("# ")


def sections(page: str, text: str) -> Iterator[Section]:
    """Yield the sections of a page in their order; a `#` in a block of code is no heading."""
    lines = text.splitlines()
    headings = list(_headings(lines))
    above: list[tuple[int, str]] = []
    for index, (start, level, heading) in enumerate(headings):
        rest = [*headings[index + 1 :], (len(lines), 0, "")]
        own_end = rest[0][0]
        end = own_end if level == 1 else next(line for line, other, _ in rest if other <= level)
        above = [one for one in above if one[0] < level]
        parents = tuple(name for _, name in above)
        above.append((level, heading))
        yield Section(page, heading, parents, tuple(lines[start + 1 : own_end]), tuple(lines[start:end]))


def _headings(lines: Iterable[str]) -> Iterator[tuple[int, int, str]]:
    """Yield the number of each heading's line, its level and its text."""
    in_code = False
    for number, line in enumerate(lines):
        in_code ^= line.lstrip().startswith(_FENCE)
        if not in_code and (found := _HEADING.fullmatch(line)):
            yield number, len(found[1]), found[2]


# --- search --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Query:
    """The words of a search, as patterns for text in lower case."""

    patterns: tuple[re.Pattern[str], ...]

    @classmethod
    def parse(cls, text: str) -> Query:
        """Make a query from a user's words; articles and the like are ignored unless there are no other words."""
        words = dict.fromkeys(re.findall(r"\w(?:[\w.-]*\w)?", _folded(text)))
        telling = [word for word in words if not _FILLER.fullmatch(word)]
        return cls(tuple(map(_pattern, telling or words)))

    def matched(self, text: str) -> int:
        """Return how many of the words the text has."""
        folded = _folded(text)
        return sum(bool(pattern.search(folded)) for pattern in self.patterns)

    def first(self, text: str) -> int:
        """Return the position of the first of the words in the text; 0 if the text has none."""
        folded = _folded(text)
        return min((found.start() for one in self.patterns if (found := one.search(folded))), default=0)

    def occurrences(self, text: str) -> int:
        """Return how often the text has any of the words."""
        folded = _folded(text)
        return sum(len(pattern.findall(folded)) for pattern in self.patterns)


def _folded(text: str) -> str:
    """Return the text in lower case, with one spelling for `quantise` and `quantize`, `analyse` and `analyze`."""
    return re.sub(r"(?<=[iy])z", "s", text.lower())


def _pattern(word: str) -> re.Pattern[str]:
    """Return a pattern for a word with any ending, and with any of `-`, `_`, `.` for each.

    A short word must match exactly.
    """
    stem = re.sub(r"(?<=\w{4})(e?[sd]|e|ing)$", "", word)
    parts = [re.escape(part) for part in re.split(r"[\W_]+", stem)]
    end = r"(?![^\W_])" if len(stem) < 3 else ""
    return re.compile(r"(?<![^\W_])" + r"[\W_]+".join(parts) + end)


def search(query: Query, among: Sequence[Section]) -> list[Section]:
    """Return the sections that contain all words, or else those that contain any, the best first.

    Sections with more of the words in their heading come first, then those with more of the words, then those whose
    heading has one earlier, then those with more occurrences, then the order of `among`. The headings above a section
    count as its text.
    """
    found = []
    for section in among:
        text = "\n".join((section.page, *section.above, section.heading, *section.own))
        if matched := query.matched(text):
            heading = section.heading
            rank = (query.matched(heading), matched, -query.first(heading), query.occurrences(text))
            found.append((rank, section))
    complete = [one for one in found if one[0][1] == len(query.patterns)]
    return [section for _, section in sorted(complete or found, key=lambda one: one[0], reverse=True)]


def excerpt(query: Query, section: Section) -> str:
    """Return the line of a section with the most of the words, cut to the surroundings of the first word."""
    lines = [
        line.strip("| ") for line in section.own if line.strip() and not line.lstrip().startswith((_FENCE, "<!--"))
    ]
    line = max(lines, key=query.matched, default="")
    start = max(0, min(query.first(line) - _WIDTH // 3, len(line) - _WIDTH))
    cut = line[start : start + _WIDTH]
    return ("…" if start else "") + cut + ("…" if start + _WIDTH < len(line) else "")


def near(text: str, among: Iterable[Section]) -> list[str]:
    """Return words of headings and names of pages that are spelled like a word of the text."""
    known = {word for one in among for word in re.findall(r"\w+", f"{one.page} {one.heading}".lower())}
    words = re.findall(r"\w+", text.lower())
    return [one for word in words for one in difflib.get_close_matches(word, sorted(known), n=2, cutoff=0.7)]


def every_section(files: Mapping[str, Path]) -> list[Section]:
    """Return the sections of all pages."""
    return [section for page, path in files.items() for section in sections(page, path.read_text())]
