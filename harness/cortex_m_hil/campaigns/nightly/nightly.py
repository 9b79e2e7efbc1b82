"""The nightly: runs every test of some suites, on every target, with every runtime.

pytest runs the tests; each result is recorded as the test ends.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.metadata
import itertools
import json
import os
import re
import select
import subprocess
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from cortex_m_hil.campaigns import property_names as prop
from cortex_m_hil.campaigns import store
from cortex_m_hil.campaigns.bisection.run_verdicts import first_error
from cortex_m_hil.campaigns.git_history import git_environment
from cortex_m_hil.campaigns.planner import Planner
from cortex_m_hil.campaigns.report.fail_if_limits import FigureLimit
from cortex_m_hil.campaigns.report.nightly_results import BEGUN, BUILTIN, COLLECTED, RUNNER, Night, Result, by_key
from cortex_m_hil.campaigns.store import Run, Store, StoredCampaign
from cortex_m_hil.errors import ConfigError, HarnessError, ToolchainError
from cortex_m_hil.errors.text import folders_replaced
from cortex_m_hil.flow.coverage.counts import Coverage
from cortex_m_hil.host import subprocesses, timeouts, toolchain
from cortex_m_hil.host.deadline import Deadline
from cortex_m_hil.host.spans import span
from cortex_m_hil.targets.runtimes import AUTO

KIND: Final = "nightly"
PART: Final = "part|"  # the beginning of the key of a part's run
SLICES: Final = 4  # parts into which the tests are divided for coverage
COVERAGE: Final = "|coverage"  # the end of the key of a part whose runners count coverage; its figures are the counts
PROFILES: Final = f"{PART}profiles|"  # the beginning of the key of the run with the profiles of a test's programs
ENDED: Final = "ended"
EVERY: Final = 60.0  # seconds in which progress is shown at least once
_GRACE: Final = 5.0  # seconds for pytest to end its simulators
_GIT_SECONDS: Final = 120.0
_LINE: Final = 10_000  # commits of a branch that are searched for one with a nightly
_SUFFIXES: Final = ("py", "toml", "ini", "cfg", "yaml", "yml", "c", "h", "cpp", "ld", "pte", "npz")
_SOURCES: Final = tuple(f":(top)*.{suffix}" for suffix in _SUFFIXES)
_USAGE, _NO_TESTS = 4, 5  # exit statuses of pytest
_COUNTS: Final = "coverage.json"
_PACKAGES: Final = ("executorch", "executorch-cortex-m-hil", "torch", "torchao")
_LIBC: Final = re.compile(r'^#define (_NEWLIB_VERSION|_PICOLIBC_VERSION|__GLIBC_MINOR__|__GLIBC__) "?([\d.]+)', re.M)


def patterns(asked: bool | Sequence[str]) -> tuple[str, ...]:
    """Return patterns of tests from a nightly.yaml or an earlier version's plan: for all, none, or named ones."""
    return (("*",) if asked else ()) if isinstance(asked, bool) else tuple(asked)


