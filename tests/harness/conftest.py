"""A fixture of several test modules: the compiler in memory, trusted again."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from cortex_m_hil.host.compiler_state.state import compiler_state
from cortex_m_hil.lowering.stages import observed_by
from tracing import untraced
from trust import trust_again


@pytest.fixture(scope="module", autouse=True)
def coverage_of_own_code() -> Iterator[None]:
    with observed_by(untraced):
        yield


@pytest.fixture(autouse=True)
def trusted_compiler() -> Iterator[None]:
    """Trust the compiler after a test that changed it, or torch, and took that back: the next tests expect a cache."""
    yield
    if compiler_state._problem:
        trust_again()
