"""Campaigns of generated programs for `hil dev fuzz --models`, and the answer with their findings."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any, Final

from cortex_m_hil.campaigns.store import Run, Store
from cortex_m_hil.cli.campaigns import UNDER_WAY, Campaign
from cortex_m_hil.cli.command_output import Answer, say
from cortex_m_hil.cli.options import TargetOptions
from cortex_m_hil.cli.tables import table
from cortex_m_hil.errors import ConfigError
from cortex_m_hil.errors.text import counted
from cortex_m_hil.host.deadline import Deadline
from cortex_m_hil.maintainers.networks.generator import generator_digest
from cortex_m_hil.maintainers.networks.kernel_lines import counting
from cortex_m_hil.maintainers.networks.network_campaign import (
    Defect,
    NetworkPlan,
    NetworkWorkers,
    Programs,
    Shrinking,
    by_number,
    defects,
)
from cortex_m_hil.maintainers.networks.network_judge import kind_of_reason
from cortex_m_hil.maintainers.networks.network_worker import NetworkOutcome, unpacked
from cortex_m_hil.targets.runtimes import select_runtimes
from cortex_m_hil.targets.target import HardwareLauncher

KIND: Final = "fuzz models"
SHRINKING: Final = 120.0  # seconds for shrinking each defect


def network_plan(target: str, runtime: str, count: int, seed: int, file: Path | None) -> NetworkPlan:
    """Return the plan for the command's options.

    Raises:
        ConfigError: a target or runtime does not exist, or a target is a board.
        ToolchainError: a target cannot be run here.
    """
    runtimes = tuple(select_runtimes([runtime]))
    for one in runtimes:
        choice = TargetOptions(runtime=one, targets_file=file).choose([target])
        for name in choice.names:
            if isinstance(choice.resolve(name).target.launcher, HardwareLauncher):
                hint = "name a simulator of its ISA class; tests that are written of failures run on the board too"
                raise ConfigError(f"{name} is a board", hint=hint)
    targets_file = str(file.absolute()) if file else ""
    return NetworkPlan(tuple(choice.names), runtimes, count, seed, targets_file, generator_digest())


def begun(kept: Store, plan: NetworkPlan, *, reset: bool) -> Campaign:
    """Return the unfinished campaign of this folder, or a new one. Raise ConfigError if another plan is unfinished."""
    before = Campaign.last(kept, KIND)
    if before is None or before.has_ended:
        return Campaign.begin(kept, KIND, plan.as_fields())
    other = NetworkPlan.from_fields(before.plan)
    if updated := other != plan and replace(other, generator=plan.generator) == plan:
        say("begun anew: this hil draws other programs than the one that began here")
    if reset or updated:
        before.forget()
        return Campaign.begin(kept, KIND, plan.as_fields())
    if other != plan:
        hint = "that command goes on with it; --reset forgets it"
        raise ConfigError(f"{UNDER_WAY}: {other.asked}", hint=hint)
    say(f"goes on: {counted(len(by_number(before.runs)), 'network')} judged before; --reset begins anew")
    return before


def run(campaign: Campaign, jobs: int, budget: Deadline, out: Path) -> Answer:
    """Judge the plan's programs while the budget lasts; shrink failing ones, and return the answer."""
    plan = NetworkPlan.from_fields(campaign.plan)
    say(f"{', '.join(plan.targets)} on {' and '.join(plan.runtimes)}: begins with building and booting the runners")
    with campaign.folder() as folder:
        with NetworkWorkers(plan, folder) as workers:
            programs = Programs(plan, workers)
            campaign.work(programs, budget, lambda runs: _row(runs[-1], plan, len(by_number(runs))), jobs, ends=False)
        with NetworkWorkers(plan, folder) as workers:
            shrinking = Shrinking(plan, campaign.runs, workers, out, SHRINKING)
            if number := shrinking.left(campaign.runs):
                print(
                    f"shrinks {counted(number, 'defect')}: at most {SHRINKING:.0f} s each", file=sys.stderr, flush=True
                )
            never = Deadline.after(float("inf"))
            runs = campaign.work(shrinking, never, lambda runs: _row_of_shrunk(runs[-1]), jobs, ends=False)
        left = programs.left(runs)
        if not left:
            campaign.end()
    return campaign_answer(plan, runs, left, possible_lines(plan))


