"""The site of the docs: built strictly, with a search that works offline, and nothing fetched from elsewhere."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any, Final

import pytest

from browser import CHROMIUM, browser
from paths import REPOSITORY

DEADLINE: Final = 600.0  # seconds
LOADED: Final = {"link": "href", "script": "src", "img": "src", "iframe": "src", "source": "src", "form": "action"}
pytestmark = pytest.mark.skipif(sys.version_info < (3, 11), reason="the extra `docs` is for Python 3.11 and later")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """As `make docs` builds it: a link to a page or a heading that is not there is an error."""
    made = re.search(r"^\t\$\(BIN\)/sphinx-build (.+) build/site$", (REPOSITORY / "Makefile").read_text(), re.MULTILINE)
    assert made
    folder = tmp_path_factory.mktemp("site")
    options = made[1].replace("build/doctrees", str(folder / "doctrees")).split()
    command = [sys.executable, "-m", "sphinx", *options, str(folder / "site")]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, timeout=DEADLINE, check=False)
    assert (done.returncode, done.stdout + done.stderr) == (0, "")
    return folder / "site"


class Loaded(HTMLParser):
    """Addresses of what a browser loads with a page; what a reader may click on is not of them."""

    def __init__(self) -> None:
        super().__init__()
        self.addresses: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in LOADED:
            self.addresses += [value for name, value in attrs if name == LOADED[tag] and value]


def loaded(page: Path) -> list[str]:
    parser = Loaded()
    parser.feed(page.read_text())
    return parser.addresses


def of_styles(folder: Path) -> Iterator[str]:
    for path in folder.rglob("*.css"):
        yield from re.findall(r"""(?:@import\s+|url\()["']?([^"')\s]+)""", path.read_text())


@pytest.mark.slow
def test_every_page_is_there_and_loads_nothing_from_elsewhere(site: Path) -> None:
    for page in (REPOSITORY / "docs").glob("*.md"):
        assert (site / "docs" / f"{page.stem}.html").exists()
    assert "url=docs/index.html" in (site / "index.html").read_text()
    addresses = {address for page in site.rglob("*.html") for address in loaded(page)} | set(of_styles(site))
    assert any(".css" in address for address in addresses)
    assert [address for address in addresses if re.match(r"(?!data:)[a-z]+:|//", address)] == []


@pytest.mark.slow
def test_the_index_of_the_search_finds_words(site: Path) -> None:
    text = (site / "searchindex.js").read_text()
    index: dict[str, Any] = json.loads(text[text.index("{") : text.rindex("}") + 1])
    for word, page in (("labgrid", "boards"), ("quanta", "writing-tests"), ("vboard", "boards")):
        found = [index[part].get(word, []) for part in ("terms", "titleterms")]  # one page is a number, several a list
        numbers = [number for one in found for number in (one if isinstance(one, list) else [one])]
        assert f"docs/{page}" in [index["docnames"][number] for number in numbers]


@pytest.mark.slow
@pytest.mark.skipif(not CHROMIUM, reason="no Chromium")
def test_a_word_in_the_search_box_leads_to_a_page(site: Path, tmp_path: Path) -> None:
    """From files, as offline as can be."""
    with browser(tmp_path / "profile") as page:
        page.open(site / "docs" / "index.html")
        page.run("document.querySelector('input[name=q]').focus()")
        page.type("labgrid")
        page.press_and_load("Enter")
        found = page.run("""new Promise(done => {
            const hits = () => [...document.querySelectorAll('#search-results ul.search li > a')].map(hit => hit.href);
            const look = () => hits().length && done(hits());
            new MutationObserver(look).observe(document.body, {childList: true, subtree: true});
            look();
        })""")
        assert any("/docs/boards.html" in hit for hit in found), found
        assert [address for address in page.requests if not address.startswith(("file:", "data:"))] == []
