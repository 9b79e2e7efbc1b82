"""The seconds that each stage of the lowering takes, for who wants to know."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final

_OBSERVED: Final[ContextVar[Counter[str] | None]] = ContextVar("_OBSERVED", default=None)


@contextmanager
def observed() -> Iterator[Counter[str]]:
    """The seconds of the stages that run within the block, by name, in the order in which they first ran."""
    seconds: Counter[str] = Counter()
    token = _OBSERVED.set(seconds)
    try:
        yield seconds
    finally:
        _OBSERVED.reset(token)


@contextmanager
def timed(name: str) -> Iterator[None]:
    """What the block does is a stage of that name."""
    seconds = _OBSERVED.get()
    began = time.perf_counter()
    try:
        yield
    finally:
        if seconds is not None:
            seconds[name] += time.perf_counter() - began  # type: ignore[assignment]  # of ints, says typeshed
