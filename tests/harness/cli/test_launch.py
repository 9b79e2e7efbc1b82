"""`hil launch`: small programs of all kinds, compiled here, on real simulators and a virtual board."""

from __future__ import annotations

import functools
import io
import os
import re
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from command_line import CANNOT_TELL, NO, OK, Hil, answer, descendant, expect, running
from cortex_m_hil.boards.virtual import vboard
from cortex_m_hil.flow.launch_elf import LINE_LIMIT, Console
from small_programs import small_program

BAUD = 921600
Build = Callable[..., Path]


@pytest.fixture
def build(tmp_path: Path) -> Build:
    """Compiles a `work` for a Cortex-M3, by default into an MPS2's memory."""
    return functools.partial(small_program, tmp_path)


# --- what it says, and how it ends ---------------------------------------------------------------------------


def test_its_console_is_standard_output(hil: Hil, build: Build) -> None:
    elf = build('void work(void) { say("hello\\n"); put("and by UART\\r\\n"); }')
    done = hil("launch", elf, "-t", "m3-qemu")
    assert (done.status, done.out) == (OK, "hello\nand by UART\n")
    assert re.fullmatch(r"m3-qemu on QEMU \S+: program.elf ended by exit after \d+\.\d s\n", done.err)


def test_launch_answers_with_one_json_line_and_the_console_on_stderr(hil: Hil, build: Build) -> None:
    elf = build('void work(void) { say("hello\\n"); }')
    done = hil("launch", elf, "-t", "m3-qemu", "--json")
    one = answer(done.out)
    assert (one["target"], one["elf"], one["ended_by"]) == ("m3-qemu", str(elf), "exit")
    assert done.err.startswith("hello\n")
    failed = hil("launch", build("void work(void) { end(3); }"), "-t", "m3-qemu", "--json")
    assert answer(failed.out)["error"]["type"] == "ProgramFailed"
    assert answer(failed.out)["exit_status"] == failed.status == NO


def test_an_exit_status_is_a_verdict(hil: Hil, build: Build) -> None:
    expect(hil("launch", build("void work(void) { end(3); }"), "-t", "m3-qemu"), NO,
           "ProgramFailed: the program ended with exit status 3 [target m3-qemu]")  # fmt: skip
    old = "void work(void) { call(0x18, (void*)0x20023); }"  # SYS_EXIT, a run-time error
    expect(hil("launch", build(old), "-t", "m3-qemu"), NO, "ProgramFailed: the program ended with exit status 1")


def test_a_hang_ends_at_the_timeout(hil: Hil, build: Build) -> None:
    for idle in ("", '__asm__("wfi");'):
        done = hil("launch", build(f"void work(void) {{ for (;;) {{ {idle} }} }}"), "-t", "m3-qemu", "--timeout", 1)
        expect(done, NO, "ProgramTimeout: program.elf has not ended after ", " s of the simulator's CPU time",
               "→ --timeout, if it takes longer; --until REGEX")  # fmt: skip


def test_a_fault_is_no_hang(hil: Hil, build: Build) -> None:
    crash = 'void work(void) { say("going\\n"); __asm__("udf"); }'
    for fault, how in (("end(1)", "exit status 1"), ("for (;;) {}", "has not ended after ")):
        done = hil("launch", build(crash, fault=fault), "-t", "m3-qemu", "--timeout", 1)
        assert (done.status, done.out) == (NO, "going\nHardFault at last\n")
        assert f"TargetFault: HardFault at last ({how}" in done.err
    locked = hil("launch", build(crash, fault='__asm__("udf")'), "-t", "m3-qemu")
    assert locked.status == NO
    assert "TargetFault: the core locked up: a fault inside the fault handler" in locked.err


def test_a_failed_check_of_executorch_is_a_fault(hil: Hil, build: Build) -> None:
    for line in (
        "F [executorch:main.cpp:1 run()] assert failed: ok",
        "F 00:00:00.000123 executorch:main.cpp:1] no",
    ):
        done = hil("launch", build(f'void work(void) {{ say("{line}\\n"); end(255); }}'), "-t", "m3-qemu")
        assert done.status == NO
        assert f"TargetFault: {line} (exit status 255) [target m3-qemu]" in done.err


def test_a_fault_that_the_program_survives_is_its_own_business(hil: Hil, build: Build) -> None:
    elf = build('void work(void) { say("ZEPHYR FATAL ERROR 0, as expected\\n"); }')
    assert hil("launch", elf, "-t", "m3-qemu").status == OK