def possible_lines(plan: NetworkPlan) -> dict[str, frozenset[int]]:
    """Return the lines that can be reached, by file: of the compiler, and of the kernels of each ISA class."""
    from cortex_m_hil.maintainers.networks.compiler_lines import reachable_lines

    with ExitStack() as stack:
        kernels = counting(plan.settings.resolved(), stack).values()
        return dict(chain(reachable_lines().items(), *(one.possible().items() for one in kernels)))


def _row_of_shrunk(run: Run) -> str:
    return f"{run.key}: {run.figures.get('fails') or run.error}"


def _row(run: Run, plan: NetworkPlan, judged: int) -> str:
    """Return the line about a run that has ended; `judged` is the number of programs so far, including this one."""
    total = f"/{plan.count}" if plan.count else ""
    kinds = " ".join(step["kind"] for step in run.figures["recipe"]["steps"])
    why = next(chain([run.error] if run.error else [], _why(run.figures)), "")
    head = f"{judged}{total}  network {run.key}  {run.verdict:<7}  {kinds}, {run.seconds:.1f} s"
    return f"{head}  {why}" if why else head


def _why(figures: Mapping[str, Any]) -> Iterator[str]:
    yield from (f"{one['operator']} {one['kind']}: {one['message']}"[:160] for one in figures["failures"])
    refused = figures["refused"]
    for reason in dict.fromkeys(refused.values()):
        places = " and ".join(place for place, why in refused.items() if why == reason)
        yield f"not on {places}: {reason}" if figures["passed"] else reason


# --- findings ------------------------------------------------------------------------------------------


def campaign_answer(
    plan: NetworkPlan, runs: Sequence[Run], left: int, possible: Mapping[str, frozenset[int]]
) -> Answer:
    """Return the answer of a campaign.

    Args:
        plan: the campaign's plan.
        runs: all runs so far, of programs and of shrinking.
        left: how many programs are still to be judged.
        possible: the lines that can be reached, by file.
    """
    programs = by_number(runs)
    found = defects(runs)
    shrunk = {run.key.removeprefix("shrink "): run for run in runs if not run.key.isdecimal()}
    outcomes = Counter(run.verdict for run in programs.values())
    told = [_defect(one, shrunk.get(one.name)) for one in found]
    figures = [run.figures for run in programs.values()]
    fields: dict[str, Any] = {
        "outcome": "under way" if left else "complete",
        "targets": plan.targets,
        "runtimes": plan.runtimes,
        "seed": plan.seed,
        "programs": len(programs),
        "left": left,
        "outcomes": {outcome.value: outcomes[outcome.value] for outcome in NetworkOutcome},
        "partly": sum(
            run.verdict == NetworkOutcome.PASSED.value and bool(run.figures["refused"]) for run in programs.values()
        ),
        "runs": dict(Counter(place for run in programs.values() for place in run.figures["passed"])),
        "defects": told,
        "refusals": _reasons(programs, "refused"),
        "would_fail_on_executorch": _reasons(programs, "would_fail"),
        "departed": sum(bool(one["departed"]) for one in figures),
        "relations": _counts((one["recipe"]["relation"], told) for one in figures for told in one["relation"].values()),
        "operators": _counts((name, isa) for one in figures for isa, of in one["operators"].items() for name in of),
        "classes": _counts((name, isa) for one in figures for name in one["classes"] for isa in one["operators"]),
        "reached": _reached(programs, possible),
    }
    new = [one for one in found if not one.known]
    unknown = left or outcomes[NetworkOutcome.INFRA.value] or not outcomes[NetworkOutcome.PASSED.value]
    return Answer.from_blocks(_blocks(plan, fields), fields, bad=new, unknown=unknown)


def _defect(one: Defect, shrunk: Run | None) -> dict[str, Any]:
    files = {name: shrunk.figures.get(name) for name in ("fails", "passes")} if shrunk else {}
    fields = {"kind": one.kind, "operator": one.operator, "known": one.known, "programs": one.programs}
    return {**fields, "first": one.first, **{k: one.example[k] for k in ("places", "message")}, **files}


def _reasons(programs: Mapping[int, Run], name: str) -> dict[str, int]:
    """Count the programs by reason, most frequent first; a program is counted once for each of its reasons.

    Reasons that differ only in ISA class, tensors and numbers are counted as one, with the text of the first.
    """
    first: dict[str, str] = {}
    counts = Counter[str]()
    for _, run in sorted(programs.items()):
        reasons = {why: kind_of_reason(why) for why in run.figures.get(name, {}).values()}
        for why, kind in reasons.items():
            first.setdefault(kind, why)
        counts.update(dict.fromkeys(reasons.values(), 1))
    return {first[kind]: number for kind, number in counts.most_common()}


