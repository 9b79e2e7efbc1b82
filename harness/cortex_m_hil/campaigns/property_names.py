"""The names of all properties that a test records; docs/writing-tests.md has the meaning and the unit of each.

In pytest's reports and in JUnit files their names begin with PREFIX; in a nightly's results they have no prefix.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

from cortex_m_hil.runner.statistics import STATISTICS
from cortex_m_hil.targets.target import Clock

PREFIX: Final = "hil_"

TEST, REQUESTED, RAN, SEED, ISA = "test", "requested", "ran", "seed", "isa"
VERDICT, ERROR, OPERATOR, STAGE, EARLIER = "verdict", "error", "operator", "stage", "earlier"
ENGINE, RUNTIME, BUILD_ID, PROGRAM = "engine", "runtime", "build_id", "program"
RUNTIME_NAME, RUNTIME_REASON = "runtime_name", "runtime_reason"
RUNTIME_DIFFERENCE: Final = "runtime_difference"
LOWERING, LOWER_SECONDS, RUN_SECONDS = "lowering", "lower_seconds", "run_seconds"
OUTPUTS, OPERATOR_OUTPUTS, UNINFORMATIVE = "outputs", "operator_outputs", "uninformative"
AT_FAULT, WRONG_LAYOUT, BUNDLE = "at_fault", "wrong_layout", "bundle"
KNOWN_BUGS, MISSING_ELSEWHERE = "known_bugs", "missing_elsewhere"
QUARANTINE, QUARANTINE_ENDED = "quarantine", "quarantine_ended"

MAX_QUANTA, FAKE_QUANT_QUANTA = "max_quanta", "fake_quant_quanta"
MAX_ABS_ERROR, SQNR_DB = "max_abs_error", "sqnr_db"
CORTEX_M_OPERATORS, CORTEX_M_MACS = "cortex_m_operators", "cortex_m_macs"
INSTRUCTIONS: Final = Clock.INSTRUCTIONS.value
CYCLES: Final = Clock.CORE.value
BYTES: Final = "_bytes"
"""The end of the names of all figures that are bytes."""
DECIBELS: Final = "_db"
"""The end of the names of all figures that are logarithms."""
LATENCY_TICKS: Final = "latency_ticks"
PTE_BYTES, WATCHED_BYTES = "pte_bytes", "watched_bytes"
ELF_BYTES, ELF_STORED_BYTES = "elf_bytes", "elf_stored_bytes"
_PEAKS: Final = {one.name: one.figure for one in STATISTICS}
PLANNED_BYTES: Final = _PEAKS["planned"]
STACK_BYTES: Final = _PEAKS["stack"]
FIT: Final = "fit_"
"""The beginning of the names of the figures of `--fit`."""
NOT_FITTED: Final = "not_fitted"

# Names of further fields of a nightly's results.
CPU_SECONDS, PARTS, RUNNER, PROFILE = "cpu_seconds", "parts", "runner", "profile"
PLANNED_PEAK: Final = "planned_peak"
"""The name of parts that are no parts of a figure: the bytes at each bank's peak, by bank and operator."""
LAYERS: Final = "layers"
"""The name of parts of the instructions besides those by operator: by operator and the module that it is in."""


def fit_bytes(region: str) -> str:
    """Return the name of the property for the least bytes of a memory region with which a program still runs."""
    return f"{FIT}{region.replace(' ', '_')}{BYTES}"


def recorded(properties: Iterable[tuple[str, Any]]) -> Iterator[tuple[str, Any]]:
    """Yield names, without PREFIX, and values of the properties that belong to this package."""
    for name, value in properties:
        if str(name).startswith(PREFIX):
            yield name.removeprefix(PREFIX), value
