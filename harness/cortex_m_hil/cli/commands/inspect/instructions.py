"""The command `hil inspect instructions`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from operator import itemgetter
from typing import Annotated, Any

import typer

from cortex_m_hil.cli.answers import Answer, json_fields
from cortex_m_hil.cli.commands.inspect.group import inspect
from cortex_m_hil.cli.options import ModelOptions, MultiplierOptions, SeveralTargets, TargetOptions
from cortex_m_hil.cli.output import RAN_FIELDS, fields_of_target, label_of, table, with_status
from cortex_m_hil.cli.program_files import NETWORKS_HELP, programs_of
from cortex_m_hil.diagnose import instruction_counts as kernels
from cortex_m_hil.errors import ConfigError
from cortex_m_hil.lowering.named_modules import NETWORKS
from cortex_m_hil.program.program import Program
from cortex_m_hil.targets.resolve import Resolved
from cortex_m_hil.targets.target import Clock


@inspect.command(
    "instructions",
    log=True,
    epilog=json_fields(
        {
            **RAN_FIELDS,
            "isa": "the class that the models are lowered for",
            "reference_version": "the ExecuTorch that the reference is of; else empty",
            "no_reference": "why there is no reference; else empty",
            "rows": (
                "a list of model, inputs (where they are from), target, isa, instructions (CPU instructions, exact), "
                "reference_instructions, ratio (both null without a reference), and operators: a list of operator, "
                "calls, instructions, share, reference_instructions, ratio. Each also has cycles and reference_cycles, "
                "which a board counts instead"
            ),
        }
    ),
)
def instructions(
    target: SeveralTargets,
    on: MultiplierOptions,
    given: ModelOptions,
    models: Annotated[
        list[str] | None,
        typer.Argument(metavar="MODEL...", help=f"A .pte file; {NETWORKS_HELP} [default: all networks]"),
    ] = None,
) -> None:
    """Count a program's CPU instructions, or a board's cycles. They are counted in total and by operator.

    Inputs of a .pte file are found as `hil run` finds them, and are those of --input where one model is named.
    The reference is what an installed ExecuTorch with CMSIS-NN takes for the same program, where there is one
    (hil docs runtimes).
    """
    chosen = models or list(NETWORKS)
    if given.inputs and len(chosen) > 1:
        raise ConfigError("--input is for one model", hint="inputs beside P.pte are P.0.npy, P.1.npy, …")
    program_for = [programs_of(model, given) for model in chosen]
    choice, theirs = (replace(on, runtime=runtime).choose(target) for runtime in ("builtin", "executorch"))

    def ask(resolved: Resolved) -> Answer:
        reference, isa = theirs.resolve(resolved.name), resolved.target.isa
        made = list(
            with_status(list(zip(chosen, program_for, strict=True)), itemgetter(0), lambda one: one[1](resolved.target))
        )
        programs, sources = [program for program, _ in made], [source for _, source in made]
        with on.open(resolved) as dut:
            counts = list(with_status(programs, lambda one: one.name, lambda one: kernels.count(dut, one)))
            ran = dut.ran()
        references, version, missing = _references(on, reference, programs)
        rows = [ModelCounts(*row) for row in zip(chosen, sources, counts, references, strict=True)]
        fields = {**fields_of_target(resolved, ran), "isa": isa}
        fields |= {"reference_version": version, "no_reference": missing}
        told = f"no reference: {missing}" if missing else f"reference: executorch {version}"
        lines = [label_of(resolved), _table_of(rows), told, ""]
        lines += [line for row in rows for line in (row.model, f"inputs: {row.inputs}", row.operators, "")]
        return Answer("\n".join(lines).rstrip(), {**fields, "rows": [row.fields(resolved.name, isa) for row in rows]})

    choice.answer_each(ask)


def _references(
    on: TargetOptions, resolved: Resolved, programs: Sequence[Program]
) -> tuple[list[kernels.Count | None], str, str]:
    """Count the instructions of each program on an installed ExecuTorch.

    Returns:
        The counts, ExecuTorch's version, and "". Where none is installed: None for each program, "", and why.
    """
    try:
        dut = on.open(resolved)
    except ConfigError as error:  # no ExecuTorch is installed
        return [None] * len(programs), "", "; ".join(part for part in (error.message, error.hint) if part)
    with dut:
        counts = list(with_status(programs, lambda one: one.name, lambda one: kernels.count(dut, one)))
        return list(counts), dut.ran().runtime_version, ""


@dataclass(frozen=True)
class ModelCounts:
    """The counts of one model on one target."""

    model: str
    inputs: str
    count: kernels.Count
    reference: kernels.Count | None

    @property
    def compared(self) -> list[tuple[kernels.OperatorCount, kernels.OperatorCount | None]]:
        """Return for each operator a pair of counts: ours, and the reference's or None."""
        theirs = {one.operator: one for one in self.reference.operators} if self.reference else {}
        return [(one, theirs.get(one.operator)) for one in self.count.operators]

    @property
    def operators(self) -> str:
        rows = [
            (one.operator, f"{one.calls}", f"{one.ticks}", f"{one.share:.1%}", *_reference(one, their))
            for one, their in self.compared
        ]
        return table(("operator", "calls", self.count.clock.value, "share", "reference", "ratio"), rows)

    def fields(self, target: str, isa: object) -> dict[str, Any]:
        clock = self.count.clock
        operators = [
            {"operator": one.operator, "calls": one.calls, "share": one.share, **_counted(clock, one, their)}
            for one, their in self.compared
        ]
        own = _counted(clock, self.count, self.reference)
        return {
            "model": self.model, "inputs": self.inputs, "target": target, "isa": isa, **own, "operators": operators,
        }  # fmt: skip


def _table_of(rows: Sequence[ModelCounts]) -> str:
    cells = [(row.model, f"{row.count.ticks}", *_reference(row.count, row.reference)) for row in rows]
    return table(("model", rows[0].count.clock.value, "reference", "ratio"), cells)


def _counted(clock: Clock, ours: kernels.Counted, reference: kernels.Counted | None) -> dict[str, Any]:
    theirs = kernels.figures(clock, reference.ticks if reference else None, "reference_")
    return {**kernels.figures(clock, ours.ticks), **theirs, "ratio": kernels.ratio(ours, reference)}


def _reference(ours: kernels.Counted, reference: kernels.Counted | None) -> tuple[str, str]:
    return _or_dash(reference.ticks if reference else None), _ratio(kernels.ratio(ours, reference))


def _or_dash(value: object) -> str:
    return "-" if value is None else str(value)


def _ratio(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"
