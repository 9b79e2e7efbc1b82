"""The commands of `hil inspect`."""

from __future__ import annotations

from cortex_m_hil.cli.app import app
from cortex_m_hil.cli.commands.inspect import fit, partition, size
from cortex_m_hil.cli.commands.inspect.inspect_group import inspect

__all__ = ["fit", "partition", "size"]

app.add_typer(inspect, name="inspect")


@inspect.callback()
def _inspect() -> None:
    """Show a program's operators, sizes and memory needs."""
