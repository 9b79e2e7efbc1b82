"""The command `hil run`."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from cortex_m_hil import flow
from cortex_m_hil.checks.comparison.comparison_result import Comparison
from cortex_m_hil.checks.comparison.tolerance import Tolerance
from cortex_m_hil.checks.expected_outputs import expecting, in_quanta
from cortex_m_hil.checks.lint import missing_elsewhere
from cortex_m_hil.cli.app import app
from cortex_m_hil.cli.command_output import Answer, json_fields, write_log
from cortex_m_hil.cli.error_output import answer_each, answer_each_case
from cortex_m_hil.cli.option_names import options_named, refused_by_lint
from cortex_m_hil.cli.options import (
    Known,
    NoLint,
    ProgramOptions,
    Pte,
    SeveralTargets,
    TargetOptions,
    accepted_on_command_line,
)
from cortex_m_hil.cli.program_files import check_outputs, find_inputs, read_expected, write_output
from cortex_m_hil.cli.progress import runner_of, status
from cortex_m_hil.cli.run_result_output import (
    CONSTANTS_HELP,
    RAN_FIELDS,
    RESULT_FIELDS,
    constants_as_fields,
    constants_in_short,
    fields_of_result,
    fields_of_target,
    lines_of_result,
)
from cortex_m_hil.cli.trace_option import TraceFile
from cortex_m_hil.diagnose.lifetime_check import WatchedMemory
from cortex_m_hil.errors import ConfigError
from cortex_m_hil.flow.dut import Dut
from cortex_m_hil.program.program import Program
from cortex_m_hil.runner.run_results import RunResult
from cortex_m_hil.targets.resolve import Resolved
from cortex_m_hil.targets.runtimes import missing_on_the_other

_DEFAULT = Tolerance()


OutputsOption = Annotated[
    list[Path] | None,
    typer.Option(
        "--output", "-o", metavar="FILE.npy", help="Files to write outputs to, in order; with one target only"
    ),
]
ExpectedOption = Annotated[
    list[Path] | None,
    typer.Option("--expect", "-e", metavar="FILE.npy", help="Expected outputs: one .npy each, in order"),
]
QtolOption = Annotated[
    int | None,
    typer.Option(
        "--qtol",
        metavar="QUANTA",
        help="Quanta by which a quantised output may differ from --expect [default: 0]",
        show_default=False,
    ),
]
AtolOption = Annotated[
    float | None,
    typer.Option(
        "--atol",
        metavar="NUMBER",
        help=f"Absolute tolerance for outputs that are not quantised (numpy.allclose) [default: {_DEFAULT.atol:g}]",
        show_default=False,
    ),
]


RtolOption = Annotated[
    float | None,
    typer.Option(
        "--rtol",
        metavar="NUMBER",
        help=f"Relative tolerance for outputs that are not quantised (numpy.allclose) [default: {_DEFAULT.rtol:g}]",
        show_default=False,
    ),
]


@app.command(
    "run",
    log=True,
    epilog=json_fields(
        {
            **RAN_FIELDS,
            "build_id": "the digest of all that the runner was built from",
            "program": "the file",
            "method": "the method that ran",
            "constants": CONSTANTS_HELP,
            "inputs": "where the inputs are from, as text",
            "case": (
                "of a bundled program, which has a line for each test case: the number of the case, from 0, also where "
                "the line is of an error; else null"
            ),
            "saturated": "with --quantize-inputs, the share of the quantised values that saturated; else null",
            **RESULT_FIELDS,
            "redzones": "with --redzones, what was watched; else null",
            "lint": "with --no-lint, why lint would refuse the program, if it would; else null",
            "missing_elsewhere": "operators of the program that the other runtime does not have",
            "state_bytes": (
                "bytes of the program's mutable state, 0 if it has none; each run starts from its initial value"
            ),
            "compared": (
                "with --expect, or for a test case with expected outputs: outputs, a list of max_quanta, max_abs_error "
                "(of an output that is not quantised), sqnr_db (of a test case), each null where it does not apply; "
                "and warnings, a list of lines. Otherwise null"
            ),
        }
    ),
)
def run(
    pte: Pte,
    target: SeveralTargets,
    on: TargetOptions,
    given: ProgramOptions,
    outputs: OutputsOption = None,
    expected: ExpectedOption = None,
    qtol: QtolOption = None,
    atol: AtolOption = None,
    rtol: RtolOption = None,
    no_lint: NoLint = False,
    known: Known = None,
    redzones: Annotated[bool, typer.Option("--redzones", help="Detect writes outside tensors (red zones)")] = False,
    hil_trace: TraceFile = None,  # its callback records
) -> None:
    """Run a program once on each target.

    Inputs are .npy files of the program's dtypes, in logical shape, whatever their dim order: a channels-last input of
    shape [1, 3, 8, 8] is given as an array of shape (1, 3, 8, 8). Without --input they are those that pytest's
    --keep-programs left beside the program, or are generated, the same every time. Outputs are written, and
    expected, the same way. An output that is not what --expect says is a Mismatch, with exit status 1. A program with
    state runs once, from its initial state; a stream of frames is for Python (hil docs writing-tests).

    A bundled program (.bpte) is run on the inputs of each of its test cases, and its outputs are compared with those
    that the case expects.
    """
    choice = on.choose(target)
    loaded = given.load(pte)
    tolerance = _tolerance(bool(expected) or _expects(loaded), {"qtol": qtol, "atol": atol, "rtol": rtol})
    programs, saturated = _with_files(loaded, pte, given.inputs or [], expected or [], given.quantize)
    if qtol is not None:
        programs = [(in_quanta(program), source) for program, source in programs]
    check_outputs(loaded, outputs or [])
    _check_one_run(outputs, len(choice.names), len(programs))
    orders = [
        _Order(
            pte, program, source, number if loaded.cases else None, tolerance, not no_lint, redzones, outputs or (),
            saturated, accepted_on_command_line(known),
        )
        for number, (program, source) in enumerate(programs)
    ]  # fmt: skip
    with _Duts(on) as duts:

        def ask(name: str, case: int = 0) -> Answer:
            resolved = choice.resolve(name)
            with options_named():
                with status(runner_of(resolved)):
                    dut = duts.open(resolved)
                return orders[case].run(dut, resolved)

        if loaded.cases:
            answer_each_case(choice.names, len(orders), ask)
        answer_each(choice.names, ask)


def _check_one_run(outputs: Sequence[Path] | None, targets: int, cases: int) -> None:
    """Check that outputs are written by a single run. Raises ConfigError."""
    if outputs and targets * cases > 1:
        what = "target" if targets > 1 else "test case"
        raise ConfigError(f"--output is for one {what}", hint=f"hil run for each {what}, with files of its own")


def _expects(program: Program) -> bool:
    return any(case.reference is not None for case in program.cases)


def _tolerance(is_compared: bool, given: dict[str, Any]) -> Tolerance:
    """Return the tolerance of the options.

    Args:
        is_compared: whether outputs are compared.
        given: the options by name; None for options that are not given.

    Raises:
        ConfigError: the numbers are no valid tolerance, or outputs are not compared.
    """
    chosen = {name: value for name, value in given.items() if value is not None}
    if chosen and not is_compared:
        raise ConfigError(f"--{next(iter(chosen))} without --expect", hint="--expect FILE.npy for each output")
    return Tolerance(**chosen)


def _with_files(
    program: Program, pte: Path, inputs: Sequence[Path], expected: Sequence[Path], quantize: bool
) -> tuple[list[tuple[Program, str]], float | None]:
    """Return the test cases of a bundled program, or the program with inputs and expected outputs from files.

    Each comes with a text about where its inputs come from; the last result is the share of values that saturated.

    Args:
        program: the program.
        pte: the program's file.
        inputs: the files of --input.
        expected: the files of --expect.
        quantize: whether to quantise floats for integer inputs.

    Raises:
        ConfigError: the files do not fit the program, or are given for a bundled one.
    """
    if program.cases:
        if inputs or expected:
            option = "--input" if inputs else "--expect"
            hint = "run its .pte: Path(…).write_bytes(hil.load_program(file).pte)"
            raise ConfigError(f"{option} for a bundled program, which brings its own", hint=hint)
        cases = enumerate(program.cases)
        return [(case, f"those of test case {number} of {pte.name}") for number, case in cases], None
    found = find_inputs(program, pte, inputs, quantize=quantize)
    if expected and found.is_made:
        raise ConfigError("--expect without --input: on which inputs?", hint="--input FILE.npy for each input")
    if expected:
        program = expecting(program, found.inputs, read_expected(program, expected))
    else:
        program = dataclasses.replace(program, inputs=found.inputs)
    return [(program, found.source)], found.saturated


class _Duts:
    """Keeps the open Dut for further test cases on the same target."""

    def __init__(self, on: TargetOptions) -> None:
        self._on = on
        self._dut: Dut | None = None

    def open(self, resolved: Resolved) -> Dut:
        if self._dut is None or self._dut.resolved.name != resolved.name:
            self.close()
            self._dut = self._on.open(resolved)
        return self._dut

    def close(self) -> None:
        if self._dut is not None:
            self._dut.close()
            self._dut = None

    def __enter__(self) -> _Duts:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


@dataclass(frozen=True)
class _Order:
    """A program or test case, and the options of its runs on all targets."""

    pte: Path
    program: Program
    source: str
    case: int | None
    tolerance: Tolerance
    linted: bool
    redzones: bool
    outputs: Sequence[Path]
    saturated: float | None
    known: Sequence[int | str]

    def run(self, dut: Dut, resolved: Resolved) -> Answer:
        with status(f"{resolved.display_name}: started, and running {self.pte.name}"):
            result, comparison = self._run(dut)
        if self.linted:
            flow.judge_on_executorch(dut, self.program, self.known, self.known)
        identity, file = dut.session().identity, self.program.file
        write_log(result.log)
        watched = WatchedMemory(self.program) if self.redzones else None
        zones = watched.describe() if watched is not None else ""
        lines = [*([] if self.case is None else [f"case      {self.case}"])]
        lines += [f"method    {file.method}"] if len(file.methods) > 1 else []
        lines += [*lines_of_result(result, identity, resolved), f"inputs    {self.source}"]
        lines += [f"constants {text}"] if (text := constants_in_short(file.constants)) else []
        refused = refused_by_lint(dut, self.program, linted=self.linted)
        lines += [f"lint      {refused}"] if refused else []
        missing = missing_elsewhere(self.program, dut.target, resolved.runtime)
        lines += [f"runtime   {missing_on_the_other(resolved.runtime, one)}" for one in missing]
        nbytes = sum(one.spec.nbytes for one in file.initial_state())
        if nbytes:
            lines.append(f"state     {nbytes} bytes, as the program begins: one call keeps nothing for the next")
        if watched is not None:
            lines.append(f"red zones {'intact' if watched.zones else 'none'}: {zones}")
        fields = {
            "program": self.pte,
            "method": file.method,
            "constants": constants_as_fields(file.constants),
            "inputs": self.source,
            "saturated": self.saturated,
            "case": self.case,
            "build_id": identity.build_id,
            "redzones": zones or None,
            "lint": refused or None,
            "missing_elsewhere": missing,
        }
        fields |= {"state_bytes": nbytes}
        fields |= fields_of_target(resolved, result.ran) | fields_of_result(result, identity)
        return Answer("\n".join([*lines, *_lines_of(comparison)]), {**fields, "compared": _fields_of(comparison)})

    def _run(self, dut: Dut) -> tuple[RunResult, Comparison | None]:
        """Run the program, and return the result, with the comparison if outputs are expected.

        The outputs are written to files before the comparison, so that wrong outputs can be looked at.
        """
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
    names = ("max_quanta", "max_abs_error", "sqnr_db")
    figures = [{name: getattr(one, name) for name in names} for one in comparison.outputs]
    return {"outputs": figures, "warnings": [str(warning) for warning in comparison.warnings]}
