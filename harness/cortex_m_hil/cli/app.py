"""`hil`: the harness from the command line.

Exit status: 0 yes; 1 no (a verdict: the program, or for doctor and selftest the installation, is at fault);
2 could not tell (infra, or a wrong option); 130 interrupted; 141 nobody reads the output.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import shlex
import shutil
import struct
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from importlib.metadata import entry_points
from pathlib import Path
from typing import Annotated, Any, NoReturn, TypeVar

import numpy as np
import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text
from typer.core import TyperGroup

import cortex_m_hil
from cortex_m_hil import launchers
from cortex_m_hil.boards import leases
from cortex_m_hil.boards.virtual import vboard
from cortex_m_hil.checks.lint import LintFinding
from cortex_m_hil.cli import doctor as doctor_probes
from cortex_m_hil.diagnose.redzones import RedZones
from cortex_m_hil.diagnose.runtimes import Difference, compare_runtimes
from cortex_m_hil.errors import ConfigError, HarnessError, InfraError, Mismatch, ToolchainError, VerdictError
from cortex_m_hil.flow import flow
from cortex_m_hil.fuzz import fuzz
from cortex_m_hil.fvp import shim as fvp_shim
from cortex_m_hil.fvp import verify as verify_fvp
from cortex_m_hil.host import files, subprocesses, toolchain
from cortex_m_hil.host.paths import cache_directory
from cortex_m_hil.lowering.suite import find as find_suite
from cortex_m_hil.numbers import in_range
from cortex_m_hil.program.program import Program
from cortex_m_hil.program.schema import ValueKind
from cortex_m_hil.program.tensor import HostTensor, TensorSpec
from cortex_m_hil.results import Identity, RunResult
from cortex_m_hil.runner.build import Elf, build_runner
from cortex_m_hil.targets.cpu import CPU_ISAS
from cortex_m_hil.targets.load import load_targets
from cortex_m_hil.targets.model import FvpLauncher, NativeLauncher, QemuLauncher, SerialLauncher, Target
from cortex_m_hil.targets.resolve import RUNTIMES, Resolved, check_runtime, executes, resolve, select

NO, CANNOT_TELL, INTERRUPTED, NO_READER = 1, 2, 130, 141
_Step = TypeVar("_Step")
SHOWN_VALUES = 8
LOG_LIMIT = 16 << 20  # bytes of a build's log
SIZE_TIMEOUT = 20.0  # seconds
_NUMBERS = {ValueKind.INT: "iu", ValueKind.BOOL: "b", ValueKind.DOUBLE: "f"}  # numpy's dtype kinds


# --- errors and exit statuses --------------------------------------------------------------------------------


@contextlib.contextmanager
def _exit_statuses() -> Iterator[None]:
    """Turns what a user can cause into a message on standard error and an exit status; a bug keeps its traceback."""
    try:
        try:
            yield
        finally:
            sys.stdout.flush()  # here and not at the interpreter's end, where a full disk is only a warning
    except HarnessError as error:
        _end(error.describe(), NO if isinstance(error, VerdictError) else CANNOT_TELL)
    except KeyboardInterrupt:
        _end("interrupted", INTERRUPTED)
    except BrokenPipeError:
        _drop_output()
        raise SystemExit(NO_READER) from None
    except OSError as error:
        where = f": {error.filename}" if error.filename else ""
        _drop_output()
        _end(f"{type(error).__name__}: {error.strerror or error}{where}", CANNOT_TELL)


def _end(message: str, status: int) -> NoReturn:
    with contextlib.suppress(OSError):
        print(message, file=sys.stderr, flush=True)
    raise SystemExit(status) from None


def _drop_output() -> None:
    """Lets the interpreter's last flush succeed."""
    with contextlib.suppress(OSError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _open_standard_streams() -> None:
    """On /dev/null where our caller closed them: nobody wants to read, so the exit status alone is to tell.

    Else the next file or pipe that is opened would be standard output, or that of a tool.
    """
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(number)
        except OSError:
            opened = os.open(os.devnull, os.O_RDWR)  # the lowest number that is free
            os.dup2(opened, number)
            if opened != number:
                os.close(opened)
        if getattr(sys, name) is None:
            setattr(sys, name, open(number, "w" if number else "r", closefd=False))  # noqa: SIM115


class _Commands(TyperGroup):
    """Handles errors before typer answers some of them in its own way."""

    def make_context(self, *arguments: Any, **options: Any) -> Any:  # where --help prints
        with _exit_statuses():
            return super().make_context(*arguments, **options)

    def invoke(self, ctx: Any) -> Any:
        with _exit_statuses():
            return super().invoke(ctx)


@contextlib.contextmanager
def _log_of_errors(verbose: bool) -> Iterator[None]:
    try:
        yield
    except HarnessError as error:
        _tell_log(error.log, verbose)
        if error.log.strip() and not verbose:
            error.hint = "; ".join(part for part in (error.hint, "--verbose shows the log") if part)
        raise


def _tell_log(log: str, verbose: bool) -> None:
    if verbose and log.strip():
        print(log.rstrip(), file=sys.stderr)


# --- options -------------------------------------------------------------------------------------------------

app = typer.Typer(
    cls=_Commands,
    help="ExecuTorch programs on Arm Cortex-M, in simulators and on boards.",
    epilog="Exit status: 0 yes, 1 no, 2 could not tell (see the message), 130 interrupted.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)

Targets = Annotated[
    Path | None,
    typer.Option("--targets-file", help="More targets [default: ./targets.yaml, if there is one]", show_default=False),
]
OneTarget = Annotated[str, typer.Option("--target", "-t", help="A target's name; see 'hil targets'")]
Runtime = Annotated[str, typer.Option("--runtime", help="What executes the program")]
Pte = Annotated[Path, typer.Argument(metavar="PROGRAM.pte", show_default=False)]
Json = Annotated[bool, typer.Option("--json", help="For machines")]
RequireFvp = Annotated[bool, typer.Option("--require-fvp", help="An error instead of a fallback")]
Verbose = Annotated[bool, typer.Option("--verbose", "-v", help="The log, on standard error")]


def _within(low: float, high: float) -> Callable[[float], float]:
    """The callback of an option: typer's own `min` and `max` let NaN through."""

    def check(value: float) -> float:
        try:
            return in_range(value, low, high)
        except ValueError as error:
            raise typer.BadParameter(str(error)) from None

    return check


DAY, YEAR = 86400.0, 365 * 86400.0  # seconds
Multiplier = Annotated[
    float, typer.Option("--timeout-multiplier", callback=_within(*flow.MULTIPLIERS), help="For slow programs")
]


def _targets(file: Path | None) -> dict[str, Target]:
    local = Path("targets.yaml")
    return load_targets(file or (local if os.path.lexists(local) else None))


def _resolve(name: str, file: Path | None, runtime: str, *, require_fvp: bool = False) -> Resolved:
    check_runtime(runtime)
    return launchers.name_stand_in(resolve(name, _targets(file), runtime=runtime, require_fvp=require_fvp))


def _version(asked: bool) -> None:
    if asked:
        print(f"hil {cortex_m_hil.__version__}")
        raise typer.Exit


@app.callback()
def _root(version: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True)] = False) -> None:
    pass


