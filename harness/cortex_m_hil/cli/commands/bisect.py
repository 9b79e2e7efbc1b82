"""The commands of `hil bisect`."""

from __future__ import annotations

import shlex
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from cortex_m_hil.campaigns.bisection import evidence as findings
from cortex_m_hil.campaigns.bisection.bisect import (
    Bisection,
    BisectionOutcome,
    BisectionPlan,
    BisectionState,
    CommitLine,
    Source,
    checked,
    run_test,
)
from cortex_m_hil.campaigns.bisection.run_verdicts import Rules, RunVerdict, with_junit
from cortex_m_hil.campaigns.git_history import Commit, Repository, git_environment
from cortex_m_hil.campaigns.provenance import Provenance
from cortex_m_hil.campaigns.store import Run, Store
from cortex_m_hil.cli.app import Command, app, group
from cortex_m_hil.cli.campaigns import Campaign, CampaignOptions, StoreFile, opened
from cortex_m_hil.cli.command_output import Answer, Problem, end, json_fields, say, write_problem
from cortex_m_hil.cli.error_output import UsageError, of_usage
from cortex_m_hil.cli.exit_codes import NO, OK
from cortex_m_hil.cli.options import YEAR, within
from cortex_m_hil.cli.progress import status
from cortex_m_hil.cli.pytest_runs import files_of_tests, named_tests
from cortex_m_hil.cli.tables import table
from cortex_m_hil.errors import ConfigError, HarnessError
from cortex_m_hil.errors.text import counted
from cortex_m_hil.host import files
from cortex_m_hil.host.deadline import Deadline
from cortex_m_hil.host.folders import TemporaryFolder

KIND: Final = "bisect"
LOG_LIMIT: Final = 1 << 30  # bytes of the log file at most
SHOWN: Final = 8  # operators of a test with changed outputs that are shown at most
SKIP, ABORT = 125, 128  # exit statuses for git bisect run: the commit cannot be tested; stop the search

bisect = group()
app.add_typer(bisect, name="bisect")


_FIELDS: Final = json_fields(
    {
        "outcome": (
            "found, no change (the ends do not differ), stated outcome wrong (all runs of OLD or NEW contradict the "
            "outcome stated for it), contradiction (no single change explains the runs), under way (runs are left)"
        ),
        "culprit": "sha, subject, author, date, parents; null unless one commit is found",
        "candidates": "the most probable culprit with those that no run can tell from it, as a list",
        "probability": "the probability that one of the candidates is the culprit",
        "diff_stat": "of the culprit against its first parent",
        "runs": "the number of runs",
        "old": "the SHA of OLD",
        "new": "the SHA of NEW",
        "evidence": (
            "for each commit that was run position, commit, old and new (runs that looked like that side), skipped, why"
        ),
        "targets": (
            "for each test on a target test, target, isa, old and new (verdicts before and since), "
            "outputs_changed, at_fault, operators (those whose outputs differ; null: not known), bundle (a "
            "file, or empty)"
        ),
    }
)


@dataclass(frozen=True)
class TestOptions:
    """The options for the command of the test, and for the outcomes that are counted."""

    command: Annotated[
        list[str] | None, typer.Argument(metavar="-- COMMAND", help="The command that runs the test, such as pytest …")
    ] = None
    timeout: Annotated[
        float,
        typer.Option(
            "--timeout", metavar="SECONDS", callback=within(0.01, YEAR), help="Seconds for one run of the test"
        ),
    ] = BisectionPlan.timeout
    allow_fallback: Annotated[bool, typer.Option("--allow-fallback", help="Accept runs on a target's fallback")] = False
    raises: Annotated[
        list[str] | None,
        typer.Option("--raises", metavar="CLASS", help="Count only this error class as a failure; repeatable"),
    ] = None

    @property
    def rules(self) -> Rules:
        return Rules(self.allow_fallback, tuple(self.raises or ()))


