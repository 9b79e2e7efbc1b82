"""hil targets."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from cortex_m_hil import launchers
from cortex_m_hil.cli.app import app
from cortex_m_hil.cli.options import Json, Targets, targets_of
from cortex_m_hil.cli.output import print_table
from cortex_m_hil.errors import HarnessError
from cortex_m_hil.targets.model import Target
from cortex_m_hil.targets.resolve import resolve


@app.command("targets")
def targets(as_json: Json = False, targets_file: Targets = None) -> None:
    """List the targets, and what each of them runs as on this machine."""
    known = targets_of(targets_file)
    rows = [_describe(target, known) for target in known.values()]
    if as_json:
        print(json.dumps(rows, indent=2))
        return
    for row in rows:
        pools = row["pools"]
        row["pools"] = " ".join(f"{name} {size >> 10}K" for name, size in pools.items() if size)
        row["runs as"] = row.pop("runs_as") + (f" ({row['why']})" if row["why"] else "")
    shown = ("name", "cpu", "isa", "board", "launcher", "runs as", "pools")
    print_table(shown, [tuple(str(row[column]) for column in shown) for row in rows])


def _describe(target: Target, known: Mapping[str, Target]) -> dict[str, Any]:
    """`runs_as` is the target that is used here with its engine; "nothing" if it cannot run, and `why`."""
    runs_as, why = "nothing", ""
    try:
        resolved = resolve(target.name, known)
        why = resolved.why
        resolved.target.launcher.require()
        runs_as = f"{resolved.target.name} on {launchers.engine(resolved.target)}"
    except HarnessError as error:
        why = "; ".join(part for part in (why, error.message, error.hint) if part)
    return {
        "name": target.name,
        "cpu": target.cpu,
        "isa": target.isa.value,
        "board": target.board.name,
        "launcher": target.launcher.describe(),
        "runs_as": runs_as,
        "why": why,
        "pools": asdict(target.board.pools),
        "origin": target.origin,
    }
