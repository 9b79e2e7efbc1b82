"""`hil` as a user meets it: real builds, real simulators, and everything one can get wrong."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import psutil
import pytest
from typer.main import get_command

import cortex_m_hil
from command_line import (
    CANNOT_TELL,
    FIRST_BUILD,
    FROZEN,
    NO,
    OK,
    Done,
    Files,
    Hil,
    answer,
    command,
    descendant,
    environment,
    expect,
    running,
    spawn,
)
from cortex_m_hil.boards.virtual import vboard
from cortex_m_hil.boards.virtual.machines import MACHINES
from cortex_m_hil.boards.virtual.serial_line import Faults
from cortex_m_hil.checks.input_checks import Taken
from cortex_m_hil.checks.lint_rules.hints import UNLINTED
from cortex_m_hil.cli import program_files as cli_files
from cortex_m_hil.cli.__main__ import load_commands, overview, renamed
from cortex_m_hil.cli.commands.targets import _for_people
from cortex_m_hil.cli.option_names import options_named
from cortex_m_hil.cli.progress import Progress
from cortex_m_hil.errors import ConfigError, LaunchError, Mismatch
from cortex_m_hil.program.known_answer import known_answer
from cortex_m_hil.program.schema import ValueKind
from cortex_m_hil.program.tensor import Array, TensorSpec
from cortex_m_hil.targets.cpu import Isa
from paths import REPOSITORY


def links(folder: Path, *, without: str) -> str:
    """A PATH of this machine's build tools but those that begin with `without`."""
    folder.mkdir()
    prefixes = ("arm-none-eabi-", "qemu-system-arm", "cmake", "ninja", "flatc", "setpriv")
    for tool in Path("/usr/bin").iterdir():
        if tool.name.startswith(prefixes) and not tool.name.startswith(without):
            (folder / tool.name).symlink_to(tool)
    # flatc's headers are looked for beside it.
    (folder.parent / "include").symlink_to("/usr/include")
    return str(folder)


# --- what it says --------------------------------------------------------------------------------------------


def test_help_lists_the_commands(hil: Hil) -> None:
    done = hil("--help")
    assert done.status == OK
    for name in ("doctor", "targets", "build", "lint", "run", "inspect"):
        assert re.search(rf"^  {name} ", done.out, re.MULTILINE)


GROUPS = ["bisect", "board", "dev", "dev fvp-shim", "doctor", "doctor cache", "executorch", "inspect", "results"]


@pytest.mark.parametrize("group", [(), *(tuple(name.split()) for name in GROUPS)], ids=str)
def test_help_says_what_each_command_does_in_a_sentence(hil: Hil, group: tuple[str, ...]) -> None:
    listed = re.findall(r"^  [a-z][a-z-]* {2,}(?!-).*", hil(*group, "--help").out.partition("--help ")[2], re.MULTILINE)
    assert listed and all(line.endswith(".") and not line.endswith("...") for line in listed)


def test_version(hil: Hil) -> None:
    assert hil("--version") == Done(OK, f"hil {cortex_m_hil.__version__}\n", "")