# --- commands ------------------------------------------------------------------------------------------------


@app.command("doctor")
def doctor(
    as_json: Json = False,
    verify: Annotated[
        str | None,
        typer.Option("--verify-fvp", metavar="NAME", help="Instead: execute what we assume of this model or target"),
    ] = None,
    targets_file: Targets = None,
) -> None:
    """Try every tool, simulator and package. Exit status 1 if the default targets do not all work."""
    if verify is not None:
        _verify_fvp(verify_fvp.find(verify, _targets(targets_file)), as_json)
    checks = _examine(list(doctor_probes.probes(_targets(targets_file))))
    fine = all(check.state is not doctor_probes.State.FAILED for check in checks)
    if as_json:
        print(json.dumps({"ok": fine, "checks": [asdict(check) for check in checks]}, indent=2))
    else:
        _table(
            ("", "what", "found", "what to do"),
            [(check.state.value, check.name, check.found, check.action) for check in checks],
        )
        print("\nThe default targets work." if fine else "\nThe default targets do not all work: see FAIL.")
    raise typer.Exit(0 if fine else NO)


def _verify_fvp(target: Target, as_json: bool) -> NoReturn:
    bench = verify_fvp.Bench(target)
    assumptions = list(verify_fvp.assumptions(bench))
    findings = []
    for assumption in _with_status(assumptions, lambda assumption: assumption.text):
        findings.append(assumption.examine())
    fine = all(finding.state is not verify_fvp.State.FAILS for finding in findings)
    if as_json:
        print(json.dumps({"ok": fine, "findings": [asdict(finding) for finding in findings]}, indent=2))
    else:
        print(verify_fvp.markdown(bench, findings))
    raise typer.Exit(0 if fine else NO)


def _examine(probes: Sequence[doctor_probes.Probe]) -> list[doctor_probes.Check]:
    return [probe.examine() for probe in _with_status(probes, lambda probe: probe.name)]


def _with_status(steps: Sequence[_Step], name: Callable[[_Step], str]) -> Iterator[_Step]:
    """Each of them, while a terminal shows which."""
    with Console(stderr=True, markup=False).status("") as status:
        for number, step in enumerate(steps, 1):
            status.update(f"{number} of {len(steps)}: {name(step)}")
            yield step


