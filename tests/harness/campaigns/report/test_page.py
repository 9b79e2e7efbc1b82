"""index.html in a browser: it is opened from disk, asks for nothing else, and is used by keyboard."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from browser import CHROMIUM, Page, browser
from cortex_m_hil.campaigns.report.nightly_results import RUNNER, Figure, Result, by_key
from cortex_m_hil.campaigns.report.report_contents import ReportContents
from cortex_m_hil.campaigns.report.report_page import html
from cortex_m_hil.campaigns.report.trend_encoding import decoded, trends
from generated_nights import AT_PEAK, HOSTILE, LARGER, SLOWER, SLOWER_LAYER, eventful, hostile, report, report_on
from watched_pages import watched

pytestmark = pytest.mark.skipif(not CHROMIUM, reason="no Chromium: ci/install.sh system installs it")
Show = Callable[[ReportContents], Page]
OPEN = "document.getElementById('cell').open"
IN_CELL = "document.getElementById('cell').innerText"
FOCUSED = "Number(document.activeElement.dataset.cell)"
TAB_STOPS = "document.querySelectorAll('#matrix td[tabindex=\"0\"]').length"
SHOWN_ROWS = "[...document.querySelectorAll('#matrix tr.test')].filter(row => row.offsetHeight > 0).length"
SHOWN_FILES = SHOWN_ROWS.replace("tr.test", "tr.file")
TRENDS = "[...document.querySelectorAll('#charts .trend > summary')].map(one => one.innerText.replaceAll('\u202f', ''))"
TREND_GROUPS = "[...document.querySelectorAll('#charts h3')].map(one => one.innerText)"
FRIDAY = eventful()
BACKGROUND = "getComputedStyle(document.body).backgroundColor"


@pytest.fixture(scope="module")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    with browser(tmp_path_factory.mktemp("profile")) as page:
        yield page


@pytest.fixture
def show(chromium: Page, tmp_path: Path) -> Iterator[Show]:
    """Opens a report. Whatever is done with it, only its file is asked for, and the console has no complaint."""
    file = tmp_path / "index.html"

    def shown(found: ReportContents) -> Page:
        file.write_text(html(found))
        chromium.open(file)
        return chromium

    with watched(chromium, file):
        yield shown


def focus(page: Page, one: Result, found: ReportContents) -> None:
    number = list(found.night.results).index(one.key)
    put(page, "document.getElementById('text')", "::")  # opens all files
    page.run(f"document.querySelector('#matrix [data-cell=\"{number}\"]').focus()")


def put(page: Page, field: str, value: str) -> None:
    page.run(f"(() => {{ {field}.value = '{value}'; {field}.dispatchEvent(new Event('input')) }})()")


def test_a_cell_is_found_and_opened_by_keyboard(show: Show) -> None:
    found = report(40, 4, failing=0.3)
    page = show(found)
    assert page.run("document.querySelectorAll('#matrix td[data-cell]').length") == 40
    page.run("document.getElementById('notable').focus()")
    assert (page.run(SHOWN_ROWS), page.run(SHOWN_FILES)) == (0, 10)  # a test in each file
    page.press("Tab")
    assert page.run("document.activeElement.innerText") in ("1 passed", "1 failed", "1 failed Δ1", "1 passed Δ1")
    page.press("Enter")  # opens the first file
    assert (page.run(SHOWN_ROWS), page.run("document.querySelector('tr.file').ariaExpanded")) == (1, "true")
    page.press("ArrowDown")
    assert (page.run(FOCUSED), page.run(TAB_STOPS)) == (0, 1)
    page.press("ArrowDown")
    page.press("Enter")  # the second
    page.press("ArrowDown")
    page.press("ArrowRight")
    assert (page.run(FOCUSED), page.run(TAB_STOPS)) == (5, 1)  # of four targets a row
    assert page.run("getComputedStyle(document.activeElement).outlineStyle") == "solid"
    page.press("Enter")
    one = list(found.night.results.values())[5]
    assert page.run(OPEN) and all(text in page.run(IN_CELL) for text in (one.key.test, one.key.target, one.engine))
    page.press("Escape")
    assert (page.run(OPEN), page.run(FOCUSED)) == (False, 5)


def test_an_opened_cell_has_all_that_is_known(show: Show) -> None:
    found = report(8, 3, failing=1.0)
    results = [
        replace(one, localized="instruction 3 departs", earlier=("INFRA LinkError",), bundle="it.hil.zip")
        for one in found.night.results.values()
    ]
    found = replace(found, night=replace(found.night, results=by_key(results)), bundles=frozenset({"it.hil.zip"}))
    page = show(found)
    one = results[0]
    focus(page, one, found)
    page.press("Enter")
    text = page.run(IN_CELL)
    wanted = (one.error, one.headline, one.log[-50:], "instruction 3 departs", "INFRA LinkError", found.command(one))
    headings = ("Quanta from the dialect", "instructions by operator", "pte_bytes by section")
    assert [each for each in (*wanted, *one.parts["instructions"], "sqnr_db", *headings) if each not in text] == []
    assert page.run("document.querySelector('dialog a').getAttribute('href')") == "bundles/it.hil.zip"
    bars = page.run("document.querySelectorAll('dialog .bar rect').length")
    assert bars == sum(map(len, one.parts.values()))


def test_the_head_counts_tests_and_no_runners(show: Show) -> None:
    found = report(8, 1)
    one = next(iter(found.night.results.values()))
    runner = replace(one, key=replace(one.key, test=RUNNER))
    page = show(replace(found, night=replace(found.night, results=by_key([*found.night.results.values(), runner]))))
    assert "8 results" in page.run("document.querySelector('header').innerText")


def test_trends_are_drawn_as_they_went(show: Show) -> None:
    found = report(12, 30, moving=0.05)
    page = show(found)
    assert page.run("document.querySelectorAll('#charts svg.spark path').length") > 0
    key = next(iter(found.night.results))
    figure, runs = next(iter(trends(key, [*found.history, found.night]).items()))
    page.run("document.getElementById('trend-moved').checked = false")
    put(page, "document.getElementById('trend-text')", key.test)
    put(page, "document.getElementById('trend-target')", key.target)
    put(page, "document.getElementById('trend-figure')", figure)
    page.run("document.querySelector('#charts summary').focus()")
    page.press("Enter")
    page.run("new Promise(done => setTimeout(done, 50))")  # the event of what opens comes later
    small, large = page.run("[...document.querySelectorAll('#charts path')].map(path => path.getAttribute('d'))")
    assert small == large and large.count("V") == len(decoded(runs)) - 1  # a step to each night after the first
    assert "M4.0" in large and "H296.0" in large
    height = "document.querySelector('#charts path').getBBox().height"
    assert (page.run(height) > 0) == (len(set(decoded(runs))) > 1)


def test_what_got_slower_since_a_day_is_told_once_with_the_operator(show: Show) -> None:
    page = show(report_on(FRIDAY))
    since, shown = (f"document.getElementById('trend-{name}')" for name in ("since", "shown"))
    option = f"[...{since}.options].find(one => one.text.startsWith('DAY')).value"
    put(page, since, page.run(option.replace("DAY", "Mon")))
    slower, larger, smaller = page.run(TRENDS)
    assert page.run(TREND_GROUPS) == [
        "For the worse: 46 results slower in 1 row, 16 results larger in 1 row",
        "For the better: 15 results smaller in 1 row",
    ]
    wanted = [
        "slower (more instructions)",
        f"m4-qemu: {SLOWER} +15000; most by {SLOWER_LAYER} +11250",
        f"m55-qemu: {SLOWER} +5000; most by ",
        "Tue 2026-11-24, nightly 5, c0ffee03",
        "more tests",
    ]
    wanted += ["m4-qemu", "+15000, +1.46 %", "m55-qemu", "+5000, +1.43 %"]
    assert [text for text in wanted if text not in slower] == []
    wanted = ["larger", "planned_bytes", f"{LARGER} +768", "4096 → 4864", "+768, +18.75 %", "and 3 more tests"]
    assert [text for text in wanted if text not in larger] == []
    wanted = ["smaller planned_bytes", "Thu 2026-11-26, nightly 7", "test_softmax.py", "-512"]
    assert [text for text in wanted if text not in smaller] == []
    put(page, since, page.run(option.replace("DAY", "Wed")))
    assert page.run(TRENDS) == [larger, smaller]
    put(page, "document.getElementById('trend-figure')", "planned_bytes")
    answer = "Since Wed 2026-11-25, nightly 6, c0ffee03: 31 of 96 results moved, in 31 of 96 figures"
    assert page.run(f"{shown}.textContent") == answer
    page.run("document.querySelector('.tiles .earlier').click()")
    assert page.run(TRENDS) == [slower]  # what the tile is about
    assert page.run(f"{shown}.textContent").startswith("Since Fri 2026-11-20, nightly 1, c0ffee01: 46 of ")


def test_trends_tell_decibels_and_when_most_of_it_happened_with_the_causes_of_that_sign(show: Show) -> None:
    """A figure that moved a little on one night and much on another was told as if it had crept up."""
    night = report(1, 1).night
    [first] = night.results.values()
    nights = []
    for number, (conv, linear, sqnr) in enumerate(((1000, 500, 43.2), (1400, 500, 43.2), (1401, 480, 40.4)), 1):
        parts = {"instructions": {"conv": conv, "linear": linear}}
        figures: dict[str, tuple[Figure, ...]] = {"instructions": (conv + linear,), "sqnr_db": (sqnr,)}
        results = by_key([replace(first, figures={**figures, "outputs": (f"{number}",)}, parts=parts)])
        at = night.began + 86400 * number
        nights.append(replace(night, name=f"{number}", commit=f"c{number}", began=at, results=results))
    page = show(report_on(nights))
    slower, less = page.run(TRENDS)
    assert "conv +401, linear -20" in slower
    assert slower.index("+400, ") < slower.index(" -19") and "43.2 dB → 40.4 dB" in less
    assert "-2.8 dB" in less and "%" not in less
    text = " ".join(page.run("document.querySelector('.tiles').innerText").split())
    assert "1 less accurate than nightly 2 1 result (1 test × 1 target), in 1 row, up to -2.8 dB" in text
    row = page.run("document.getElementById('changes-less_accurate').innerText")
    assert "43.2 → 40.4" in row and "-2.8 dB" in row


def test_the_page_leads_with_what_one_must_know(show: Show) -> None:
    page = show(report_on(FRIDAY))
    tiles = page.run("[...document.querySelectorAll('.tiles li')].map(one => one.innerText)")
    assert [" ".join(one.split()) for one in tiles[:11]] == [
        "2 new failures 2 results (1 test × 2 targets), 1 cause",
        "4 already broken 4 results (1 test × 4 targets), 1 cause",
        "4 fixed 4 results (1 test × 4 targets), 1 cause",
        "0 less accurate than nightly 7", "0 slower than nightly 7 46 results since Fri 2026-11-20",
        "16 larger than nightly 7 16 results (4 tests × 4 targets), in 1 row, up to +18.75 %",
        "0 more accurate than nightly 7",
        "0 faster than nightly 7", "0 smaller than nightly 7 15 results since Fri 2026-11-20",
        "1 flaky 1 result (1 test × 1 target), 1 cause",
        "6 not run 4 infrastructure, 1 target left out, 1 now skipped",
    ]  # fmt: skip
    lead = "[...document.querySelectorAll('.tiles a')].every(one => document.getElementById(one.hash.slice(1)))"
    assert page.run(lead)
    row = page.run("document.getElementById('moved').innerText")
    assert all(text in row for text in (f"{LARGER} +768", AT_PEAK, "+768, +18.75 %", "3 more tests"))
    page.run("document.querySelector('#moved button.spark').click()")
    assert page.run(OPEN) and "Fri 2026-11-27, nightly 8" in page.run(IN_CELL)
    page.press("Escape")
    page.run("document.querySelector('#moved button.link').click()")
    text = page.run(IN_CELL)
    assert all(one in text for one in ("planned_bytes by bank", "held at each bank's peak", f"{LARGER}: {AT_PEAK}"))
    page.press("Escape")
    page.emulate(390, 800)
    assert page.run("document.documentElement.scrollWidth") == 390
    lines = "(one) => one.offsetHeight / parseFloat(getComputedStyle(one).lineHeight)"
    assert page.run(f"Math.max(...[...document.querySelectorAll('#matrix thead th')].map({lines}))") < 8
    assert page.run(f"Math.max(...[...document.querySelectorAll('#matrix .file td')].map({lines}))") < 4
    page.emulate(1200, 900)


def test_rows_are_filtered_by_text_and_by_what_happened(show: Show) -> None:
    found = report(200, 2, moving=0.002, failing=0.02)
    page = show(found)
    notable = {change.key.test for change in found.changes} | {
        one.key.test for one in found.night.results.values() if one.error
    }
    assert (page.run(SHOWN_ROWS), page.run(SHOWN_FILES)) == (0, 30) and 50 > len(notable) > 0
    page.run("document.getElementById('notable').click()")
    assert page.run(SHOWN_ROWS) == len(notable)
    assert page.run("document.querySelector('#matrix td[tabindex=\"0\"]').offsetHeight") > 0
    page.run("document.getElementById('notable').click()")
    assert page.run(SHOWN_ROWS) == 0
    put(page, "document.getElementById('text')", "family_7.py")
    assert page.run(SHOWN_ROWS) == len({key.test for key in found.night.results if "family_7.py" in key.test})
    put(page, "document.getElementById('text')", "no such test")
    assert page.run(SHOWN_ROWS) == 0


def test_a_change_leads_to_its_cell(show: Show) -> None:
    found = report(40, 2, moving=0.2)
    page = show(found)
    page.run("document.querySelector('#changes button[data-cell]').click()")
    assert page.run(OPEN) and "What changed" in page.run(IN_CELL)


def test_texts_of_others_run_nothing_and_are_shown_as_they_are(show: Show) -> None:
    found = hostile()
    page = show(found)
    title = page.run("document.title")
    for one in found.night.results.values():
        focus(page, one, found)
        page.press("Enter")
        assert page.run(OPEN) and HOSTILE[:40] in page.run(IN_CELL)
        page.press("Escape")
    assert page.run("document.title") == title != "broken"
    assert page.run("document.querySelectorAll('img, iframe').length") == 0
    assert page.run("document.querySelectorAll('script').length") == 2


def test_what_is_injected_all_the_same_is_not_run(chromium: Page, tmp_path: Path) -> None:
    """The page's policy: no inline handler, no script but its own, no request."""
    file = tmp_path / "index.html"
    breaks = "document.title='broken'"
    planted = f'<img src="https://example.invalid/x" onerror="{breaks}"><script>{breaks}</script>'
    file.write_text(html(report(4, 2)).replace("<main>", f"<main>{planted}"))
    chromium.open(file)
    assert chromium.run("document.title") == "nightly 2"
    refused = [text for text in chromium.problems if "Content Security Policy" in text]
    assert len(refused) >= 2


@pytest.mark.slow
def test_it_is_read_in_the_dark_and_on_paper(show: Show, chromium: Page) -> None:
    found = report(40, 3, failing=0.3)
    chromium.emulate(prefers_color_scheme="light")
    page = show(found)
    light = page.run(BACKGROUND)
    page.emulate(prefers_color_scheme="dark")
    assert page.run(BACKGROUND) != light == "rgb(255, 255, 255)"
    page.emulate(medium="print", prefers_color_scheme="dark")
    assert page.run(BACKGROUND) == light
    assert page.run("[...document.querySelectorAll('.controls, nav')].every(one => one.offsetHeight == 0)")
    assert page.run(SHOWN_FILES) == 10 and page.pdf().startswith(b"%PDF")
    page.emulate(prefers_color_scheme="light")


@pytest.mark.slow
def test_a_nightly_without_results_has_a_page(show: Show) -> None:
    night = replace(report(1, 1).night, results={})
    assert show(report_on([night])).run("document.querySelectorAll('#matrix td').length") == 0
