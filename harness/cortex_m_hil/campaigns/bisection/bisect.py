"""Searches for the commit that changed a test's outcome: chooses the next run, and draws conclusions from all runs."""

from __future__ import annotations

import contextlib
import copy
import functools
import math
import os
import subprocess
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from pathlib import Path
from typing import Any, Final

import numpy as np

from cortex_m_hil.campaigns import store
from cortex_m_hil.campaigns.bisection import posterior as beliefs
from cortex_m_hil.campaigns.bisection import suspects
from cortex_m_hil.campaigns.bisection.run_verdicts import (
    Rules,
    RunJudgement,
    RunVerdict,
    first_error,
    judge_run,
    with_junit,
)
from cortex_m_hil.campaigns.git_history import Commit, Repository, Worktree, variables
from cortex_m_hil.campaigns.planner import Planner
from cortex_m_hil.campaigns.provenance import Provenance
from cortex_m_hil.campaigns.store import Run
from cortex_m_hil.campaigns.worker_processes import LOG_LINES
from cortex_m_hil.errors import BuildError, ConfigError, HarnessError
from cortex_m_hil.errors.text import counted
from cortex_m_hil.host import subprocesses, timeouts

MARGIN: Final = 0.3  # share of the allowed doubt at which a search with a possibly flaky test ends: docs/bisect.md
REPEATED: Final = 2  # least number of runs of the culprit, and of its parent, before the search ends
# A bad commit that fails in a third of its runs passes 15 times in a row in one of 400 searches.
END_TRIES: Final = 15  # runs of an end that all contradict the user's outcome for it, before the search ends
SWAPPED_TRIES: Final = 3  # runs of each end if all runs of both contradict the user, before the search ends
INFRA_TRIES: Final = 2  # runs of a commit that all end in infra errors, after which it counts as untestable
DETAILED_TRIES: Final = 3  # extra runs of culprit or parent that record operators, until one ends as expected
STEPPING: Final = "cortex_m_hil.pytest_plugin.bisect_plugin"


@dataclass(frozen=True)
class Source:
    """The repository that is bisected.

    Attributes:
        path: the repository's top folder.
        python: the folder in it that is put on PYTHONPATH; "" if none.
        build: a shell command that builds it; "" if none.
        incremental: whether files that git ignores are kept from one commit to the next.
        excluded: paths that are not checked out.
    """

    path: str
    python: str = ""
    build: str = ""
    incremental: bool = False
    excluded: tuple[str, ...] = ()


@dataclass(frozen=True)
class BisectionPlan(store.Plan):
    """The settings of a bisection.

    Attributes:
        source: the repository.
        old: SHA of the old end.
        new: SHA of the new end.
        old_asserted: whether the user's outcome of the old end is taken for granted, so that it is never run.
        new_asserted: whether the user's outcome of the new end is taken for granted, so that it is never run.
        likely: paths; a commit that changes one of them is a more probable culprit.
        confidence: the probability at which a culprit is found.
        deterministic: the test is not flaky: no run is repeated.
        find_fix: the test fails at the old end and passes at the new one.
        term_old: the user's word for a commit like the old end.
        term_new: the user's word for a commit like the new end.
        command: the command of the test.
        timeout: seconds for one run of the test.
        build_timeout: seconds for a build.
        rules: the rules for which outcomes are counted.
        reuse: whether runs of earlier searches with the same source and test are counted.
        details: by SHA the figures of the extra runs of culprit and parent that recorded each operator's outputs.
    """

    source: Source
    old: str
    new: str
    old_asserted: bool = False
    new_asserted: bool = False
    likely: tuple[str, ...] = ()
    confidence: float = 0.95
    deterministic: bool = False
    find_fix: bool = False
    term_old: str = "good"
    term_new: str = "bad"
    command: tuple[str, ...] = ()
    timeout: float = timeouts.BISECTION_TEST
    build_timeout: float = timeouts.BISECTION_BUILD
    rules: Rules = field(default_factory=Rules)
    reuse: bool = False
    details: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    def side(self, told: RunVerdict) -> bool | None:
        """Tell whether a run looks like the new side; None if it tells nothing."""
        return {RunVerdict.FAIL: not self.find_fix, RunVerdict.PASS: self.find_fix}.get(told)

    def term(self, run: Run) -> str:
        new = self.side(RunVerdict(run.verdict))
        return "skip" if new is None else self.term_new if new else self.term_old


