"""Simulators as processes: how they are started, what is said when they fail, and that none outlives its owner.

Where no real simulator can be had or can be made to misbehave, a script stands in under its name.
"""

from __future__ import annotations

import dataclasses
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, Literal

import psutil
import pytest

import cortex_m_hil.runner.session.events
from cortex_m_hil import flow
from cortex_m_hil.errors import ConfigError, LaunchError, LinkError, ProtocolError, TargetFault, ToolchainError
from cortex_m_hil.host import sandbox, timeouts, toolchain
from cortex_m_hil.host.deadline import Deadline
from cortex_m_hil.program.known_answer import known_answer
from cortex_m_hil.runner import launchers
from cortex_m_hil.runner.build import build_runner
from cortex_m_hil.runner.launchers import fvp
from cortex_m_hil.runner.launchers.fvp import FvpLauncher
from cortex_m_hil.runner.launchers.process import Process
from cortex_m_hil.runner.launchers.qemu import QemuLauncher
from cortex_m_hil.targets.connection import Connection, Elf, LinkClosed
from cortex_m_hil.targets.cpu import Isa
from cortex_m_hil.targets.load import load_targets
from cortex_m_hil.targets.resolve import Resolved, resolve
from cortex_m_hil.targets.target import Target
from paths import IMPORT_ROOT, REPOSITORY
from several_methods import modules, three_methods

NAMES = ["native", "m4-qemu", "m0-qemu", "m55-qemu"]
TARGETS = load_targets()
MODEL = "FVP_MPS2_Cortex-M4"
CPU = "armcortexm4ct"
SECONDS = 60.0  # nothing here comes near

PARAMETERS = [
    f"{CPU}.semihosting-enable=1                     # (bool) default = '1' : Enable semihosting",
    f'{CPU}.semihosting-cmd_line=""                  # (string) default = "" : Command line',
    f'{CPU}.semihosting-cwd=""                       # (string) default = "" : Base directory',
    f"{CPU}.semihosting-heap_limit=0x10700000        # (int) default = 0x10700000",
    f"{CPU}.semihosting-stack_base=0x10700000        # (int) default = 0x10700000",
    f"{CPU}.vfp-present=1                            # (bool) default = '1' : Set whether the model has VFP",
    "fvp_mps2.mps2_visualisation.disable-visualisation=0 # (bool)",
    *(f"fvp_mps2.telnetterminal{n}.start_telnet=1    # (bool) default = '1'" for n in range(3)),
]

# What a Fast Model does with its command line, on QEMU's machine with the same memory map.
FAKE_MODEL = """#!{python}
import os, pathlib, sys
here = pathlib.Path(__file__).resolve().parent
if "--version" in sys.argv:
    print("\\nFast Models [11.27.42 (May 16 2024)]\\nCopyright 2000-2024 ARM Limited.")
elif "-l" in sys.argv:
    print((here / "parameters").read_text())
else:
    (here / "command").write_text("\\n".join(sys.argv[1:]))
    options = dict(zip(sys.argv, sys.argv[1:]))
    given = [sys.argv[at + 1] for at, word in enumerate(sys.argv) if word == "-C"]
    values = dict(text.split("=", 1) for text in given)
    semihosting = "enable=on,target=native"
    for word in values.get("{cpu}.semihosting-cmd_line", "").split():
        semihosting += ",arg=" + word
    os.chdir(values["{cpu}.semihosting-cwd"])
    quiet = ["-display", "none", "-serial", "none", "-monitor", "none"]
    os.execvp("qemu-system-arm", ["qemu-system-arm", "-M", "mps2-an386", *quiet, "-semihosting-config", semihosting,
                                  "-kernel", options["-a"]])
"""


def script(path: Path, text: str) -> Path:
    path.write_text(text)
    path.chmod(0o755)
    return path


