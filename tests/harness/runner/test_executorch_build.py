"""Builds of a small project that has what ExecuTorch's checkouts have: a preset, options, a submodule, an install."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from command_line import answers, running, spawn
from cortex_m_hil.errors import BuildError, ConfigError
from cortex_m_hil.errors.known_bugs import KNOWN_BUGS
from cortex_m_hil.host import toolchain
from cortex_m_hil.runner import executorch_checkout, linked_executorch
from cortex_m_hil.runner.executorch_build import BuildRequest, install_prefix, selected_prefixes
from cortex_m_hil.targets import executorch_prefix
from cortex_m_hil.targets.load import load_targets

CMAKE = """
cmake_minimum_required(VERSION 3.22)
project(executorch CXX)
foreach(wanted CMAKE_BUILD_TYPE=Release EXECUTORCH_BAREMETAL_SKIP_INSTALL=OFF FETCHCONTENT_FULLY_DISCONNECTED=ON
               EXECUTORCH_ENABLE_PROGRAM_VERIFICATION=ON CORTEX_M_ENABLE_RUNTIME_CHECKS=ON
               EXECUTORCH_BUILD_ARM_BAREMETAL=OFF EXECUTORCH_BUILD_PTHREADPOOL=OFF EXECUTORCH_BUILD_CPUINFO=OFF)
  string(REPLACE "=" ";" pair ${wanted})
  list(GET pair 0 name)
  list(GET pair 1 value)
  if(NOT "${${name}}" STREQUAL "${value}")
    message(FATAL_ERROR "${name} is '${${name}}'")
  endif()
endforeach()
execute_process(COMMAND ${PYTHON_EXECUTABLE} -c "import executorch" RESULT_VARIABLE status)
if(NOT status EQUAL 0)
  message(FATAL_ERROR "'${PYTHON_EXECUTABLE}' has no executorch")
endif()
if(CMSIS_NN_LOCAL_PATH)
  add_subdirectory(${CMSIS_NN_LOCAL_PATH} cmsis)
elseif(NEEDS_CMSIS_NN)
  install(TARGETS of-cmsis-nn)
  string(REPEAT "-- an option\\n" 400 options)
  message(STATUS "${options}")
endif()
if(NEEDS_JSON)
  add_subdirectory(third-party/json)
