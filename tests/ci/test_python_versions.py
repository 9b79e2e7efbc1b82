"""The Pythons that are supported: said in several files, and the same in each."""

from __future__ import annotations

import re
import sys
from importlib.metadata import PathDistribution
from pathlib import Path

import pytest
from packaging.specifiers import SpecifierSet

import freeze
from paths import REPOSITORY

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

PYPROJECT = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())
SUPPORTED = tuple(PYPROJECT["tool"]["tox"]["env_list"])


def test_the_matrix_is_what_the_package_admits() -> None:
    admitted = SpecifierSet(PYPROJECT["project"]["requires-python"])
    minors = [f"3.{minor}" for minor in range(30)]
    assert tuple(one for one in minors if one in admitted) == SUPPORTED


def test_the_package_index_is_told_of_each() -> None:
    known = re.findall(r"Python :: (3\.\d+)$", "\n".join(PYPROJECT["project"]["classifiers"]), re.MULTILINE)
    assert tuple(known) == SUPPORTED


def test_constraints_are_frozen_for_each() -> None:
    assert freeze.SUPPORTED == SUPPORTED


@pytest.mark.parametrize(
    ("needs", "marker"),
    [
        ("", ""),
        (">=3.9", ""),
        (">=3.10,<4", ""),
        (">=3.11", ' ; python_version >= "3.11"'),
        ("!=3.10.1,>=3.10.2", ' ; python_full_version >= "3.10.2"'),
        (">=3.11.5", ' ; python_full_version >= "3.11.5"'),
    ],
)
def test_a_pin_leaves_out_the_pythons_that_its_release_does(tmp_path: Path, needs: str, marker: str) -> None:
    """Debian 12 has Python 3.11.2: with a pin that needs 3.11.5, nothing could be installed there."""
    (tmp_path / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: It\nVersion: 1.0+cpu\n" + (f"Requires-Python: {needs}\n" if needs else "")
    )
    assert freeze.pin(PathDistribution(tmp_path)) == f"it==1.0{marker}"


def test_the_installer_looks_for_each() -> None:
    script = (REPOSITORY / "ci/install.sh").read_text()
    assert sorted(re.findall(r"python(3\.\d+) ?", script.split("find_python() {")[1].split("}")[0])) == sorted(
        SUPPORTED
    )


def test_the_matrix_installs_what_the_installer_does() -> None:
    """Else tests of board farms fail there, and those of the virtual Pico are skipped."""
    environment = PYPROJECT["tool"]["tox"]["env_run_base"]
    script = (REPOSITORY / "ci/install.sh").read_text()
    assert f"'.[{','.join(environment['extras'])}]'" in script
    assert environment["commands_pre"] == [["ci/install.sh", "beside", "{env_dir}"]]
    assert "    install_labgrid .venv &\n" in script and "    install_rp2040js .venv\n" in script
