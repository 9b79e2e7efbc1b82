"""What a runner says without being asked: log lines, how far it is, a fault, its end (docs/protocol.md)."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TypeVar

from cortex_m_hil.errors import LaunchError, ProtocolError
from cortex_m_hil.errors.text import printable_lines
from cortex_m_hil.runner.links import protocol
from cortex_m_hil.runner.links.framing import Frame
from cortex_m_hil.runner.links.protocol import Event, Reader
from cortex_m_hil.runner.session.faults import Fault
from cortex_m_hil.targets.connection import Connection

LOG_LIMIT = 256 * 1024  # characters kept, the newest

_Value = TypeVar("_Value")


class Events:
    """The events of one boot, and what follows from them."""

    def __init__(self, connection: Connection) -> None:
        self.instructions = 0
        """Of the program that is loaded, or is being loaded: no event speaks of a higher one."""
        self.executing = -1
        """The instruction that was begun last, by the latest request."""
        self.fault: Fault | None = None
        self.ended_with: int | None = None
        """The exit status that the runner said."""
        self.greeted = False
        """Whether the handshake is over: a runner that starts anew was reset."""
        self._connection = connection
        self._lines: deque[str] = deque()
        self._size = 0  # characters

    def begin(self) -> None:
        """Another program: what was said of the one before is none of its own."""
        self._lines.clear()
        self._size = 0

    @property
    def log(self) -> str:
        """What the runner has said since `begin`, and all that its simulator has printed: the newest."""
        errors = printable_lines(self._connection.log.decode(errors="replace")).strip()
        return "\n".join([*self._lines, errors] if errors else self._lines)[-LOG_LIMIT:]

    def remember(self, text: str) -> None:
        """Adds a line to the log."""
        self._lines.append(text)
        self._size += len(text)
        while self._size > LOG_LIMIT and len(self._lines) > 1:
            self._size -= len(self._lines.popleft())

    def take(self, frame: Frame) -> None:
        """ProtocolError for what is no event; LaunchError if the runner has started anew."""
        if frame.type not in set(Event):
            if frame.type < min(Event):  # our own request: some adapters echo what is sent
                return
            raise ProtocolError(f"an event of unknown type 0x{frame.type:02x}")
        reader = Reader(Event(frame.type).name, frame.payload)
        if frame.seq != 0:
            raise reader.wrong("seq", frame.seq, "0")
        match Event(frame.type):
            case Event.PROGRESS:
                self.executing = parse_all(lambda one: protocol.progress(one, self.instructions), reader)
            case Event.LOG:
                said = parse_all(protocol.log, reader)
                self.remember(f"[{said.level}] {said.text}")
            case Event.FAULT:
                self.fault = parse_all(lambda one: Fault.parse(one, self.instructions), reader)
            case Event.ENDED:
                self.ended_with = parse_all(protocol.ended, reader)
            case Event.READY:
                parse_all(protocol.ready, reader)
                if self.greeted:
                    raise LaunchError("the target was reset in the middle", log=self.log)


def parse_all(parse: Callable[[Reader], _Value], reader: Reader) -> _Value:
    """What `parse` reads; ProtocolError if it leaves bytes."""
    value = parse(reader)
    reader.end()
    return value
