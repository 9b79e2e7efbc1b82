"""Output that several commands share. Modules that only runs need are imported where they are used."""

from __future__ import annotations

import contextlib
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, TypeVar

from rich.console import Console
from rich.status import Status
from rich.table import Table
from rich.text import Text

from cortex_m_hil.cli.answers import hint_for_commands
from cortex_m_hil.errors import VerdictError
from cortex_m_hil.errors.text import counted, printable
from cortex_m_hil.host.deadline import Deadline

if TYPE_CHECKING:
    from cortex_m_hil.flow.dut import Dut
    from cortex_m_hil.program.program import Program
    from cortex_m_hil.program.pte_file import Constant
    from cortex_m_hil.program.tensor import HostTensor
    from cortex_m_hil.runner.results import Identity, Ran, RunResult, Statistic, Usage
    from cortex_m_hil.targets.resolve import Resolved

_Step = TypeVar("_Step")
_Result = TypeVar("_Result")
SHOWN_VALUES = 8
_CONSTANTS: Final = 10  # constants on a line at most
# Descriptions of the fields in `fields_of_target` and `fields_of_result`, for `json_fields`.
TARGET_FIELDS: Final[Mapping[str, str]] = {
    "target, runs_as, reason": "the target that was named, the target that is used instead, and why",
    "shim": "the program that emulates Arm's FVP, if one is used; else empty",
    "runtime, executes": (
        "builtin or executorch, and whose kernels run: this project's, or those of ExecuTorch and CMSIS-NN"
    ),
    "runtime_reason": "why --runtime auto is builtin: no ExecuTorch is installed, or it does not fit; else empty",
    "runtime_lacks": "Cortex-M operators that the wheel has and the installed ExecuTorch does not, as text; else empty",
}
RAN_FIELDS: Final[Mapping[str, str]] = {
    **TARGET_FIELDS,
    "engine, runtime_version": "what ran it: the simulator or board, and the version of the runtime",
}
CONSTANTS_HELP: Final = (
    "what the constant methods return, by name: a number or a text; a list; of a tensor its dtype and shape, as text"
)
RESULT_FIELDS: Final[Mapping[str, str]] = {
    "outputs": "a list of dtype, shape",
    "peaks": (
        "used, size (0: no bound) and unit of program (the .pte), planned (the memory plan), method (what the loaded "
        "program keeps of the method pool), stack, temp (the most of that pool that was allocated and freed again)"
    ),
    "instructions": "CPU instructions executed, an exact count; null if the target does not count them",
    "ticks, tick_source, tick_hz": "ticks, what counts them, and their rate; null, none and 0 if nothing counts",
    "clock": (
        "the unit of ticks: instructions (of the CPU), cycles (of the core), model_ticks (of an FVP), or host_ticks "
        "(host time, which is no measure of cost)"
    ),
}


def constants_as_fields(constants: Mapping[str, Constant]) -> dict[str, Any]:
    """Return constants as values for JSON."""
    return {name: _plain(value) for name, value in constants.items()}


def _plain(value: Constant) -> Any:
    from cortex_m_hil.program.tensor import HostTensor

    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    return str(value.spec) if isinstance(value, HostTensor) else value


def constants_in_short(constants: Mapping[str, Constant]) -> str:
    """Return constants as text: `input0_scale 0.5, input0_zp 3`; of many only the first ones."""
    shown = [f"{name} {_plain(value)}" for name, value in islice(constants.items(), _CONSTANTS)]
    more = len(constants) - len(shown)
    return printable(", ".join(shown)) + (f" and {counted(more, 'more constant')} (hil inspect size)" if more else "")


def refused_by_lint(dut: Dut, program: Program, *, linted: bool) -> str:
    """Return why lint would refuse a program that was run with --no-lint; else ""."""
    from cortex_m_hil import flow
    from cortex_m_hil.checks.lint_rules.hints import UNLINTED

    return "" if linted else flow.refused_by_lint(dut, program).replace(UNLINTED, "--no-lint")


@contextlib.contextmanager
def options_named() -> Iterator[None]:
    """Replace the arguments `lint=False` and `known=…` by the command's options in verdicts that the block raises."""
    from cortex_m_hil.checks.lint_rules.hints import UNLINTED

    try:
        yield
    except VerdictError as error:
        error.hint = hint_for_commands(error.hint.replace(UNLINTED, "--no-lint"))
        error.details = tuple((label, text.replace(UNLINTED, "--no-lint")) for label, text in error.details)
        raise


@contextlib.contextmanager
def going_on(said: str) -> Iterator[None]:
    """Print `said`, which tells how to resume, if the block is interrupted."""
    try:
        yield
    except KeyboardInterrupt:
        raise KeyboardInterrupt(said) from None


def cut(line: str) -> str:
    """Return a line cut to the width of a terminal; for a pipe it is not cut, so that it can be searched."""
    width = shutil.get_terminal_size().columns
    return line if len(line) <= width or not sys.stdout.isatty() else f"{line[: width - 1]}…"


def status(text: str = "") -> Status:
    """Return a context in which a terminal shows a status line about the current work on standard error."""
    return Console(stderr=True, markup=False).status(text)


def with_status(
    steps: Sequence[_Step], name: Callable[[_Step], str], work: Callable[[_Step], _Result]
) -> Iterator[_Result]:
    """Yield the result of `work` for each step. During the work on a step, a terminal shows the step's name.

    Args:
        steps: the arguments of `work`.
        name: returns the name of a step.
        work: does a step.
    """
    for number, step in enumerate(steps, 1):
        with status(f"{number} of {len(steps)}: {name(step)}"):
            result = work(step)
        yield result


