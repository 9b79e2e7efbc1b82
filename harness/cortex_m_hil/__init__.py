"""Hardware-in-the-loop tests for ExecuTorch programs on Arm Cortex-M.

This is a library first: the pytest plugin, the ``hil`` command and scripts call it. Its public API is `__all__`,
described in `hil docs api`. The API is imported when one of its names is first used, and torch when something is first
lowered.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cortex_m_hil.host.compiler_state.state import compiler_state as _compiler_state
from cortex_m_hil.host.version import __version__

if TYPE_CHECKING:
    from cortex_m_hil import errors
    from cortex_m_hil.api import (
        App,
        Checked,
        Comparison,
        Departure,
        Exported,
        Figures,
        Finding,
        Frame,
        HarnessError,
        HilWarning,
        HostTensor,
        InfraError,
        Io,
        Isa,
        Island,
        Launched,
        Layout,
        LintFinding,
        Localization,
        Lowering,
        OpenTarget,
        OperatorCost,
        Partition,
        Profile,
        ProfileChanges,
        ProfileRow,
        Program,
        Recording,
        References,
        Row,
        RowChange,
        RunResult,
        Streamed,
        Target,
        Tolerance,
        VerdictError,
        export,
        hil_cases,
        load_program,
        load_targets,
        lower,
        open,
    )

_compiler_state.install()  # before ExecuTorch is imported

__all__ = [
    "App",
    "Checked",
    "Comparison",
    "Departure",
    "Exported",
    "Figures",
    "Finding",
    "Frame",
    "HarnessError",
    "HilWarning",
    "HostTensor",
    "InfraError",
    "Io",
    "Isa",
    "Island",
    "Launched",
    "Layout",
    "LintFinding",
    "Localization",
    "Lowering",
    "OpenTarget",
    "OperatorCost",
    "Partition",
    "Profile",
    "ProfileChanges",
    "ProfileRow",
    "Program",
    "Recording",
    "References",
    "Row",
    "RowChange",
    "RunResult",
    "Streamed",
    "Target",
    "Tolerance",
    "VerdictError",
    "__version__",
    "errors",
    "export",
    "hil_cases",
    "load_program",
    "load_targets",
    "lower",
    "open",
]

if not TYPE_CHECKING:  # otherwise a type checker would accept any name

    def __getattr__(name: str) -> object:
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from cortex_m_hil import api

        return getattr(api, name)


def __dir__() -> list[str]:
    return [*globals(), *__all__]
