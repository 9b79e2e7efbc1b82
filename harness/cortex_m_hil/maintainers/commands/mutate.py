"""The command `hil dev mutate`."""

from __future__ import annotations

import importlib.util
import random
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from cortex_m_hil.campaigns.bisection.run_verdicts import first_error
from cortex_m_hil.campaigns.store import Run, Store
from cortex_m_hil.cli.campaigns import UNDER_WAY, Campaign, CampaignOptions
from cortex_m_hil.cli.command_output import Answer, end, json_fields, say
from cortex_m_hil.cli.options import DAY, OptionalTarget, TargetOptions, Targets, Tests, Upstream
from cortex_m_hil.cli.progress import status
from cortex_m_hil.cli.pytest_runs import named_tests, pytest_command
from cortex_m_hil.cli.tables import table
from cortex_m_hil.errors import ConfigError
from cortex_m_hil.errors.text import counted
from cortex_m_hil.host import subprocesses
from cortex_m_hil.host.deadline import Deadline
from cortex_m_hil.maintainers.commands.dev_group import dev
from cortex_m_hil.maintainers.executorch_suites import find_suite
from cortex_m_hil.maintainers.mutation import mutation_report
from cortex_m_hil.maintainers.mutation.mutation_campaign import Mutation, MutationPlan, MutationWorkers
from cortex_m_hil.maintainers.mutation.mutation_report import KillRate, MutationReport
from cortex_m_hil.maintainers.mutation.mutation_worker import MutantOutcome, runtime_of
from cortex_m_hil.maintainers.suite_runs import upstream_command
from cortex_m_hil.targets.target import HardwareLauncher

KIND: Final = "mutate"
KEEPING: Final = "cortex_m_hil.maintainers.pytest_plugins.keep_programs"
READY: Final = "ready"  # subfolder of the campaign's folder with the programs of the tests
SEEDS: Final = 1 << 32
KernelFolders = Annotated[
    list[str] | None,
    typer.Option(
        metavar="FOLDER", help="Mutate this folder of an ExecuTorch source, not the builtin kernels; repeatable"
    ),
]
SeedOption = Annotated[
    int | None,
    typer.Option(
        "--seed", metavar="SEED", min=0, max=SEEDS - 1, help="Seed of the draw: the same one draws the same mutants"
    ),
]
OnceOption = Annotated[
    bool, typer.Option("--once", help="Judge each mutant on one target: the first whose runner the mutant changes")
]
LocalizeOption = Annotated[
    bool, typer.Option("--localize", help="Localise each failure, and count how often the mutated operator is named")
]
ResetOption = Annotated[bool, typer.Option("--reset", help="Forget the campaign of this folder, and start a new one")]


