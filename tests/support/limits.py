"""A limit of time and memory for what must be quick, whatever it is given."""

from __future__ import annotations

import resource
import time
from collections.abc import Iterator
from contextlib import contextmanager

MOMENT = 10.0  # seconds of CPU time for work of one second, on a slow machine too
ROOM = 256 << 10  # KiB of memory for work that takes a few


@contextmanager
def at_once() -> Iterator[None]:
    """Run the block, and check that it took little time and memory."""
    began, before = time.process_time(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    yield
    assert time.process_time() - began < MOMENT
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < ROOM
