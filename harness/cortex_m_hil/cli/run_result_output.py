"""Text and JSON fields of a run's result and its target. Modules that only runs need are imported late."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from cortex_m_hil.errors.text import counted, printable

if TYPE_CHECKING:
    from cortex_m_hil.program.pte_file import Constant
    from cortex_m_hil.program.tensor import HostTensor
    from cortex_m_hil.runner.run_results import Identity, Ran, RunResult, Usage
    from cortex_m_hil.runner.statistics import Statistic
    from cortex_m_hil.targets.resolve import Resolved

SHOWN_VALUES = 8
_CONSTANTS: Final = 10  # constants on a line at most
# Descriptions of the fields in `fields_of_target` and `fields_of_result`, for `json_fields`.
TARGET_FIELDS: Final[Mapping[str, str]] = {
    "target": "the target that was named",
    "runs_as": "the target that is used",
    "reason": "why another target is used than was named; else empty",
    "shim": "the program that emulates Arm's FVP, if one is used; else empty",
    "runtime": "builtin or executorch",
    "executes": "whose kernels run: this project's, or those of ExecuTorch and CMSIS-NN",
    "runtime_reason": "why --runtime auto is builtin: no ExecuTorch is installed, or it does not fit; else empty",
    "runtime_lacks": "Cortex-M operators that the wheel has and the installed ExecuTorch does not, as text; else empty",
}
RAN_FIELDS: Final[Mapping[str, str]] = {
    **TARGET_FIELDS,
    "engine": "the simulator or board that ran the program",
    "runtime_version": "the version of the runtime",
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
    "ticks": "the ticks of the run; null if nothing counts them",
    "tick_source": "what counts the ticks; none if nothing does",
    "tick_hz": "the ticks' rate per second; 0 if nothing counts them",
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


def lines_of_result(result: RunResult, identity: Identity, resolved: Resolved) -> Iterator[str]:
    from cortex_m_hil.runner.statistics import STATISTICS

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
    from cortex_m_hil.runner.statistics import STATISTICS

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
        "executes": executes(resolved.runtime, resolved.target.cpu),
        "runtime_reason": resolved.runtime_reason,
        "runtime_lacks": resolved.lacks,
    }
    return fields if ran is None else {**fields, "runtime_version": ran.runtime_version, "engine": ran.engine}


def _peak(statistic: Statistic, usage: Usage) -> str:
    bound = f" of {usage.size}" if usage.size else ""
    return f"{statistic.name} {usage.used}{bound} {statistic.unit}"


def ran_by(result: RunResult, resolved: Resolved) -> str:
    from cortex_m_hil.targets.runtimes import executes

    return f"{result.ran.label} ({executes(result.ran.runtime, resolved.target.cpu)})"


def _first_values(output: HostTensor) -> str:
    values = output.array().ravel()
    shown = " ".join(str(value) for value in values[:SHOWN_VALUES])
    return shown + (" …" if values.size > SHOWN_VALUES else "")


def label_of(resolved: Resolved) -> str:
    return resolved.label + (f"; {resolved.reasons}" if resolved.reasons else "")
