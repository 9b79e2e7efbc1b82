"""Counts events of the core's performance monitoring unit (PMU), which Armv8.1-M has, by instruction of a program.

A PMU counts a few events at once, so a program is run as often as the events need, by single steps; its outputs must be
the same each time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from cortex_m_hil import flow
from cortex_m_hil.errors import ConfigError, Mismatch, did_you_mean
from cortex_m_hil.errors.text import counted
from cortex_m_hil.flow.stepping import steps
from cortex_m_hil.program.program import Program
from cortex_m_hil.program.tensor import HostTensor
from cortex_m_hil.runner.links.protocol import EventCounts
from cortex_m_hil.runner.session.session import Session


@dataclass(frozen=True)
class PmuEvent:
    """An event that a PMU counts.

    Attributes:
        name: Arm's name, in lower case.
        number: Arm's number.
        unit: what one of them is.
    """

    name: str
    number: int
    unit: str


# Names and numbers: CMSIS_6 of commit 7f62ddc, CMSIS/Core/Include/m-profile/armv8m_pmu.h.
GROUPS: Final[Mapping[str, tuple[PmuEvent, ...]]] = {
    "mve": (
        PmuEvent("inst_retired", 0x0008, "executed instructions, of all kinds"),
        PmuEvent("mve_inst_retired", 0x0200, "executed MVE instructions"),
        PmuEvent(
            "mve_int_mac_retired", 0x0228, "executed MVE instructions that multiply, or multiply and add, integers"
        ),
        PmuEvent("mve_ldst_retired", 0x0238, "executed MVE instructions that load or store"),
    ),
    "cache": (
        PmuEvent("l1i_cache_refill", 0x0001, "refills of the instruction cache"),
        PmuEvent("l1d_cache", 0x0004, "accesses to the data cache"),
        PmuEvent("l1d_cache_refill", 0x0003, "refills of the data cache"),
        PmuEvent("l1d_cache_wb", 0x0015, "write-backs of the data cache"),
    ),
    "stalls": (
        PmuEvent("cpu_cycles", 0x0011, "cycles"),
        PmuEvent("stall_frontend", 0x0023, "cycles without an issue because of the frontend, which fetches"),
        PmuEvent("stall_backend", 0x0024, "cycles without an issue because of the backend, which executes"),
        PmuEvent("mve_stall", 0x02CC, "cycles that an MVE instruction stalls"),
    ),
}
"""The events of `hil profile --counters`, by group."""
_WITH_PMU: Final = ("cortex-m55", "cortex-m85")  # whose part numbers firmware/target_library/pmu.c knows
_KNOWN: Final = ", ".join(_WITH_PMU)
EVENTS: Final = {event.name: event for group in GROUPS.values() for event in group}

Counts = Mapping[str, int | None]
"""The counts of events by name; None: more than the PMU's 32 bits hold."""


@dataclass(frozen=True)
class CountedEvents:
    """The counts of events.

    Attributes:
        source: who counted, and in how many runs.
        rows: for each instruction that was executed the counts of all its executions in one run.
    """

    source: str
    rows: Mapping[int, Counts]


def events_of(groups: Iterable[str]) -> tuple[PmuEvent, ...]:
    """Return the events of groups, each once. Raises ConfigError for a group that is not in GROUPS."""
    names = list(groups)
    for name in names:
        if name not in GROUPS:
            raise ConfigError(f"no group of counters {name!r}", hint=did_you_mean(name, GROUPS))
    return tuple(dict.fromkeys(event for name in names for event in GROUPS[name]))


def count_events(
    dut: flow.Dut,
    program: Program,
    inputs: Sequence[HostTensor],
    events: Sequence[PmuEvent],
    outputs: Sequence[HostTensor],
    told: Callable[[str], None] = lambda text: None,
) -> CountedEvents:
    """Run a program by single steps, as often as the PMU needs for all events, and count them by instruction.

    Args:
        dut: the target.
        program: the program.
        inputs: its inputs.
        events: the events.
        outputs: the outputs of a run on these inputs.
        told: called with a text about each run before it begins.

    Raises:
        ConfigError: the target has no PMU, or one that stands still.
        NotOffered: the user's firmware does not answer the request.
        Mismatch: a run has other outputs.
        HarnessError: a run fails.
    """
    at_once = counters_of(dut)
    parts = [events[at : at + at_once] for at in range(0, len(events), at_once)]
    rows: dict[int, dict[str, int | None]] = {}
    for number, part in enumerate(parts, 1):
        told(f"run {number} of {len(parts)} with counters")
        _count(dut, program, inputs, part, outputs, rows)
    how = f"{counted(at_once, 'counter')} of 32 bits, {counted(len(parts), 'run')} by single steps"
    return CountedEvents(f"the core's PMU, {how}", rows)


def counters_of(dut: flow.Dut) -> int:
    """Return how many events the target's PMU counts at once. Raises ConfigError where it counts none."""
    found, target = dut.session().choose_events(()), dut.target
    if found.is_counting:
        return found.counters
    if found.counters:
        what = f"the PMU of {target.name} stands still: its core counts no executed instruction"
        hint = "the PMU needs non-invasive debug, which the chip's signals or lock bits enable"
        raise ConfigError(what, target=dut.resolved.name, hint=hint)
    why = f"the firmware knows those of {_KNOWN}, and this is a {target.cpu}"
    if target.cpu in _WITH_PMU:
        why = f"{dut.ran().engine} gives none to its {target.cpu}: PMU_TYPE reads as 0"
    hint = f"a board with one of {_KNOWN}, or no --counters"
    raise ConfigError(f"{target.name} has no PMU: {why}", target=dut.resolved.name, hint=hint)


def _count(
    dut: flow.Dut,
    program: Program,
    inputs: Sequence[HostTensor],
    events: Sequence[PmuEvent],
    outputs: Sequence[HostTensor],
    rows: dict[int, dict[str, int | None]],
) -> None:
    """Run a program once by single steps, and add the counts of some events to the rows of its instructions."""

    def choose(session: Session, index: int) -> None:
        if index == 0:
            session.choose_events([event.number for event in events])

    for done in steps(dut, program, inputs, before=choose):
        _add(rows.setdefault(done.index, {}), events, done.session.event_counts())
    again = dut.session().outputs()
    if [one.data for one in again] != [one.data for one in outputs]:
        what = f"{program.name} has other outputs in a run with counters than before, on the same inputs"
        raise Mismatch(what, target=dut.resolved.name, hint="hil run --redzones: who writes elsewhere?")


def _add(row: dict[str, int | None], events: Sequence[PmuEvent], found: EventCounts) -> None:
    for event in events:
        before, count = row.get(event.name, 0), found.counts[event.number]
        row[event.name] = None if before is None or count is None else before + count