class Progress:
    """A progress display on standard error: one line that a terminal refreshes, elsewhere a line now and then.

    A text whose first word differs from the last text's is shown at once, if the work has a name.
    """

    def __init__(self, name: str = "", seconds: float = 10.0) -> None:
        """Show `name` before each text.

        Args:
            name: the name of the work, such as the target that is built; "": no name.
            seconds: without a terminal, the time between two lines that begin with the same word.
        """
        self._name, self._seconds = f"{name}: " if name else "", seconds
        self._console = Console(stderr=True, markup=False)
        self._status = self._console.status("")
        self._word, self._next = "", Deadline.after(0 if name else seconds)

    def __enter__(self) -> Progress:
        self._status.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._status.stop()

    def __call__(self, text: str) -> None:
        word = text.partition(" ")[0]
        if self._console.is_terminal:
            self._status.update(f"{self._name}{text}")
        elif self._next.expired or (self._name and word != self._word):
            self._next = Deadline.after(self._seconds)
            print(f"{self._name}{text}", file=sys.stderr, flush=True)
        self._word = word


def lines_of_result(result: RunResult, identity: Identity, resolved: Resolved) -> Iterator[str]:
    from cortex_m_hil.runner.results import STATISTICS

    yield f"ran       {ran_by(result, resolved)}" + (f"; {resolved.reasons}" if resolved.reasons else "")
    for number, output in enumerate(result.outputs):
        yield f"output {number}  {output.spec}: {_first_values(output)}"
    yield f"peaks     {', '.join(_peak(row, result.stats[row.name]) for row in STATISTICS)}"
    if result.instructions is not None:
        yield f"executed  {result.instructions} instructions"
        return
    source = f"{identity.tick_source}, {identity.tick_hz} Hz, {result.ran.clock.meaning}"
    yield f"ticks     {f'{result.ticks} of {source}' if identity.tick_hz else 'not counted'}"


def fields_of_result(result: RunResult, identity: Identity) -> dict[str, Any]:
    """Return the fields of a result for JSON.

    `ticks` and `instructions` are None where the target does not count them.
    """
    from cortex_m_hil.runner.results import STATISTICS

    return {
        "outputs": [{"dtype": output.spec.dtype, "shape": output.spec.shape} for output in result.outputs],
        "peaks": {
            row.name: {"used": result.stats[row.name].used, "size": result.stats[row.name].size, "unit": row.unit}
            for row in STATISTICS
        },
        "instructions": result.instructions,
        "ticks": result.ticks if identity.tick_hz else None,
        "tick_source": identity.tick_source,
        "tick_hz": identity.tick_hz,
        "clock": result.ran.clock.value,
    }


def fields_of_target(resolved: Resolved, ran: Ran | None = None) -> dict[str, Any]:
    """Return the fields about the requested target, and about the target that runs and why.

    Args:
        resolved: the target.
        ran: the engine and runtime that ran, for further fields; None: nothing was run.
    """
    from cortex_m_hil.targets.runtimes import executes

    fields = {
        "target": resolved.name,
        "runs_as": resolved.target.name,
        "reason": resolved.fallback_reason,
        "shim": resolved.shim,
        "runtime": resolved.runtime,
        "executes": executes(resolved.runtime, resolved.target),
        "runtime_reason": resolved.runtime_reason,
        "runtime_lacks": resolved.lacks,
    }
    return fields if ran is None else {**fields, "runtime_version": ran.runtime_version, "engine": ran.engine}


def _peak(statistic: Statistic, usage: Usage) -> str:
    bound = f" of {usage.size}" if usage.size else ""
    return f"{statistic.name} {usage.used}{bound} {statistic.unit}"


def ran_by(result: RunResult, resolved: Resolved) -> str:
    from cortex_m_hil.targets.runtimes import executes

    return f"{result.ran.label} ({executes(result.ran.runtime, resolved.target)})"


def _first_values(output: HostTensor) -> str:
    values = output.array().ravel()
    shown = " ".join(str(value) for value in values[:SHOWN_VALUES])
    return shown + (" …" if values.size > SHOWN_VALUES else "")


# --- output --------------------------------------------------------------------------------------------------


def label_of(resolved: Resolved) -> str:
    return resolved.label + (f"; {resolved.reasons}" if resolved.reasons else "")


def table(columns: Sequence[str], rows: Sequence[tuple[str, ...]]) -> str:
    """Return a table without a frame. For a pipe lines are not wrapped, so that they can be searched."""
    drawing = Table(*columns, box=None, pad_edge=False, header_style="bold")
    for column in drawing.columns:
        column.overflow = "fold"
    for row in rows:
        drawing.add_row(*(Text(cell, style=_STYLES.get(cell, "")) for cell in row))
    console = Console(highlight=False, markup=False, emoji=False)
    if not console.is_terminal:
        console.width = sum(max(map(len, cells)) + 2 for cells in zip(columns, *rows, strict=True))
    with console.capture() as drawn:
        console.print(drawing)
    return "\n".join(line.rstrip() for line in drawn.get().splitlines())


def row_of(cells: Sequence[str], widths: Sequence[int]) -> str:
    """Return one line of a table that is printed row by row.

    Args:
        cells: the texts.
        widths: the widths of the columns; the last columns may have none.
    """
    padded = [cell.ljust(width) for cell, width in zip(cells, widths, strict=False)] + list(cells[len(widths) :])
    console = Console(highlight=False, markup=False, emoji=False, soft_wrap=True)
    with console.capture() as drawn:
        console.print(*(Text(cell, style=_STYLES.get(cell.strip(), "")) for cell in padded), sep="  ")
    return drawn.get().rstrip()


_STYLES = {"ok": "green", "absent": "yellow", "FAIL": "bold red"}
