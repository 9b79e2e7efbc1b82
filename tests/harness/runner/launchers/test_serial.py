"""Boards on a serial port: what goes right, and each kind of fault as a typed error in bounded time.

The boards are virtual: QEMU's STM32F405, or the native runner, behind a pseudo-terminal.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
import serial
import serial.rfc2217
from hypothesis import given
from hypothesis import strategies as st

from cortex_m_hil import flow
from cortex_m_hil.boards import leases
from cortex_m_hil.boards.health import Health
from cortex_m_hil.boards.virtual import machines, vboard
from cortex_m_hil.boards.virtual.serial_line import Faults, Wire
from cortex_m_hil.diagnose.profile import FigureSource
from cortex_m_hil.diagnose.profile_measurement import profile
from cortex_m_hil.errors import (
    BoardBusy,
    BoardWedged,
    ConfigError,
    FlashError,
    IdentityError,
    InfraError,
    LaunchError,
    LinkError,
    OutOfTargetMemory,
    ProtocolError,
    SelfTestFailed,
    TargetFault,
    TargetHang,
    ToolchainError,
)
from cortex_m_hil.flow import self_test
from cortex_m_hil.flow.dut import Dut
from cortex_m_hil.host import timeouts, toolchain
from cortex_m_hil.host.deadline import Deadline
from cortex_m_hil.program.known_answer import known_answer
from cortex_m_hil.program.program import Program
from cortex_m_hil.runner.build import build_runner
from cortex_m_hil.runner.launchers import serial as serial_launcher
from cortex_m_hil.runner.launchers.process import Process
from cortex_m_hil.runner.launchers.serial import SerialLauncher, wrap
from cortex_m_hil.runner.links.framing import Decoder, ProtocolFrame, encode
from cortex_m_hil.runner.links.protocol import MemoryRegion
from cortex_m_hil.runner.links.retransmission import Window
from cortex_m_hil.runner.links.uart import Uart, device, virtual_directory
from cortex_m_hil.runner.session.session import Session
from cortex_m_hil.targets.board_tool_commands import parse_procedure
from cortex_m_hil.targets.connection import LinkClosed
from cortex_m_hil.targets.load import load_targets
from cortex_m_hil.targets.resolve import Resolved
from cortex_m_hil.targets.target import Clock, Port, Target
from devices import need_rp2040js, tools
from misbehaving import BUSY, OPTIONS, STACK, UNALIGNED, UNDEFINED, UNMAPPED, bad, ones
from paths import REPOSITORY

TARGETS = load_targets()
BAUD = 921600
SECONDS = 60.0  # nothing here comes near


@dataclasses.dataclass(frozen=True)
class VirtualBoard:
    """A running virtual board and its target."""

    name: str
    target: Target

    def inject(self, **faults: float) -> None:
        """No arguments: everything is well again."""
        vboard.send_command(self.name, "fault", faults=faults)

    def dut(self, options: Mapping[str, str] | None = None, **launcher: object) -> Dut:
        """The target's Dut; `launcher` replaces fields of its launcher."""
        assert isinstance(self.target.launcher, SerialLauncher)
        tools = {
            kind: parse_procedure([str(word) for word in words], kind, "test") if words else None
            for kind, words in launcher.items()
            if isinstance(words, tuple)
        }
        ports = {"ports": (Port(str(launcher["port"])),)} if "port" in launcher else {}
        replaced = dataclasses.replace(self.target.launcher, **launcher | tools | ports)  # type: ignore[arg-type]
        target = dataclasses.replace(self.target, launcher=replaced)
        return flow.open_dut(Resolved(target, target, "builtin"), options=options)


@contextlib.contextmanager
def opened_board(machine: str) -> Iterator[VirtualBoard]:
    name = f"test-{machine}-{os.getpid()}"
    base = TARGETS["native" if machine == "native" else f"vboard-{machine}"]
    launcher = vboard.launcher(machine, name, BAUD)
    if machine != "f405":  # the same, without the half second of CPU time that `hil board virtual` takes
        quick = {kind: parse_procedure(words, kind, "test") for kind, words in tools(name).items()}
        launcher = dataclasses.replace(launcher, flash=quick["flash"], reset=quick["reset"])
    target = dataclasses.replace(base, name=f"vboard-{machine}", launcher=launcher)
    with vboard.running(machine, name, BAUD):
        yield VirtualBoard(name, target)


@pytest.fixture(scope="module")
def f405() -> Iterator[VirtualBoard]:
    with opened_board("f405") as opened:
        yield opened


@pytest.fixture(scope="module")
def pico() -> Iterator[VirtualBoard]:
    need_rp2040js()
    with opened_board("pico") as opened:
        yield opened


@pytest.fixture(scope="module")
def _native() -> Iterator[VirtualBoard]:
    with opened_board("native") as opened:
        yield opened


@pytest.fixture
def native(_native: VirtualBoard) -> VirtualBoard:
    """Without faults, and with nothing on it."""
    _native.inject()
    vboard.send_command(_native.name, "reset")
    return _native


