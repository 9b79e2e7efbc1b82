"""What must not take long, nor much memory, whatever it is given."""

from __future__ import annotations

import resource
import time
from collections.abc import Iterator
from contextlib import contextmanager

MOMENT = 10.0  # seconds of CPU time for what takes one, on a slow machine too
ROOM = 256 << 10  # KiB of memory for what takes a few


@contextmanager
def at_once() -> Iterator[None]:
    """In little time and memory."""
    began, before = time.process_time(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    yield
    assert time.process_time() - began < MOMENT
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < ROOM