@dataclass(frozen=True)
class SearchOptions:
    """The options of a search: the source to search in, and how."""

    source: Annotated[Path, typer.Option("--source", metavar="FOLDER", help="The repository's top folder")] = Path()
    python: Annotated[
        str,
        typer.Option(
            "--python", metavar="FOLDER", help="Folder in each worktree, such as src, that goes first on PYTHONPATH"
        ),
    ] = ""
    build: Annotated[
        str, typer.Option("--build", metavar="COMMAND", help="A shell command that builds each commit in its worktree")
    ] = ""
    incremental: Annotated[
        bool, typer.Option("--incremental", help="Keep git-ignored files (build output) between commits")
    ] = False
    exclude: Annotated[
        list[str] | None,
        typer.Option("--exclude", metavar="PATH", help="Path to leave out of the worktree: the test does not need it"),
    ] = None
    likely: Annotated[
        list[str] | None, typer.Option("--likely", metavar="PATH", help="A path that the culprit probably touches")
    ] = None
    confidence: Annotated[
        float,
        typer.Option(
            "--confidence",
            metavar="PROBABILITY",
            callback=within(0.5, 0.9999),
            help="Stop when the culprit's probability reaches this",
        ),
    ] = BisectionPlan.confidence
    deterministic: Annotated[
        bool, typer.Option("--deterministic", help="The test is not flaky: run each commit once")
    ] = False
    find_fix: Annotated[
        bool, typer.Option("--find-fix", help="Find the commit that fixed the test (OLD fails, NEW passes)")
    ] = False
    assert_old: Annotated[
        bool, typer.Option("--assert-old", help="Trust that OLD has the stated outcome; do not run it")
    ] = False
    assert_new: Annotated[
        bool, typer.Option("--assert-new", help="Trust that NEW has the stated outcome; do not run it")
    ] = False
    term_old: Annotated[
        str,
        typer.Option(
            "--term-old",
            metavar="WORD",
            help="The word for OLD's outcome [default: good, or broken]",
            show_default=False,
        ),
    ] = ""
    term_new: Annotated[
        str,
        typer.Option(
            "--term-new", metavar="WORD", help="The word for NEW's outcome [default: bad, or fixed]", show_default=False
        ),
    ] = ""
    reuse: Annotated[
        bool,
        typer.Option("--reuse", help="Count runs of earlier searches in this folder, if source and test are the same"),
    ] = False


@bisect.callback()
def _bisect() -> None:
    """Find the commit that changed the outcome of a test."""


# --- start and reset -----------------------------------------------------------------------------------------


@bisect.command(
    "start",
    epilog=json_fields(
        {
            "commits": "the number of commits in the range",
            "old": "the SHA of OLD",
            "new": "the SHA of NEW",
        }
    ),
)
def start(
    new: Annotated[
        str, typer.Argument(metavar="NEW", help="A commit where the test fails (git bisect's bad)", show_default=False)
    ],
    old: Annotated[
        str, typer.Argument(metavar="OLD", help="An earlier commit where it passes (good)", show_default=False)
    ],
    search: SearchOptions,
    store_file: StoreFile = None,
) -> None:
    """Start a search in this folder. Only the first-parent history between OLD and NEW is searched."""
    terms = ("broken", "fixed") if search.find_fix else ("good", "bad")
    repository = Source(
        str(search.source), search.python, search.build, search.incremental, tuple(search.exclude or ())
    )  # fmt: skip
    plan = checked(
        BisectionPlan(
            repository, old, new, search.assert_old, search.assert_new, tuple(search.likely or ()),
            search.confidence, search.deterministic, search.find_fix,
            search.term_old or terms[0], search.term_new or terms[1], reuse=search.reuse,
        )
    )  # fmt: skip
    line = CommitLine.from_plan(plan)
    with opened(store_file) as kept:
        _begin(kept, plan)
    text = f"{counted(line.last, 'commit')} to choose from; now: hil bisect run -- COMMAND"
    end(Answer(text, {"commits": line.last, **_ends(line)}))


@bisect.command(
    "reset",
    epilog=json_fields(
        {
            "began": "when the search was started, in seconds since 1970",
        }
    ),
)
def reset(store_file: StoreFile = None) -> None:
    """Forget the searches of this folder, and all of their runs."""
    with opened(store_file) as kept:
        campaign = _current(kept)
        with campaign.folder() as folder:
            Bisection.clean_up(BisectionPlan.from_fields(campaign.plan), folder)
            for one in [one for one in kept.campaigns(KIND) if one.folder == campaign.record.folder]:
                shutil.rmtree(_bundles(Campaign(kept, one)), ignore_errors=True)
                kept.forget(one)
    end(Answer("forgotten", {"began": campaign.record.began}))


