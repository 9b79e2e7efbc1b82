"""The command `hil inspect fit`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Annotated

import typer

from cortex_m_hil.cli.command_output import Answer, json_fields
from cortex_m_hil.cli.commands.inspect.inspect_group import inspect
from cortex_m_hil.cli.options import ModelOptions, SeveralTargets, TargetOptions
from cortex_m_hil.cli.program_files import ModelArgument, programs_of
from cortex_m_hil.cli.progress import status
from cortex_m_hil.cli.run_result_output import RAN_FIELDS, fields_of_target, label_of
from cortex_m_hil.cli.tables import table
from cortex_m_hil.diagnose.bank_orders import BankOrder, bank_orders
from cortex_m_hil.diagnose.memory_fit import Fit, Fitting, Region
from cortex_m_hil.errors import ConfigError
from cortex_m_hil.program.bpte_file import SUFFIXES
from cortex_m_hil.program.program import Program
from cortex_m_hil.targets.memory import Memory
from cortex_m_hil.targets.resolve import Resolved
from cortex_m_hil.targets.target import Target


@inspect.command(
    "fit",
    log=True,
    epilog=json_fields(
        {
            **RAN_FIELDS,
            "program": "the file, or the model's name",
            "method": "the method that ran",
            "inputs": "where the inputs are from, as text",
            "needs": (
                "a list of region (program, planned or bank NAME, method, stack if it is measured), size (the least "
                "bytes that the program runs in), step (bytes), reported_peak (bytes), failure_one_step_below (the "
                "error in size − step bytes; empty if the region cannot be smaller)"
            ),
            "orders": (
                "with --banks, where needs, temp and compiler are empty: a list of banks (in order), arenas "
                "(region, address, nbytes of each), ticks, refused (why it does not fit; else empty)"
            ),
            "ticks_show_memory_speed": "with --banks, whether ticks show the speed of memory; a simulator's do not",
            "temp": "the most bytes of the method pool that were allocated and freed again",
            "runs": "how often the program was run",
            "compiler": "what the runner was built with",
        }
    ),
)
def fit(
    model: ModelArgument,
    target: SeveralTargets,
    on: TargetOptions,
    given: ModelOptions,
    banks: Annotated[
        bool,
        typer.Option(
            "--banks",
            help="Try all orders of the memory banks (hil docs memory): where does the model fit, at what cost?",
        ),
    ] = False,
) -> None:
    """Find the least memory that a program runs in.

    Each figure is proven: the program runs in these sizes, and fails for lack of memory if any of them is one step
    smaller. Inputs of a .pte file are those of --input, or those that pytest's --keep-programs left beside it, or are
    generated, the same every time.
    """
    choice = on.choose(target)
    program_for = programs_of(model, given)

    def ask(resolved: Resolved) -> Answer:
        if banks:
            return _orders(resolved, model, program_for)
        program, source = program_for(resolved.target)
        said = f"{resolved.display_name}: looking for the least memory; a runner is built for each size that is tried"
        with status(said), Fitting(resolved, multiplier=on.timeout_multiplier) as fitting:
            found = fitting.fit(program)
        fields = {**fields_of_target(resolved, found.ran), **_fields(found, model), "method": program.file.method}
        fields |= {"inputs": source}
        return Answer(_text(found, resolved, source), fields)

    choice.answer_each(ask)


def _orders(resolved: Resolved, model: str, program_for: Callable[[Target], tuple[Program, str]]) -> Answer:
    """Return the orders of the banks, the fastest first if the target can measure the speed."""
    if model.endswith(SUFFIXES):
        problem = f"{model}: its tensors are planned already"
        raise ConfigError(problem, hint="--banks plans package.module:function for each order of the banks")
    planned = {}

    def plan(target: Target) -> Program:
        program, planned["inputs"] = program_for(target)
        planned["method"] = program.file.method
        return program

    found = bank_orders(resolved, plan)
    names = [one.region for one in resolved.target.board.memory.banks]
    rows = [
        (", ".join(one.banks), *(_arena(one, name) for name in names), f"{one.ticks or ''}", one.refused or "fits")
        for one in found.orders
    ]
    clock = found.ran.clock
    said = "the first row is the cheapest that works" if found.ticks_show_memory_speed else (
        f"{found.ran.engine} cannot tell the orders apart: its {clock.value} are {clock.meaning}, wherever memory lies"
    )  # fmt: skip
    lines = [label_of(resolved), table(("banks in order", *names, clock.value, ""), rows), said]
    fields = {"program": model, "needs": (), "temp": 0, "runs": len(rows), "compiler": "", "orders": found.orders}
    fields |= {**planned, "ticks_show_memory_speed": found.ticks_show_memory_speed}
    return Answer("\n".join(lines), {**fields_of_target(resolved, found.ran), **fields})


def _arena(order: BankOrder, region: str) -> str:
    return next((f"{arena.nbytes}" for arena in order.arenas if arena.region == region), "")


def _text(found: Fit, resolved: Resolved, source: str) -> str:
    """Return a text with the sizes, their proof, and lines for a board's files."""
    numbers = [(f"{need.size}", f"{need.step}", f"{need.reported_peak}") for need in found.needs]
    proofs = [need.failure_one_step_below.partition(":")[0] or "cannot be smaller" for need in found.needs]
    rows = [(need.region, *row, proof) for need, row, proof in zip(found.needs, numbers, proofs, strict=True)]
    stack = found.size(Region.STACK)
    lines = [
        label_of(resolved),
        table(("region", "bytes", "step", "peak", "one step below"), rows),
        "",
        *_memory_lines(found, resolved.target.board.memory),
        *([] if stack else ["stack        is not measured here"]),
        f"temp         {found.temp} bytes{_place_of_temp(resolved)} are given back after each instruction",
        f"inputs       {source}",
        f"depends on   the inputs' values; {found.ran.runtime} {found.ran.runtime_version}; {found.compiler}",
    ]
    return "\n".join(lines)


def _place_of_temp(resolved: Resolved) -> str:
    return " of the method pool" if resolved.target.board.memory.temp is None else ""


def _memory_lines(found: Fit, memory: Memory) -> Iterator[str]:
    """Yield the lines for `memory:` in a board's file, or in a target's entry."""
    yield "memory:"
    yield from (f"  {line}" for line in found.memory(memory).sizes())
    yield ""


def _fields(found: Fit, model: str) -> dict[str, object]:
    sizes = {"needs": found.needs, "temp": found.temp, "runs": found.runs, "compiler": found.compiler}
    return {"program": model, **sizes, "orders": (), "ticks_show_memory_speed": False}