@pytest.fixture(autouse=True)
def locks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What one test finds wrong with a board is not remembered in the next."""
    monkeypatch.setenv("HIL_LOCK_DIR", str(tmp_path / "locks"))


@pytest.fixture
def short_deadlines(monkeypatch: pytest.MonkeyPatch) -> None:
    """Still long enough for a busy host."""
    for module, name in (
        (timeouts, "HANDSHAKE"), (timeouts, "REQUEST"), (timeouts, "EXECUTION"),
        (serial_launcher, "BOOT_TIMEOUT"), (serial_launcher, "PORT_TIMEOUT"),
    ):  # fmt: skip
        monkeypatch.setattr(module, name, 5.0)


def runs(dut: Dut) -> None:
    """A program, with the right bits."""
    flow.selftest(dut)


# --- what a program costs --------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_what_a_program_costs_on_a_board_is_counted_in_cycles(native: VirtualBoard) -> None:
    """By its port a virtual board cannot be told from a real one; as itself it has the host's clock."""
    known = known_answer(native.target.isa)
    program = dataclasses.replace(Program.from_bytes(known.program, "known.pte"), inputs=known.inputs)
    with native.dut(port=device(f"vboard:{native.name}")) as dut:
        found = profile(dut, program, known.inputs, "known", runs=3)
    assert found.clock is Clock.CORE and (found.runs, found.ticks_of_zeros) == (3, None)
    assert 0 < found.low <= found.ticks <= found.high
    assert all(0 < row.low <= row.ticks <= row.high for row in found.rows)
    assert sum(row.ticks for row in found.rows) + found.outside == found.ticks
    assert found.figures["ticks"].source is FigureSource.MEASURED
    with native.dut() as dut, pytest.raises(ConfigError, match="it has host_ticks") as caught:
        profile(dut, program, known.inputs, "known")
    assert "a board cycles" in caught.value.hint


# --- what goes right -----------------------------------------------------------------------------------------


def test_an_unflashed_board_is_flashed_once_and_then_only_reset(f405: VirtualBoard) -> None:
    with f405.dut() as dut:
        runs(dut)
        assert dut.session().identity.config == "cortex-m4/dsp/stm32f4"
    with f405.dut(flash=("false",)) as again:  # would be a FlashError
        runs(again)
        assert again.ran().engine.startswith("virtual board test-f405")
        known = known_answer(again.target.isa)
        program = Program.from_bytes(known.program)
        one, other = (profile(again, program, known.inputs, "known") for _ in range(2))
        assert one == other and one.clock is Clock.INSTRUCTIONS  # QEMU's time is the number of its instructions
        assert sum(row.ticks for row in one.rows) == one.ticks > 1000 and (one.outside, one.runs) == (0, 1)


def test_the_nucleos_runner_is_the_virtual_boards() -> None:
    assert build_runner(TARGETS["nucleo-f446re"]) == build_runner(TARGETS["vboard-f405"])


@pytest.mark.first_only
@pytest.mark.parametrize("name", ["nucleo-f446re", "rpi-pico", "alif-e8"])
def test_the_runners_of_physical_boards_build(name: str) -> None:
    elf = build_runner(TARGETS[name])
    assert elf.config == TARGETS[name].config
    assert elf.path.stat().st_size > 0


