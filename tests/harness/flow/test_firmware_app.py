"""Channels of the firmware: a process of this machine, under sanitizers, also behind a line that damages bytes."""

from __future__ import annotations

import dataclasses
import os
import random
import struct
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from channel_firmwares import channel_firmware
from cortex_m_hil import flow
from cortex_m_hil.boards.virtual import vboard
from cortex_m_hil.errors import (
    ChannelError,
    ConfigError,
    HarnessError,
    LaunchError,
    Mismatch,
    NotOffered,
    ProtocolError,
    TargetFault,
)
from cortex_m_hil.flow import App
from cortex_m_hil.host import timeouts
from cortex_m_hil.host.deadline import Deadline
from cortex_m_hil.program.tensor import Array
from cortex_m_hil.runner.build import build_runner
from cortex_m_hil.runner.launchers import start
from cortex_m_hil.runner.links.framing import Decoder, ProtocolFrame, encode
from cortex_m_hil.runner.links.protocol import RESPONSE, Event, MemoryRegion, Request
from cortex_m_hil.runner.own_firmware import LIBRARY_TEXT
from cortex_m_hil.targets.resolve import Resolved
from devices import on_virtual_board

BAUD = 921600
FRAME = np.arange(64, dtype=np.uint8)
# What makes the firmware do that.
SAY, FLOOD, RESET, HANG, FATAL, STREAM = (np.full(64, 7 + one, np.uint8) for one in range(6))


def doubled(frame: Array) -> Array:
    return (frame * 2).astype(np.int8)


def summed(frame: Array) -> Array:
    return np.array([doubled(frame).sum(dtype=np.int32)])


@pytest.fixture(scope="module")
def firmware(tmp_path_factory: pytest.TempPathFactory) -> Resolved:
    return channel_firmware(tmp_path_factory.mktemp("firmware"))


@pytest.fixture
def app(firmware: Resolved) -> Iterator[App]:
    with flow.open_dut(firmware) as dut:
        yield App(dut)


def test_frames_go_in_and_come_out_beside_a_console(app: App) -> None:
    assert app.channels == {"samples": 64, "gain": 1, "seen": 1, "doubled": 64, "sum": 4}
    for frame in (FRAME, SAY, np.full(64, 200, np.uint8)):
        app.send("samples", frame)
        assert (app.read("doubled", "int8") == doubled(frame)).all()
        assert app.read("sum", "int32", shape=()) == summed(frame)
    app.send("samples", SAY)
    app.compare({"doubled": doubled(SAY), "sum": summed(SAY)})
    assert app.lost == 0 and "boot loader 1.0" in app.log
    assert app.log.count("took a frame") == 2
    app.close()  # it goes on with its sensor
    assert app.dut.session().channels(1.0)