class BisectionOutcome(str, Enum):
    """The progress of a bisection."""

    UNDER_WAY = "under way"
    FOUND = "found"
    NO_CHANGE = "no change"  # the outcomes of the ends do not differ, against the user's statement
    STATED_OUTCOME_WRONG = "stated outcome wrong"  # every run of an end contradicts the user's outcome for it
    CONTRADICTION = "contradiction"  # no single culprit explains the runs, though the user calls the test deterministic
    UNTESTABLE = "untestable"  # an end cannot be run


@dataclass(frozen=True)
class BisectionState:
    """The conclusions from the runs so far.

    Attributes:
        outcome: the progress.
        next: the position to run next; None where nothing is left to run.
        candidates: positions, oldest first: the most probable culprit, and others that no run can distinguish from it.
        probability: the sum of the candidates' probabilities; at least the confidence where the outcome is FOUND.
        posterior: the probability of each culprit, a position 1 … n; 0: the old end is new already; n + 1: the new end
            is still old.
        bits: the entropy of the posterior.
        left: an estimate of how many more runs the search takes.
    """

    outcome: BisectionOutcome
    next: int | None
    candidates: tuple[int, ...]
    probability: float
    posterior: tuple[float, ...] = field(repr=False)
    bits: float = 0.0
    left: int = 0

    @property
    def commits_left(self) -> str:
        """Return how many commits may still be the culprit, for a test that is not flaky."""
        return f"{counted(sum(one > 0 for one in self.posterior[1:-1]), 'commit')} left"


