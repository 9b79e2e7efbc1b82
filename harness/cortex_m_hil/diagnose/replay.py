"""Replays a bundle, to see whether the program still has the same verdict and outputs, bit for bit.

A replay needs neither torch nor ExecuTorch. Only the local targets decide what is executed on this machine: a bundle's
own runner is used only if a launcher emulates it in a sandbox.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from cortex_m_hil import flow
from cortex_m_hil.diagnose.budgets import require_budget
from cortex_m_hil.diagnose.failure_bundle import Bundle, BundleTask
from cortex_m_hil.diagnose.failure_bundle_schema import PASSED, Recorded
from cortex_m_hil.diagnose.lifetime_check import WatchedMemory
from cortex_m_hil.errors import ConfigError, LaunchError, VerdictError
from cortex_m_hil.errors.text import printable
from cortex_m_hil.flow.dut import Dut
from cortex_m_hil.host import timeouts
from cortex_m_hil.program.tensor import HostTensor
from cortex_m_hil.runner import launchers
from cortex_m_hil.runner.build import RUNNER, build_runner
from cortex_m_hil.runner.run_results import RunResult
from cortex_m_hil.targets.connection import Elf
from cortex_m_hil.targets.resolve import Resolved
from cortex_m_hil.targets.target import Target


@dataclass(frozen=True)
class OpenedTarget:
    """A target that is ready for a replay.

    Attributes:
        dut: the target.
        bundled: whether the runner comes from the bundle.
        notices: lines about differences from the run that the bundle recorded.
    """

    dut: Dut
    bundled: bool
    notices: tuple[str, ...]


@dataclass(frozen=True)
class Replay:
    """The result of a replay.

    Attributes:
        now: the verdict; None where the program passes.
        differences: lines about differences; empty if the failure was reproduced: the same verdict, operator and output
            bits.
        compared: the number of outputs whose bits were compared; None where the bundle has no outputs.
        log: what the target printed.
    """

    now: Recorded | None
    differences: tuple[str, ...]
    compared: int | None
    log: str

    @property
    def reproduced(self) -> bool:
        return not self.differences


def require_target(bundle: Bundle, path: Path, known: Mapping[str, Target]) -> str:
    """Return the name of the bundle's target, if it is known here; raise ConfigError with the entry to add if not."""
    target = bundle.description.machine.target
    if target.name in known:
        return target.name
    entry = printable(json.dumps({"targets": {target.name: target.entry}}))
    raise ConfigError(
        f"{path} ran on {target.name!r}, and there is no such target here",
        details=[("entry", entry)],
        hint="-t NAME for another; or add the entry to ./targets.yaml, but read it first: what it names is executed",
    )


def open_target(bundle: Bundle, resolved: Resolved, folder: Path, *, multiplier: float = 1.0) -> OpenedTarget:
    """Open the target with the bundle's runner, written to `folder`, if it may be used; else with a runner built here.

    Args:
        bundle: the bundle.
        resolved: the target.
        folder: a folder for the bundle's runner.
        multiplier: a factor on the time that the program may take.

    Raises:
        HarnessError: the target cannot be opened.
    """
    machine = bundle.description.machine
    changes = tuple(_changes(bundle, resolved))
    launcher = resolved.target.launcher
    bundled = not changes and launcher.takes_foreign_runners
    if bundled:
        launchers.require(resolved.target)
        path = folder / RUNNER
        path.write_bytes(bundle.elf)
        dut = Dut(resolved, Elf(path, machine.build_id, resolved.target.config, foreign=True))
        notices = changes
    else:
        flow.require(resolved)
        elf = build_runner(resolved.target, resolved.runtime)
        dut, notices = Dut(resolved, elf), changes
        if not changes and elf.build_id != machine.build_id:
            other = f"the runner is built here ({elf.build_id}), and is not the one that ran ({machine.build_id})"
            notices = (other,)
    if not bundle.judges:
        notices = (*notices, "the bundle has no references: outputs are compared with nothing")
    dut.seconds = min(bundle.description.judgement.seconds * multiplier, timeouts.LONGEST_EXECUTION)
    dut.what = f"replay of {bundle.description.test}"
    return OpenedTarget(dut, bundled, notices)