# --- run -----------------------------------------------------------------------------------------------------


@bisect.command("run", log=True, epilog=_FIELDS)
def run(
    test: TestOptions,
    led: CampaignOptions,
    build_timeout: Annotated[
        float,
        typer.Option(
            "--build-timeout",
            metavar="SECONDS",
            callback=within(0.01, YEAR),
            help="Seconds for the build of one commit",
        ),
    ] = BisectionPlan.build_timeout,
    run_log: Annotated[
        Path | None, typer.Option("--run-log", metavar="FILE", help="Write the log to this file, run by run")
    ] = None,
) -> None:
    """Run the test on commit after commit until the culprit is known.

    A search that was interrupted goes on when this command is called again in the same folder.
    """
    with led.store() as kept:
        campaign = _current(kept)
        plan = _with_test(campaign, test, build_timeout)
        line = CommitLine.from_plan(plan)
        with campaign.folder() as folder:
            if plan.reuse and not campaign.runs:
                _take_over(campaign, line)
            deadline = Deadline.after(led.budget)
            runs, state = _work(line, campaign, folder, deadline, run_log)
            if state.outcome is BisectionOutcome.FOUND and not deadline.expired:
                line = _with_details(line, state, campaign, folder)
        if state.outcome is not BisectionOutcome.UNDER_WAY:
            campaign.end()
        if state.outcome is BisectionOutcome.UNTESTABLE:
            raise findings.untestable(line, runs)
    end(_answer(line, state, runs))


def _with_test(campaign: Campaign, test: TestOptions, build_timeout: float) -> BisectionPlan:
    """Return the plan with its test, which is the previous one if no command is given.

    Raises:
        ConfigError: no test is named, or another test than in earlier runs.
    """
    plan, command = BisectionPlan.from_fields(campaign.plan), test.command
    if not (command or plan.command):
        raise ConfigError("no test is named", hint="hil bisect run -- pytest --target=m4-qemu FILE::TEST")
    if not command:
        return plan
    with_junit(command, Path("junit.xml"))
    named_tests(files_of_tests(command))
    wanted = replace(plan, command=tuple(command), timeout=test.timeout, build_timeout=build_timeout, rules=test.rules)
    if plan.command and campaign.runs and (plan.command, plan.rules) != (wanted.command, wanted.rules):
        hint = "go on with: hil bisect run; or begin anew: hil bisect reset"
        raise ConfigError(f"the search under way here runs another test: {' '.join(plan.command)}", hint=hint)
    campaign.change(wanted.as_fields())
    return wanted


def _take_over(campaign: Campaign, line: CommitLine) -> None:
    """Record the runs of earlier searches in this folder that ran the same test on commits of the same source."""
    tells = {RunVerdict.PASS, RunVerdict.FAIL, RunVerdict.SKIP, RunVerdict.BUILD}
    found: dict[tuple[str, float], Run] = {}  # an earlier search may have taken over the same runs
    kept, record = campaign.kept, campaign.record
    for earlier in kept.campaigns(KIND):
        plan = BisectionPlan.from_fields(earlier.plan)
        same = (plan.source, plan.command, plan.rules) == (line.plan.source, line.plan.command, line.plan.rules)
        if same and earlier.folder == record.folder and earlier.number != record.number:
            runs = [one for one in kept.runs(earlier) if one.key in line.position and RunVerdict(one.verdict) in tells]
            found |= {(one.key, one.at): one for one in runs}
    if found:
        kept.record(record, *found.values())
        say(f"{counted(len(found), 'run')} of earlier searches taken over")
    else:
        say("no earlier search here has a run of these commits by this test")