@app.command("targets")
def targets(as_json: Json = False, targets_file: Targets = None) -> None:
    """List the targets, and what each of them runs as on this machine."""
    known = _targets(targets_file)
    rows = [_describe(target, known) for target in known.values()]
    if as_json:
        print(json.dumps(rows, indent=2))
        return
    for row in rows:
        pools = row["pools"]
        row["pools"] = " ".join(f"{name} {size >> 10}K" for name, size in pools.items() if size)
        row["runs as"] = row.pop("runs_as") + (f" ({row['why']})" if row["why"] else "")
    shown = ("name", "cpu", "isa", "board", "launcher", "runs as", "pools")
    _table(shown, [tuple(str(row[column]) for column in shown) for row in rows])


def _describe(target: Target, known: Mapping[str, Target]) -> dict[str, Any]:
    """`runs_as` is the target that is used here with its engine; "nothing" if it cannot run, and `why`."""
    runs_as, why = "nothing", ""
    try:
        resolved = resolve(target.name, known)
        why = resolved.why
        runs_as = f"{resolved.target.name} on {launchers.engine(resolved.target)}"
    except HarnessError as error:
        why = "; ".join(part for part in (why, error.message, error.hint) if part)
    return {
        "name": target.name,
        "cpu": target.cpu,
        "isa": target.isa.value,
        "board": target.board.name,
        "launcher": _launcher(target),
        "runs_as": runs_as,
        "why": why,
        "pools": asdict(target.board.pools),
        "origin": target.origin,
    }


def _launcher(target: Target) -> str:
    match target.launcher:
        case QemuLauncher(machine=machine):
            return f"qemu {machine}"
        case FvpLauncher(model=model):
            return f"fvp {model}"
        case SerialLauncher(port=port, baud=baud):
            return f"serial {port} at {baud}"
        case NativeLauncher():
            return "native"


@app.command("build")
def build(
    target: OneTarget, runtime: Runtime = "builtin", targets_file: Targets = None, verbose: Verbose = False
) -> None:
    """Build the runner for a target, or find it in the cache."""
    resolved = _resolve(target, targets_file, runtime)
    with _log_of_errors(verbose):
        elf = build_runner(resolved.target, resolved.runtime)
    if verbose:
        try:
            log = files.read(elf.path.parent / "build.log", LOG_LIMIT).decode(errors="replace")
        except ConfigError as error:
            log = f"no log of its build: {error.message}"
        _tell_log(log, verbose)
    print(f"runner    {elf.path}\nbuild id  {elf.build_id}\nfor       {_label(resolved)}, {elf.config}")
    print(f"size      {_sizes(elf)}")


def _sizes(elf: Elf) -> str:
    """Bytes by kind of section, as binutils' `size` tells them."""
    tool = shutil.which("size" if elf.config.startswith("host/") else "arm-none-eabi-size")
    if tool is None:
        return "unknown (no arm-none-eabi-size on PATH)"
    try:
        said = toolchain.ask([tool, str(elf.path)], SIZE_TIMEOUT)
    except ToolchainError as error:
        return f"unknown ({error.message})"
    lines = said.out.splitlines()
    if said.status != 0 or len(lines) < 2:
        return f"unknown ({said.err.strip()})"
    return ", ".join(f"{name} {size}" for name, size in zip(("text", "data", "bss"), lines[1].split(), strict=False))


@app.command("lint")
def lint_command(
    pte: Pte, target: OneTarget, runtime: Runtime = "builtin", targets_file: Targets = None, verbose: Verbose = False
) -> None:
    """Does the program fit the target? The runner is booted for its list of operators, the program is not run."""
    resolved = _resolve(target, targets_file, runtime)
    program = _read_program(pte)
    operators, unchecked = _operators(resolved, verbose)
    findings = flow.findings(program, resolved.target, operators, resolved.runtime)
    for finding in findings:
        print(_finding(finding))
    if any(not finding.is_note for finding in findings):
        raise typer.Exit(NO)
    print(_summary(pte, program, resolved) + unchecked)


def _operators(resolved: Resolved, verbose: bool) -> tuple[tuple[str, ...] | None, str]:
    """What the runner has; where it cannot be built or booted, None and why: the file alone can be linted still."""
    try:
        with _log_of_errors(verbose), flow.open_dut(resolved) as dut:
            return dut.session().identity.operators, ""
    except ToolchainError as error:
        return None, f"; NOT checked: whether the runner has these operators ({error.message}; {error.hint})"


def _finding(finding: LintFinding) -> str:
    level = "note" if finding.is_note else "error"
    operator = f" [{finding.operator}]" if finding.operator else ""
    return f"{level}: {finding.rule.value}: {finding.message}{operator}"


