"""`ci/versions.py`: the releases that are tried, and what their rows say. `make versions` itself installs gigabytes."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

import versions
from cortex_m_hil.program.known_answer import known_answer
from cortex_m_hil.targets.cpu import Isa
from paths import REPOSITORY

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

PROJECT = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
PAGE = "text\n<!-- table: versions -->\n| a | b |\n|---|---|\n<!-- end -->\nmore\n"


def test_what_the_package_admits_is_tried() -> None:
    """The lower bounds are among it, and each Python."""
    bounds = {found.name: found.specifier for found in map(Requirement, PROJECT["dependencies"])}
    for name in ("executorch", "torch"):
        tried = {getattr(one, name) for one in versions.COMBINATIONS}
        assert all(bounds[name].contains(one) for one in tried)
        (lowest,) = (one.version for one in bounds[name])
        assert any(f"{one}.".startswith(f"{lowest}.") for one in tried)
    pythons = [f"3.{minor}" for minor in range(30) if f"3.{minor}" in SpecifierSet(PROJECT["requires-python"])]
    assert sorted({one.python for one in versions.COMBINATIONS}) == sorted(pythons)


def test_the_pinned_versions_are_those_of_the_constraints() -> None:
    pins = dict(re.findall(r"^(executorch|torch)==(\S+)$", (REPOSITORY / "constraints.txt").read_text(), re.MULTILINE))
    assert versions.PINNED in versions.COMBINATIONS
    assert any((one.executorch, one.torch) == (pins["executorch"], pins["torch"]) for one in versions.COMBINATIONS)


@pytest.mark.parametrize(
    ("line", "status", "said", "fine"),
    [
        ("====== 12 passed, 3 skipped, 40 deselected in 8.12s ======", 0, "12 pass, 3 skipped", True),
        ("12 passed in 8.12s", 0, "12 pass", True),
        ("12 passed in 8.12s", 2, "12 pass, then exit status 2", False),
        ("== 2 failed, 12 passed, 1 error in 8.12s ==", 1, "3 of 15 fail", False),
        ("== no tests ran in 0.01s ==", 5, "no tests ran in 0.01s", False),
        ("does not end within 3600 s", 1, "does not end within 3600 s", False),
    ],
)
def test_a_cell_says_what_pytest_does(line: str, status: int, said: str, fine: bool) -> None:
    assert versions.counted(line, status) == versions.Result(said, fine)


def test_programs_are_compared_by_their_parts() -> None:
    mve, scalar = (known_answer(isa).program for isa in (Isa.MVE, Isa.SCALAR))
    assert versions.difference(mve, mve) == ""
    assert versions.difference(mve, scalar) != ""
    assert versions.difference(mve, mve + bytes(16)) == "in the file's layout"


def test_rows_are_written_in_the_order_of_the_matrix() -> None:
    first, second = versions.COMBINATIONS[1], versions.COMBINATIONS[2]
    page = PAGE
    for one, said in ((second, "old"), (first, "works"), (second, "new")):
        page = versions.written(page, [one.executorch, one.torch, one.python, said])
    shown = ((first, "works"), (second, "new"))
    rows = [f"| {one.executorch} | {one.torch} | {one.python} | {said} |" for one, said in shown]
    assert "\n".join(rows) + "\n<!-- end -->\nmore\n" in page and "old" not in page


def test_the_table_has_rows_of_the_matrix_alone() -> None:
    block = versions._BLOCK.search(versions.PAGE.read_text())
    assert block is not None
    rows = [tuple(line.strip("| ").split(" | ")[:3]) for line in block[0].splitlines()[3:]]
    assert rows and {*rows} <= {(one.executorch, one.torch, one.python) for one in versions.COMBINATIONS}


def test_a_failed_installation_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the last line of the command that fails."""
    monkeypatch.setattr(versions, "BUILD", tmp_path)
    trial = versions.Trial(versions.PINNED, 1, (), "")
    with pytest.raises(versions.NotInstalled, match=r"^pip: no such release$"):
        trial._succeed("pip", sys.executable, "-c", "raise SystemExit('resolving\\nno such release')")


def test_programs_are_outdated_by_a_newer_source(tmp_path: Path) -> None:
    program, source = tmp_path / "one.pte", tmp_path / "one.py"
    source.touch()
    assert versions.outdated(tmp_path, tmp_path)
    for path, seconds in ((source, 1), (program, 2)):
        path.touch()
        os.utime(path, (seconds, seconds))
    assert not versions.outdated(tmp_path, tmp_path)
    os.utime(source, (3, 3))
    assert versions.outdated(tmp_path, tmp_path)
