"""What these tests lower is lowered, whatever earlier runs have kept. Those of the cache switch it on."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from cortex_m_hil.lowering.disk_cache import disk


@pytest.fixture(scope="module", autouse=True)
def lowered_anew() -> Iterator[None]:
    before, disk.enabled = disk.enabled, False
    yield
    disk.enabled = before