def _summary(path: Path, program: Program, resolved: Resolved) -> str:
    file, target = program.file, resolved.target
    layout = "no operator whose layout depends on the ISA class"
    if any(instruction.operator == "cortex_m::quantized_linear.out" for instruction in file.instructions):
        layout = f"{'MVE' if target.isa.value == 'MVE' else 'DSP/SCALAR'} layout"
    return (
        f"{path} fits {resolved.arrow}: {_count(len(file.operators), 'operator')} in "
        f"{_count(len(file.instructions), 'instruction')}, "
        f"{file.planned_bytes} of {target.board.pools.planned} planned bytes, "
        f"{file.size} of {target.board.program_room} program bytes, {layout}"
    )


@app.command("run")
def run(
    pte: Pte,
    target: OneTarget,
    inputs: Annotated[list[Path] | None, typer.Option("--input", "-i", help="One .npy per input, in order")] = None,
    outputs: Annotated[
        list[Path] | None, typer.Option("--output", "-o", help="Where to write outputs, in order")
    ] = None,
    no_lint: Annotated[bool, typer.Option("--no-lint", help="Run it even if it does not fit")] = False,
    redzones: Annotated[bool, typer.Option("--redzones", help="Watch the memory that no tensor owns")] = False,
    require_fvp: RequireFvp = False,
    timeout_multiplier: Multiplier = 1.0,
    runtime: Runtime = "builtin",
    targets_file: Targets = None,
    verbose: Verbose = False,
) -> None:
    """Run a program once.

    Inputs are .npy files of the program's logical shape and dtype, however they lie in memory: a channels-last
    input of shape [1, 3, 8, 8] is given as an array of shape (1, 3, 8, 8). Outputs are written the same way.
    """
    resolved = _resolve(target, targets_file, runtime, require_fvp=require_fvp)
    program = _read_program(pte)
    given = _read_inputs(program, inputs or [])
    _check_outputs(program, outputs or [])
    with _log_of_errors(verbose), flow.open_dut(resolved, multiplier=timeout_multiplier) as dut:
        result = flow.run(dut, program, given, linted=not no_lint, guards=RedZones if redzones else None)
        identity = dut.session().identity
    _tell_log(result.log, verbose)
    _tell_result(result, identity, resolved)
    if redzones:
        print(f"red zones intact: {RedZones(program).describe()}")
    for path, output in zip(outputs or [], result.outputs, strict=False):
        _write(path, output)
    _refuse_unwritten(result, resolved)


def _read_program(path: Path) -> Program:
    return Program.from_bytes(files.read(path, files.PROGRAM_LIMIT), str(path))


def _read_inputs(program: Program, paths: Sequence[Path]) -> tuple[HostTensor, ...]:
    specs = program.file.input_specs()
    if len(specs) != len(paths):
        wanted = " ".join(f"--input {number}.npy ({_wanted(spec)})" for number, spec in enumerate(specs))
        raise ConfigError(
            f"{program.name} takes {_count(len(specs), 'input')}, {len(paths)} given",
            hint=f"give {wanted or 'no --input'}",
        )
    return tuple(_read_input(path, number, spec) for number, (path, spec) in enumerate(zip(paths, specs, strict=True)))


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def _wanted(spec: TensorSpec) -> str:
    """Dtype and logical shape; the dim order is not the user's business here."""
    return f"{spec.dtype}{list(spec.shape)}" if spec.kind is ValueKind.TENSOR else f"a single {spec.kind.value}"


def _read_input(path: Path, number: int, spec: TensorSpec) -> HostTensor:
    """The array in the program's dim order and the target's byte order. ConfigError if it is another's."""

    def check(dtype: np.dtype[Any], shape: tuple[int, ...]) -> None:
        if spec.kind is not ValueKind.TENSOR:
            good = shape == () and dtype.kind in _NUMBERS[spec.kind]
        else:
            good = (dtype.name, shape) == (spec.dtype, spec.shape)  # ">f4" is called float32 too
        if not good:
            raise ConfigError(
                f"{path} is {dtype.name}{list(shape)}; input {number} of the program is {_wanted(spec)}",
                hint="shapes are logical; the layout in memory is seen to here",
            )

    array = files.read_array(path, check)
    if spec.kind is not ValueKind.TENSOR:
        return _scalar(path, array.item(), spec)
    return HostTensor.from_array(array.astype(array.dtype.newbyteorder("<")), spec.dim_order)


def _scalar(path: Path, value: int | float | bool, spec: TensorSpec) -> HostTensor:
    try:
        return HostTensor.from_scalar(value)
    except struct.error:
        raise ConfigError(f"{path}: {value} does not fit {_wanted(spec)}, which has 64 bits") from None


