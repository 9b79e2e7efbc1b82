"""The findings of a bisection, and its log, which can be replayed."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from cortex_m_hil.campaigns.bisection.bisect import BisectionOutcome, BisectionPlan, BisectionState, CommitLine
from cortex_m_hil.campaigns.bisection.run_verdicts import Case, RunVerdict, cases_of
from cortex_m_hil.campaigns.git_history import Commit
from cortex_m_hil.campaigns.store import Run
from cortex_m_hil.errors import BuildError, ConfigError, HarnessError
from cortex_m_hil.errors.text import counted
from cortex_m_hil.runner.run_results import OperatorOutput

HEAD: Final = "# hil bisect log 1"


@dataclass(frozen=True)
class Evidence:
    """The runs of one commit, counted by whether they have the old or the new outcome.

    Attributes:
        old: the number of runs with the outcome of the old end.
        new: the number of runs with the outcome of the new end.
        skipped: the number of runs that have neither.
        why: the error of the last run that has an error; "" if none has.
    """

    position: int
    commit: Commit
    old: int
    new: int
    skipped: int
    why: str


@dataclass(frozen=True)
class AffectedTest:
    """A test on a target, at the last old and the first new commit: its verdicts, and whether its outputs differ.

    Attributes:
        isa: the target's ISA class.
        old: verdict and error at the last old commit.
        new: verdict and error at the first new commit.
        outputs_changed: whether outputs differ; None where the outputs at one of the commits are not known.
        at_fault: the operators that were localised at either commit, or the operator or stage that the error names.
        operators: the operators whose outputs differ; None where the outputs at one of the commits are not known.
        bundle: the file of the failure's bundle; "" if there is none.
    """

    test: str
    target: str
    isa: str
    old: str
    new: str
    outputs_changed: bool | None
    at_fault: str
    operators: tuple[str, ...] | None = None
    bundle: str = ""


def evidence(line: CommitLine, runs: Sequence[Run]) -> list[Evidence]:
    """Return the evidence of each commit that was run, oldest commit first."""
    found = []
    for position, commit in enumerate(line.commits):
        if here := [run for run in runs if run.key == commit.sha]:
            sides = [line.plan.side(RunVerdict(run.verdict)) for run in here]
            why = next((run.error for run in reversed(here) if run.error), "")
            found.append(Evidence(position, commit, sides.count(False), sides.count(True), sides.count(None), why))
    return found


def affected_tests(line: CommitLine, state: BisectionState, runs: Sequence[Run]) -> list[AffectedTest]:
    """Return an `AffectedTest` for each test and target in the runs' records; none while there is no culprit."""
    if not state.candidates or state.outcome in (BisectionOutcome.NO_CHANGE, BisectionOutcome.STATED_OUTCOME_WRONG):
        return []
    before = _cases(line, runs, state.candidates[0] - 1, new=False)
    after = _cases(line, runs, state.candidates[-1], new=True)
    return [_change(key, before.get(key), after.get(key)) for key in sorted({**before, **after})]


def _change(key: tuple[str, str], old: Case | None, new: Case | None) -> AffectedTest:
    words = [" ".join(filter(None, [one.verdict, one.error])) if one else "" for one in (old, new)]
    known = old is not None and new is not None and old.outputs and new.outputs
    differ = old.outputs != new.outputs if known and old and new else None
    at_fault = "; ".join(dict.fromkeys(one.at_fault for one in (old, new) if one and one.at_fault))
    isa = next((one.isa for one in (new, old) if one), "")
    operators = _differing(old, new) if old is not None and new is not None else None
    bundle = next((one.bundle for one in (new, old) if one and one.bundle), "")
    return AffectedTest(*key, isa, words[0], words[1], differ, at_fault, operators, bundle)


def _differing(old: Case, new: Case) -> tuple[str, ...] | None:
    if not (old.operators and new.operators):
        return None
    before, after = ([OperatorOutput(*one) for one in case.operators] for case in (old, new))
    return tuple(differing_operators(before, after))


def _cases(line: CommitLine, runs: Sequence[Run], position: int, *, new: bool) -> dict[tuple[str, str], Case]:
    """Return a commit's records by test and target.

    The records are from the run that recorded operators, or else from the last run with the new outcome if `new` is
    set, with the old outcome if not.
    """
    sha = line.commits[position].sha
    here = [run.figures for run in runs if run.key == sha and line.plan.side(RunVerdict(run.verdict)) is new]
    found = line.plan.details.get(sha) or (here[-1] if here else {})
    return {(case.test, case.ran): case for case in cases_of(found)}


def untestable(line: CommitLine, runs: Sequence[Run]) -> HarnessError:
    """Return the error that says why an end of the line cannot be tested."""
    tested = {run.key for run in runs if line.plan.side(RunVerdict(run.verdict)) is not None}
    plan = line.plan
    ends = (plan.new, plan.new_asserted, "--assert-new"), (plan.old, plan.old_asserted, "--assert-old")
    sha, _, option = next(one for one in ends if not one[1] and one[0] not in tested)
    run = [one for one in runs if one.key == sha][-1]
    kind = BuildError if run.verdict == RunVerdict.BUILD else ConfigError
    hint = f"mend it, then hil bisect reset; or hil bisect start {option}, where this end is known and cannot be run"
    hint = f"{run.figures['hint']}; then hil bisect reset, and begin anew" if "hint" in run.figures else hint
    return kind(f"the end {sha[:10]} cannot be tested: {run.error}", log=str(run.figures.get("log", "")), hint=hint)


