"""The commands of `hil board`."""

from __future__ import annotations

from cortex_m_hil.cli.app import app
from cortex_m_hil.cli.commands.board import shared_boards, virtual
from cortex_m_hil.cli.commands.board.board_group import board

__all__ = ["shared_boards", "virtual"]

app.add_typer(board, name="board")


@board.callback()
def _board() -> None:
    """Show and reserve boards, and start simulated ones."""
