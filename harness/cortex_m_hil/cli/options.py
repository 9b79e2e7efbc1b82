"""Options that several commands share. Modules that only some commands need are imported where they are used."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields, is_dataclass
from enum import Enum
from inspect import Parameter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args, get_origin, get_type_hints

import typer

from cortex_m_hil.cli.command_output import Answer, answering
from cortex_m_hil.cli.error_output import answer_each
from cortex_m_hil.errors import ConfigError
from cortex_m_hil.host import timeouts
from cortex_m_hil.host.files import check_folder, check_new_file
from cortex_m_hil.host.numbers import in_range
from cortex_m_hil.host.pytest_options import pytest_options
from cortex_m_hil.targets.runtimes import AUTO, ONE

if TYPE_CHECKING:
    from cortex_m_hil.flow.dut import Dut
    from cortex_m_hil.program.program import Program
    from cortex_m_hil.targets.resolve import Resolved
    from cortex_m_hil.targets.target import Target

Targets = Annotated[
    Path | None,
    typer.Option(
        "--targets-file",
        metavar="FILE",
        help="Targets beside those shipped with hil [default: ./targets.yaml, if any]",
        show_default=False,
    ),
]
OneTarget = Annotated[str, typer.Option("--target", "-t", metavar="NAME", help="A target's name; see 'hil targets'")]
OptionalTarget = Annotated[
    list[str] | None,
    typer.Option("--target", "-t", metavar="NAME", help="Target names, globs or comma lists; repeatable"),
]
SeveralTargets = Annotated[
    list[str],
    typer.Option("--target", "-t", metavar="NAME", help="Target names, globs, comma lists or 'all'; repeatable"),
]
Runtime = Annotated[str, typer.Option("--runtime", metavar="RUNTIME", help=ONE)]
Pte = Annotated[Path, typer.Argument(metavar="PROGRAM.pte", help="A .pte or .bpte file", show_default=False)]
Inputs = Annotated[
    list[Path] | None,
    typer.Option(
        "--input", "-i", metavar="FILE.npy", help="A .npy file for one input; repeat it in the order of the inputs"
    ),
]
Method = Annotated[
    str,
    typer.Option(
        "--method", metavar="NAME", show_default=False,
        help="The method [default: forward, or the only one that computes (methods that only return constants do not "
        "count)]",
    ),
]  # fmt: skip
QuantizeInputs = Annotated[
    bool, typer.Option("--quantize-inputs", help="Quantise floats for int8 inputs, by the program's own scale")
]


class IoChoice(str, Enum):
    """The dtype of a lowered module's inputs and outputs."""

    FLOAT = "float"
    INT8 = "int8"


Io = Annotated[
    IoChoice,
    typer.Option("--io", metavar="float|int8", help="Dtype of the inputs and outputs of a module that hil lowers"),
]
# Only declared here: `answers` writes the answers, and `app` looks for --json before typer.
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object per line")]
NoLint = Annotated[bool, typer.Option("--no-lint", help="Skip lint")]
Known = Annotated[
    list[str] | None,
    typer.Option(
        "--known",
        metavar="NUMBER|NAME",
        help="Accept a known bug of ExecuTorch (hil docs known_bugs), by number, or an operator that it lacks, by name",
    ),
]
Upstream = Annotated[bool, typer.Option("--upstream", help="Also run ExecuTorch's own tests")]
Tests = Annotated[
    list[str] | None, typer.Argument(metavar="[TEST]...", help="Test files, folders or node ids, as for pytest")
]
RequireFvp = Annotated[
    bool, typer.Option("--require-fvp", help="Fail if the FVP is not installed, instead of using QEMU")
]
Verbose = Annotated[
    bool, typer.Option("--verbose", "-v", help="With an error, print its log (compiler, simulator, board)")
]


def accepted_on_command_line(known: Sequence[str] | None) -> tuple[int | str, ...]:
    """Parse --known: numbers of known bugs and names of operators. Raise ConfigError for anything else."""
    from cortex_m_hil.checks.executorch_verdict import accepted_words

    return accepted_words(known or ())


