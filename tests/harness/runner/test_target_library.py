"""The target library as firmware takes it: its folder, by compilers and flags that are not the runner's, its sizes."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import command_line
from cortex_m_hil import flow
from cortex_m_hil.errors import BuildError, ConfigError, NotOffered, TargetFault, TargetHang
from cortex_m_hil.flow.stepping import steps
from cortex_m_hil.program.known_answer import known_answer
from cortex_m_hil.program.program import Program
from cortex_m_hil.runner.build import build_runner
from cortex_m_hil.runner.target_library import write_target_library
from cortex_m_hil.targets.cpu import Isa
from cortex_m_hil.targets.executorch_prefix import directory_of, find_install
from cortex_m_hil.targets.load import load_targets
from cortex_m_hil.targets.resolve import Resolved, resolve
from installed import installed_executorch
from paths import REPOSITORY
from shown import blocks

LIBRARY = REPOSITORY / "firmware" / "target_library"
SAMPLE = REPOSITORY / "examples" / "own_firmware"
SOURCES = sorted(LIBRARY.glob("*.c"))
STRICT = ("-std=c11", "-pedantic", "-Wall", "-Wextra", "-Wshadow", "-Wconversion", "-Werror", "-Os")
FLAGS = {
    "cortex-m0": ("-mthumb", "-mcpu=cortex-m0"),
    "cortex-m4": ("-mthumb", "-mcpu=cortex-m4", "-mfloat-abi=hard", "-mfpu=fpv4-sp-d16"),
    "cortex-m55": ("-mthumb", "-mcpu=cortex-m55", "-mfloat-abi=hard"),
}
ROWS = re.findall(r"^\| (cortex-\w+) \| (\d+) \| (\d+) \| (\d+) \|$", (LIBRARY / "README.md").read_text(), re.MULTILINE)
CHANNELS = re.search(
    r"take (\d+) bytes of flash and (\d+) of RAM; each input (\d+) of RAM, each output (\d+)",
    (LIBRARY / "README.md").read_text(),
)
KNOWN = known_answer(Isa.DSP)
PROGRAM = replace(Program.from_bytes(KNOWN.program, "known_answer.pte"), inputs=KNOWN.inputs)


def run(folder: Path, *command: object) -> str:
    done = subprocess.run([*map(str, command)], cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0 and not done.stderr, done.stderr
    return done.stdout


# --- the folder ----------------------------------------------------------------------------------------------


def test_the_folder_is_whole_and_written_again(tmp_path: Path) -> None:
    folder = tmp_path / "library"
    for _ in range(2):
        write_target_library(folder)
        (folder / "runtime" / "stray.cpp").touch()
    write_target_library(folder)
    names = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
    assert {f"target_library/{path.name}" for path in SOURCES} <= names and "runtime/stray.cpp" not in names
    assert {"generated/program_generated.h", "generated/flatbuffers/base.h", "runtime/c_interface.cpp"} <= names
    assert not any("testing" in name for name in names)


def test_a_folder_with_other_files_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(ConfigError, match="has other files in it"):
        write_target_library(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]


# --- compilers -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("cpu", "payload", "flash", "ram"), [ROWS[0], *(pytest.param(*row, marks=pytest.mark.slow) for row in ROWS[1:])]
)
def test_it_is_as_small_as_the_readme_says(cpu: str, payload: str, flash: str, ram: str, tmp_path: Path) -> None:
    """And compiles without warnings. At most: other versions of GCC make other sizes."""
    command = ["arm-none-eabi-gcc", *STRICT, *FLAGS[cpu], f"-DHIL_TARGET_MAX_PAYLOAD={payload}"]
    run(tmp_path, *command, f"-I{LIBRARY.parent}", "-c", *SOURCES)
    total = run(tmp_path, "arm-none-eabi-size", "-t", *tmp_path.glob("*.o")).splitlines()[-1]
    text, data, bss = map(int, total.split()[:3])
    assert text + data <= int(flash) and data + bss <= int(ram)
    assert text + data > int(flash) // 2 and data + bss > int(ram) // 2  # the table is not idle


def test_channels_are_as_small_as_the_readme_says_and_nothing_where_they_are_left_out(tmp_path: Path) -> None:
    compiler = ["arm-none-eabi-gcc", *STRICT, *FLAGS["cortex-m0"]]
    pipeline = (SAMPLE / "pipeline.c").read_text()
    (tmp_path / "bare.c").write_text(re.sub(r"(?m)^ *HIL_\w+\(.*\n", "", pipeline))
    assert (tmp_path / "bare.c").read_text().count("\n") == pipeline.count("\n") - 4
    sizes = {}
    for name, source, channels in (
        ("without", SAMPLE / "pipeline.c", 0), ("bare", tmp_path / "bare.c", 0), ("with", SAMPLE / "pipeline.c", 1),
        *((f"library{channels}", "-r", channels) for channels in (0, 1)),
    ):  # fmt: skip
        sources = SOURCES if source == "-r" else [source]
        linked = ["-r", "-nostdlib"] if source == "-r" else ["-c"]
        includes = f"-I{LIBRARY.parent}", f"-I{LIBRARY}", f"-I{SAMPLE}", f"-DHIL_CHANNELS={channels}"
        run(tmp_path, *compiler, *includes, *linked, *sources, "-o", f"{name}.o")
        sizes[name] = [*map(int, run(tmp_path, "arm-none-eabi-size", f"{name}.o").splitlines()[-1].split()[:3])]
        run(tmp_path, "arm-none-eabi-objcopy", "-O", "binary", "--only-section=.text", f"{name}.o", f"{name}.bin")
    assert sizes["without"] == sizes["bare"]
    assert (tmp_path / "without.bin").read_bytes() == (tmp_path / "bare.bin").read_bytes()
    assert CHANNELS
    flash, ram, of_input, of_output = map(int, CHANNELS.groups())
    more = [one - other for one, other in zip(sizes["library1"], sizes["library0"], strict=True)]
    assert flash // 2 < more[0] + more[1] <= flash and more[1] + more[2] <= ram
    frames = 512 + 4 * (16 + 4 + 1)
    assert sizes["with"][2] - sizes["without"][2] <= frames + of_input + 3 * of_output


@pytest.mark.slow
def test_other_compilers_and_includers_warn_of_nothing(tmp_path: Path) -> None:
    includes = f"-I{LIBRARY.parent}", "-isystem", "/usr/lib/arm-none-eabi/include"
    for strict in (STRICT, (*STRICT, "-DHIL_CHANNELS=1")):
        if shutil.which("clang"):
            run(tmp_path, "clang", "--target=arm-none-eabi", *strict, *FLAGS["cortex-m4"], *includes, "-c", *SOURCES)
        run(tmp_path, "gcc", *strict, f"-I{LIBRARY.parent}", "-c", *SOURCES)
        run(tmp_path, "arm-none-eabi-gcc", *strict, "-flto", *FLAGS["cortex-m4"], includes[0], "-c", *SOURCES)
    source = tmp_path / "includer.cpp"
    source.write_text(
        '#include "hil_target.h"\n'
        "int main() {\n"
        "  static short x[4];\n"
        "  HIL_INPUT(x, x, sizeof x);\n"
        "  HIL_OUTPUT(y, x, sizeof x);\n"
        "  return hil_target_poll() ? 0 : 1;\n"
        "}\n"
    )
    warnings = "-std=c++11", "-pedantic", "-Wall", "-Wextra", "-Wshadow", "-Werror"
    for channels in (0, 1):
        run(tmp_path, "g++", *warnings, f"-DHIL_CHANNELS={channels}", f"-I{LIBRARY}", "-c", source)


PROJECT = """
cmake_minimum_required(VERSION 3.22)
project(product C CXX)
find_package(hil_target REQUIRED COMPONENTS builtin PATHS ${CMAKE_SOURCE_DIR}/library/target_library)
add_executable(product main.c)
target_link_libraries(product PRIVATE hil::target)
"""
MAIN = """
#include "hil_target.h"
static bool send(const uint8_t* bytes, size_t size) { return bytes != NULL && size > 0; }
int main(void) {
  hil_target target = {.build_id = "1", .configuration = "product", .firmware = "product 1", .write = send};
  const char* wrong = hil_target_start(&target);
  return wrong != NULL ? 0 : 1;
}
"""


@pytest.mark.slow
def test_a_project_of_cmake_finds_the_package(tmp_path: Path) -> None:
    write_target_library(tmp_path / "library")
    (tmp_path / "CMakeLists.txt").write_text(PROJECT)
    (tmp_path / "main.c").write_text(MAIN)
    run(tmp_path, "cmake", "-S", ".", "-B", "build", "-G", "Ninja", "-DCMAKE_BUILD_TYPE=Debug")
    run(tmp_path, "cmake", "--build", "build")
    run(tmp_path, "build/product")  # it says that there is nothing to read from


# --- the sample ----------------------------------------------------------------------------------------------

FAULTS_IN_ITS_CLOCK = (
    "uint64_t now(void) { return",
    "static int calls;\nuint64_t now(void) { if (++calls == 10) __builtin_trap(); return",
)
OWN_MACHINES = REPOSITORY / "tests" / "support" / "own_firmware_machines"
MACHINES: dict[str, tuple[str, dict[str, object], str]] = {
    "mps2-an386": ("cortex-m4", {"machine": "mps2-an386"}, "m4-qemu"),  # the sample's own
    "mps3-an547": ("cortex-m55", {"machine": "mps3-an547"}, "m55-qemu"),
    "microbit": (
        "cortex-m0",
        {
            "machine": "microbit",
            "args": ["-global", "nrf51-soc.sram-size=16777216", "-global", "nrf51-soc.flash-size=8388608"],
        },
        "m0-qemu",
    ),
}
COMPARED = ("tests/targets/test_linear.py", "tests/targets/test_methods.py")
NO_STEPS = ('.firmware = "bare-metal 1.0",', '.firmware = "bare-metal 1.0", .without = 1u << HIL_REQUEST_STEP,')


@pytest.fixture(scope="module")
def objects(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the sample, whose objects the tests share."""
    folder = tmp_path_factory.mktemp("own") / "firmware"
    shutil.copytree(SAMPLE, folder, ignore=shutil.ignore_patterns("build", "__pycache__"))
    write_target_library(folder / "build" / "hil_target")
    return folder


