"""What firmware and its simulator may do to the machine that runs them: nothing outside the run's own folder.

One board asks for what its command line says, by semihosting, before the runner serves.
"""

from __future__ import annotations

import dataclasses
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import pytest

from cortex_m_hil import flow
from cortex_m_hil.boards.virtual.machines import F405
from cortex_m_hil.errors import ForbiddenAccess, LaunchError, TargetFault, VerdictError
from cortex_m_hil.host import sandbox, sandbox_program, toolchain
from cortex_m_hil.host.sandbox import Sandbox, landlock_abi, program_sandbox
from cortex_m_hil.maintainers.fvp_shim import shim
from cortex_m_hil.runner import launchers
from cortex_m_hil.runner.build import build_runner
from cortex_m_hil.runner.launchers.qemu import QemuLauncher
from cortex_m_hil.runner.session.session import Session
from cortex_m_hil.targets.load import load_targets
from cortex_m_hil.targets.resolve import Resolved
from cortex_m_hil.targets.target import Target

SECONDS = 60.0
TARGET = load_targets()["m4-qemu"]
OPEN, REMOVE, RENAME, SYSTEM = 0x01, 0x0E, 0x0F, 0x12
READ, UPDATE, WRITE, APPEND = "1", "3", "5", "9"  # "rb", "r+b", "wb", "ab"

BOARD = r"""
#include <cstring>
#include "platform/board.h"
#include "platform/semihosting.h"

namespace {

char line[2048];
char answer[] = "the call returned 00000000\n";

uint32_t word(const void* pointer) { return static_cast<uint32_t>(reinterpret_cast<uintptr_t>(pointer)); }

uint32_t number(const char* text) {
  uint32_t value = 0;
  while (*text >= '0' && *text <= '9') value = 10 * value + static_cast<uint32_t>(*text++ - '0');
  return value;
}

void report(uint32_t value) {
  for (size_t i = sizeof answer - 3; value != 0; value >>= 4) answer[i--] = "0123456789abcdef"[value & 15];
  hil::semihosting::write0(answer);
}

}  // namespace

namespace hil {

// `runner OPERATION FIRST [SECOND]`: SECOND is the mode of an open and the new name of a rename.
void board_init() {
  const char* words[4] = {};
  if (!semihosting::command_line(line, sizeof line - 1)) return;
  int count = 0;
  for (char* at = std::strtok(line, " "); at != nullptr && count < 4; at = std::strtok(nullptr, " ")) {
    words[count++] = at;
  }
  if (count < 3) return;
  const uint32_t operation = number(words[1]);
  const char* second = count > 3 ? words[3] : "";
  uint32_t block[4] = {word(words[2]), std::strlen(words[2]), word(second), std::strlen(second)};
  if (operation == 1) {
    block[2] = block[1];
    block[1] = number(second);
  }
  register uint32_t r0 asm("r0") = operation;
  register uint32_t r1 asm("r1") = word(block);
  asm volatile("bkpt 0xAB" : "+r"(r0) : "r"(r1) : "memory");
  report(r0);
}

uint32_t board_clock_hz() { return 25000000; }

}  // namespace hil
"""


@pytest.fixture(scope="module")
def asking(tmp_path_factory: pytest.TempPathFactory) -> Target:
    """m4-qemu with a board that asks."""
    folder = tmp_path_factory.mktemp("boards") / "asking"
    shutil.copytree(TARGET.board.directory, folder)
    (folder / "board.cpp").write_text(BOARD)
    return dataclasses.replace(TARGET, board=dataclasses.replace(TARGET.board, name="asking", directory=folder))


@pytest.fixture
def run_folder(tmp_path: Path) -> Path:
    folder = tmp_path / "run"
    folder.mkdir()
    return folder


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    """A file of the user's, outside the run's folder."""
    path = tmp_path / "secret"
    path.write_text("kept")
    return path