def _changes(bundle: Bundle, resolved: Resolved) -> Iterator[str]:
    """Yield a line for each difference of the target or runtime from the recorded ones."""
    machine = bundle.description.machine
    if resolved.target.name != machine.target.name:
        yield f"it ran on {machine.target.name}"
    else:
        here = json.loads(json.dumps(dict(resolved.target.entry), default=str))
        for key in sorted({*here, *machine.target.entry}):
            now, then = (printable(json.dumps(one.get(key))) for one in (here, machine.target.entry))
            if now != then:
                yield f"{machine.target.name} is another target here: {key}: {now}, and it was {then}"
    if resolved.runtime != machine.runtime:
        yield f"it ran on the runtime {machine.runtime}"


def replay(bundle: Bundle, dut: Dut) -> Replay:
    """Run the bundle's task again, and compare the result with the recorded one. Raises only infra errors."""
    boot(dut)
    now: VerdictError | None = None
    seen: list[RunResult] = []
    try:
        _run(bundle.task, dut, seen)
    except VerdictError as error:
        now = error
    recorded = None if now is None else Recorded.of(now)
    outputs = seen[0].outputs if seen else ()
    compared = min(len(outputs), len(bundle.outputs)) if bundle.outputs else None
    log = seen[0].log if seen else now.log if now is not None else ""
    return Replay(recorded, tuple(_differences(bundle, recorded, outputs)), compared, log)


def boot(dut: Dut) -> None:
    """Boot the target; raise LaunchError, which is no verdict, if the runner ends before it has the program."""
    try:
        dut.session()
    except VerdictError as error:
        what = f"the runner does not start: {error.message}"
        raise LaunchError(what, target=dut.target.name, log=error.log) from error


def _run(task: BundleTask, dut: Dut, seen: list[RunResult]) -> None:
    """Run a task; append the result to `seen` before a verdict on it is raised."""
    guards = WatchedMemory if task.redzones else None
    if task.tolerance is None:
        seen.append(flow.run(dut, task.program, linted=task.linted, excluded=task.excluded, guards=guards))
    else:
        _ = flow.verify(
            dut, task.program,
            tolerance=task.tolerance, linted=task.linted, excluded=task.excluded, guards=guards,
            observe=lambda checked: seen.append(checked.result),
        )  # fmt: skip
    if task.budget is not None:
        require_budget(task.budget, dut, task.program, task.inputs, seen[-1])
    if task.linted:
        flow.judge_on_executorch(dut, task.program, task.known, task.expected)


def _differences(bundle: Bundle, now: Recorded | None, outputs: Sequence[HostTensor]) -> Iterator[str]:
    then = bundle.description.verdict
    if now is None:
        if then.type != PASSED:
            yield f"it passes now, and was recorded with {then.type}"
    elif now.type != then.type:
        yield f"it ends with {now.type} now, and was recorded with {then.type}"
    elif now.operator != then.operator:
        yield f"the operator is {now.operator or 'not known'} now, recorded was {then.operator or 'not known'}"
    if not bundle.outputs:
        return
    if not outputs:
        yield "outputs cannot be compared: this run ended before there were any"
    for number, (mine, theirs) in enumerate(zip(outputs, bundle.outputs, strict=False)):
        if mine.spec != theirs.spec:
            yield f"output {number} is {mine.spec} now, recorded was {theirs.spec}"
        elif (many := _unequal(mine, theirs)) > 0:
            yield f"output {number}: {many} of {mine.spec.numel} elements have other bits"


def _unequal(one: HostTensor, other: HostTensor) -> int:
    """Return the number of elements whose bytes differ; NaNs with the same bytes are equal."""
    itemsize = np.dtype(one.spec.dtype).itemsize
    mine, theirs = (np.frombuffer(tensor.data, np.uint8).reshape(-1, itemsize) for tensor in (one, other))
    return int((mine != theirs).any(axis=1).sum())


def fields(found: Replay, bundle: Bundle) -> dict[str, Any]:
    """Return a replay's result as values for JSON."""
    return {
        "reproduced": found.reproduced,
        "recorded": _fields_of(bundle.description.verdict),
        "now": None if found.now is None else _fields_of(found.now),
        "differences": found.differences,
        "outputs_compared": found.compared,
    }


def _fields_of(one: Recorded) -> dict[str, str]:
    return {"type": one.type, "message": one.message, "operator": one.operator}
