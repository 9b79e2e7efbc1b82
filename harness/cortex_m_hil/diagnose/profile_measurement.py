"""Measures what a program costs on a target, as a whole and by instruction: exact CPU instructions, or cycles.

A runner counts each step of the runtime by itself and adds up the steps of a run (`firmware/target_library/program.c`):
what the host and the link do between them is in no figure. In QEMU the steps of a run by single steps add up to those
of a whole run exactly.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median_low
from typing import Final

from cortex_m_hil import flow
from cortex_m_hil.diagnose.event_counters import CountedEvents, count_events, counters_of, events_of
from cortex_m_hil.diagnose.profile import Profile, ProfileRow
from cortex_m_hil.errors import ConfigError, VerdictError
from cortex_m_hil.flow.hang_diagnosis import hang_diagnosed
from cortex_m_hil.flow.single_run import execute
from cortex_m_hil.flow.stepping import steps
from cortex_m_hil.program.operator_costs import OperatorCost
from cortex_m_hil.program.partition import PartitionKind, PartitionStep
from cortex_m_hil.program.program import Program
from cortex_m_hil.program.schema import ValueKind
from cortex_m_hil.program.tensor import HostTensor
from cortex_m_hil.runner.run_results import Ran
from cortex_m_hil.targets.memory import Memory
from cortex_m_hil.targets.resolve import Resolved
from cortex_m_hil.targets.runtimes import executes
from cortex_m_hil.targets.target import Clock

COSTS: Final = (Clock.INSTRUCTIONS, Clock.CORE)
"""Clocks that measure the cost of a program; the other clocks follow a simulator's host."""
RUNS: Final = 5  # of a program whose ticks vary, unless the caller says another number


def profile(
    dut: flow.Dut,
    program: Program,
    inputs: tuple[HostTensor, ...],
    described: str,
    *,
    runs: int = RUNS,
    linted: bool = True,
    counters: Sequence[str] = (),
    told: Callable[[str], None] = lambda text: None,
) -> Profile:
    """Run a program as a whole and by single steps, and return what each of its instructions costs.

    Where instructions are counted exactly, one run of each is enough; a third one, with zeros for inputs, shows whether
    the count depends on them.

    Args:
        dut: the target.
        program: the program.
        inputs: its inputs.
        described: a text about where the inputs are from.
        runs: how often it is run in each way where its ticks vary.
        linted: False skips the lint.
        counters: groups of events (`event_counters.GROUPS`), which the core's PMU counts in runs of their own.
        told: called with a text about each run before it begins.

    Raises:
        ConfigError: the clock of the target is no measure of cost, it has no PMU that counts, or the inputs do not fit.
        HarnessError: a run fails.
    """
    events = events_of(counters)
    told("a whole run")
    result = flow.run(dut, program, inputs, linted=linted)
    require_cost(dut.resolved, result.ran.clock)
    if events:
        counters_of(dut)
    counted = result.ran.clock is Clock.INSTRUCTIONS
    whole, stepped = [result.ticks], []
    for number in range(1, 1 if counted else runs):
        told(f"whole run {number + 1} of {runs}")
        whole.append(_ticks_of_run(dut, program, inputs))
    for number in range(1 if counted else runs):
        told(f"run by single steps {number + 1} of {1 if counted else runs}")
        stepped.append(_run_by_steps(dut, program, inputs))
    zeros = None
    if counted:
        told("a run with zeros for inputs")
        zeros = _run_of_zeros(dut, program, inputs)
    found = _profile(dut, program, inputs, described, result.ran, whole, stepped, zeros)
    if not events:
        return found
    return _with_events(found, count_events(dut, program, inputs, events, result.outputs, told))


def profile_of_run(
    dut: flow.Dut, program: Program, inputs: tuple[HostTensor, ...], described: str, ran: Ran, ticks: int
) -> Profile:
    """Run a program once by single steps, and return the profile of a whole run that took `ticks`.

    Args:
        dut: the target.
        program: the program.
        inputs: the inputs of the whole run.
        described: a text about where the inputs are from.
        ran: what executed the whole run.
        ticks: the ticks of the whole run.

    Raises:
        HarnessError: the run by single steps fails.
    """
    return _profile(dut, program, inputs, described, ran, [ticks], [_run_by_steps(dut, program, inputs)], None)


def operator_costs(
    dut: flow.Dut, program: Program, inputs: Sequence[HostTensor], ticks: int, clock: Clock
) -> tuple[OperatorCost, ...]:
    """Run a program by steps, and return a row for each instruction; the ticks add up to those of a whole run.

    Args:
        dut: the target.
        program: the program.
        inputs: the inputs of the whole run.
        ticks: the ticks of the whole run.
        clock: the clock of the whole run.

    Returns:
        The rows in the program's order. The last row has the ticks that the steps do not account for. It may be
        negative on a board, whose caches lose their contents between steps.

    Raises:
        ConfigError: the clock is no measure of cost.
        HarnessError: a run fails.
    """
    require_cost(dut.resolved, clock)
    found, parts = _run_by_steps(dut, program, inputs).ticks, program.partition.steps
    rows = tuple(
        OperatorCost(one.instruction, one.operator, one.module, one.source, found[one.instruction], clock)
        for one in parts
    )
    rest = ticks - sum(found.values())
    return (*rows, OperatorCost(None, "the rest", "", "", rest, clock)) if rest else rows