def _work(
    line: CommitLine, campaign: Campaign, folder: Path, budget: Deadline, run_log: Path | None
) -> tuple[list[Run], BisectionState]:
    runs = campaign.runs
    _write(run_log, findings.log_lines(line, runs), "w")
    if line.state(runs).next is None:
        return runs, line.state(runs)

    def row(runs: list[Run]) -> str:
        _write(run_log, findings.lines_of_run(line, runs, len(runs)), "a")
        return _row(line, runs)

    with Bisection(line, folder) as bisection:
        runs = campaign.work(bisection, budget, row, ends=False)
    return runs, line.state(runs)


def _with_details(line: CommitLine, state: BisectionState, campaign: Campaign, folder: Path) -> CommitLine:
    """Run the culprit and its parent once more, if the test is run by pytest, to record each operator's outputs.

    Returns:
        The line with these details in its plan.
    """
    plan, last = line.plan, state.candidates[-1]
    ends = {line.commits[one].sha: one == last for one in (state.candidates[0] - 1, last)}
    asserted = {sha for sha, said in ((plan.old, plan.old_asserted), (plan.new, plan.new_asserted)) if said}
    wanted = {sha: new for sha, new in ends.items() if sha not in plan.details and sha not in asserted}
    if not wanted or with_junit(plan.command, folder / "junit.xml") is None:
        return line
    with status() as shown, Bisection(line, folder) as bisection:
        for sha, new in wanted.items():
            shown.update(f"{sha[:10]} once more, operator by operator")
            found = bisection.details(sha, new=new, bundles=_bundles(campaign))
            plan = replace(plan, details={**plan.details, sha: found})
    campaign.change(plan.as_fields())
    return line.of_plan(plan)


def _bundles(campaign: Campaign) -> Path:
    """Return the folder of the bundles of the culprit's failures, which are kept until the search is reset.

    It is not in the current folder, which may be the repository that is searched.
    """
    return campaign.path.with_name(f"{campaign.path.name}-bundles")


def _write(file: Path | None, lines: Iterator[str], mode: str) -> None:
    if file is not None:
        with file.open(mode) as out:
            out.writelines(f"{one}\n" for one in lines)


def _row(line: CommitLine, runs: Sequence[Run]) -> str:
    last = runs[-1]
    why = f"  {last.error}" if last.error else ""
    progress_text = findings.progress_text(line, runs, len(runs))
    return f"{len(runs):>3}  {last.key[:10]}  {line.plan.term(last)}  {last.seconds:.1f} s{why}\n     {progress_text}"


# --- log and replay ------------------------------------------------------------------------------------------


@bisect.command(
    "log",
    epilog=json_fields(
        {
            "plan": "the arguments and options of start and run",
            "runs": "a list of key (the commit), verdict, error, seconds, at, figures",
        }
    ),
)
def log(store_file: StoreFile = None) -> None:
    """Print each run of the search in this folder, and what it showed.

    `hil bisect replay` reads this format.
    """
    with opened(store_file) as kept:
        campaign = _current(kept)
        line, runs = CommitLine.from_plan(BisectionPlan.from_fields(campaign.plan)), campaign.runs
    end(Answer("\n".join(findings.log_lines(line, runs)), {"plan": campaign.plan, "runs": runs}))


@bisect.command("replay", epilog=_FIELDS)
def replay(
    file: Annotated[Path, typer.Argument(metavar="LOG", help="Written by hil bisect log", show_default=False)],
    source: Annotated[
        Path | None, typer.Option("--source", metavar="FOLDER", help="The repository, where it has moved")
    ] = None,
    store_file: StoreFile = None,
) -> None:
    """Restore a search from the runs in a log, and print its result."""
    plan, runs = findings.read_log(files.read(file, LOG_LIMIT).decode(errors="replace"))
    if source is not None:
        plan = replace(plan, source=replace(plan.source, path=str(source)))
    line = CommitLine.from_plan(checked(plan))
    if strange := [one.key for one in runs if one.key not in line.position]:
        raise ConfigError(f"the log has runs of {strange[0][:10]}, which is not in the range", hint="another log?")
    with opened(store_file) as kept:
        campaign = _begin(kept, line.plan)
        for one in runs:
            kept.record(campaign.record, one)
    end(_answer(line, line.state(runs), runs))


# --- answers -------------------------------------------------------------------------------------------------


