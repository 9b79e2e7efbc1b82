"""The command `hil inspect partition`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any

import typer

from cortex_m_hil import flow
from cortex_m_hil.cli.command_output import Answer, end, json_fields, log_of_errors
from cortex_m_hil.cli.commands.inspect.inspect_group import inspect
from cortex_m_hil.cli.options import ProgramOptions, Pte, TimedOptions
from cortex_m_hil.cli.program_files import find_inputs
from cortex_m_hil.cli.progress import runner_of, status
from cortex_m_hil.cli.run_result_output import fields_of_target, label_of
from cortex_m_hil.cli.tables import table
from cortex_m_hil.diagnose.profile_measurement import COSTS, operator_costs
from cortex_m_hil.errors import ConfigError, PortNotFound
from cortex_m_hil.errors.text import percent
from cortex_m_hil.program.partition import Island, Partition, PartitionKind, StepGroup, planned_in_int8
from cortex_m_hil.targets.target import Clock

_Rows = list[tuple[str, str, StepGroup]]


@inspect.command(
    "partition",
    log=True,
    epilog=json_fields(
        {
            "program": "the file",
            "method": "the method that is shown",
            "ran": (
                "null if nothing was counted; else target, runs_as, reason, shim, runtime, executes, engine, "
                "runtime_version, as of hil run"
            ),
            "inputs": "where the program's inputs are from, as text; null if nothing was counted",
            "not_counted": "why a board did not count, such as a missing port; else empty",
            "cortex_m_macs": (
                "the share of MACs on Cortex-M kernels, 0 to 1; null if there are no MACs, or those of an operator "
                "are not known"
            ),
            "cortex_m_operator_share": (
                "of the operators whose results are floats or quantised integers, the share that runs on Cortex-M "
                "kernels; null if there are none"
            ),
            "planned_bytes": "the bytes of the memory plan",
            "planned_bytes_in_int8": (
                "estimate of the planned bytes if all float tensors were int8; null if there are none"
            ),
            "uncounted": "operators whose MACs are not known",
            "count": "calls of operators in the program",
            "macs": "the program's multiply-accumulates",
            "nbytes": "bytes of the program's tensors",
            "instructions": "CPU instructions executed (null: not counted)",
            "cycles": "a board's cycles (null: not counted)",
            "operators": "a list of operator, kind, count (calls of the operator), macs, nbytes, instructions, cycles",
            "kinds": "a list of kind, count (calls of operators), macs, nbytes, instructions, cycles",
            "islands": (
                "a list of operators (those that compute), steps (numbers of instructions), count, macs, nbytes, "
                "instructions, cycles"
            ),
        }
    ),
)
def partition_command(
    pte: Pte,
    on: TimedOptions,
    given: ProgramOptions,
    target: Annotated[
        str | None,
        typer.Option("--target", "-t", metavar="NAME", help="Also run the program on this target, and count its cost"),
    ] = None,
) -> None:
    """Show which operators of a program run on Cortex-M kernels.

    The others run on portable kernels, on integers or in float.
    For each operator and kind it shows the number of calls (count), their multiply-accumulates (MACs), and the bytes of
    their tensors. A float island is a group of connected operators that compute in float.
    """
    program = given.load(pte)
    fields: dict[str, Any] = {
        "program": pte,
        "method": program.file.method,
        "ran": None,
        "inputs": None,
        "not_counted": "",
    }
    found, label, clock = program.partition, "", Clock.INSTRUCTIONS
    if given.inputs and target is None:
        raise ConfigError("--input without --target: nothing is run", hint="--target NAME counts instructions there")
    if target is not None:
        resolved = on.resolve(target)
        found_inputs = find_inputs(program, pte, given.inputs or [], quantize=given.quantize)
        label = f"{label_of(resolved)}; inputs: {found_inputs.source}"
        try:
            with log_of_errors(), status(runner_of(resolved)) as line, on.open(resolved) as dut:
                line.update(f"{resolved.display_name}: started, and running {pte.name}")
                result = flow.run(dut, program, found_inputs.inputs)
                clock = result.ran.clock
                costs = operator_costs(dut, program, found_inputs.inputs, result.ticks, clock)
                ticks = [one.ticks for one in costs if one.index is not None]
                found = Partition.of(program.file, ticks=ticks)
                fields |= {"ran": fields_of_target(resolved, dut.ran()), "inputs": found_inputs.source}
        except PortNotFound as error:  # the partition itself needs no board
            fields["not_counted"] = error.message
            label += f"\nNOT counted: {error.message}"
    in_int8 = planned_in_int8(program.file, found) if found.left_in_float else None
    fields |= {"planned_bytes": program.file.planned_bytes, "planned_bytes_in_int8": in_int8}
    end(_answer(found, fields, label, clock))


def _ticks_by_clock(clock: Clock, ticks: int | None) -> dict[str, int | None]:
    """Return a field for each clock that measures cost: the ticks for `clock`, and None for the others."""
    return {one.value: ticks if one is clock else None for one in COSTS}


def _answer(found: Partition, fields: Mapping[str, Any], label: str, clock: Clock) -> Answer:
    operators: _Rows = [(name, kind.value, group) for (name, kind), group in found.operators.items()]
    kinds: _Rows = [("", kind.value, group) for kind, group in found.kinds.items()]
    tables = (_table(found, rows, clock) for rows in (operators, [*kinds, ("", "all", found)]))
    blocks = [*tables, *_islands(found, clock), _summary(found, fields)]
    shares = {"cortex_m_macs": found.cortex_m_macs, "cortex_m_operator_share": found.cortex_m_operator_share}
    islands = [
        {"operators": one.operators, "steps": [step.instruction for step in one.steps], **_fields(one, clock)}
        for one in found.islands
    ]
    told = {
        **shares,
        "uncounted": found.uncounted,
        **_fields(found, clock),
        "operators": [{"operator": name, "kind": kind, **_fields(group, clock)} for name, kind, group in operators],
        "kinds": [{"kind": kind, **_fields(group, clock)} for _, kind, group in kinds],
        "islands": islands,
    }
    return Answer("\n\n".join(filter(None, (label, *blocks))), {**fields, **told})


def _fields(group: StepGroup, clock: Clock) -> dict[str, Any]:
    known = {"count": len(group.steps), "macs": group.macs, "nbytes": group.nbytes}
    return {**known, **_ticks_by_clock(clock, group.ticks)}


def _table(whole: Partition, rows: _Rows, clock: Clock) -> str:
    """Return a table; one of kinds has no column of operators, and without counts there is none of ticks."""
    named, measured = any(name for name, _, _ in rows), whole.ticks is not None
    columns = (
        *(("operator",) * named),
        "kind",
        "count",
        "MACs",
        "share",
        "bytes",
        *((clock.value, "share") * measured),
    )
    return table(columns, [tuple(_cells(whole, *row, named, measured)) for row in rows])


def _cells(whole: Partition, name: str, kind: str, group: StepGroup, named: bool, measured: bool) -> Iterator[str]:
    if named:
        yield name
    yield kind
    yield f"{len(group.steps)}"
    yield "not known" if group.macs is None else f"{group.macs}"
    yield _share(group.macs, whole.macs)
    yield f"{group.nbytes}"
    if measured:
        yield f"{group.ticks}"
        yield _share(group.ticks, whole.ticks)


def _share(part: int | None, whole: int | None) -> str:
    return percent(part / whole) if part is not None and whole else "-"


def _islands(found: Partition, clock: Clock) -> Iterator[str]:
    if found.islands:
        yield "\n".join(_island(found, number, one, clock) for number, one in enumerate(found.islands, 1))


def _island(whole: Partition, number: int, island: Island, clock: Clock) -> str:
    first, last = island.steps[0].instruction, island.steps[-1].instruction
    where = f"operator {first}" if first == last else f"operators {first} to {last}"
    macs = f"{_share(island.macs, whole.macs)} of the MACs"
    cost = "" if island.ticks is None else f", {_share(island.ticks, whole.ticks)} of the {clock.value} executed"
    return f"float island {number} ({where}; {macs}{cost}): {', '.join(island.operators)}"


def _summary(found: Partition, fields: Mapping[str, Any]) -> str:
    operators = f"{found.count(PartitionKind.CORTEX_M)} of {len(found.counting)} operators"
    if found.cortex_m_operator_share is not None:
        operators += f" ({percent(found.cortex_m_operator_share)})"
    if found.cortex_m_macs is not None:
        told = f"{percent(found.cortex_m_macs)} of {found.macs} MACs and {operators} are on Cortex-M kernels"
    else:
        why = f"those of {', '.join(found.uncounted)} are not known" if found.uncounted else "there are none"
        told = f"share of MACs on Cortex-M kernels not known: {why}; {operators} are Cortex-M kernels"
    if not found.left_in_float:
        return told
    planned, in_int8 = fields["planned_bytes"], fields["planned_bytes_in_int8"]
    return f"{told}\n{len(found.left_in_float)} in float: {planned} bytes are planned, about {in_int8} in int8"
