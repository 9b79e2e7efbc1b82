"""A limit of time and memory for code that must be quick with any input."""

from __future__ import annotations

import resource
import time
from collections.abc import Iterator
from contextlib import contextmanager

MOMENT = 10.0  # seconds of CPU time for work of one second, even on a slow machine
ROOM = 256 << 10  # KiB of memory for work that needs little


@contextmanager
def at_once() -> Iterator[None]:
    """Run the block, and check that it needed little time and memory."""
    began, before = time.process_time(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    yield
    assert time.process_time() - began < MOMENT
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < ROOM