def _check_outputs(program: Program, paths: Sequence[Path]) -> None:
    """Before anything is run: what can be known of --output."""
    has = len(program.file.outputs)
    if len(paths) > has:
        raise ConfigError(f"{program.name} has {_count(has, 'output')}, {len(paths)} --output given")
    for path in paths:
        if path.is_dir() or not path.absolute().parent.is_dir():
            what = "it is a folder" if path.is_dir() else "its folder does not exist"
            raise ConfigError(f"cannot write --output {path}: {what}")


def _write(path: Path, output: HostTensor) -> None:
    try:
        path.write_bytes(output.npy())
    except OSError as error:
        raise InfraError(f"cannot write --output {path}: {error.strerror}") from error


def _tell_result(result: RunResult, identity: Identity, resolved: Resolved) -> None:
    print(f"ran       {_ran(result, resolved)}" + (f"; {resolved.why}" if resolved.why else ""))
    for number, output in enumerate(result.outputs):
        print(f"output {number}  {output.spec}: {_first_values(output)}")
    peaks = ", ".join(f"{name} {pool['used']} of {pool['size']}" for name, pool in asdict(result.stats).items())
    print(f"memory    {peaks} bytes")
    ticks = f"{result.ticks} of {identity.tick_source}, {identity.tick_hz} Hz" if identity.tick_hz else "not counted"
    print(f"ticks     {ticks}")


def _ran(result: RunResult, resolved: Resolved) -> str:
    return f"{result.ran.label} ({executes(result.ran.runtime, resolved.target)})"


def _first_values(output: HostTensor) -> str:
    values = output.array().ravel()
    shown = " ".join(str(value) for value in values[:SHOWN_VALUES])
    return shown + (" …" if values.size > SHOWN_VALUES else "")


def _refuse_unwritten(result: RunResult, resolved: Resolved) -> None:
    for number, mask in enumerate(result.unwritten):
        if mask.any():
            raise Mismatch(
                f"{int(mask.sum())} of {mask.size} elements of output {number} were never written",
                target=resolved.target.name,
            )


@app.command("selftest")
def selftest(
    target: Annotated[list[str], typer.Option("--target", "-t", help="Names, globs, comma lists or 'all'; repeatable")],
    require_fvp: RequireFvp = False,
    timeout_multiplier: Multiplier = 1.0,
    runtime: Runtime = "builtin",
    targets_file: Targets = None,
    verbose: Verbose = False,
) -> None:
    """Run a known program with known outputs on each target. Exit status 1 if a target fails it."""
    known = _targets(targets_file)
    check_runtime(runtime)
    failed = 0
    for name in select(target, known):
        try:
            with _log_of_errors(verbose):
                resolved = launchers.name_stand_in(resolve(name, known, runtime=runtime, require_fvp=require_fvp))
                with flow.open_dut(resolved, multiplier=timeout_multiplier) as dut:
                    result = flow.selftest(dut)
        except HarnessError as error:
            failed += 1
            print(f"FAIL  {name}: {error.describe()}", flush=True)
            continue
        _tell_log(result.log, verbose)
        print(f"PASS  {_ran(result, resolved)}", flush=True)
    raise typer.Exit(NO if failed else 0)


@app.command("upstream")
def upstream(
    target: Annotated[list[str], typer.Option("--target", "-t", help="Names, globs, comma lists or 'all'; repeatable")],
    pytest_args: Annotated[
        list[str] | None, typer.Argument(metavar="[-- PYTEST ARGS]", help="Such as -n 2, -k linear, FILE::TEST")
    ] = None,
    runtime: Runtime = "builtin",
    targets_file: Targets = None,
) -> None:
    """Run ExecuTorch's own Cortex-M test suite, unmodified, on targets."""
    suite = find_suite()
    select(target, _targets(targets_file))  # a wrong name is told here, in one line
    check_runtime(runtime)
    command = [sys.executable, "-m", "pytest", *_pytest_plugins()]
    # A configuration file beside the suite or above it is not about this run, and the suite's folder not to be
    # written to.
    command += [f"--confcutdir={suite}", "-c", os.devnull, f"--rootdir={suite}", "--import-mode=importlib"]
    command.append("--continue-on-collection-errors")  # a module that is broken costs only itself
    command += ["-o", f"cache_dir={cache_directory() / 'pytest-upstream'}", *_WARNINGS]
    command += [f"--hil-target={name}" for name in target] + [f"--runtime={runtime}"]
    command += [f"--targets-file={targets_file}"] if targets_file is not None else []
    raise typer.Exit(_PYTEST_STATUS.get(subprocesses.foreground([*command, *(pytest_args or [])]), CANNOT_TELL))


