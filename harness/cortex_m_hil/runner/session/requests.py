"""The exchange of requests and responses, with retransmission of lost requests (docs/protocol.md)."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress

from cortex_m_hil.errors import ProtocolError
from cortex_m_hil.errors.text import printable_lines
from cortex_m_hil.host.deadline import Deadline
from cortex_m_hil.runner.links import protocol
from cortex_m_hil.runner.links.framing import VERSION, Decoder, ProtocolFrame, encode, is_text
from cortex_m_hil.runner.links.protocol import EXIT_FAULT, RESPONSE, Request
from cortex_m_hil.runner.links.retransmission import Window
from cortex_m_hil.runner.session.events import Events
from cortex_m_hil.targets.connection import Budget, Connection, LinkClosed

# Bytes of data in a frame on a lossy link (docs/protocol.md), which has 11 bytes around them. With one byte in a
# thousand damaged, the best size, 105 bytes, has a throughput of 81 %; 152 have 79 %, and on an undamaged line 93 % in
# place of 90 %.
CHUNK = 152
WINDOW = 48  # frames in flight: 7.8 KB, which a runner's 8192 hold; 85 ms at 921600 baud, for adapters and busy hosts
# Seconds of silence before requests are sent again: at first, and at most. Retries go on until the time budget ends,
# without a limit of their number.
RETRANSMISSION_TIMEOUT = 0.1, 1.0
FAULT_REPORT_ATTEMPTS = 20  # times that a runner which has ended is asked for its FAULT event
LAST_SEQ = 0xFFFF


class Exchange:
    """The exchange of frames with a runner from its boot on."""

    def __init__(self, connection: Connection, events: Events) -> None:
        self.max_payload = protocol.MAX_PAYLOAD
        """Bytes of the largest payload that the runner may send."""
        self.seq = 0
        """The sequence number of the latest request."""
        self.resent = 0
        """The requests that were sent again."""
        self._text = ""  # of a console on the same line: what follows its last line end
        self._connection = connection
        self._events = events
        self._decoder = Decoder()
        self._frames: deque[ProtocolFrame] = deque()
        self._timeout = RETRANSMISSION_TIMEOUT[0]
        self._retransmitted = False  # whether requests were sent again since the last duplicate response
        self._report_attempts = 0
        self._greeting: ProtocolFrame | None = None  # the first answer to the latest HELLO

    def reserve(self, count: int) -> None:
        """Make the sequence numbers of the next `count` requests consecutive: restart at 1 if they would wrap around.

        `count` must be so much less than LAST_SEQ that no number is used again of which a response may still arrive.
        """
        if self.seq + count > LAST_SEQ:
            self.seq = 0

    def responses(
        self,
        request: Request,
        payloads: Sequence[bytes],
        budget_of_one: Callable[[], Budget],
        again: float | None = None,
    ) -> list[ProtocolFrame]:
        """Send a request for each payload, with the next seqs, and return the responses in their order.

        On a lossy link several requests are in flight, and a request without an answer is sent again. A duplicate
        response shows that the first response was late and not lost: from then on the retransmission timeout is longer.
        HELLO is sent again on any link, since firmware may lose what arrives before it listens.

        Args:
            request: the kind of all requests.
            payloads: a payload for each request.
            budget_of_one: returns the time budget for the next response.
            again: seconds of silence after which requests are sent again; None: longer each time, by what was late.

        Raises:
            TimeoutError: a budget ran out without a response.
            LinkClosed: the runner has ended.
            ProtocolError: a frame violates the specification.
        """
        first, self.seq = self.seq + 1, self.seq + len(payloads)
        requests = [ProtocolFrame(request, first + place, payload) for place, payload in enumerate(payloads)]
        budget = budget_of_one()
        places = {(frame.type | RESPONSE, frame.seq): place for place, frame in enumerate(requests)}
        found: dict[int, ProtocolFrame] = {}
        lossless = self._connection.lossless
        window = Window(len(requests), 1 if lossless else WINDOW)
        repeats = request is Request.HELLO or not lossless
        timeout = again or (RETRANSMISSION_TIMEOUT[1] if lossless else self._timeout)
        self.resent -= len(requests)
        while not window.done:
            launched = window.launch()
            self.resent += len(launched)
            if batch := b"".join(encode(requests[place]) for place in launched):
                self._connection.write(batch, budget.next_poll)
            frame = self._next_frame(budget, timeout if repeats else None)
            if frame is None:
                window.all_lost()
                if again is None:
                    self._retransmitted = True
                    timeout = min(2 * timeout, RETRANSMISSION_TIMEOUT[1])
                continue
            timeout = again or self._timeout
            place = places.get((frame.type, frame.seq))
            if frame.type & RESPONSE == 0:
                self._events.take(frame)
                self._raise_if_ended(budget)
            elif place is None or place in found:
                self._take_late_response(frame)
            else:
                found[place] = frame
                self._greeting = frame if request is Request.HELLO else self._greeting
                window.answered(place)
                budget = budget if window.done else budget_of_one()
        return [found[place] for place in range(len(requests))]

    def take_events(self, until: Callable[[], bool], budget: Budget) -> None:
        """Handle events, and send nothing, until `until()` or the budget ends.

        Raises:
            LinkClosed: the runner has ended.
            ProtocolError: a frame violates the specification.
        """
        with suppress(TimeoutError):
            while not until():
                frame = self._next_frame(budget, None)
                if frame is None:
                    continue
                if frame.type & RESPONSE:
                    self._take_late_response(frame)
                else:
                    self._events.take(frame)
                    self._raise_if_ended(budget)

    def take_remaining_events(self) -> None:
        """Handle events that arrived after the last read.

        The runner may have ended, with a FAULT event, while the host was writing.
        """
        with suppress(LinkClosed, TimeoutError):
            self._receive(self._connection.read(Deadline.after(0.0)))
        while self._frames:
            frame = self._frames.popleft()
            if frame.type & RESPONSE == 0:
                self._events.take(frame)

    def log_stray_bytes(self) -> None:
        """Log bytes that are no frame, such as those of a C library's assertion or of a boot loader."""
        self._log(self._decoder.flush().decode(errors="replace") + "\n")

    def _log_text(self) -> None:
        """Log what a console on the same line has printed between frames."""
        for piece in self._decoder.take_stray():
            if is_text(piece):
                self._log(piece.decode())

    def _log(self, text: str) -> None:
        *lines, self._text = (self._text + text).split("\n")
        for line in map(printable_lines, lines):
            if line.strip():
                self._events.remember(line)

    def _take_late_response(self, frame: ProtocolFrame) -> None:
        greeting = self._greeting
        if greeting is not None and (frame.type, frame.seq) == (greeting.type, greeting.seq):
            if frame.payload != greeting.payload:
                ids = " and ".join(repr(protocol.build_id(one.payload)) for one in (greeting, frame))
                raise ProtocolError(
                    f"two firmwares answer, with the build ids {ids}",
                    hint="one board on a port, and one program on the board that uses it",
                )
        elif self._connection.lossless:  # where no request but HELLO is sent twice
            raise ProtocolError(f"an answer of type 0x{frame.type:02x} and seq {frame.seq}, which nothing asked for")
        if self._retransmitted:
            self._retransmitted = False
            self._timeout = min(2 * self._timeout, RETRANSMISSION_TIMEOUT[1])

    def _next_frame(self, budget: Budget, timeout: float | None) -> ProtocolFrame | None:
        """Return the next frame, None after `timeout` seconds of silence.

        Raises TimeoutError when the budget runs out.
        """
        quiet = None if timeout is None else Deadline.after(timeout)
        while not self._frames:
            if budget.expired:  # checked even if frames arrive: an endless loop sends PROGRESS for ever
                raise TimeoutError
            poll = budget.next_poll if quiet is None else min(budget.next_poll, quiet, key=lambda one: one.at)
            try:  # read even after the deadline: bytes may have arrived while this process was suspended
                self._receive(self._connection.read(poll))
            except TimeoutError:
                if quiet is not None and quiet.expired:
                    return None
        return self._frames.popleft()

    def _receive(self, data: bytes) -> None:
        for frame in self._decoder.feed(data):
            if frame.version != VERSION:
                raise ProtocolError(
                    f"a frame of version {frame.version} of the protocol; this harness speaks version {VERSION}",
                    hint="build it again and flash it; firmware of your own: after hil build --library FOLDER",
                )
            if len(frame.payload) > self.max_payload:
                raise ProtocolError(
                    f"a frame of type 0x{frame.type:02x} has {len(frame.payload)} bytes, at most {self.max_payload}"
                )
            self._frames.append(frame)
        self._log_text()

    def _raise_if_ended(self, budget: Budget) -> None:
        """Raise LinkClosed if a target without an exit status has reported its end, after which it waits for a reset.

        If the target ended after a fault and the FAULT event was lost, the runner is first asked to send the event
        again, at most FAULT_REPORT_ATTEMPTS times.
        """
        lossless = self._connection.lossless
        if self._events.fault is not None and not lossless:  # without a fault it may be about to end
            raise LinkClosed
        if self._events.ended_with is None:
            return
        if lossless:
            raise LinkClosed
        if self._events.ended_with != EXIT_FAULT or self._report_attempts == FAULT_REPORT_ATTEMPTS:
            raise LinkClosed
        self._report_attempts += 1  # the runner sends its FAULT event again at the end of any frame
        self._connection.write(b"\0", budget.next_poll)
