"""Pictures of profiles: well-formed, of all that was profiled; and a page that is used by mouse and by keyboard."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest

from browser import CHROMIUM, Page, browser
from cortex_m_hil.diagnose.profile_pictures.graph_table import Graph
from cortex_m_hil.diagnose.profile_pictures.module_tree import opened_to, tree
from cortex_m_hil.diagnose.profile_pictures.page import html
from cortex_m_hil.diagnose.profile_pictures.page_answers import answers
from cortex_m_hil.diagnose.profile_pictures.picture_data import Comparison, PictureData, share_text
from cortex_m_hil.diagnose.profile_pictures.svg_pictures import Picture, drawn
from cortex_m_hil.targets.target import Clock
from generated_nights import HOSTILE
from pictured_profiles import SEEDS, pictured, seed
from watched_pages import watched

SVG = "{http://www.w3.org/2000/svg}"
MODULES = (
    "stem", "stages.0.conv", "stages.0.conv", "stages.0.skip", "stages.1.conv", "stages.1", "", "head", "tail.0",
    "tail.1", "tail.2",
)  # fmt: skip
Show = Callable[..., Page]


def titles(picture: str) -> list[str]:
    return [one.text or "" for one in ElementTree.fromstring(picture).iter(f"{SVG}title")]


@pytest.mark.parametrize("name", [path.stem for path in SEEDS])
def test_each_picture_is_svg_with_each_instruction(name: str) -> None:
    one = pictured(seed(name, MODULES))
    count = len(one.rows)
    shown = {picture: titles(drawn(picture, one)) for picture in Picture}
    assert [
        f"{one.program.named(row.index)}: " in title for row, title in zip(one.rows, shown[Picture.COST], strict=True)
    ]
    assert len(shown[Picture.COST]) == len(shown[Picture.GRAPH]) == count
    assert sum("SQNR" in title for title in shown[Picture.ERROR]) == count
    assert len(shown[Picture.FLASH]) == len(one.flash) + len(one.flash_groups)


@pytest.mark.parametrize("name", [path.stem for path in SEEDS])
def test_flash_is_the_program_and_its_kernels_and_the_peak_is_in_banks(name: str) -> None:
    one = pictured(seed(name))
    groups = one.flash_groups
    operators = {row.operator for row in one.rows}
    assert groups["weights"] + groups["program"] == one.program.file.size
    assert groups["kernels"] == 100 * len(operators) + 50
    assert sum(one.weights.values()) == groups["weights"]
    assert sum(used for _, used, _ in one.peak_of_banks) == one.peak.nbytes


def test_the_graph_has_each_instruction_once_and_joins_what_reads_to_what_wrote() -> None:
    one = pictured(seed("images", MODULES))
    lines = Graph(one).lines
    leaves = [line.node.instructions[0] for line in lines if not line.node.is_module]
    assert sorted(leaves) == [-1, *range(len(one.rows)), len(one.rows)]
    assert {end for edge in one.edges for end in edge} <= set(leaves)
    assert all(begin < end for begin, end in one.edges) and {end for _, end in one.edges} >= set(leaves) - {-1}
    for line in lines:
        if line.node.is_module:
            inside = [other for other in lines if other.node.parent >= 0 and lines[other.node.parent] is line]
            assert line.ticks == sum(other.ticks for other in inside)


def test_modules_are_nested_as_the_user_wrote_them() -> None:
    nodes = tree(["a", "b.0.x", "b.0.x", "b.1.y", "b.1", "", "c.d.e", "c.d.f"], 1, 1)
    assert [(one.name, one.path, one.depth, one.instructions) for one in nodes] == [
        ("input 0", "", 0, (-1,)), ("a", "a", 0, (0,)),
        ("b", "b", 0, (1, 2, 3, 4)), ("0.x", "b.0.x", 1, (1, 2)), ("", "b.0.x", 2, (1,)), ("", "b.0.x", 2, (2,)),
        ("1", "b.1", 1, (3, 4)), ("y", "b.1.y", 2, (3,)), ("", "b.1", 2, (4,)), ("", "", 0, (5,)),
        ("c.d", "c.d", 0, (6, 7)), ("e", "c.d.e", 1, (6,)), ("f", "c.d.f", 1, (7,)), ("output 0", "", 0, (8,)),
    ]  # fmt: skip
    assert [one.parent for one in nodes] == [-1, -1, -1, 2, 3, 3, 2, 6, 6, -1, -1, 10, 10, -1]
    assert [opened_to(nodes, most) for most in (5, 10, 14)] == [0, 1, 2]


def test_the_first_questions_are_answered() -> None:
    one = pictured(seed("images", MODULES), wrong=4)
    graph = Graph(one)
    costliest, peak, error, flash = answers(graph)
    ticks: dict[str, int] = {}
    for row in one.rows:
        ticks[row.place] = ticks.get(row.place, 0) + row.ticks
    assert costliest.question == "Which layer takes the most CPU instructions?"
    assert costliest.headline.startswith(f"{max(ticks, key=lambda place: ticks[place])}: ")
    module, line = costliest.details[-1]
    assert line is not None and graph.lines[line].node.is_module
    assert module.startswith("module with most: ") and module.endswith(f" in {graph.lines[line].node.path}")
    most = one.program.lifetimes.peak()
    assert peak.headline.startswith(f"{most.nbytes:,} of 32,768 bytes in dtcm".replace(",", "\u202f"))
    assert peak.details[0][1] == graph.line_of[most.instruction]
    assert "12 quanta" in error.headline and error.details[0][1] == graph.line_of[4]
    assert one.localization is not None
    rows = [
        replace(row, kernel_error=row.departure if row.instruction in (4, 6) else None) for row in one.localization.rows
    ]
    several = Graph(replace(one, localization=replace(one.localization, rows=tuple(rows))))
    more, at = answers(several)[2].details[-1]
    assert more.startswith("1 more operator at fault, the next: ") and at == several.line_of[6]
    assert flash.headline == f"{sum(one.flash_groups.values()):,} bytes".replace(",", "\u202f")
    assert answers(Graph(replace(one, localization=None)))[2].headline == "not known: there are no references"
    equal = answers(Graph(pictured(seed("images"))))[2]
    assert equal.headline == "not in a kernel: all equal ExecuTorch's Python operators"
    least = min(error.sqnr_db or 0 for error in one.errors.values())
    assert any(text.startswith(f"least SQNR {least:.1f} dB: ") for text, _ in equal.details)
    board = answers(Graph(pictured(seed("linear"), clock=Clock.CORE)))[0]
    assert board.question == "Which layer takes the most cycles of the core?" and "time" not in board.source


def test_an_error_that_shrinks_is_explained_at_its_operator() -> None:
    """Row 4 departs, and of all behind it none; the SQNR of what row 5 writes is not known, and better behind it."""
    one = pictured(seed("images", MODULES), wrong=4)
    [pair, *_] = (edge for edge in one.edges if edge[0] == 4)
    assert one.localization is not None
    rows = [
        replace(row, departure=row.departure if row.instruction == 4 else None,
                sqnr_db=None if row.instruction == pair[1] else 20.0 if row.instruction <= 4 else 55.0, inputs_db=None)
        for row in one.localization.rows
    ]  # fmt: skip
    graph = Graph(replace(one, localization=replace(one.localization, rows=tuple(rows))))
    facts = [{label: text for label, text, _ in line["facts"]} for line in graph.fields()]
    after = facts[graph.line_of[pair[1]]]
    assert after["before it"].startswith("12 quanta: fewer behind it, as ") and "SQNR against float" not in after
    behind = next(end for begin, end in graph.one.edges if begin == pair[1])
    told = facts[graph.line_of[behind]]
    assert told["SQNR against float"].startswith("55.0 dB; before it 20.0 dB: higher behind it, as ")
    assert "before it" not in told


def test_a_share_is_written_in_one_way_and_none_reads_as_nothing() -> None:
    assert [share_text(share) for share in (0, 0.0004, 0.1387, 1)] == ["0.0 %", "< 0.1 %", "13.9 %", "100.0 %"]


# --- in a browser --------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    if not CHROMIUM:
        pytest.skip("no Chromium: ci/install.sh system installs it")
    with browser(tmp_path_factory.mktemp("profile")) as page:
        yield page


@pytest.fixture
def show(chromium: Page, tmp_path: Path) -> Iterator[Show]:
    """Opens a page. Whatever is done with it, only its file is asked for, and the console has no complaint."""
    file = tmp_path / "profile.html"

    def shown(*profiles: PictureData) -> Page:
        file.write_text(html(profiles))
        chromium.open(file)
        return chromium

    with watched(chromium, file):
        yield shown


FACTS = "document.querySelector('.view:not([hidden]) .facts').innerText"
FOCUSED = "document.activeElement.querySelector('.name')?.innerText"
CHOSEN = "document.querySelector('[aria-selected=true] .operator').innerText"
SHOWN_LINES = "[...document.querySelectorAll('.graph tbody tr')].filter(row => row.offsetHeight > 0).length"
DOTS = "document.querySelectorAll('.edges rect:not(.back)').length"
BESIDE_ROWS = (
    "[...document.querySelectorAll('.edges rect')].every(dot => [...document.querySelectorAll('.graph tbody tr')]"
    ".some(row => Math.abs(row.offsetTop + row.offsetHeight / 2 - dot.getAttribute('y') - 6) < 1))"
)


def test_the_page_is_read_by_mouse_and_by_keyboard(show: Show) -> None:
    one = pictured(seed("images", MODULES), wrong=4)
    page = show(one)
    lines = Graph(one).lines
    assert page.run(SHOWN_LINES) == len(lines) and page.run(DOTS) == sum(not line.node.is_module for line in lines)
    assert page.run("document.querySelector('.facts').offsetHeight") == 0
    page.run("document.querySelectorAll('.graph tbody tr')[1].click()")  # a node
    assert all(text in page.run(FACTS) for text in ("stem", one.rows[0].operator, "CPU instructions", "SQNR"))
    page.run("document.querySelectorAll('.answers button')[0].focus()")
    page.press("Enter")  # to the costliest layer's costliest operator
    place = answers(Graph(one))[0].headline.partition(":")[0]
    most = max((row for row in one.rows if row.place == place), key=lambda row: row.ticks)
    assert page.run(CHOSEN) and f"{most.index}: {most.operator}" in page.run(FACTS)
    page.run("document.querySelectorAll('.graph tbody tr')[2].focus()")
    assert page.run(FOCUSED) == "stages"
    page.press("ArrowLeft")  # closes it: its edges go to the module now
    inside = sum(line.node.path.startswith("stages.") for line in lines)
    assert (
        page.run(SHOWN_LINES) == len(lines) - inside and page.run("document.querySelectorAll('.edges path').length") > 0
    )
    page.press("ArrowRight")
    page.press("ArrowDown")
    assert page.run(SHOWN_LINES) == len(lines) and page.run(FOCUSED) == lines[3].name
    page.run("document.querySelector('.along').focus()")
    page.press("End")
    page.press("ArrowRight")  # there is no further one
    last = one.rows[-1]
    assert f"{last.index}: {last.operator}" in page.run(FACTS)
    assert page.run("document.querySelector('.along').ariaValueNow") == str(last.index)
    page.run("document.querySelector('.modes input[value=\"2\"]').click()")
    assert page.run("document.querySelectorAll('.edges .fault').length") == 1


def compared(one: PictureData) -> PictureData:
    """The profile with another: row 4 had a quarter of its ticks, row 2 twice as many, and an operator has gone."""
    rows = list(one.rows)
    for index, by in ((4, 0.25), (2, 2)):
        ticks = int(rows[index].ticks * by)
        rows[index] = replace(rows[index], ticks=ticks, low=ticks, high=ticks, alive={})
    rows.append(replace(rows[0], index=len(rows), module="left", operator="cortex_m::gone.out", ticks=5))
    total = sum(row.ticks for row in rows) + one.profile.outside
    before = replace(one.profile, rows=tuple(rows), ticks=total, low=total, high=total)
    return replace(one, compared=Comparison("HEAD~1", one.profile.against(before)))


def test_what_moved_is_told_by_operator_and_leads_to_the_graph(show: Show) -> None:
    one = compared(pictured(seed("images", MODULES)))
    page = show(one)
    table = page.run("[...document.querySelectorAll('.differences tbody tr')].map(row => row.innerText)")
    assert len(table) == 3 and "gone" in table[2]
    moved = sorted((2, 4), key=lambda k: -one.rows[k].ticks * (3 if k == 4 else 4))
    for text, index in zip(table, moved, strict=False):
        assert one.rows[index].place in text and ("+300" if index == 4 else "-50 %") in text
        assert f"dtcm +{one.rows[index].planned_bytes:,}".replace(",", "\u202f") in text
    card = page.run("document.querySelector('.answers article').innerText")
    assert card.startswith("What differs from HEAD~1?") and "CPU instructions" in card
    page.run("document.querySelector('.differences [data-line]').click()")
    assert f"{moved[0]}: {one.rows[moved[0]].operator}" in page.run(FACTS)
    assert page.run("document.querySelectorAll('.differences rect.worse').length") == 1


@pytest.mark.slow
def test_a_long_program_is_small_and_drawn_soon(show: Show) -> None:
    modules = [f"stages.{number // 20}.{number // 4 % 5}.conv{number % 4}" for number in range(500)]
    one = pictured(seed("images", modules, times=46))
    assert len(one.rows) == 506
    page = show(one)
    size = len(html([one]).encode())
    assert size < 3_000_000
    took = page.run("performance.getEntriesByType('navigation')[0].domComplete")
    assert took < 5000, f"{took} ms"
    assert 10 < page.run(SHOWN_LINES) <= 48
    page.run("document.querySelector('.all[data-open=true]').click()")
    assert page.run(SHOWN_LINES) > 506 and page.run(DOTS) == 508


@pytest.mark.slow
def test_several_targets_are_tabs_and_the_address_says_which_is_shown(show: Show) -> None:
    board = pictured(seed("linear"), clock=Clock.CORE, target="board")
    page = show(pictured(seed("linear")), board)
    first, second = page.run("[...document.querySelectorAll('.tabs a')].map(one => one.innerText)")
    assert "CPU instructions" in first and "cycles of the core" in second and "CPU" not in second
    moved = "new Promise(done => { addEventListener('hashchange', done, {once: true}); %s })"
    page.run(moved % "document.querySelectorAll('.tabs a')[1].click()")
    assert page.run("location.hash").endswith("-board-builtin")
    page.run("document.querySelector('.view:not([hidden]) tbody tr:nth-child(2)').click()")
    assert "cycles of the core" in page.run(FACTS)
    page.run(moved % "history.back()")
    assert page.run("document.querySelector('.tabs [aria-current]').innerText") == first


@pytest.mark.slow
def test_texts_of_others_run_nothing_and_are_shown_as_they_are(show: Show) -> None:
    program = seed("images", [f"a.{HOSTILE}"])
    page = show(pictured(replace(program, name=HOSTILE)))
    assert page.run("document.title").startswith("profile of </script>")
    page.run("document.querySelector('[data-line]').click()")
    assert "<img src=x" in page.run(FACTS) and page.run("document.querySelectorAll('img').length") == 0
    assert page.run("document.querySelectorAll('script').length") == 2


@pytest.mark.slow
def test_it_is_read_in_the_dark_on_a_telephone_and_on_paper(show: Show, chromium: Page) -> None:
    background = "getComputedStyle(document.body).backgroundColor"
    chromium.emulate(prefers_color_scheme="light")
    page = show(pictured(seed("images", MODULES)))
    light = page.run(background)
    page.emulate(400, 800, prefers_color_scheme="dark")
    assert page.run(background) != light == "rgb(255, 255, 255)"
    assert page.run("document.documentElement.scrollWidth") <= 400
    page.emulate(medium="print", prefers_color_scheme="dark")
    assert page.run(background) == light and page.pdf().startswith(b"%PDF")
    assert page.run("[...document.querySelectorAll('.controls, .facts')].every(one => one.offsetHeight == 0)")
    page.emulate(760, 1000, medium="print")
    assert page.run(f"{DOTS} > 5 && {BESIDE_ROWS}") and page.run("document.querySelector('.m3').offsetWidth") > 0
    page.emulate(1200, 900, prefers_color_scheme="light")