def within(low: float, high: float) -> Callable[[float | None], float | None]:
    """Return the callback of an option that checks a range: typer's own `min` and `max` let NaN through."""

    def check(value: float | None) -> float | None:
        try:
            return None if value is None else in_range(value, low, high)
        except ValueError as error:
            raise typer.BadParameter(str(error)) from None

    return check


def folder_to_write(param: typer.CallbackParam, value: Path | None) -> Path | None:
    """Check the folder of an option, as its callback: it must be writable, before the work whose results go there.

    Raises:
        ConfigError: files could not be written into the folder.
    """
    if value is not None:
        check_folder(value, param.opts[0])
    return value


def file_to_write(param: typer.CallbackParam, value: Path | None) -> Path | None:
    """Check the file of an option, as its callback: it must be writable, before the work whose result it is for.

    Raises:
        ConfigError: the file could not be written.
    """
    if value is not None:
        check_new_file(value, param.opts[0])
    return value


DAY, YEAR = 86400.0, 365 * 86400.0  # in seconds
Multiplier = Annotated[
    float,
    typer.Option(
        "--timeout-multiplier",
        metavar="FACTOR",
        callback=within(*timeouts.MULTIPLIERS),
        help="Multiply every time limit by this",
    ),
]


@dataclass(frozen=True)
class TargetOptions:
    """The values of the options about targets; `Annotated[TargetOptions, names]` has only the options of `names`."""

    require_fvp: RequireFvp = False
    timeout_multiplier: Multiplier = 1.0
    runtime: Runtime = AUTO
    targets_file: Targets = None

    def choose(self, patterns: Sequence[str], *, live: bool = True) -> Choice:
        """Select targets by names, globs, comma lists or `all`; `live` is passed to `targets.resolve.resolve`.

        Raises:
            ConfigError: a pattern matches no target, or there is no such runtime.
        """
        from cortex_m_hil.targets.resolve import select

        known = self._known()
        if not patterns:
            raise typer.BadParameter("no target is named; hil targets lists them", param_hint="--target")
        names = select(patterns, known)
        if not names:
            raise ConfigError("no target is named", hint="--target NAME; hil targets lists them")
        return Choice(names, lambda name: self._resolve(name, known, live=live))

    def resolve(self, name: str) -> Resolved:
        """Resolve a target's name into the target and runtime that run on this machine.

        Raises:
            ToolchainError: the target cannot run here.
            ConfigError: there is no target or runtime of that name.
        """
        return self._resolve(name, self._known(), live=True)

    def _known(self) -> Mapping[str, Target]:
        from cortex_m_hil.targets.load import load_user_targets
        from cortex_m_hil.targets.runtimes import check_choice

        check_choice(self.runtime)
        return load_user_targets(self.targets_file)

    def _resolve(self, name: str, known: Mapping[str, Target], *, live: bool) -> Resolved:
        from cortex_m_hil.targets.resolve import resolve

        return resolve(name, known, runtime=self.runtime, require_fvp=self.require_fvp, live=live)

    def open(self, resolved: Resolved) -> Dut:
        from cortex_m_hil import flow

        return flow.open_dut(resolved, multiplier=self.timeout_multiplier)

    def for_pytest(self, names: Sequence[str]) -> list[str]:
        """Return the pytest options that correspond to these options, with these targets.

        `auto` is not passed on, since pytest's ini file may name a runtime.
        """
        runtime = "" if self.runtime == AUTO else self.runtime
        return pytest_options(
            target=[*names], runtime=runtime, timeout_multiplier=self.timeout_multiplier,
            targets_file=self.targets_file,
        )  # fmt: skip


@dataclass(frozen=True)
class ProgramOptions:
    """Options about programs in files."""

    inputs: Inputs = None
    method: Method = ""
    quantize: QuantizeInputs = False

    def load(self, path: Path) -> Program:
        """Return the program of a `.pte` or `.bpte`, with the method that is named.

        Raises:
            ProgramRejected: the bytes are no program that is supported.
            ConfigError: the file cannot be read; there is no such method, or --method has to say which.
        """
        from cortex_m_hil.api import load_program

        return load_program(path, method=self.method)


