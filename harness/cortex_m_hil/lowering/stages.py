"""Lets an observer follow the stages of a lowering, for instance to measure the time of each."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from typing import Final

from cortex_m_hil.host.spans import span

Observer = Callable[[str], AbstractContextManager[None]]
"""Returns, for the name of a stage, a context manager that is entered before the stage and left after it."""

_OBSERVER: Final[ContextVar[Observer]] = ContextVar("_OBSERVER", default=lambda _: nullcontext())


@contextmanager
def observed_by(observer: Observer) -> Iterator[None]:
    """Call `observer`, and no other, for the stages that run within the block."""
    token = _OBSERVER.set(observer)
    try:
        yield
    finally:
        _OBSERVER.reset(token)


@contextmanager
def seconds_by_stage() -> Iterator[Counter[str]]:
    """Measure the stages that run within the block: the seconds of each by name, in the order of their first runs."""
    seconds: Counter[str] = Counter()

    @contextmanager
    def clock(name: str) -> Iterator[None]:
        began = time.perf_counter()
        try:
            yield
        finally:
            seconds[name] += time.perf_counter() - began  # type: ignore[assignment]  # typeshed's Counter has ints

    with observed_by(clock):
        yield seconds


@contextmanager
def stage_of(name: str) -> Iterator[None]:
    """Run the block as a stage of that name."""
    with span("lowering", name), _OBSERVER.get()(name):
        yield
