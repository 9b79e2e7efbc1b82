"""The docs against the tree: every path that is named exists, every link leads somewhere, the rooms are the layers."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from cortex_m_hil.host.toolchain import PACKAGES
from paths import REPOSITORY
from shown import anchors, blocks, without_code

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
PACKAGE = REPOSITORY / "harness" / "cortex_m_hil"
FOLDERS = "ci|docs|examples|firmware|harness|tests"


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


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(REPOSITORY)))
def test_modules_that_are_named_exist(page: Path) -> None:
    """By their room: `checks/lint.py` is in the package."""
    if page.name == "CHANGELOG.md":
        return
    to_come = set(re.findall(r"^`harness/cortex_m_hil/(\S+)`, a new file:$", page.read_text(), re.MULTILINE))
    rooms = "|".join(path.name for path in PACKAGE.iterdir() if path.is_dir())
    named = set(re.findall(rf"`((?:{rooms})/[\w/]+\.py)`", page.read_text()))
    assert {path for path in named if not (PACKAGE / path).exists()} - to_come == set()


def cells(row: str) -> int:
    return len(re.split(r"(?<!\\)\|", row.strip().strip("|")))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(REPOSITORY)))
def test_rows_of_a_table_have_the_headings_cells(page: Path) -> None:
    """What is too many is not shown, and nobody misses it."""
    tables = re.findall(r"(?:^\|.*\n)+", without_code(page.read_text()) + "\n", re.MULTILINE)
    rows = [(row, table.split("\n")[0]) for table in tables for row in table.splitlines()]
    assert [row for row, heading in rows if cells(row) != cells(heading)] == []


DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def texts(path: Path) -> Iterator[str]:
    """All that users may read of a module: its strings, and the docstrings of commands, which are their help."""
    tree = ast.parse(path.read_text())
    own = path.parent.name == "commands"
    docstrings = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, DOCUMENTED) and node.body and isinstance(node.body[0], ast.Expr)
        if not (own and isinstance(node, ast.FunctionDef))
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docstrings:
            yield node.value


@pytest.mark.parametrize("path", sorted(PACKAGE.rglob("*.py")), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_messages_name_pages_that_users_of_a_wheel_have(path: Path) -> None:
    """As `hil docs PAGE` or `hil docs PAGE#section`: a wheel has no folder `docs`."""
    for text in texts(path):
        assert not re.search(r"\bdocs/|\w\.md\b", text), text
        for page, section in re.findall(r"hil docs ([\w-]+)(?:#([\w-]+))?", text):
            named = REPOSITORY / "docs" / f"{page}.md"
            assert named.exists(), text
            assert not section or section in anchors(named), text


def test_examples_of_tests_are_whole() -> None:
    """Each block may be copied as it is: nothing that it uses comes from another, nothing is a placeholder."""
    blocks = re.findall(r"^```python\n(.*?)^```", (REPOSITORY / "docs" / "writing-tests.md").read_text(), re.M | re.S)
    assert len(blocks) >= 4
    for block in blocks:
        check = [sys.executable, "-m", "ruff", "check", "--isolated", "--select=F", "-"]
        done = subprocess.run(check, input=block, capture_output=True, text=True, check=False)
        assert done.returncode == 0 and "..." not in block, done.stdout + block


@pytest.mark.slow
def test_examples_of_tests_pass(tmp_path: Path) -> None:
    """Each block of Python is a file of tests, beside the files that the page names; on a target that QEMU has."""
    for number, block in enumerate(blocks((REPOSITORY / "docs" / "writing-tests.md").read_text())):
        if (edit := block.edit()) is not None:
            edit.apply(tmp_path)
        elif block.language == "python" and "def test_" in block.text:
            (tmp_path / f"test_{number}.py").write_text(block.text)
    on_executorch = "test_any_batch"  # as its comment says
    command = [
        sys.executable,
        "-m",
        "pytest",
        "--target=m4-qemu",
        "-k",
        f"not {on_executorch}",
        "-p",
        "no:cacheprovider",
    ]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0 and " 1 deselected" in done.stdout and "pytest.ini" in done.stdout, done.stdout


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


def test_the_readme_names_the_versions_that_were_tried() -> None:
    page = (REPOSITORY / "docs" / "runtimes.md").read_text().partition("<!-- table: versions -->")[2]
    rows = [row.split("|")[1:4] for row in page.partition("<!-- end -->")[0].splitlines()[3:]]
    executorchs, torches, pythons = (
        sorted({tuple(map(int, one.strip().split("."))) for one in column}) for column in zip(*rows, strict=True)
    )

    def text(version: tuple[int, ...]) -> str:
        return ".".join(map(str, version))

    python, torch = (" to ".join(text(one[:2]) for one in (found[0], found[-1])) for found in (pythons, torches))
    told = f"Python {python}, executorch {' or '.join(map(text, executorchs))}, torch {torch} "
    assert told in (REPOSITORY / "README.md").read_text()
