"""Runners are built once, whole, and for the instruction set they claim. Builds by real compilers are cached."""

from __future__ import annotations

import dataclasses
import json
import os
import re
import select
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from cortex_m_hil import flow
from cortex_m_hil.errors import BuildError, ConfigError, ToolchainError, UnsupportedOperator
from cortex_m_hil.host import toolchain
from cortex_m_hil.host.paths import BISECT_CHECKOUTS, BISECT_WORKTREE, cache_directory
from cortex_m_hil.runner import build
from cortex_m_hil.runner.build import build_runner, portable_operators
from cortex_m_hil.runner.memory_files import write_memory_files
from cortex_m_hil.runner.region_overflow import overflowed
from cortex_m_hil.targets.connection import Elf
from cortex_m_hil.targets.load import load_board, load_targets
from cortex_m_hil.targets.resolve import Resolved, resolve
from cortex_m_hil.targets.target import Board, Target
from paths import IMPORT_ROOT, REPOSITORY

TARGETS = load_targets()
BUILDER = """
import sys
from cortex_m_hil.runner.build import build_runner
from cortex_m_hil.targets.load import load_targets
elf = build_runner(load_targets()[sys.argv[1]])
print(elf.path, elf.path.stat().st_mtime_ns)
"""


def program(folder: Path, name: str, script: str) -> Path:
    """An executable shell script."""
    folder.mkdir(exist_ok=True)
    path = folder / name
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return path


def put_first(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")


def builder(target: str, script: str = BUILDER) -> subprocess.Popen[str]:
    """A process of its own that builds."""
    return subprocess.Popen(
        [sys.executable, "-c", script, target],
        cwd=REPOSITORY,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(IMPORT_ROOT)},
    )


def leftovers(cache: Path) -> list[str]:
    """What lies in the cache beside locks."""
    return sorted(path.name for path in (cache / "runners").glob("*") if path.suffix != ".lock")


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache of its own, for the tests of the cache."""
    folder = tmp_path / "cache"
    monkeypatch.setenv("HIL_CACHE_DIR", str(folder))
    return folder


@pytest.fixture
def user_board(tmp_path: Path) -> Target:
    """m4-qemu with a copy of its board as a user's own."""
    folder = tmp_path / "acme"
    shutil.copytree(TARGETS["m4-qemu"].board.directory, folder)
    return on_board(TARGETS["m4-qemu"], folder)


def on_board(target: Target, folder: Path) -> Target:
    return dataclasses.replace(target, board=Board(folder.name, folder, target.board.memory))


# --- the cache -----------------------------------------------------------------------------------------------


def test_a_second_call_builds_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = build_runner(TARGETS["m4-qemu"])
    before = first.path.stat()
    for name in ("cmake", "ninja"):
        program(tmp_path / "bin", name, f"touch {tmp_path}/called; exit 1")
    put_first(monkeypatch, tmp_path / "bin")
    assert build_runner(TARGETS["m4-qemu"]) == first
    assert first.path.stat().st_mtime_ns == before.st_mtime_ns
    assert not (tmp_path / "called").exists()


def test_targets_of_one_configuration_share_one_runner() -> None:
    assert build_runner(TARGETS["m55-fvp"]) == build_runner(TARGETS["m55-qemu"])