def _counts(pairs: Iterable[tuple[str, str]]) -> dict[str, dict[str, int]]:
    """Count pairs by their first part, then by their second."""
    found: dict[str, dict[str, int]] = {}
    for (name, of), number in Counter(pairs).items():
        found.setdefault(name, {})[of] = number
    return dict(sorted(found.items()))


def _reached(programs: Mapping[int, Run], possible: Mapping[str, frozenset[int]]) -> dict[str, Any]:
    """Return how many lines of each file were reached, and which decisions of the compiler's checks and passes."""
    reached = frozenset[str]().union(*(unpacked(run.figures["reached"]) for run in programs.values()))
    files = {}
    for name, lines in possible.items():
        mine = {int(one.rpartition(":")[2]) for one in reached if one.startswith(f"{name}:")} & lines
        files[name] = {"reached": len(mine), "lines": len(lines)}
    return {"files": files, "decisions": sorted(one for one in reached if not one.rpartition(":")[2].isdecimal())}


def _blocks(plan: NetworkPlan, fields: Mapping[str, Any]) -> Iterator[str]:
    isas = sorted({isa for of in fields["operators"].values() for isa in of})
    for title, name in (("operator", "operators"), ("attribute", "classes")):
        rows = [(one, *(str(of.get(isa, "-")) for isa in isas)) for one, of in fields[name].items()]
        yield table((title, *isas), rows) if rows else ""
    yield from _files(fields["reached"]["files"])
    yield "\n".join(fields["reached"]["decisions"])
    yield "\n".join(
        f"relation {name}: " + ", ".join(f"{number} {told}" for told, number in of.items())
        for name, of in fields["relations"].items()
    )
    yield "\n".join(f"refused {number:>4}  {why}" for why, number in fields["refusals"].items())
    yield "\n".join(
        f"right on builtin, and fails on ExecuTorch {number:>4}  {why}"
        for why, number in fields["would_fail_on_executorch"].items()
    )
    yield "\n".join(map(_line, fields["defects"]))
    yield _headline(plan, fields)


def _files(files: Mapping[str, Mapping[str, int]]) -> Iterator[str]:
    """Yield a table of the compiler's files, and one of the kernels' with a column for each ISA class."""
    cells: dict[str, dict[str, str]] = {}
    for name, one in files.items():
        isa, _, file = name.rpartition(" ")
        if one["lines"]:
            cells.setdefault(file, {})[isa] = f"{one['reached']}/{one['lines']}"
    compiler = [(file, of[""]) for file, of in cells.items() if "" in of]
    yield table(("file of the compiler", "lines reached"), compiler) if compiler else ""
    isas = list(dict.fromkeys(isa for of in cells.values() for isa in of if isa))
    kernels = [(file, *(of.get(isa, "-") for isa in isas)) for file, of in cells.items() if "" not in of]
    yield table(("lines reached in kernels", *isas), kernels) if kernels else ""


def _line(one: Mapping[str, Any]) -> str:
    known = f"; {one['known']}" if one["known"] else ""
    head = f"{one['operator'] or 'no operator'}: {one['kind']}, on {' and '.join(one['places'])}{known}"
    shown = f"\n  fails   {one['fails']}" if one.get("fails") else ""
    shown += f"\n  passes  {one['passes']}" if one.get("passes") else ""
    return f"{head}: {counted(one['programs'], 'program')}, first {one['first']}: {one['message']}{shown}"


def _headline(plan: NetworkPlan, fields: Mapping[str, Any]) -> str:
    outcomes = ", ".join(f"{number} {name}" for name, number in fields["outcomes"].items() if number)
    new = sum(not one["known"] for one in fields["defects"])
    known = len(fields["defects"]) - new
    ran = " and ".join(fields["runs"]) or f"{', '.join(plan.targets)}, where none ran"
    partly = f", {fields['partly']} of these not everywhere" if fields["partly"] else ""
    head = f"{counted(fields['programs'], 'program')} on {ran}: {outcomes}{partly}; "
    head += f"{counted(new, 'defect')}" + (f", {known} known" if known else "") + f"; seed {plan.seed}"
    if fields["programs"] and fields["outcomes"]["refused"] == fields["programs"]:
        head += "\nnone was run, for the reasons above: nothing is known; more networks, or another target or runtime"
    if fields["departed"]:
        head += f"\n{fields['departed']} further from fake-quant than rounding explains, which is no verdict"
    return f"{head}\n{fields['left']} are left: {plan.asked} goes on" if fields["left"] else head