endif()
add_library(executorch_core STATIC core.cpp)
add_library(cortex_m_ops_lib STATIC core.cpp)
add_library(cmsis-nn STATIC nn.cpp)
add_library(cortex_m_kernels STATIC op.cpp)
install(TARGETS executorch_core cortex_m_ops_lib)
file(WRITE ${CMAKE_BINARY_DIR}/executorch-config.cmake "")
install(FILES ${CMAKE_BINARY_DIR}/executorch-config.cmake DESTINATION lib/cmake/ExecuTorch)
"""
TOOLCHAIN = """
set(CMAKE_SYSTEM_NAME Generic)
set(CMAKE_CXX_COMPILER arm-none-eabi-g++)
set(CMAKE_TRY_COMPILE_TARGET_TYPE STATIC_LIBRARY)
set(CMAKE_CXX_FLAGS_INIT -mcpu=${TARGET_CPU})
"""
PRESET = {
    "name": "arm-baremetal",
    "binaryDir": "${sourceDir}/cmake-out",
    "cacheVariables": {"CMAKE_TOOLCHAIN_FILE": "${sourceDir}/toolchain.cmake"},
}
M0 = load_targets()["m0-qemu"]
DEADLINE = 60.0  # seconds


def git(folder: Path, *words: str) -> str:
    settings = ["-c", "user.name=a", "-c", "user.email=a@b", "-c", "protocol.file.allow=always"]
    command = ["git", "-C", str(folder), *settings, *words]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """With `third-party/json`, a submodule that is not initialised."""
    monkeypatch.setenv("HIL_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.delenv(executorch_prefix.VARIABLE, raising=False)
    library = tmp_path / "json"
    library.mkdir()
    (library / "CMakeLists.txt").write_text("")
    source = tmp_path / "executorch"
    source.mkdir()
    presets = {"version": 3, "configurePresets": [PRESET]}
    schema = (toolchain.schema_directory() / "program.fbs").read_text()
    identifier = re.findall(r'file_identifier "(\w+)"', schema)
    files = {
        "CMakeLists.txt": CMAKE,
        "CMakePresets.json": json.dumps(presets),
        "toolchain.cmake": TOOLCHAIN,
        "version.txt": "1.6.0\n",
        "core.cpp": f'extern const char identifier[] = "{identifier[0]}";\nint one() {{ return 1; }}\n',
        "nn.cpp": "int nn() { return 3; }\n",
        "op.cpp": "int op() { return 4; }\n",
    }
    for name, text in files.items():
        (source / name).write_text(text)
    for folder in (library, source):
        git(folder, "init", "--quiet")
        git(folder, "add", ".")
        git(folder, "commit", "--quiet", "-m", "first")
    git(source, "submodule", "--quiet", "add", str(library), "third-party/json")
    git(source, "commit", "--quiet", "-m", "submodule")
    git(source, "submodule", "--quiet", "deinit", "--force", "third-party/json")
    return source


def test_targets_of_the_cpu_find_what_was_installed(checkout: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no ExecuTorch is installed for cortex-m0") as caught:
        linked_executorch.find_prefix(M0, tmp_path / "cache")
    assert "hil executorch install --cpu cortex-m0plus" in caught.value.hint
    told: list[str] = []
    first = install_prefix(BuildRequest(checkout, "cortex-m0plus"), told.append)
    assert first.built and [*dict.fromkeys(what.split()[0] for what in told)] == ["configures", "builds", "installs"]
    assert first.version == f"1.6.0 {git(checkout, 'rev-parse', '--short=12', 'HEAD').strip()}"
    found = linked_executorch.find_prefix(M0, tmp_path / "cache")  # whose code an M0+ library is
    assert found.directory.resolve() == first.directory and found.version.startswith(f"{first.version}, libraries ")
    assert not install_prefix(BuildRequest(checkout, "cortex-m0plus")).built
    assert [one.directory for one in selected_prefixes()] == [first.directory]


@pytest.mark.slow
def test_a_link_leaves_the_prefix_that_targets_use_as_it_is(
    checkout: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For commits that are bisected, one after the other."""
    used = install_prefix(BuildRequest(checkout, "cortex-m0plus"))
    (checkout / "core.cpp").write_text((checkout / "core.cpp").read_text() + "int two() { return 2; }\n")
    link = tmp_path / "folder_that_is_made" / "prefix"
    other = install_prefix(BuildRequest(checkout, "cortex-m0plus"), link=link)
    assert link.resolve() == other.directory != used.directory
    assert [one.directory for one in selected_prefixes()] == [used.directory]
    monkeypatch.setenv(executorch_prefix.VARIABLE, str(link))
    assert linked_executorch.find_prefix(M0, tmp_path / "cache").directory.resolve() == other.directory
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="exists, and is no symlink"):
        install_prefix(BuildRequest(checkout, "cortex-m0plus"), link=tmp_path / "file")


