"""hil run."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from cortex_m_hil import flow
from cortex_m_hil.api import load_program
from cortex_m_hil.checks.comparison import Comparison
from cortex_m_hil.checks.lint import UNLINTED
from cortex_m_hil.checks.tolerance import Tolerance
from cortex_m_hil.cli.answers import Answer, answer_each
from cortex_m_hil.cli.app import app
from cortex_m_hil.cli.files import check_outputs, read_expected, read_inputs, write_output
from cortex_m_hil.cli.options import (
    Choice,
    Json,
    Multiplier,
    Pte,
    RequireFvp,
    Runtime,
    SeveralTargets,
    Targets,
    Verbose,
)  # fmt: skip
from cortex_m_hil.cli.output import fields_of_result, fields_of_target, lines_of_result, log_of_errors, tell_log
from cortex_m_hil.diagnose.lifetimes import WatchedMemory
from cortex_m_hil.errors import ConfigError, LintError
from cortex_m_hil.flow.dut import Dut
from cortex_m_hil.program.program import Program, References
from cortex_m_hil.results import RunResult
from cortex_m_hil.targets.resolve import Resolved

_DEFAULT = Tolerance()


@app.command("run")
def run(
    pte: Pte,
    target: SeveralTargets,
    inputs: Annotated[
        list[Path] | None, typer.Option("--input", "-i", metavar="FILE.npy", help="One .npy per input, in order")
    ] = None,
    outputs: Annotated[
        list[Path] | None,
        typer.Option("--output", "-o", metavar="FILE.npy", help="Where to write outputs, in order; for one target"),
    ] = None,
    expected: Annotated[
        list[Path] | None,
        typer.Option("--expect", "-e", metavar="FILE.npy", help="What the outputs have to be: one .npy each, in order"),
    ] = None,
    qtol: Annotated[
        int | None, typer.Option(help="Quanta that a quantised output may be off --expect", show_default="0")
    ] = None,
    atol: Annotated[
        float | None, typer.Option(help="As in numpy.allclose, for other outputs", show_default=f"{_DEFAULT.atol:g}")
    ] = None,
    rtol: Annotated[float | None, typer.Option(help="The same", show_default=f"{_DEFAULT.rtol:g}")] = None,
    no_lint: Annotated[bool, typer.Option("--no-lint", help="Run it even if it does not fit")] = False,
    redzones: Annotated[bool, typer.Option("--redzones", help="Watch the memory that no tensor owns")] = False,
    require_fvp: RequireFvp = False,
    timeout_multiplier: Multiplier = 1.0,
    runtime: Runtime = "builtin",
    targets_file: Targets = None,
    verbose: Verbose = False,
    as_json: Json = False,
) -> None:
    """Run a program once on each target.

    Inputs are .npy files of the program's logical shape and dtype, however they lie in memory: a channels-last
    input of shape [1, 3, 8, 8] is given as an array of shape (1, 3, 8, 8). Outputs are written, and expected, the same
    way. An output that is not what --expect says is a Mismatch, with exit status 1.
    """
    choice = Choice(target, targets_file, runtime, require_fvp=require_fvp)
    program = load_program(pte)
    program = dataclasses.replace(program, inputs=read_inputs(program, inputs or []))
    check_outputs(program, outputs or [])
    if outputs and len(choice.names) > 1:
        raise ConfigError("--output is for one target", hint="hil run for each target, with files of its own")
    tolerance = _tolerance(bool(expected), {"qtol": qtol, "atol": atol, "rtol": rtol})
    if expected:
        references = References(expected=read_expected(program, expected))
        program = dataclasses.replace(program, reference=lambda _: references)
    order = _Order(pte, program, tolerance, not no_lint, redzones, outputs or ())

    def ask(name: str) -> Answer:
        resolved = choice.resolve(name)
        with log_of_errors(verbose), flow.open_dut(resolved, multiplier=timeout_multiplier) as dut:
            try:
                return order.run(dut, resolved, verbose)
            except LintError as error:
                error.hint = error.hint.replace(UNLINTED, "--no-lint")
                raise

    answer_each(choice.names, ask)


def _tolerance(is_compared: bool, given: dict[str, Any]) -> Tolerance:
    """ConfigError for what is no tolerance, or is one of nothing."""
    chosen = {name: value for name, value in given.items() if value is not None}
    if chosen and not is_compared:
        raise ConfigError(f"--{next(iter(chosen))} without --expect", hint="--expect FILE.npy for each output")
    return Tolerance(**chosen)


@dataclass(frozen=True)
class _Order:
    """What to do with a program on each target."""

    pte: Path
    program: Program
    tolerance: Tolerance
    linted: bool
    redzones: bool
    outputs: Sequence[Path]

    def run(self, dut: Dut, resolved: Resolved, verbose: bool) -> Answer:
        result, comparison = self._run(dut)
        identity = dut.session().identity
        tell_log(result.log, verbose)
        watched = WatchedMemory(self.program) if self.redzones else None
        zones = watched.describe() if watched is not None else ""
        lines = [*lines_of_result(result, identity, resolved)]
        if watched is not None:
            lines.append(f"red zones {'intact' if watched.zones else 'none'}: {zones}")
        fields = {"program": self.pte, "build_id": identity.build_id, "redzones": zones or None}
        fields |= fields_of_target(resolved, result.ran) | fields_of_result(result, identity)
        return Answer("\n".join([*lines, *_lines_of(comparison)]), {**fields, "compared": _fields_of(comparison)})

    def _run(self, dut: Dut) -> tuple[RunResult, Comparison | None]:
        """The outputs are written before they are compared: who compares them wants to see those that differ."""
        guards = WatchedMemory if self.redzones else None
        if self.program.reference is None:
            result = flow.run(dut, self.program, linted=self.linted, guards=guards)
            self._write(result)
            return result, None
        checked = flow.verify(
            dut, self.program, tolerance=self.tolerance, linted=self.linted, guards=guards,
            observe=lambda checked: self._write(checked.result),
        )  # fmt: skip
        return checked.result, checked.comparison

    def _write(self, result: RunResult) -> None:
        for path, output in zip(self.outputs, result.outputs, strict=False):
            write_output(path, output)


def _lines_of(comparison: Comparison | None) -> list[str]:
    if comparison is None:
        return []
    distances = [f"expected  output {number}: {figures}" for number, figures in enumerate(comparison.outputs)]
    return distances + [f"warning   {warning}" for warning in comparison.warnings]


def _fields_of(comparison: Comparison | None) -> dict[str, Any] | None:
    if comparison is None:
        return None
    names = ("max_quanta", "max_abs_error")
    figures = [{name: getattr(one, name) for name in names} for one in comparison.outputs]
    return {"outputs": figures, "warnings": [str(warning) for warning in comparison.warnings]}