def boot(target: Target, folder: Path, *words: object) -> str:
    """The log of a runner that answers; raises what a session raises."""
    elf = build_runner(target)
    process = launchers.start(target, elf, folder, ["runner", *map(str, words)])
    with closing(Session(target, elf, process)) as session:
        assert session.identity.build_id == elf.build_id
        return session.log


# --- the firmware's calls ------------------------------------------------------------------------------------


def test_a_command_is_refused(asking: Target, run_folder: Path, tmp_path: Path) -> None:
    with pytest.raises(ForbiddenAccess, match="to run a program") as caught:
        boot(asking, run_folder, SYSTEM, f">{tmp_path}/made")
    assert caught.value.target == asking.name and "hil docs security" in caught.value.hint
    assert isinstance(caught.value, VerdictError)
    assert not (tmp_path / "made").exists()


@pytest.mark.parametrize("mode", [READ, UPDATE, WRITE, APPEND])
def test_a_file_outside_is_refused_by_name(asking: Target, run_folder: Path, secret: Path, mode: str) -> None:
    with pytest.raises(ForbiddenAccess, match=f"openat {secret}"):
        boot(asking, run_folder, OPEN, secret, mode)
    assert secret.read_text() == "kept"


def test_files_of_the_system_are_refused(asking: Target, run_folder: Path) -> None:
    with pytest.raises(ForbiddenAccess, match="openat /etc/passwd"):
        boot(asking, run_folder, OPEN, "/etc/passwd", READ)


def test_a_new_file_outside_is_refused(asking: Target, run_folder: Path, tmp_path: Path) -> None:
    with pytest.raises(ForbiddenAccess, match=r"openat \.\./made"):
        boot(asking, run_folder, OPEN, "../made", WRITE)
    assert not (tmp_path / "made").exists()


def test_a_link_out_of_the_folder_is_refused(asking: Target, run_folder: Path, secret: Path) -> None:
    (run_folder / "link").symlink_to(secret)
    with pytest.raises(ForbiddenAccess, match="openat link"):
        boot(asking, run_folder, OPEN, "link", WRITE)
    assert secret.read_text() == "kept"


def test_removing_a_file_is_refused(asking: Target, run_folder: Path, secret: Path) -> None:
    with pytest.raises(ForbiddenAccess, match=f"unlink.* {secret}"):
        boot(asking, run_folder, REMOVE, secret)
    assert secret.exists()


@pytest.mark.parametrize("outwards", [True, False])
def test_renaming_a_file_is_refused(asking: Target, run_folder: Path, secret: Path, outwards: bool) -> None:
    (run_folder / "own").write_text("own")
    names = ("own", str(secret)) if outwards else (str(secret), "own")
    with pytest.raises(ForbiddenAccess, match=f"rename.* {names[0]} {names[1]}"):
        boot(asking, run_folder, RENAME, *names)
    assert secret.read_text() == "kept" and (run_folder / "own").read_text() == "own"


def test_its_own_folder_is_the_firmwares(asking: Target, run_folder: Path) -> None:
    assert "the call returned 0000000" in boot(asking, run_folder, OPEN, "made", WRITE)
    assert (run_folder / "made").exists()
    assert "the call returned 00000000" in boot(asking, run_folder, RENAME, "made", "moved")
    assert "the call returned 00000000" in boot(asking, run_folder, REMOVE, run_folder / "moved")
    assert list(run_folder.iterdir()) == []


def test_a_dut_raises_forbidden_access_without_a_retry(
    asking: Target, monkeypatch: pytest.MonkeyPatch, secret: Path
) -> None:
    """The whole way: no self-test, no second try, and no message about a simulator that was killed."""
    words = ("runner", str(OPEN), str(secret), READ)
    monkeypatch.setattr(
        QemuLauncher, "connect", lambda self, target, elf, folder, tools: self.start(target, elf, folder, words)
    )
    with flow.open_dut(Resolved(asking, asking, "builtin")) as dut, pytest.raises(ForbiddenAccess, match=str(secret)):
        flow.selftest(dut)


