"""Makes the harness trust the compiler again, after a test that changed it and undid the change."""

from __future__ import annotations

import sys

from cortex_m_hil.host.compiler_state.state import CompilerState, compiler_state


def trust_again() -> None:
    """Accept the compiler in memory as unchanged. Only a test can know that it has undone its changes."""
    fresh = CompilerState()
    fresh._callables.record(list(sys.modules))
    fresh._compiler.update()
    vars(compiler_state).update(vars(fresh))
