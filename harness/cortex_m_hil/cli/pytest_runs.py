"""What commands need that run pytest in a process of its own."""

from __future__ import annotations

from importlib.metadata import entry_points


def plugin_options(own: str) -> list[str]:
    """Load the module `own` as a plugin, and where the package is not installed its pytest plugin as well."""
    installed = any(point.value == "cortex_m_hil.pytest_plugin.plugin" for point in entry_points(group="pytest11"))
    names = [own] if installed else ["cortex_m_hil.pytest_plugin.plugin", own]
    return [word for name in names for word in ("-p", name)]