@pytest.mark.slow
def test_missing_operators_are_named_and_not_waited_for(hil: Hil, build: Build) -> None:
    log = (
        "E [executorch:operator_registry.cpp:277 get_op_function_from_registry()] kernel 'aten::a.out' not found.\\n"
        "E [executorch:method.cpp:822 resolve_operator()] Missing operator: [0] aten::a.out\\n"
        "E [executorch:method.cpp:822 resolve_operator()] Missing operator: [3] cortex_m::b.out"
    )
    began = time.monotonic()
    for after in ("for (;;) {}", "end(1);", ""):
        done = hil("launch", build(f'void work(void) {{ say("{log}\\n"); {after} }}'), "-t", "m3-qemu")
        assert done.status == NO
        assert "UnsupportedOperator: the program was linked without aten::a.out, cortex_m::b.out " in done.err
        assert "[target m3-qemu, operator aten::a.out]" in done.err
        assert "→ link a registry that has it: portable_ops_lib, or EXECUTORCH_SELECT_OPS_LIST" in done.err
    assert time.monotonic() - began < 40  # three times the timeout would be 180


@pytest.mark.slow
def test_endless_output_without_a_line_end_arrives_and_ends(build: Build, tmp_path: Path) -> None:
    elf = build('void work(void) { for (;;) say("abcdefgh"); }')
    with running("launch", elf, "-t", "m3-qemu", "--timeout", 600, cwd=tmp_path) as process:
        assert process.stdout is not None
        assert process.stdout.read(16) == "abcdefghabcdefgh"
        simulator = descendant(process, "qemu")
        process.stdout.close()  # as `| head -c 16` does
        assert process.wait(60) == 141
    assert not simulator.is_running()


def test_an_end_of_transmission_and_until_are_ends(hil: Hil, build: Build) -> None:
    elf = build('void work(void) { put("ready to go\\n"); put("\\004"); for (;;) {} }')
    done = hil("launch", elf, "-t", "m3-qemu")
    assert (done.status, done.out) == (OK, "ready to go\n")
    assert "ended by eot" in done.err
    assert "ended by until" in hil("launch", elf, "-t", "m3-qemu", "--until", "^ready").err
    expect(hil("launch", elf, "-t", "m3-qemu", "--until", "("), CANNOT_TELL,
           "ConfigError: --until '(' is no regular expression", "→ a backslash before")  # fmt: skip


def test_its_arguments_and_its_folder(hil: Hil, build: Build, tmp_path: Path) -> None:
    work = r"""
    static char line[64];
    void work(void) {
      int block[2] = {(int)line, sizeof line};
      call(0x15, block);
      say(line);
      int name[3] = {(int)"data.txt", 0, 8};
      int file = call(1, name);
      static char data[8];
      int into[3] = {file, (int)data, 5};
      say(file < 0 ? " no file\n" : (call(6, into), data));
    }"""
    elf = build(work)
    assert hil("launch", elf, "-t", "m3-qemu", "--", "-m", "x.pte").out == "program.elf -m x.pte no file\n"
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "data.txt").write_text("12345")
    assert hil("launch", elf, "-t", "m3-qemu", "--folder", tmp_path / "data").out == "program.elf12345"
    expect(hil("launch", elf, "-t", "m3-qemu", "--folder", "none"), CANNOT_TELL,
           "ConfigError: --folder none: there is no such folder", "→ mkdir it")  # fmt: skip


def test_a_launched_elf_that_opens_a_host_file_is_forbidden_access(hil: Hil, build: Build) -> None:
    work = 'void work(void) { int name[3] = {(int)"/etc/passwd", 0, 11}; call(1, name); }'
    done = hil("launch", build(work), "-t", "m3-qemu")
    expect(done, NO, "ForbiddenAccess: ", "openat /etc/passwd", "→ --folder FOLDER is what it may read and write")
    assert "board" not in done.err  # it is nobody's runner


def test_what_it_says_is_printable() -> None:
    shown = io.StringIO()
    console = Console(shown.write)
    for data in (b"a\x1b[1m\tb\r", b"\nc\xc3", b"\xa4\xff\x00\n", b"x" * (LINE_LIMIT + 5)):
        console.take(data)
    assert shown.getvalue() == "a\\x1b[1m b\ncä�\\x00\n" + "x" * (LINE_LIMIT + 5)
    assert len(console._line) == LINE_LIMIT


# --- what does not fit is told before the start --------------------------------------------------------------


