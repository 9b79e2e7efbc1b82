"""Decides which requests to send, and send again, on a link that loses some: selective repeat."""

from __future__ import annotations

from collections import deque


class Window:
    """A window over requests 0 to `count` - 1, at most `size` of which are in flight: sent and not answered.

    A runner answers in the order in which it receives, and a serial line keeps that order. So when an answer arrives,
    each earlier request without an answer, or its answer, was lost: only the last request needs a timer.
    """

    def __init__(self, count: int, size: int) -> None:
        self._waiting = deque(range(count))
        self._in_flight: dict[int, None] = {}  # in the order of sending
        self._size = size

    @property
    def done(self) -> bool:
        return not self._waiting and not self._in_flight

    def launch(self) -> list[int]:
        """Return the requests to send now, and count them as in flight."""
        room = min(self._size - len(self._in_flight), len(self._waiting))
        chosen = [self._waiting.popleft() for _ in range(room)]
        self._in_flight.update(dict.fromkeys(chosen))
        return chosen

    def answered(self, number: int) -> None:
        """Remove an answered request; requests in flight that were sent before it have to be sent again.

        An answer to a request that is not in flight changes nothing.
        """
        if number not in self._in_flight:
            return
        lost = []
        for other in list(self._in_flight):
            del self._in_flight[other]
            if other == number:
                break
            lost.append(other)
        self._waiting.extendleft(reversed(lost))

    def all_lost(self) -> None:
        """Mark all requests in flight to be sent again, after nothing has arrived for too long."""
        self._waiting.extendleft(reversed(self._in_flight))
        self._in_flight.clear()