def test_a_link_that_cannot_be_made_is_refused_before_the_build(checkout: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for parent, why in ((tmp_path / "file", r"file is no folder"), (Path("/proc/none"), r"/proc cannot be written to")):
        with pytest.raises(ConfigError, match=why):
            install_prefix(BuildRequest(checkout, "cortex-m0plus"), link=parent / "prefix")
    assert not list((tmp_path / "cache" / "executorch").glob("*"))


@pytest.mark.slow
def test_what_it_is_made_of_is_in_its_key(checkout: Path) -> None:
    options = ("-DX=1",)
    orders = [
        BuildRequest(checkout, "cortex-m0plus"),
        BuildRequest(checkout, "cortex-m4"),
        BuildRequest(checkout, "cortex-m4", None, options),
    ]
    prefixes = [install_prefix(order).directory for order in orders]
    (checkout / "core.cpp").write_text("int two() { return 2; }\n")
    changed = install_prefix(orders[1])
    assert len({*prefixes, changed.directory}) == 4 and changed.version.endswith("-dirty")
    assert [one.directory for one in selected_prefixes()] == [
        prefixes[0],
        changed.directory,
    ]  # the last one of each CPU
    assert git(checkout, "status", "--porcelain") == " M core.cpp\n"  # nothing is built in the checkout


@pytest.mark.slow
def test_one_that_counts_coverage_lies_beside_the_ordinary_one(checkout: Path, tmp_path: Path) -> None:
    """Each is refused where the other is needed, with the command that installs that."""
    cache = tmp_path / "cache"
    plain = install_prefix(BuildRequest(checkout, "cortex-m0plus"))
    with pytest.raises(ConfigError, match="no ExecuTorch that counts coverage is installed") as caught:
        linked_executorch.find_prefix(M0, cache, counts=True)
    assert "hil executorch install --cpu cortex-m0plus --coverage" in caught.value.hint
    counting = install_prefix(BuildRequest(checkout, "cortex-m0plus", coverage=True))
    assert counting.directory != plain.directory
    assert {path.name for path in (counting.directory / "notes").iterdir()} == {"nn.cpp.gcno", "op.cpp.gcno"}
    assert linked_executorch.find_prefix(M0, cache).directory.resolve() == plain.directory
    assert linked_executorch.find_prefix(M0, cache, counts=True).directory.resolve() == counting.directory
    assert [(one.directory, one.coverage) for one in selected_prefixes()] == [
        (plain.directory, False),
        (counting.directory, True),
    ]


@pytest.mark.first_only
@pytest.mark.parametrize("counts", [False, True])
def test_a_prefix_of_the_other_kind_that_is_named_is_refused(
    counts: bool, checkout: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    named = install_prefix(BuildRequest(checkout, "cortex-m0plus", coverage=not counts))
    monkeypatch.setenv(executorch_prefix.VARIABLE, str(named.directory))
    with pytest.raises(ConfigError, match=r"its kernels count (no )?coverage") as caught:
        linked_executorch.find_prefix(M0, tmp_path / "cache", counts)
    assert ("--cpu cortex-m0plus --coverage;" in caught.value.hint) == counts


def test_options_that_keep_kernels_from_counting_are_an_error(checkout: Path, tmp_path: Path) -> None:
    mine = tmp_path / "mine.cmake"
    mine.write_text("")
    with pytest.raises(BuildError, match="no kernel counts") as caught:
        install_prefix(
            BuildRequest(checkout, "cortex-m0plus", None, (f"-DCMAKE_PROJECT_INCLUDE={mine}",), coverage=True)
        )
    assert "CMAKE_PROJECT_INCLUDE" in caught.value.hint and [one.coverage for one in selected_prefixes()] == []


def missing_submodule(checkout: Path) -> BuildRequest:
    return BuildRequest(checkout, "cortex-m4", None, ("-DNEEDS_JSON=ON",))


def missing_cmsis_nn(checkout: Path) -> BuildRequest:
    """As ExecuTorch without a network: it goes on, installs what is not there, and lists its options."""
    pins = checkout / executorch_checkout.PIN_FILE
    pins.parent.mkdir(parents=True)
    pins.write_text(f'set(CMSIS_NN_VERSION "{"0123456789" * 4}" CACHE STRING "")\n')
    return BuildRequest(checkout, "cortex-m4", None, ("-DNEEDS_CMSIS_NN=ON",))


def error_of_the_compiler(checkout: Path) -> BuildRequest:
    (checkout / "core.cpp").write_text("\nint one() { return nothing; }\n")
    return BuildRequest(checkout, "cortex-m4")


FAILURES: list[tuple[Callable[[Path], BuildRequest], str, str]] = [
    (missing_submodule, "lacks 1 submodule: third-party/json", "update --init --depth 1 third-party/json; --cmsis-nn "),
    (missing_cmsis_nn, r"CMake Error at CMakeLists.txt:\d+", "--cmsis-nn PATH, a checkout of CMSIS-NN 012345678901, "),
    (error_of_the_compiler, r"core.cpp:2:20: error: 'nothing' was not declared", "the whole log is "),
]


@pytest.mark.first_only
@pytest.mark.parametrize(("order", "said", "hint"), FAILURES, ids=lambda one: getattr(one, "__name__", ""))
def test_a_build_that_fails_says_where_and_what_is_missing(
    order: Callable[[Path], BuildRequest], said: str, hint: str, checkout: Path, tmp_path: Path
) -> None:
    with pytest.raises(BuildError, match=said) as caught:
        install_prefix(order(checkout))
    assert caught.value.message.startswith(f"{checkout} ") and hint in caught.value.hint
    assert selected_prefixes() == ()
    assert [one.suffix for one in (tmp_path / "cache" / "executorch").glob("*/")] == [".unfinished"]


def test_all_submodules_that_are_missed_are_named_at_once(checkout: Path, tmp_path: Path) -> None:
    """By headline and hint alike, though CMake stops at the first; and not what no build needs."""
    for path in ("third-party/flatcc", "backends/xnnpack/third-party/FXdiv", "third-party/unneeded"):
        git(checkout, "submodule", "--quiet", "add", str(tmp_path / "json"), path)
    git(checkout, "commit", "--quiet", "-m", "submodules")
    git(checkout, "submodule", "--quiet", "deinit", "--force", "--all")
    with pytest.raises(BuildError) as caught:
        install_prefix(missing_submodule(checkout))
    wanted = ["backends/xnnpack/third-party/FXdiv", "third-party/flatcc", "third-party/json"]
    assert caught.value.message == f"{checkout} lacks 3 submodules: {', '.join(wanted)}"
    command = caught.value.hint.partition(";")[0]
    assert command == f"git -C {checkout} submodule update --init --depth 1 {' '.join(wanted)}"
    assert "CMake Error at CMakeLists.txt" in str(caught.value)
    git(checkout, *command.split()[3:])
    assert install_prefix(missing_submodule(checkout)).built


WAITS = """
add_custom_command(OUTPUT ${CMAKE_BINARY_DIR}/waited.cpp DEPENDS cmsis-nn VERBATIM
  COMMAND sh -c "test -e ${GO} || { echo > ${BEGUN}; exec sleep 600; }"
  COMMAND ${CMAKE_COMMAND} -E touch ${CMAKE_BINARY_DIR}/waited.cpp)
target_sources(executorch_core PRIVATE ${CMAKE_BINARY_DIR}/waited.cpp)
"""


@pytest.mark.first_only
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_a_build_that_was_interrupted_goes_on(number: int, checkout: Path, tmp_path: Path) -> None:
    """Neither what was configured nor what was compiled is done anew, and nothing is left but the prefix."""
    (checkout / "CMakeLists.txt").write_text(CMAKE + WAITS)
    go, begun = tmp_path / "go", tmp_path / "begun"
    os.mkfifo(begun)
    options = (f"-DGO={go}", f"-DBEGUN={begun}")
    order = ["executorch", "install", "--source", checkout, "--cpu", "cortex-m0plus", "--", *options]
    with running(*order, cwd=tmp_path) as first:
        begun.read_text()  # until the build waits, with CMSIS-NN built
        first.send_signal(number)
        _, err = first.communicate(timeout=DEADLINE)
    assert ("interrupted: the same command goes on where it ended\n" in err) == (number == signal.SIGINT)
    home = tmp_path / "cache" / "executorch"
    assert selected_prefixes() == () and [one.suffix for one in home.glob("*/")] == [".unfinished"]
    go.touch()
    told: list[str] = []
    found = install_prefix(BuildRequest(checkout, "cortex-m0plus", None, options), told.append)
    assert found.built and [*told[:2], told[-1]] == ["goes on with what was built before", "builds", "installs"]
    log = found.directory.with_suffix(".log").read_text()
    assert "waited.cpp" in log and "nn.cpp" not in log and "Configuring done" not in log
    assert [one.name for one in home.glob("*/") if not one.is_symlink()] == [found.directory.name]


@pytest.mark.first_only
@pytest.mark.parametrize("version", ["24.3.25", "24.3.26"])
def test_a_flatc_of_the_checkouts_own_version_is_not_compiled(
    version: str, checkout: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    headers = checkout / "third-party" / "flatbuffers" / "include" / "flatbuffers"
    headers.mkdir(parents=True)
    parts = zip(("MAJOR", "MINOR", "REVISION"), version.split("."), strict=True)
    (headers / "base.h").write_text("".join(f"#define FLATBUFFERS_VERSION_{name} {part}\n" for name, part in parts))
    flatc = tmp_path / "bin" / "flatc"
    flatc.parent.mkdir()
    flatc.write_text("#!/bin/sh\necho flatc version 24.3.25\n")
    flatc.chmod(0o755)
    monkeypatch.setenv("PATH", str(flatc.parent), prepend=os.pathsep)
    (checkout / "CMakeLists.txt").write_text(f'{CMAKE}message(STATUS "flatc: ${{FLATC_EXECUTABLE}}")\n')
    found = install_prefix(BuildRequest(checkout, "cortex-m0plus"))
    used = f"flatc: {flatc}\n" in found.directory.with_suffix(".log").read_text()
    assert used == (version == "24.3.25")


@pytest.mark.slow
def test_what_is_left_of_other_content_is_removed(checkout: Path, tmp_path: Path) -> None:
    """By the next build of the same command; a build of another command is left to go on."""
    for order in (missing_submodule(checkout), BuildRequest(checkout, "cortex-m4", None, ("-DNEEDS_JSON=1",))):
        with pytest.raises(BuildError):
            install_prefix(order)
    home = tmp_path / "cache" / "executorch"
    before = {*home.glob("*.unfinished")}
    (checkout / "op.cpp").write_text("int op() { return 5; }\n")
    with pytest.raises(BuildError):
        install_prefix(missing_submodule(checkout))
    assert len(before) == len({*home.glob("*.unfinished")}) == 2 and len(before & {*home.glob("*.unfinished")}) == 1


@pytest.mark.slow
def test_bugs_that_its_cmsis_nn_does_not_have_are_recorded(checkout: Path, tmp_path: Path) -> None:
    """A prefix without a record, by an older hil, is built anew."""
    number, (name, faulty) = 2, KNOWN_BUGS[2].faulty_code
    file = tmp_path / "cmsis" / name
    file.parent.mkdir(parents=True)
    (tmp_path / "cmsis" / "CMakeLists.txt").write_text("")
    request, target = BuildRequest(checkout, "cortex-m4", tmp_path / "cmsis"), load_targets()["m4-qemu"]
    for text, mended in ((f"if {faulty} {{}}\n", set()), ("if (rows) {}\n", {number})):
        file.write_text(text)
        installed = install_prefix(request)
        assert installed.built and executorch_prefix.mended_bugs(target) == mended
    assert not install_prefix(request).built
    (installed.directory / executorch_prefix.DESCRIPTION).write_text('{"version": "1.6.0"}')
    assert executorch_prefix.mended_bugs(target) == set()
    assert install_prefix(request).built and executorch_prefix.mended_bugs(target) == {number}


@pytest.mark.slow
def test_a_cmsis_nn_of_ones_own(checkout: Path, tmp_path: Path) -> None:
    mine = tmp_path / "cmsis"
    mine.mkdir()
    with pytest.raises(ConfigError, match="is no CMSIS-NN checkout"):
        install_prefix(BuildRequest(checkout, "cortex-m4", mine))
    (mine / "CMakeLists.txt").write_text("file(WRITE ${CMAKE_BINARY_DIR}/mine)\n")
    git(mine, "init", "--quiet")
    git(mine, "add", ".")
    git(mine, "commit", "--quiet", "-m", "first")
    first = install_prefix(BuildRequest(checkout, "cortex-m4", mine, ("-DNEEDS_CMSIS_NN=ON",)))
    commit = git(mine, "rev-parse", "--short=12", "HEAD").strip()
    assert re.fullmatch(rf"1\.6\.0 [0-9a-f]{{12}}, CMSIS-NN {commit}", first.version)
    (mine / "kernel.c").write_text("int changed;\n")
    assert (
        install_prefix(BuildRequest(checkout, "cortex-m4", mine, ("-DNEEDS_CMSIS_NN=ON",))).directory != first.directory
    )


def without_preset(checkout: Path) -> BuildRequest:
    (checkout / "CMakePresets.json").write_text('{"configurePresets": [{"name": "linux"}]}')
    return BuildRequest(checkout, "cortex-m4")


MISTAKES: list[tuple[Callable[[Path], BuildRequest], str]] = [
    (
        lambda checkout: BuildRequest(checkout.parent, "cortex-m4"),
        "is no ExecuTorch checkout: it has no CMakeLists.txt",
    ),
    (without_preset, "version 1.6.0, has no preset arm-baremetal"),
    (lambda checkout: BuildRequest(checkout, "cortex-m5"), "no CPU 'cortex-m5'"),
    (lambda checkout: BuildRequest(checkout, "host"), "no CPU 'host'"),
    (lambda checkout: BuildRequest(checkout, "cortex-m4", None, ("X=1",)), "'X=1' is no option of CMake's cache"),
]


@pytest.mark.parametrize(("order", "said"), MISTAKES)
def test_invalid_install_requests_are_config_errors_with_a_hint(
    order: Callable[[Path], BuildRequest], said: str, checkout: Path
) -> None:
    with pytest.raises(ConfigError, match=said) as caught:
        install_prefix(order(checkout))
    assert caught.value.hint


def test_hil_executorch_install_and_list_answer_for_each_cpu(checkout: Path, tmp_path: Path) -> None:
    order = ["executorch", "install", "--source", checkout, "--cpu", "cortex-m4+int8", "--cpu", "cortex-m5"]
    order += ["--link", "prefix-{cpu}"]  # so that no self-test runs: there is no ExecuTorch in this checkout
    done = spawn(*order, cwd=tmp_path)
    assert done.status == 2 and "cortex-m4: ExecuTorch 1.6.0 " in done.out and done.out.endswith(" installed\n")
    assert "cortex-m4: configures\n" in done.err and "no CPU 'cortex-m5'" in done.err
    again = answers(spawn(*order, "--json", cwd=tmp_path).out)
    assert again[0]["built"] is False and again[1]["target"] == "cortex-m5"
    install_prefix(BuildRequest(checkout, "cortex-m4"))
    [one] = answers(spawn("executorch", "list", "--json", cwd=tmp_path).out)
    assert one["cpu"] == "cortex-m4" and one["directory"] == again[0]["directory"]