@dev.command(
    "mutate",
    log=True,
    epilog=json_fields(
        {
            "outcome": "complete, or under way (the budget is spent)",
            "left": "the number of judgements left, of each mutant on each target",
            "tests": "the tests, as in the call",
            "upstream": "--upstream, as in the call",
            "targets": "the targets, as in the call",
            "seed": "the seed, as in the call",
            "mutants": "--count, as in the call",
            "programs": "by target, the number of programs from the tests",
            "programs_left_out": (
                "by target, the number of programs that are left out, as on a runner of these kernels alone "
                "they do not end as in their tests"
            ),
            "killed": "the number of mutants that a test found, each counted on each target (as in the next fields)",
            "survived": "the number of mutants that no test found",
            "unchanged": "the number of mutants that left the runner's code and data as they were",
            "not_built": "the number of mutants that could not be built",
            "infra": "the number of mutants that infra errors kept from being judged",
            "rates": "for each target: of (the text all), target, isa, killed, judged, rate",
            "operators": "these numbers by operator",
            "kinds": "these numbers by kind of change",
            "survivors": (
                "a list of target, isa, path, line, column, function, kind, refuses (whether the code refuses "
                "arguments), operators, diff (unified)"
            ),
            "without_verdict": "a list of mutant, error",
            "localized": (
                "right: the number of killed mutants for which the right operator was named; of: the number of killed "
                "mutants; null without --localize"
            ),
            "mislocalized": "the other killed mutants: a list of mutant, error (the verdict), named (operators)",
        }
    ),
)
def mutate(
    led: CampaignOptions,
    tests: Tests = None,
    target: OptionalTarget = None,
    upstream: Upstream = False,
    kernels: KernelFolders = None,
    count: Annotated[int, typer.Option("--count", metavar="N", min=0, help="Number of mutants to draw; 0: all")] = 100,
    seed: SeedOption = None,
    redzones: Annotated[bool, typer.Option("--redzones", help="Detect writes outside tensors, too")] = False,
    once: OnceOption = False,
    localize: LocalizeOption = False,
    jobs: Annotated[
        int, typer.Option("--jobs", "-j", metavar="N", min=1, help="Number of mutants, or of tests, at a time")
    ] = 1,
    reset: ResetOption = False,
    targets_file: Targets = None,
) -> None:
    """Check whether tests notice a broken kernel.

    A mutant is a copy of the kernels with one small change. The tests run once, on unchanged kernels, and their
    programs are kept. For each mutant a runner is built; the programs run on it and are judged as in their tests. A
    mutant survives if all of them pass. Without TEST and --upstream, the campaign of this folder goes on. Exit status 1
    where a mutant survives.
    """
    wanted = None
    with led.store() as kept:
        if reset:
            _forget(kept, asked=bool(tests or upstream))
        if tests or upstream:
            _check(upstream, redzones)
            folders, file = tuple(kernels or ()), str(targets_file.absolute()) if targets_file else ""
            named_tests(tests or [])
            names = _targets(target or [], targets_file, folders)
            chosen = random.SystemRandom().randrange(SEEDS) if seed is None else seed
            wanted = MutationPlan(tuple(tests or ()), names, count, chosen, "", file, folders, upstream)
            wanted = replace(wanted, redzones=redzones, once=once, localize=localize)
            wanted = replace(wanted, kernels=wanted.kernels_now().digest)
        campaign = _campaign(kept, wanted, seeded=seed is not None)
        plan, left = _work(campaign, jobs, Deadline.after(led.budget))
        runs = campaign.runs
    counted_runs = mutation_report.one_run_per_mutant(runs) if plan.once else runs
    end(_answer(plan, MutationReport(tuple(counted_runs), frozenset(plan.operators)), left))


# --- beginning and resuming a campaign -------------------------------------------------------------------------


def _check(upstream: bool, redzones: bool) -> None:
    """Raise ConfigError for options that exclude each other, ToolchainError where ExecuTorch has no suite."""
    if upstream and redzones:
        raise ConfigError("--redzones: ExecuTorch's suite has memory plans of its own", hint="without --upstream")
    if upstream:
        find_suite()


def _targets(patterns: Sequence[str], file: Path | None, folders: Sequence[str]) -> tuple[str, ...]:
    """Return the names of the targets. Raise ConfigError for boards.

    Each mutant would have to be flashed, and all mutants have the same build id.
    """
    choice = TargetOptions(runtime=runtime_of(folders), targets_file=file).choose(patterns)
    for name in choice.names:
        if isinstance(choice.resolve(name).target.launcher, HardwareLauncher):
            raise ConfigError(
                f"{name} is a board: each mutant would be flashed", hint="name a simulator of its ISA class"
            )
    return tuple(choice.names)


