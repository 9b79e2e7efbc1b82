"""Lowering of torch modules to Cortex-M programs. Importing this is cheap; torch is loaded at the first use."""

from harness.lowering.capability import quiet, tools
from harness.lowering.live import Inputs, Layout
from harness.lowering.pipeline import CPU_OF, clear_cache, lower
from harness.lowering.scratch import required_scratch
from harness.lowering.spacing import RED_ZONE

__all__ = [
    "CPU_OF",
    "RED_ZONE",
    "Inputs",
    "Layout",
    "clear_cache",
    "lower",
    "quiet",
    "required_scratch",
    "tools",
]