def require_cost(resolved: Resolved, clock: Clock | None = None) -> None:
    """Raise ConfigError where a target's clock is no measure of cost.

    Args:
        resolved: the target.
        clock: the clock of its runner; None: the best that any runner of it can have, which is known before a run.
    """
    clock = clock or resolved.target.launcher.clock(counts=True)
    if clock not in COSTS:
        what = f"{resolved.target.name} counts neither instructions nor cycles, it has {clock.value}, {clock.meaning}"
        hint = "a target of QEMU counts instructions, a board cycles: hil targets"
        raise ConfigError(what, target=resolved.name, hint=hint)


# --- runs ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Stepped:
    """One run by single steps: the ticks and the calls of each instruction that was executed."""

    ticks: Counter[int]
    calls: Counter[int]


def _run_by_steps(dut: flow.Dut, program: Program, inputs: Sequence[HostTensor]) -> _Stepped:
    found = _Stepped(Counter(), Counter())
    for done in steps(dut, program, inputs):
        found.ticks[done.index] += done.ticks
        found.calls[done.index] += 1
    return found


def _ticks_of_run(dut: flow.Dut, program: Program, inputs: Sequence[HostTensor]) -> int:
    with hang_diagnosed(dut, program, inputs):
        return execute(dut, dut.session(), program, inputs).ticks


def _run_of_zeros(dut: flow.Dut, program: Program, inputs: Sequence[HostTensor]) -> _Stepped | None:
    """Run a program by single steps with zeros in all tensors of its inputs.

    Returns:
        The run; None where the inputs are zeros already, or the program fails on zeros.
    """
    zeros = [
        HostTensor(one.spec, bytes(one.spec.nbytes)) if one.spec.kind is ValueKind.TENSOR else one for one in inputs
    ]
    if zeros == [*inputs]:
        return None
    try:
        return _run_by_steps(dut, program, zeros)
    except VerdictError:  # such as an index that must not be 0
        return None


# --- rows ----------------------------------------------------------------------------------------------------


def _profile(
    dut: flow.Dut, program: Program, inputs: tuple[HostTensor, ...], described: str, ran: Ran, whole: Sequence[int],
    stepped: Sequence[_Stepped], zeros: _Stepped | None,
) -> Profile:  # fmt: skip
    total = median_low(whole)
    rows = _rows(dut, program, stepped, zeros, total)
    memory = dut.target.board.memory
    return Profile(
        program.name, program.file.method, dut.target.isa.value, ran, executes(ran.runtime, dut.target.cpu), described,
        _digest_of(inputs), total, min(whole), max(whole), len(whole), total - sum(row.ticks for row in rows),
        zeros.ticks.total() if zeros else None,
        _by_region(memory, dict(enumerate(program.file.bytes_in_banks(memory), 1))), rows,
    )  # fmt: skip


def _rows(
    dut: flow.Dut, program: Program, runs: Sequence[_Stepped], zeros: _Stepped | None, total: int
) -> tuple[ProfileRow, ...]:
    calls = runs[0].calls
    rows = (
        _row(dut, program, step, calls[step.instruction], [run.ticks[step.instruction] for run in runs], total)
        for step in program.partition.steps
    )
    return tuple(rows if zeros is None else (replace(row, ticks_of_zeros=zeros.ticks[row.index]) for row in rows))


def _row(
    dut: flow.Dut, program: Program, step: PartitionStep, calls: int, ticks: Sequence[int], total: int
) -> ProfileRow:
    index, middle = step.instruction, median_low(ticks)
    read, written = program.lifetimes.traffic(index)
    return ProfileRow(
        index, step.operator, step.kind, step.node.partition(" ")[0], step.module, step.source,
        _kernel(step, dut.resolved.runtime, dut.target.isa.value), calls, middle, min(ticks), max(ticks),
        middle / total if total else 0.0, None if step.macs is None else step.macs * calls, read * calls,
        written * calls, _by_region(dut.target.board.memory, program.lifetimes.bytes_in_use(index)),
    )  # fmt: skip


def _with_events(profile: Profile, found: CountedEvents) -> Profile:
    none = {name: 0 for counts in found.rows.values() for name in counts}
    rows = tuple(replace(row, events=found.rows.get(row.index, none)) for row in profile.rows)
    return replace(profile, rows=rows, events=found.source)


def _kernel(step: PartitionStep, runtime: str, isa: str) -> str:
    """Return whose kernel runs an instruction, and for Cortex-M kernels which ISA class they are compiled for."""
    if step.kind in (PartitionKind.DELEGATE, PartitionKind.CONTROL_FLOW):
        return runtime
    return f"{runtime} Cortex-M, {isa}" if step.operator.startswith("cortex_m::") else f"{runtime} portable"


def _digest_of(inputs: Sequence[HostTensor]) -> str:
    """Return a digest of the specs and bytes of inputs."""
    made = hashlib.sha256()
    for one in inputs:
        made.update(f"{one.spec}".encode() + one.data)
    return made.hexdigest()[:16]


def _by_region(memory: Memory, sizes: Mapping[int, int]) -> dict[str, int]:
    """Return bytes by the name of their bank's region, from the bytes by planned buffer."""
    names = [bank.region for bank in memory.banks]
    found: Counter[str] = Counter()
    for number, nbytes in sizes.items():
        at = 1 if len(names) == 1 else number
        found[names[at - 1] if at <= len(names) else f"mem_id {number}"] += nbytes
    return dict(found)
