"""Lowering of torch modules to Cortex-M programs. Importing this is cheap; torch is loaded at the first use."""

from harness.lowering.capability import quiet, tools
from harness.lowering.pipeline import CPU_OF, Inputs, Layout, clear_cache, lower, seed
from harness.lowering.scratch import required_scratch

__all__ = ["CPU_OF", "Inputs", "Layout", "clear_cache", "lower", "quiet", "required_scratch", "seed", "tools"]