class CommitLine:
    """The commits of a plan, oldest first, with the probability of each before any run."""

    def __init__(
        self,
        plan: BisectionPlan,
        commits: Sequence[Commit],
        suspected: Callable[[Sequence[Run]], set[str]] = lambda _: set(),
    ) -> None:
        """Store the plan and its commits.

        Args:
            plan: the plan.
            commits: the commits from the old end to the new one.
            suspected: returns the SHAs of more probable culprits, given the runs so far.
        """
        self.plan, self.commits = plan, tuple(commits)
        self.position = {commit.sha: number for number, commit in enumerate(commits)}
        self._suspected = suspected
        self._rates = beliefs.DETERMINISTIC if plan.deterministic else beliefs.FLAKY

    @classmethod
    def from_plan(cls, plan: BisectionPlan) -> CommitLine:
        """Return the commits of a plan. Raises ConfigError where one end is no first-parent ancestor of the other."""
        repository = Repository(Path(plan.source.path))
        named = repository.touching(plan.old, plan.new, plan.likely)
        by_names = functools.cache(functools.partial(repository.touching_names, plan.old, plan.new))

        def suspected(runs: Sequence[Run]) -> set[str]:
            """Return the commits that change one of the user's likely paths, or else files of the faulty operators.

            Files of operators are used only for a test that may be flaky, whose runs are repeated anyway.
            """
            if plan.likely or plan.deterministic:
                return named
            return by_names(suspects.file_name_words(suspects.operators_at_fault(runs)))

        return cls(plan, repository.line(plan.old, plan.new), suspected)

    def _prior(self, runs: Sequence[Run]) -> Any:
        plan, weights = self.plan, suspects.weights(self.commits[1:], self._suspected(runs))
        return beliefs.prior(weights, old_asserted=plan.old_asserted, new_asserted=plan.new_asserted)

    def of_plan(self, plan: BisectionPlan) -> CommitLine:
        """Return the same line with another plan, such as one with details."""
        line = copy.copy(self)
        line.plan = plan
        return line

    @property
    def last(self) -> int:
        return len(self.commits) - 1

    @property
    def unasserted_ends(self) -> tuple[int, ...]:
        """Return the positions of the ends whose outcomes the user did not assert, the new end first."""
        ends = (self.last, self.plan.new_asserted), (0, self.plan.old_asserted)
        return tuple(end for end, asserted in ends if not asserted)

    def state(self, runs: Sequence[Run]) -> BisectionState:
        """Return the conclusions from the runs so far.

        The conclusions depend on how often each commit gave which verdict, and on the operators that the verdicts name,
        but not on the order of the runs.
        """
        seen = _Seen(self, runs)
        found = beliefs.posterior(self._prior(runs), self._rates, seen.new_like, seen.old_like)
        if found is None:
            return BisectionState(
                BisectionOutcome.STATED_OUTCOME_WRONG if seen.wrong else BisectionOutcome.CONTRADICTION,
                None,
                (),
                0.0,
                (),
            )
        culprits = self._group(found, seen)
        probability = float(found.culprit[culprits].sum())
        outcome, following = self._following(found, culprits, probability, seen)
        left = self._left(found, following)
        everything = tuple(found.culprit.tolist())
        return BisectionState(outcome, following, tuple(culprits), probability, everything, found.entropy(), left)

    def _group(self, found: beliefs.Posterior, seen: _Seen) -> list[int]:
        """Return the most probable of the groups of culprits that no run can distinguish.

        The culprits c and c + 1 differ only at position c, and are in one group if position c cannot be tested.
        """
        groups: list[list[int]] = [[1]]
        for culprit in range(2, self.last + 1):
            if seen.untestable[culprit - 1]:
                groups[-1].append(culprit)
            else:
                groups.append([culprit])
        return max(groups, key=lambda group: found.culprit[group].sum())

    def _following(
        self, found: beliefs.Posterior, culprits: list[int], probability: float, seen: _Seen
    ) -> tuple[BisectionOutcome, int | None]:
        """Return the progress, and the position to run next; None where nothing is left to run."""
        for end in self.unasserted_ends:  # each end is run once, before either is run again
            if not seen.runs[end]:
                return (BisectionOutcome.UNTESTABLE, None) if seen.stuck[end] else (BisectionOutcome.UNDER_WAY, end)
        if seen.wrong:
            end = min(seen.wrong, key=lambda one: int(seen.runs[one]))
            tries = 1 if self.plan.deterministic else END_TRIES if len(seen.wrong) == 1 else SWAPPED_TRIES
            return (
                (BisectionOutcome.UNDER_WAY, end)
                if seen.runs[end] < tries
                else (BisectionOutcome.STATED_OUTCOME_WRONG, None)
            )
        doubt = (1.0 - self.plan.confidence) * (1.0 if self.plan.deterministic else MARGIN)
        if found.outside >= 1.0 - doubt:
            return BisectionOutcome.NO_CHANGE, None
        chances = self._chances(seen)
        if probability >= 1.0 - doubt:
            pair = [one for one in (culprits[-1], culprits[0] - 1) if chances[one]]
            again = [one for one in pair if seen.runs[one] < REPEATED and not self.plan.deterministic]
            return (BisectionOutcome.UNDER_WAY, again[0]) if again else (BisectionOutcome.FOUND, None)
        following = beliefs.most_informative(found, chances)
        return (BisectionOutcome.UNTESTABLE if following is None else BisectionOutcome.UNDER_WAY), following

    def _chances(self, seen: _Seen) -> Any:
        chances = beliefs.chances(seen.runs > 0, seen.untestable)
        chances[0] *= not self.plan.old_asserted
        chances[-1] *= not self.plan.new_asserted
        return chances

    def _left(self, found: beliefs.Posterior, following: int | None) -> int:
        """Estimate how many runs are left, from the information that the next run is expected to give.

        Later ones may give less.
        """
        if following is None:
            return 0
        gain = found.entropy() - float(found.expected_entropy()[following])
        return max(1, math.ceil((found.entropy() - 1e-9) / max(gain, 0.05)))