def _answer(line: CommitLine, state: BisectionState, runs: Sequence[Run]) -> Answer:
    found = state.outcome is BisectionOutcome.FOUND and len(state.candidates) == 1
    culprit = line.commits[state.candidates[0]] if found else None
    stat = Repository(Path(line.plan.source.path)).diff_stat(culprit) if culprit else ""
    seen, changed = findings.evidence(line, runs), findings.affected_tests(line, state, runs)
    fields = {
        "outcome": state.outcome,
        "culprit": culprit,
        "candidates": [line.commits[one] for one in state.candidates],
        "probability": state.probability,
        "diff_stat": stat,
        "runs": len(runs),
        "evidence": [asdict(one) for one in seen],
        "targets": [asdict(one) for one in changed],
        **_ends(line),
    }
    blocks = [_headline(line, state, runs), stat, _evidence(line, seen), _changes(changed)]
    unlike = state.outcome in (BisectionOutcome.NO_CHANGE, BisectionOutcome.STATED_OUTCOME_WRONG)
    return Answer.from_blocks(blocks, fields, bad=unlike, unknown=not found)


def _headline(line: CommitLine, state: BisectionState, seen: Sequence[Run]) -> str:
    plan, commits = line.plan, [line.commits[one] for one in state.candidates]
    told = f"probability {state.probability:.3f}, {counted(len(seen), 'run')}"
    if state.outcome is BisectionOutcome.UNDER_WAY:
        best = f"most probable {commits[-1].short} ({state.probability:.3f})"
        best = state.commits_left if plan.deterministic else best
        return f"not known yet after {counted(len(seen), 'run')}: {best}; hil bisect run goes on"
    if state.outcome is BisectionOutcome.NO_CHANGE:
        return f"no commit changed it: {findings.alike(line)} ({counted(len(seen), 'run')})"
    if state.outcome is BisectionOutcome.STATED_OUTCOME_WRONG:
        return f"{findings.wrongly_stated_ends(line, seen)}: {_asked(line, seen)}"
    if state.outcome is BisectionOutcome.CONTRADICTION:
        return (
            "no single commit explains these runs of a test that is said to be deterministic: leave out --deterministic"
        )
    if len(commits) > 1:
        names = "\n".join(f"  {one.short}  {one.subject}" for one in commits)
        why = "what lies between them cannot be tested"
        return f"the first {plan.term_new} commit is one of {len(commits)}, {why} ({told})\n{names}"
    one = commits[0]
    head = f"{one.sha} is the first {plan.term_new} commit ({told})"
    return f"{head}\n{one.subject}\n{one.author}, {one.date}" + _merge_hint(one)


def _asked(line: CommitLine, runs: Sequence[Run]) -> str:
    """Return the question to a user whose old or new commit has an unexpected outcome."""
    plan, tested = line.plan, findings.evidence(line, runs)
    wrong = [
        one for one in tested if one.position in line.unasserted_ends and not (one.new if one.position else one.old)
    ]
    if len(wrong) == 2:
        option = "leave out --find-fix" if plan.find_fix else "--find-fix, if it was mended"
        return f"are they swapped? (the {plan.term_new} end comes first; {option})"
    question = "is it the right test and commit?"
    if plan.deterministic:
        return question
    rare = ("fails", "passes")[bool(wrong[0].position) is plan.find_fix]
    option = "--assert-new" if wrong[0].position else "--assert-old"
    return f"{question} If it {rare} more rarely: hil bisect start {option}"


def _merge_hint(commit: Commit) -> str:
    if len(commit.parents) < 2:
        return ""
    first, second = commit.parents[0][:10], commit.parents[1][:10]
    return f"\na merge: what it brought is searched with hil bisect start {second} $(git merge-base {first} {second})"


def _evidence(line: CommitLine, seen: Sequence[findings.Evidence]) -> str:
    plan = line.plan
    rows = [
        (str(one.position), one.commit.short, *map(_count, (one.old, one.new, one.skipped)), one.why) for one in seen
    ]
    return table(("commit", "", plan.term_old, plan.term_new, "skip", "why"), rows)


def _count(number: int) -> str:
    return str(number) if number else "-"


