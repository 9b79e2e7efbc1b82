"""An ELF of one's own in a test: small programs on QEMU and on this machine, and the fixture `hil_launch`."""

from __future__ import annotations

import os
import re
import subprocess
import time
from pathlib import Path

import numpy as np
import pytest

from cortex_m_hil.boards.virtual import vboard
from cortex_m_hil.errors import ConfigError, ProgramFailed, ProgramTimeout, TargetFault
from cortex_m_hil.flow import Launch, files_in, launched
from cortex_m_hil.targets.load import load_targets
from cortex_m_hil.targets.resolve import Resolved, resolve
from devices import on_virtual_board
from small_programs import small_program

M3: Resolved = resolve("m3-qemu", load_targets())
NATIVE: Resolved = resolve("native", load_targets())
COUNTED = "void work(void) { for (volatile int i = 0; i < 1000; ++i) {} }"
COPIES = r"""
  static char data[8];
  void work(void) {
    int in[3] = {(int)"in.bin", 1, 6}, out[3] = {(int)"out.bin", 5, 7};
    int from = call(1, in), to = call(1, out);
    int block[3] = {from, (int)data, 5};
    call(6, block);
    for (int i = 0; i < 5; ++i) data[i] += 1;
    block[0] = to;
    call(5, block);
    call(2, &from), call(2, &to);
    say("copied 5 bytes\n");
    end(3);
  }"""
ASKS = """
#include <stdio.h>
int main(void) {
  char name[16];
  printf("who?\\n");
  fflush(stdout);
  if (scanf("%15s", name) == 1) printf("hello %s\\nbye\\n", name);
  return 0;
}"""


def test_files_go_in_and_out_and_the_exit_status_is_the_tests_to_judge(tmp_path: Path) -> None:
    elf, folder = small_program(tmp_path, COPIES), tmp_path / "files"
    folder.mkdir()
    files_in(folder, {"in.bin": np.array([1, 2, 3, 4, 5], np.uint8)})
    with launched(M3, Launch(elf, 30.0, folder=folder)) as program:
        assert program.expect(r"copied (\d) bytes\n")[1] == "5"
        assert program.wait() == 3 and program.text == "copied 5 bytes\n"
        assert program.folder == folder and (folder / "out.bin").read_bytes() == b"\2\3\4\5\6"
        assert program.instructions is None
    with pytest.raises(ConfigError, match="is no name in the program's folder"):
        files_in(folder, {"../in.bin": b""})


def test_its_instructions_are_counted_exactly(tmp_path: Path) -> None:
    """By hand: 1000 turns of the loop take six each, work 6 more and 2 to return, start 3, its end 7."""
    found = []
    for work in (COUNTED, COUNTED.replace("1000", "2000")):
        with launched(M3, Launch(small_program(tmp_path, work), 30.0), count=True) as program:
            assert program.wait() == 0
            found.append(program.instructions)
    assert found == [6018, 12018]


@pytest.fixture(scope="module")
def asks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("asks")
    (folder / "asks.c").write_text(ASKS)
    subprocess.run(["gcc", folder / "asks.c", "-o", folder / "asks"], check=True)
    return folder / "asks"


PAUSES = """
#include <stdio.h>
#include <unistd.h>
static void say(const char *text) { fputs(text, stdout); fflush(stdout); usleep(30000); }
int main(void) {
  say("runs: 1"), say("2, errors: 1"), say("0\\n"), say("> ");
  getchar();
  say("ready?");
  getchar();
  return 0;
}"""


def test_a_match_within_a_line_that_goes_on_waits_for_the_rest(tmp_path: Path) -> None:
    """Each piece is flushed and followed by 30 ms of sleep; a prompt has no newline, and then nothing follows."""
    (tmp_path / "pauses.c").write_text(PAUSES)
    subprocess.run(["gcc", tmp_path / "pauses.c", "-o", tmp_path / "pauses"], check=True)
    with launched(NATIVE, Launch(tmp_path / "pauses", 30.0)) as program:
        assert program.expect(r"runs: (\d+)")[1] == "12"
        assert program.expect(r"errors: (\d+)$")[1] == "10"
        program.expect("> ")
        program.send("\n")
        assert program.expect(r"(\w+)\?$")[1] == "ready"
    order = Launch(tmp_path / "pauses", 30.0, until=re.compile("errors: 1$", re.MULTILINE))
    with launched(NATIVE, order) as program:
        assert program.wait() == 0
    with launched(NATIVE, Launch(tmp_path / "pauses", 30.0, until=re.compile("errors: 1.$"))) as program:
        assert program.wait() is None and program.text.endswith("errors: 10\n")


def test_text_goes_to_its_console(asks: Path) -> None:
    with launched(NATIVE, Launch(asks, 30.0)) as program:
        program.expect("who")
        program.send("bob\n")
        assert program.expect(r"^hello (.*)\n")[1] == "bob"
        with pytest.raises(ProgramFailed, match=r"asks has ended without saying 'alice'") as caught:
            program.expect("alice")
        assert caught.value.log == "who?\nhello bob\nbye\n"
        assert program.wait() == program.wait() == 0
        with pytest.raises(ProgramFailed, match="has ended before it was sent 'more'"):
            program.send("more")


def test_on_a_board_it_is_flashed_and_its_serial_port_is_its_console(
    asks: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has no end there but what `until` names, no exit status and no folder."""
    monkeypatch.setenv("HIL_LOCK_DIR", str(tmp_path / "locks"))
    name = f"test-launched-{os.getpid()}"
    board = on_virtual_board(NATIVE, name, 921600)
    with vboard.running("native", name, 921600):
        with launched(board, Launch(asks, 30.0, until=re.compile("^bye", re.MULTILINE))) as program:
            program.expect("who")
            program.send("bob\n")
            assert program.expect(r"^hello (.*)\n")[1] == "bob"
            assert program.wait() is None and program.folder is None
        with launched(board, Launch(asks, 1.0)) as program, pytest.raises(ProgramTimeout, match="1 s; its console is"):
            program.wait()
        for order in (Launch(asks, 1.0, ["-x"]), Launch(asks, 1.0, folder=tmp_path)):
            with pytest.raises(ConfigError, match="neither a command line nor a folder"), launched(board, order):
                pass


def test_what_is_not_said_in_time_and_a_fault_are_told(tmp_path: Path) -> None:
    began = time.monotonic()
    elf = small_program(tmp_path, 'void work(void) { say("going\\n"); for (;;) {} }')
    with launched(M3, Launch(elf, 60.0)) as program:
        program.expect("going")
        with pytest.raises(ProgramTimeout, match=r"program\.elf has not said 'gone' in 0\.3 s"):
            program.expect("gone", timeout=0.3)
        with pytest.raises(ConfigError, match="timeout: a number"):
            program.expect("gone", timeout=float("nan"))
        with pytest.raises(ConfigError, match="no regular expression"):
            program.expect("(")
    assert time.monotonic() - began < 30
    crash = small_program(tmp_path, 'void work(void) { say("going\\n"); __asm__("udf"); }')
    with launched(M3, Launch(crash, 60.0)) as program, pytest.raises(TargetFault, match="HardFault at last"):
        program.wait()