@pytest.mark.slow
def test_files_that_are_no_program(hil: Hil, build: Build, tmp_path: Path) -> None:
    whole = build("void work(void) {}").read_bytes()
    object_file = bytearray(whole)
    object_file[16] = 1
    big_endian = bytearray(whole)
    big_endian[5] = 2
    for name, data, why in (
        ("empty.elf", b"", "it is empty"),
        ("text.elf", b"#!/bin/sh\n", "it begins with b'#!/b'"),
        ("head.elf", whole[:40], "it is cut short"),
        ("short.elf", whole[: 52 + 32 + 10], "it is cut short"),
        ("x.o", bytes(object_file), "it is an object file or a core dump"),
        ("big.elf", bytes(big_endian), "it is big-endian"),
    ):
        (tmp_path / name).write_bytes(data)
        expect(hil("launch", tmp_path / name, "-t", "m3-qemu"), CANNOT_TELL,
               f"ConfigError: {tmp_path / name} is no executable ELF: {why}\n",
               "→ name what the linker wrote, such as zephyr.elf")  # fmt: skip
    expect(hil("launch", "none.elf", "-t", "m3-qemu"), CANNOT_TELL,
           "ConfigError: cannot read none.elf: No such file or directory", "→ a relative name begins")  # fmt: skip
    expect(hil("launch", tmp_path, "-t", "m3-qemu"), CANNOT_TELL, "ConfigError: cannot read", "Is a directory")
    expect(hil("launch", "none.elf", "-t", "m3-qem"), CANNOT_TELL, "ConfigError: unknown target 'm3-qem'")


def test_an_elf_for_another_cpu_is_a_config_error(hil: Hil, build: Build) -> None:
    head = "ConfigError: {} is for another CPU: "
    work = "void work(void) {}"
    hard = ("-mfloat-abi=hard", "-mfpu=fpv4-sp-d16")
    for cpu, flags, target, why in (
        ("cortex-m3", (), "m0-qemu", "it is armv7-m, and the cortex-m0 of m0-qemu has no armv7-m"),
        ("cortex-m4", (), "m3-qemu", "it is armv7e-m+dsp, and the cortex-m3 of m3-qemu has no armv7e-m"),
        ("cortex-m33", (), "m4-qemu", "it is armv8-m.main+dsp, and the cortex-m4 of m4-qemu has no armv8-m.main"),
        ("cortex-m3", (), "native", "it is Arm, and this machine is"),
        ("cortex-m55", ("-mfloat-abi=hard",), "m33-qemu", "and the cortex-m33 of m33-qemu has no mve.fp"),
    ):
        elf = build(work, *flags, cpu=cpu)
        expect(hil("launch", elf, "-t", target), CANNOT_TELL, head.format(elf), why, "→ hil targets lists the CPU")
    Path("targets.yaml").write_text(
        "targets: {soft: {cpu: cortex-m4, fpu: false, board: mps2, launcher: {qemu: mps2-an386}}}\n"
    )
    elf = build(work, *hard, cpu="cortex-m4")
    expect(hil("launch", elf, "-t", "soft"), CANNOT_TELL, "the cortex-m4 of soft has no fp")
    expect(hil("launch", "/bin/sh", "-t", "m3-qemu"), CANNOT_TELL, "is for another CPU: it is")
    for cpu, target in (("cortex-m0", "m3-qemu"), ("cortex-m3", "m7-qemu"), ("cortex-m4", "m7-qemu")):
        assert hil("launch", build(work, cpu=cpu), "-t", target).status == OK, (cpu, target)


@pytest.mark.slow
def test_programs_for_more_memory_than_there_is(hil: Hil, build: Build) -> None:
    large = build("char big[9 << 20]; void work(void) { big[0] = 1; }")
    expect(hil("launch", large, "-t", "m3-qemu"), NO,
           f"OutOfTargetMemory: {large} needs {9 << 20} bytes at 0x20000000, where m3-qemu has no memory, or not",
           "memory: 0x0–0x800000, ", "→ link it for this machine")  # fmt: skip
    elsewhere = build("void work(void) {}", code="0x08000000")
    expect(hil("launch", elsewhere, "-t", "m3-qemu"), NO, "OutOfTargetMemory: ", "at 0x8000000")
    there = 'void work(void) { say("there\\n"); }'
    psram = build(f"int far = 1; {there}", data="0x21000000")  # beyond the board's script, not beyond the machine
    assert hil("launch", psram, "-t", "m3-qemu").out == "there\n"
    behind_mpc = build(there, cpu="cortex-m33", code="0x10000000", stack="0x38010000", data="0x38000000")
    assert hil("launch", behind_mpc, "-t", "m33-qemu").out == "there\n"


