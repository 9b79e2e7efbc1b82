"""Byte channels to a live target, and the framing on top of them."""

from __future__ import annotations

from typing import Protocol

from cortex_m_hil.host.deadline import Deadline


class Budget(Protocol):
    """How long something may take, in wall time or in the engine's CPU time."""

    @property
    def expired(self) -> bool: ...

    @property
    def next_poll(self) -> Deadline: ...


class LinkClosed(Exception):
    """The other end is gone. What it means is the launcher's to say."""


class Link(Protocol):
    """A byte channel. One thread at a time."""

    def write(self, data: bytes, deadline: Deadline) -> None:
        """Sends all of `data`. Raises LinkClosed, or TimeoutError at the deadline."""

    def read(self, deadline: Deadline) -> bytes:
        """At least one byte, as soon as there is one. Raises LinkClosed, or TimeoutError at the deadline."""


class Connection(Link, Protocol):
    """A live runner at the other end of a link."""

    log: bytearray  # what was said beside the link

    @property
    def lossless(self) -> bool:
        """Nothing is ever lost or damaged, so nothing need be sent again."""

    def budget(self, seconds: float, nbytes: int = 0) -> Budget:
        """`seconds` from now for a request, and what `nbytes` take on the wire."""

    def wait(self, seconds: float) -> int | None:
        """The exit status if the other end ends within `seconds`."""

    def store(self, data: bytes) -> None:
        """Puts a program into the flash beside the runner, which starts anew."""

    def close(self) -> None:
        """Ends what can be ended."""