def _campaign(kept: Store, wanted: MutationPlan | None, *, seeded: bool) -> Campaign:
    """Return the unfinished campaign of this folder, or a new one.

    Args:
        kept: the store of campaigns.
        wanted: the requested plan; None: resume the unfinished campaign.
        seeded: whether the seed was requested, too.

    Raises:
        ConfigError: there is no unfinished campaign to resume, or it has another plan.
    """
    before = Campaign.last(kept, KIND)
    if wanted is None:
        if before is None:
            raise ConfigError("nothing was begun in this folder", hint="hil dev mutate TEST… -t TARGET, or --upstream")
        return before
    if before is None or before.has_ended:
        return Campaign.begin(kept, KIND, wanted.as_fields())
    plan = MutationPlan.from_fields(before.plan)
    if not plan.asks_like(wanted) or (seeded and plan.seed != wanted.seed):
        hint = "hil dev mutate goes on with it; --reset forgets it"
        raise ConfigError(f"{UNDER_WAY}: {plan.asked}", hint=hint)
    return before


def _forget(kept: Store, *, asked: bool) -> None:
    if not asked:
        raise ConfigError("--reset begins anew, and no test is named", hint="hil dev mutate TEST -t TARGET --reset")
    if (campaign := Campaign.last(kept, KIND)) is not None:
        campaign.forget()


# --- work ----------------------------------------------------------------------------------------------------


def _work(campaign: Campaign, jobs: int, budget: Deadline) -> tuple[MutationPlan, int]:
    """Work on a campaign until it is complete or the budget is spent; return the plan and how many runs are left."""
    plan = MutationPlan.from_fields(campaign.plan)
    if campaign.has_ended:
        return plan, 0
    kernels = plan.kernels_now()
    with campaign.folder(lambda: not campaign.has_ended) as folder:
        ready = folder / READY
        begun = bool(plan.seconds) and ready.is_dir()
        if not begun:
            _run_tests(plan, ready, folder, jobs)
        with MutationWorkers(plan.settings(ready), folder) as workers:
            if not begun:
                plan = _timed(plan, workers)
                campaign.change(plan.as_fields())
            mutation = Mutation(plan, plan.mutants(kernels), workers)
            most = "at most " if plan.once else ""
            drawn = len(kernels.mutants_of(plan.operators))
            say(f"{most}{len(mutation.keys)} to judge, {drawn} to draw from, seed {plan.seed}")
            runs = campaign.work(mutation, budget, lambda runs: _row(runs[-1], len(runs), mutation.left(runs)), jobs)
    return plan, mutation.left(runs)


def _timed(plan: MutationPlan, workers: MutationWorkers) -> MutationPlan:
    """Return the plan with the programs' seconds on the unmutated runners, and with their operators."""
    seconds: dict[str, dict[str, float]] = {}
    left_out: dict[str, int] = {}
    operators: set[str] = set()
    for target in plan.targets:
        with status(f"the runner of {target}, without a mutant"):
            found, used = workers.unmutated(target)
        seconds[target] = {name: one for name, one in found.items() if one is not None}
        left_out[target] = len(found) - len(seconds[target])
        operators |= set(used)
        if not seconds[target]:
            raise ConfigError(
                f"no program of {plan.asked} runs on {target}", hint="name tests that call hil.check or hil.run"
            )
        say(f"{counted(len(seconds[target]), 'program')} on {target}" + _apart(left_out[target]))
    return replace(plan, seconds=seconds, left_out=left_out, operators=tuple(sorted(operators)))


def _apart(left_out: int) -> str:
    return f", and {left_out} that these kernels alone do not run as their tests did" if left_out else ""


def _run_tests(plan: MutationPlan, ready: Path, folder: Path, jobs: int) -> None:
    """Run the tests without a mutant and keep their programs. Raise ConfigError where they do not pass.

    A test that fails without a mutant cannot show one.
    """
    shutil.rmtree(ready, ignore_errors=True)
    file = Path(plan.targets_file) if plan.targets_file else None
    options = TargetOptions(runtime=runtime_of(plan.folders), targets_file=file).for_pytest(plan.targets)
    options += [f"--hil-keep-into={ready}"]
    options += ["--hil-redzones"] if plan.redzones else []
    options += ["--hil-keep-intermediates"] if plan.localize else []
    options += ["-n", str(jobs)] if jobs > 1 and importlib.util.find_spec("xdist") is not None else []
    for name, command, shows in _suites(plan):
        log = folder / f"{name}.log"
        log.unlink(missing_ok=True)
        with status(f"{name}, without a mutant"):
            ended = subprocesses.run([*command, *options], log, DAY)
        if ended != 0:
            said = log.read_text(errors="replace")
            what = f"{name} do not pass without a mutant: {first_error(said)}"
            raise ConfigError(what, log=said, hint=f"{shows} shows it; mend that first")


