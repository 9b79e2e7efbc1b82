"""The command `hil board virtual`."""

from __future__ import annotations

from typing import Annotated, Final

import typer

from cortex_m_hil.boards.virtual import BAUD
from cortex_m_hil.cli.commands.board.board_group import board

_ACTION_LAST: Final = {"allow_interspersed_args": False}  # options behind BOARD belong to the action
_ACTIONS: Final = """\b
Actions:
  flash ELF             write an ELF to the board, and start it
  reset                 reset the board
  power on|off|cycle    switch the board's power
  run COMMAND...        run the board while the command runs
  fault [NAME=NUMBER]...  inject faults; faults not named are switched off:
    corrupt, drop, duplicate: share of bytes that this happens to
    delay: seconds by which bytes are late
    vanish: seconds for which the port is gone
    hang=1: the core hangs until a reset
    reset_after: bytes from the host after which the board resets
    power_loss: number of the next flashes during which power is lost"""


@board.command("virtual", json=False, epilog=_ACTIONS, context_settings=_ACTION_LAST)
def virtual_board(
    context: typer.Context,
    machine: Annotated[
        str, typer.Argument(metavar="BOARD", help="Kind of the board: f405, pico or native", show_default=False)
    ],
    action: Annotated[
        list[str] | None, typer.Argument(metavar="[ACTION]", help="An action of the list below", show_default=False)
    ] = None,
    name: Annotated[
        str, typer.Option("--name", metavar="NAME", help="Name of the board, if there are several of a kind")
    ] = "",
    baud: Annotated[
        int, typer.Option("--baud", metavar="N", min=300, max=12_000_000, help="Baud rate of its UART")
    ] = BAUD,
    seed: Annotated[int, typer.Option("--seed", metavar="SEED", help="Seed of the injected faults")] = 0,
) -> None:
    """Start and control simulated boards.

    A board is a simulator behind a serial port, vboard:NAME in targets.yaml. Without an action it runs until it is
    interrupted.
    """
    from cortex_m_hil.boards.virtual import vboard

    if action in (["-h"], ["--help"]):
        print(context.get_help())
        return
    raise typer.Exit(vboard.act(machine, action or [], name or machine, baud, seed))