def crc32_msb_first(data: bytes) -> int:
    """What the RP2040's boot ROM computes (datasheet, 2.8.1.3.1)."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte << 24
        for _ in range(8):
            crc = (crc << 1 ^ (0x04C11DB7 if crc >> 31 else 0)) & 0xFFFFFFFF
    return crc


@pytest.mark.slow
def test_the_picos_second_stage_is_what_its_boot_rom_accepts() -> None:
    segments = dict(machines.segments(build_runner(TARGETS["rpi-pico"]).path.read_bytes()))
    flash = b"".join(data for _, data in sorted(segments.items()))
    assert min(segments) == 0x10000000
    assert int.from_bytes(flash[252:256], "little") == crc32_msb_first(flash[:252])
    stack, reset = (int.from_bytes(flash[at : at + 4], "little") for at in (256, 260))
    assert 0x20000000 < stack <= 0x20042000 and reset & 1 and 0x10000100 < reset < 0x10100000


def test_a_program_that_is_there_is_not_sent_again(native: VirtualBoard, monkeypatch: pytest.MonkeyPatch) -> None:
    known = known_answer(native.target.isa)
    with native.dut() as dut:
        session = dut.session()
        session.load(known.program)
        monkeypatch.setattr(Session, "write", lambda *_: pytest.fail("it was sent"))
        session.load(known.program)


def test_a_program_too_large_for_the_ram_goes_into_flash_once(f405: VirtualBoard) -> None:
    """Beside tensors that need the RAM, in a program that would fit without them."""
    known = known_answer(f405.target.isa)
    memory = f405.target.board.memory
    large = known.program + bytes(memory.shared - len(known.program) % 16 - memory.planned)
    planned = memory.planned
    assert memory.keeps_in_flash(len(large), planned)
    with f405.dut() as dut:
        session = dut.session()
        session.load(large, planned=planned)
        assert session.read(MemoryRegion.RESIDENT, 0, len(large)) == large
        for number, value in enumerate(known.inputs):
            session.set_input(number, value)
        session.execute(SECONDS)
        assert session.get_output(0) == known.expected[0]
    with f405.dut(flash=("false",)) as again:
        again.session().load(large, planned=planned)


def test_a_program_for_flash_needs_a_flash_tool(f405: VirtualBoard) -> None:
    memory = f405.target.board.memory
    with f405.dut() as dut:
        runs(dut)
    with f405.dut(flash=()) as dut, pytest.raises(ConfigError, match="no flash tool"):
        dut.session().load(bytes(memory.shared), planned=memory.planned)


def test_what_fits_nowhere_is_out_of_memory(f405: VirtualBoard) -> None:
    with f405.dut() as dut, pytest.raises(OutOfTargetMemory):
        dut.session().load(bytes(f405.target.board.memory.program_room + 1))


@pytest.mark.first_only
@pytest.mark.parametrize("size", [0, 1, 151, 152, 153, 4096, 60000])
def test_transfers_of_any_size(native: VirtualBoard, size: int) -> None:
    data = np.random.default_rng(size).bytes(size)
    with native.dut() as dut:
        session = dut.session()
        native.inject(corrupt=0.002, drop=0.001, duplicate=0.001)
        session.write(MemoryRegion.PROGRAM, 0, data)
        assert session.read(MemoryRegion.PROGRAM, 0, size) == data
        if size > 200:
            assert session.read(MemoryRegion.PROGRAM, 0, size - 200, offset=200) == data[200:]


def test_seqs_may_wrap_in_a_transfer(native: VirtualBoard) -> None:
    data = np.random.default_rng(0).bytes(30_000)
    with native.dut() as dut:
        session = dut.session()
        session._exchange.seq = 0xFFFF - 50
        session.write(MemoryRegion.PROGRAM, 0, data)
        session._exchange.seq = 0xFFFF - 50
        assert session.read(MemoryRegion.PROGRAM, 0, len(data)) == data


@pytest.mark.slow
def test_a_virtual_pico_starts_through_its_second_stage_and_computes(pico: VirtualBoard) -> None:
    with pico.dut() as dut:
        result = flow.selftest(dut)
        identity = dut.session().identity
    assert identity.config == "cortex-m0plus/scalar/rp2040"
    assert (identity.tick_source, identity.tick_hz) == ("SysTick", 125_000_000)
    assert result.ran.engine == f"virtual board {pico.name} (rp2040js {toolchain.RP2040JS})"
    assert result.ticks > 1000 and result.instructions is None


@pytest.mark.slow
def test_a_pico_without_a_second_stage_does_not_start(
    pico: VirtualBoard, tmp_path: Path, short_deadlines: None
) -> None:
    elf = bytearray(build_runner(pico.target).path.read_bytes())
    [boot2] = [data for address, data in machines.segments(bytes(elf)) if address == 0x10000000]
    elf[elf.index(boot2)] ^= 1
    (tmp_path / "runner.elf").write_bytes(elf)
    vboard.send_command(pico.name, "flash", elf=str(tmp_path / "runner.elf"))
    with pico.dut(flash=(), reset=()) as dut, pytest.raises(LaunchError, match="does not answer its handshake"):
        dut.session()
    with pico.dut() as dut:
        runs(dut)


@pytest.mark.slow
@pytest.mark.parametrize("kind", [UNMAPPED, UNDEFINED, STACK, UNALIGNED])
def test_a_virtual_picos_faults_reach_the_host(pico: VirtualBoard, kind: int) -> None:
    with pico.dut(OPTIONS) as dut:
        with pytest.raises(TargetFault, match=r"^HardFault") as caught:
            flow.run(dut, bad("fault", kind), ones())
        assert "hil_test::fault" in caught.value.operator
        runs(dut)


def test_rp2040js_of_another_version_is_not_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "node").write_text("")
    (tmp_path / "bin" / "node").chmod(0o700)
    package = tmp_path / "rp2040js" / "package.json"
    package.parent.mkdir()
    monkeypatch.setattr(sys, "prefix", str(tmp_path / "nothing"))
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setenv("NODE_PATH", str(tmp_path))
    for text in ("{", '{"version": "1.4.0"}'):
        package.write_text(text)
        with pytest.raises(ToolchainError, match=rf"is not installed\n.*npm install .* rp2040js@{toolchain.RP2040JS}"):
            toolchain.rp2040js()
    package.write_text(json.dumps({"version": toolchain.RP2040JS}))
    assert toolchain.rp2040js().folder == package.parent


def test_a_slow_line_is_given_the_time_that_it_takes(native: VirtualBoard) -> None:
    """What comes late is sent again at first, and no longer once the answers come twice."""
    with native.dut() as dut:
        session = dut.session()
        native.inject(delay=0.2)
        link: Any = session._process
        write = link.write
        sent: list[bytes] = []

        def counted(data: bytes, deadline: Deadline) -> None:
            sent.append(data)
            write(data, deadline)

        link.write = counted
        for _ in range(8):
            session.stats()
        assert len(sent) > 8
        sent.clear()
        for _ in range(8):
            session.stats()
        assert len(sent) == 8


def test_a_transfer_may_take_long_while_it_goes_on(native: VirtualBoard, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a busy host a simulated UART takes a tenth of what its line does. A time limit is for who falls silent."""
    monkeypatch.setattr(serial_launcher, "WIRE_MARGIN", 0.0)
    data = np.random.default_rng(0).bytes(600_000)  # 7 s
    with native.dut() as dut:
        session = dut.session()
        monkeypatch.setattr(timeouts, "REQUEST", 3.0)
        session.write(MemoryRegion.PROGRAM, 0, data)
        assert session.digest(MemoryRegion.PROGRAM, 0, length=len(data)) == zlib.crc32(data)


