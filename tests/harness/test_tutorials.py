"""The tutorials as they stand, with the wheel: in a folder of their own, each file and each command in its order."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import pytest

from command_lines import NOT_EXECUTED, TUTORIALS
from cortex_m_hil.host.paths import cache_directory
from paths import REPOSITORY
from shown import Shown, blocks, text_of

DEADLINE: Final = 600.0  # seconds for one command: a runner may have to be built
# What ends with another exit status than 0, as the text around it says.
STATUSES: Final[Mapping[str, int]] = {
    "pytest --target=m4-qemu test_bias.py": 1,
    "pytest --target=m4-qemu --keep-programs kept test_bias.py": 1,
    "hil lint kept/*.pte -t m4-qemu": 1,
    "pytest --target=my-board test_my_board.py": 1,
    "(cd product && pytest test_pipeline.py)": 1,
}

SECTIONS: Final = (
    "docs/boards.md#a-memory-map-of-your-own",
    "docs/own-firmware.md#from-an-empty-folder-to-the-first-verdict",
)


@pytest.fixture
def environment(user_path: str, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Virtual boards and locks are of this test alone, for another f405 may be running; what is built is shared."""
    folder = tmp_path_factory.mktemp("cache")
    for part in ("lowerings", "objects", "runners"):
        (cache_directory() / part).mkdir(parents=True, exist_ok=True)
        (folder / part).symlink_to(cache_directory() / part)
    own = {"HIL_CACHE_DIR": str(folder), "HIL_LOCK_DIR": str(tmp_path_factory.mktemp("locks"))}
    plain = {"COLUMNS": "250", "NO_COLOR": "1", "PYTHONDONTWRITEBYTECODE": "1", "PYTEST_ADDOPTS": ""}
    return {**os.environ, "PATH": user_path, **own, **plain}


def run(shown: Shown, folder: Path, environment: Mapping[str, str]) -> str:
    """Both streams of a command, in the shell that users have."""
    done = subprocess.run(
        ["bash", "-c", shown.command], cwd=folder, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, text=True, timeout=DEADLINE, check=False,
    )  # fmt: skip
    assert done.returncode == STATUSES.get(shown.command, 0), f"$ {shown.command}\n{done.stdout}"
    return done.stdout


@pytest.mark.slow
@pytest.mark.parametrize("page", TUTORIALS)
def test_a_tutorial_works_as_it_stands(page: str, environment: dict[str, str], tmp_path: Path) -> None:
    executed = 0
    for block in blocks(text_of(page)):
        if (edit := block.edit()) is not None:
            edit.apply(tmp_path)
        for shown in block.commands():
            if shown.command in NOT_EXECUTED:
                continue
            said = run(shown, tmp_path, environment)
            executed += 1
            assert shown.missing(said) == [], f"$ {shown.command}\n{said}"
    assert executed >= 4


def test_every_tutorial_is_executed_and_every_status_is_of_a_command() -> None:
    written = {f"docs/{page.name}" for page in (REPOSITORY / "docs").glob("tutorial-*.md")}
    assert {"docs/getting-started.md", *SECTIONS, *written} == set(TUTORIALS)
    text = "".join(map(text_of, TUTORIALS))
    called = {shown.command for block in blocks(text) for shown in block.commands()}
    assert set(STATUSES) <= called


def test_files_of_the_tutorials_have_a_place() -> None:
    """A block of Python or YAML in a tutorial is a file that is written, so that it is executed as well."""
    for page in TUTORIALS:
        for block in blocks(text_of(page)):
            assert block.language not in ("python", "yaml") or block.edit(), f"{page}: {block.text}"
