"""The events that a runner sends without a request: log lines, progress, a fault, its end (docs/protocol.md)."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TypeVar

from cortex_m_hil.errors import LaunchError, ProtocolError
from cortex_m_hil.errors.text import printable_lines
from cortex_m_hil.runner.links import protocol
from cortex_m_hil.runner.links.framing import ProtocolFrame
from cortex_m_hil.runner.links.protocol import Event, PayloadReader
from cortex_m_hil.runner.session.fault_description import Fault
from cortex_m_hil.targets.connection import Connection

LOG_LIMIT = 256 * 1024  # the newest characters that are kept

_Value = TypeVar("_Value")


class Events:
    """The state of a runner since its boot, by its events: log, progress, fault and end."""

    def __init__(self, connection: Connection) -> None:
        self.instructions = 0
        """The number of instructions of the last program that was to be loaded: the limit for numbers in events."""
        self.executing = -1
        """The instruction that the latest request began last; -1: none."""
        self.fault: Fault | None = None
        self.ended_with: int | None = None
        """The exit status that the runner reported; None: the runner has not ended."""
        self.done_with = 0
        """The frame of the host that the firmware, by its word, works on no more; 0: none so far."""
        self.greeted = False
        """Whether the handshake is over; from then on a READY means that the target was reset."""
        self._connection = connection
        self._lines: deque[str] = deque()
        self._size = 0  # characters in the log

    def begin(self) -> None:
        """Clear the log before another program."""
        self._lines.clear()
        self._size = 0

    @property
    def log(self) -> str:
        """Return the newest lines of the runner since `begin`, followed by the simulator's own output."""
        errors = printable_lines(self._connection.log.decode(errors="replace")).strip()
        return "\n".join([*self._lines, errors] if errors else self._lines)[-LOG_LIMIT:]

    def remember(self, text: str) -> None:
        """Add a line to the log, and drop the oldest lines beyond LOG_LIMIT."""
        self._lines.append(text)
        self._size += len(text)
        while self._size > LOG_LIMIT and len(self._lines) > 1:
            self._size -= len(self._lines.popleft())

    def take(self, frame: ProtocolFrame) -> None:
        """Handle the event in a frame. Some adapters echo requests; an echo is ignored.

        Raises ProtocolError for a frame that is no event, and LaunchError if the runner has restarted.
        """
        if frame.type not in set(Event):
            if frame.type < min(Event):  # an echo of a request
                return
            raise ProtocolError(f"an event of unknown type 0x{frame.type:02x}")
        reader = PayloadReader(Event(frame.type).name, frame.payload)
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
            case Event.WAITING:
                self.done_with = parse_all(protocol.waiting, reader)
            case Event.READY:
                parse_all(protocol.ready, reader)
                if self.greeted:
                    hint = "its watchdog, its supply, or its reset line"
                    raise LaunchError("the target was reset in the middle", hint=hint, log=self.log)


def parse_all(parse: Callable[[PayloadReader], _Value], reader: PayloadReader) -> _Value:
    """Parse a whole payload by `parse`, and return its result. Raises ProtocolError if bytes are left over."""
    value = parse(reader)
    reader.end()
    return value
