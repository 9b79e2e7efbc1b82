"""Measure each stage of the lowering, in seconds. Each repetition is a new process, which imports everything again.

The seconds are compared with those of a lowering by ExecuTorch's own tester (backends/cortex_m/test/tester.py).
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cortex_m_hil.errors import ToolchainError
from cortex_m_hil.host import subprocesses
from cortex_m_hil.host.folders import TemporaryFolder
from cortex_m_hil.lowering import clear_cache, executorch_api, lower
from cortex_m_hil.lowering.disk_cache import disk
from cortex_m_hil.lowering.installed_executorch import feature, load_torch, quiet
from cortex_m_hil.lowering.named_modules import load_named_module
from cortex_m_hil.lowering.pipeline import CPU_OF
from cortex_m_hil.lowering.stages import seconds_by_stage, stage_of
from cortex_m_hil.targets.cpu import Isa

DEADLINE = 1800.0  # seconds for one module


@dataclass(frozen=True)
class StageSeconds:
    """The median seconds of a stage.

    Attributes:
        first: seconds in the module's first lowering in a process.
        again: seconds in the second lowering in the same process, with an empty cache.
    """

    stage: str
    first: float
    again: float


@dataclass(frozen=True)
class ModuleSeconds:
    """The time of a module's lowering for all ISA classes.

    Attributes:
        module: the module's name.
        stages: the seconds of each stage.
        cpu: CPU seconds of the second lowering by hil, without references.
        upstream_cpu: CPU seconds of the second lowering by ExecuTorch's tester.
    """

    module: str
    stages: tuple[StageSeconds, ...]
    cpu: float
    upstream_cpu: float


@dataclass(frozen=True)
class Measured:
    """The measured seconds of imports and modules.

    Attributes:
        imports: seconds by package.
    """

    imports: Mapping[str, float]
    modules: tuple[ModuleSeconds, ...]


def measure(modules: Sequence[str], repetitions: Iterable[int]) -> Measured:
    """Measure the seconds of imports and of each stage of lowering modules.

    Args:
        modules: names of modules, as for `named_modules.load_named_module`.
        repetitions: an item for each repetition, which is measured in a new process.

    Raises:
        ToolchainError: a process fails; the error has its output.
    """
    runs = [_in_a_process(modules) for _ in repetitions]
    imports = {name: statistics.median(run["imports"][name] for run in runs) for name in runs[0]["imports"]}
    return Measured(imports, tuple(_medians(module, [run["modules"][module] for run in runs]) for module in modules))


def _medians(module: str, runs: Sequence[Mapping[str, Mapping[str, float]]]) -> ModuleSeconds:
    def median(which: str, stage: str) -> float:
        return statistics.median(run[which].get(stage, 0.0) for run in runs)

    stages = [StageSeconds(stage, median("first", stage), median("again", stage)) for stage in runs[0]["first"]]
    here, upstream = (statistics.median(run["cpu"][side] for run in runs) for side in ("here", "upstream"))
    return ModuleSeconds(module, tuple(stages), here, upstream)


def _in_a_process(modules: Sequence[str]) -> dict[str, Any]:
    with TemporaryFolder() as folder:
        log, answer = folder / "log", folder / "answer.json"
        command = [sys.executable, __file__, str(answer), *modules]
        status = subprocesses.run(command, log, DEADLINE * len(modules))
        if status != 0:
            raise failed("the lowering", status, log)
        found: dict[str, Any] = json.loads(answer.read_text())
        return found


def _one_process(modules: Sequence[str]) -> dict[str, Any]:
    disk.enabled = False  # so that nothing comes from the cache
    with seconds_by_stage() as imports:
        with stage_of("torch"):
            load_torch()
        with stage_of("executorch"):
            executorch_api()
    found = {name: {"first": _once(name), "again": _once(name), "cpu": cpu_seconds(name)} for name in modules}
    return {"imports": imports, "modules": found}


def cpu_seconds(name: str) -> dict[str, float]:
    """Return the CPU seconds of a module's second lowering for every ISA class, by hil and by ExecuTorch's tester.

    Other processes on the machine affect CPU seconds less than wall time.
    """
    module, inputs = load_named_module(name)
    seconds = {}
    with quiet():
        _upstream(module, inputs)
        for side, lowered in (("here", _here), ("upstream", _upstream)):
            clear_cache()
            began = time.process_time()
            lowered(module, inputs)
            seconds[side] = time.process_time() - began
    return seconds


def _here(module: Any, inputs: tuple[Any, ...]) -> None:
    for isa in Isa:
        lower(module, inputs, isa=isa)


def _upstream(module: Any, inputs: tuple[Any, ...]) -> None:
    tester = feature("executorch.backends.cortex_m.test.tester", "CortexMTester")
    for isa in Isa:
        one = tester(module, inputs, executorch_api().target_config.from_target_string(CPU_OF[isa]))
        for stage in (one.quantize, one.export, one.to_edge, one.run_passes, one.to_executorch):
            stage()


def _once(name: str) -> Counter[str]:
    """Lower a module for every ISA class, and compute the references of one; return the seconds by stage.

    The cache is cleared before, but not between ISA classes, so shared work is done once.
    """
    clear_cache()
    module, inputs = load_named_module(name)
    with seconds_by_stage() as seconds:
        programs = [lower(module, inputs, isa=isa) for isa in Isa]
        assert programs[0].reference is not None
        programs[0].reference(programs[0].inputs)
    return seconds


def failed(what: str, status: int | None, log: Path) -> ToolchainError:
    """Return the error of a process that failed.

    Args:
        what: the process, for the message.
        status: its exit status; None if it had to be ended.
        log: the file with its output.
    """
    text = log.read_text(errors="replace")
    last = next(reversed(text.strip().splitlines()), "it said nothing")
    how = "does not end" if status is None else f"ended with status {status}: {last}"
    return ToolchainError(f"{what} {how}", log=text, hint="its seconds would mean nothing: make it pass first")


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(json.dumps(_one_process(sys.argv[2:])))
