"""The blocks of pages: files to write, commands to call, and their output."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from cortex_m_hil.cli.doc_pages import anchor, sections
from paths import REPOSITORY

SHELL = ("sh", "console")  # every line is of a command; commands begin with `$ `, and what they print follows
PLACE = re.compile(r"`(?P<path>[^`]+)`, (?:(?P<new>a new file)|(?P<end>at the end)|below `(?P<anchor>.+)`):")
_BLOCK = re.compile(r"^(?P<indent> *)```(?P<language>\w*)\n(?P<text>.*?)^(?P=indent)```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Edit:
    """An edit of a file: text for a new file, for its end, or below the one line that is `anchor`."""

    path: str
    text: str
    is_new: bool
    anchor: str | None

    def apply(self, root: Path) -> None:
        path = root / self.path
        assert path.exists() != self.is_new, f"{self.path}: exists {'already' if self.is_new else 'not'}"
        path.parent.mkdir(parents=True, exist_ok=True)
        lines = [] if self.is_new else path.read_text().splitlines(keepends=True)
        at = len(lines)
        if self.anchor is not None:
            (at,) = (number for number, line in enumerate(lines, 1) if line.strip() == self.anchor)
        path.write_text("".join([*lines[:at], self.text, *lines[at:]]))


@dataclass(frozen=True)
class Shown:
    """A command of a shell, and lines of its output; `…` in them stands for anything."""

    command: str
    expected: tuple[str, ...] = ()

    def missing(self, said: str) -> list[str]:
        return [line for line in self.expected if not re.search(self._pattern(line), said, re.MULTILINE)]

    @staticmethod
    def _pattern(line: str) -> str:
        words = [r"\s+".join(map(re.escape, part.split())) for part in line.split("…")]
        return r"^\s*" + ".*".join(words)


@dataclass(frozen=True)
class Block:
    language: str
    text: str
    before: str  # the last line above it that is not empty

    def commands(self) -> Iterator[Shown]:
        """Yield the commands of a block. In `sh`, lines that end with a backslash go on, and comments are left out."""
        if self.language == "console":
            for part in re.split(r"^\$ ", self.text, flags=re.MULTILINE)[1:]:
                command, *expected = part.splitlines()
                yield Shown(command, tuple(expected))
        elif self.language == "sh":
            for line in re.sub(r"\\\n\s*", "", self.text).splitlines():
                if command := re.sub(r"(^|\s+)#.*$", "", line).strip():
                    yield Shown(command)

    def edit(self) -> Edit | None:
        """Return the edit that a block is; None where the line before names no file."""
        place = PLACE.fullmatch(self.before)
        return Edit(place["path"], self.text, place["new"] is not None, place["anchor"]) if place else None


def blocks(text: str) -> Iterator[Block]:
    """Yield the fenced blocks of a page; the indentation of blocks in lists is removed."""
    for block in _BLOCK.finditer(text):
        above = text[: block.start()].strip().splitlines()
        own = re.sub(rf"^{block['indent']}", "", block["text"], flags=re.MULTILINE)
        yield Block(block["language"], own, above[-1].strip() if above else "")


def text_of(name: str) -> str:
    """Return the text of a page of this repository, or of its section `PAGE#section`."""
    page, _, section = name.partition("#")
    text = (REPOSITORY / page).read_text()
    if not section:
        return text
    (whole,) = (one.whole for one in sections(page, text) if anchor(one.heading) == section)
    return "\n".join(whole) + "\n"


def pages() -> dict[str, str]:
    """Return all pages that users and contributors read, by path, except the list of changes, which is of the past."""
    found = [*REPOSITORY.glob("*.md")]
    found += [page for folder in ("docs", "examples", "firmware") for page in (REPOSITORY / folder).rglob("*.md")]
    return {str(page.relative_to(REPOSITORY)): page.read_text() for page in found if page.name != "CHANGELOG.md"}


def without_code(text: str) -> str:
    """Return the text of a page without its blocks of code."""
    return re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)


def anchors(page: Path) -> set[str]:
    """Return the anchors of a page's headings, by GitHub's rule: lower case, hyphens for spaces, no punctuation."""
    headings = re.findall(r"^#+ (.+)$", without_code(page.read_text()), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}