def test_another_thread_may_serve_and_nothing_is_sent_while_a_frame_is_worked_on(
    app: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bytes would interrupt the work, and be in its latency."""
    monkeypatch.setenv("CHANNELS_TASK", "1")
    values = np.random.default_rng(0).integers(0, 256, (50, 64)).astype(np.uint8)
    recording = app.record("samples", list(values), {"doubled": "int8", "sum": "int32", "heard": "uint32"}, timeout=5.0)
    assert recording.lost == 0 and not np.array(recording.outputs["heard"]).any()
    for frame, output, total in zip(values, recording.outputs["doubled"], recording.outputs["sum"], strict=True):
        assert output is not None and (output == doubled(frame)).all()
        assert total == summed(frame)
    app.send("samples", STREAM)  # half of what the firmware keeps: the host fetches meanwhile
    assert app.read("sum", "int32") == summed(STREAM) and app.read("heard", "uint32")


@pytest.mark.parametrize("boot", ["deaf", "slow"])
def test_a_firmware_is_greeted_until_it_listens(app: App, boot: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What comes before is lost in one boot, and in the other kept, so that this one answers twice."""
    monkeypatch.setenv("CHANNELS_BOOT", boot)
    monkeypatch.setattr(timeouts, "HANDSHAKE", 5.0)
    app.send("samples", FRAME)
    app.compare({"doubled": doubled(FRAME), "sum": summed(FRAME)})


def test_the_first_stage_that_departs_is_named(app: App) -> None:
    wrong = doubled(FRAME)
    wrong[5] += 3
    app.send("samples", FRAME)
    with pytest.raises(Mismatch) as caught:
        app.compare({"doubled": doubled(FRAME), "sum": summed(FRAME) + 1})
    assert caught.value.message.startswith("the stage sum departs first: 1 of 1 element wrong, the first at 0: 4032")
    assert caught.value.details == (("doubled", "as expected"), ("sum", caught.value.details[1][1]))
    assert "between HIL_OUTPUT(doubled) and HIL_OUTPUT(sum)" in caught.value.hint
    app.send("samples", FRAME)
    with pytest.raises(Mismatch, match=r"the stage doubled departs first: .* the first at 5: 10, expected 13; by 3"):
        app.compare({"doubled": wrong, "sum": summed(FRAME) + 1}, atol={"doubled": 2.0})
    app.send("samples", FRAME)
    app.compare({"doubled": wrong, "sum": summed(FRAME)}, atol={"doubled": 3.0})


def test_what_does_not_fit_the_firmware_is_told_with_channel_found_and_expected(app: App) -> None:
    floats = FRAME[:16].astype(np.float32)
    calls: list[tuple[Callable[[], object], str]] = [
        (
            lambda: app.send("sampels", FRAME, timeout=0.1),
            "no channel 'sampels' in 0.1 s.* samples, gain, seen, doubled, sum",
        ),
        (lambda: app.send("samples", FRAME[:5]), r"samples: ndarray uint8\[5\] has 5 bytes, a frame of it has 64"),
        (lambda: app.send("samples", [1, 2]), "has no dtype"),
        (lambda: app.send("sum", FRAME), "sum is an output"),
        (lambda: app.read("samples", "uint8"), "samples is an input"),
        (lambda: app.read("sum", "int64"), "sum: elements of int64 have 8 bytes, those of the firmware 4"),
        (lambda: app.read("doubled", "int8", shape=(3, -1)), r"64 bytes, which are no int8\[3, -1\]"),
        (lambda: app.read("sum", "words"), "sum: 'words' is no dtype"),
        (lambda: app.read("sum", None), "sum: None is no dtype"),
        (lambda: app.read("sum", "int32", timeout=float("nan")), "timeout: a number"),
        (lambda: app.compare({"sum": floats}), "4 bytes, which are no float32"),
        (lambda: app.compare({}), "no stages"),
        (lambda: app.send("samples", floats), "samples: elements of float32 have 4 bytes, those of the firmware 1"),
        (lambda: app.compare({"sum": summed(FRAME)}, atol={"sun": 1.0}), "atol: no stage 'sun'"),
        (lambda: app.compare({"sum": summed(FRAME)}, atol=-1.0), "atol: a number"),
        (lambda: app.record("samples", [FRAME]), "app.record: "),  # type: ignore[call-arg]
    ]
    for call, said in calls:
        with pytest.raises(ConfigError, match=said):
            call()
    app.send("samples", FRAME.view(np.int8))  # the bytes are what is sent
    app.compare({"doubled": doubled(FRAME)})


def test_a_frame_that_does_not_come_is_told_with_where_the_firmware_waits(app: App) -> None:
    app.send("samples", FRAME)
    app.read("sum", "int32")
    with pytest.raises(ChannelError, match=r"sum: no frame in 0\.05 s; the firmware waits at HIL_INPUT\(samples\)"):
        app.read("sum", "int32", timeout=0.05)
    app.send("samples", FRAME)
    app.compare({"sum": summed(FRAME)})


def test_what_the_firmware_has_no_room_for_is_counted(app: App) -> None:
    for _ in range(2):
        app.send("samples", FLOOD)
        for _ in range(4):
            assert app.read("sum", "int32") == summed(FLOOD)
        with pytest.raises(ChannelError, match="sum: 6 frames lost in the firmware"):
            app.read("sum", "int32")
    for _ in range(4):
        app.read("doubled", "int8")
    with pytest.raises(ChannelError, match="doubled: 6 frames lost in the firmware"):
        app.read("doubled", "int8")
    recording = app.record("samples", [FLOOD], {"sum": "int32"})
    assert recording.lost >= 6 and recording.outputs["sum"][0] == summed(FLOOD)


def test_a_second_input_is_taken_over_with_the_first_and_a_flooded_one_told(app: App) -> None:
    app.attach(["samples", "gain"])
    for number in range(3):
        app.send("samples", FRAME)
        app.send("gain", np.array([number], np.uint8))
        app.compare({"seen": np.array([number], np.uint8), "sum": summed(FRAME)})
    app.send("samples", FRAME)
    app.send("samples", FRAME)
    with pytest.raises(ChannelError, match=r"samples is flooded: .* the frame before this one in 0\.05 s"):
        app.send("samples", FRAME, timeout=0.05)
    app.send("gain", np.array([9], np.uint8))
    app.compare({"seen": np.array([9], np.uint8), "sum": summed(FRAME)})
    with pytest.raises(ChannelError, match=r"does not come to HIL_INPUT\(samples\)"):
        App(app.dut).attach("samples", timeout=0.05)


def test_a_firmware_that_stops_answering_ends_in_time_and_the_next_boot_is_clean(app: App) -> None:
    """This one has no runtime, so that nobody can tell a hang of it from one of the link."""
    app.send("samples", HANG)
    with pytest.raises(LaunchError, match="stopped answering, and does not pass its self-test"):
        app.read("sum", "int32", timeout=0.05)
    again = App(app.dut)
    again.send("samples", FRAME)
    again.compare({"sum": summed(FRAME)})


def test_a_reset_in_the_middle_is_told(app: App) -> None:
    app.send("samples", FRAME)
    with pytest.raises(LaunchError, match="the target was reset in the middle"):
        for _ in range(3):
            app.send("samples", RESET)
    again = App(app.dut)
    again.send("samples", FRAME)
    again.compare({"sum": summed(FRAME)})
    with pytest.raises(LaunchError, match="has ended since this application was opened"):
        app.send("samples", FRAME)


def test_its_own_word_on_why_it_ended_is_a_verdict(app: App) -> None:
    with pytest.raises(TargetFault, match="the feature stage has no window"):
        app.send("samples", FATAL)
        app.read("sum", "int32")


def test_two_points_of_one_name_and_no_channels_at_all_are_told(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CHANNELS_TWICE", "1")
    with pytest.raises(ConfigError, match="two channels sum"):
        app.read("sum", "int32", timeout=5.0)
    monkeypatch.setenv("CHANNELS_WITHOUT", str(1 << Request.CHANNELS | 1 << Request.CHANNEL))
    app.dut.restart()
    with pytest.raises(NotOffered, match=r"the firmware channels 1\.0 was built without channels"):
        App(app.dut).send("samples", FRAME)


@pytest.mark.parametrize(
    ("said", "error", "message", "hint"),
    [
        (b"ready\n", LaunchError, "the firmware does not answer its handshake", "hil_target_start() for this UART"),
        (
            encode(ProtocolFrame(Event.READY, 0, bytes(2), version=2)),
            ProtocolError,
            "a frame of version 2 of the protocol; this harness speaks version 3",
            "firmware of your own: after hil build --library",
        ),
    ],
    ids=["none", "of another version"],
)
def test_firmware_that_does_not_answer_as_the_library_does_is_told(
    firmware: Resolved, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: bytes, error: type[HarnessError],
    message: str, hint: str,
) -> None:  # fmt: skip
    """It says something, and answers nothing."""
    elf = tmp_path / "mute.elf"
    own = firmware.target.firmware
    assert own is not None
    target = dataclasses.replace(firmware.target, firmware=dataclasses.replace(own, elf=elf))
    text = "".join(f"\\{byte:03o}" for byte in said)
    source = f'#include <unistd.h>\nint main(void) {{ if (write(1, "{text}", {len(said)}) > 0) for (;;) {{}} }}'
    (tmp_path / "mute.c").write_text(source)
    subprocess.run(["gcc", tmp_path / "mute.c", "-o", elf], check=True)
    with pytest.raises(ConfigError, match=r"mute\.elf does not link hil_target"):  # before it is started
        build_runner(target)
    elf.write_bytes(elf.read_bytes() + LIBRARY_TEXT)
    monkeypatch.setattr(timeouts, "HANDSHAKE", 1.0)
    with flow.open_dut(Resolved(target, target, "builtin")) as dut:
        with pytest.raises(error, match=message) as caught:
            App(dut).send("samples", FRAME)
        assert hint in caught.value.hint and (error is ProtocolError or "ready" in caught.value.log)


# --- a line that damages bytes -------------------------------------------------------------------------------


@pytest.fixture
def damaged(firmware: Resolved, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[App]:
    """The firmware on a virtual board, on whose line one byte of a hundred is damaged from now on."""
    monkeypatch.setenv("HIL_LOCK_DIR", str(tmp_path / "locks"))
    name = f"test-channels-{os.getpid()}"
    board = on_virtual_board(firmware, name, BAUD)
    with vboard.running("native", name, BAUD, seed=1), flow.open_dut(board) as dut:
        dut.session()
        vboard.send_command(name, "fault", faults={"corrupt": 0.01})
        yield App(dut)


@pytest.mark.parametrize("count", [5, pytest.param(1000, marks=pytest.mark.slow)])
def test_no_frame_is_wrong_where_one_byte_of_a_hundred_is_damaged(damaged: App, count: int) -> None:
    values = np.random.default_rng(0).integers(0, 256, (count, 64)).astype(np.uint8)
    recording = damaged.record("samples", list(values), {"doubled": "int8", "sum": "int32"}, timeout=60.0)
    print(f"\n{recording.table()}\n{recording.seconds:.1f} s")
    assert recording.lost == 0 and recording.resent > count / 10
    for frame, output, total in zip(values, recording.outputs["doubled"], recording.outputs["sum"], strict=True):
        assert output is not None and (output == doubled(frame)).all()
        assert total == summed(frame)
    latencies = recording.latencies["sum"]
    assert all(one is not None and one > 0 for one in latencies)
    assert f"sum      {count}" in recording.table()


# --- any bytes -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(1, 20))])
def test_no_request_breaks_the_firmware(firmware: Resolved, tmp_path: Path, seed: int) -> None:
    """Under AddressSanitizer and UndefinedBehaviorSanitizer: each well-formed frame is answered, whatever is in it."""
    chance = random.Random(seed)
    process = start(firmware.target, build_runner(firmware.target), tmp_path)
    decoder, answered = Decoder(), 0
    try:
        for seq in range(1, 600):
            kind, payload = _request(chance)
            noise = chance.randbytes(chance.choice([0, 0, 0, 20]))
            process.write(noise + encode(ProtocolFrame(kind, seq, payload)), Deadline.after(60))
            while answered < seq:
                for frame in decoder.feed(process.read(Deadline.after(60))):
                    if frame.seq:
                        assert (frame.type, frame.seq) == (kind | RESPONSE, seq)
                        answered += 1
    finally:
        process.close()
    assert not process.log, process.log.decode()


def _request(chance: random.Random) -> tuple[int, bytes]:
    """A request about a channel, mostly one that makes sense."""
    channel = chance.choice([0, 0, 1, 1, 2, 3, 0xFFFFFFFF])
    kind = chance.choice([Request.HELLO, *[Request.CHANNEL] * 6, Request.CHANNELS, Request.WRITE, Request.WRITE,
                          Request.READ, Request.STREAM, Request.DATA, Request.FILL, Request.DIGEST])  # fmt: skip
    at = struct.pack("<BII", MemoryRegion.CHANNEL, channel, chance.choice([0, 0, 0, 1, 63, 64, 0xFFFFFFFF]))
    length = struct.pack("<I", chance.choice([0, 1, 4, 64, 65, 0xFFFFFFFF]))
    payload = {
        Request.HELLO: b"",
        Request.CHANNEL: struct.pack("<IBI", channel, chance.randrange(6), chance.choice([0, 1, 7, 0xFFFFFFFF]))
        + chance.randbytes(chance.choice([0, 0, 0, 1, 64, 65])),
        Request.CHANNELS: struct.pack("<II", chance.choice([0, 1, 9]), chance.choice([0, 10, 1000, 0xFFFFFFFF])),
        Request.WRITE: at + chance.randbytes(chance.choice([0, 1, 64, 65])),
        Request.READ: at + length,
        Request.STREAM: at + length + struct.pack("<I", chance.choice([0, 1, 32])),
        Request.DATA: chance.randbytes(chance.choice([0, 1, 32, 64])),
        Request.FILL: at + length + b"\x5a",
        Request.DIGEST: at + length,
    }[kind]
    if chance.random() < 0.1:
        payload = payload[: chance.randrange(len(payload) + 1)] + chance.randbytes(chance.choice([0, 1]))
    return kind, payload
