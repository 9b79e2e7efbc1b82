"""Progress of a command's work on standard error, and what is printed if the work is interrupted."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, TypeVar

from rich.console import Console
from rich.status import Status

from cortex_m_hil.host.deadline import Deadline

if TYPE_CHECKING:
    from cortex_m_hil.targets.resolve import Resolved

_Step = TypeVar("_Step")
_Result = TypeVar("_Result")


@contextlib.contextmanager
def going_on(said: str) -> Iterator[None]:
    """Print `said`, which tells how to resume, if the block is interrupted."""
    try:
        yield
    except KeyboardInterrupt:
        raise KeyboardInterrupt(said) from None


def status(text: str = "") -> Status:
    """Return a context in which a terminal shows a status line about the current work on standard error."""
    return Console(stderr=True, markup=False).status(text)


def runner_of(resolved: Resolved) -> str:
    """Return the text of a status line while the runner of a target is looked for, or built."""
    return f"{resolved.display_name}: its runner, which is built where the cache has none"


def with_status(
    steps: Sequence[_Step], name: Callable[[_Step], str], work: Callable[[_Step], _Result]
) -> Iterator[_Result]:
    """Yield the result of `work` for each step. During the work on a step, a terminal shows the step's name.

    Args:
        steps: the arguments of `work`.
        name: returns the name of a step.
        work: does a step.
    """
    for number, step in enumerate(steps, 1):
        with status(f"{number} of {len(steps)}: {name(step)}"):
            result = work(step)
        yield result


class Progress:
    """A progress display on standard error: one line that a terminal refreshes, elsewhere a line now and then.

    A text whose first word differs from the last text's is shown at once, if the work has a name.
    """

    def __init__(self, name: str = "", seconds: float = 10.0) -> None:
        """Show `name` before each text.

        Args:
            name: the name of the work, such as the target that is built; "": no name.
            seconds: without a terminal, the time between two lines that begin with the same word.
        """
        self._name, self._seconds = f"{name}: " if name else "", seconds
        self._console = Console(stderr=True, markup=False)
        self._status = self._console.status("")
        self._word, self._next = "", Deadline.after(0 if name else seconds)

    def __enter__(self) -> Progress:
        self._status.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._status.stop()

    def __call__(self, text: str) -> None:
        word = text.partition(" ")[0]
        if self._console.is_terminal:
            self._status.update(f"{self._name}{text}")
        elif self._next.expired or (self._name and word != self._word):
            self._next = Deadline.after(self._seconds)
            print(f"{self._name}{text}", file=sys.stderr, flush=True)
        self._word = word