@dataclass(frozen=True)
class ModelOptions(ProgramOptions):
    """Options about programs in files, and modules that are lowered."""

    io: Io = IoChoice.FLOAT

    def io_of(self, model: str) -> Literal["float", "int8"]:
        """Return the value of --io for a module; raise ConfigError where it is given for the file of a program."""
        from cortex_m_hil.program.bpte_file import SUFFIXES

        if self.io is IoChoice.INT8 and model.endswith(SUFFIXES):
            what = f"--io {self.io.value}: {model} is lowered already"
            raise ConfigError(what, hint="leave --io out; --quantize-inputs quantises floats for int8 inputs")
        return self.io.value


@dataclass(frozen=True)
class Choice:
    """The targets that a command is called for. `resolve` returns the target and runtime that run, or raises."""

    names: Sequence[str]
    resolve: Callable[[str], Resolved]

    def answer_each(self, ask: Callable[[Resolved], Answer]) -> None:
        """Write an answer for each target, and end the command, as `error_answers.answer_each` does."""
        answer_each(self.names, lambda name: ask(self.resolve(name)))


# Sets of target options; a command has one of them.
TimedOptions = Annotated[TargetOptions, ("timeout_multiplier", "runtime", "targets_file")]
RuntimeOptions = Annotated[TargetOptions, ("runtime", "targets_file")]
MultiplierOptions = Annotated[TargetOptions, ("timeout_multiplier", "targets_file")]
FvpOptions = Annotated[TargetOptions, ("require_fvp", "targets_file")]
MethodOption = Annotated[ProgramOptions, ("method",)]
EvaluatedOptions = Annotated[ModelOptions, ("method", "io")]
BundleOptions = Annotated[TargetOptions, ("require_fvp", "timeout_multiplier", "targets_file")]


def with_options(command: Callable[..., None], *, log: bool, json: bool) -> Callable[..., None]:
    """Return a command for typer, with the options that all commands have added.

    Args:
        command: the function. A parameter of it that is a dataclass stands for an option for each field, or for those
            of the fields that `Annotated` names.
        log: whether to add --verbose, which shows the log of an error.
        json: whether to add --json.
    """
    groups: dict[str, tuple[Any, list[str]]] = {}
    options: dict[str, Parameter] = {}
    shared: dict[str, Parameter] = {}
    for one in inspect.signature(command, eval_str=True).parameters.values():
        kind, *named = get_args(one.annotation) if get_origin(one.annotation) is Annotated else (one.annotation,)
        if is_dataclass(kind):
            hints = get_type_hints(kind, include_extras=True)
            offered = [field for field in fields(kind) if not named or field.name in named[0]]
            groups[one.name] = kind, [field.name for field in offered]
            shared |= {field.name: _option(field.name, field.default, hints[field.name]) for field in offered}
        else:
            options[one.name] = _option(one.name, one.default, one.annotation)
    every = {"verbose": (Verbose, log), "as_json": (Json, json and "as_json" not in options)}
    added = {name: kind for name, (kind, wanted) in every.items() if wanted}
    options |= shared | {name: _option(name, False, kind) for name, kind in added.items()}

    def call(**given: Any) -> None:
        own = {name: given.pop(name) for name in added}
        made = {name: kind(**{one: given.pop(one) for one in names}) for name, (kind, names) in groups.items()}
        with answering(verbose=own.get("verbose")):
            command(**given, **made)

    call.__name__, call.__doc__, call.__annotations__ = command.__name__, command.__doc__, {}
    call.__signature__ = inspect.Signature(list(options.values()))  # type: ignore[attr-defined]
    return call


def _option(name: str, default: object, annotation: object) -> Parameter:
    default = Parameter.empty if default is MISSING else default
    return Parameter(name, Parameter.KEYWORD_ONLY, default=default, annotation=annotation)