class _Seen:
    """Counts of the runs at each position, and the ends whose runs all contradict the outcome that the user stated."""

    def __init__(self, line: CommitLine, runs: Sequence[Run]) -> None:
        size = len(line.commits)
        self.new_like, self.old_like = np.zeros(size, np.int64), np.zeros(size, np.int64)
        infra, self.stuck = np.zeros(size, np.int64), np.zeros(size, np.bool_)
        for run in runs:
            at, told = line.position[run.key], RunVerdict(run.verdict)
            side = line.plan.side(told)
            if side is not None:
                (self.new_like if side else self.old_like)[at] += 1
            elif told is RunVerdict.INFRA:
                infra[at] += 1
            else:
                self.stuck[at] = True
        self.runs = self.new_like + self.old_like
        as_stated = {0: self.old_like, line.last: self.new_like}
        self.wrong = [end for end in line.unasserted_ends if self.runs[end] and not as_stated[end][end]]
        self.untestable = (self.stuck | (infra >= INFRA_TRIES)) & (self.runs == 0)


class Bisection(Planner):
    """A planner of the runs of a bisection; within `with` it has a worktree of the repository.

    Args:
        line: the commits between the ends, and the plan of the search.
        folder: where the worktree is made; no other process uses it.
        told: is called with the name of each step of a run, build or test, when it begins.
    """

    infra = (RunVerdict.INFRA.value, RunVerdict.ELSEWHERE.value)

    def __init__(self, line: CommitLine, folder: Path, told: Callable[[str], None] = lambda text: None) -> None:
        self.line, self._folder, self._told = line, folder, told
        plan = line.plan
        self._repository = Repository(Path(plan.source.path))
        source = plan.source
        self._tree = Worktree(
            self._repository, folder / "tree", incremental=source.incremental, excluded=source.excluded
        )

    def __enter__(self) -> Bisection:
        self._tree.add(self.line.plan.new)
        return self

    def __exit__(self, *_: object) -> None:
        self._tree.remove()

    @staticmethod
    def clean_up(plan: BisectionPlan, folder: Path) -> None:
        """Remove worktrees and files of a killed process, unless the repository does not exist any more."""
        with contextlib.suppress(ConfigError):
            Worktree(Repository(Path(plan.source.path)), folder / "tree", incremental=False).remove()

    def next(self, runs: Sequence[Run], under_way: Collection[str] = ()) -> str | None:
        """Return the SHA of the commit to run next; None where nothing is left to run."""
        following = self.line.state(runs).next
        return None if following is None else self.line.commits[following].sha

    def left(self, runs: Sequence[Run]) -> int:
        return self.line.state(runs).left

    def carry_out(self, key: str) -> Run:
        began = time.monotonic()
        log = self._folder / "log"
        log.unlink(missing_ok=True)
        judgement = self._judgement(key, log)
        figures = judgement.figures
        if judgement.told is not RunVerdict.PASS and log.exists():
            figures["log"] = "\n".join(log.read_text(errors="replace").splitlines()[-LOG_LINES:])
        seconds = round(time.monotonic() - began, 3)
        return Run(key, judgement.told.value, judgement.why, seconds, time.time(), figures)

    def details(self, key: str, *, new: bool, bundles: Path) -> Mapping[str, Any]:
        """Run the test of one commit once more, record each operator's outputs, and return the figures.

        The figures are empty if no run had the outcome of that side, or if that commit's harness cannot record them.

        Args:
            key: the commit's SHA.
            new: whether the commit is of the new side.
            bundles: the folder for a failure's bundle.
        """
        options = "-p", STEPPING, "--hil-localize", f"--hil-bundles={bundles}"
        with contextlib.suppress(HarnessError):  # details are optional: the culprit is known without them
            for _ in range(DETAILED_TRIES):
                judgement = self._judgement(key, self._folder / "log", options)
                if self.line.plan.side(judgement.told) is new:
                    return judgement.figures
        return {}

    def _judgement(self, key: str, log: Path, options: Sequence[str] = ()) -> RunJudgement:
        plan, tree = self.line.plan, self._tree.path
        try:
            self._tree.check_out(key)
        except BuildError as error:
            return RunJudgement(RunVerdict.INFRA, error.message)
        changed = variables(tree, plan.source.python, key, self._repository.checkouts())
        built = time.time() if plan.source.build else None
        if plan.source.build:
            self._told("build")
            command = ["sh", "-c", plan.source.build]
            status = subprocesses.run(command, log, plan.build_timeout, cwd=tree, env=changed)
            if status != 0:
                return RunJudgement(
                    RunVerdict.BUILD, "the build does not end" if status is None else f"the build ends with {status}"
                )
        if plan.source.python and not (tree / plan.source.python).is_dir():
            return RunJudgement(RunVerdict.SKIP, f"there is no folder {plan.source.python}")
        self._told("test")
        words = [word.replace("{worktree}", str(tree)) for word in plan.command]
        provenance = Provenance(
            self._repository, tree, self._folder / "provenance", (plan.old, plan.new), plan.source.python, built
        )
        return run_test(words, plan.rules, plan.timeout, self._folder, log, changed, options, provenance)


