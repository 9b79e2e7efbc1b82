"""The command `hil board virtual`."""

from __future__ import annotations

from typing import Annotated

import typer

from cortex_m_hil.cli.commands.board.group import board

_AS_THEY_ARE = {"ignore_unknown_options": True, "allow_interspersed_args": False, "help_option_names": []}


@board.command("virtual", json=False, context_settings=_AS_THEY_ARE)
def virtual_board(arguments: Annotated[list[str] | None, typer.Argument(metavar="BOARD [ACTION]…")] = None) -> None:
    """Start and control simulated boards. See 'hil board virtual --help'."""
    from cortex_m_hil.boards.virtual import vboard

    raise typer.Exit(vboard.main(arguments or []))