@dataclass(frozen=True)
class NightlyPlan(store.Plan):
    """The settings of a nightly, and the state of code and tools. Runs with the same plan belong to one nightly.

    Attributes:
        tests: pytest's arguments that name the tests.
        upstream: the same for ExecuTorch's own suite; None: it is not run.
        targets: names of targets.
        runtimes: names of runtimes, or `auto`.
        targets_file: the user's targets.yaml.
        options: further options for pytest.
        shard: the shard of the tests, `i/n`.
        limits: the limits of figures.
        coverage: by runtime the targets on which the tests are run once more, with runners that count coverage.
        fit: patterns of the tests whose programs' least memory is measured.
        commit: the commit of the current folder; "" outside of a repository.
        difference: a digest of the changes that are not in the commit; "" without changes.
        tools: versions of compilers, C libraries and packages.
        left_out: requested targets that cannot run here, and why.
        models: patterns of the tests that are rows of the report's table of models.
        automatic: by runtime the targets for which `auto` chooses this runtime.
        runtime_reasons: targets that `auto` runs on `builtin`, and why.
    """

    tests: tuple[str, ...]
    upstream: tuple[str, ...] | None
    targets: tuple[str, ...]
    runtimes: tuple[str, ...]
    targets_file: str
    options: tuple[str, ...]
    shard: str
    limits: tuple[FigureLimit, ...]
    coverage: Mapping[str, tuple[str, ...]]
    fit: tuple[str, ...]
    commit: str
    difference: str
    tools: Mapping[str, str]
    left_out: Mapping[str, str] = field(default_factory=dict)
    models: tuple[str, ...] = ()
    automatic: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    runtime_reasons: Mapping[str, str] = field(default_factory=dict)

    @property
    def scope(self) -> tuple[object, ...]:
        """Return the fields of the plan that determine the set of results."""
        return self.tests, self.upstream, self.targets, self.runtimes, self.options, self.shard

    @classmethod
    def from_fields(cls, fields: Mapping[str, Any]) -> NightlyPlan:
        """Return the plan for `fields` from `as_fields`, even of an earlier version."""
        counting = fields.get("coverage", {})
        of_runtimes = counting if isinstance(counting, Mapping) else {BUILTIN: counting}
        coverage = {runtime: names for runtime, names in of_runtimes.items() if names}
        more = {"coverage": coverage, "fit": patterns(fields.get("fit", ())), "limits": fields.get("limits", ())}
        return super().from_fields({**fields, **more})

    def as_fields(self) -> dict[str, Any]:
        limits = [one.model_dump(exclude_none=True) for one in self.limits]
        return {**asdict(replace(self, limits=())), "limits": limits}

    def without_places(self, place: str) -> NightlyPlan:
        """Return the plan with files named from the folder `place`, or elsewhere by the last part of their name."""
        (file,), options = shareable([self.targets_file], place), shareable(self.options, place)
        left_out, reasons = map(_reasons_without_places, (self.left_out, self.runtime_reasons))
        shared = replace(self, tests=shareable(self.tests, place), targets_file=file, options=options)
        return replace(shared, left_out=left_out, runtime_reasons=reasons)

    def is_same_work(self, other: NightlyPlan) -> bool:
        """Tell whether two plans have the same settings, code and tools.

        The texts of the reasons for targets and runtimes may differ.
        """
        one, two = (replace(plan, left_out={}, runtime_reasons={}) for plan in (self, other))
        return one == two

    @property
    def suites(self) -> list[str]:
        return [*(["tests"] if self.tests else []), *(["upstream"] if self.upstream is not None else [])]

    @property
    def places(self) -> dict[str, tuple[str, ...]]:
        """Return by runtime the targets on which tests run with it."""
        found: dict[str, tuple[str, ...]] = {}
        for asked in self.runtimes:
            for runtime, names in self.automatic.items() if asked == AUTO else [(asked, self.targets)]:
                found[runtime] = tuple(dict.fromkeys((*found.get(runtime, ()), *names)))
        return found

    @property
    def parts(self) -> list[NightlyPart]:
        parts = [NightlyPart(suite, runtime) for suite in self.suites for runtime in self.places]
        counting = itertools.product(self.suites, self.coverage, range(1, SLICES + 1))
        return [*parts, *(NightlyPart(suite, runtime, number) for suite, runtime, number in counting)]


def nightly_plan(campaign: StoredCampaign) -> NightlyPlan:
    """Return the plan of a campaign; raise ConfigError where the plan in the store is malformed."""
    try:
        return NightlyPlan.from_fields(campaign.plan)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise _damaged_record_error(f"the plan of nightly {campaign.ordinal}", error) from error


def _damaged_record_error(what: str, error: Exception) -> ConfigError:
    return ConfigError(
        f"{what} makes no sense: {error!r}", hint="hil results prune removes it; another file: --store FILE"
    )


@dataclass(frozen=True)
class NightlyPart:
    """The tests that one pytest process runs.

    Attributes:
        suite: `tests` or `upstream`.
        runtime: the runtime that executes programs.
        slice: 0: all tests, with recorded results. 1 to `SLICES`: a part of the tests, run to count coverage, without
            recorded results. Coverage is known only when pytest ends, so an interruption loses one slice.
    """

    suite: str
    runtime: str
    slice: int = 0

    @property
    def counts(self) -> bool:
        return self.slice > 0

    def shard(self, asked: str) -> str:
        """Return the part's shard of all tests, given the nightly's shard `asked`."""
        number, of = map(int, asked.split("/"))
        return f"{number + of * (self.slice - 1)}/{of * SLICES}" if self.counts else asked

    def __str__(self) -> str:
        return f"{PART}{self.suite}|{self.runtime}{f'|{self.slice}/{SLICES}{COVERAGE}' if self.counts else ''}"