@pytest.mark.first_only
@pytest.mark.parametrize("kind", [UNMAPPED, UNDEFINED, STACK])
@pytest.mark.parametrize("corrupt", [0.0, 0.01])
def test_faults_reach_the_host(f405: VirtualBoard, kind: int, corrupt: float) -> None:
    with f405.dut(OPTIONS) as dut:
        dut.session()
        f405.inject(corrupt=corrupt)
        with pytest.raises(TargetFault) as caught:
            flow.run(dut, bad("fault", kind), ones())
        f405.inject()
        assert "hil_test::fault" in caught.value.operator
        assert re.match("HardFault|BusFault|UsageFault|MemManage", caught.value.message)
        runs(dut)


@pytest.mark.slow
def test_a_program_that_hangs_is_a_hang(f405: VirtualBoard) -> None:
    with f405.dut(OPTIONS) as dut:
        dut.seconds = 2.0
        with pytest.raises(TargetHang) as caught:
            flow.run(dut, bad("hang", BUSY), ones())
        assert "hil_test::hang" in caught.value.operator
        runs(dut)


@pytest.mark.slow
def test_the_sample_tests_run_from_an_unflashed_board(tmp_path: Path) -> None:
    """What fits: the linear regression, DS-CNN streamed, ResNet8 from flash. Two networks say that they do not."""
    name = f"sample-{os.getpid()}"
    serial_port = {"port": vboard.launcher("f405", name).port, "baud": BAUD, **tools(name)}
    target = {"cpu": "cortex-m4", "board": "stm32f4", "launcher": {"serial": serial_port}}
    (tmp_path / "targets.yaml").write_text(json.dumps({"targets": {"sample": target}}))
    tests = [str(REPOSITORY / "tests" / "targets" / file) for file in ("test_linear.py", "test_mlperf_tiny.py")]
    options = ["--target=sample", f"--targets-file={tmp_path / 'targets.yaml'}"]
    with vboard.running("f405", name):
        done = subprocess.run(
            [sys.executable, "-m", "pytest", *options, *tests],
            cwd=REPOSITORY,
            capture_output=True,
            text=True,
            check=False,
        )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "6 passed, 2 skipped" in done.stdout


# --- injected faults -----------------------------------------------------------------------------------------


def test_a_missing_port_is_a_launch_error_that_lists_the_ports(native: VirtualBoard) -> None:
    with (
        native.dut(port="/dev/ttyNOWHERE") as dut,
        pytest.raises(LaunchError, match="no port /dev/ttyNOWHERE") as caught,
    ):
        dut.session()
    assert "Ports here" in caught.value.hint
    with native.dut(port="vboard:nobody") as dut, pytest.raises(LaunchError, match="no port vboard:nobody"):
        dut.session()


def test_a_port_in_use_is_board_busy_until_it_is_free(native: VirtualBoard) -> None:
    path = device(f"vboard:{native.name}")
    user = contextlib.closing(serial.Serial(path, exclusive=True))
    with user, native.dut() as dut, pytest.raises(BoardBusy, match="in use by another process"):
        dut.session()
    with native.dut() as dut:
        runs(dut)


def test_a_wrong_baud_rate_is_board_wedged_with_a_hint(native: VirtualBoard, short_deadlines: None) -> None:
    with native.dut() as dut:
        runs(dut)
    with (
        native.dut(baud=115200) as dut,
        pytest.raises(BoardWedged, match="does not answer after it was flashed") as caught,
    ):
        dut.session()
    assert "is 115200 its baud rate" in str(caught.value.__cause__)
    with native.dut(baud=115200) as dut, pytest.raises(BoardWedged, match="is wedged: the board does not answer"):
        dut.session()  # not tried again
    with native.dut() as dut:  # who has the right one is not locked out
        runs(dut)
    assert not leases.read_health(f"vboard:{native.name}").wedged


