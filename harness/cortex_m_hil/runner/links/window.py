"""Which of many requests are under way on a link that loses some: selective repeat."""

from __future__ import annotations

from collections import deque


class Window:
    """Requests 0 to `count` - 1, at most `size` of them sent and not answered.

    A runner answers in the order in which it receives, and a serial line keeps that order. So an answer says of
    everything that was sent earlier and is still unanswered that it, or its answer, is lost: no timer is needed but for
    the last.
    """

    def __init__(self, count: int, size: int) -> None:
        self._waiting = deque(range(count))
        self._flying: dict[int, None] = {}  # in the order of sending
        self._size = size

    @property
    def done(self) -> bool:
        return not self._waiting and not self._flying

    def launch(self) -> list[int]:
        """What to send now."""
        room = min(self._size - len(self._flying), len(self._waiting))
        chosen = [self._waiting.popleft() for _ in range(room)]
        self._flying.update(dict.fromkeys(chosen))
        return chosen

    def answered(self, number: int) -> None:
        """Takes one off; what was sent before it waits again. Answers to what is not under way change nothing."""
        if number not in self._flying:
            return
        lost = []
        for other in list(self._flying):
            del self._flying[other]
            if other == number:
                break
            lost.append(other)
        self._waiting.extendleft(reversed(lost))

    def all_lost(self) -> None:
        """Nothing came for so long that everything under way waits again."""
        self._waiting.extendleft(reversed(self._flying))
        self._flying.clear()