@dataclass(frozen=True)
class PytestProgress:
    """The progress of the pytest process that is running.

    Attributes:
        part: the part of the nightly that it runs.
        collected: the number of its tests.
        running: the number of tests that are running now.
        done: the number of tests that have ended.
        result: the result of the test that ended last; None if no test has ended.
    """

    part: NightlyPart
    collected: int
    running: int
    done: int
    result: Result | None = None


class BudgetSpent(Exception):
    """The time budget is spent, but tests are left."""


class Nightly(Planner):
    """A nightly that carries out its parts. `command(part, options)` returns the command that runs a part."""

    def __init__(
        self, plan: NightlyPlan, kept: Store, campaign: StoredCampaign, folder: Path,
        command: Callable[[NightlyPart, Sequence[str]], Sequence[str]], told: Callable[[PytestProgress], None],
        budget: Deadline,
    ) -> None:  # fmt: skip
        self._plan, self._kept, self._campaign, self._folder = plan, kept, campaign, folder
        self._command, self._told, self._budget = command, told, budget

    def _parts_left(self, runs: Sequence[Run]) -> list[str]:
        done = {run.key for run in runs}
        return [str(part) for part in self._plan.parts if str(part) not in done]

    def next(self, runs: Sequence[Run], under_way: Collection[str] = ()) -> str | None:
        return next(iter(self._parts_left(runs)), None)

    def left(self, runs: Sequence[Run]) -> int:
        return len(self._parts_left(runs))

    def carry_out(self, key: str) -> Run:
        """Run a part, and return its coverage if it counts it; results are recorded as tests end.

        Raises:
            BudgetSpent: the time budget is spent.
            ConfigError: pytest was called wrongly, or runs no test.
            ToolchainError: pytest itself fails.
        """
        part = next(part for part in self._plan.parts if str(part) == key)
        began = time.monotonic()
        log = self._folder / "pytest.log"
        log.unlink(missing_ok=True)
        with span("workers", key):
            status, collected = self._run(part, log)
        may_be_empty = status == _NO_TESTS and not collected and self._may_be_empty(part)
        if status == _NO_TESTS and not may_be_empty and "-n" in self._command(part, ()):
            status, _ = self._run(part, log, "-n0", "--collect-only")  # workers do not tell the reason
        if status not in (0, 1) and not may_be_empty:
            raise _unexpected(part, status, log.read_text(errors="replace"))
        figures = self._coverage().fields() if part.counts else {}
        return Run(key, ENDED, "", time.monotonic() - began, time.time(), figures)

    def _coverage(self) -> Coverage:
        """Return the coverage of the pytest run that has just ended, without the folders of this machine."""
        found = Coverage.from_fields(json.loads((self._folder / _COUNTS).read_text()))
        found.lost = [replace(one, why=without_places(one.why)) for one in found.lost]
        return found

    def _may_be_empty(self, part: NightlyPart) -> bool:
        """Tell whether a part may have no tests, because all have been run, or none is in this shard."""
        return bool(self._results(part)) or part.shard(self._plan.shard) != "1/1"

    def _results(self, part: NightlyPart) -> list[Result]:
        every = (Result.of_fields(run.figures) for run in self._kept.runs(self._campaign) if is_result(run))
        return [one for one in every if (one.key.suite, one.key.runtime) == (part.suite, part.runtime)]

    def _run(self, part: NightlyPart, log: Path, *more: str) -> tuple[int, int]:
        """Run a part's pytest, with `more` options; return its exit status, and how many tests it had left to run."""
        recorded = self._folder / "recorded.json"
        done = [] if part.counts else self._results(part)
        recorded.write_text(json.dumps([(one.key.test, one.key.target) for one in done]))
        read, write = os.pipe()
        options = [f"--hil-results-to={write}", f"--hil-suite={part.suite}", f"--hil-recorded={recorded}"]
        options += [f"--hil-coverage={self._folder / _COUNTS}"] if part.counts else []
        command = self._command(part, [*options, f"--hil-shard={part.shard(self._plan.shard)}", *more])
        with log.open("ab") as out, os.fdopen(read, "rb") as told:
            child = subprocesses.Child(
                command, _GRACE, stdin=subprocess.DEVNULL, stdout=out, stderr=out, pass_fds=(write,)
            )
            os.close(write)
            try:
                collected = self._listen(part, told.fileno(), log)
                status = child.wait(timeouts.NIGHTLY_SILENCE)
            finally:
                child.end()
        if status is None:
            raise _silence_error(part, log)
        return status, collected

    def _listen(self, part: NightlyPart, pipe: int, log: Path) -> int:
        """Record the results from the pipe until it is closed; return how many tests were collected."""
        collected = begun = done = 0
        for line in _lines(pipe, self._budget, lambda: _silence_error(part, log)):
            fields = json.loads(line or "{}")
            collected = int(fields.get(COLLECTED, collected))
            begun += BEGUN in fields
            result = Result.of_fields(fields) if "verdict" in fields else None
            if result is not None:
                done += result.key.test != RUNNER
                if not part.counts:
                    self._kept.record(self._campaign, *runs_of(result))
            self._told(PytestProgress(part, collected, max(begun - done, 0), done, None if part.counts else result))
        return collected


