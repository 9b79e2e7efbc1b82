"""A worker process (`worker_processes.Worker`) that judges generated programs and shrinks those that fail."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from enum import Enum
from pathlib import Path
from typing import Any

from cortex_m_hil import flow
from cortex_m_hil.campaigns.planner import ATTEMPTS
from cortex_m_hil.campaigns.store import Plan, Run
from cortex_m_hil.campaigns.worker_processes import answer_requests
from cortex_m_hil.errors import HarnessError, InfraError
from cortex_m_hil.maintainers.networks.kernel_lines import counting
from cortex_m_hil.maintainers.networks.network_judge import Checks, Disagreement, ModelJudge, NetworkJudgement, place_of
from cortex_m_hil.maintainers.networks.recipe import Recipe
from cortex_m_hil.maintainers.networks.shrunk_test import write_shrunk
from cortex_m_hil.targets.load import load_user_targets
from cortex_m_hil.targets.resolve import Resolved, resolve


class NetworkOutcome(str, Enum):
    """The outcome of a program: the worst of its outcomes on all targets and runtimes."""

    PASSED = "passed"
    REFUSED = "refused"  # refused by all targets and runtimes
    FAILED = "failed"
    INFRA = "infra"  # infra errors prevented the judgement


@dataclass(frozen=True)
class NetworkWorkerSettings(Plan):
    """The targets and runtimes on which a worker runs programs, each target with each runtime."""

    targets: tuple[str, ...]
    runtimes: tuple[str, ...]
    targets_file: str = ""

    def resolved(self) -> list[Resolved]:
        known = load_user_targets(Path(self.targets_file) if self.targets_file else None)
        return [resolve(name, known, runtime=runtime) for runtime in self.runtimes for name in self.targets]


def packed(reached: Iterable[str]) -> dict[str, Any]:
    """Return reached lines as a hexadecimal bit mask for each file, and the decisions as a list."""
    masks: defaultdict[str, int] = defaultdict(int)
    decisions = []
    for one in reached:
        name, _, line = one.rpartition(":")
        if line.isdecimal():
            masks[name] |= 1 << int(line)
        else:
            decisions.append(one)
    return {"lines": {name: f"{mask:x}" for name, mask in sorted(masks.items())}, "decisions": sorted(decisions)}


def unpacked(reached: Mapping[str, Any]) -> frozenset[str]:
    """Return the lines and decisions that `packed` has packed."""
    masks = {name: int(mask, 16) for name, mask in reached["lines"].items()}
    lines = (f"{name}:{at}" for name, mask in masks.items() for at in range(mask.bit_length()) if mask >> at & 1)
    return frozenset([*lines, *reached["decisions"]])


class _Server:
    """The part of a worker that answers requests, with an open Dut for each target and runtime."""

    def __init__(self, settings: NetworkWorkerSettings, stack: ExitStack) -> None:
        resolved = settings.resolved()
        self._duts = [stack.enter_context(flow.open_dut(one)) for one in resolved]
        self._kernels = counting(resolved, stack)

    def answer(self, request: Mapping[str, Any]) -> dict[str, Any]:
        recipe = Recipe.from_fields(request["recipe"])
        return {"run": asdict(self._shrunk(recipe, request) if "failure" in request else self._judged(recipe))}

    def _judged(self, recipe: Recipe) -> Run:
        from cortex_m_hil.maintainers.networks.recipe_part import part_of

        began, judged, problem = time.monotonic(), NetworkJudgement(), ""
        for _ in range(ATTEMPTS):
            try:
                judge = ModelJudge(self._duts, self._kernels)
                judged, problem = judge.judge(part_of(recipe), checks_of(recipe)), ""
                break
            except InfraError as error:
                problem = f"{type(error).__name__}: {error.message}"
            except Exception as error:  # such as an error in a reference: the next program can still be judged
                problem = f"{type(error).__name__}: {error}".splitlines()[0]
        figures = {"recipe": asdict(recipe), "classes": recipe.classes, **fields_of(judged)}
        outcome = NetworkOutcome.INFRA if problem else _outcome(judged)
        return Run("", outcome.value, problem, round(time.monotonic() - began, 3), time.time(), figures)

    def _shrunk(self, recipe: Recipe, request: Mapping[str, Any]) -> Run:
        began, failure = time.monotonic(), Disagreement(**request["failure"])
        duts = [dut for dut in self._duts if place_of(dut) in failure.places]
        try:
            figures = write_shrunk(duts, recipe, failure, Path(request["out"]), request["budget"], request["asked"])
            problem = ""
        except (HarnessError, OSError) as error:
            figures, problem = {}, f"{type(error).__name__}: {error}".splitlines()[0]
        verdict = NetworkOutcome.INFRA if problem else NetworkOutcome.FAILED
        return Run("", verdict.value, problem, round(time.monotonic() - began, 3), time.time(), figures)


def checks_of(recipe: Recipe) -> Checks:
    layout: Any = recipe.layout
    return Checks(layout, recipe.quantize, recipe.redzones, recipe.relation)


def fields_of(judged: NetworkJudgement) -> dict[str, Any]:
    return {**asdict(judged), "reached": packed(judged.reached)}


def _outcome(judged: NetworkJudgement) -> NetworkOutcome:
    if any(not one.known for one in judged.failures):
        return NetworkOutcome.FAILED
    return NetworkOutcome.PASSED if judged.passed or judged.failures else NetworkOutcome.REFUSED


if __name__ == "__main__":
    answer_requests(NetworkWorkerSettings, lambda settings, stack: _Server(settings, stack).answer)
