"""Coverage without what it costs: the tracer rests while ExecuTorch works, whose lines are not counted anyway."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

# In the other stages code of this package is called: the layout of planned memory, integers in the dialect.
_OTHERS: Final = ("export", "prepare_pt2e", "calibration", "convert_pt2e", "to_edge", "Cortex-M passes", "run")


@contextmanager
def untraced(stage: str) -> Iterator[None]:
    """An observer of stages (`cortex_m_hil.lowering.stages`)."""
    tracer = sys.gettrace()
    if tracer is None or not stage.startswith(_OTHERS):
        yield
        return
    sys.settrace(None)
    try:
        yield
    finally:
        sys.settrace(tracer)
