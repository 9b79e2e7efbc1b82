"""Frames against everything a byte channel does to them: chunks, garbage, corruption, loss."""

from __future__ import annotations

import itertools
import struct
import zlib
from collections.abc import Iterable, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cortex_m_hil.runner.links.framing import (
    MAX_ENCODED,
    VERSION,
    Decoder,
    ProtocolFrame,
    cobs_decode,
    cobs_encode,
    encode,
)

# Zeros and runs about the length of a COBS group are where the encoding has its corners.
RUNS = st.integers(0, 520).map(lambda size: b"x" * size)
PAYLOADS = st.lists(st.one_of(st.binary(max_size=64), RUNS, st.just(b"\0")), max_size=5).map(b"".join)
FRAMES = st.builds(ProtocolFrame, st.integers(0, 255), st.integers(0, 0xFFFF), PAYLOADS, st.integers(0, 255))
GARBAGE = st.binary(max_size=40)
TEXT = st.text(st.characters(codec="ascii", exclude_categories=["Cc"]), min_size=1, max_size=40).map(str.encode)


def feed_all(decoder: Decoder, chunks: Iterable[bytes]) -> list[ProtocolFrame]:
    return [frame for chunk in chunks for frame in decoder.feed(chunk)]


def cut(data: bytes, places: Sequence[int]) -> list[bytes]:
    """`data` in chunks, cut at `places` (taken modulo its length)."""
    ends = sorted({place % (len(data) + 1) for place in places} | {0, len(data)})
    return [data[a:b] for a, b in itertools.pairwise(ends)]


@given(PAYLOADS)
def test_cobs_round_trip(data: bytes) -> None:
    encoded = cobs_encode(data)
    assert 0 not in encoded
    assert len(encoded) <= len(data) + len(data) // 254 + 1
    assert cobs_decode(encoded) == data


@pytest.mark.parametrize(
    ("data", "encoded"),
    [
        (b"", "01"),
        (b"\0", "0101"),
        (b"\x11\0\0\x22", "0211010222"),
        (b"a" * 253, "fe" + "61" * 253),
        (b"a" * 254, "ff" + "61" * 254 + "01"),
        (b"a" * 255, "ff" + "61" * 254 + "0261"),
        (b"a" * 254 + b"\0", "ff" + "61" * 254 + "0101"),
    ],
)
def test_cobs_is_what_the_firmware_encodes(data: bytes, encoded: str) -> None:
    assert cobs_encode(data).hex() == encoded


@given(st.binary(max_size=600))
def test_cobs_decoder_takes_any_bytes(data: bytes) -> None:
    try:
        decoded = cobs_decode(data)
    except ValueError:
        return
    assert len(decoded) <= len(data)


def test_the_wire_format_is_the_documented_one() -> None:
    body = struct.pack("<BBH", VERSION, 0x42, 0x1234) + b"payload"
    wire = encode(ProtocolFrame(0x42, 0x1234, b"payload"))
    assert wire[0] == wire[-1] == 0
    assert cobs_decode(wire[1:-1]) == body + struct.pack("<I", zlib.crc32(body))


@given(st.lists(FRAMES, max_size=5), st.lists(st.integers(0)))
def test_frames_survive_any_chunking(frames: list[ProtocolFrame], places: list[int]) -> None:
    wire = b"".join(map(encode, frames))
    decoder = Decoder()
    assert feed_all(decoder, cut(wire, places)) == frames
    assert decoder.flush() == b""


@given(st.lists(FRAMES, max_size=3), st.data())
def test_byte_by_byte_is_the_same(frames: list[ProtocolFrame], data: st.DataObject) -> None:
    wire = b"".join(encode(frame) + data.draw(GARBAGE) + b"\0" for frame in frames)
    assert feed_all(Decoder(), (bytes([byte]) for byte in wire)) == feed_all(Decoder(), [wire])


