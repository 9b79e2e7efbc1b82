"""Channels of the firmware: a process of this machine, under sanitizers, also behind a line that damages bytes."""

from __future__ import annotations

import dataclasses
import os
import random
import struct
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import numpy as np
import pytest

from channel_firmwares import channel_firmware, library
from cortex_m_hil import flow
from cortex_m_hil.boards.virtual import vboard
from cortex_m_hil.errors import ChannelError, ConfigError, HarnessError, LaunchError, Mismatch, NotOffered
from cortex_m_hil.flow import App
from cortex_m_hil.host.deadline import Deadline
from cortex_m_hil.program.tensor import Array
from cortex_m_hil.runner.build import build_runner
from cortex_m_hil.runner.launchers import start
from cortex_m_hil.runner.links.framing import Decoder, ProtocolFrame, encode
from cortex_m_hil.runner.links.protocol import RESPONSE, MemoryRegion, Request
from cortex_m_hil.targets.resolve import Resolved
from cortex_m_hil.targets.tool_commands import parse_procedure
from devices import tools

BAUD = 921600
FRAME = np.arange(64, dtype=np.uint8)
Opened = Callable[..., AbstractContextManager[App]]


def doubled(frame: Array) -> Array:
    return (frame * 2).astype(np.int8)


def summed(frame: Array) -> Array:
    return np.array([doubled(frame).sum(dtype=np.int32)])


