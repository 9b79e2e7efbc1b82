"""A simulated serial line with the speed of its baud rate, and with faults on request."""

from __future__ import annotations

import dataclasses
import math
import random
from collections.abc import Mapping
from dataclasses import dataclass

from cortex_m_hil.errors import ConfigError
from cortex_m_hil.runner.links.uart import BITS

TICK = 0.0005  # least seconds between two polls of a busy wire


@dataclass(frozen=True)
class Faults:
    """The faults of a virtual board, and of its wire in both directions. Only a reset ends `hang`."""

    corrupt: float = 0.0  # share of bytes, 0 to 1, that arrive with another value
    drop: float = 0.0  # share of bytes that are lost
    duplicate: float = 0.0  # share of bytes that arrive twice
    delay: float = 0.0  # seconds by which bytes are late
    hang: float = 0.0  # 1: the core hangs until a reset, 0: it runs
    vanish: float = 0.0  # seconds from now in which the port does not exist
    reset_after: float = 0.0  # the board resets once after so many bytes from the host
    power_loss: float = 0.0  # so many next flashes lose power halfway; the board starts with the partial content

    @classmethod
    def parse(cls, words: Mapping[str, object]) -> Faults:
        """Parse faults by their names. Raises ConfigError for an unknown name, or a value that is no number from 0."""
        known = {item.name for item in dataclasses.fields(cls)}
        if unknown := sorted(set(words) - known):
            raise ConfigError(f"no fault {unknown[0]!r}", hint=f"known: {', '.join(sorted(known))}")
        try:
            values = {name: float(str(value)) for name, value in words.items()}
        except ValueError as error:
            raise ConfigError(
                f"a fault's size is a number: {error}", hint="hil board virtual --help says what each is"
            ) from None
        if any(not math.isfinite(value) or value < 0 for value in values.values()):
            raise ConfigError("a fault's size is a number from 0", hint="hil board virtual --help says what each is")
        return cls(**values)


class Wire:
    """One direction of a serial line: bytes can be taken out as soon as a UART would have sent them."""

    def __init__(self, baud: int, chance: random.Random) -> None:
        self.rate = baud / BITS
        self.faults = Faults()
        self._chance = chance
        self._bytes = bytearray()
        self._clock = 0.0  # the arrival time of the last byte that was taken

    def __len__(self) -> int:
        return len(self._bytes)

    def put(self, data: bytes, now: float, *, garbled: bool = False) -> None:
        if not self._bytes:
            self._clock = max(self._clock, now + self.faults.delay)
        self._bytes += self._randomised(data) if garbled else self._damaged(data)

    def take(self, now: float) -> bytes:
        count = max(0, min(len(self._bytes), int((now - self._clock) * self.rate)))
        self._clock += count / self.rate
        data = bytes(self._bytes[:count])
        del self._bytes[:count]
        return data

    def put_back(self, data: bytes) -> None:
        """Put bytes that the receiver did not take back to the front of the wire."""
        self._bytes[:0] = data

    def due(self, now: float) -> float | None:
        """Return the seconds until the next byte may have arrived, None if the wire is empty."""
        return max(TICK, self._clock + 1 / self.rate - now) if self._bytes else None

    def cut(self) -> None:
        self._bytes.clear()

    def _randomised(self, data: bytes) -> bytes:
        return self._chance.randbytes(len(data))

    def _damaged(self, data: bytes) -> bytes:
        faults = self.faults
        if not (faults.corrupt or faults.drop or faults.duplicate):
            return data
        out = bytearray()
        for byte in data:
            if self._chance.random() < faults.drop:
                continue
            if self._chance.random() < faults.corrupt:
                byte ^= self._chance.randrange(1, 256)  # noqa: PLW2901
            out += bytes([byte] * (2 if self._chance.random() < faults.duplicate else 1))
        return bytes(out)