@pytest.mark.slow
def test_a_board_that_is_wedged_for_another_setup_has_to_pass_its_known_answer(
    native: VirtualBoard, short_deadlines: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    board = f"vboard:{native.name}"
    known = known_answer(native.target.isa)
    wrong = dataclasses.replace(known, expected=(known.inputs[0],))
    with native.dut() as dut:
        dut.session()  # so this build is on the board, and its start later on is no flash
    flashed = dataclasses.replace(leases.read_health(board), wedged="smoke", wedged_for=("another setup",))
    leases.write_health(board, flashed)
    with monkeypatch.context() as patch, native.dut() as dut:
        patch.setattr(self_test, "known_answer", lambda isa: wrong)
        with pytest.raises(
            SelfTestFailed,
            match=r"the self-test's output is .* after reset: the same error; after reflash: the same error",
        ) as caught:
            dut.session()
    assert "quantized_linear" in caught.value.operator and self_test.SAME_AGAIN in caught.value.hint
    with native.dut() as dut, pytest.raises(BoardWedged, match="the self-test's output is"):
        dut.session()
    assert leases.read_health(board).wedged_for[0] == "another setup"
    with native.dut(OPTIONS) as dut:  # another build
        runs(dut)


@pytest.mark.slow
def test_a_known_answer_that_faults_on_such_a_board_is_no_verdict(
    f405: VirtualBoard, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = known_answer(f405.target.isa)
    faulty = dataclasses.replace(known, program=bad("fault", UNDEFINED).pte, inputs=ones())
    leases.write_health(f"vboard:{f405.name}", Health(wedged="smoke", wedged_for=("another setup",)))
    monkeypatch.setattr(self_test, "known_answer", lambda isa: faulty)
    with f405.dut(OPTIONS) as dut, pytest.raises(BoardWedged, match="the self-test ends with TargetFault: UsageFault"):
        dut.session()


@pytest.mark.slow
def test_a_board_without_tools_whose_baud_rate_is_wrong(native: VirtualBoard, short_deadlines: None) -> None:
    with native.dut(baud=115200, flash=(), reset=()) as dut, pytest.raises(LaunchError, match="handshake"):
        dut.session()


@pytest.fixture
def firmware(tmp_path: Path) -> Path:
    """Somebody else's, which answers everything with a prompt."""
    path = tmp_path / "firmware"
    path.write_text("#!/bin/sh\nwhile head -c 1 >/dev/null; do printf 'login: \\r\\n'; sleep 0.05; done\n")
    return path


@pytest.mark.slow
def test_a_board_that_starts_slowly_is_not_flashed_again(native: VirtualBoard, tmp_path: Path) -> None:
    """On a busy host a simulated one takes seconds from its reset to its first answer."""
    slow = tmp_path / "slow"
    slow.write_text(f"#!/bin/sh\nsleep 2\nexec {build_runner(native.target).path}\n")
    vboard.send_command(native.name, "flash", elf=str(slow))
    with native.dut(flash=(), reset=()) as dut:
        dut.session()
    with native.dut(flash=("false",)) as dut:  # would be a FlashError
        runs(dut)


@pytest.mark.slow
def test_a_board_whose_answers_come_after_the_next_call_is_heard(native: VirtualBoard) -> None:
    """On a slow line, or where the board is a simulator on a busy host."""
    vboard.send_command(native.name, "flash", elf=str(build_runner(native.target).path))
    native.inject(delay=0.2)  # each way, and the calls are 0.1 s apart
    with native.dut(flash=("false",)) as dut:  # would be a FlashError
        dut.session()


@pytest.mark.slow
def test_time_in_which_others_had_the_processors_is_no_silence(
    native: VirtualBoard, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each look at the port comes 0.6 s late, as it does on a busy host, and the board is as slow."""
    slow = tmp_path / "slow"
    slow.write_text(f"#!/bin/sh\nsleep 3\nexec {build_runner(native.target).path}\n")
    vboard.send_command(native.name, "flash", elf=str(slow))
    monkeypatch.setattr(serial_launcher, "PROBE_TIMEOUT", 0.5)
    look = Uart.read

    def late(self: Uart, deadline: Deadline) -> bytes:
        time.sleep(0.6)
        return look(self, deadline)

    monkeypatch.setattr(Uart, "read", late)
    with native.dut(reset=("true",), flash=("false",)) as dut:
        dut.session()


@pytest.mark.slow
def test_another_firmware_is_replaced(native: VirtualBoard, firmware: Path) -> None:
    vboard.send_command(native.name, "flash", elf=str(firmware))
    with native.dut() as dut:
        runs(dut)


@pytest.mark.slow
def test_another_firmware_that_nothing_replaces(native: VirtualBoard, firmware: Path, short_deadlines: None) -> None:
    vboard.send_command(native.name, "flash", elf=str(firmware))
    with native.dut(flash=(), reset=()) as dut, pytest.raises(LaunchError, match="handshake") as caught:
        dut.session()
    assert "login:" in caught.value.log
    other = build_runner(native.target, options=OPTIONS)
    vboard.send_command(native.name, "flash", elf=str(other.path))
    with native.dut(flash=()) as dut, pytest.raises(IdentityError, match=other.build_id):
        dut.session()


@pytest.mark.slow
def test_a_tool_that_flashes_something_else(native: VirtualBoard, firmware: Path) -> None:
    other = build_runner(native.target, options=OPTIONS)
    assert isinstance(native.target.launcher, SerialLauncher)
    assert native.target.launcher.flash
    [command] = native.target.launcher.flash.bind({"elf": str(other.path), "python": sys.executable})
    wrong = tuple(command)
    vboard.send_command(native.name, "flash", elf=str(firmware))
    with native.dut(flash=wrong) as dut, pytest.raises(IdentityError, match=f"still answers.*{other.build_id}"):
        dut.session()


def test_a_flash_tool_that_fails(f405: VirtualBoard, tmp_path: Path) -> None:
    (tmp_path / "half.elf").write_bytes(build_runner(f405.target).path.read_bytes()[:5000])
    for elf, words in (("half.elf", "cut short"), ("none.elf", "No such file")):
        with pytest.raises(FlashError, match=words):
            vboard.send_command(f405.name, "flash", elf=str(tmp_path / elf))
    vboard.send_command(f405.name, "power", state="off")
    failing = ("sh", "-c", "echo no probe found; exit 3")
    with f405.dut(flash=failing, reset=()) as dut, pytest.raises(FlashError, match="with status 3: no probe found"):
        dut.session()
    with f405.dut(flash=("no-such-tool",), reset=()) as dut, pytest.raises(ToolchainError, match="no-such-tool"):
        dut.session()
    vboard.send_command(f405.name, "power", state="on")
    with f405.dut() as dut:
        runs(dut)


@pytest.mark.parametrize("size", [1 << 18])
def test_a_cable_pulled_in_the_middle(native: VirtualBoard, size: int) -> None:
    with native.dut() as dut:
        session = dut.session()
        puller = threading.Timer(0.3, native.inject, kwargs={"vanish": 0.5})
        puller.start()
        with pytest.raises(LinkError, match="vanished") as caught:
            for _ in range(100):
                session.write(MemoryRegion.PROGRAM, 0, bytes(size))
        puller.join()
        assert caught.value.target == "vboard-native"
        wait_for_port(native)
        runs(dut)


def test_a_cable_pulled_in_the_middle_of_a_program(native: VirtualBoard) -> None:
    """No verdict about the program, which does not end, and the next one runs."""
    with native.dut(OPTIONS) as dut:
        session = dut.session()
        execute = session.execute

        def pulled(seconds: float) -> int:
            native.inject(vanish=0.5)
            return execute(seconds)

        session.execute = pulled  # type: ignore[method-assign]
        with pytest.raises(LinkError, match="vanished"):
            flow.run(dut, bad("hang", BUSY), ones())
        wait_for_port(native)
        runs(dut)


def wait_for_port(board: VirtualBoard) -> None:
    deadline = Deadline.after(SECONDS)
    while not os.path.exists(device(f"vboard:{board.name}")):
        assert not deadline.expired
        time.sleep(0.05)


def test_one_byte_in_a_hundred_corrupted(native: VirtualBoard) -> None:
    """A program still runs, and with the right bits."""
    with native.dut() as dut:
        dut.session()
        native.inject(corrupt=0.01)
        runs(dut)


def test_a_handshake_on_a_bad_line(native: VirtualBoard) -> None:
    with native.dut() as dut:
        runs(dut)
    native.inject(corrupt=0.005)
    with native.dut() as dut:
        assert "cortex_m::quantized_linear.out" in dut.session().identity.operators
        runs(dut)


def test_a_board_that_answers_the_handshake_and_then_hangs(native: VirtualBoard, short_deadlines: None) -> None:
    known = known_answer(native.target.isa)
    program = Program.from_bytes(known.program, "known_answer.pte")
    with native.dut() as dut:
        dut.session()
        native.inject(hang=1)
        start = time.monotonic()
        with pytest.raises(LinkError, match="no answer to"):
            flow.run(dut, program, known.inputs, linted=False)
        assert time.monotonic() - start < 60
        runs(dut)


def test_a_board_that_hangs_for_good(native: VirtualBoard, short_deadlines: None) -> None:
    """Its reset does nothing: nothing is learnt about the program."""
    known = known_answer(native.target.isa)
    program = Program.from_bytes(known.program, "known_answer.pte")
    with native.dut() as dut:
        runs(dut)
    with native.dut(reset=("true",), flash=()) as dut:
        dut.session()
        native.inject(hang=1)
        with pytest.raises(InfraError):
            flow.run(dut, program, known.inputs, linted=False)


def test_a_silence_while_a_program_runs_is_no_verdict(f405: VirtualBoard, short_deadlines: None) -> None:
    """The core stops in EXECUTE and is well after the reset: as a cut wire would look."""
    known = known_answer(f405.target.isa)
    program = Program.from_bytes(known.program, "known_answer.pte")
    with f405.dut() as dut:
        session = dut.session()
        dut.seconds = 5.0
        whole = session.execute
        stopped: list[bool] = []

        def stop_first(seconds: float) -> int:
            if not stopped:
                stopped.append(True)
                f405.inject(hang=1)
            return whole(seconds)

        session.execute = stop_first  # type: ignore[method-assign]
        with pytest.raises(LinkError, match="did not when it ran it again"):
            flow.run(dut, program, known.inputs)
        runs(dut)


@pytest.mark.slow
def test_a_board_reset_in_the_middle_of_a_transfer(native: VirtualBoard) -> None:
    with native.dut() as dut:
        session = dut.session()
        native.inject(reset_after=50_000)
        with pytest.raises((LaunchError, ProtocolError)):
            session.write(MemoryRegion.PROGRAM, 0, bytes(1 << 18))
            session.load(known_answer(native.target.isa).program)
        runs(dut)


# --- the pieces ----------------------------------------------------------------------------------------------


@given(st.integers(0, 60), st.integers(1, 10), st.integers(0))
def test_every_request_is_answered_whatever_is_lost(count: int, size: int, seed: int) -> None:
    """Against a channel that keeps the order and loses requests and answers."""
    chance = random.Random(seed)
    window = Window(count, size)
    arrived: set[int] = set()
    rounds = 0
    while not window.done:
        rounds += 1
        assert rounds < 10_000
        sent = window.launch()
        assert len(sent) <= size
        survivors = [number for number in sent if chance.random() > 0.3]
        arrived.update(survivors)
        answers = [number for number in survivors if chance.random() > 0.3]
        for number in answers:
            window.answered(number)
        if not answers:
            window.all_lost()
    assert arrived == set(range(count))


def test_what_was_sent_before_an_answered_request_is_sent_again_first() -> None:
    window = Window(6, 4)
    assert window.launch() == [0, 1, 2, 3]
    window.answered(2)
    assert window.launch() == [0, 1, 4]
    window.answered(2)  # a late answer to what was sent twice
    window.answered(3)
    window.answered(0)
    window.all_lost()
    assert window.launch() == [1, 4, 5]


def test_a_wire_takes_its_time_and_loses_nothing_by_itself() -> None:
    wire = Wire(115200, random.Random(0))
    wire.put(bytes(range(100)), 10.0)
    assert wire.take(10.0) == b""
    assert wire.take(10.0 + 50 * 10 / 115200) in (bytes(range(49)), bytes(range(50)))
    assert len(wire.take(20.0)) >= 50 and len(wire) == 0
    wire.put(b"x", 30.0)  # idle time is not made up for
    assert wire.take(30.0) == b""


def test_faults_are_as_frequent_as_asked() -> None:
    for fault in ("corrupt", "drop", "duplicate"):
        wire = Wire(BAUD, random.Random(1))
        wire.faults = Faults.parse({fault: "0.01"})
        wire.put(bytes(100_000), 0.0)
        data = wire.take(1e9)
        found = {"corrupt": sum(map(bool, data)), "drop": 100_000 - len(data), "duplicate": len(data) - 100_000}[fault]
        assert 800 < found < 1200


@pytest.mark.parametrize(("words", "match"), [({"corupt": "1"}, "no fault 'corupt'"), ({"drop": "x"}, "number")])
def test_faults_that_make_no_sense(words: dict[str, object], match: str) -> None:
    with pytest.raises(ConfigError, match=match):
        Faults.parse(words)


def test_what_a_flash_tool_gets_for_a_program() -> None:
    assert list(machines.segments(wrap(b"program", 0x08040000))) == [(0x08040000, b"program")]


def test_nothing_of_a_killed_board_stays() -> None:
    name = f"killed-{os.getpid()}"
    with vboard.running("f405", name) as process:
        board = psutil.Process(process.pid)
        deadline = Deadline.after(SECONDS)
        while not any("qemu" in child.name() for child in board.children(recursive=True)):
            assert not deadline.expired
            time.sleep(0.02)
        children = board.children(recursive=True)
        os.kill(process.pid, signal.SIGKILL)
        gone, alive = psutil.wait_procs(children, timeout=SECONDS)
        assert not alive and len(gone) == len(children)
    with vboard.running("f405", name):  # the lock went with it
        vboard.send_command(name, "reset")


@pytest.mark.parametrize("line", [b"[]\n", b"7\n", b"null\n", b"{}\n", b""])
def test_an_order_that_is_none_does_not_end_the_board(native: VirtualBoard, line: bytes) -> None:
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(SECONDS)
        connection.connect(os.readlink(virtual_directory(native.name) / "control"))
        connection.sendall(line)
        connection.shutdown(socket.SHUT_WR)
        assert b"cannot" in connection.recv(1 << 16)
    vboard.send_command(native.name, "reset")


def test_two_boards_of_one_name() -> None:
    name = f"twice-{os.getpid()}"
    with contextlib.ExitStack() as stack:
        stack.enter_context(vboard.running("native", name))
        with pytest.raises(LaunchError, match="does not start") as caught:
            stack.enter_context(vboard.running("native", name))
    assert f"a virtual board {name} is running already" in str(caught.value)  # where no report shows the log


def test_no_board_to_talk_to() -> None:
    with pytest.raises(LaunchError, match="no virtual board nobody is running"):
        vboard.send_command("nobody", "reset")


# --- networks ------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def over_tcp(board: VirtualBoard) -> Iterator[int]:
    """The board's port as a raw TCP server, as ser2net makes it; its number."""
    port = Uart(f"vboard:{board.name}", BAUD)
    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=bridge, args=(server, port), daemon=True)
        thread.start()
        yield server.getsockname()[1]
        server.shutdown(socket.SHUT_RDWR)  # closing it would not end the thread's accept()
    port.close()
    thread.join(SECONDS)
    assert not thread.is_alive()


def bridge(server: socket.socket, port: Uart) -> None:
    """Until its client leaves, client after client."""
    with contextlib.suppress(OSError):
        while True:
            client, _ = server.accept()
            client.setblocking(False)
            with client, contextlib.suppress(LinkClosed):
                while shuttle(client, port):
                    pass


def shuttle(client: socket.socket, port: Uart) -> bool:
    with contextlib.suppress(TimeoutError):
        client.sendall(port.read(Deadline.after(0.005)))
    try:
        data = client.recv(4096)
    except BlockingIOError:
        return True
    if data:
        port.write(data, Deadline.after(SECONDS))
    return bool(data)


def test_a_port_on_the_network(native: VirtualBoard) -> None:
    with native.dut() as dut:
        runs(dut)
    with over_tcp(native) as number, native.dut(port=f"socket://127.0.0.1:{number}", flash=(), reset=()) as dut:
        runs(dut)
        uart = dut.session()._process._uart  # type: ignore[attr-defined]
        inner = uart._serial._socket
        assert inner.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


def answers(number: int) -> bool:
    with socket.socket() as client:
        return client.connect_ex(("127.0.0.1", number)) == 0


@contextlib.contextmanager
def over_rfc2217(board: VirtualBoard, folder: Path) -> Iterator[str]:
    """The board's port as ser2net offers it; its URL."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        number = server.getsockname()[1]
    config = {
        "accepter": f"telnet(rfc2217,mode=server),tcp,127.0.0.1,{number}",
        "connector": f"serialdev(nouucplock=true),{os.path.realpath(device(f'vboard:{board.name}'))},{BAUD}n81,local",
    }
    lines = ["connection: &board", *(f"  {key}: {value}" for key, value in config.items()), ""]
    (folder / "ser2net.yaml").write_text("\n".join(lines))
    ser2net = shutil.which("ser2net", path=f"{os.environ['PATH']}:/usr/sbin")
    assert ser2net, "`make install` installs it"
    process = Process([ser2net, "-n", "-d", "-c", str(folder / "ser2net.yaml")])
    try:
        deadline = Deadline.after(SECONDS)
        while not answers(number):
            assert not deadline.expired and process.wait(0.05) is None, process.log
        yield f"rfc2217://127.0.0.1:{number}"
    finally:
        process.close()


def test_a_board_over_rfc2217_runs_and_transfers_every_byte_value(
    native: VirtualBoard, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Through ser2net: a program, every byte value both ways, and the baud rate, which is the client's to set."""
    data = bytes(range(256)) * 200
    with native.dut() as dut:
        runs(dut)
    with over_rfc2217(native, tmp_path) as url:
        with native.dut(port=url, flash=(), reset=()) as dut:
            runs(dut)
            dut.session().write(MemoryRegion.PROGRAM, 0, data)
            assert dut.session().read(MemoryRegion.PROGRAM, 0, len(data)) == data
        monkeypatch.setattr(timeouts, "HANDSHAKE", 2.0)
        with native.dut(port=url, baud=115200, flash=(), reset=()) as dut, pytest.raises(LaunchError):
            dut.session()


class Telnet:
    """What pyserial's server writes to."""

    def __init__(self, client: socket.socket) -> None:
        self.write = client.sendall


def test_a_server_that_takes_nothing_holds_nobody_up() -> None:
    """It agrees to everything and then stops reading."""
    stop = threading.Event()

    def serve(server: socket.socket) -> None:
        client, _ = server.accept()
        port: Any = serial.serial_for_url("loop://")
        connection: Any = Telnet(client)
        manager = serial.rfc2217.PortManager(port, connection)
        while not stop.is_set():
            for _ in manager.filter(client.recv(1024)):
                pass

    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=serve, args=(server,), daemon=True)
        thread.start()
        uart = Uart(f"rfc2217://127.0.0.1:{server.getsockname()[1]}", BAUD)
        stop.set()
        uart.write(b"x", Deadline.after(SECONDS))
        thread.join(SECONDS)
        with pytest.raises(TimeoutError):
            uart.write(bytes(1 << 26), Deadline.after(0.5))
        uart.close()


def test_a_server_that_is_gone(native: VirtualBoard) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        number = server.getsockname()[1]
    with native.dut(port=f"socket://127.0.0.1:{number}") as dut, pytest.raises(LaunchError, match="cannot open port"):
        dut.session()


# --- frames --------------------------------------------------------------------------------------------------


def test_a_frame_after_noise_is_found() -> None:
    frame = encode(ProtocolFrame(1, 2, b"payload"))
    assert [one.payload for one in Decoder().feed(b"\x80noise" + frame)] == [b"payload"]
