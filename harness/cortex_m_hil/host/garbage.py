"""Python's collector of cyclic garbage, which is of no use while modules are imported."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def nothing_to_collect() -> Iterator[None]:
    """Switch the collector off within the block, which imports; objects there at its end are never looked at again.

    torch and ExecuTorch import a million objects that stay. Going through them was a fifth of the time of their import,
    and a tenth of a lowering's. What is garbage already is collected before.
    """
    gc.collect()
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        if enabled:
            gc.enable()
