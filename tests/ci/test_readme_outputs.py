"""README.md shows what a user sees."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from types import ModuleType

import pytest

import profile_picture
import readme_outputs
import report_picture


@pytest.mark.slow
def test_the_outputs_in_the_readme_are_what_its_commands_print(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise: python ci/readme_outputs.py. On a CI machine as on a desk: with CI set, pytest cuts no lines off."""
    for name, value in {"CI": "true", "BUILD_NUMBER": "1", "FORCE_COLOR": "1", "PYTEST_ADDOPTS": "-v"}.items():
        monkeypatch.setenv(name, value)
    page = readme_outputs.PAGE.read_text()
    assert page.count("<!-- output: ") == 2
    assert readme_outputs.rendered(page).splitlines() == page.splitlines()


def test_what_differs_between_runs_is_masked_and_the_rest_is_not() -> None:
    first = "rootdir: /a\nhil = <Hil at 0x7f8e65090250>\n=== 3 passed in 1.20s ===\nm4-qemu  2 passed  in 3.1 s\n"
    second = (
        "rootdir: /b\nhil = <Hil at 0x7f8e65090999>\n== 3 passed in 601.20s (0:10:01) ==\nm4-qemu  2 passed  in 9.9 s\n"
    )
    assert readme_outputs.masked(first) == readme_outputs.masked(second)
    assert readme_outputs.masked(first) != readme_outputs.masked(first.replace("2 passed", "1 passed"))


@pytest.mark.slow
def test_a_command_that_cannot_be_run_is_no_picture() -> None:
    with pytest.raises(subprocess.CalledProcessError):
        readme_outputs.rendered("<!-- output: pytest --nonsense -->\n```\n```\n")


@pytest.mark.parametrize("made_by", [report_picture, profile_picture])
def test_a_picture_of_a_page_is_of_the_page_as_it_is(made_by: ModuleType) -> None:
    """Otherwise: python ci/report_picture.py, or ci/profile_picture.py."""
    assert made_by.PICTURE.read_bytes().startswith(b"\x89PNG")
    assert made_by.DIGESTS.read_text() == report_picture.digests(made_by.PAGE)


@pytest.mark.parametrize("name", ["index.html.jinja", "report.css", "report.js"])
def test_a_picture_is_old_once_its_page_was_changed(name: str, tmp_path: Path) -> None:
    page = tmp_path / "page"
    shutil.copytree(report_picture.PAGE, page)
    with (page / name).open("a") as file:
        file.write("\n")
    assert report_picture.DIGESTS.read_text() != report_picture.digests(page)
