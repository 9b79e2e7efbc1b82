"""The commands `hil board status`, `hold`, `release` and `clear`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cortex_m_hil.boards import leases
from cortex_m_hil.cli.command_output import Answer, json_fields, write_answer
from cortex_m_hil.cli.commands.board.board_group import board
from cortex_m_hil.cli.options import DAY, Targets, within
from cortex_m_hil.cli.tables import table
from cortex_m_hil.errors import ConfigError, did_you_mean
from cortex_m_hil.host import timeouts

BoardPort = Annotated[
    str, typer.Argument(metavar="BOARD", help="A serial port, or a target's name", show_default=False)
]


@board.command(
    "status",
    epilog=json_fields(
        {
            "boards": "a list of board (its port), held, holder, health",
        }
    ),
)
def board_status() -> None:
    """List the boards that were used on this machine. Each is free, held, or wedged, with the reason."""
    statuses = [leases.inspect(name) for name in leases.known_boards()]
    rows = [(status.board, status.describe(), str(status.health.failures)) for status in statuses]
    write_answer(Answer(table(("board", "state", "failures"), rows), {"boards": statuses}))


@board.command(
    "hold",
    epilog=json_fields(
        {
            "board": "the port",
            "holder": "who holds it now",
        }
    ),
)
def board_hold(
    name: BoardPort,
    minutes: Annotated[
        float,
        typer.Option(
            "--minutes",
            "-m",
            metavar="MINUTES",
            callback=within(0.01, 365 * 24 * 60),
            help="How long to hold it, in minutes",
        ),
    ] = 60.0,
    reason: Annotated[
        str, typer.Option("--reason", "-r", metavar="TEXT", help="The reason, which others are shown")
    ] = "",
    wait: Annotated[
        float, typer.Option("--wait", metavar="SECONDS", callback=within(0, DAY), help="Seconds to wait for the board")
    ] = timeouts.BOARD_HOLD_WAIT,
    targets_file: Targets = None,
) -> None:
    """Reserve a board for a person; tests do not get it. It stays reserved after this command."""
    port = _port(name, targets_file)
    holder = leases.hold(port, seconds=60.0 * minutes, reason=reason or "by hand", wait=wait)
    text = f"{name} is yours for {minutes:g} minutes; hil board release {name} ends it (pid {holder.pid})"
    write_answer(Answer(text, {"board": port, "holder": holder}))


@board.command(
    "release",
    epilog=json_fields(
        {
            "board": "the port",
            "holder": "who held it",
        }
    ),
)
def board_release(name: BoardPort, targets_file: Targets = None) -> None:
    """Return a held board to the tests."""
    port = _port(name, targets_file)
    holder = leases.release_hold(port)
    write_answer(Answer(f"{name} was held by {holder.describe()}", {"board": port, "holder": holder}))


@board.command(
    "clear",
    epilog=json_fields(
        {
            "board": "the port",
        }
    ),
)
def board_clear(name: BoardPort, targets_file: Targets = None) -> None:
    """Clear a wedged board (one that no recovery step mended). Tests use it again, and its failures are forgotten."""
    port = _port(name, targets_file)
    leases.clear(port)
    write_answer(Answer(f"{name} is in use again", {"board": port}))


def _port(name: str, targets_file: Path | None) -> str:
    """Return the port of a target; a port is returned unchanged.

    Raises:
        ConfigError: `name` is neither, or the target has no board or several.
    """
    from cortex_m_hil.targets.load import load_user_targets
    from cortex_m_hil.targets.target import HardwareLauncher

    targets = load_user_targets(targets_file)
    target = targets.get(name)
    if target is None:
        if set(name).isdisjoint("/:") and name not in leases.known_boards():
            boards = [one.name for one in targets.values() if isinstance(one.launcher, HardwareLauncher)]
            raise ConfigError(f"unknown board {name!r}", hint=f"{did_you_mean(name, boards)}; or a port: /dev/ttyACM0")
        return name
    if not isinstance(target.launcher, HardwareLauncher):
        raise ConfigError(f"{name} is no board", hint="hil targets; hil board status")
    if len(target.launcher.ports) > 1:
        ports = ", ".join(port.url for port in target.launcher.ports)
        raise ConfigError(f"{name} has several boards", hint=f"name one of them: {ports}")
    return target.launcher.port
