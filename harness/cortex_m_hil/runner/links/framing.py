"""Frames on a byte channel: COBS between zero bytes, with a CRC-32. Specification: docs/protocol.md."""

from __future__ import annotations

import struct
import zlib
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

VERSION = 3
_HEADER = struct.Struct("<BBH")
_CRC = struct.Struct("<I")
# More bytes than these without a boundary are no frame: the largest frame of a runner has a few KiB.
MAX_ENCODED = 1 << 17


@dataclass(frozen=True)
class ProtocolFrame:
    """A frame of the protocol: a request, a response or an event. `seq` is 0 in events."""

    type: int
    seq: int
    payload: bytes = b""
    version: int = VERSION


def cobs_encode(data: bytes) -> bytes:
    """Encode `data` without zero bytes: each code byte is the distance to the next zero."""
    out = bytearray()
    for group in data.split(b"\0"):
        full = len(group) - len(group) % 254
        for at in range(0, full, 254):
            out.append(255)
            out += group[at : at + 254]
        out.append(len(group) - full + 1)
        out += group[full:]
    return bytes(out)


def cobs_decode(data: bytes) -> bytes:
    """Decode what `cobs_encode` returned. Raises ValueError for bytes that no encoder makes."""
    out = bytearray()
    at = 0
    while at < len(data):
        code = data[at]
        end = at + code
        if code == 0 or end > len(data):
            raise ValueError("not COBS")
        out += data[at + 1 : end]
        if code != 255 and end < len(data):
            out.append(0)
        at = end
    return bytes(out)


def encode(frame: ProtocolFrame) -> bytes:
    """Return a frame's bytes on the wire, with the zero bytes around them."""
    body = _HEADER.pack(frame.version, frame.type, frame.seq) + frame.payload
    return b"\0" + cobs_encode(body + _CRC.pack(zlib.crc32(body))) + b"\0"


def _decode_body(encoded: bytes) -> ProtocolFrame | None:
    try:
        body = cobs_decode(encoded)
    except ValueError:
        return None
    if len(body) < _HEADER.size + _CRC.size:
        return None
    body, crc = body[: -_CRC.size], body[-_CRC.size :]
    if _CRC.unpack(crc)[0] != zlib.crc32(body):
        return None
    version, kind, seq = _HEADER.unpack_from(body)
    return ProtocolFrame(kind, seq, body[_HEADER.size :], version)


def is_text(piece: bytes) -> bool:
    """Tell whether bytes between frames are what a console has printed, and not a damaged frame."""
    try:
        return all(one.isprintable() or one in "\t\r\n\b\a\x1b" for one in piece.decode())
    except UnicodeDecodeError:
        return False


class Decoder:
    """A decoder of frames in a stream of bytes. What is no frame collects in `stray`, piece by piece."""

    def __init__(self) -> None:
        self._pending = bytearray()
        self.stray: deque[bytes] = deque()
        self._size = 0  # bytes in `stray`

    def feed(self, data: bytes) -> Iterator[ProtocolFrame]:
        first, *others = data.split(b"\0")
        self._pending += first
        for following in others:
            encoded, self._pending = bytes(self._pending), bytearray(following)
            if not encoded:
                continue
            frame = _decode_body(encoded)
            if frame is None:
                self._keep(encoded)
            else:
                yield frame
        if len(self._pending) > MAX_ENCODED:
            self._keep(self._pending)
            self._pending.clear()

    def take_stray(self) -> list[bytes]:
        """Return the newest pieces that were no frame, and discard them."""
        pieces = list(self.stray)
        self.stray.clear()
        self._size = 0
        return pieces

    def flush(self) -> bytes:
        """Return the newest bytes that were no frame, for the log; discard these and an incomplete frame."""
        self._keep(self._pending)
        self._pending.clear()
        return b"".join(self.take_stray())

    def _keep(self, piece: bytes | bytearray) -> None:
        self.stray.append(bytes(piece[-MAX_ENCODED:]))
        self._size += len(self.stray[-1])
        while self._size > MAX_ENCODED:
            over = self._size - MAX_ENCODED
            oldest = self.stray.popleft()
            self._size -= len(oldest)
            if over < len(oldest):
                self.stray.appendleft(oldest[over:])
                self._size += len(oldest) - over
