"""Helpers for tests of boards: processes that behave like boards, like tools, and like other users' test runs."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from cortex_m_hil.boards.virtual import vboard
from cortex_m_hil.runner.links.uart import virtual_directory
from cortex_m_hil.targets.board_tool_commands import parse_procedure
from cortex_m_hil.targets.resolve import Resolved

Start = Callable[..., "subprocess.Popen[str]"]
# Begins a script that leases boards. `leased` then has, for each lease, its ticket and when it was had: before the
# ticket is given up, for which those behind it wait, so that a queue in order gives rising times however busy the host.
LEASED = """
import time
from cortex_m_hil.boards.board_queue import Ticket

leased = []
give_up = Ticket.__exit__

def has_lease(ticket, *about):
    leased.append((int(ticket._path.name), time.monotonic()))
    give_up(ticket, *about)

Ticket.__exit__ = has_lease
"""
# A script that works like `hil board virtual`, but does not take seconds to import the harness.
_ORDER = """
import json, os, socket, sys
def tell(order):
    connection = socket.socket(socket.AF_UNIX)
    connection.connect(os.readlink(sys.argv[1]))
    stream = connection.makefile("rwb")
    stream.write(json.dumps(order).encode() + b"\\n")
    stream.flush()
    answer = json.loads(stream.readline())
    if "error" in answer:
        sys.exit(answer["error"])
if sys.argv[2] == "flash":
    tell({"do": "flash", "elf": sys.argv[3]})
elif sys.argv[2] == "reset":
    tell({"do": "reset"})
else:
    tell({"do": "power", "state": "off"})
    tell({"do": "power", "state": "on"})
"""


def need_rp2040js() -> None:
    """Skip a test of the virtual Pico where `make install` could not install its simulator, and said so."""
    if not Path(sys.prefix, "node_modules", "rp2040js").is_dir():
        pytest.skip("rp2040js is not installed")


def tools(name: str) -> dict[str, list[str]]:
    """Return the commands that flash, reset and power the virtual board `name`, which may be a placeholder."""
    use = ["{python}", "-S", "-c", _ORDER, f"{virtual_directory(name)}/control"]
    return {"flash": [*use, "flash", "{elf}"], "reset": [*use, "reset"], "power": [*use, "power"]}


def on_virtual_board(native: Resolved, name: str, baud: int) -> Resolved:
    """Return a target of this machine as one on the virtual board `name` of the kind `native`."""
    quick = {kind: parse_procedure(words, kind, "test") for kind, words in tools(name).items()}
    launcher = dataclasses.replace(vboard.launcher("native", name, baud), flash=quick["flash"], reset=quick["reset"])
    target = dataclasses.replace(native.target, launcher=launcher)
    return Resolved(target, target, "builtin")