# --- other launchers -----------------------------------------------------------------------------------------


def test_a_program_of_this_machine(hil: Hil, tmp_path: Path) -> None:
    source = r"""
    #include <stdio.h>
    #include <stdlib.h>
    int main(int count, char** words) {
      printf("out %d\n", count);
      fflush(stdout);
      fprintf(stderr, "err\n");
      if (count > 1) abort();
      return 0;
    }"""
    (tmp_path / "own.c").write_text(source)
    subprocess.run(["gcc", str(tmp_path / "own.c"), "-o", str(tmp_path / "own")], check=True, timeout=60)
    done = hil("launch", tmp_path / "own", "-t", "native")
    assert (done.status, sorted(done.out.splitlines())) == (OK, ["err", "out 1"])
    crashed = hil("launch", tmp_path / "own", "-t", "native", "--", "x")
    assert crashed.status == NO
    assert "TargetFault: the executable crashed (SIGABRT) [target native]" in crashed.err


def test_on_a_model_by_semihosting_and_uart(
    hil: Hil, build: Build, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shim_folder = tmp_path / "bin"
    assert hil("dev", "fvp-shim", "install", shim_folder).status == OK
    monkeypatch.setenv("PATH", f"{shim_folder}{os.pathsep}{os.environ['PATH']}")
    elf = build('void work(void) { put("by UART\\n"); say("hello\\n"); end(4); }', cpu="cortex-m4")
    done = hil("launch", elf, "-t", "m4-fvp")
    assert done.status == NO
    assert {"by UART", "hello"} <= set(done.out.splitlines())
    assert "ProgramFailed: the program ended with exit status 4 [target m4-fvp]" in done.err


@pytest.mark.slow
def test_an_elf_is_flashed_and_launched_on_a_board(
    hil: Hil, build: Build, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HIL_LOCK_DIR", str(tmp_path / "locks"))
    work = r"""
    void work(void) {  /* USART2 of an STM32F405 */
      *(volatile int*)0x40023840 |= 1 << 17;
      volatile int* uart = (volatile int*)0x40004400;
      uart[3] = 1 << 13 | 1 << 3;
      for (const char* text = "from flash\n"; *text; ++text) { while (!(uart[0] & 128)) {} uart[1] = *text; }
      for (;;) {}
    }"""
    elf = build(work, cpu="cortex-m4", code="0x08000000")
    name = f"launch{os.getpid()}"
    launcher = vboard.launcher("f405", name, BAUD)
    assert launcher.flash and launcher.reset
    words, reset = (list(map(str, tool.commands[0])) for tool in (launcher.flash, launcher.reset))
    entry = "{{cpu: cortex-m4, board: stm32f4, launcher: {{serial: {{port: '{}', baud: {}{}}}}}}}"
    tools = f", flash: {words!r}, reset: {reset!r}"
    Path("targets.yaml").write_text(
        f"targets:\n  b: {entry.format(launcher.port, BAUD, tools)}\n  bare: {entry.format(launcher.port, BAUD, '')}\n"
    )
    with vboard.running("f405", name, BAUD):
        done = hil("launch", elf, "-t", "b", "--until", "flash\n")
        # The program runs as soon as it is flashed: some of what it says before the reset may be there too.
        assert done.status == OK and done.out.endswith("flash\n") and ("from flash\n" * 2).endswith(done.out), done
        expect(hil("launch", elf, "-t", "bare"), CANNOT_TELL,
               "ConfigError: the target names no tool for flash [target bare]", "→ flash: a preset")  # fmt: skip
        expect(hil("launch", elf, "-t", "b", "--", "x"), CANNOT_TELL, "a board has neither a command line nor")
        late = hil("launch", elf, "-t", "b", "--timeout", 2)
        assert "ProgramTimeout: program.elf has not ended after 2 s; its console is vboard:" in late.err


# --- nothing outlives it -------------------------------------------------------------------------------------


@pytest.mark.first_only
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_no_simulator_outlives_it(build: Build, tmp_path: Path, number: signal.Signals) -> None:
    elf = build('void work(void) { say("up\\n"); for (;;) {} }')
    with running("launch", elf, "-t", "m3-qemu", "--timeout", 600, cwd=tmp_path) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "up\n"
        simulator = descendant(process, "qemu")
        process.send_signal(number)
        ended = process.wait(30)
    assert ended == (130 if number is signal.SIGINT else -number)
    psutil.wait_procs([simulator], timeout=10)
    assert not simulator.is_running()
