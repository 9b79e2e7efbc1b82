"""The compiler after a test that changed it, and took back what it changed."""

from __future__ import annotations

import sys

from cortex_m_hil.host.compiler_state.state import CompilerState, compiler_state


def trust_again() -> None:
    """As it is now it counts as that of its files. A test knows what it took back; outside of tests nobody does."""
    fresh = CompilerState()
    fresh._callables.record(list(sys.modules))
    fresh._compiler.update()
    vars(compiler_state).update(vars(fresh))
