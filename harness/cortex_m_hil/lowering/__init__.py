"""Lowering of torch modules to Cortex-M programs; importing this package is cheap, torch is loaded at the first use."""

from cortex_m_hil.lowering.installed_executorch import executorch_api, quiet
from cortex_m_hil.lowering.module_export import Exported
from cortex_m_hil.lowering.options import DEFAULT, Inputs, Io, Layout, LoweringOptions
from cortex_m_hil.lowering.pipeline import CPU_OF, clear_cache, export, exported_once, lower, on_inputs
from cortex_m_hil.lowering.redzone_planning import RED_ZONE
from cortex_m_hil.lowering.scratch import required_scratch

__all__ = [
    "CPU_OF",
    "DEFAULT",
    "RED_ZONE",
    "Exported",
    "Inputs",
    "Io",
    "Layout",
    "LoweringOptions",
    "clear_cache",
    "executorch_api",
    "export",
    "exported_once",
    "lower",
    "on_inputs",
    "quiet",
    "required_scratch",
]