@given(st.lists(st.tuples(GARBAGE, FRAMES), max_size=5), GARBAGE, st.lists(st.integers(0)))
def test_garbage_between_frames_costs_no_frame(
    items: list[tuple[bytes, ProtocolFrame]], last: bytes, places: list[int]
) -> None:
    wire = b"".join(garbage + encode(frame) for garbage, frame in items) + last
    decoder = Decoder()
    assert feed_all(decoder, cut(wire, places)) == [frame for _, frame in items]
    kept = b"".join(garbage for garbage, _ in items) + last
    assert decoder.flush() == kept.replace(b"\0", b"")


@given(FRAMES, FRAMES, st.integers(0), st.integers(1, 255))
def test_a_corrupted_byte_never_makes_another_frame(
    first: ProtocolFrame, second: ProtocolFrame, place: int, flip: int
) -> None:
    wire = bytearray(encode(first))
    wire[place % len(wire)] ^= flip
    got = feed_all(Decoder(), [bytes(wire) + encode(second)])
    # Losing a boundary may cost nothing (the neighbour has one too), but nothing new may come out.
    assert got in ([second], [first, second])
    if 0 < place % len(wire) < len(wire) - 1:
        assert got == [second]


@given(FRAMES, st.lists(st.tuples(st.integers(0), st.integers(0, 255)), min_size=1, max_size=8))
def test_burst_errors_never_make_another_frame(frame: ProtocolFrame, changes: list[tuple[int, int]]) -> None:
    wire = bytearray(encode(frame))
    for place, value in changes:
        wire[place % len(wire)] = value
    assert all(got == frame for got in feed_all(Decoder(), [bytes(wire), b"\0"]))


@given(FRAMES, FRAMES, st.integers(1))
def test_a_truncated_frame_is_dropped_and_the_next_one_read(
    first: ProtocolFrame, second: ProtocolFrame, size: int
) -> None:
    whole = encode(first)
    part = whole[: 1 + size % (len(whole) - 2)]  # at least the boundary, at most all but the last two bytes
    decoder = Decoder()
    assert feed_all(decoder, [part, encode(second)]) == [second]
    assert decoder.flush() == part.strip(b"\0")


@given(FRAMES)
def test_an_unfinished_frame_is_not_yielded(frame: ProtocolFrame) -> None:
    wire = encode(frame)
    decoder = Decoder()
    assert feed_all(decoder, [wire[:-1]]) == []
    assert feed_all(decoder, [wire[-1:]]) == [frame]


@given(st.lists(st.one_of(TEXT, FRAMES), max_size=8))
def test_text_is_kept_in_order_for_the_log(items: list[bytes | ProtocolFrame]) -> None:
    decoder = Decoder()
    wire = b"".join(encode(item) if isinstance(item, ProtocolFrame) else item for item in items)
    frames = feed_all(decoder, [wire])
    assert frames == [item for item in items if isinstance(item, ProtocolFrame)]
    assert decoder.flush() == b"".join(item for item in items if isinstance(item, bytes))


def test_flush_gives_everything_once() -> None:
    decoder = Decoder()
    assert feed_all(decoder, [b"boot\0 loader", b" 1.0"]) == []
    assert decoder.flush() == b"boot loader 1.0"
    assert decoder.flush() == b""
    frame = ProtocolFrame(1, 1)
    assert feed_all(decoder, [encode(frame)]) == [frame]


@pytest.mark.parametrize("boundary", [b"", b"\0"], ids=["one-endless-run", "many-runs"])
def test_endless_text_takes_bounded_memory_and_the_newest_is_kept(boundary: bytes) -> None:
    decoder = Decoder()
    for number in range(200):
        assert feed_all(decoder, [b"%07d " % number * 512 + boundary]) == []
    text = decoder.flush()
    assert len(text) <= 3 * MAX_ENCODED
    assert text.endswith(b"0000199 ")
    frame = ProtocolFrame(2, 7, b"still in step")
    assert feed_all(decoder, [encode(frame)]) == [frame]