@pytest.fixture
def sample(objects: Path, request: pytest.FixtureRequest) -> Iterator[Resolved]:
    """The sample as a target, with `main.c` and `machine.c` changed as the test's parameter says."""
    right, wrong = getattr(request, "param", ("", ""))
    texts = {name: (SAMPLE / name).read_text() for name in ("main.c", "machine.c")}
    assert not right or sum(text.count(right) for text in texts.values()) == 1
    for name, text in texts.items():
        (objects / name).write_text(text.replace(right, wrong) if right else text)
    yield resolve("bare-metal", load_targets(objects / "targets.yaml"))


@pytest.mark.slow
def test_a_firmware_that_is_not_ours_gives_the_runners_bits(sample: Resolved) -> None:
    with flow.open_dut(sample) as dut, flow.open_dut(resolve("m4-qemu", load_targets())) as ours:
        theirs, runners = flow.run(dut, PROGRAM), flow.run(ours, PROGRAM)
        assert dut.session().identity.firmware == "bare-metal 1.0" and dut.session().identity.config.startswith("bare-")
        flow.selftest(dut)
    assert [one.data for one in theirs.outputs] == [one.data for one in runners.outputs]
    assert theirs.stats["method"].used == runners.stats["method"].used and 0 < theirs.stats["stack"].used < 64 * 1024


