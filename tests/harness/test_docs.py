"""The docs against the tree: every path that is named exists, every link leads somewhere, the rooms are the layers."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from cortex_m_hil.host.toolchain import PACKAGES
from paths import REPOSITORY

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

PAGES = sorted(
    [
        *REPOSITORY.glob("*.md"),
        *(page for folder in ("docs", "examples", "firmware") for page in (REPOSITORY / folder).rglob("*.md")),
    ]
)
FOLDERS = "ci|docs|examples|firmware|harness|tests"


def without_code(text: str) -> str:
    return re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)


def anchors(page: Path) -> set[str]:
    """GitHub's: lower case, spaces to hyphens, all but word characters and hyphens left out."""
    headings = re.findall(r"^#+ (.+)$", without_code(page.read_text()), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(REPOSITORY)))
def test_links_lead_somewhere(page: Path) -> None:
    broken = []
    for target in re.findall(r"\]\(([^)\s]+)\)", without_code(page.read_text())):
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = target.partition("#")
        found = (page.parent / path).resolve() if path else page
        if not found.exists() or (anchor and found.suffix == ".md" and anchor not in anchors(found)):
            broken.append(target)
    assert broken == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(REPOSITORY)))
def test_paths_that_are_named_exist(page: Path) -> None:
    """Those of this repository, by their first folder; CHANGELOG speaks of the past, recipes of files to come."""
    if page.name == "CHANGELOG.md":
        return
    to_come = set(re.findall(r"^`(\S+)`, a new file:$", page.read_text(), re.MULTILINE))
    named = re.findall(rf"(?<![\w./-])((?:{FOLDERS})/[\w./*-]*[\w*/])", page.read_text())
    placeholder = re.compile(r"/[A-Z]+(/|$)")  # firmware/boards/NAME/
    missing = {path for path in named if not placeholder.search(path) and not list(REPOSITORY.glob(path.rstrip("/")))}
    assert missing - to_come == set()


def test_the_rooms_are_the_layers() -> None:
    contract = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"][0]
    layers = [room.strip(" ()") for layer in contract["layers"] for room in layer.split(":")]
    text = (REPOSITORY / "docs" / "architecture.md").read_text()
    table = text[text.index("| room |") :].split("\n\n")[0]
    assert re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE) == layers


def test_every_room_is_tracked() -> None:
    """A folder that .gitignore hides would be missing from everybody else's checkout."""
    package = REPOSITORY / "harness" / "cortex_m_hil"
    files = [str(path) for path in package.rglob("*.py")]
    ignored = subprocess.run(
        ["git", "check-ignore", *files], cwd=REPOSITORY, capture_output=True, text=True, check=False
    )
    assert ignored.stdout == ""


def test_the_readme_names_the_packages_that_hil_doctor_names() -> None:
    """Those that a wheel's user installs; binutils-arm-none-eabi comes with the compiler."""
    text = (REPOSITORY / "README.md").read_text()
    command = re.search(r"sudo apt-get install ((?:.*\\\n)*.*)", text)
    assert command is not None
    wanted = {name for names in PACKAGES.values() for name in names.split()} - {"binutils-arm-none-eabi"}
    assert set(command[1].replace("\\\n", " ").split()) == wanted