def test_targets_name_what_really_runs(hil: Hil, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    done = hil("targets")
    row = next(line for line in done.out.splitlines() if line.startswith("m4-fvp "))
    assert re.search(r"cortex-m4 +DSP +mps2 +fvp FVP_MPS2_Cortex-M4 +m4-qemu on QEMU [\d.]+ \(.* is not on PATH\)", row)
    assert "\x1b" not in done.out


def test_memory_is_told_in_the_units_of_board_yaml() -> None:
    memory = {"program": 8 << 20, "banks": {"dtcm": 512, "ddr": 4 << 20}, "method": 1 << 10, "shared": 0}
    row = {"runnable": False, "reason": "", "memory": memory, "runtime": "builtin", "runtime_misfit": False}
    assert _for_people(row)["memory"] == "program 8M method 1K dtcm 512 ddr 4M"


@pytest.mark.parametrize("words", [["bench"], ["bench", "x.pte"], ["bench", "kernels", "x.pte"]])
def test_a_command_of_before_says_what_it_is_now(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert renamed(words) == ["profile", *words[1:][-1:]]
    assert capsys.readouterr().err.endswith(" is now hil profile\n")


def test_targets_of_the_current_folder_are_added(hil: Hil, tmp_path: Path) -> None:
    (tmp_path / "targets.yaml").write_text(FROZEN)
    assert re.findall("^(frozen|m4-qemu) ", hil("targets").out, re.MULTILINE) == ["m4-qemu", "frozen"]


def test_targets_of_a_named_file_are_added(hil: Hil, tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text(FROZEN)
    assert "frozen" in hil("targets", "--targets-file", tmp_path / "mine.yaml").out
    assert "frozen" not in hil("targets").out


def test_the_default_file_adds_nothing_to_itself(hil: Hil, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(REPOSITORY)
    assert hil("targets").status == OK


# --- build, selftest -----------------------------------------------------------------------------------------


def test_build_tells_path_identity_and_sizes(hil: Hil) -> None:
    done = hil("build", "--target", "m4-fvp")
    assert done.status == OK
    path = re.search(r"^runner +(.*)$", done.out, re.MULTILINE)
    assert path and Path(path[1]).read_bytes()[:4] == b"\x7fELF"
    assert f"build id  {Path(path[1]).parent.name}" in done.out
    assert "m4-fvp → m4-qemu · builtin (no ExecuTorch or CMSIS-NN code executed)" in done.out
    assert re.search(r"^size +text \d{4,}, data \d+, bss \d+$", done.out, re.MULTILINE)


def test_build_shows_its_log(hil: Hil) -> None:
    assert "runner.elf" in hil("build", "-t", "m4-qemu", "--verbose").err


def test_selftest_of_globs_and_lists(hil: Hil) -> None:
    done = hil("doctor", "selftest", "--target", "m4*,m0-qemu", "--target", "native")
    assert done.status == OK
    assert re.findall(r"^(PASS|FAIL)  (\S+(?: → \S+)?)", done.out, re.MULTILINE) == [
        ("PASS", "m4-fvp → m4-qemu"),
        ("PASS", "m4-qemu"),
        ("PASS", "m0-qemu"),
        ("PASS", "native"),
    ]
    assert done.out.count("(no ExecuTorch or CMSIS-NN code executed)") == 4


@pytest.mark.slow
def test_selftest_goes_on_after_a_failure(hil: Hil, tmp_path: Path) -> None:
    launcher = "{qemu: {machine: mps2-an386, args: [-cpu, no-such-cpu]}}"
    bad = f"targets: {{bad: {{cpu: cortex-m4, board: mps2, launcher: {launcher}}}}}"
    (tmp_path / "targets.yaml").write_text(bad)
    done = hil("doctor", "selftest", "--target", "bad,m4-qemu")
    assert done.status == NO
    assert re.search(r"^FAIL  bad: LaunchError: .*\n  → .*; --verbose shows the log$", done.out, re.MULTILINE)
    assert "PASS  m4-qemu" in done.out
    assert "no-such-cpu" in hil("doctor", "selftest", "--target", "bad", "--verbose").err


# --- several targets -----------------------------------------------------------------------------------------

BROKEN = """
targets:
  broken: {cpu: cortex-m4, board: mps2, launcher: {qemu: no-such-machine}}
"""


@pytest.mark.slow
def test_one_broken_target_does_not_stop_the_others(hil: Hil, files: Files, tmp_path: Path) -> None:
    """A verdict is 1, what cannot be told 2, and the command's exit status the highest."""
    (tmp_path / "targets.yaml").write_text(BROKEN)
    arguments = ("run", files.pte, "-i", files.input)
    done = hil(*arguments, "-t", "m55-qemu,broken", "-t", "m4-q*")
    assert done.status == CANNOT_TELL
    assert re.findall(r"^ran +(\S+)", done.out, re.MULTILINE) == ["m4-qemu"]
    assert re.findall(r"^(\S+): (\w+): ", done.err, re.MULTILINE) == [
        ("m55-qemu", "LintError"),
        ("broken", "ConfigError"),
    ]
    assert hil(*arguments, "-t", "m55-qemu,m4-qemu").status == NO
    assert hil(*arguments, "-t", "m4-qemu,native").status == OK


@pytest.mark.slow
def test_lint_and_build_of_several_targets(hil: Hil, files: Files, tmp_path: Path) -> None:
    done = hil("lint", files.pte, "-t", "m55-qemu,m0-qemu")
    assert done.status == NO
    assert re.findall(r"pte (fits|does not fit) (\S+)[:;]", done.out, re.MULTILINE) == [
        ("does not fit", "m55-qemu"),
        ("fits", "m0-qemu"),
    ]
    folder = "targets: {nowhere: {cpu: cortex-m4, board: ./board, launcher: {qemu: mps2-an386}}}"
    shutil.copytree(REPOSITORY / "firmware" / "boards" / "mps2", tmp_path / "board")
    (tmp_path / "board" / "board.cpp").write_text("#error no board\n")
    (tmp_path / "targets.yaml").write_text(folder)
    done = hil("build", "-t", "nowhere,m4-qemu")
    assert (done.status, done.out.count("runner    ")) == (CANNOT_TELL, 1)
    assert done.err.startswith("nowhere: BuildError: ") and "#error no board" in done.err


def test_outputs_are_written_for_one_target(hil: Hil, files: Files) -> None:
    done = hil("run", files.pte, "-t", "m4-qemu,native", "-i", files.input, "-o", "y.npy")
    expect(done, CANNOT_TELL, "ConfigError: --output is for one target", "hil run for each target")


@pytest.mark.parametrize("name", ["build", "lint", "run", "doctor selftest"])
def test_an_empty_target_list_is_a_config_error(hil: Hil, files: Files, name: str) -> None:
    program = [files.pte] if name in ("lint", "run") else []
    expect(hil(*name.split(), *program, "--target", ","), CANNOT_TELL, "ConfigError: no target is named", "hil targets")


# --- progress --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("seconds", "between"), [(3600.0, []), (0.0, ["m4: builds 2 of 9"])])
def test_a_long_work_tells_how_far_it_is_now_and_then(
    seconds: float, between: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """Into a pipe; what it does next is told at once."""
    with Progress("m4", seconds) as told:
        for text in ("builds", "builds 2 of 9", "installs"):
            told(text)
    assert capsys.readouterr().err.splitlines() == ["m4: builds", *between, "m4: installs"]


# --- lint ----------------------------------------------------------------------------------------------------


def test_lint_of_a_clean_program_is_one_line(hil: Hil, files: Files) -> None:
    done = hil("lint", files.pte, "--target", "m4-qemu")
    assert (done.status, done.err) == (OK, "")
    assert re.fullmatch(
        r".*small.pte fits m4-qemu: 3 operators in 3 calls, 80 of 4194304 planned bytes, "
        r"\d+ of 8388608 program bytes, DSP/SCALAR layout; "
        r"NOT checked: method pool and stack \(hil inspect fit measures them\)\n",
        done.out,
    )


def test_lint_finds_the_wrong_layout(hil: Hil, files: Files) -> None:
    files.pte.write_bytes(known_answer(Isa.MVE).program)
    done = hil("lint", files.pte, "--target", "m4-qemu")
    assert done.status == NO
    assert done.out.startswith("error: layout: operator 1") and "fits" not in done.out
    assert "\n  → lower the module for this target's ISA class\n" in done.out
    assert "\nsmall.pte does not fit m4-qemu; NOT checked: method" in done.out.replace(f"{files.pte.parent}/", "")


@pytest.mark.slow
def test_lint_without_a_compiler_says_what_it_did_not_check(files: Files, tmp_path: Path) -> None:
    path = links(tmp_path / "bin", without="arm-none-eabi")
    done = spawn("lint", files.pte, "-t", "m4-qemu", cwd=tmp_path, PATH=path, HIL_CACHE_DIR=str(tmp_path / "cache"))
    assert done.status == OK
    assert "NOT checked: whether the runner has these operators (arm-none-eabi-g++ is not on PATH" in done.out
    assert done.out.endswith("); method pool and stack (hil inspect fit measures them)\n")


# --- run -----------------------------------------------------------------------------------------------------


def test_run_writes_the_right_answer(hil: Hil, files: Files, tmp_path: Path) -> None:
    out = tmp_path / "out.npy"
    done = hil("run", files.pte, "-t", "m4-fvp", "--input", files.input, "--output", out)
    assert (done.status, done.err) == (OK, "")
    np.testing.assert_array_equal(np.load(out), files.expected)
    assert re.search(r"^ran +m4-fvp → m4-qemu · builtin \S+ on QEMU [\d.]+ \(no ExecuTorch", done.out, re.MULTILINE)
    assert f"output 0  float32[1, 8]: {files.expected[0, 0]!s} " in done.out
    assert re.search(
        r"^peaks +program \d+ of 8388608 bytes, planned 80 of 4194304 bytes, method \d+ .* bytes$", done.out, re.M
    )
    assert re.search(r"^executed +\d+ instructions$", done.out, re.MULTILINE)


@pytest.mark.parametrize("change", ["big-endian", "fortran", "version 2"])
def test_how_an_input_is_stored_does_not_matter(hil: Hil, files: Files, tmp_path: Path, change: str) -> None:
    array = np.load(files.input)
    with files.input.open("wb") as file:
        if change == "version 2":
            np.lib.format.write_array(file, array, version=(2, 0))  # type: ignore[no-untyped-call]
        else:
            np.save(file, array.astype(">f4") if change == "big-endian" else np.asfortranarray(array))
    assert hil("run", files.pte, "-t", "m4-qemu", "-i", files.input, "-o", tmp_path / "out.npy").status == OK
    np.testing.assert_array_equal(np.load(tmp_path / "out.npy"), files.expected)


def test_an_input_of_dynamic_shape_may_be_smaller(tmp_path: Path) -> None:
    spec = TensorSpec.contiguous("float32", (8, 16))
    for rows, is_bound, good in ((8, True, True), (3, True, True), (9, True, False), (3, False, False)):
        np.save(tmp_path / "x.npy", np.zeros((rows, 16), np.float32))
        if good:
            assert cli_files._read_tensor(
                tmp_path / "x.npy", "input 0", Taken(spec, is_bound=is_bound), None
            ).spec.shape == (rows, 16)
            continue
        with pytest.raises(ConfigError, match=rf"of the program is {'at most ' if is_bound else ''}float32\[8, 16\]"):
            cli_files._read_tensor(tmp_path / "x.npy", "input 0", Taken(spec, is_bound=is_bound), None)


def test_channels_last_inputs_are_given_by_their_logical_shape(tmp_path: Path) -> None:
    array = np.arange(24, dtype=np.int8).reshape(1, 2, 3, 4)
    np.save(tmp_path / "x.npy", array)
    spec = TensorSpec("int8", (1, 2, 3, 4), (0, 2, 3, 1))
    tensor = cli_files._read_tensor(tmp_path / "x.npy", "input 0", Taken(spec), None)
    assert tensor.spec == spec
    assert tensor.data == array.transpose(0, 2, 3, 1).tobytes()
    np.testing.assert_array_equal(tensor.array(), array)


@pytest.mark.parametrize(("kind", "value"), [(ValueKind.INT, 7), (ValueKind.BOOL, True), (ValueKind.DOUBLE, 0.5)])
def test_scalar_input_needs_a_0d_npy_file(tmp_path: Path, kind: ValueKind, value: float) -> None:
    np.save(tmp_path / "x.npy", np.array(value))
    assert cli_files._read_tensor(tmp_path / "x.npy", "input 0", Taken(TensorSpec.scalar(kind)), None).item() == value
    np.save(tmp_path / "x.npy", np.array([value]))
    with pytest.raises(ConfigError, match=f"a single {kind.value}"):
        cli_files._read_tensor(tmp_path / "x.npy", "input 0", Taken(TensorSpec.scalar(kind)), None)


def test_helps_call_arguments_and_values_what_they_are() -> None:
    """Without the braces, or second brackets, that typer adds to a metavar, and without Python types in its place."""
    waiting, lines, unnamed, typed = [("hil", get_command(load_commands()))], [], [], []
    while waiting:
        path, command = waiting.pop()
        waiting += [(f"{path} {name}", one) for name, one in getattr(command, "commands", {}).items()]
        context = command.context_class(command, info_name=path)
        lines.append(command.get_usage(context))
        unnamed += [(path, one.name) for one in command.params if not (one.metavar or getattr(one, "is_flag", False))]
        typed += [(path, line) for line in command.get_help(context).splitlines() if re.match(r"  \S.*<[a-zA-Z]", line)]
    assert (unnamed, typed, [line for line in lines if "{" in line or "[[" in line]) == ([], [], [])
    assert any(line.endswith("hil run [OPTIONS] PROGRAM.pte") for line in lines)


def test_what_a_run_without_lint_says_of_it_names_the_option() -> None:
    told = ("lint", f"MVE layout on a SCALAR target; lint was off ({UNLINTED})")
    with pytest.raises(Mismatch) as caught, options_named():
        raise Mismatch("output 0: quanta", details=[("cause", "the layout"), told], hint=f"or {UNLINTED}")
    assert "lint was off (--no-lint)" in str(caught.value) and UNLINTED not in str(caught.value)


def test_lint_comes_before_a_run_and_can_be_left_out(hil: Hil, files: Files) -> None:
    files.pte.write_bytes(known_answer(Isa.MVE).program)
    arguments = ("run", files.pte, "-t", "m4-qemu", "-i", files.input)
    done = hil(*arguments)
    assert (done.status, done.out) == (NO, "")
    assert (
        done.err.startswith("LintError: ") and "[target m4-qemu, operator cortex_m::quantized_linear.out]" in done.err
    )
    assert "--no-lint runs this program as it is" in done.err and "lint=" not in done.err
    done = hil(*arguments, "--no-lint")
    assert done.status == OK
    assert re.search(r"^lint      operator 1: MVE layout on a DSP .*; lint was off \(--no-lint\)$", done.out, re.M)
    assert "MVE layout on a DSP target" in answer(hil(*arguments, "--no-lint", "--json").out)["lint"]
    files.pte.write_bytes(known_answer(Isa.DSP).program)
    done = hil(*arguments, "--no-lint", "--json")
    assert answer(done.out)["lint"] is None and answer(hil(*arguments, "--json").out)["lint"] is None


def test_run_does_not_import_torch(files: Files, tmp_path: Path) -> None:
    arguments = command("run", files.pte, "-t", "m4-qemu", "-i", files.input)
    done = subprocess.run(
        [arguments[0], "-X", "importtime", *arguments[1:]],
        cwd=tmp_path,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=FIRST_BUILD,
        check=True,
    )
    assert "cortex_m_hil.flow" in done.stderr
    assert not re.search(r"\|\s+torch", done.stderr)


# --- what one can get wrong ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "status", "text"),
    [
        (b"", NO, "not a .pte"),
        (b"hello, this is text", NO, "is it the right file?"),
        (b"abc", NO, "not a .pte: 3 bytes"),
        ("half", NO, "truncated"),
        (None, CANNOT_TELL, "cannot read"),
    ],
)
def test_damaged_or_missing_pte_files_are_refused(
    hil: Hil, files: Files, content: bytes | str | None, status: int, text: str
) -> None:
    whole = files.pte.read_bytes()
    files.pte.unlink()
    if content is not None:
        files.pte.write_bytes(whole[: len(whole) // 2] if isinstance(content, str) else content)
    expect(hil("run", files.pte, "-t", "m4-qemu"), status, text, str(files.pte))
    expect(hil("lint", files.pte, "-t", "m4-qemu"), status, text, str(files.pte))


def test_a_folder_is_no_program(hil: Hil, tmp_path: Path) -> None:
    expect(hil("run", tmp_path, "-t", "m4-qemu"), CANNOT_TELL, "ConfigError: cannot read", "Is a directory")


def test_inputs_that_nobody_gives_follow_a_formula_and_are_no_ones_expectation(hil: Hil, files: Files) -> None:
    done = hil("run", files.pte, "-t", "native", "--hil-trace", "t.json")
    assert done.status == OK and "inputs    made by a formula, since none are given" in done.out
    events = json.loads(Path("t.json").read_text())["traceEvents"]
    assert [one["args"]["name"] for one in events if one["name"] == "process_name"] == ["hil run"]
    assert {one["cat"] for one in events if one["ph"] == "X"} >= {"session", "boot", "run"}
    done = hil("run", files.pte, "-t", "native", "--expect", files.input)
    expect(done, CANNOT_TELL, "ConfigError: --expect without --input: on which inputs?", "--input FILE.npy")


def test_too_many_inputs(hil: Hil, files: Files) -> None:
    done = hil("run", files.pte, "-t", "m4-qemu", "-i", files.input, "-i", files.input)
    expect(done, CANNOT_TELL, "small takes 1 input, 2 --input given", "→ give one --input (float32[1, 16])")


@pytest.mark.parametrize(
    ("array", "text"),
    [
        (np.zeros((1, 15), np.float32), "float32[1, 15]; input 0 of the program is float32[1, 16]"),
        (np.zeros(16, np.float32), "float32[16]; input 0"),
        (np.zeros((1, 16), np.float64), "float64[1, 16]; input 0"),
        (np.zeros((1, 16), np.complex64), "complex64[1, 16]; input 0"),
        (np.zeros((1, 16), [("a", "f4")]), "[1, 16]; input 0"),
        (np.array([None]), "not a .npy file"),
    ],
)
def test_input_arrays_of_another_dtype_or_shape_are_config_errors(
    hil: Hil, files: Files, array: Array, text: str
) -> None:
    np.save(files.input, array, allow_pickle=True)
    done = hil("run", files.pte, "-t", "m4-qemu", "-i", files.input)
    expect(done, CANNOT_TELL, "ConfigError", str(files.input), text)


NPY_CLAIMS_A_LOT = b"\x93NUMPY\x01\x00v\x00" + (
    b"{'descr': '<f4', 'fortran_order': False, 'shape': (1, 9999999999999), }".ljust(117) + b"\n"
)


@pytest.mark.parametrize("content", [b"", b"text", b"\x93NUMPY\x01\x00", b"\x93NUMPY\x09\x00v\x00", NPY_CLAIMS_A_LOT])
def test_inputs_that_are_no_arrays(hil: Hil, files: Files, content: bytes) -> None:
    files.input.write_bytes(content)
    done = hil("run", files.pte, "-t", "m4-qemu", "-i", files.input)
    expect(done, CANNOT_TELL, f"ConfigError: {files.input} is not a .npy file")


def test_inputs_that_are_archives_or_missing(hil: Hil, files: Files, tmp_path: Path) -> None:
    np.savez(tmp_path / "x.npz", a=np.zeros(1))
    arguments = ("run", files.pte, "-t", "m4-qemu", "-i")
    expect(hil(*arguments, tmp_path / "x.npz"), CANNOT_TELL, "an archive of arrays")
    expect(hil(*arguments, tmp_path / "none.npy"), CANNOT_TELL, "ConfigError: cannot read", "none.npy")


@pytest.mark.slow
def test_files_that_are_none_are_refused_at_once(hil: Hil, files: Files, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "large").touch()
    os.truncate(tmp_path / "large", 8 << 30)
    for path, text in ((tmp_path / "pipe", "a named pipe"), ("/dev/zero", "a device"), (tmp_path / "large", "at most")):
        expect(hil("run", path, "-t", "m4-qemu"), CANNOT_TELL, f"ConfigError: cannot read {path}", text)
        expect(hil("lint", path, "-t", "m4-qemu"), CANNOT_TELL, f"ConfigError: cannot read {path}", text)
        expect(hil("dev", "fuzz", path, "-t", "m4-qemu"), CANNOT_TELL, f"ConfigError: cannot read {path}", text)
        expect(hil("compare-runtimes", path, "-t", "native"), CANNOT_TELL, f"ConfigError: cannot read {path}", text)
        expect(hil("targets", "--targets-file", path), CANNOT_TELL, f"ConfigError: cannot read {path}", text)
    for path, text in ((tmp_path / "pipe", "a named pipe"), ("/dev/zero", "a device")):
        expect(hil("run", files.pte, "-t", "m4-qemu", "-i", path), CANNOT_TELL, f"cannot read {path}", text)
    os.mkfifo(files.pte.with_suffix(".0.npy"))
    expect(hil("compare-runtimes", files.pte, "-t", "native"), CANNOT_TELL, "small.0.npy: it is a named pipe")


def test_a_targets_yaml_that_is_no_file_is_not_passed_over(hil: Hil, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "targets.yaml")
    expect(hil("targets"), CANNOT_TELL, "ConfigError: cannot read targets.yaml: it is a named pipe")


@pytest.mark.first_only
@pytest.mark.parametrize(
    ("arguments", "closed"),
    [
        ("targets", ">&-"), ("board status", "<&-"), ("--help", ">&- 2>&-"), ("fvp-shim install shims", ">&- 2>&- <&-"),
        ("lint nowhere", "2>&-"),
    ],
)  # fmt: skip
def test_closed_standard_streams_change_no_exit_status(tmp_path: Path, closed: str, arguments: str) -> None:
    line = f"{shlex.join(command())} {arguments}"
    if arguments.startswith("lint"):
        line += " -t native"
    done = subprocess.run(
        ["sh", "-c", f"{line} {closed}"], cwd=tmp_path, env=environment(), capture_output=True, text=True, check=False,
        stdin=subprocess.DEVNULL, timeout=FIRST_BUILD,
    )  # fmt: skip
    assert done.returncode == (CANNOT_TELL if arguments.startswith("lint") else OK)
    assert "Traceback" not in done.stdout + done.stderr


@pytest.mark.first_only
@pytest.mark.parametrize("arguments", [("nothing",), ("run", "nowhere", "-t", "native")])
def test_a_full_standard_error_is_no_verdict(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            command(*arguments), cwd=tmp_path, env=environment(), stderr=full, check=False, timeout=FIRST_BUILD
        )
    assert done.returncode == CANNOT_TELL


@pytest.mark.slow
def test_a_locale_that_is_not_utf8(tmp_path: Path) -> None:
    (tmp_path / "targets.yaml").write_text(
        "targets:\n  mine: {cpu: cortex-m4, board: mps2, launcher: {qemu: 'mps2-an386\N{RIGHTWARDS ARROW}'}}\n", "utf-8"
    )
    plain = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    assert "mine" in spawn("targets", cwd=tmp_path, **plain).out
    assert spawn("lint", "\N{RIGHTWARDS ARROW}.pte", "-t", "m4-qemu", cwd=tmp_path, **plain).status == CANNOT_TELL


def test_a_number_that_does_not_fit(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.array(1 << 63, np.uint64))
    with pytest.raises(ConfigError, match="9223372036854775808 does not fit an Int"):
        cli_files._read_tensor(tmp_path / "x.npy", "input 0", Taken(TensorSpec.scalar(ValueKind.INT)), None)


def test_output_files_that_cannot_be_written_are_refused(hil: Hil, files: Files, tmp_path: Path) -> None:
    arguments = ("run", files.pte, "-t", "m4-qemu", "-i", files.input)
    expect(hil(*arguments, "-o", "a.npy", "-o", "b.npy"), CANNOT_TELL, "small has 1 output, 2 --output given")
    expect(hil(*arguments, "-o", "/proc/none/a.npy"), CANNOT_TELL, "--output '/proc/none': /proc cannot be written to")
    expect(hil(*arguments, "-o", tmp_path), CANNOT_TELL, f"--output {tmp_path} is a folder")
    done = hil(*arguments, "-o", "/dev/full")
    assert done.status == CANNOT_TELL
    assert done.err == "InfraError: cannot write --output /dev/full: No space left on device\n  → another --output\n"


@pytest.mark.parametrize("name", ["build", "lint", "run", "doctor selftest"])
def test_unknown_targets(hil: Hil, files: Files, name: str) -> None:
    program = [files.pte] if name in ("lint", "run") else []
    done = hil(*name.split(), *program, "--target", "m4-qmeu")
    expect(done, CANNOT_TELL, "ConfigError: unknown target 'm4-qmeu'", "did you mean 'm4-qemu'")


@pytest.mark.parametrize(
    "arguments",
    [
        ("run", "--bogus"),
        ("nothing",),
        ("build",),
        ("doctor", "selftest"),
        ("run", "x.pte", "-t", "m4-qemu", "--timeout-multiplier", "0"),
        ("run", "x.pte", "-t", "m4-qemu", "--timeout-multiplier", "nan"),
        ("run", "x.pte", "-t", "m4-qemu", "--timeout-multiplier", "soon"),
        *(("doctor", "selftest", "-t", "native", "--timeout-multiplier", value) for value in ("inf", "1e308", "-1")),
        *(("board", "hold", "x", "--minutes", value) for value in ("nan", "inf", "0", "-1")),
        *(("board", "hold", "x", "--wait", value) for value in ("nan", "inf", "-1")),
    ],
)
def test_wrong_usage_prints_the_usage_line(hil: Hil, arguments: tuple[str, ...]) -> None:
    expect(hil(*arguments), CANNOT_TELL, "Usage: hil")


def test_tools_of_a_virtual_board_need_no_name_where_it_is_the_only_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As `flash:` and `reset:` of docs/boards.md and of the sample of own firmware call them."""
    monkeypatch.setenv("HIL_LOCK_DIR", str(tmp_path / "locks"))
    with pytest.raises(LaunchError, match="no virtual board f405 is running"):
        vboard.main(["f405", "reset"])


@pytest.mark.parametrize("baud", ["0", "-1", "fast"])
def test_a_rate_of_a_virtual_board(hil: Hil, baud: str) -> None:
    expect(
        hil("board", "virtual", "--baud", baud, "native", "reset"),
        CANNOT_TELL,
        "Invalid value for '--baud'",
    )


def test_help_of_a_virtual_board_also_behind_its_name(hil: Hil) -> None:
    shown, behind = hil("board", "virtual", "--help"), hil("board", "virtual", "f405", "--help")
    assert (shown.status, behind) == (OK, shown)
    assert all(one in shown.out for one in (*MACHINES, "power on|off|cycle", *Faults.__dataclass_fields__))


def test_a_command_beside_a_virtual_board_gets_its_words_as_they_are(tmp_path: Path) -> None:
    words = ["-x", "--", "--json", "--", "-y"]
    command = ["board", "virtual", "--name", "words", "native", "run", "sh", "-c", 'echo "$@"', "sh", *words]
    done = spawn(*command, cwd=tmp_path)
    assert (done.status, done.out.splitlines()[-1]) == (OK, " ".join(words)), done.err


def test_unknown_runtime(hil: Hil) -> None:
    done = hil("build", "-t", "m4-qemu", "--runtime", "bultin")
    expect(done, CANNOT_TELL, "unknown runtime 'bultin'", "did you mean 'builtin'")


_RUNNING = frozenset({"numpy", "torch", "executorch", "cortex_m_hil.flow", "cortex_m_hil.cli.commands.run"})


@pytest.mark.parametrize(
    ("arguments", "heavy"),
    [
        (["--help"], _RUNNING | {"pydantic", "serial"}),
        (["board", "status"], _RUNNING | {"serial", "ruamel", "pexpect", "psutil"}),
        (["targets"], _RUNNING | {"pexpect"}),
        (["doctor", "--quick"], _RUNNING | {"pexpect"}),
    ],
    ids=["--help", "board status", "targets", "doctor --quick"],
)
def test_a_command_imports_nothing_that_takes_long(tmp_path: Path, arguments: list[str], heavy: set[str]) -> None:
    """torch takes seconds, numpy a tenth of one: as long as all the rest."""
    call = f"from cortex_m_hil.cli.__main__ import main\nimport sys\ntry: main({arguments})\n"
    call += "finally: print('imported', *sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", call], cwd=tmp_path, env=environment(), capture_output=True, text=True, check=False
    )
    _, _, imported = done.stdout.partition("imported ")
    assert "cortex_m_hil.cli.app" in imported.split()
    assert heavy.isdisjoint(imported.split())


def test_help_describes_the_commands_as_they_describe_themselves() -> None:
    application, known = get_command(overview()), get_command(load_commands())
    described = {name: one.get_short_help_str(limit=200) for name, one in application.commands.items()}  # type: ignore[attr-defined]
    assert described == {name: one.get_short_help_str(limit=200) for name, one in known.commands.items()}  # type: ignore[attr-defined]


def test_errors_in_targets_files_name_the_line(hil: Hil, tmp_path: Path) -> None:
    (tmp_path / "t.yaml").write_text("targets:\n  x:\n    cpuu: cortex-m4\n    board: mps2\n    launcher: native\n")
    expect(hil("targets", "--targets-file", tmp_path / "t.yaml"), CANNOT_TELL, "t.yaml:3: unknown key 'cpuu'", "'cpu'")
    expect(hil("targets", "--targets-file", tmp_path / "none.yaml"), CANNOT_TELL, "cannot read", "none.yaml")


def test_require_fvp_without_the_model_is_a_toolchain_error(
    hil: Hil, files: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    done = hil("run", files.pte, "-t", "m4-fvp", "-i", files.input, "--require-fvp")
    expect(done, CANNOT_TELL, "ToolchainError: FVP_MPS2_Cortex-M4 is not on PATH")


# --- the environment -----------------------------------------------------------------------------------------


def test_a_missing_compiler_is_a_toolchain_error_with_its_package(files: Files, tmp_path: Path) -> None:
    changes = {"PATH": links(tmp_path / "bin", without="arm-none-eabi"), "HIL_CACHE_DIR": str(tmp_path / "cache")}
    done = spawn("run", files.pte, "-t", "m4-qemu", "-i", files.input, cwd=tmp_path, **changes)
    expect(done, CANNOT_TELL, "ToolchainError: arm-none-eabi-g++ is not on PATH", "apt-get install gcc-arm-none-eabi")
    done = spawn("doctor", "selftest", "-t", "m4-qemu", cwd=tmp_path, **changes)
    assert done.status == NO and done.out.startswith("FAIL  m4-qemu: ToolchainError: arm-none-eabi-g++")


@pytest.mark.slow
def test_a_missing_qemu_is_a_toolchain_error_with_its_package(files: Files, tmp_path: Path) -> None:
    changes = {"PATH": links(tmp_path / "bin", without="qemu"), "HIL_CACHE_DIR": str(tmp_path / "cache")}
    done = spawn("run", files.pte, "-t", "m4-qemu", "-i", files.input, cwd=tmp_path, **changes)
    expect(done, CANNOT_TELL, "ToolchainError: qemu-system-arm is not on PATH", "apt-get install qemu-system-arm")


@pytest.mark.slow
def test_a_machine_that_qemu_does_not_have_is_told_before_a_build(files: Files, tmp_path: Path) -> None:
    (tmp_path / "targets.yaml").write_text("targets:\n  mine: {cpu: cortex-m3, board: mps2, launcher: {qemu: an358}}\n")
    for words in (("build",), ("doctor", "selftest"), ("run", files.pte, "-i", files.input)):
        done = spawn(*words, "-t", "mine", cwd=tmp_path, HIL_CACHE_DIR=str(tmp_path / "cache"))
        assert re.search(r"targets\.yaml:2: QEMU [\d.]+ has no machine 'an358'", done.out + done.err), words
        assert not (tmp_path / "cache" / "runners").exists()


def test_a_cache_that_cannot_be_written(tmp_path: Path) -> None:
    done = spawn("build", "-t", "m4-qemu", cwd=tmp_path, HIL_CACHE_DIR="/dev/null/cache")
    expect(done, CANNOT_TELL, "BuildError: cannot write the runner to /dev/null/cache", "Not a directory")


@pytest.mark.slow
def test_a_virtual_board_without_a_folder(tmp_path: Path) -> None:
    done = spawn("board", "virtual", "native", cwd=tmp_path, HIL_CACHE_DIR="/dev/null/cache")
    said = "ConfigError: cannot make the folder of a virtual board, /dev/null/cache/vboards/native: Not a directory"
    expect(done, CANNOT_TELL, said, "is HIL_CACHE_DIR right, and writable?")
    done = spawn("board", "virtual", "native", "run", "true", cwd=tmp_path, HIL_CACHE_DIR="/dev/null/cache")
    expect(done, CANNOT_TELL, "virtual board native does not start", "cannot make the folder")


@pytest.mark.first_only
@pytest.mark.parametrize("arguments", [("targets",), ("--help",), ("doctor", "selftest", "-t", "native")])
def test_a_full_disk_behind_standard_output(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            command(*arguments),
            cwd=tmp_path,
            env=environment(),
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            timeout=FIRST_BUILD,
            check=False,
        )
    assert (done.returncode, done.stderr) == (CANNOT_TELL, "OSError: No space left on device\n")


@pytest.mark.first_only
@pytest.mark.parametrize("arguments", [("targets",), ("--help",), ("doctor", "selftest", "-t", "native,m4-qemu")])
def test_nobody_reads_standard_output(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "wb") as closed:
        done = subprocess.run(
            command(*arguments),
            cwd=tmp_path,
            env=environment(),
            stdout=closed,
            stderr=subprocess.PIPE,
            text=True,
            timeout=FIRST_BUILD,
            check=False,
        )
    assert (done.returncode, done.stderr) == (141, "")


@pytest.mark.slow
def test_an_output_that_cannot_show_arrows(tmp_path: Path) -> None:
    done = spawn("build", "-t", "m4-fvp", cwd=tmp_path, PYTHONIOENCODING="ascii")
    assert done.status == OK and "m4-fvp ? m4-qemu" in done.out


# --- interruption --------------------------------------------------------------------------------------------


@pytest.mark.first_only
@pytest.mark.parametrize(
    ("number", "status"),
    [(signal.SIGINT, 130), (signal.SIGTERM, -signal.SIGTERM), (signal.SIGKILL, -signal.SIGKILL)],
)
def test_an_interrupted_run_leaves_no_simulator(
    files: Files, tmp_path: Path, number: signal.Signals, status: int
) -> None:
    (tmp_path / "targets.yaml").write_text(FROZEN)
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    arguments = ("run", files.pte, "-t", "frozen", "-i", files.input)
    with running(*arguments, cwd=tmp_path, TMPDIR=str(scratch)) as process:
        simulator = descendant(process, "qemu-system")
        os.kill(process.pid, number)
        _, err = process.communicate(timeout=30)
        gone, alive = psutil.wait_procs([simulator], timeout=10)
    assert (process.returncode, alive, gone) == (status, [], [simulator])
    assert "Traceback" not in err
    if number == signal.SIGINT:
        assert err == "interrupted\n"
        assert list(scratch.iterdir()) == []


def test_an_interrupted_build_leaves_nothing_that_looks_finished(tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    with running("build", "-t", "m4-qemu", cwd=tmp_path, HIL_CACHE_DIR=str(cache)) as process:
        compiler = descendant(process, "cc1plus")
        os.killpg(process.pid, signal.SIGINT)  # as a terminal does it
        _, err = process.communicate(timeout=30)
        _, alive = psutil.wait_procs([compiler], timeout=10)
    assert (process.returncode, err, alive) == (130, "interrupted\n", [])
    assert [path.suffix for path in (cache / "runners").iterdir()] == [".lock"]


@pytest.mark.slow
def test_a_killed_build_leaves_no_compiler(tmp_path: Path) -> None:
    """ninja gives each of its jobs a process group of its own."""
    with running("build", "-t", "m4-qemu", cwd=tmp_path, HIL_CACHE_DIR=str(tmp_path / "cache")) as process:
        descendant(process, "cc1plus")
        below = psutil.Process(process.pid).children(recursive=True)
        process.kill()
        process.communicate(timeout=30)
        _, alive = psutil.wait_procs(below, timeout=30)
    assert alive == []
