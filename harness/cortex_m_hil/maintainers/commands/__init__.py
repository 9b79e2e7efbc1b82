"""The commands `hil dev`."""

from __future__ import annotations

from cortex_m_hil.cli.app import app
from cortex_m_hil.maintainers.commands import fuzz, fvp_shim, mutate, upstream
from cortex_m_hil.maintainers.commands.dev_group import dev

__all__ = ["fuzz", "fvp_shim", "mutate", "upstream"]

app.add_typer(dev, name="dev")


@dev.callback()
def _dev() -> None:
    """Test kernels, compilers and this harness itself."""