def test_what_goes_into_the_build_is_in_the_key(
    cache: Path, user_board: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a cmake that only makes a file: keys, not compilers, are the subject."""
    fake = program(cache.parent / "bin", "cmake", fake_cmake("echo elf"))
    put_first(monkeypatch, fake.parent)
    keys = [build_runner(user_board).build_id]
    keys.append(build_runner(user_board, options={"HIL_TEST_KERNELS": "ON"}).build_id)
    memory = user_board.board.memory.resized(method=1024)
    keys.append(
        build_runner(
            dataclasses.replace(user_board, board=dataclasses.replace(user_board.board, memory=memory))
        ).build_id
    )
    with (user_board.board.directory / "board.cpp").open("a") as source:
        source.write("// a change\n")
    keys.append(build_runner(user_board).build_id)
    assert len(set(keys)) == len(keys)
    assert leftovers(cache) == sorted(keys)
    (user_board.board.directory / "README.md").write_text("no part of the build")
    assert build_runner(user_board).build_id == keys[-1]


@pytest.mark.first_only
@pytest.mark.parametrize(
    "damage",
    ["one byte", "empty", "cut", "gone", "a folder", "a pipe", "a link to nowhere", "no digest", "another digest"],
)
def test_a_damaged_runner_is_built_again(
    cache: Path, user_board: Target, monkeypatch: pytest.MonkeyPatch, damage: str
) -> None:
    fake = program(cache.parent / "bin", "cmake", fake_cmake("echo a runner"))
    put_first(monkeypatch, fake.parent)
    elf = build_runner(user_board)
    whole = elf.path.read_bytes()
    digest = elf.path.with_name("runner.elf.sha256")
    hurt = digest if "digest" in damage else elf.path
    match damage:
        case "one byte":
            hurt.write_bytes(b"A" + whole[1:])
        case "empty" | "cut":
            hurt.write_bytes(whole[: len(whole) // 2 if damage == "cut" else 0])
        case "another digest":
            hurt.write_text("0" * 64)
        case _:
            hurt.unlink()
    if damage == "a folder":
        hurt.mkdir()
    elif damage == "a pipe":
        os.mkfifo(hurt)
    elif damage == "a link to nowhere":
        hurt.symlink_to("nowhere")
    assert build_runner(user_board) == elf
    assert elf.path.read_bytes() == whole
    assert "built again" in (elf.path.parent / "build.log").read_text()
    before = elf.path.stat().st_mtime_ns
    assert build_runner(user_board) == elf
    assert elf.path.stat().st_mtime_ns == before
    assert leftovers(cache) == [elf.build_id]


def test_a_cache_that_cannot_be_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    for place in ("file", "file/below", "/proc/nowhere"):
        monkeypatch.setenv("HIL_CACHE_DIR", str(tmp_path / place))
        with pytest.raises(BuildError, match="cannot write the runner to") as caught:
            build_runner(TARGETS["m4-qemu"])
        assert caught.value.hint == "is HIL_CACHE_DIR right, and writable?"


def test_a_cache_may_be_named_from_where_we_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HIL_CACHE_DIR", "here")
    assert cache_directory() == tmp_path / "here"


@pytest.mark.slow
def test_an_unchanged_copy_of_a_board_is_a_configuration_of_its_own(user_board: Target) -> None:
    """Its runner says the copy's name in its handshake, so it cannot share the original's."""
    assert build_runner(user_board).build_id != build_runner(TARGETS["m4-qemu"]).build_id


@pytest.mark.slow
def test_a_board_may_leave_portable_operators_out() -> None:
    board = dataclasses.replace(TARGETS["native"].board, portable=False)
    small = dataclasses.replace(TARGETS["native"], board=board)
    program = flow.lower(torch.nn.ReLU(), (torch.randn(2, 3),), isa=small.isa, quantize=False)
    with flow.open_dut(resolve("native", {"native": small})) as dut:
        operators = set(dut.session().identity.operators)
        assert "aten::add.out" in operators and not operators & set(portable_operators())
        with pytest.raises(UnsupportedOperator, match=r"the runner has no aten::relu\.out"):
            flow.run(dut, program)
    assert "aten::relu.out" in portable_operators()


def test_a_users_board_boots(user_board: Target) -> None:
    with flow.open_dut(Resolved(user_board, user_board, "builtin")) as dut:
        flow.selftest(dut)
        assert dut.session().identity.config == "cortex-m4/dsp/acme"


def fake_cmake(make_elf: str) -> str:
    """A cmake whose `--build DIR` puts what `make_elf` prints into DIR/runner.elf."""
    lines = (
        '[ "$1" = --version ] && exec echo cmake version 3.25.1',
        '[ "$1" = --build ] || exit 0',
        'mkdir -p "$2"',
        f'{make_elf} > "$2/runner.elf"',
    )
    return "\n".join(lines)


def hold_open(gate: Path, process: subprocess.Popen[str]) -> int:
    """Opens the fifo that the fake cmake of `process` reads, once it does: until it is closed, the build goes on."""
    while process.poll() is None:
        try:
            return os.open(gate, os.O_WRONLY | os.O_NONBLOCK)
        except OSError:  # no reader yet
            time.sleep(0.01)
    raise AssertionError(process.communicate())


def stuck_build(
    folder: Path, monkeypatch: pytest.MonkeyPatch, script: str = BUILDER
) -> tuple[subprocess.Popen[str], int]:
    """A process that builds for as long as the fifo is open, to which its fake cmake's child listens."""
    gate = folder / "gate"
    os.mkfifo(gate)
    program(folder / "bin", "cmake", fake_cmake(f"(echo half; cat {gate}; echo whole)"))
    put_first(monkeypatch, folder / "bin")
    process = builder("m0-qemu", script)
    return process, hold_open(gate, process)


def nobody_reads(fifo: int) -> bool:
    """Whether every reader of the fifo is gone; some seconds are left to the kernel for that."""
    poll = select.poll()
    poll.register(fifo, 0)  # errors are always reported
    return bool(poll.poll(20_000))


def test_two_processes_build_one_key_once(cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls, gate = tmp_path / "calls", tmp_path / "gate"
    os.mkfifo(gate)
    program(tmp_path / "bin", "cmake", f'echo "$1" >> {calls}\n' + fake_cmake(f"(echo elf; cat {gate})"))
    put_first(monkeypatch, tmp_path / "bin")
    loud = "import logging; logging.basicConfig(level=logging.DEBUG)\n" + BUILDER  # filelock says that it waits
    first = builder("m0-qemu")
    opened = hold_open(gate, first)
    second = builder("m0-qemu", loud)
    assert second.stderr is not None
    assert any("not acquired" in line for line in second.stderr)
    os.close(opened)
    outputs = [process.communicate(timeout=60) for process in (first, second)]
    assert [first.returncode, second.returncode] == [0, 0], outputs
    assert outputs[0][0] == outputs[1][0] != ""
    assert [call for call in calls.read_text().split() if call != "--version"] == ["-S", "--build"]
    assert len(leftovers(cache)) == 1


def test_a_killed_build_leaves_nothing_that_looks_finished(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    process, opened = stuck_build(tmp_path, monkeypatch)
    process.kill()
    process.communicate()
    assert nobody_reads(opened)  # what cmake had started ended too
    os.close(opened)
    assert len(leftovers(cache)) == 1
    program(tmp_path / "bin", "cmake", fake_cmake("echo whole"))
    elf = build_runner(TARGETS["m0-qemu"])
    assert elf.path.read_text() == "whole\n"
    assert leftovers(cache) == [elf.build_id]


IMPATIENT = """
from cortex_m_hil.errors import BuildError
from cortex_m_hil.host import timeouts
from cortex_m_hil.runner import build
from cortex_m_hil.targets.load import load_targets
timeouts.RUNNER_BUILD = 2.0
try:
    build.build_runner(load_targets()["m0-qemu"])
except BuildError as error:
    print(error.message)
"""


def test_a_build_without_an_end_is_ended_with_all_it_started(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    process, opened = stuck_build(tmp_path, monkeypatch, IMPATIENT)
    out, errors = process.communicate(timeout=60)
    assert out.startswith("no end after 2 s: "), errors
    assert nobody_reads(opened)
    os.close(opened)
    assert leftovers(cache) == []


# --- builds that fail ----------------------------------------------------------------------------------------


@pytest.mark.slow
def test_ccache_changes_nothing_but_the_time(cache: Path, user_board: Target, monkeypatch: pytest.MonkeyPatch) -> None:
    with_ccache = build_runner(user_board).path.read_bytes()
    assert any((cache / "objects").iterdir())
    shutil.rmtree(cache)
    monkeypatch.setattr(build, "_ccache", lambda *_: [])
    assert build_runner(user_board).path.read_bytes() == with_ccache
    assert not (cache / "objects").exists()


def test_ccache_is_found_by_a_relative_entry_of_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Builds call it in their own folder."""
    program = tmp_path / "tools" / "ccache"
    program.parent.mkdir()
    program.touch(0o755)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", "tools")
    for definition in build._ccache("cmake", tmp_path / "build"):
        assert definition.endswith(f";{program}")


def test_no_runner_is_built_for_a_bisected_commit_without_the_board(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That of the checkout would be the wrong code under test. Targets that are not used do not matter."""
    checkout, worktree = tmp_path / "checkout", tmp_path / "worktree"
    shutil.copytree(TARGETS["m4-qemu"].board.directory, checkout / "acme")
    worktree.mkdir()
    file = checkout / "targets.yaml"
    file.write_text("targets:\n  mine: {cpu: cortex-m4, board: ./acme, launcher: {qemu: {machine: mps2-an386}}}\n")
    monkeypatch.setenv(BISECT_WORKTREE, str(worktree))
    monkeypatch.setenv(BISECT_CHECKOUTS, json.dumps([str(checkout)]))
    target = load_targets(file)["mine"]
    with pytest.raises(BuildError, match=f"no folder {worktree / 'acme'} for the board"):
        build_runner(target)


def test_a_broken_board_shows_the_compilers_first_error(user_board: Target) -> None:
    source = user_board.board.directory / "board.cpp"
    source.write_text('#include "platform/board.h"\n' + "".join(f"int x{n} = nowhere_{n};\n" for n in range(60)))
    with pytest.raises(BuildError) as caught:
        build_runner(user_board)
    error = caught.value
    assert error.target == "m4-qemu"
    assert "board.cpp:2:10: error: 'nowhere_0' was not declared in this scope" in error.message
    assert "cortex-m4/dsp/acme" in error.message


POOLS = """
char program[{program}] __attribute__((section(".noinit.program_pool"), aligned(16), used));
char planned[{planned}] __attribute__((section(".noinit.bank_psram"), aligned(16), used));
char method[{method}] __attribute__((section(".noinit.method_pool"), aligned(16), used));
char variable[1024] = {{1}};
const char code[{code}] __attribute__((used)) = {{1}};
void Reset_Handler(void) {{}}
"""


def linked(folder: Path, target: Target, code: int = 1000) -> Elf:
    """What a board's `board.yaml` puts into memory, by the real linker, without a firmware to compile."""
    target = on_board(target, target.board.directory)
    target = dataclasses.replace(target, board=load_board(target.board.directory))
    memory = target.board.memory
    sizes = {"program": memory.program.size, "planned": memory.planned, "method": memory.method.size}
    (target.board.directory / "pools.c").write_text(POOLS.format(**sizes, code=code))
    made = target.board.directory / "pools.elf"  # not /dev/stdout: the linker would remove the device's link
    write_memory_files(target.board, folder / "memory")
    script = f"-T {folder}/memory/runner.ld -L {folder}/memory -L {REPOSITORY}/firmware/platform"
    compiled = f"-nostdlib -mcpu=cortex-m4 -mthumb {script} {target.board.directory}/pools.c -o {made} && cat {made}"
    program(folder / "bin", "cmake", f"{fake_cmake(f'arm-none-eabi-gcc {compiled}')} || exit 1")
    return build_runner(target)


def test_a_region_that_overflows_is_told_with_the_key_and_the_value_that_fits(
    cache: Path, user_board: Target, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By what is only known after the link: code and variables."""
    put_first(monkeypatch, tmp_path / "bin")
    description = user_board.board.directory / "board.yaml"
    description.write_text(description.read_text().replace("ram, size: 256K}", "ram, size: 4122624}"))
    with pytest.raises(BuildError, match=r"region ram overflows by [0-9]+ bytes") as caught:
        linked(tmp_path, user_board)
    told = str(caught.value)
    assert told.startswith("the runner does not fit the memory of cortex-m4/dsp/acme: region ram overflows by ")
    assert "in ram: stack 68K, method 4026K, variables\n" in told and "hil doctor" not in told
    assert f"a larger ram, if the part has more ({description}:6)" in caught.value.hint
    fits, place = re.findall(r"method at most (\w+) \((\S+)\)", caught.value.hint)[0]
    assert place == f"{description}:12"
    description.write_text(description.read_text().replace("4122624", fits))
    assert linked(tmp_path, user_board).path.is_file()
    with pytest.raises(BuildError, match=r"region code overflows by [0-9]+ bytes") as caught:
        linked(tmp_path, user_board, code=5 << 20)
    assert f"portable: false in {description}" in caught.value.hint and f"{description}:5" in caught.value.hint


@pytest.mark.parametrize(
    ("log", "regions"),
    [
        ("ld: region `ram' overflowed by 1 byte\nld: region `flash' overflowed by 20 bytes", {"ram": 1, "flash": 20}),
        ("ld.lld: error: section '.bss' will not fit in region 'ram': overflowed by 16 bytes\nld.lld: error: section "
         "'.bank_ram' will not fit in region 'ram': overflowed by 4096 bytes", {"ram": 4096}),
        ("ld: cannot find -lm", {}),
    ],
)  # fmt: skip
def test_what_linkers_say_of_regions(log: str, regions: dict[str, int]) -> None:
    assert overflowed(log) == regions


def test_an_unknown_runtime_is_a_config_error() -> None:
    with pytest.raises(ConfigError, match="unknown runtime 'builtim'") as caught:
        build_runner(TARGETS["m4-qemu"], "builtim")
    assert "builtin" in caught.value.hint


@pytest.mark.parametrize(
    ("present", "missing", "package"),
    [
        ([], "arm-none-eabi-g++", "gcc-arm-none-eabi"),
        (["arm-none-eabi-g++"], "flatc", "flatbuffers-compiler"),
        (["arm-none-eabi-g++", "flatc"], "cmake", "apt-get install cmake"),
        (["arm-none-eabi-g++", "flatc", "cmake"], "ninja", "ninja-build"),
    ],
)
def test_a_missing_tool_is_named_with_its_package(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, present: list[str], missing: str, package: str
) -> None:
    tools = tmp_path / "bin"
    tools.mkdir()
    for name in present:
        path = toolchain.flatbuffers().flatc.path if name == "flatc" else Path(shutil.which(name) or "")
        (tools / name).symlink_to(path)
    monkeypatch.setenv("PATH", str(tools))
    with pytest.raises(ToolchainError, match=re.escape(missing)) as caught:
        build_runner(TARGETS["m0-qemu"])
    assert "apt-get install" in caught.value.hint
    assert package in caught.value.hint
    assert not (cache / "runners").exists() or leftovers(cache) == []


def test_a_cache_that_cannot_be_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("HIL_CACHE_DIR", str(tmp_path / "file" / "cache"))
    with pytest.raises(BuildError, match="Not a directory"):
        build_runner(TARGETS["m0-qemu"])


LIMITED = """
import resource, sys
from cortex_m_hil.runner.build import build_runner
from cortex_m_hil.errors import BuildError
from cortex_m_hil.targets.load import load_targets
resource.setrlimit(resource.RLIMIT_FSIZE, (64 << 10, resource.RLIM_INFINITY))
try:
    build_runner(load_targets()[sys.argv[1]])
except BuildError as error:
    print(error.describe())
"""


@pytest.mark.slow
def test_a_disk_too_full_to_compile(cache: Path) -> None:
    """No file may grow past 64 KiB: what a full disk does, to the compiler and its tools."""
    out, errors = builder("m0-qemu", LIMITED).communicate(timeout=300)
    assert out.startswith("BuildError: "), errors
    assert leftovers(cache) == []


def test_a_disk_too_full_for_the_finished_runner(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The build succeeds (its soft limit is lifted), putting the runner into the cache does not."""
    script = "ulimit -S -f unlimited\n" + fake_cmake("head -c 1000000 /dev/zero")
    put_first(monkeypatch, program(cache.parent / "bin", "cmake", script).parent)
    out, errors = builder("m0-qemu", LIMITED).communicate(timeout=300)
    assert out.startswith("BuildError: cannot write the runner to "), errors
    assert "File too large" in out
    assert leftovers(cache) == []


# --- ARMv6-M -------------------------------------------------------------------------------------------------

# Armv6-M ARM, A6.7: every 16-bit instruction, as GNU objdump spells it.
NARROW = frozenset(
    [
        "adcs",
        "add",
        "adds",
        "add.n",
        "ands",
        "asrs",
        "b",
        "b.n",
        "bics",
        "bkpt",
        "blx",
        "bx",
        "cmn",
        "cmp",
        "cpsid",
        "cpsie",
        "eors",
        "ldmia",
        "ldr",
        "ldrb",
        "ldrh",
        "ldrsb",
        "ldrsh",
        "lsls",
        "lsrs",
        "mov",
        "movs",
        "muls",
        "mvns",
        "negs",
        "nop",
        "orrs",
        "pop",
        "push",
        "rev",
        "rev16",
        "revsh",
        "rors",
        "rsbs",
        "sbcs",
        "sev",
        "stmia",
        "str",
        "strb",
        "strh",
        "sub",
        "subs",
        "svc",
        "sxtb",
        "sxth",
        "tst",
        "udf",
        "uxtb",
        "uxth",
        "wfe",
        "wfi",
        "yield",
    ]
)
CONDITIONS = ["eq", "ne", "cs", "cc", "mi", "pl", "vs", "vc", "hi", "ls", "ge", "lt", "gt", "le"]
BRANCHES = frozenset(f"b{condition}{suffix}" for condition in CONDITIONS for suffix in ("", ".n"))
WIDE = frozenset({"bl", "msr", "mrs", "dmb", "dsb", "isb", "udf.w"})
DATA = frozenset({".word", ".short", ".byte"})
LINE = re.compile(r"^ *[0-9a-f]+:\t(?P<code>[0-9a-f ]+?)\s*\t(?P<name>\S+)(?P<rest>.*)$")


def disassembly(elf: Elf, *options: str) -> Iterator[tuple[int, str, str]]:
    """(bytes of code, mnemonic, line) of everything in executable sections."""
    tool = toolchain.find("arm-none-eabi-objdump").path
    done = subprocess.run([tool, "-d", *options, elf.path], capture_output=True, text=True, check=True)
    for line in done.stdout.splitlines():
        if found := LINE.match(line):
            yield len(found["code"].replace(" ", "")) // 2, found["name"], line.strip()


def beyond_armv6m(elf: Elf) -> list[str]:
    """Lines that are no ARMv6-M instruction."""
    return [
        line
        for size, name, line in disassembly(elf)
        if name not in DATA and name not in (NARROW | BRANCHES if size == 2 else WIDE)
    ]


@pytest.mark.first_only
@pytest.mark.parametrize("name", ["m0-qemu", "m0plus-fvp", "rpi-pico"])
@pytest.mark.parametrize("kernels", [{}, {"HIL_TEST_KERNELS": "ON"}], ids=["runner", "test-kernels"])
def test_the_smallest_cores_get_armv6m_code_only(name: str, kernels: dict[str, str]) -> None:
    elf = build_runner(TARGETS[name], options=kernels)
    assert beyond_armv6m(elf) == []
    assert sum(1 for _ in disassembly(elf)) > 10_000  # the disassembly was understood


def test_the_check_for_armv6m_finds_what_a_cortex_m4_adds() -> None:
    names = {line.split("\t")[2] for line in beyond_armv6m(build_runner(TARGETS["m4-qemu"]))}
    assert {"cbz", "udiv", "ldr.w", "movw", "vmov"} <= names
    assert any(name.startswith("it") for name in names)


# --- overrides -----------------------------------------------------------------------------------------------

# Arm v8-M ARM, C1.2: what the DSP extension adds, but for the saturating shifts of MVE.
DSP = re.compile(
    r"pkh(bt|tb)|qd?(add|sub)|sel|[su]xtab(16)?|[su]xtb16|[su]sat16|usada?8|umaal"
    r"|([qsu]|sh|uh|uq)(add8|add16|sub8|sub16|asx|sax)"
    r"|sml(a|s)l?dx?|smu(a|s)dx?|smlal?(bb|bt|tb|tt)|smul(bb|bt|tb|tt)|sm(la|ul)w[bt]|smm(la|ls|ul)r?"
)
# Vectors are q registers; predication, tail-predicated loops and long shifts have names of their own.
MVE = re.compile(r"\bq[0-7]\b|\t(vctp\.|(vpst|vpnot|[dw]lstp|letp|asrl|lsrl|lsll|[su]?q?r?sh[lr]l)\b)")


def dsp_instructions(elf: Elf) -> list[str]:
    return [line for _, name, line in disassembly(elf) if DSP.fullmatch(name.removesuffix(".w"))]


def mve_instructions(elf: Elf) -> list[str]:
    # Without -m objdump shows vectors as coprocessor instructions, of an ELF for a Cortex-M55 too.
    return [line for _, _, line in disassembly(elf, "-m", "armv8.1-m.main") if MVE.search(line)]


def slow(*names: str) -> list[Any]:
    """Targets whose runners are built for the nightly only."""
    return [pytest.param(name, marks=pytest.mark.slow) for name in names]


@pytest.mark.parametrize("name", ["m0-qemu", *slow("m55-scalar-qemu", "m33-scalar-qemu", "m3-qemu")])
def test_scalar_runners_have_no_dsp_instructions(name: str) -> None:
    assert dsp_instructions(build_runner(TARGETS[name])) == []


@pytest.mark.parametrize("name", ["m4-qemu", *slow("m33-qemu", "m55-dsp-qemu", "m55-scalar-qemu")])
def test_dsp_and_scalar_runners_have_no_mve_instructions(name: str) -> None:
    assert mve_instructions(build_runner(TARGETS[name])) == []


@pytest.mark.parametrize("name", ["m4-qemu", *slow("m33-qemu", "m55-dsp-qemu")])
def test_the_check_for_dsp_finds_the_dot_products_that_use_it(name: str) -> None:
    assert any("smlad" in line for line in dsp_instructions(build_runner(TARGETS[name])))


def test_the_check_for_mve_finds_the_dot_products_that_use_it() -> None:
    found = mve_instructions(build_runner(TARGETS["m55-qemu"]))
    assert any(line.split("\t")[2].startswith("vmla") for line in found)
    assert any("vctp" in line for line in found)
