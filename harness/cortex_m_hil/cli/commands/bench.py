"""hil bench."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from operator import itemgetter
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from cortex_m_hil import flow
from cortex_m_hil.bench import kernels, lowering, matrix
from cortex_m_hil.cli.answers import Answer, answer_each, end
from cortex_m_hil.cli.app import Commands, app
from cortex_m_hil.cli.files import programs_of
from cortex_m_hil.cli.options import Choice, Inputs, Json, Multiplier, SeveralTargets, Targets, Verbose
from cortex_m_hil.cli.output import fields_of_target, label_of, log_of_errors, table, with_status
from cortex_m_hil.cli.pytest_runs import named_tests
from cortex_m_hil.errors import ConfigError
from cortex_m_hil.host.folders import TemporaryFolder
from cortex_m_hil.lowering.networks import NETWORKS, check_name
from cortex_m_hil.program.program import Program
from cortex_m_hil.targets.launcher import Clock
from cortex_m_hil.targets.resolve import Resolved

bench = typer.Typer(cls=Commands, no_args_is_help=True, rich_markup_mode=None, pretty_exceptions_enable=False)
app.add_typer(bench, name="bench")
_NETWORKS = f"one of {', '.join(NETWORKS)}; or package.module:function, which returns (module, inputs)"
Runs = Annotated[int, typer.Option("--runs", "-n", min=1, help="How often; medians are shown")]


@bench.callback()
def _bench() -> None:
    """Measure what programs, the lowering and whole runs cost."""


# --- kernels -------------------------------------------------------------------------------------------------


@bench.command("kernels")
def bench_kernels(
    target: SeveralTargets,
    models: Annotated[
        list[str] | None, typer.Argument(metavar="MODEL...", help=f"A .pte file; {_NETWORKS} [default: all networks]")
    ] = None,
    inputs: Inputs = None,
    timeout_multiplier: Multiplier = 1.0,
    targets_file: Targets = None,
    verbose: Verbose = False,
    as_json: Json = False,
) -> None:
    """Count the instructions of programs, or a board's cycles. By operator too; instructions are exact.

    Inputs of a .pte file are found as `hil run` finds them, and are those of --input where one model is named.
    The reference is what an installed ExecuTorch with CMSIS-NN takes for the same program, where there is one
    (hil docs runtimes).
    """
    chosen = models or list(NETWORKS)
    if inputs and len(chosen) > 1:
        raise ConfigError("--input is for one model", hint="inputs beside P.pte are P.0.npy, P.1.npy, …")
    program_for = [programs_of(model, inputs or []) for model in chosen]
    choices = [Choice(target, targets_file, runtime) for runtime in ("builtin", "executorch")]

    def ask(name: str) -> Answer:
        resolved, reference = (choice.resolve(name) for choice in choices)
        isa = resolved.target.isa
        made = list(with_status(list(zip(chosen, program_for, strict=True)), itemgetter(0), lambda one: one[1](isa)))
        programs, sources = [program for program, _ in made], [source for _, source in made]
        with log_of_errors(verbose), flow.open_dut(resolved, multiplier=timeout_multiplier) as dut:
            counts = list(with_status(programs, lambda one: one.name, lambda one: kernels.count(dut, one)))
            ran = dut.ran()
        references, version, missing = _references(reference, programs, timeout_multiplier)
        rows = [Row(*row) for row in zip(chosen, sources, counts, references, strict=True)]
        fields = {**fields_of_target(resolved, ran), "isa": resolved.target.isa}
        fields |= {"reference_version": version, "no_reference": missing}
        told = f"no reference: {missing}" if missing else f"reference: executorch {version}"
        lines = [label_of(resolved), _table_of(rows), told, ""]
        lines += [line for row in rows for line in (row.model, f"inputs: {row.inputs}", row.operators, "")]
        return Answer("\n".join(lines).rstrip(), {**fields, "rows": [row.fields(name, fields["isa"]) for row in rows]})

    answer_each(choices[0].names, ask)


def _references(
    resolved: Resolved, programs: Sequence[Program], multiplier: float
) -> tuple[list[kernels.Count | None], str, str]:
    """What each program takes by ExecuTorch, whose version follows; or None each, no version, and why."""
    try:
        dut = flow.open_dut(resolved, multiplier=multiplier)
    except ConfigError as error:  # nobody named an installed ExecuTorch
        return [None] * len(programs), "", "; ".join(part for part in (error.message, error.hint) if part)
    with dut:
        counts = list(with_status(programs, lambda one: one.name, lambda one: kernels.count(dut, one)))
        return list(counts), dut.ran().runtime_version, ""


@dataclass(frozen=True)
class Row:
    """One model on one target."""

    model: str
    inputs: str
    count: kernels.Count
    reference: kernels.Count | None

    @property
    def compared(self) -> list[tuple[kernels.OperatorCount, kernels.OperatorCount | None]]:
        """Each operator, and the same of the reference: both run one program."""
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


def _table_of(rows: Sequence[Row]) -> str:
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


# --- lowering ------------------------------------------------------------------------------------------------


@bench.command("lowering")
def bench_lowering(
    models: Annotated[
        list[str] | None, typer.Argument(metavar="MODEL...", help=f"{_NETWORKS} [default: all networks]")
    ] = None,
    runs: Runs = 3,
    verbose: Verbose = False,
    as_json: Json = False,
) -> None:
    """Measure the seconds of each stage of the lowering. Each run is a process of its own."""
    chosen = models or list(NETWORKS)
    for model in chosen:
        check_name(model)
    with log_of_errors(verbose):
        found = lowering.measure(chosen, _with_progress(runs))
    blocks = [table(("import", "seconds"), [(name, f"{value:.2f}") for name, value in found.imports.items()])]
    for one in found.modules:
        stages = [(row.stage, f"{row.first:.3f}", f"{row.again:.3f}") for row in one.stages]
        sums = ("all", *(f"{sum(getattr(row, which) for row in one.stages):.3f}" for which in ("first", "again")))
        blocks.append(table((one.module, "first", "again"), [*stages, sums]))
    end(Answer("\n\n".join(blocks), {"runs": runs, "imports": found.imports, "modules": found.modules}))


def _with_progress(runs: int) -> Iterable[int]:
    """Their numbers; a terminal shows which is under way."""
    with Console(stderr=True, markup=False).status("") as status:
        for run in range(runs):
            status.update(f"run {run + 1} of {runs}")
            yield run


# --- matrix --------------------------------------------------------------------------------------------------


@bench.command("matrix")
def bench_matrix(
    target: SeveralTargets,
    paths: Annotated[
        list[Path] | None, typer.Argument(metavar="PATH...", help="What pytest is to run [default: tests/targets]")
    ] = None,
    against: Annotated[str, typer.Option(metavar="CMD", help="A command for the shell, to compare with")] = "",
    upstream: Annotated[
        bool, typer.Option("--upstream", help="ExecuTorch's own ops/ tests, here and by its own command on QEMU")
    ] = False,
    keyword: Annotated[str, typer.Option("-k", metavar="EXPR", help="Of --upstream's tests")] = "test_implementation",
    runs: Runs = 3,
    targets_file: Targets = None,
    verbose: Verbose = False,
    as_json: Json = False,
) -> None:
    """Measure the seconds of whole pytest runs, cold and warm. A run that fails is an error.

    Cold: the runners are built, and nothing is lowered yet. Each command has a cache folder of its own, named by
    HIL_CACHE_DIR; the two take turns.
    """
    if upstream and (paths or against):
        raise ConfigError(
            "--upstream has its own tests, and its own command to compare with", hint="leave the rest out"
        )
    names = Choice(target, targets_file, "builtin").names
    options = [] if targets_file is None else [f"--targets-file={targets_file}"]
    theirs: matrix.Command | None = None
    with log_of_errors(verbose), TemporaryFolder() as folder:
        if upstream:
            ours, theirs = _upstream_sides(names, options, keyword, folder)
        else:
            files = [Path(one) for one in named_tests([str(one) for one in paths or [Path("tests/targets")]])]
            ours = matrix.Command.building((*matrix.pytest_command(names, files), *options))
            if against:
                theirs = matrix.Command.building(("sh", "-c", against))
        found = matrix.measure(ours, theirs, _with_progress(runs))
    rows = [_side("here", found.ours), *([_side("against", found.theirs)] if found.theirs else [])]
    rows += [("ratio", _ratio(found.cold_ratio), _ratio(found.warm_ratio))] if found.theirs else []
    ratios = {"cold_ratio": found.cold_ratio, "warm_ratio": found.warm_ratio}
    sides = {"here": _fields_of(found.ours), "against": _fields_of(found.theirs) if found.theirs else None}
    fields = {"targets": names, "runs": runs, **sides, **ratios}
    end(Answer(table(("seconds", "cold", "warm"), rows), fields))


def _upstream_sides(
    names: Sequence[str], options: Sequence[str], keyword: str, folder: Path
) -> tuple[matrix.Command, matrix.Command]:
    """ExecuTorch's tests here and by its own command, whose runners are built now."""
    ours = (*matrix.upstream_command(names, options), "-k", keyword)
    theirs = ("sh", "-c", matrix.upstreams_own(names, options, keyword, folder))
    return matrix.Command(ours, matrix.build_command(names, options)), matrix.Command(theirs, None, caches=False)


def _side(name: str, found: matrix.Seconds) -> tuple[str, str, str]:
    cold, warm = found.medians.values()
    return (name, f"{cold:.2f}", f"{warm:.2f}")


def _fields_of(found: matrix.Seconds) -> dict[str, Any]:
    return {"command": found.command, **found.medians, "cold": found.cold, "warm": found.warm}
