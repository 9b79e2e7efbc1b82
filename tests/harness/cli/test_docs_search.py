"""`hil docs`: pages, sections of them, and the search for words."""

from __future__ import annotations

from pathlib import Path

import pytest

from command_line import CANNOT_TELL, NO, OK, Hil, answer, expect
from cortex_m_hil.cli.doc_pages import Query, Section, every_section, excerpt, pages, search, sections
from shown import anchors

QUESTIONS = {
    "my pte": "getting-started#a-pte-that-you-have-already",
    "quantised input": "writing-tests#quantised-inputs-and-outputs-int8",
    "quantized input": "writing-tests#quantised-inputs-and-outputs-int8",
    "budget": "writing-tests#budgets-instructions-bytes-memory",
    "my firmware": "own-firmware#in-your-firmware",
    "filterwarnings": "writing-tests#warnings-and-filterwarnings",
    "int8": "writing-tests#quantised-inputs-and-outputs-int8",
    "HilWarning": "writing-tests#warnings-and-filterwarnings",
    "loosen a tolerance": "writing-tests#tolerances",
    "reading a failure": "failures#reading-a-failure",
    "red zones": "failures#red-zones",
    "TargetFault": "failures#targetfault",
    "which models run": "runtimes#which-models-run",
    "verification": "maintainers#verification",  # pages that there were: in others now
    "performance": "command-line#performance",
    "ci": "nightly#ci",
}
PAGE = """\
# Cats

All about cats.

## Wild cats

```sh
# no heading: a comment on lions
```

### Lions

They quantise meals, and quantise more.

## Tame

Quantised lions; lions.
"""


def found(text: str) -> list[str]:
    return [section.name for section in search(Query.parse(text), list(sections("cats", PAGE)))]


@pytest.mark.parametrize("question", QUESTIONS)
def test_a_users_question_leads_to_its_section(question: str, hil: Hil) -> None:
    first = answer(hil("docs", *question.split(), "--json").out)["sections"][0]
    assert first["section"] == QUESTIONS[question]


def test_each_section_of_each_page_is_shown_by_its_name() -> None:
    """So no two of a page have one name, and each anchor is that of a link."""
    files = pages()
    every = every_section(files)
    names = [section.name for section in every]
    assert len(names) == len(set(names)) > 150
    for page, path in files.items():
        assert {name.partition("#")[2] for name in names if name.startswith(f"{page}#")} == anchors(path)


def test_a_section_is_its_heading_with_what_stands_below() -> None:
    whole = {section.name: "\n".join(section.whole) for section in sections("cats", PAGE)}
    assert whole["cats#cats"] == "# Cats\n\nAll about cats.\n"
    assert whole["cats#wild-cats"] == PAGE[PAGE.index("## Wild") : PAGE.index("\n## Tame")]
    assert whole["cats#tame"] == "## Tame\n\nQuantised lions; lions."
    assert "".join(f"{text}\n" for name, text in whole.items() if name != "cats#lions") == PAGE


def test_headings_come_first_then_all_words_then_any() -> None:
    assert found("lions") == ["cats#lions", "cats#tame", "cats#wild-cats"]
    assert found("lion quantized") == ["cats#lions", "cats#tame"]
    assert found("wild lions") == ["cats#wild-cats", "cats#lions"]
    assert found("dogs wild") == ["cats#wild-cats", "cats#lions"]
    assert found("how to tame") == found("tame") == ["cats#tame"]
    assert found("ions") == found("…") == []


def test_the_excerpt_has_the_words() -> None:
    long = Section("cats", "Lions", (), ("| eat | " + "grass " * 100 + "and zebras" + " daily" * 100 + " |",), ())
    shown = excerpt(Query.parse("zebra"), long)
    assert "and zebras daily" in shown and shown.startswith("…") and shown.endswith("…") and len(shown) == 162
    assert excerpt(Query.parse("lions"), next(sections("cats", PAGE))) == "All about cats."


def test_a_search_shows_page_heading_text_and_the_command(hil: Hil) -> None:
    done = hil("docs", "where", "is", "labgrid", "configured")
    first, line, command = done.out.splitlines()[:3]
    assert done.status == OK and first.startswith("boards: ") and "labgrid" in line.lower()
    assert command.startswith("  hil docs boards#")
    shown = hil(*command.split()[1:])
    assert shown.status == OK and shown.out.startswith(f"## {first.partition(': ')[2]}\n")


def test_more_hits_than_are_shown_are_counted(hil: Hil) -> None:
    assert hil("docs", "program").out.rstrip().endswith(" more sections; a further word narrows the search")


def test_where_nothing_is_found_near_words_and_the_pages_are_told(hil: Hil) -> None:
    done = hil("docs", "secruity")
    assert done.status == NO and "no page has 'secruity'; did you mean 'security'?" in done.out
    assert "\nwriting-tests  " in done.out
    told = answer(hil("docs", "secruity", "--json").out)
    assert (told["exit_status"], told["sections"], len(told["pages"])) == (NO, [], len(pages()))
    assert "did you mean" not in hil("docs", "xyzzyx").out


def test_a_section_that_is_not_there_is_an_error(hil: Hil) -> None:
    expect(hil("docs", "writing-tests#roundin"), CANNOT_TELL, "no section 'roundin'", "did you mean 'rounding'?")


def test_lines_of_docs(hil: Hil) -> None:
    listed = answer(hil("docs", "--json").out)
    names = {one["page"] for one in listed["pages"]}
    assert {"writing-tests", "known_bugs"} <= names and listed["sections"] == []
    [page] = answer(hil("docs", "security", "--json").out)["pages"]
    assert (page["page"], page["title"]) == ("security", "Security")
    assert hil("docs").out.startswith("page ") and hil("docs", "security").out == Path(page["file"]).read_text()
    shown = answer(hil("docs", "writing-tests#tolerances", "--json").out)
    assert [one["page"] for one in shown["pages"]] == ["writing-tests"]
    [section] = shown["sections"]
    assert (section["section"], section["heading"]) == ("writing-tests#tolerances", "Tolerances")
    assert section["text"].startswith("A tolerance that has to be loosened is a finding")