def _lines(pipe: int, budget: Deadline, silent: Callable[[], Exception]) -> Iterator[str]:
    """Yield whole lines until the pipe is closed, and an empty one where none came for `EVERY` seconds.

    Args:
        pipe: the file descriptor of the pipe.
        budget: the time that is left.
        silent: makes the error where no line came for `timeouts.NIGHTLY_SILENCE` seconds.

    Raises:
        BudgetSpent: the time budget is spent.
    """
    rest, patience = b"", Deadline.after(timeouts.NIGHTLY_SILENCE)
    while True:
        if not select.select([pipe], [], [], min(EVERY, patience.remaining, budget.remaining))[0]:
            if budget.expired or patience.expired:
                raise BudgetSpent if budget.expired else silent()
            yield ""
            continue
        patience = Deadline.after(timeouts.NIGHTLY_SILENCE)
        data = os.read(pipe, 1 << 16)
        if not data:
            return
        *lines, rest = (rest + data).split(b"\n")
        yield from (line.decode() for line in lines)
        if budget.expired:
            raise BudgetSpent


def _silence_error(part: NightlyPart, log: Path) -> ToolchainError:
    what = f"no test of {part.suite} on {part.runtime} ended within {timeouts.NIGHTLY_SILENCE:g} s"
    hint = "a test that hangs in Python? hil nightly goes on with what is left; pytest -n 0 -v shows which it is"
    return ToolchainError(what, log=log.read_text(errors="replace"), hint=hint)


def _unexpected(part: NightlyPart, status: int, said: str) -> HarnessError:
    where = f"{part.suite}, {part.runtime}"
    if status == _NO_TESTS:
        return ConfigError(f"no test of {where} is run", log=said, hint="are its options right? pytest --collect-only")
    told = first_error(said)
    if status == _USAGE:
        return ConfigError(f"pytest of {where}: {told}", log=said, hint="correct the call, or nightly.yaml")
    hint = "--verbose shows what it said; hil nightly goes on with what is left"
    return ToolchainError(f"pytest of {where} ended with status {status}: {told}", log=said, hint=hint)


# --- the store -----------------------------------------------------------------------------------------------


def run_of(result: Result) -> Run:
    return Run(
        str(result.key),
        result.verdict.value,
        result.error,
        result.seconds,
        time.time(),
        result.fields(),
    )


def runs_of(result: Result) -> Iterator[Run]:
    """Yield the run of a result, and another with its profiles: what reads results has no need of them."""
    yield run_of(result)
    if result.profiles:
        yield Run(
            f"{PROFILES}{result.key}",
            ENDED,
            at=time.time(),
            figures={prop.TEST: result.key.test, prop.PROFILE: result.profiles},
        )


def profiles_in(runs: Iterable[Run]) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield for each test that has any its id without the target, and the packed profiles of its programs."""
    for run in runs:
        if run.key.startswith(PROFILES):
            yield str(run.figures[prop.TEST]), tuple(map(str, run.figures[prop.PROFILE]))


def is_result(run: Run) -> bool:
    return not run.key.startswith(PART)


def is_coverage(run: Run) -> bool:
    return run.key.startswith(PART) and run.key.endswith(COVERAGE)


def coverage_of(runs: Iterable[Run]) -> Coverage:
    """Return the combined coverage of some runs."""
    found = Coverage()
    for run in runs:
        found.add(Coverage.from_fields(run.figures))
    return found


def without_places(text: str) -> str:
    """Replace absolute file names in a text by their last part."""
    return folders_replaced(text, "")


def _reasons_without_places(reasons: Mapping[str, str]) -> dict[str, str]:
    return {name: without_places(why) for name, why in reasons.items()}


def shareable(options: Iterable[str], place: str) -> tuple[str, ...]:
    """Remove folders from options: files in `place`, the nightly's folder, become relative, others only names."""
    return tuple(without_places(one.replace(f"{place.rstrip('/')}/", "")) for one in options)