def _changes(changed: Sequence[findings.AffectedTest]) -> str:
    rows = [
        (one.test, one.target, one.isa, one.old, one.new, _outputs(one.outputs_changed), one.at_fault)
        for one in changed
    ]
    if not rows:
        return ""
    head = table(("test", "target", "ISA", "before", "since", "outputs", "at fault"), rows)
    return "\n\n".join([head, *filter(None, map(_more, changed))])


def _more(change: findings.AffectedTest) -> str:
    """Return the operators whose outputs changed, and the command that runs the failure again; "" for neither."""
    lines = []
    if change.operators is not None:
        left = len(change.operators) - SHOWN
        names = [*change.operators[:SHOWN], *([f"and {counted(left, 'more operator')}"] if left > 0 else [])]
        lines.append("outputs that changed: " + ("; ".join(names) or "none of any operator"))
    if change.bundle and Path(change.bundle).is_file():
        lines.append(f"again: hil replay {shlex.quote(change.bundle)}")
    return "\n  ".join([f"{change.test} [{change.target}]", *lines]) if lines else ""


def _outputs(changed: bool | None) -> str:
    return "-" if changed is None else "changed" if changed else "the same"


def _ends(line: CommitLine) -> dict[str, Any]:
    return {"old": line.plan.old, "new": line.plan.new}


# --- store ---------------------------------------------------------------------------------------------------


def _begin(kept: Store, plan: BisectionPlan) -> Campaign:
    before = Campaign.last(kept, KIND)
    if before is not None and not before.has_ended:
        raise ConfigError(
            "a search is under way in this folder", hint="hil bisect run goes on, hil bisect reset ends it"
        )
    return Campaign.begin(kept, KIND, plan.as_fields())


def _current(kept: Store) -> Campaign:
    found = Campaign.last(kept, KIND)
    if found is None:
        raise ConfigError("no search was begun in this folder", hint="hil bisect start NEW OLD --source PATH")
    return found


# --- step ----------------------------------------------------------------------------------------------------


class _Step(Command):
    """The command for git bisect run, which takes status 2 for a bad commit.

    A wrong call returns 128, which stops it.
    """

    def make_context(self, *arguments: Any, **options: Any) -> Any:
        try:
            return super().make_context(*arguments, **options)
        except UsageError as error:
            write_problem(of_usage(error), ABORT)
            raise typer.Exit(ABORT) from None


@bisect.command(
    "step",
    cls=_Step,
    epilog=json_fields(
        {
            "told": "pass, fail, skip, elsewhere (another tree was tested) or infra",
            "why": "why it is not a pass",
            "tests": (
                "of pytest a list of test, verdict, error, requested, ran, isa, at_fault, outputs, bundle, "
                "operators (pairs of a name and a digest, in runs with details)"
            ),
        }
    ),
)
def step(test: TestOptions) -> None:
    """Run a test once, for `git bisect run`.

    The exit status is 0 for a good commit, 1 for a bad one, 125 where it cannot be tested, 128 for a wrong call. With
    pytest the verdicts of the tests count, since its own exit status is 1 for a missing board, too.
    """
    try:
        if not test.command:
            raise ConfigError("no test is named", hint="hil bisect step -- pytest --target=m4-qemu FILE::TEST")
        with TemporaryFolder() as folder:
            provenance = _of_current_folder(folder / "provenance")
            judged = run_test(
                test.command, test.rules, test.timeout, folder, None, git_environment(), provenance=provenance
            )
    except HarnessError as error:
        write_problem(Problem.of(error), ABORT)
        raise typer.Exit(ABORT) from None
    status = {RunVerdict.PASS: OK, RunVerdict.FAIL: NO}.get(judged.told, SKIP)
    text = f"{judged.told.value}: {judged.why}" if judged.why else judged.told.value
    end(Answer(text, {"told": judged.told, "why": judged.why, "tests": [asdict(one) for one in judged.cases]}, status))


def _of_current_folder(folder: Path) -> Provenance | None:
    """Return the provenance of tests if the current folder is the top of a repository, as in git bisect; else None."""
    try:
        repository = Repository(Path.cwd())
    except ConfigError:
        return None
    return Provenance(repository, repository.path, folder, ("HEAD",), unseen_build=True)