def run_test(
    words: Sequence[str], rules: Rules, seconds: float, folder: Path, log: Path | None, changed: Mapping[str, str],
    options: Sequence[str] = (), provenance: Provenance | None = None,
) -> RunJudgement:  # fmt: skip
    """Run the user's command in the current folder, and judge the run.

    Args:
        words: the command.
        rules: the rules for which outcomes are counted.
        seconds: the time limit, after which the command is ended.
        folder: a folder for files that are read after the run.
        log: the file for the command's output; None: it goes to our standard error.
        changed: the command's environment variables.
        options: further options for pytest.
        provenance: checks that the right tree was tested, since a verdict on another tree is ignored. None: no check.

    Raises:
        ConfigError: a fallback ran in place of the target, and the rules do not allow it.
    """
    junit = folder / "junit.xml"
    junit.unlink(missing_ok=True)
    with_file = with_junit(words, junit, options)
    command = with_file or words
    if provenance is not None:
        command, changed = provenance.words(command), provenance.variables(changed)
    status = subprocesses.run(command, log, seconds, env=changed) if log else _run_shown(command, seconds, changed)
    judged = judge_run(words, status, junit if with_file else None, rules)
    if provenance is not None and judged.told in (RunVerdict.PASS, RunVerdict.FAIL):
        found = provenance.objection(is_pytest=with_file is not None)
        if found is not None:
            return RunJudgement(RunVerdict.ELSEWHERE, found.why, judged.cases, found.hint)
    if log is None or with_file is None or junit.exists():
        return judged
    return replace(judged, why=f"{judged.why}: {first_error(log.read_text(errors='replace'))}")


def _run_shown(command: Sequence[str], seconds: float, changed: Mapping[str, str]) -> int | None:
    child = subprocesses.Child(command, subprocesses.GRACE, env=changed, stdin=subprocess.DEVNULL, stdout=2, stderr=2)
    try:
        return child.wait(seconds)
    finally:
        child.end()


def checked(plan: BisectionPlan) -> BisectionPlan:
    """Return a plan with its revisions as SHAs.

    Raises ConfigError for settings that are malformed or contradict each other.
    """
    repository = Repository(Path(plan.source.path))
    if plan.term_old == plan.term_new or "skip" in (plan.term_old, plan.term_new):
        raise ConfigError("the two terms have to differ, and neither is 'skip'", hint="--term-old, --term-new")
    folder = plan.source.python
    if folder and (os.path.isabs(folder) or ".." in Path(folder).parts):
        raise ConfigError(f"--python {folder!r} is not within the source", hint="a folder below --source, such as src")
    new = repository.resolve(plan.new)
    repository.excludable(new, plan.source.excluded)
    below = Path(folder) != Path()
    if below and not repository.git("ls-tree", "-d", "--name-only", new, "--", folder.rstrip("/")).strip():
        raise ConfigError(f"{new[:10]} has no folder {folder!r}", hint="--python names one that is committed")
    return replace(
        plan, source=replace(plan.source, path=str(repository.path)), old=repository.resolve(plan.old), new=new
    )