def alive(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def wait_until_gone(pid: int) -> None:
    """Also for what is no child of ours."""
    if alive(pid):
        psutil.Process(pid).wait(SECONDS)
    assert not alive(pid)


@pytest.fixture
def bin_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder whose programs are found before all others. Scripts that stand in for a simulator need more than one."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setattr(sandbox, "landlock_abi", lambda: 0)
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
    return folder


@pytest.fixture
def model(bin_first: Path) -> Path:
    """The folder of a working model: its `parameters` are what `-l` lists, `command` is what it was called with."""
    (bin_first / "parameters").write_text("# Parameters:\n" + "\n".join(PARAMETERS) + "\n#-----\n")
    script(bin_first / MODEL, FAKE_MODEL.format(python=sys.executable, cpu=CPU))
    return bin_first


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """The working folder of one run."""
    folder = tmp_path / "run"
    folder.mkdir()
    return folder


def m4() -> Elf:
    return build_runner(TARGETS["m4-qemu"])


# --- FVP -----------------------------------------------------------------------------------------------------


def test_a_model_serves_like_any_target(model: Path) -> None:
    resolved = resolve("m4-fvp", TARGETS, require_fvp=True)
    with flow.open_dut(resolved) as dut:
        flow.selftest(dut)
        ran = dut.ran()
        assert (ran.target, ran.engine) == ("m4-fvp", f"{MODEL} 11.27.42")
        assert ran.label.startswith(f"{resolved.display_name} · builtin ") and "QEMU" not in ran.label


def test_the_fvp_command_line_sets_all_described_parameters(model: Path, directory: Path) -> None:
    elf = m4()
    line = FvpLauncher(MODEL).command(elf.path, directory, ())
    assert line[0] == str(model / MODEL)
    assert line[line.index("-a") + 1] == str(elf.path)
    assert int(line[line.index("--timelimit") + 1]) > 0
    values = dict(line[at + 1].split("=", 1) for at, word in enumerate(line) if word == "-C")
    listed = {text.split("=")[0] for text in PARAMETERS}
    assert set(values) == listed - {f"{CPU}.semihosting-cmd_line"}
    assert values[f"{CPU}.semihosting-enable"] == "1"
    assert values[f"{CPU}.semihosting-cwd"] == str(directory)
    assert values["fvp_mps2.telnetterminal0.start_telnet"] == "0"
    assert (directory / ":semihosting-features").read_bytes() == b"SHFB\x01"


def test_a_users_parameters_are_passed_on_and_checked(model: Path, directory: Path) -> None:
    with (model / "parameters").open("a") as listed:
        listed.write("fvp_mps2.UART0.out_file=-\n")
    good = FvpLauncher(MODEL, (("fvp_mps2.UART0.out_file", "log"),))
    assert "fvp_mps2.UART0.out_file=log" in good.command(m4().path, directory, ())
    with pytest.raises(ConfigError, match=r"no parameter 'fvp_mps2.UART0.outfile'") as caught:
        FvpLauncher(MODEL, (("fvp_mps2.UART0.outfile", "log"),)).command(m4().path, directory, ())
    assert "did you mean 'fvp_mps2.UART0.out_file'" in caught.value.hint


@pytest.mark.parametrize("missing", [f"{CPU}.vfp-present", "fvp_mps2.telnetterminal2.start_telnet"])
def test_a_model_that_lacks_a_parameter_is_not_started(model: Path, directory: Path, missing: str) -> None:
    kept = [text for text in PARAMETERS if not text.startswith(missing)]
    (model / "parameters").write_text("\n".join(kept).replace("MPS2", ""))
    with pytest.raises(ConfigError, match=f"{MODEL} has no parameter '{missing}'") as caught:
        launchers.start(TARGETS["m4-fvp"], m4(), directory)
    assert "did you mean" in caught.value.hint
    assert not (model / "command").exists()


def test_a_model_that_lists_nothing(model: Path, directory: Path) -> None:
    (model / "parameters").write_text("")
    with pytest.raises(LaunchError, match="lists no parameters"):
        launchers.start(TARGETS["m4-fvp"], m4(), directory)


@pytest.mark.parametrize(("length", "fits"), [(256, True), (257, False)])
def test_a_model_keeps_256_characters_of_the_command_line(
    model: Path, directory: Path, length: int, fits: bool
) -> None:
    words = ["executor_runner", "-m", "program.pte", "-o", "out", "-i"]
    words.append("x" * (length - len(" ".join(words)) - 1))
    assert len(" ".join(words)) == length
    launcher = FvpLauncher(MODEL)
    if fits:
        assert f"{CPU}.semihosting-cmd_line={' '.join(words)}" in launcher.command(m4().path, directory, words)
    else:
        with pytest.raises(ConfigError, match=r"257 characters.* 256"):
            launcher.command(m4().path, directory, words)


LICENCE = "echo 'Error: license checkout for FEATURE failed: cannot connect to license server' >&2; exit 1"


def test_a_missing_licence_is_said(model: Path, directory: Path) -> None:
    script(model / MODEL, f"#!/bin/sh\n{LICENCE}\n")
    with pytest.raises(LaunchError, match=r"no licence.*cannot connect") as caught:
        launchers.start(TARGETS["m4-fvp"], m4(), directory)
    assert "ARMLM" in caught.value.hint


def test_a_licence_that_is_missing_only_when_it_counts(model: Path) -> None:
    working = (model / MODEL).rename(model / "working")
    script(model / MODEL, f'#!/bin/sh\ncase "$1" in -l|--version) exec {working} "$1";; esac\n{LICENCE}\n')
    with flow.open_dut(resolve("m4-fvp", TARGETS)) as dut, pytest.raises(LaunchError, match="license") as caught:
        dut.session()
    assert caught.value.target == "m4-fvp"


def test_an_undescribed_fvp_is_a_config_error() -> None:
    with pytest.raises(ConfigError, match="no description of the FVP 'FVP_Base'"):
        fvp.model_family("FVP_Base")


def test_a_model_that_is_gone(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(directory))
    with pytest.raises(ToolchainError, match=MODEL):
        FvpLauncher(MODEL).command(directory / "runner.elf", directory, ())


# --- simulators that fail ------------------------------------------------------------------------------------


def fake_qemu(folder: Path, body: str) -> flow.Dut:
    """m4-qemu with a QEMU that answers `--version` and then does `body`."""
    version = '[ "$1" = --version ] && exec echo "QEMU emulator version 7.2.22"'
    script(folder / "qemu-system-arm", f"#!/bin/sh\n{version}\n{body}\n")
    return flow.open_dut(resolve("m4-qemu", TARGETS))


@pytest.fixture
def short_deadlines(monkeypatch: pytest.MonkeyPatch) -> None:
    """A short handshake, which does not begin before the simulator has said something, however busy the host is."""
    connect = launchers.connect

    def connect_and_listen(*arguments: Any) -> Connection:
        process = connect(*arguments)
        assert isinstance(process, Process)
        while not (process.log or process._received):
            process._pump(Deadline.after(SECONDS))
        return process

    monkeypatch.setattr(launchers, "connect", connect_and_listen)
    monkeypatch.setattr(timeouts, "HANDSHAKE", 0.1)


def launch_fails(dut: flow.Dut, text: str) -> LaunchError:
    before = set(psutil.Process().children(recursive=True))  # a preloaded Python, where an earlier test asked for one
    with dut, pytest.raises(LaunchError, match=text) as caught:
        dut.session()
    assert caught.value.target == "m4-qemu"
    assert not set(psutil.Process().children(recursive=True)) - before
    return caught.value


def test_a_simulator_that_dies_at_once(bin_first: Path) -> None:
    dut = fake_qemu(bin_first, "echo 'qemu: unsupported machine type' >&2; exit 1")
    error = launch_fails(dut, "qemu-system-arm ended with status 1: qemu: unsupported machine type")
    assert "unsupported machine type" in error.log


def test_a_machine_that_qemu_does_not_have_is_a_mistake_in_targets_yaml_and_told_before_a_build(tmp_path: Path) -> None:
    path = tmp_path / "targets.yaml"
    path.write_text("targets:\n  mine: {cpu: cortex-m4, board: mps2, launcher: {qemu: mps2-an368}}\n")
    mine = resolve("mine", load_targets(path))
    with pytest.raises(ConfigError) as caught:
        flow.open_dut(mine)
    assert re.match(r"targets\.yaml:2: QEMU [\d.]+ has no machine 'mps2-an368'", caught.value.message)
    assert "'mps2-an386'" in caught.value.hint and "'mps2-an385'" in caught.value.hint


def test_a_simulator_that_dies_at_once_with_a_word_on_its_standard_output(bin_first: Path) -> None:
    error = launch_fails(fake_qemu(bin_first, "echo 'cannot open display'; exit 4"), "ended with status 4")
    assert "cannot open display" in error.log
    assert "cannot open display" in error.message


def test_a_simulator_that_ends_without_a_word(bin_first: Path) -> None:
    launch_fails(fake_qemu(bin_first, "exit 0"), "ended with status 0: it printed nothing")


def test_a_simulator_that_kills_itself(bin_first: Path) -> None:
    launch_fails(fake_qemu(bin_first, "kill -SEGV $$"), r"qemu-system-arm was killed from outside \(SIGSEGV\)")


def test_a_simulator_that_locks_up(bin_first: Path) -> None:
    dut = fake_qemu(bin_first, "echo 'qemu: fatal: Lockup: can not escalate 3 to HardFault' >&2; kill -ABRT $$")
    with dut, pytest.raises(TargetFault, match="locked up"):
        dut.session()


def test_a_simulator_that_never_answers(bin_first: Path, short_deadlines: None) -> None:
    dut = fake_qemu(bin_first, "echo 'waiting for a debugger'; exec sleep 1000")
    error = launch_fails(dut, "does not answer its handshake")
    assert "waiting for a debugger" in error.log
    assert "hil doctor" in error.hint


def test_a_simulator_that_only_talks(bin_first: Path, short_deadlines: None) -> None:
    error = launch_fails(fake_qemu(bin_first, "exec yes garbage"), "does not answer its handshake")
    assert "garbage" in error.log
    assert len(error.log) <= cortex_m_hil.runner.session.events.LOG_LIMIT


def test_a_simulator_that_only_complains(bin_first: Path, short_deadlines: None) -> None:
    error = launch_fails(fake_qemu(bin_first, "exec yes trouble 3>&1 >&2"), "does not answer its handshake")
    assert "trouble" in error.log


def test_a_simulator_that_closes_its_output_and_stays(bin_first: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timeouts, "PROCESS_END", 0.2)
    launch_fails(fake_qemu(bin_first, "exec >&-\nexec yes trouble >&2"), "closed its output but did not end")


@pytest.mark.slow
def test_what_a_simulator_started_is_ended_with_it(bin_first: Path, tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    dut = fake_qemu(bin_first, f"sleep 1000 & echo $! > {pid_file}; exit 3")  # it keeps the pipes open
    launch_fails(dut, "ended with status 3")
    assert not alive(int(pid_file.read_text()))


@pytest.mark.parametrize(
    "body",
    [
        r"printf '\000\005\100\001\377\000'; exit 0",
        r"exec printf '\000%0200000d\000' 7",
        "exec head -c 300000 /dev/urandom",
    ],
    ids=["half-frames", "an-endless-frame", "noise"],
)
def test_a_simulator_that_prints_garbage_and_ends(bin_first: Path, body: str) -> None:
    launch_fails(fake_qemu(bin_first, body), "ended with status 0")


def test_a_simulator_that_speaks_the_protocol_badly(bin_first: Path, tmp_path: Path) -> None:
    """Good frames with payloads that are cut short."""
    source = (
        "import sys\nfrom cortex_m_hil.runner.links.framing import Decoder, ProtocolFrame, encode\n"
        "out = sys.stdout.buffer\n"
        "for frame in Decoder().feed(sys.stdin.buffer.raw.read(4096)):\n"
        "    out.write(encode(ProtocolFrame(frame.type | 0x80, frame.seq, b'\\0\\0\\x40\\0short')))\n"
    )
    (tmp_path / "liar.py").write_text(source)
    dut = fake_qemu(bin_first, f"PYTHONPATH={IMPORT_ROOT} exec {sys.executable} {tmp_path}/liar.py")
    with dut, pytest.raises((ProtocolError, LinkError)):
        dut.session()


def test_an_executable_that_is_none(bin_first: Path) -> None:
    dut = fake_qemu(bin_first, "")
    toolchain.find("qemu-system-arm")  # answers for its version, and is damaged afterwards
    (bin_first / "qemu-system-arm").write_bytes(b"\x7fELF garbage")
    launch_fails(dut, "qemu-system-arm ended with status 12[67]")


def test_a_missing_simulator_is_a_toolchain_error(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    elf = m4()
    monkeypatch.setenv("PATH", str(directory))
    with pytest.raises(ToolchainError, match="qemu-system-arm is not on PATH") as caught:
        launchers.start(TARGETS["m4-qemu"], elf, directory)
    assert "apt-get install" in caught.value.hint


def test_a_folder_that_is_gone(directory: Path) -> None:
    with pytest.raises(LaunchError):
        launchers.start(TARGETS["m4-qemu"], m4(), directory / "nowhere")


# --- processes -----------------------------------------------------------------------------------------------


def test_a_full_pipe_each_way_blocks_nobody() -> None:
    with closing(Process(["cat"])) as process:
        data = os.urandom(1 << 20)
        process.write(data, Deadline.after(SECONDS))
        got = bytearray()
        while len(got) < len(data):
            got += process.read(Deadline.after(SECONDS))
        assert got == data


def test_a_child_that_reads_nothing_costs_no_more_than_the_deadline() -> None:
    with closing(Process(["sleep", "1000"])) as process, pytest.raises(TimeoutError):
        process.write(bytes(1 << 20), Deadline.after(0.05))


def test_a_child_that_is_gone_is_a_closed_link() -> None:
    with closing(Process(["true"])) as process:
        with pytest.raises(LinkClosed):
            process.read(Deadline.after(SECONDS))
        assert process.wait(SECONDS) == 0
        with pytest.raises(LinkClosed):
            process.write(b"x" * (1 << 20), Deadline.after(SECONDS))


def test_closing_twice_is_closing_once() -> None:
    process = Process(["sleep", "1000"])
    process.close()
    process.close()
    assert not alive(process.pid)


def test_budgets_count_the_childs_time() -> None:
    with closing(Process(["sh", "-c", "while :; do :; done"])) as process:
        busy = dataclasses.replace(process.budget(0.2), wall=Deadline.after(SECONDS))  # however busy the host is
        while not busy.expired:
            before = time.monotonic()
            poll = busy.next_poll
            assert poll.at > before
            with pytest.raises(TimeoutError):
                process.read(poll)
        assert process.cpu_seconds() >= 0.2


OWNER = """
import sys
from cortex_m_hil import flow
from cortex_m_hil.targets.resolve import resolve
from cortex_m_hil.targets.load import load_targets
targets = load_targets()
duts = [flow.open_dut(resolve(name, targets)) for name in sys.argv[1:]]
print(*(dut.session()._process.pid for dut in duts), flush=True)
sys.stdin.read()
"""


def run_python(source: str, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", source, *arguments],
        cwd=REPOSITORY,
        env={**os.environ, "PYTHONPATH": str(IMPORT_ROOT)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


@pytest.mark.first_only
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_no_simulator_outlives_its_owner(number: signal.Signals) -> None:
    owner = run_python(OWNER, *NAMES)
    assert owner.stdout is not None
    pids = [int(pid) for pid in owner.stdout.readline().split()]
    assert len(pids) == len(NAMES) and all(alive(pid) for pid in pids)
    owner.send_signal(number)
    owner.communicate()
    assert owner.returncode != 0
    for pid in pids:
        wait_until_gone(pid)


def test_no_busy_simulator_outlives_its_owner() -> None:
    """One that does not read, so it would not see the end of its input."""
    source = (
        "import sys\nfrom cortex_m_hil.runner.launchers.process import Process\n"
        "process = Process(['sleep', '1000'])\nprint(process.pid, flush=True)\nsys.stdin.read()"
    )
    owner = run_python(source)
    assert owner.stdout is not None
    pid = int(owner.stdout.readline())
    owner.kill()
    owner.communicate()
    wait_until_gone(pid)


@pytest.mark.parametrize(
    "command",
    ["subprocesses.foreground(sys.argv[1:])", "vboard.act('native', ['run', *sys.argv[1:]], 'native', 921_600, 0)"],
)
def test_no_command_in_the_foreground_outlives_its_owner(command: str, tmp_path: Path) -> None:
    imports = "import sys\nfrom cortex_m_hil.boards.virtual import vboard\nfrom cortex_m_hil.host import subprocesses"
    source = f"{imports}\n{command}"
    owner = run_python(source, "sh", "-c", "echo $$; exec sleep 1000")
    assert owner.stdout is not None
    pid = int(owner.stdout.readline())
    owner.kill()
    owner.communicate()
    wait_until_gone(pid)


def test_a_command_in_the_foreground_takes_its_own_interrupts() -> None:
    source = "import sys\nfrom cortex_m_hil.host import subprocesses\nprint(subprocesses.foreground(sys.argv[1:]))"
    trap = "trap 'exit 3' INT; echo ready; while :; do read line || :; done"
    owner = run_python(source, "bash", "-c", trap)
    assert owner.stdout is not None and owner.stdout.readline() == "ready\n"
    for pid in (owner.pid, *(child.pid for child in psutil.Process(owner.pid).children(recursive=True))):
        os.kill(pid, signal.SIGINT)  # as a terminal does
    assert owner.communicate(timeout=SECONDS)[0] == "3\n"


def test_a_simulator_outlives_the_thread_that_asked_for_it() -> None:
    source = (
        "import threading\nfrom cortex_m_hil.runner.launchers.process import Process\n"
        "from cortex_m_hil.host.deadline import Deadline\n"
        "made = []\n"
        "thread = threading.Thread(target=lambda: made.append(Process(['cat'])))\nthread.start(); thread.join()\n"
        "made[0].write(b'still here', Deadline.after(60))\nprint(made[0].read(Deadline.after(60)).decode())"
    )
    out, _ = run_python(source).communicate(timeout=SECONDS)
    assert out == "still here\n"


FORKER = """
import os
from cortex_m_hil import flow
from cortex_m_hil.targets.resolve import resolve
from cortex_m_hil.targets.load import load_targets
resolved = resolve("native", load_targets())
before = flow.open_dut(resolved)
flow.selftest(before)
child = os.fork()
with flow.open_dut(resolved) as dut:
    flow.selftest(dut)
if child == 0:
    os._exit(7)
flow.selftest(before)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


def test_a_fork_starts_simulators_of_its_own() -> None:
    out, _ = run_python(FORKER).communicate(timeout=SECONDS)
    assert out == "7\n"


# --- one-shot ------------------------------------------------------------------------------------------------


@pytest.fixture(params=[*NAMES, "m4-fvp"])
def one_shot(request: pytest.FixtureRequest, directory: Path) -> Iterator[Callable[..., tuple[int | None, str]]]:
    """Runs `executor_runner ARGUMENTS` on a target, with the self-test's files there; its status and all it printed."""
    if request.param == "m4-fvp":
        request.getfixturevalue("model")
    target: Target = TARGETS[request.param]
    known = known_answer(target.isa)
    (directory / "program.pte").write_bytes(known.program)
    (directory / "i0.bin").write_bytes(known.inputs[0].data)

    def run(*arguments: str) -> tuple[int | None, str]:
        process = launchers.start(target, build_runner(target), directory, ["executor_runner", *arguments])
        with closing(process):
            text = bytearray()
            try:
                while True:
                    text += process.read(Deadline.after(SECONDS))
            except LinkClosed:
                status = process.wait(SECONDS)
            return status, (text + process.log).decode()

    yield run


OneShot = Callable[..., tuple[int | None, str]]
GOOD = ("-m", "program.pte", "-o", "out", "-i", "i0.bin")


def test_one_shot_leaves_the_right_bytes(one_shot: OneShot, directory: Path) -> None:
    status, text = one_shot(*GOOD)
    assert status == 0, text
    (expected,) = {known_answer(isa).expected[0].data for isa in Isa}  # all classes agree bit for bit
    assert (directory / "out-0.bin").read_bytes() == expected
    assert not (directory / "out-1.bin").exists()
    assert "executed" in text


@pytest.mark.first_only
def test_one_shot_runs_the_method_that_is_named(one_shot: OneShot, directory: Path) -> None:
    """And the first one otherwise, as ExecuTorch's runners do."""
    (directory / "program.pte").write_bytes(three_methods())
    for name, (module, inputs) in modules().items():
        given = [item for number in range(len(inputs)) for item in ("-i", f"i{number}.bin")]
        for number, value in enumerate(inputs):
            (directory / f"i{number}.bin").write_bytes(value.numpy().tobytes())
        status, text = one_shot("-m", "program.pte", "--method_name", name, "-o", name, *given)
        assert status == 0, text
        outputs = module(*inputs)
        for number, output in enumerate(outputs if isinstance(outputs, tuple) else (outputs,)):
            assert (directory / f"{name}-{number}.bin").read_bytes() == output.detach().numpy().tobytes()
        if name == "decode":
            assert one_shot("-m", "program.pte", "-o", "out", *given)[0] == 0
            assert (directory / "out-1.bin").read_bytes() == (directory / "decode-1.bin").read_bytes()
    status, text = one_shot("-m", "program.pte", "--method_name", "no", "-o", "no")
    assert status == 1 and 'the program has no method "no" among its 6' in text


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("-m", "none.pte", "-o", "out", "-i", "i0.bin"), "cannot open none.pte"),
        (("-m", "i0.bin", "-o", "out", "-i", "i0.bin"), "not a .pte"),
        (("-m", "program.pte", "-o", "out", "-i", "none.bin"), "cannot open none.bin"),
        (("-m", "program.pte", "-o", "out", "-i", "program.pte"), "is larger than 64 bytes"),
        (("-m", "program.pte", "-o", "out", "-i", "short.bin"), "short.bin has 3 bytes, input 0 64"),
        (("-m", "program.pte", "-o", "out"), "the program has 1 inputs, 0 were given"),
        (("-m", "program.pte", "-o", "nowhere/out", "-i", "i0.bin"), "cannot create nowhere/out-0.bin"),
        (("-m", "program.pte", "-i", "i0.bin"), "usage: "),
        (("-m", "program.pte", "-x", "y"), "unknown option"),
        (("-m",), "usage: "),
    ],
    ids=lambda value: None if isinstance(value, tuple) else value.split()[0].strip(":"),
)
def test_one_shot_fails_with_a_reason(
    one_shot: OneShot, directory: Path, arguments: tuple[str, ...], reason: str
) -> None:
    (directory / "short.bin").write_bytes(b"abc")
    status, text = one_shot(*arguments)
    assert status == 1
    assert reason in text
    assert not (directory / "out-0.bin").exists()


def test_a_folder_with_a_comma_in_its_name(tmp_path: Path) -> None:
    """QEMU's options are comma lists."""
    folder = tmp_path / "a,b"
    folder.mkdir()
    target = TARGETS["m4-qemu"]
    known = known_answer(target.isa)
    (folder / "p,1.pte").write_bytes(known.program)
    (folder / "i,0.bin").write_bytes(known.inputs[0].data)
    elf = build_runner(target)
    moved = dataclasses.replace(elf, path=Path(str(folder / "runner,1.elf")))
    moved.path.write_bytes(elf.path.read_bytes())
    line = ["executor_runner", "-m", "p,1.pte", "-o", str(folder / "o,ut"), "-i", "i,0.bin"]
    with closing(launchers.start(target, moved, folder, line)) as process:
        assert process.wait(SECONDS) == 0, process.log
    assert (folder / "o,ut-0.bin").read_bytes() == known.expected[0].data


def test_engines_say_their_versions(model: Path) -> None:
    assert launchers.engine(TARGETS["m4-qemu"]).split()[0] == "QEMU"
    assert launchers.engine(TARGETS["m4-fvp"]) == f"{MODEL} 11.27.42"
    assert launchers.engine(TARGETS["native"]).startswith("host ")
    assert Resolved(TARGETS["m4-fvp"], TARGETS["m4-fvp"], "builtin").display_name == "m4-fvp"


@pytest.mark.parametrize(("link", "least", "most"), [("uart", 6.0, 7.0), ("semihosting", 1.0, 2.0)])
def test_bytes_to_a_uart_of_qemu_take_time_and_those_to_a_pipe_none(
    link: Literal["uart", "semihosting"], least: float, most: float, tmp_path: Path
) -> None:
    """On a busy machine a frame of 500 bytes took 1.5 s of QEMU's CPU time: the firmware was said to hang."""
    elf = Elf(tmp_path / "none.elf", "", "")
    launcher = QemuLauncher("mps2-an386", link=link)
    with closing(launcher.start(TARGETS["m4-qemu"], elf, tmp_path)) as process:
        assert least <= process.budget(1.0, 500).cpu_limit < most
