"""The command `hil targets`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cortex_m_hil.cli.app import app
from cortex_m_hil.cli.command_output import CALL, Answer, json_fields, say, write_answer
from cortex_m_hil.cli.options import Targets
from cortex_m_hil.cli.tables import table
from cortex_m_hil.errors import HarnessError
from cortex_m_hil.runner import launchers
from cortex_m_hil.runner.compiler import compiler
from cortex_m_hil.targets.load import load_user_targets
from cortex_m_hil.targets.memory import size_text
from cortex_m_hil.targets.resolve import resolve
from cortex_m_hil.targets.target import Target


@app.command(
    "targets",
    epilog=json_fields(
        {
            "target": "the target's name",
            "cpu": "its CPU",
            "isa": "its ISA class",
            "board": "its board",
            "launcher": "what starts it: a simulator, or the board's port",
            "origin": "the file and line of its entry: cortex_m_hil/targets.yaml is this package's own",
            "runnable": (
                "whether all that it needs is installed or connected: simulator, compiler, a port of the board. A port "
                "of another machine is not asked"
            ),
            "runs_as": "the target that runs (itself, or its fallback); empty if nothing can run",
            "engine": "the simulator or board that executes it; empty if nothing can run",
            "reason": "why it is not runnable, or why another target is used instead; else empty",
            "runtime": "what --runtime auto is there",
            "runtime_reason": "why --runtime auto is not executorch there; else empty",
            "runtime_misfit": "whether an ExecuTorch is installed that does not fit",
            "hardware": "whether it is a board rather than a simulator",
            "memory": (
                "bytes for a program, for planned tensors by each bank's region, and for the method; temp: for what "
                "kernels give back, 0 without memory of its own; shared: those that program and first bank share, or 0"
            ),
        }
    ),
)
def targets(targets_file: Targets = None) -> None:
    """List the targets. Each is shown with the target that is used instead if its simulator is not installed."""
    known = load_user_targets(targets_file)
    rows = [_describe(target, known) for target in known.values()]
    if CALL.get().as_json:
        for row in rows:
            write_answer(Answer("", row))
        return
    shown = ("target", "cpu", "isa", "board", "launcher", "runs as", "runtime", "memory")
    say(table(("name", *shown[1:]), [tuple(str(_for_people(row)[column]) for column in shown) for row in rows]))


def _for_people(row: Mapping[str, Any]) -> dict[str, Any]:
    runs_as = f"{row['runs_as']} on {row['engine']}" if row["runnable"] else "nothing"
    sizes = {**row["memory"], **row["memory"]["banks"]}
    memory = " ".join(f"{name} {size_text(size)}" for name, size in sizes.items() if name != "banks" and size)
    runtime = row["runtime"] + (f" ({row['runtime_reason']})" if row["runtime_misfit"] else "")
    runs_as += f" ({row['reason']})" if row["reason"] else ""
    return {**row, "runs as": runs_as, "runtime": runtime, "memory": memory}


def _describe(target: Target, known: Mapping[str, Target]) -> dict[str, Any]:
    """Return the fields of a target; `runs_as` and `engine` are "" where the target that would run is not known."""
    runs_as, engine, reasons, runnable = target, "", [], True
    runtime, runtime_reason, misfit = "", "", False
    try:
        resolved = resolve(target.name, known)
        runs_as, reasons = resolved.target, [resolved.fallback_reason]
        runtime, runtime_reason, misfit = resolved.runtime, resolved.runtime_reason, resolved.has_misfit
        engine = launchers.engine(runs_as)
        compiler(runs_as)
        launchers.require(runs_as)
    except HarnessError as error:
        runnable = False
        reasons += [error.message, error.hint]
    memory = target.board.memory
    return {
        "target": target.name,
        "cpu": target.cpu,
        "isa": target.isa.value,
        "board": target.board.name,
        "launcher": target.launcher.describe(),
        "runnable": runnable,
        "runs_as": runs_as.name if engine else "",
        "engine": engine,
        "reason": "; ".join(filter(None, reasons)),
        "runtime": runtime,
        "runtime_reason": runtime_reason,
        "runtime_misfit": misfit,
        "hardware": target.launcher.is_hardware,
        "memory": {
            "program": memory.program.size,
            "banks": {bank.region: bank.size for bank in memory.banks},
            "method": memory.method.size,
            "temp": memory.temp.size if memory.temp is not None else 0,
            "shared": memory.shared,
        },
        "origin": target.origin,
    }