# --- where the kernel offers less ----------------------------------------------------------------------------


def test_without_landlock_the_rest_still_refuses(
    asking: Target, run_folder: Path, secret: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sandbox, "landlock_abi", lambda: 0)
    with pytest.raises(ForbiddenAccess, match="to run a program"):
        boot(asking, run_folder, SYSTEM, f">{tmp_path}/made")
    assert not (tmp_path / "made").exists()
    with pytest.raises(ForbiddenAccess, match=f"openat {secret}"):
        boot(asking, run_folder, OPEN, secret, WRITE)
    assert secret.read_text() == "kept"


@pytest.fixture
def unobserved(monkeypatch: pytest.MonkeyPatch) -> None:
    """As where the kernel, or the container around us, has no user notification."""
    command = Sandbox.command
    monkeypatch.setattr(Sandbox, "command", lambda self, words, observer: command(self, words))


@pytest.mark.first_only
@pytest.mark.skipif(not landlock_abi(), reason="this kernel has no Landlock")
@pytest.mark.parametrize("mode", [READ, UPDATE, WRITE, APPEND])
def test_without_notification_landlock_still_refuses(
    unobserved: None, asking: Target, run_folder: Path, secret: Path, mode: str
) -> None:
    """Then no verdict tells of it: the file just does not open."""
    assert "the call returned ffffffff" in boot(asking, run_folder, OPEN, secret, mode)
    assert "the call returned ffffffff" in boot(asking, run_folder, REMOVE, secret)
    assert "the call returned ffffffff" in boot(asking, run_folder, RENAME, secret, "own")
    assert "the call returned 0000000" in boot(asking, run_folder, OPEN, "own", WRITE)
    assert secret.read_text() == "kept"


def unreadable(thread: int, address: int) -> str:
    raise PermissionError