@pytest.fixture(scope="module")
def objects(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    return library(tmp_path_factory.mktemp("library"))


@pytest.fixture(scope="module")
def ordinary(objects: list[str], tmp_path_factory: pytest.TempPathFactory) -> Resolved:
    return channel_firmware(tmp_path_factory.mktemp("ordinary"), objects)


@pytest.fixture
def opened(ordinary: Resolved, objects: list[str], tmp_path: Path) -> Opened:
    """Opens the application of a firmware; macros change it."""

    @contextmanager
    def open_app(*definitions: str) -> Iterator[App]:
        resolved = channel_firmware(tmp_path / "changed", objects, *definitions) if definitions else ordinary
        with flow.open_dut(resolved) as dut:
            yield App(dut)

    return open_app


def test_frames_go_in_and_come_out_beside_a_console(opened: Opened) -> None:
    with opened('AFTER=say("took a frame\\n")') as app:
        assert app.channels == {"samples": 64, "doubled": 64, "sum": 4}
        for frame in (FRAME, FRAME[::-1], np.full(64, 200, np.uint8)):
            app.send("samples", frame)
            assert (app.read("doubled", "int8") == doubled(frame)).all()
            assert app.read("sum", "int32", shape=()) == summed(frame)
        app.send("samples", FRAME)
        app.compare({"doubled": doubled(FRAME), "sum": summed(FRAME)})
        assert app.lost == 0 and "boot loader 1.0" in app.log
        assert app.log.count("took a frame") >= 4
        app.close()  # it goes on with its sensor
        assert app.dut.session().channels(1.0)


def test_the_first_stage_that_departs_is_named(opened: Opened) -> None:
    with opened() as app:
        wrong = doubled(FRAME)
        wrong[5] += 3
        app.send("samples", FRAME)
        with pytest.raises(Mismatch) as caught:
            app.compare({"doubled": doubled(FRAME), "sum": summed(FRAME) + 1})
        assert caught.value.message.startswith(
            "the stage sum departs first: 1 of 1 element wrong, the first at 0: 4032"
        )
        assert caught.value.details == (("doubled", "as expected"), ("sum", caught.value.details[1][1]))
        assert "between HIL_OUTPUT(doubled) and HIL_OUTPUT(sum)" in caught.value.hint
        app.send("samples", FRAME)
        with pytest.raises(
            Mismatch, match=r"the stage doubled departs first: .* the first at 5: 10, expected 13; by 3"
        ):
            app.compare({"doubled": wrong, "sum": summed(FRAME) + 1}, atol={"doubled": 2.0})
        app.send("samples", FRAME)
        app.compare({"doubled": wrong, "sum": summed(FRAME)}, atol={"doubled": 3.0})


def test_what_does_not_fit_the_firmware_is_told_with_channel_found_and_expected(opened: Opened) -> None:
    floats = FRAME[:16].astype(np.float32)
    with opened() as app:
        calls: list[tuple[Callable[[], object], str]] = [
            (lambda: app.send("sampels", FRAME, timeout=0.1), "no channel 'sampels' in 0.1 s.* samples, doubled, sum"),
            (lambda: app.send("samples", FRAME[:5]), r"samples: ndarray uint8\[5\] has 5 bytes, a frame of it has 64"),
            (lambda: app.send("samples", [1, 2]), "has no dtype"),
            (lambda: app.send("sum", FRAME), "sum is an output"),
            (lambda: app.read("samples", "uint8"), "samples is an input"),
            (lambda: app.read("sum", "int64"), "sum: a frame of it has 4 bytes, which are no elements of int64"),
            (lambda: app.read("doubled", "int8", shape=(3, -1)), r"64 bytes, which are no int8\[3, -1\]"),
            (lambda: app.read("sum", "words"), "sum: 'words' is no dtype"),
            (lambda: app.read("sum", None), "sum: None is no dtype"),
            (lambda: app.read("sum", "int32", timeout=float("nan")), "timeout: a number"),
            (lambda: app.compare({"sum": floats}), "4 bytes, which are no float32"),
            (lambda: app.compare({"sum": summed(FRAME)}, atol={"sun": 1.0}), "atol: no stage 'sun'"),
            (lambda: app.compare({"sum": summed(FRAME)}, atol=-1.0), "atol: a number"),
            (lambda: app.record("samples", [FRAME]), "app.record: "),  # type: ignore[call-arg]
        ]
        for call, said in calls:
            with pytest.raises(ConfigError, match=said):
                call()
        app.send("samples", FRAME.view(np.float32))  # the bytes are what is sent
        app.compare({"doubled": doubled(FRAME)})


def test_a_frame_that_does_not_come_is_told_with_where_the_firmware_waits(opened: Opened) -> None:
    with opened() as app:
        app.send("samples", FRAME)
        app.read("sum", "int32")
        with pytest.raises(ChannelError, match=r"sum: no frame in 0\.05 s; the firmware waits at HIL_INPUT\(samples\)"):
            app.read("sum", "int32", timeout=0.05)
        app.send("samples", FRAME)
        app.compare({"sum": summed(FRAME)})


def test_what_the_firmware_has_no_room_for_is_counted(opened: Opened) -> None:
    with opened("AFTER=for (int i = 0; i < 9; ++i) work()") as app:
        app.send("samples", FRAME)
        for _ in range(4):
            assert app.read("sum", "int32") == summed(FRAME)
        with pytest.raises(ChannelError, match="sum: 6 frames lost in the firmware"):
            app.read("sum", "int32")
        recording = app.record("samples", [FRAME] * 3, {"doubled": "int8"})
        assert recording.lost == 2 * 3 * 6 + 6 and recording.outputs["doubled"][2] is not None


def test_a_flooded_input_is_an_error_in_time_and_the_next_boot_is_clean(opened: Opened) -> None:
    with opened("AFTER=if (samples[0] == 7) usleep(2000000)") as app:
        with pytest.raises(HarnessError) as caught:
            for first in (7, 1, 2):
                app.send("samples", np.full(64, first, np.uint8), timeout=0.05)
        assert isinstance(caught.value, LaunchError | ChannelError)
        again = App(app.dut)
        again.send("samples", FRAME, timeout=5.0)
        again.compare({"sum": summed(FRAME)}, timeout=5.0)


def test_a_second_input_is_taken_over_with_the_first(opened: Opened) -> None:
    second = "static uint8_t gain[1]; HIL_INPUT(gain, gain, 1); HIL_OUTPUT(seen, gain, 1)"
    with opened(f"AFTER={second}") as app:
        app.attach("samples", "gain")
        for number in range(3):
            app.send("samples", FRAME)
            app.send("gain", np.array([number], np.uint8))
            app.compare({"seen": np.array([number], np.uint8), "sum": summed(FRAME)})


def test_a_reset_in_the_middle_is_told(opened: Opened) -> None:
    with opened("AFTER=if (samples[0] == 7) hil_target_start(&target)") as app:
        app.send("samples", FRAME)
        with pytest.raises(LaunchError, match="the target was reset in the middle"):
            for _ in range(3):
                app.send("samples", np.full(64, 7, np.uint8))
        again = App(app.dut)
        again.send("samples", FRAME)
        again.compare({"sum": summed(FRAME)})


def test_two_points_of_one_name_and_no_channels_at_all_are_told(opened: Opened) -> None:
    twice = "AFTER=HIL_OUTPUT(sum, &sum, sizeof sum)"
    with opened(twice) as app, pytest.raises(ConfigError, match="two channels sum"):
        app.read("sum", "int32", timeout=5.0)
    with opened("WITHOUT=3u << HIL_REQUEST_CHANNELS") as app, pytest.raises(NotOffered, match="without channels"):
        app.send("samples", FRAME)


# --- a line that damages bytes -------------------------------------------------------------------------------


@pytest.fixture
def damaged(ordinary: Resolved, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[App]:
    """The firmware on a virtual board, on whose line one byte of a hundred is damaged from now on."""
    monkeypatch.setenv("HIL_LOCK_DIR", str(tmp_path / "locks"))
    name = f"test-channels-{os.getpid()}"
    quick = {kind: parse_procedure(words, kind, "test") for kind, words in tools(name).items()}
    launcher = dataclasses.replace(vboard.launcher("native", name, BAUD), flash=quick["flash"], reset=quick["reset"])
    target = dataclasses.replace(ordinary.target, launcher=launcher)
    with vboard.running("native", name, BAUD, seed=1), flow.open_dut(Resolved(target, target, "builtin")) as dut:
        dut.session()
        vboard.send_command(name, "fault", faults={"corrupt": 0.01})
        yield App(dut)


@pytest.mark.parametrize("count", [20, pytest.param(1000, marks=pytest.mark.slow)])
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
def test_no_request_breaks_the_firmware(ordinary: Resolved, tmp_path: Path, seed: int) -> None:
    """Under AddressSanitizer and UndefinedBehaviorSanitizer: each well-formed frame is answered, whatever is in it."""
    chance = random.Random(seed)
    process = start(ordinary.target, build_runner(ordinary.target), tmp_path)
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