# --- log -----------------------------------------------------------------------------------------------------


def log_lines(line: CommitLine, runs: Sequence[Run]) -> Iterator[str]:
    """Yield the lines of a log that can be replayed; lines that begin with # are for people."""
    yield HEAD
    yield f"# {line.last} commits, {line.commits[0].short} to {line.commits[-1].short}, in {line.plan.source.path}"
    yield f"start {json.dumps(line.plan.as_fields())}"
    for number in range(1, len(runs) + 1):
        yield from lines_of_run(line, runs, number)


def lines_of_run(line: CommitLine, runs: Sequence[Run], number: int) -> Iterator[str]:
    run = runs[number - 1]
    commit = line.commits[line.position[run.key]]
    yield f"# {number}: {commit.short} {line.plan.term(run)}, {run.seconds:.1f} s" + (
        f": {run.error}" if run.error else ""
    )
    yield f"# {progress_text(line, runs, number)}"
    yield f"{line.plan.term(run)} {run.key} {json.dumps(asdict(run))}"


def progress_text(line: CommitLine, runs: Sequence[Run], number: int) -> str:
    """Return a text on the outcome of run `number`, counted from 1, and on the certainty of the search after it."""
    before, after = (line.state(runs[:end]) for end in (number - 1, number))
    if after.outcome is BisectionOutcome.CONTRADICTION:
        return "no single change explains this"
    if after.outcome is BisectionOutcome.NO_CHANGE:
        return alike(line)
    if contrary := wrongly_stated_ends(line, runs[:number]):
        return contrary if after.next is None else f"so far {contrary}"
    if line.plan.deterministic:
        return after.commits_left
    best = line.commits[after.candidates[-1]].short
    several = f" or {len(after.candidates) - 1} beside it" if len(after.candidates) > 1 else ""
    told = abs(before.bits - after.bits)
    word = "less certain" if after.bits > before.bits + 1e-9 else "more certain"
    return f"{told:.2f} bits {word}, {after.bits:.2f} left; most probable {best}{several}: {after.probability:.3f}"


def alike(line: CommitLine) -> str:
    """Return a text that the ends do not differ; an asserted end was not run."""
    return "both ends behave alike" if len(line.unasserted_ends) == 2 else "all commits that were run behave alike"


def wrongly_stated_ends(line: CommitLine, runs: Sequence[Run]) -> str:
    """Describe each end of the range whose runs all contradict the outcome that the user stated; "" for none."""
    plan, counts = line.plan, {one.position: one for one in evidence(line, runs)}
    found = []
    for end in line.unasserted_ends:
        is_new = end == line.last
        one = counts.get(end)
        as_stated, others = (0, 0) if one is None else (one.new, one.old) if is_new else (one.old, one.new)
        if others and not as_stated:
            verb = "passes" if is_new is not plan.find_fix else "fails"
            term = plan.term_new if is_new else plan.term_old
            found.append(f"the {term} end {line.commits[end].short} {verb} ({counted(others, 'run')})")
    return " and ".join(found)


def read_log(text: str) -> tuple[BisectionPlan, list[Run]]:
    """Read the plan and the runs from the text of a log.

    Raises:
        ConfigError: a line is malformed (the message has its number), or the line `start` is missing.
    """
    plan: BisectionPlan | None = None
    runs = []
    for number, row in enumerate(text.splitlines(), 1):
        word, _, rest = row.partition(" ")
        if not row.strip() or row.startswith("#"):
            continue
        try:
            if word == "start":
                plan = BisectionPlan.from_fields(json.loads(rest))
            else:
                runs.append(_run(json.loads(rest.partition(" ")[2])))
        except (KeyError, TypeError, ValueError) as error:
            hint = "hil bisect log writes what replay reads"
            raise ConfigError(f"line {number} of the log makes no sense: {error}", hint=hint) from error
    if plan is None:
        raise ConfigError("the log has no line 'start'", hint="hil bisect log writes what replay reads")
    return plan, runs


def _run(fields: dict[str, Any]) -> Run:
    run = Run(**fields)
    RunVerdict(run.verdict)
    return run


def differing_operators(before: Sequence[OperatorOutput], after: Sequence[OperatorOutput]) -> list[str]:
    """Return the operators whose outputs differ, in the later program's order, and then those that it lacks."""
    old, new = _numbered(before), _numbered(after)
    changed = [name if name in old else f"{name}: new" for name, digest in new.items() if old.get(name) != digest]
    return [*changed, *(f"{name}: gone" for name in old if name not in new)]


def _numbered(outputs: Sequence[OperatorOutput]) -> Mapping[str, str]:
    """Return the digests of operators' outputs by name; the second call of the same name is `name #2`."""
    found: dict[str, str] = {}
    seen: dict[str, int] = {}
    for one in outputs:
        seen[one.operator] = seen.get(one.operator, 0) + 1
        name = one.operator if seen[one.operator] == 1 else f"{one.operator} #{seen[one.operator]}"
        found[name] = one.digest
    return found
