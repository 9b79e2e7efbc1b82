"""Pages in Chromium that are watched: they ask for their own file only, and the console has no complaint."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from browser import Page


@contextmanager
def watched(page: Page, file: Path) -> Iterator[None]:
    """Check at the end of the block that only `file` was asked for, and that the console has no complaint."""
    del page.requests[:], page.problems[:]
    yield
    page.run("new Promise(done => setTimeout(done))")  # what it asked for and complained of so far has arrived
    assert (set(page.requests), page.problems) == ({file.as_uri()}, [])
