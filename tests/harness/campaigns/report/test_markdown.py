"""A nightly in short as Markdown: it fits a comment on GitHub, and texts of others stay text."""

from __future__ import annotations

import re
from dataclasses import replace
from html.parser import HTMLParser

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from cortex_m_hil.campaigns.report.markdown import LIMIT, as_markdown
from cortex_m_hil.campaigns.report.nightly_results import Night, by_key
from cortex_m_hil.campaigns.report.report_contents import ReportContents
from cortex_m_hil.runner.run_results import Verdict
from generated_nights import AT_PEAK, HOSTILE, LARGER, SLOWER, SLOWER_LAYER, eventful, hostile, report, report_on
from github_actions import is_harmless


class Code(HTMLParser):
    """What stands in code, and what does not."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.inside, self.outside, self.tags = "", "", set[str]()
        self._depth = 0
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self._depth += tag == "code"

    def handle_endtag(self, tag: str) -> None:
        self._depth -= tag == "code"

    def handle_data(self, data: str) -> None:
        if self._depth:
            self.inside += data
        else:
            self.outside += data


def told(found: ReportContents) -> str:
    return as_markdown(found, all_results="hil results show 2", all_changes="hil results compare 1 2")


def rendered(text: str) -> Code:
    return Code(MarkdownIt("commonmark").enable("table").render(text))


@pytest.mark.first_only
@pytest.mark.parametrize(("moving", "failing"), [(0.0, 0.0), (0.01, 0.05), (1.0, 0.5), (0.0, 1.0)])
def test_it_fits_a_comment_and_names_what_shows_the_rest(moving: float, failing: float) -> None:
    found = report(2000, 2, moving=moving, failing=failing)
    wide = by_key(
        replace(one, headline="\N{MATHEMATICAL ITALIC SMALL PI}" * 1000) for one in found.night.results.values()
    )
    found = replace(found, night=replace(found.night, results=wide))
    text = told(found)
    assert len(text.encode()) <= LIMIT
    bad = [one for one in found.night.tests if one.verdict is Verdict.FAIL]
    assert text.startswith(
        f"### Failed: {2000 - len(bad)} passed, {len(bad)} failed" if 0 < len(bad) < 2000 else "### "
    )
    for many, rest in (
        (len(bad) > 100, "and [0-9]+ more causes?: `hil results show 2`"),
        (moving == 1.0, "and [0-9]+ more tests? .*\n\nEach of these tests: `hil results compare 1 2`\n"),
    ):
        assert re.search(rest, text) or not many
    assert is_harmless(text)
    assert {"table", "td"} <= rendered(text).tags


def test_texts_of_others_are_no_markup() -> None:
    found = hostile()
    night = replace(found.night, name="2")  # numbers are the store's own
    text = told(replace(found, night=night, against=night))
    code = rendered(text)
    assert is_harmless(text)
    assert not {"img", "script", "a", "blockquote", "pre"} & code.tags
    for mark in ("onerror", "<", "`", "&amp;", "{{", "\x00", "\x1b"):
        assert mark not in code.outside
    assert code.inside.count("onerror") > 3
    bad = replace(next(iter(found.night.results.values())), headline="a|b `` @everyone #1 `", verdict=Verdict.FAIL)
    bad = replace(bad, key=replace(bad.key, target="x|`y`|z", test="``"))
    code = rendered(told(report_on([replace(found.night, name="2", results=by_key([bad]))])))
    assert "a|b `` @everyone #1 `" in code.inside and "@" not in code.outside and "x|`y`|z" in code.inside
    assert len(re.findall("`", code.outside)) == 0


def test_what_could_not_be_told_is_no_pass() -> None:
    night = report(4, 1).night
    assert told(ReportContents(night, None, [])).startswith("### Passed: 4 passed\n")
    assert told(ReportContents(replace(night, complete=False), None, [])).startswith(
        "### Not all could be tested: 4 passed\n"
    )
    infra = by_key(replace(one, verdict=Verdict.INFRA) for one in night.results.values())
    assert told(ReportContents(replace(night, results=infra), None, [])).startswith(
        "### Not all could be tested: 4 infra\n"
    )
    empty = told(ReportContents(Night("1", "", False, 0.0, {}, True, {}), None, []))
    alone = "There is no nightly to compare with."
    assert empty == f"### Not all could be tested: no test was run\n\nNightly 1, 0 results. {alone}\n\n"
    assert told(report_on([night, replace(night, name="2")])).endswith("\nNothing changed since nightly 1.\n")


def test_a_failure_has_its_cause_and_what_runs_it_again() -> None:
    found = report(1, 2, failing=1.0)
    [one] = found.night.results.values()
    text = told(found)
    row = f"- **`FAIL Mismatch`** `{one.key.test} [{one.key.target}]`  \n  `{one.headline}`  \n"
    assert f"#### New failures\n\n{row}  again: `pytest --hil-target=" in text and HOSTILE not in text


def test_a_comment_sorts_failures_and_has_a_table_of_the_figures_that_moved() -> None:
    """What is new comes first; the rest is told with what the store knows of it."""
    week = eventful()
    text = told(report_on(week))
    titles = re.findall(r"^#### (.*)$", text, re.MULTILINE)
    assert [title.partition(":")[0] for title in titles] == [
        "New failures", "Already broken in the nightly that is compared with", "Flaky", "Infrastructure",
        "Figures that moved", "What else changed",
    ]  # fmt: skip
    new, broken, flaky, infra, moved, _ = re.split(r"^#### .*$", text, flags=re.MULTILINE)[1:]
    assert "test_keyword_spotting.py::test_frames [m4-qemu, m55-qemu]" in new and new.count("- **") == 1
    assert "test_int8_io [m0-qemu, m4-qemu, m55-qemu, native]" in broken and "again:" not in broken
    assert "`failed in 1 of 3 nightlies of the same code`" in flaky and "LaunchError" in infra
    assert f"| `4096 → 4864` | +768, +18.75 % | `{LARGER} +768; at its peak {AT_PEAK}` |" in moved
    assert "test_float_io [m0-qemu, m4-qemu, m55-qemu, native]` and 3 more tests |" in moved
    tuesday = told(report_on(week[:5]))
    assert "| **slower** (more `instructions`) | `instructions` | `m4-qemu: 10" in tuesday
    assert "| +15000, +1.46 %; +5000, +1.43 % |" in tuesday
    for target, by, most in (("m4-qemu", 15000, 11250), ("m55-qemu", 5000, 3750)):
        assert f"`{target}: {SLOWER} +{by}; most by {SLOWER_LAYER}: +{most}`" in tuesday
    assert is_harmless(text) and "table" in rendered(text).tags
    results = week[-2].results
    one = next(iter(results.values()))
    retried = replace(week[-2], results={**results, one.key: replace(one, earlier=("FAIL Mismatch",))})
    assert f"- **`pass`** `{one.key.test} [{one.key.target}]` `after FAIL Mismatch`" in told(
        report_on([*week[:-2], retried])
    )


@given(st.text(alphabet="`|@<>[]()#/\\ \nab*-:&", max_size=40))
def test_harmless_markdown_shows_nothing_but_text_and_code(text: str) -> None:
    if is_harmless(text):
        code = rendered(text)
        assert not code.tags & {"a", "img", "script", "b"} and not set("@<>[]`\\&#/") & set(code.outside)