def test_names_that_cannot_be_read(
    asking: Target, run_folder: Path, secret: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where kernel.yama.ptrace_scope is 3: never a hang, and never a file where nothing else protects it."""
    monkeypatch.setattr(sandbox, "_text_at", unreadable)
    if landlock_abi():
        assert "the call returned ffffffff" in boot(asking, run_folder, OPEN, secret, WRITE)
        assert "the call returned 0000000" in boot(asking, run_folder, OPEN, "own", WRITE)
    monkeypatch.setattr(sandbox, "landlock_abi", lambda: 0)
    with pytest.raises(ForbiddenAccess, match="openat, with a name that cannot be read"):
        boot(asking, run_folder, OPEN, secret, WRITE)
    assert secret.read_text() == "kept"


def decide(steps: Sequence[tuple[int, int, int, int]], number: int, architecture: int, flags: int) -> bool:
    """What the kernel's interpreter makes of a filter: whether the call is reported."""
    data = {0: number, 4: architecture, 32: flags}
    held = at = 0
    while True:
        code, taken, passed, operand = steps[at]
        if code == 0x06:
            return operand == 0x7FC00000
        if code == 0x20:
            held = data[operand]
            at += 1
        else:
            holds = held == operand if code == 0x15 else held & operand
            at += 1 + (taken if holds else passed)


@pytest.mark.parametrize("machine", sandbox_program.MACHINES)
def test_which_calls_are_reported(machine: str) -> None:
    architecture, _, calls = sandbox_program.MACHINES[machine]
    steps = list(sandbox_program.seccomp_filter(architecture, calls))
    for number in range(600):
        named = number in calls
        assert decide(steps, number, architecture, os.O_RDONLY) == named
        assert decide(steps, number, architecture, os.O_WRONLY | os.O_CREAT) == named
        assert decide(steps, number, architecture, os.O_CLOEXEC) == (named and calls[number][0] != "openat")
        assert not decide(steps, number, architecture + 1, os.O_RDONLY)


@pytest.mark.skipif(not landlock_abi(), reason="this kernel has no Landlock")
def test_a_script_as_qemu_is_named(run_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wrapper = tmp_path / "qemu-system-arm"
    wrapper.write_text(f'#!/bin/sh\nexec {toolchain.locate("qemu-system-arm")} "$@"\n')
    wrapper.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    with pytest.raises(LaunchError, match=f"sandbox: cannot execute {wrapper}: .*hil docs security"):
        boot(TARGET, run_folder)


def run(box: Sandbox, *command: str) -> subprocess.CompletedProcess[str]:
    path = str(toolchain.locate(command[0]))
    return subprocess.run(
        box.command([path, *command[1:]]), capture_output=True, text=True, cwd=box.folder, timeout=SECONDS, check=False
    )


@pytest.mark.parametrize("abi", range(1, landlock_abi() + 1))
def test_the_sandbox_confines_with_every_older_landlock_abi(
    abi: int, run_folder: Path, secret: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sandbox, "landlock_abi", lambda: abi)
    (run_folder / "own").write_text("own")
    assert run(program_sandbox(Path("/bin/cat"), run_folder), "cat", "own").stdout == "own"
    assert "Permission denied" in run(program_sandbox(Path("/bin/cat"), run_folder), "cat", str(secret)).stderr
    assert run(program_sandbox(Path("/bin/cat"), run_folder, secret), "cat", str(secret)).stdout == "kept"
    for command in (["cp", "own", str(secret)], ["rm", str(secret)], ["mv", str(secret), "own"]):
        done = run(program_sandbox(toolchain.locate(command[0]), run_folder, secret), *command)
        assert done.returncode != 0 and "ermission denied" in done.stderr, done
    assert run(program_sandbox(toolchain.locate("cp"), run_folder), "cp", "own", "new").returncode == 0
    assert secret.read_text() == "kept" and (run_folder / "new").read_text() == "own"


# --- what targets.yaml adds to the command line ---------------------------------------------------------------


def with_arguments(target: Target, *arguments: str) -> Target:
    assert isinstance(target.launcher, QemuLauncher)
    return dataclasses.replace(target, launcher=dataclasses.replace(target.launcher, args=arguments))


def test_arguments_do_not_lift_the_sandbox(asking: Target, run_folder: Path, secret: Path, tmp_path: Path) -> None:
    off = with_arguments(asking, "-sandbox", "off")
    with pytest.raises(ForbiddenAccess, match="to run a program"):
        boot(off, run_folder, SYSTEM, f">{tmp_path}/made")
    assert not (tmp_path / "made").exists()
    with pytest.raises(ForbiddenAccess, match=f"openat {secret}"):
        boot(off, run_folder, OPEN, secret, WRITE)
    assert secret.read_text() == "kept"


@pytest.mark.skipif(not landlock_abi(), reason="this kernel has no Landlock")
@pytest.mark.parametrize(
    "arguments",
    [
        ("-chardev", "file,id=out,path={place}/made"),
        ("-serial", "file:{place}/made"),
        ("-D", "{place}/made"),
        ("-drive", "file={place}/secret,format=raw,if=sd"),
        ("-device", "loader,file={place}/secret,addr=0x60000000"),
        ("-gdb", "tcp::45711"),
    ],
    ids=lambda arguments: arguments[0],
)
def test_arguments_reach_no_file_and_no_port(run_folder: Path, secret: Path, arguments: Sequence[str]) -> None:
    """Landlock holds for what QEMU is told to open as well; it says so and ends, and that is no verdict."""
    place = secret.parent
    with pytest.raises(LaunchError, match=r"qemu-system-arm ended with status 1: .*(ermission denied|Cannot load)"):
        boot(with_arguments(TARGET, *(text.format(place=place) for text in arguments)), run_folder)
    assert secret.read_text() == "kept" and not (place / "made").exists()


# --- the other launchers -------------------------------------------------------------------------------------

NATIVE = r"""
#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>

#include "platform/board.h"

namespace hil {

void board_init() {
  const int made = open("made", O_CREAT | O_WRONLY, 0600);
  const int outside = open("../made", O_CREAT | O_WRONLY, 0600);
  const int read = open("../secret", O_RDONLY);
  const int removed = unlink("../secret");
  const int ran = std::system("echo x > ../made");
  std::fprintf(stderr, "made %d outside %d read %d removed %d ran %d\n", made >= 0, outside, read, removed, ran == 0);
}

uint32_t board_clock_hz() { return 1000000000; }

}  // namespace hil
"""


@pytest.mark.skipif(not landlock_abi(), reason="this kernel has no Landlock")
def test_the_native_runner_sees_its_own_folder(tmp_path: Path, run_folder: Path, secret: Path) -> None:
    """It is a process of the host: what it asks for is refused, and no verdict tells of it."""
    native = load_targets()["native"]
    folder = tmp_path / "board"
    shutil.copytree(native.board.directory, folder)
    (folder / "board.cpp").write_text(NATIVE)
    target = dataclasses.replace(native, board=dataclasses.replace(native.board, name="board", directory=folder))
    assert "made 1 outside -1 read -1 removed -1 ran 0" in boot(target, run_folder)
    assert secret.read_text() == "kept" and not (tmp_path / "made").exists()


@pytest.mark.skipif(not landlock_abi(), reason="this kernel has no Landlock")
def test_a_virtual_board_sees_its_own_folder(tmp_path: Path, run_folder: Path) -> None:
    outwards = ["-chardev", f"file,id=out,path={tmp_path}/made"]
    done = subprocess.run(
        [*F405(run_folder).command(), *outwards], capture_output=True, text=True, timeout=SECONDS, check=False
    )
    assert done.returncode == 1 and "Permission denied" in done.stderr
    assert not (tmp_path / "made").exists()


OUTWARDS = """
import _socket, os
def refused(what, *arguments):
    try:
        what(*arguments)
    except PermissionError:
        return True
tcp = _socket.socket()
print(refused(tcp.bind, ("127.0.0.1", 0)), refused(tcp.connect, ("127.0.0.1", 9)), refused(os.kill, os.getppid(), 0))
"""


@pytest.mark.skipif(landlock_abi() < 4, reason="Landlock knows TCP from ABI 4 on, signals and abstract sockets from 6")
def test_no_network_and_no_signals(run_folder: Path) -> None:
    """What a program inside may do to processes outside."""
    python = Path(sys.executable)
    box = program_sandbox(python, run_folder, Path(sys.base_prefix))
    done = run(box, sys.executable, "-I", "-S", "-c", OUTWARDS)
    signals = str(landlock_abi() >= 6 or None)
    assert done.stdout.split() == ["True", "True", signals], done.stderr


def test_a_call_that_qemu_does_not_know_is_the_firmwares_fault(asking: Target, run_folder: Path) -> None:
    with pytest.raises(TargetFault, match="a semihosting call that QEMU does not know"):
        boot(asking, run_folder, 0x0B, "x")


@pytest.mark.parametrize("arguments", [("-icount", "shift=4,sleep=off"), ("-accel", "tcg,thread=single")])
def test_however_qemu_runs_its_processors(
    asking: Target, run_folder: Path, secret: Path, arguments: Sequence[str]
) -> None:
    """Counting instructions, all processors share a thread, which still is not the first."""
    with pytest.raises(ForbiddenAccess, match=f"openat {secret}"):
        boot(with_arguments(asking, *arguments), run_folder, OPEN, secret, READ)


def test_the_shim_of_an_fvp_runs_no_commands(
    asking: Target, run_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its files are those of whoever starts it, as with Arm's models."""
    shim.install(tmp_path / "models")
    monkeypatch.setenv("PATH", f"{tmp_path / 'models'}{os.pathsep}{os.environ['PATH']}")
    model = dataclasses.replace(load_targets()["m4-fvp"], board=asking.board)
    with pytest.raises(ForbiddenAccess, match="to run a program"):
        boot(model, run_folder, SYSTEM, f">{tmp_path}/made")
    assert not (tmp_path / "made").exists()
