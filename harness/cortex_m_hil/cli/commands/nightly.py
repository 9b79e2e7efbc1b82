"""The command `hil nightly`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Final

import typer
from pydantic import AfterValidator, Field

from cortex_m_hil.campaigns.nightly import stored_nightlies as nights
from cortex_m_hil.campaigns.nightly.nightly import (
    EVERY,
    KIND,
    SLICES,
    BudgetSpent,
    Nightly,
    NightlyPart,
    NightlyPlan,
    PytestProgress,
    nightly_plan,
    patterns,
    state_of_folder,
    tools,
)
from cortex_m_hil.campaigns.nightly.report_from_store import report_of
from cortex_m_hil.campaigns.report.changes import judged
from cortex_m_hil.campaigns.report.fail_if_limits import FigureLimit, of_known_figure
from cortex_m_hil.campaigns.report.nightly_results import FAILED, Night, Result
from cortex_m_hil.campaigns.report.report_contents import BUNDLES, ReportContents
from cortex_m_hil.campaigns.report.report_files import write_report
from cortex_m_hil.campaigns.report.terminal_summary import counted_by_verdict, counts
from cortex_m_hil.campaigns.store import StoredCampaign
from cortex_m_hil.cli.app import app
from cortex_m_hil.cli.campaigns import Campaign, CampaignOptions, in_store
from cortex_m_hil.cli.change_lines import all_changes, lines_of_changes
from cortex_m_hil.cli.command_output import Answer, end, json_fields, say
from cortex_m_hil.cli.options import (
    OptionalTarget,
    TargetOptions,
    Targets,
    Tests,
    Upstream,
    folder_to_write,
)
from cortex_m_hil.cli.progress import Progress as Display
from cortex_m_hil.cli.pytest_runs import find_suite, named_tests, pytest_command
from cortex_m_hil.cli.tables import cut
from cortex_m_hil.cli.trace_option import TraceFile
from cortex_m_hil.errors import ConfigError, HarnessError
from cortex_m_hil.errors.text import align, counted
from cortex_m_hil.flow.coverage.counting import check
from cortex_m_hil.flow.coverage.counts import Share, total
from cortex_m_hil.host import yaml_files
from cortex_m_hil.host.deadline import Deadline
from cortex_m_hil.host.spans import recorded, span
from cortex_m_hil.host.trace_file import VIEWERS, lines_of_times, spans_in
from cortex_m_hil.runner import launchers
from cortex_m_hil.runner.compiler import compiler
from cortex_m_hil.runner.run_results import Verdict
from cortex_m_hil.targets.resolve import Resolved
from cortex_m_hil.targets.runtimes import AUTO, SEVERAL, select_runtimes
from cortex_m_hil.targets.target import Strict

FILE: Final = "nightly.yaml"
SHOWN: Final = 4  # failures that are shown at most
PLUGIN: Final = "cortex_m_hil.pytest_plugin.nightly_plugin"
_EXAMPLES: Final = "hil docs nightly has one"


class Settings(Strict):
    """The keys of a nightly.yaml; each but `models` and `fail_if` is an option as well."""

    tests: list[str] = Field([])
    upstream: bool | list[str] = False
    targets: list[str] = Field([])
    runtimes: list[str] = Field([AUTO])
    pytest: list[str] = Field([])
    coverage: bool = False
    fit: bool | list[str] = False
    models: list[str] = Field([])
    fail_if: list[Annotated[FigureLimit, AfterValidator(of_known_figure)]] = Field([])


@dataclass(frozen=True)
class Options:
    """The options of a nightly."""

    tests: Tests = None
    upstream: Upstream = False
    target: OptionalTarget = None
    runtime: Annotated[list[str] | None, typer.Option("--runtime", metavar="RUNTIME", help=SEVERAL)] = None
    pytest: Annotated[
        list[str] | None,
        typer.Option("--pytest", metavar="OPTION", help="Pass an option to pytest, e.g. --pytest=--redzones"),
    ] = None
    file: Annotated[
        Path | None,
        typer.Option("--plan", metavar="FILE", help="File of settings; options override it [default: ./nightly.yaml]"),
    ] = None
    shard: Annotated[
        str, typer.Option("--shard", metavar="I/N", help="Run only part I of N, to split tests over CI jobs")
    ] = "1/1"
    against: Annotated[
        str,
        typer.Option(
            "--against", metavar="NIGHTLY", help="The nightly to compare with [default: the last of this folder]"
        ),
    ] = ""
    report: Annotated[
        Path | None,
        typer.Option("--report", metavar="FOLDER", callback=folder_to_write,
                     help="Write index.html, results.json and junit.xml there"),
    ] = None  # fmt: skip
    bundles: Annotated[
        bool,
        typer.Option(
            "--bundles", help="With --report, also write bundles of failures, with their models, for hil replay"
        ),
    ] = False
    coverage: Annotated[
        bool, typer.Option("--coverage", help="Run the tests once more, and count which lines of kernels they execute")
    ] = False
    fit: Annotated[
        bool,
        typer.Option("--fit", help="Find the least memory of each program on each simulator, as hil inspect fit does"),
    ] = False
    jobs: Annotated[
        int, typer.Option("--jobs", "-j", metavar="N", min=0, help="Number of pytest-xdist workers; 0: no pytest-xdist")
    ] = 0
    hil_trace: TraceFile = None
    targets_file: Targets = None


@app.command(
    "nightly",
    log=True,
    epilog=json_fields(
        {
            "outcome": "complete, or under way: tests are left",
            "nightly": "its number in its folder",
            "commit": "the commit of the current folder",
            "dirty": "whether the folder's files differ from the commit",
            "tools": "versions by tool",
            "verdicts": "how many results of each: passed, failed, infra, error, xpassed, xfailed, skipped",
            "left_out": "targets that cannot run here, and why",
            "runtime_reasons": "targets that auto runs on builtin, and why",
            "uncounted": "with --coverage, targets and runtimes whose runner cannot measure coverage, and why",
            "compared_with": "the number of the nightly that it is compared with; null if there is none",
            "changes": (
                "for each kind, suite, runtime, test, target, figure, before, after, limit (what the figure had to "
                "keep to), at_peak (of planned bytes, the operator at the peak), layer (of instructions, that which "
                "changed most), parts (by operator, section or bank: before, after)"
            ),
            "coverage": "with --coverage, by ISA class lines and branches of the kernels (each covered and all)",
        }
    ),
)
def nightly(asked: Options, led: CampaignOptions) -> None:
    """Run tests on all targets, and report what changed.

    Results are stored; hil results shows them. An interrupted nightly resumes when the same command is run in the same
    folder on the same code. Exit status 1 where a test fails, or a figure breaks a limit of fail_if (nightly.yaml) or
    is no longer measured; 2 where something could not be tested, or tests are left.
    """
    settings, report = _settings(asked), asked.report
    with span("start", "targets, versions of the tools"):
        chosen, left_out = _targets(settings, asked.targets_file)
        plan = _plan(settings, chosen, asked, left_out)
    counting, uncounted = _counting(plan, chosen) if settings.coverage else ({}, {})
    plan = replace(plan, coverage=counting)
    more = [f"--hil-bundles={_folder_of_bundles(report)}"] if asked.bundles else []
    with led.store() as kept:
        before = nights.find(kept, asked.against, complete=True) if asked.against else None
        campaign = Campaign.go_on(kept, KIND, plan.as_fields(), lambda one: nightly_plan(one).is_same_work(plan))
        for name, why in left_out.items():
            say(f"{name} is left out: {why}")
        for what, reason in uncounted.items():
            say(f"no coverage of {what}: {reason}")
        for name, why in plan.runtime_reasons.items():
            say(f"{name} runs on builtin: {why}")
        _work(campaign, plan, asked, more, Deadline.after(led.budget))
        if asked.hil_trace is not None:
            say("\n".join(_lines_of_trace(asked.hil_trace)))
        record = campaign.record
        before = before or nights.previous(kept, record)
        found = report_of(kept, record, before, report)
        if report is not None:
            write_report(found, report)
            say(f"report: {report / 'index.html'}")
    apart = {"left_out": left_out, "uncounted": uncounted, "runtime_reasons": plan.runtime_reasons}
    end(_answer(found, record, before, apart, led.store_file))


# --- settings -------------------------------------------------------------------------------------------


def _settings(asked: Options) -> Settings:
    """Return the settings from the options, and from the file where an option is not given.

    Tests or `--upstream` replace both suites of the file.

    Raises:
        ConfigError: the file is wrong, a test does not exist, or no test or target is named.
    """
    found, path = Settings.model_validate({}), asked.file or Path(FILE)
    if asked.file is not None or path.exists():
        tree = yaml_files.parse(path, "it says tests:, targets: and the like; " + _EXAMPLES)
        found = yaml_files.validate(Settings, tree, path, _EXAMPLES)
        if not (asked.tests or asked.upstream):
            _check_tests(found, path, tree)
    named_tests(asked.tests or [])
    given: dict[str, Any] = {"targets": asked.target, "runtimes": select_runtimes(asked.runtime or ())}
    given |= {"pytest": asked.pytest, "coverage": asked.coverage, "fit": asked.fit}
    if asked.tests or asked.upstream:
        found = found.model_copy(update={"tests": list(asked.tests or []), "upstream": asked.upstream})
    found = found.model_copy(update={name: value for name, value in given.items() if value})
    if any(option.startswith("--hil-coverage") for option in found.pytest):
        what = "--pytest=--hil-coverage would change all figures: its runners count what they execute"
        raise ConfigError(what, hint="--coverage runs the tests once more for that")
    if not found.tests and found.upstream is False:
        raise ConfigError("no test is named", hint=f"hil nightly TEST…, --upstream, or tests: in {FILE}")
    if not found.targets:
        raise ConfigError("no target is named", hint=f"--target NAME, or targets: in {FILE}; hil targets lists them")
    return found


def _check_tests(found: Settings, path: Path, tree: Any) -> None:
    """Raise ConfigError, with file and line, for tests in the file that do not exist."""
    named = [("tests", found.tests, [Path()])]
    if isinstance(found.upstream, list):
        named.append(("upstream", found.upstream, [Path(), find_suite("upstream").folder]))
    for key, words, folders in named:
        for number in range(len(words)):
            try:
                named_tests(words[: number + 1], folders)
            except ConfigError as error:
                _, line = yaml_files.locate(tree, (key, number))
                raise ConfigError(f"{path}:{line}: {error.message}", hint=error.hint) from None


def _checked_shard(text: str) -> str:
    number, slash, of = text.partition("/")
    if not (slash and number.isdecimal() and of.isdecimal() and 1 <= int(number) <= int(of)):
        raise ConfigError(f"--shard {text}: no part of a whole", hint="1/4 is the first of four")
    return f"{int(number)}/{int(of)}"


def _targets(settings: Settings, file: Path | None) -> tuple[list[Resolved], dict[str, str]]:
    """Return the targets that can run here, and by name why others cannot.

    Raises:
        ConfigError: no target can run here.
    """
    found: list[Resolved] = []
    left_out: dict[str, str] = {}
    choice = TargetOptions(targets_file=file).choose(settings.targets)
    for name in choice.names:
        try:
            resolved = choice.resolve(name)
            compiler(resolved.target)
            launchers.require(resolved.target)
            found.append(resolved)
        except HarnessError as error:
            left_out[name] = error.message
    if not found:
        raise ConfigError(f"no target runs here: {next(iter(left_out.values()))}", hint="hil doctor")
    return found, left_out


def _plan(settings: Settings, targets: Sequence[Resolved], asked: Options, left_out: Mapping[str, str]) -> NightlyPlan:
    upstream = [] if settings.upstream is True else settings.upstream
    commit, difference = state_of_folder()
    compilers = {tool.path: tool for tool in (compiler(one.target) for one in targets)}
    automatic = targets if AUTO in settings.runtimes else ()
    used = sorted({one.runtime for one in automatic})
    return NightlyPlan(
        tests=tuple(settings.tests),
        upstream=None if upstream is False else tuple(upstream),
        targets=tuple(one.name for one in targets),
        runtimes=tuple(settings.runtimes),
        targets_file=str(asked.targets_file.absolute()) if asked.targets_file is not None else "",
        options=tuple(settings.pytest),
        shard=_checked_shard(asked.shard),
        limits=tuple(settings.fail_if),
        coverage={},
        fit=patterns(settings.fit),
        models=tuple(settings.models),
        commit=commit,
        difference=difference,
        tools=tools(list(compilers.values())),
        left_out=left_out,
        automatic={name: tuple(one.name for one in automatic if one.runtime == name) for name in used},
        runtime_reasons={one.name: one.runtime_reason for one in automatic if one.runtime_reason},
    )


def _counting(
    plan: NightlyPlan, targets: Sequence[Resolved]
) -> tuple[dict[str, tuple[str, ...]], dict[str, str]]:  # fmt: skip
    """Return by runtime the targets that can count coverage, and why others cannot.

    Raises:
        HarnessError: no target can count coverage; it is the error of the first target.
    """
    found: dict[str, list[str]] = {}
    errors: dict[str, HarnessError] = {}
    for runtime, names in plan.places.items():
        for one in (one for one in targets if one.name in names):
            try:
                check(replace(one, runtime=runtime))
                found.setdefault(runtime, []).append(one.name)
            except HarnessError as error:
                errors[f"{one.name}, {runtime}"] = error
    if not found:
        raise next(iter(errors.values()))
    return {name: tuple(names) for name, names in found.items()}, {what: one.message for what, one in errors.items()}


def _folder_of_bundles(report: Path | None) -> Path:
    if report is None:
        raise ConfigError("--bundles without --report", hint="--report FOLDER as well: bundles are a part of it")
    return report.absolute() / BUNDLES


# --- work ----------------------------------------------------------------------------------------------------


def _work(campaign: Campaign, plan: NightlyPlan, asked: Options, more: Sequence[str], budget: Deadline) -> None:
    """Run what remains of a nightly, within the budget.

    Args:
        campaign: the nightly.
        plan: the nightly's plan.
        asked: the options: the number of pytest-xdist's workers, the file of the trace.
        more: pytest's options for the parts that do not count coverage.
        budget: the deadline after which no run begins.
    """
    kept, record = campaign.kept, campaign.record
    with campaign.folder() as folder, Display(seconds=EVERY) as display:
        failed: Counter[str] = Counter()

        def told(progress: PytestProgress) -> None:
            if progress.result is not None and progress.result.verdict in (*FAILED, Verdict.INFRA):
                failed[progress.result.key.suite] += 1
                say(_row(progress.result))
            of = progress.part
            bad = f", {failed.total()} that failed" if failed else ""
            left = progress.collected - progress.done
            what = f"{of.runtime}, coverage {of.slice}/{SLICES}" if of.counts else of.runtime
            left -= progress.running
            display(f"{of.suite}, {what}: {progress.done} done, {progress.running} running, {left} left{bad}")

        def command(part: NightlyPart, options: Sequence[str]) -> list[str]:
            traced = [f"--hil-trace={asked.hil_trace.absolute()}"] if asked.hil_trace is not None else []
            return _command(plan, part, asked.jobs, [*([] if part.counts else more), *traced, *options])

        try:
            with suppress(BudgetSpent):
                campaign.work(Nightly(plan, kept, record, folder, command, told, budget), budget, display=False)
        except ConfigError:
            if not campaign.runs:  # a nightly without a result, such as after a wrong call, is not kept
                kept.forget(record)
            raise


def _lines_of_trace(file: Path) -> Iterator[str]:
    """Yield what hil and its pytest spent their time on until now."""
    own = recorded()
    yield "where the time went"
    since = own[0].begin + own[0].duration  # the start of this process
    yield from lines_of_times({**spans_in(file, since), "hil nightly": own})
    yield f"each span: {file}, for {VIEWERS}"


def _command(plan: NightlyPlan, part: NightlyPart, jobs: int, options: Sequence[str]) -> list[str]:
    file = Path(plan.targets_file) if plan.targets_file else None
    if part.suite == "upstream":
        suite = find_suite("upstream")
        start = [*suite.command, "-p", PLUGIN, *named_tests(plan.upstream or (), [Path(), suite.folder])]
    else:
        start = [*pytest_command(PLUGIN, plan.tests), "--continue-on-collection-errors"]
    how = ["-n", str(jobs)] if jobs else []
    how += [f"--hil-fit={pattern}" for pattern in plan.fit if not part.counts]
    targets = plan.coverage[part.runtime] if part.counts else plan.places[part.runtime]
    on = TargetOptions(runtime=part.runtime, targets_file=file).for_pytest(targets)
    return [*start, *on, *how, *plan.options, *options]


def _row(result: Result) -> str:
    return f"{result.ending}  {result.key.test}  {result.key.target}, {result.key.runtime}"


# --- answers -------------------------------------------------------------------------------------------------


def _answer(
    found: ReportContents,
    campaign: StoredCampaign,
    before: StoredCampaign | None,
    apart: Mapping[str, Any],
    store_file: Path | None,
) -> Answer:
    """Return the answer of the command.

    Args:
        found: the results and the changes.
        campaign: the nightly.
        before: the earlier nightly for the comparison; None: there is none.
        apart: further fields.
        store_file: the file of --store.
    """
    new = found.night
    fields: dict[str, Any] = {
        "outcome": "complete" if new.complete else "under way",
        "nightly": campaign.ordinal,
        "commit": new.commit,
        "dirty": new.dirty,
        "tools": new.tools,
        "verdicts": counts(new),
        **apart,
        "compared_with": before.ordinal if before is not None else None,
        "changes": [one.fields() for one in found.changes],
        "coverage": {name: dict(zip(("lines", "branches"), shares, strict=True)) for name, shares in _shares(new)},
    }
    failed, unknown = judged(new, found.changes)
    return Answer.from_blocks(_blocks(found, campaign, before, store_file), fields, bad=failed, unknown=unknown)


def _blocks(
    found: ReportContents, campaign: StoredCampaign, before: StoredCampaign | None, store_file: Path | None
) -> Iterator[str]:
    new, left = found.night, not found.night.complete
    if found.changes or (before is not None and new.tests):
        rest = all_changes(before, campaign, store_file)
        yield "\n".join(lines_of_changes(found.changes, _named(before), rest, so_far=left))
    bad = [one for one in new.tests if one.verdict in (*FAILED, Verdict.INFRA)]
    rows = [cut(f"{_row(one)}: {one.headline}") for one in bad[:SHOWN]]
    shown = f"hil results show {campaign.ordinal} --markdown{in_store(store_file)}"
    rest = f"and {counted(len(bad) - SHOWN, 'more failure')}: {shown}"
    yield "\n".join([*rows, *([rest] if bad[SHOWN:] else [])])
    yield "\n".join(align(list(_totals(new)))) if new.tests else ""
    counted_lines = [[f"coverage {name}", f"lines {one}", f"branches {other}"] for name, (one, other) in _shares(new)]
    yield "\n".join(align(counted_lines)) if counted_lines else ""
    commit = f", commit {new.commit[:10]}{' and changes' if new.dirty else ''}" if new.commit else ""
    told = f"nightly {campaign.ordinal}, {counted(len(new.tests), 'result')}{commit}"
    yield f"{told}; tests are left: the same command goes on" if left else told


def _shares(new: Night) -> list[tuple[str, tuple[Share, Share]]]:
    """Return by ISA class the covered shares of lines and branches of kernels; nothing where none were counted."""
    classes = new.coverage.classes if new.coverage is not None else {}
    return [(name, total(one.files)) for name, one in sorted(classes.items())]


def _named(campaign: StoredCampaign | None) -> str:
    if campaign is None:
        return ""
    return f"nightly {campaign.ordinal}" + (f" ({campaign.name})" if campaign.name else "")


def _totals(new: Night) -> Iterator[list[str]]:
    """Yield the rows of the table of totals: one for each target and runtime."""
    for (target, runtime), here in new.by_target_runtime.items():
        ran = next((f"{one.ran} on {one.engine}" for one in here if one.engine), "none ran" if target else "-")
        told = ", ".join(counted_by_verdict(Counter(one.verdict for one in here)))
        yield [target or "(no target)", runtime, ran, told, f"in {sum(one.seconds for one in here):.1f} s"]