def outputs_of_a_nightly(
    folder: Path, targets: tuple[str, str], runtime: str
) -> dict[str, dict[str, tuple[str, object]]]:
    """Run COMPARED as a nightly; return verdict and digests of the outputs of each test, by target."""
    chosen = ["-t", ",".join(targets), "--targets-file", folder / "targets.yaml", "--runtime", runtime]
    store = ["--store", folder / "nightly.sqlite"]
    for call in (("nightly", *COMPARED, *chosen, *store), ("results", "show", "--json", *store)):
        done = subprocess.run(
            command_line.command(*call),
            cwd=REPOSITORY,
            env=command_line.environment(),
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
    found: dict[str, dict[str, tuple[str, object]]] = {target: {} for target in targets}
    for row in map(json.loads, done.stdout.splitlines()):
        if row["test"] != "(runner)":
            found[row["target"]][row["test"]] = row["verdict"], row["figures"].get("outputs")
    return found


@pytest.mark.slow
@pytest.mark.parametrize(
    ("folder", "runtime"),
    [
        *(pytest.param(folder, "builtin", id=f"{folder}-builtin") for folder in ("mps3-an547", "microbit")),
        *(pytest.param(folder, "executorch", id=f"{folder}-executorch") for folder in MACHINES),
    ],
)
def test_the_sample_on_other_machines_and_on_an_executorch_gives_the_runners_bits(
    folder: str, runtime: str, objects: Path, tmp_path: Path
) -> None:
    cpu, launcher, name = MACHINES[folder]
    runner = load_targets()[name]
    with installed_executorch(runner) if runtime == "executorch" else nullcontext():
        shutil.copytree(SAMPLE, tmp_path, ignore=shutil.ignore_patterns("build", "__pycache__"), dirs_exist_ok=True)
        if (OWN_MACHINES / folder).is_dir():
            shutil.copytree(OWN_MACHINES / folder, tmp_path, dirs_exist_ok=True)
        build = f"make LIBRARY={objects}/build/hil_target CPU='{' '.join(FLAGS[cpu])}'"
        if runtime == "executorch":
            install = find_install(runner)
            assert install is not None
            build += f" HIL_RUNTIME=executorch HIL_EXECUTORCH_PREFIX={directory_of(install, runner.cpu)}"
        entry = {
            "cpu": cpu, "board": "./board", "firmware": {"elf": "build/firmware.elf", "build": build},
            "runtime": runtime, "launcher": {"qemu": {**launcher, "link": "uart"}},
        }  # fmt: skip
        (tmp_path / "targets.yaml").write_text(json.dumps({"targets": {"own": entry}}))
        own = resolve("own", load_targets(tmp_path / "targets.yaml"))
        ours = resolve(name, load_targets(), runtime=runtime)
        known = known_answer(own.target.isa)
        program = replace(Program.from_bytes(known.program, "known_answer.pte"), inputs=known.inputs)
        with flow.open_dut(own) as dut, flow.open_dut(ours) as runners:
            said = dut.session().identity
            assert (said.firmware, said.runtime) == ("bare-metal 1.0", runtime)
            theirs = flow.run(dut, program)
            assert [one.data for one in theirs.outputs] == [one.data for one in flow.run(runners, program).outputs]
        found = outputs_of_a_nightly(tmp_path, ("own", name), runtime)
        assert found["own"] == found[name] and sum(verdict == "PASS" for verdict, _ in found["own"].values()) > 4


@pytest.mark.slow
def test_the_sample_keeps_its_word_on_a_virtual_board_whose_line_and_supply_fail(
    objects: Path, tmp_path: Path, user_path: str
) -> None:
    """By the command of its README, which runs the sample's own tests as well; the board is this test's alone."""
    shutil.copytree(objects, tmp_path / "sample")
    (tmp_path / "locks").mkdir(mode=0o700)
    (shown,) = (
        one for block in blocks((SAMPLE / "virtual_board" / "README.md").read_text()) for one in block.commands()
    )
    places = {"HIL_CACHE_DIR": str(tmp_path / "cache"), "HIL_LOCK_DIR": str(tmp_path / "locks")}
    environment = {**os.environ, "PATH": user_path, **places}
    done = subprocess.run(
        shlex.split(shown.command),
        cwd=tmp_path / "sample",
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert "6 passed" in done.stdout and done.returncode == 0, done.stdout + done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("sample", [FAULTS_IN_ITS_CLOCK], indirect=True)
def test_its_fault_is_reported_with_the_operator_and_the_next_boot_runs(sample: Resolved) -> None:
    with flow.open_dut(sample) as dut:
        with pytest.raises(TargetFault, match=r"UsageFault|HardFault") as caught:
            flow.run(dut, PROGRAM)
        assert caught.value.operator.startswith("cortex_m::") and "now" in str(caught.value)


@pytest.mark.slow
@pytest.mark.parametrize("sample", [NO_STEPS], indirect=True)
def test_what_it_does_not_answer_is_refused_and_the_rest_goes_on(sample: Resolved) -> None:
    with flow.open_dut(sample) as dut:
        with pytest.raises(NotOffered, match=r"bare-metal 1\.0 does not answer STEP"):
            list(steps(dut, PROGRAM, KNOWN.inputs))
        flow.run(dut, PROGRAM)


@pytest.mark.slow
def test_a_planted_error_in_the_feature_stage_is_named_by_the_samples_test(objects: Path, user_path: str) -> None:
    """And without it the test passes."""
    pipeline = objects / "pipeline.c"
    right = pipeline.read_text()
    planted = right.replace("(mean * 8u >> bits) - 8u", "(mean * 8u >> bits) - 7u")
    assert planted != right
    for text, said in ((planted, "the stage features departs first"), (right, "2 passed")):
        pipeline.write_text(text)
        command = ["pytest", "test_pipeline.py", "-p", "no:cacheprovider"]
        environment = {**os.environ, "PATH": user_path}
        done = subprocess.run(command, cwd=objects, env=environment, capture_output=True, text=True, check=False)
        assert said in done.stdout, done.stdout + done.stderr
        assert ("heard 0" in done.stdout) == (text == planted)  # its console is in the failure's report


@pytest.mark.slow
@pytest.mark.parametrize(
    "sample",
    [
        (
            "const uint8_t heard = listen(samples);",
            "const uint8_t heard = listen(samples);\n while (samples[0] == 77) {}",
        )
    ],
    indirect=True,
)
def test_a_stage_that_does_not_end_is_a_hang_and_the_next_boot_is_clean(sample: Resolved) -> None:
    frame = np.zeros(256, np.int16)
    with flow.open_dut(sample) as dut:
        app = flow.App(dut)
        app.send("mic_frame", frame)
        app.read("decision", "uint8")
        frame[0] = 77
        with pytest.raises(
            TargetHang, match="does not answer any more; after a restart the target passes its self-test"
        ):
            for _ in range(3):
                app.send("mic_frame", frame)
        again = flow.App(dut)
        again.send("mic_frame", np.zeros(256, np.int16))
        assert again.read("decision", "uint8").shape == (1,)


def test_a_build_that_fails_or_makes_nothing_is_told(tmp_path: Path) -> None:
    first, *_ = (SAMPLE / "targets.yaml").read_text().split("\n\n")
    entry = first.replace("./board", str(SAMPLE / "board"))
    for build, error, said in (
        ("echo 'main.c:3: error: no such thing' >&2; exit 2", BuildError, "main.c:3: error: no such thing"),
        ("true", ConfigError, "no .*build/firmware.elf"),
    ):
        (tmp_path / "targets.yaml").write_text(entry.replace("build: make", f"build: {json.dumps(build)}"))
        with pytest.raises(error, match=said):
            build_runner(load_targets(tmp_path / "targets.yaml")["bare-metal"])


def test_what_only_runners_can_be_is_refused() -> None:
    target = load_targets(SAMPLE / "targets.yaml")["bare-metal"]
    with pytest.raises(ConfigError, match=r"cannot be built with .*, only runners can"):
        build_runner(target, options={"HIL_TEST_KERNELS": "ON"})
    assert os.path.samefile(target.board.directory, SAMPLE / "board")
