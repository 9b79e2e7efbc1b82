"""What several test modules use: a compiler that is trusted."""

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
    """Tests that change the compiler, or torch, take that back; the next ones expect a cache."""
    yield
    if compiler_state._problem:
        trust_again()