# Of pytest: all passed, some failed, interrupted. Any other, such as a wrong option or no test at all, tells nothing.
_PYTEST_STATUS = {0: 0, 1: NO, 2: INTERRUPTED}
# Thousands of deprecations within torch and ExecuTorch; what the harness warns of is about the tests themselves.
_WARNINGS = ("-W", "ignore", "-W", "default::cortex_m_hil.pytest_plugin.fixtures.HilWarning")


def _pytest_plugins() -> list[str]:
    """Where the package is not installed, its own pytest plugin must be named as well."""
    installed = any(point.value == "cortex_m_hil.pytest_plugin.plugin" for point in entry_points(group="pytest11"))
    names = (
        ["cortex_m_hil.pytest_plugin.upstream"]
        if installed
        else ["cortex_m_hil.pytest_plugin.plugin", "cortex_m_hil.pytest_plugin.upstream"]
    )
    return [word for name in names for word in ("-p", name)]


@app.command("compare-runtimes")
def compare_runtimes_command(
    ptes: Annotated[list[Path], typer.Argument(metavar="PROGRAM.pte...", show_default=False)],
    target: OneTarget,
    inputs: Annotated[list[Path] | None, typer.Option("--input", "-i", help="One .npy per input, in order")] = None,
    targets_file: Targets = None,
) -> None:
    """Where do builtin and an installed ExecuTorch differ? Steps programs in both, each operator on equal inputs.

    Inputs are those of --input (for one program), or those that pytest's --keep-programs left beside the program, or
    follow a formula. Exit status 1 if any operator gave other bytes, or either runtime refused a program.
    """
    if inputs and len(ptes) > 1:
        raise ConfigError("--input is for one program", hint="inputs beside P.pte are P.0.npy, P.1.npy, …")
    programs = [(program, _given(program, pte, inputs)) for pte in ptes for program in [_read_program(pte)]]
    first, second = (_resolve(target, targets_file, runtime) for runtime in RUNTIMES)
    with flow.open_dut(first) as builtin, flow.open_dut(second) as installed:
        print(f"compared  {builtin.ran().label}\nwith      {installed.ran().label}\n", flush=True)
        results = [_compare(builtin, installed, *one) for one in programs]
    compared = sum(len(result) for result in results if result is not None)
    differing = sum(one is not None for result in results for one in result or [])
    refused = results.count(None)
    print(
        f"{_count(len(programs), 'program')}, {_count(compared, 'result')} compared: {differing} differ"
        + (f"; {_count(refused, 'program')} not compared" if refused else "")
    )
    raise typer.Exit(NO if differing or refused else 0)


def _given(program: Program, pte: Path, inputs: Sequence[Path] | None) -> tuple[HostTensor, ...]:
    kept = [flow.kept_input(pte, number) for number in range(len(program.file.input_specs()))]
    if inputs or any(map(os.path.lexists, kept)):
        return _read_inputs(program, inputs or kept)
    return fuzz.example_inputs(program)


def _compare(
    builtin: flow.Dut, installed: flow.Dut, program: Program, inputs: Sequence[HostTensor]
) -> list[Difference | None] | None:
    """Says what differs, as it is found. None if one of the two refuses the program, or fails it."""
    try:
        found = list(compare_runtimes(builtin, installed, program, inputs))
    except VerdictError as error:
        print(f"{program.name}\n    {error.describe()}", flush=True)
        return None
    differences = [one for one in found if one is not None]
    if differences:
        print(program.name)
        for one in differences:
            print(f"    {one.instruction}  {one.operator}: {one}", flush=True)
    return found


@app.command("fuzz")
def fuzz_command(
    target: OneTarget,
    ptes: Annotated[list[Path] | None, typer.Argument(metavar="[PROGRAM.pte]...", show_default=False)] = None,
    number: Annotated[int, typer.Option("--count", min=1, help="Mutants, the programs taking turns")] = 10000,
    seed: Annotated[int, typer.Option("--seed", help="The same seed makes the same mutants")] = 0,
    corpus: Annotated[Path | None, typer.Option("--corpus", help="A folder for mutants that find a bug")] = None,
    runtime: Runtime = "builtin",
    targets_file: Targets = None,
) -> None:
    """Run hostile mutants of programs, by default of the target's canary. Exit status 1 if one finds a bug.

    A mutant may be refused with a type, or end with the program's own outputs bit for bit, or with others, which a
    test calls a Mismatch. A crash, a sanitizer's report, a hang without a loop, a host and a target that disagree:
    these are bugs.
    """
    resolved = _resolve(target, targets_file, runtime)
    programs = [_read_program(path) for path in ptes or []]
    with flow.open_dut(resolved) as dut:
        fuzzers = [fuzz.Fuzzer(dut, program) for program in programs] or [fuzz.canary_fuzzer(dut)]
        for unsuited in (one for one in fuzzers if one.unsuited):
            print(f"note      {unsuited.program.name}: none can pass here: {unsuited.unsuited}")
        print(f"fuzzing   {_label(resolved)}, seed {seed}", flush=True)
        tally = fuzz.campaign(fuzzers, number, seed, lambda one, judged: _tell_judgement(one, judged, corpus))
    _tell_tally(tally)
    raise typer.Exit(NO if tally.bugs else 0)


