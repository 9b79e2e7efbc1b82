"""Launchers by their key: this package's, other packages', and what can be wrong with those."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from cortex_m_hil.errors import ConfigError
from cortex_m_hil.host.paths import package_data
from cortex_m_hil.targets.launcher import GROUP, SHIPPED, find_launcher
from cortex_m_hil.targets.load import load_targets
from cortex_m_hil.targets.target import Launcher
from paths import IMPORT_ROOT

LAUNCHER = """
from dataclasses import dataclass
from cortex_m_hil.runner.launchers.simulator import Simulator
from cortex_m_hil.targets.target import Strict

class Settings(Strict):
    speed: int

@dataclass(frozen=True)
class Mine(Simulator):
    settings = Settings
    program = "true"
    speed: int = 0

    @classmethod
    def parse(cls, settings, where):
        return cls(settings.speed)

    def describe(self):
        return f"mine at {self.speed}"

    def engine(self, board):
        return "mine 1.0"

    def command(self, elf, directory, arguments):
        return ["true"]

not_a_launcher = 5
"""
TARGET = "targets:\n  one:\n    cpu: cortex-m4\n    board: mps2\n    launcher:\n      {launcher}\n"


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of installed packages."""
    folder = tmp_path / "site"
    folder.mkdir()
    monkeypatch.syspath_prepend(str(folder))
    return folder


def install(site: Path, package: str, key: str, value: str, module: str = LAUNCHER) -> None:
    """What an installer leaves: the module, and the metadata beside it. `value` begins with the module's name."""
    (site / f"{value.partition(':')[0]}.py").write_text(module)
    metadata = site / f"{package}-1.5.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.5\n")
    (metadata / "entry_points.txt").write_text(f"[{GROUP}]\n{key} = {value}\n")


def write(folder: Path, launcher: str) -> Path:
    path = folder / "targets.yaml"
    path.write_text(TARGET.replace("{launcher}", launcher))
    return path


@pytest.mark.parametrize("key", SHIPPED)
def test_each_of_this_package_is_one(key: str) -> None:
    assert issubclass(find_launcher(key), Launcher)


def test_one_of_another_package_is_read_as_strictly(site: Path, tmp_path: Path) -> None:
    install(site, "hil_mine", "mine", "hil_mine_good:Mine")
    launcher = load_targets(write(tmp_path, "mine: {speed: 7}"))["one"].launcher
    assert launcher.describe() == "mine at 7"
    for text, message, hint in (
        ("mine: {sped: 7}", "targets.yaml:6: unknown key 'sped'", "'speed'"),
        ("mine: {speed: fast}", "targets.yaml:6: targets.one.launcher.mine.speed: has to be a valid integer", ""),
        ("mine: {}", "targets.yaml:6: targets.one.launcher.mine.speed: missing", ""),
        ("mien: {speed: 7}", "targets.yaml:6: launcher: unknown key 'mien'", "'mine'"),
        ("mine", "targets.yaml:5: targets.one.launcher.speed: missing", ""),
    ):
        with pytest.raises(ConfigError) as caught:
            load_targets(write(tmp_path, text))
        assert message in caught.value.message and hint in caught.value.hint


@pytest.mark.parametrize(
    ("value", "module", "cause"),
    [
        ("hil_broken_a:Mine", "import no_such_module\n", "ModuleNotFoundError: No module named 'no_such_module'"),
        ("hil_broken_b:Mine", "def broken(:\n", "SyntaxError"),
        ("hil_broken_c:Other", LAUNCHER, "AttributeError: module 'hil_broken_c' has no attribute 'Other'"),
        ("hil_broken_d:not_a_launcher", LAUNCHER, "hil_broken_d:not_a_launcher is no subclass of Launcher"),
        ("hil_broken_e", LAUNCHER, "hil_broken_e is no subclass of Launcher"),
        ("hil-broken-f::", LAUNCHER, ""),
    ],
)
def test_a_broken_one_names_its_package_and_the_cause(
    site: Path, tmp_path: Path, value: str, module: str, cause: str
) -> None:
    install(site, "hil_broken", "broken", value, module)
    with pytest.raises(ConfigError, match=r"targets.yaml:6: launcher: launcher 'broken' of hil_broken 1\.5") as caught:
        load_targets(write(tmp_path, "broken: {}"))
    assert cause in caught.value.message
    load_targets(write(tmp_path, "native: {}"))  # who does not name it has no trouble with it


@pytest.mark.parametrize("key", ["mine", "qemu"])
def test_two_of_one_key_are_refused(site: Path, tmp_path: Path, key: str) -> None:
    install(site, "hil_first", "mine", "hil_clash_first:Mine")
    install(site, "hil_second", key, "hil_clash_second:Mine")
    with pytest.raises(ConfigError, match="hil_second") as caught:
        load_targets(write(tmp_path, "mine: {speed: 1}"))
    other = "hil_first" if key == "mine" else "this package"
    assert re.search(rf"launcher '{key}' comes from .*{other}", caught.value.message)


def test_packages_are_looked_through_only_for_a_key_of_theirs(tmp_path: Path) -> None:
    """Reading the metadata of all that is installed takes longer than reading `targets.yaml`."""
    program = (
        "import importlib.metadata, sys\n"
        "known = importlib.metadata.entry_points\n"
        f"look = lambda group: sys.exit('looked through') if group == {GROUP!r} else known(group=group)\n"
        "importlib.metadata.entry_points = look\n"
        "from pathlib import Path\nfrom cortex_m_hil.targets.load import load_targets\n"
        "load_targets(Path(sys.argv[1]))\n"
    )

    def load(path: Path) -> str:
        command = [sys.executable, "-c", program, str(path)]
        return subprocess.run(
            command, env={"PYTHONPATH": str(IMPORT_ROOT)}, capture_output=True, text=True, check=False
        ).stderr

    assert load(package_data("targets.yaml")) == ""
    assert "looked through" in load(write(tmp_path, "mine: {}"))
