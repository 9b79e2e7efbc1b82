"""An ExecuTorch's source with a file changed, built by the user's command: here one that copies the file."""

from __future__ import annotations

import dataclasses
import time
from pathlib import Path

import pytest

from cortex_m_hil.errors import BuildError, ConfigError
from cortex_m_hil.maintainers.mutation import executorch_tree as source_tree
from cortex_m_hil.maintainers.mutation.executorch_tree import SourceTree
from cortex_m_hil.targets import executorch_prefix
from cortex_m_hil.targets.connection import Elf
from cortex_m_hil.targets.load import load_targets
from cortex_m_hil.targets.target import ExecutorchInstall, Target

TARGET = load_targets()["m4-qemu"]
BUILD = """
mkdir -p "$HIL_PREFIX/lib"
cat "$HIL_SOURCE"/*.c > "$HIL_PREFIX/lib/libkernels.a"
! grep broken "$HIL_SOURCE"/*.c
"""


CMAKE = """
cmake_minimum_required(VERSION 3.22)
project(kernels NONE)
set(library "${CMAKE_BINARY_DIR}/libkernels.a")
add_custom_command(OUTPUT "${library}" COMMAND cat a.c b.c > "${library}" DEPENDS a.c b.c
                   WORKING_DIRECTORY "${CMAKE_SOURCE_DIR}")
add_custom_target(all_of_it ALL DEPENDS "${library}")
install(FILES "${library}" DESTINATION lib)
"""
CMAKE_BUILD = """
build="$HIL_SOURCE/../built"
[ -d "$build" ] || cmake -S "$HIL_SOURCE" -B "$build" -G Ninja
cmake --build "$build" && cmake --install "$build" --prefix "$HIL_PREFIX"
"""


class Runner:
    """Stands for the runner's build, which needs a whole ExecuTorch: what it would link."""

    def __init__(self, target: Target, folder: Path, runtime: str) -> None:
        assert folder.is_dir() and runtime == "executorch" and target.executorch is not None
        self._library = Path(target.executorch.prefix) / "lib" / "libkernels.a"

    def build(self, changed: dict[str, str]) -> Elf:
        assert not changed
        return Elf(self._library, "", "")


def with_install(tmp_path: Path, **more: object) -> Target:
    install = ExecutorchInstall(f"{tmp_path}/users/{{cpu}}", "targets.yaml:1", **more)  # type: ignore[arg-type]
    return dataclasses.replace(TARGET, executorch=install)


@pytest.fixture
def source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv(executorch_prefix.VARIABLE, raising=False)
    monkeypatch.setattr(source_tree, "BuildTree", Runner)
    folder = tmp_path / "checkouts"
    for name, text in {"a.c": "a\n", "b.c": "b\n", "build/CMakeCache.txt": "", ".git/HEAD": ""}.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


def test_each_build_has_its_change_and_no_other(source: Path, tmp_path: Path) -> None:
    tree = SourceTree(with_install(tmp_path, source=source, build=BUILD), tmp_path / "work")
    assert tree.build({}).path.read_text() == "a\nb\n"
    assert tree.build({"a.c": "A\n"}).path.read_text() == "A\nb\n"
    with pytest.raises(BuildError, match="status 1"):
        tree.build({"b.c": "broken\n"})
    assert tree.build({"b.c": "B\n"}).path.read_text() == "a\nB\n"
    assert tree.build({}).path.read_text() == "a\nb\n"


def test_cmake_installs_what_was_built_within_the_same_second(source: Path, tmp_path: Path) -> None:
    """It takes files whose times differ by less than a second for the same."""
    (source / "CMakeLists.txt").write_text(CMAKE)
    tree = SourceTree(with_install(tmp_path, source=source, build=CMAKE_BUILD), tmp_path / "work")
    for text in ("A", "B", "C", "D"):
        assert tree.build({"a.c": f"{text}\n"}).path.read_text() == f"{text}\nb\n"
    assert tree.build({}).path.read_text() == "a\nb\n"


def test_what_was_installed_is_newer_than_what_was_linked_before(source: Path, tmp_path: Path) -> None:
    """CMake cuts the times of what it installs to whole seconds: by these a runner of the same second is newer."""
    build = f'{BUILD}touch -d "@$(($(date +%s) - 1))" "$HIL_PREFIX/lib/libkernels.a"\n'
    tree = SourceTree(with_install(tmp_path, source=source, build=build), tmp_path / "work")
    linked = time.time_ns()
    assert tree.build({"a.c": "A\n"}).path.stat().st_mtime_ns > linked
    linked = time.time_ns()
    assert tree.build({"a.c": "A\n"}).path.stat().st_mtime_ns < linked  # the same again needs no link


def test_the_users_own_source_and_prefix_stay_as_they_are(source: Path, tmp_path: Path) -> None:
    SourceTree(with_install(tmp_path, source=source, build=BUILD), tmp_path / "work").build({"a.c": "A\n"})
    assert (source / "a.c").read_text() == "a\n" and not (tmp_path / "users").exists()
    copied = tmp_path / "work" / "source" / source.name
    assert sorted(path.name for path in copied.iterdir()) == ["a.c", "b.c"]  # neither .git nor what was built


@pytest.mark.parametrize("more", [{}, {"build": BUILD}, {"source": Path()}], ids=["neither", "no source", "no build"])
def test_what_cannot_be_built_is_told(source: Path, tmp_path: Path, more: dict[str, object]) -> None:
    with pytest.raises(ConfigError, match="no ExecuTorch that can be built"):
        SourceTree(with_install(tmp_path, **more), tmp_path / "work")


def test_a_prefix_that_the_variable_names_is_not_built(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(executorch_prefix.VARIABLE, str(tmp_path))
    with pytest.raises(ConfigError, match=f"{executorch_prefix.VARIABLE} is set"):
        SourceTree(with_install(tmp_path, source=source, build=BUILD), tmp_path / "work")