def _tell_judgement(fuzzer: fuzz.Fuzzer, judged: fuzz.Judgement, corpus: Path | None) -> None:
    """Bugs, as they are found."""
    if judged.outcome is not fuzz.Outcome.BUG:
        return
    where = f" ({fuzz.save(corpus, fuzzer, judged)})" if corpus is not None else ""
    edits = "; ".join(judged.mutant.edits)
    print(f"BUG       {fuzzer.program.name} {judged.mutant.number}: {edits}: {judged.detail}{where}", flush=True)


def _tell_tally(tally: fuzz.Tally) -> None:
    rows = [
        (kind.value, str(tally.of_kind(kind)), *(str(tally.counts[kind, outcome] or "-") for outcome in fuzz.Outcome))
        for kind in fuzz.Kind
    ]
    total = ("all", str(tally.total), *(str(tally.of(outcome)) for outcome in fuzz.Outcome))
    _table(("kind", "mutants", *(outcome.value for outcome in fuzz.Outcome)), [*rows, total])
    print(f"\n{tally.total} mutants, {tally.field_aware:.0%} of them field-aware; {_count(len(tally.bugs), 'bug')}")


@app.command("vboard", context_settings={"ignore_unknown_options": True, "help_option_names": []})
def virtual_board(arguments: Annotated[list[str] | None, typer.Argument(metavar="BOARD [ACTION]…")] = None) -> None:
    """A board without hardware: a simulator behind a serial port. See 'hil vboard --help'."""
    raise typer.Exit(vboard.main(arguments or []))


shim = typer.Typer(
    cls=_Commands, help="Stand-ins for Arm's FVPs: QEMU behind their command line.", no_args_is_help=True
)
app.add_typer(shim, name="fvp-shim")


@shim.callback()
def _shim() -> None:
    """Stand-ins for Arm's FVPs: QEMU behind their command line. They are NOT Arm's models."""


@shim.command("install")
def install_shim(
    folder: Annotated[Path, typer.Argument(metavar="DIR", show_default=False)],
    runner: Annotated[
        list[str] | None,
        typer.Option("--runner", help="Also a target's runner, for ExecuTorch's own tests; repeatable"),
    ] = None,
    runtime: Runtime = "builtin",
    targets_file: Targets = None,
) -> None:
    """Write stand-ins for Arm's FVPs into DIR, for tests of what drives them. They are NOT Arm's models.

    With --runner, ExecuTorch's Cortex-M tests run on that target as they are, no plugin needed: they look for the
    model on PATH, and for the runner below EXECUTORCH_ROOT. The stand-in then runs the target's machine, not the
    model's.
    """
    runners = [_resolve(name, targets_file, runtime) for name in select(runner or [], _targets(targets_file))]
    _check_runners(runners)
    paths = fvp_shim.install(folder)
    paths += [_install_runner(folder, resolved) for resolved in runners]
    for path in paths:
        print(path)
    print(
        f"\n{len(fvp_shim.MODELS)} of these are stand-ins and NOT Arm's models: QEMU runs behind their command line."
        '\nResults on them say "stand-in", and show nothing of Arm\'s models. Put the folder on PATH only where that is'
        f"\nwanted:\n  PATH={shlex.quote(str(folder.absolute()))}:$PATH"
    )
    for resolved in runners:
        where = shlex.quote(str(folder.absolute()))
        print(
            f"\nExecuTorch's tests on {_label(resolved)}:\n  EXECUTORCH_ROOT={where} PATH={where}:$PATH pytest "
            f"--cortex-m-target={resolved.target.cpu} {shlex.quote(str(find_suite() / 'ops'))}"
        )


def _check_runners(runners: Sequence[Resolved]) -> None:
    """ConfigError for what ExecuTorch's tests cannot name, or the stand-in cannot run."""
    taken: dict[str, str] = {}
    for resolved in runners:
        target = resolved.target
        if not isinstance(target.launcher, QemuLauncher):
            raise ConfigError(f"--runner {resolved.name}: not on QEMU, which is what the stand-in runs")
        strongest = CPU_ISAS[target.cpu][0]
        if target.isa is not strongest:
            raise ConfigError(
                f"--runner {resolved.name}: ExecuTorch's tests know {target.cpu} only as {strongest.value}",
                hint=f"hil upstream --target {resolved.name}",
            )
        if target.cpu in taken:
            raise ConfigError(f"--runner {resolved.name}: {taken[target.cpu]} is for {target.cpu} too")
        taken[target.cpu] = resolved.name


