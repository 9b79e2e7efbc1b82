"""A pause of the coverage tracer while ExecuTorch works, whose lines are not counted: tracing it costs time."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

# Stages that call no code of this package. The others do: for the layout of planned memory, and the dialect.
_OTHERS: Final = ("export", "prepare_pt2e", "calibration", "convert_pt2e", "to_edge", "Cortex-M passes", "run")


@contextmanager
def untraced(stage: str) -> Iterator[None]:
    """Observe stages (`cortex_m_hil.lowering.stages`), and pause the tracer in those of ExecuTorch."""
    tracer = sys.gettrace()
    if tracer is None or not stage.startswith(_OTHERS):
        yield
        return
    sys.settrace(None)
    try:
        yield
    finally:
        sys.settrace(tracer)
