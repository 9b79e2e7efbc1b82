"""What these tests lower is lowered, whatever earlier runs have kept. Those of the cache switch it on."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from cortex_m_hil.host.compiler_state.state import compiler_state
from cortex_m_hil.lowering.disk_cache import disk
from trust import trust_again


@pytest.fixture(autouse=True)
def trusted_from_the_start() -> None:
    """Trust the compiler again where a test before this one changed it, which is noticed only when somebody asks."""
    if compiler_state.problem():
        trust_again()


@pytest.fixture(scope="module", autouse=True)
def lowered_anew() -> Iterator[None]:
    before, disk.enabled = disk.enabled, False
    yield
    disk.enabled = before