def _install_runner(folder: Path, resolved: Resolved) -> Path:
    """Its operators are those of ExecuTorch's own test runner, so that what is expected to fail there fails here."""
    target = resolved.target
    assert isinstance(target.launcher, QemuLauncher)
    elf = build_runner(target, resolved.runtime, {"HIL_UPSTREAM_OPERATORS": "ON"})
    return fvp_shim.install_runner(
        folder, elf.path, target.cpu, target=resolved.arrow, machine=target.launcher.machine,
        arguments=target.launcher.args,
    )  # fmt: skip


# --- boards --------------------------------------------------------------------------------------------------

board = typer.Typer(cls=_Commands, no_args_is_help=True, rich_markup_mode=None, pretty_exceptions_enable=False)
app.add_typer(board, name="board")
BoardPort = Annotated[str, typer.Argument(metavar="BOARD", help="A port, or a target's name", show_default=False)]


@board.callback()
def _board() -> None:
    """Who uses which board; take one for yourself, give it back, believe in it again."""


@board.command("status")
def board_status(as_json: Json = False) -> None:
    """List the boards that were used on this machine: held by whom and for what, wedged why, or free."""
    statuses = [leases.inspect(name) for name in leases.known_boards()]
    if as_json:
        print(json.dumps([asdict(status) for status in statuses], indent=2))
        return
    rows = [(status.board, status.describe(), str(status.health.failures)) for status in statuses]
    _table(("board", "state", "failures"), rows)


@board.command("hold")
def board_hold(
    name: BoardPort,
    minutes: Annotated[
        float,
        typer.Option("--minutes", "-m", callback=_within(0.01, 365 * 24 * 60), help="Until the tests get it back"),
    ] = 60.0,
    reason: Annotated[str, typer.Option("--reason", "-r", help="What others are told")] = "",
    wait: Annotated[float, typer.Option("--wait", callback=_within(0, DAY), help="Seconds to wait for it")] = 60.0,
    targets_file: Targets = None,
) -> None:
    """Keep a board from the tests, for a person, beyond this command."""
    holder = leases.hold(_port(name, targets_file), seconds=60.0 * minutes, reason=reason or "by hand", wait=wait)
    print(f"{name} is yours for {minutes:g} minutes; hil board release {name} ends it (pid {holder.pid})")


@board.command("release")
def board_release(name: BoardPort, targets_file: Targets = None) -> None:
    """End a hold."""
    holder = leases.release_hold(_port(name, targets_file))
    print(f"{name} was held by {holder.describe()}")


@board.command("clear")
def board_clear(name: BoardPort, targets_file: Targets = None) -> None:
    """Believe in a wedged board again, and forget its failures."""
    leases.clear(_port(name, targets_file))
    print(f"{name} is in use again")


def _port(name: str, targets_file: Path | None) -> str:
    """A target's port, or the port as it is."""
    target = _targets(targets_file).get(name)
    if target is None:
        return name
    if not isinstance(target.launcher, SerialLauncher):
        raise ConfigError(f"{name} is no board", hint="hil targets; hil board status")
    if len(target.launcher.pool) > 1:
        ports = ", ".join(port.url for port in target.launcher.pool)
        raise ConfigError(f"{name} has several boards", hint=f"name one of them: {ports}")
    return target.launcher.port


# --- output --------------------------------------------------------------------------------------------------


def _label(resolved: Resolved) -> str:
    return resolved.label + (f"; {resolved.why}" if resolved.why else "")


def _table(columns: Sequence[str], rows: Sequence[tuple[str, ...]]) -> None:
    """Columns without a frame. Into a pipe nothing is wrapped, so that lines can be searched."""
    table = Table(*columns, box=None, pad_edge=False, header_style="bold")
    for column in table.columns:
        column.overflow = "fold"
    for row in rows:
        table.add_row(*(Text(cell, style=_STYLES.get(cell, "")) for cell in row))
    console = Console(highlight=False, markup=False, emoji=False)
    if not console.is_terminal:
        console.width = sum(max(map(len, cells)) + 2 for cells in zip(columns, *rows, strict=True))
    with console.capture() as drawn:
        console.print(table)
    print("\n".join(line.rstrip() for line in drawn.get().splitlines()))


_STYLES = {"ok": "green", "absent": "yellow", "FAIL": "bold red"}


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """The console script. `arguments` default to the process's own."""
    _open_standard_streams()
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # an arrow on a Latin-1 terminal is no reason to fail
    with _exit_statuses():  # also of what is left to typer to print
        app(None if arguments is None else list(arguments), prog_name="hil")
    raise SystemExit(0)  # not reached: typer ends the process itself


if __name__ == "__main__":
    main()
