"""The command `hil docs`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from cortex_m_hil.cli.app import app
from cortex_m_hil.cli.command_output import Answer, end, json_fields
from cortex_m_hil.cli.doc_pages import Query, Section, every_section, excerpt, near, pages, search, sections, title
from cortex_m_hil.cli.exit_codes import NO
from cortex_m_hil.cli.tables import table
from cortex_m_hil.errors import ConfigError, did_you_mean
from cortex_m_hil.errors.text import counted

_SHOWN: Final = 8  # sections that a search shows


@app.command(
    "docs",
    epilog=json_fields(
        {
            "pages": "a list of page, title, file: those that are shown or have what was found, else all",
            "sections": (
                "a list of section, heading, text: the one that is named, or those that a search found, the best "
                "first, with the line that has the words"
            ),
        }
    ),
)
def docs(
    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[PAGE | PAGE#SECTION | WORDS]", help="Without any, all pages are listed", show_default=False
        ),
    ] = None,
) -> None:
    """Show a page of the docs, or search all pages for words.

    What is neither a page nor a section is searched for in all pages. The sections with most of the words in their
    headings come first.
    """
    files = pages()
    asked = " ".join(words or ())
    page, mark, section = asked.partition("#")
    if not asked.strip():
        end(_list(files))
    elif page in files:
        end(_show_section(page, section, files[page]) if mark else _show_page(page, files[page]))
    else:
        end(_search(asked, files))


def _list(files: Mapping[str, Path]) -> Answer:
    return Answer(_table(files), _fields(files))


def _show_page(page: str, file: Path) -> Answer:
    return Answer(file.read_text().rstrip("\n"), _fields({page: file}))


def _show_section(page: str, name: str, file: Path) -> Answer:
    """Return the answer for a section of a page.

    Raises:
        ConfigError: the page has no such section.
    """
    known = {one.name.partition("#")[2]: one for one in sections(page, file.read_text())}
    if name not in known:
        raise ConfigError(f"the page {page!r} has no section {name!r}", hint=did_you_mean(name, known))
    section = known[name]
    text = "\n".join(section.whole).rstrip("\n")
    return Answer(text, _fields({page: file}, [(section, "\n".join(section.own).strip("\n"))]))


def _search(asked: str, files: Mapping[str, Path]) -> Answer:
    every, query = every_section(files), Query.parse(asked)
    found = search(query, every)
    if not found:
        meant = " or ".join(repr(word) for word in near(asked, every))
        told = f"no page has {asked!r}" + (f"; did you mean {meant}?" if meant else "")
        return Answer(f"{told}\n\n{_table(files)}", _fields(files), NO)
    shown = [(section, excerpt(query, section)) for section in found[:_SHOWN]]
    text = "\n\n".join(f"{one.page}: {one.heading}\n  {line}\n  hil docs {one.name}" for one, line in shown)
    left = len(found) - _SHOWN
    more = f"\n\n… and {counted(left, 'more section')}; a further word narrows the search" if left > 0 else ""
    return Answer(text + more, _fields({one.page: files[one.page] for one, _ in shown}, shown))


def _table(files: Mapping[str, Path]) -> str:
    return table(("page", "title"), [(name, title(path)) for name, path in files.items()])


def _fields(files: Mapping[str, Path], shown: Iterable[tuple[Section, str]] = ()) -> dict[str, Any]:
    listed: Sequence[Any] = [{"page": name, "title": title(path), "file": path} for name, path in files.items()]
    found = [{"section": section.name, "heading": section.heading, "text": text} for section, text in shown]
    return {"pages": listed, "sections": found}