def night_of(campaign: StoredCampaign, runs: Sequence[Run]) -> Night:
    """Return the results of a campaign as a night; raise ConfigError for runs that are no results."""
    plan = nightly_plan(campaign)
    try:
        results = by_key(Result.of_fields(run.figures) for run in runs if is_result(run))
        coverage = coverage_of(run for run in runs if is_coverage(run))
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise _damaged_record_error(f"a result of nightly {campaign.ordinal}", error) from error
    return Night(
        name=str(campaign.ordinal),
        commit=plan.commit,
        dirty=bool(plan.difference),
        began=campaign.began,
        tools=plan.tools,
        complete=campaign.ended is not None,
        results=results,
        coverage=coverage if plan.coverage else None,
        fit=plan.fit,
        models=plan.models,
        shard=plan.shard,
        called=campaign.name,
        left_out=_reasons_without_places(plan.left_out),
        runtime_reasons=_reasons_without_places(plan.runtime_reasons),
    )


# --- versions of code and tools ----------------------------------------------------------------------------------


def state_of_folder() -> tuple[str, str]:
    """Return the commit of the current folder, and a digest of changes that are not in the commit.

    Of files that git neither tracks nor ignores, only possible sources of tests are included: reports and stores, which
    a nightly writes, are no change of the code.
    """
    commit = _git("rev-parse", "HEAD").strip()
    if not commit:
        return "", ""
    top = Path(_git("rev-parse", "--show-toplevel").rstrip("\n"))
    difference = _git("diff", "HEAD", "--binary", "--no-ext-diff").encode(errors="replace")
    for name in _unknown_sources():
        with contextlib.suppress(OSError):  # deleted in the meantime, or a dangling link
            difference += f"{name}\0".encode(errors="replace") + hashlib.sha256((top / name).read_bytes()).digest()
    return commit, hashlib.sha256(difference).hexdigest()[:16] if difference else ""


def _unknown_sources() -> list[str]:
    """Return untracked sources relative to the top of the repository, except for files of virtual environments."""
    listed = _git("ls-files", "--others", "--exclude-standard", "--full-name", "-z", "--", *_SOURCES).split("\0")
    environments = tuple(name.removesuffix("pyvenv.cfg") for name in listed if name.endswith("/pyvenv.cfg"))
    return sorted(name for name in listed if name and not name.startswith(environments))


def _git(*arguments: str) -> str:
    """Run git in the current folder, and return its output; "" where it fails."""
    asked = toolchain.run_tool(["git", *arguments], _GIT_SECONDS, env=git_environment())
    return asked.out if asked.status == 0 else ""


def commits_from(revision: str) -> list[str]:
    """Return the commit of a branch, tag or the like, followed by its first-parent ancestors.

    Empty where git knows no such commit.
    """
    command = ["git", "rev-list", "--first-parent", f"--max-count={_LINE}", "--end-of-options", revision, "--"]
    listed = toolchain.run_tool(command, _GIT_SECONDS, env=git_environment())
    return listed.out.split() if listed.status == 0 else []


def tools(compilers: Sequence[toolchain.Tool]) -> dict[str, str]:
    """Return the versions of the tools that affect runners, programs and figures."""
    found = {}
    for one in compilers:
        found[one.path.name] = one.version
        if libc := _c_library(one.path):
            found[f"libc of {one.path.name}"] = libc
    for name in _PACKAGES:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            found[name] = importlib.metadata.version(name)
    return dict(sorted(found.items()))


def _c_library(compiler: Path) -> str:
    """Return name and version of a compiler's C library, from the library's macros; "" for an unknown library."""
    command = [str(compiler), "-x", "c", "-E", "-dM", "-"]
    said = toolchain.run_tool(command, _GIT_SECONDS, given=b"#include <stdlib.h>\n")
    found = dict(_LIBC.findall(said.out))
    if "__GLIBC__" in found:
        return f"glibc {found['__GLIBC__']}.{found.get('__GLIBC_MINOR__', '')}"
    named = {"_PICOLIBC_VERSION": "picolibc", "_NEWLIB_VERSION": "newlib"}
    return next((f"{word} {found[macro]}" for macro, word in named.items() if macro in found), "")