def _suites(plan: MutationPlan) -> Iterator[tuple[str, list[str], str]]:
    """Yield for each suite of tests its name, the command that runs it here, and the command for users to run it."""
    if plan.tests:
        yield "the tests", pytest_command(KEEPING, plan.tests), f"pytest {' '.join(plan.tests)}"
    if plan.upstream:
        shows = f"hil dev upstream -t {','.join(plan.targets)}"
        yield "ExecuTorch's tests", [*upstream_command(), "-p", KEEPING], shows


def _row(run: Run, number: int, left: int) -> str:
    why = f"  {run.error}" if run.error else ""
    place = f"{Path(run.figures['path']).name}:{run.figures['line']}"
    told = f"{number:>{len(str(number + left))}} of {number + left}  {run.verdict:<9}  {place}  {run.figures['change']}"
    return f"{told}  {run.figures['target']}, {run.seconds:.1f} s{why}"


# --- answers -------------------------------------------------------------------------------------------------


def _answer(plan: MutationPlan, report: MutationReport, left: int) -> Answer:
    fields: dict[str, Any] = {
        "outcome": "under way" if left else "complete",
        "tests": plan.tests,
        "upstream": plan.upstream,
        "targets": plan.targets,
        "seed": plan.seed,
        "mutants": plan.count,
        "left": left,
        "programs": {target: len(found) for target, found in plan.seconds.items()},
        "programs_left_out": plan.left_out,
        **report.fields(),
    }
    unknown = left or not report.judged or report.runs_with(MutantOutcome.INFRA)
    return Answer.from_blocks(_blocks(plan, report, left), fields, bad=report.survivors and not left, unknown=unknown)


def _blocks(plan: MutationPlan, report: MutationReport, left: int) -> Iterator[str]:
    yield from mutation_report.survivors(report.survivors)
    yield _rates("operator", report.rates_by_operator())
    yield _rates("change", [*report.rates_by_kind(), *report.rates_by_purpose(), *report.total()])
    yield "\n".join(f"no verdict: {run.key}: {run.error}" for run in report.runs_with(MutantOutcome.INFRA))
    if (localized := report.localized()) is not None:
        right, killed = localized
        wrong = [
            f"{run.key}: {', '.join(run.figures['named']) or 'nothing'} was named" for run in report.mislocalized()
        ]
        head = f"the right operator was named for {right} of {killed} killed, {right / killed:.1%}"
        yield "\n".join([*wrong, head])
    yield _headline(plan, report, left)


def _rates(what: str, rates: Sequence[KillRate]) -> str:
    rows = [(one.of, one.target, one.isa, f"{one.killed} of {one.judged}", f"{one.rate:.0%}") for one in rates]
    return table((what, "target", "class", "killed", ""), rows) if rows else ""


def _headline(plan: MutationPlan, report: MutationReport, left: int) -> str:
    apart = {
        outcome: len(report.runs_with(outcome))
        for outcome in (MutantOutcome.UNCHANGED, MutantOutcome.NOT_BUILT, MutantOutcome.INFRA)
    }
    counts = "; ".join(f"{outcome.value}: {number}" for outcome, number in apart.items() if number)
    killed = len(report.runs_with(MutantOutcome.KILLED))
    head = f"killed {killed} of {counted(len(report.judged), 'mutant')} that were judged"
    head += f", {len(report.survivors)} survived" + (f" ({counts})" if counts else "") + f"; seed {plan.seed}"
    return f"{head}\n{left} are left: hil dev mutate goes on" if left else head
