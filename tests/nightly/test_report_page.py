"""The report of a real nightly in a browser: that of `make nightly`, or of a small one made here."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from browser import CHROMIUM, browser
from command_line import OK, spawn
from paths import REPOSITORY

pytestmark = pytest.mark.skipif(not CHROMIUM, reason="no Chromium: ci/install.sh system installs it")
WRITTEN = REPOSITORY / "build" / "nightly"
TESTS = REPOSITORY / "tests" / "targets" / "test_operators.py"
TRENDS = 'id="trend-moved"'
CELLS = "document.querySelectorAll('#matrix td[data-cell]').length"
UNCHECK = """(() => { const box = document.getElementById('trend-moved');
    box.checked = false; box.dispatchEvent(new Event('input')) })()"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if (WRITTEN / "index.html").is_file() and TRENDS in (WRITTEN / "index.html").read_text():
        return WRITTEN  # the first nightly of a folder has no trends
    made = tmp_path_factory.mktemp("nightly")
    call = ("nightly", TESTS, "-t", "m55-qemu,m4-qemu,m0-qemu", "--pytest=-k", "--pytest=conv_1x1", "--report", "out")
    for _ in range(2):
        assert spawn(*call, "--store", "s.sqlite", cwd=made).status == OK
    return made / "out"


def test_it_is_read_by_keyboard_has_charts_and_asks_for_nothing(folder: Path, tmp_path: Path) -> None:
    results = [one for one in json.loads((folder / "results.json").read_text())["results"] if one["test"] != "(runner)"]
    file = folder / "index.html"
    assert file.stat().st_size <= (3 << 20) * max(1, len(results) / 2000)
    with browser(tmp_path) as page:
        page.open(file)
        cells = page.run(CELLS)
        assert cells >= len(results) > 0
        page.run("document.getElementById('notable').focus()")
        page.press("Tab")
        page.press("ArrowDown")  # from the runners to a file of tests, which is folded if all passed
        if page.run("document.activeElement.parentElement.ariaExpanded") == "false":
            page.press("Enter")
        for _ in results:  # a test without this target has no cell in the column
            page.press("ArrowDown")
            if page.run("document.activeElement.dataset.cell") is not None:
                break
        page.press("Enter")
        assert page.run("document.getElementById('cell').open")
        text = page.run("document.getElementById('cell').innerText")
        assert any(one["test"] in text and one["target"] in text for one in results)
        page.press("Escape")
        page.run(UNCHECK)
        assert page.run("document.querySelectorAll('#charts path').length") > 0
        assert page.run("document.querySelectorAll('#totals table tr').length") > 3
        page.run("new Promise(done => setTimeout(done))")
        assert (set(page.requests), page.problems) == ({file.as_uri()}, [])
    print(f"{len(results)} results, {cells} cells, {file.stat().st_size} bytes")
