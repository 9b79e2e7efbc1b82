"""Fixtures of all test modules: the compiler in memory, trusted again, and coverage of the harness alone."""

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


@pytest.fixture(scope="module", autouse=True)
def trusted_compiler_of_a_module() -> None:
    """Trust the compiler where tests of another module changed it unnoticed: their order depends on the worker."""
    if compiler_state.problem():
        trust_again()


@pytest.fixture(autouse=True)
def trusted_compiler() -> Iterator[None]:
    """Trust the compiler after a test that changed it, or torch, and took that back: the next tests expect a cache."""
    yield
    if compiler_state._problem:
        trust_again()
