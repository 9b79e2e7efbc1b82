"""The program of `hil profile`, and its reference of `--against`: a program, runtime, nightly, file or commit."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from cortex_m_hil.campaigns.git_history import Repository, Worktree, variables
from cortex_m_hil.campaigns.provenance import Provenance
from cortex_m_hil.campaigns.provenance_hook import top_of
from cortex_m_hil.cli.campaigns import StoreFile
from cortex_m_hil.cli.options import ModelOptions, TargetOptions
from cortex_m_hil.cli.profile_in_nightly import is_nightly, profile_in_nightly
from cortex_m_hil.cli.program_files import programs_of
from cortex_m_hil.cli.progress import runner_of, status
from cortex_m_hil.diagnose.profile import Profile
from cortex_m_hil.diagnose.profile_measurement import profile, require_cost
from cortex_m_hil.errors import ConfigError, IdentityError
from cortex_m_hil.flow.dut import Dut
from cortex_m_hil.host import files, timeouts
from cortex_m_hil.host.folders import TemporaryFolder
from cortex_m_hil.host.toolchain import run_tool
from cortex_m_hil.lowering.named_modules import NETWORKS
from cortex_m_hil.program.bpte_file import SUFFIXES
from cortex_m_hil.program.program import Program
from cortex_m_hil.targets.resolve import Resolved
from cortex_m_hil.targets.runtimes import RUNTIMES
from cortex_m_hil.targets.target import Target

_SAVED: Final = (".json", ".jsonl")
_SAVED_LIMIT: Final = 1 << 28  # bytes
_OTHER: Final = (
    "builtin, executorch, FILE.pte, package.module:function, FILE.json of hil profile --json, a nightly or a commit"
)

Look = Callable[[Dut, Program, Profile], None]


@dataclass(frozen=True)
class Order:
    """One program to profile on one target.

    Attributes:
        name: the target, as it was named.
        model: the program, as it was named.
        load: returns the program with its inputs for a target, and a text about where the inputs are from.
        runs: how often it is run where its ticks vary.
        counters: groups of the PMU's events to count.
    """

    on: TargetOptions
    given: ModelOptions
    name: str
    model: str
    load: Callable[[Target], tuple[Program, str]]
    runs: int
    counters: tuple[str, ...] = ()

    def profile(
        self,
        resolved: Resolved,
        look: Look = lambda dut, program, profile: None,
        accept: Callable[[Program], None] = lambda program: None,
    ) -> Profile:
        """Load or lower the program, and profile it; a terminal shows what is being waited for.

        Args:
            resolved: the target and runtime.
            look: called with the live target, the program and its profile.
            accept: called with the program before it is run; raises ConfigError where files that were asked for cannot
                be made of it.
        """
        require_cost(resolved)
        program, source = self.load(resolved.target)
        accept(program)
        with status(runner_of(resolved)) as line, self.on.open(resolved) as dut:
            found = profile(
                dut, program, program.inputs, source, runs=self.runs, counters=self.counters,
                told=lambda text: line.update(f"{resolved.display_name}: {text} of {self.model}"),
            )  # fmt: skip
            line.update(f"{resolved.display_name}: what the files of {self.model} show besides")
            look(dut, program, found)
            return found


@dataclass(frozen=True)
class AgainstOptions:
    """Options about what a profile is compared with."""

    against: Annotated[
        str,
        typer.Option(
            metavar="OTHER",
            show_default=False,
            help="Compare with another: builtin or executorch (the same program on that runtime), a program as MODEL, "
            "a file that --json wrote, a nightly (last~1, 12, a name; 12::TEST for the program of one test), "
            "or a commit of the current repository, at which MODEL is profiled",
        ),
    ] = ""
    store_file: StoreFile = None

    def profile(self, order: Order, resolved: Resolved, mine: Profile) -> Profile:
        """Return the profile that a program is compared with.

        Args:
            order: the program.
            resolved: the target that it was profiled on.
            mine: its profile.

        Raises:
            ConfigError: there is no such runtime, program, file, nightly or commit, or it has no profile of this
                target.
            HarnessError: the other run fails.
        """
        other = self.against
        if other in RUNTIMES:
            return order.profile(replace(order.on, runtime=other).resolve(order.name))
        if is_nightly(other, self.store_file):
            return profile_in_nightly(other, self.store_file, mine)
        if other.endswith(_SAVED):
            return _saved(Path(other), order, resolved)
        if other.endswith(SUFFIXES) or other in NETWORKS or ":" in other:
            return replace(order, model=other, load=programs_of(other, order.given)).profile(resolved)
        return _of_commit(other, order)


def _saved(path: Path, order: Order, resolved: Resolved) -> Profile:
    """Return the profile of this target in a file; that of the same program where there are several."""
    lines = files.read(path, _SAVED_LIMIT).splitlines()
    found = [Profile.from_json(line, str(path)) for line in lines if line.strip() and "error" not in _fields(line)]
    mine = [one for one in found if one.ran.target == resolved.target.name]
    if not mine:
        known = ", ".join(dict.fromkeys(one.ran.target for one in found)) or "no profile"
        raise ConfigError(f"{path} has {known}, and none of {resolved.target.name}", hint="--target, as it was then")
    same = [one for one in mine if one.program == Path(order.model).stem or one.program == order.model]
    if len(mine) > 1 and len(same) != 1:
        raise ConfigError(f"{path} has {len(mine)} profiles of {resolved.target.name}", hint="a file with one line")
    return (same or mine)[0]


def _fields(line: str | bytes) -> dict[str, Any]:
    """Return the fields of a line of --json; none of another line, of which `Profile.from_json` says what is wrong."""
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


# --- commits -------------------------------------------------------------------------------------------------


def _of_commit(revision: str, order: Order) -> Profile:
    """Measure the program at a commit of the current folder's repository, in a worktree and a process of its own.

    Raises:
        ConfigError: there is no such commit, or the program cannot be profiled there.
        IdentityError: the process imported modules of another checkout.
    """
    here = Path.cwd().resolve()
    top = top_of(str(here))
    if not top:
        raise ConfigError(f"--against {revision}: {here} is in no git repository", hint=f"--against takes {_OTHER}")
    repository = Repository(Path(top))
    sha = _resolved(repository, revision)
    with TemporaryFolder() as folder, status(f"{order.name}, {order.model}: profiling it at {revision}"):
        tree = Worktree(repository, folder / "tree", incremental=False)
        try:
            tree.add(sha)
            tree.check_out(sha)
            seen = Provenance(repository, tree.path, folder / "provenance", (sha,))
            said = run_tool(
                _command(order), timeouts.BISECTION_TEST, env=seen.variables(variables(tree.path, "", sha)),
                cwd=tree.path / here.relative_to(top),
            )  # fmt: skip
            if (objection := seen.objection(is_pytest=True)) is not None:
                hint = "profile that checkout by itself: hil profile … --json > old.json, then --against old.json"
                raise IdentityError(f"--against {revision}: {objection.why}", hint=hint)
        finally:
            tree.remove()
    return _told(said.out, revision, said.err)


def _resolved(repository: Repository, revision: str) -> str:
    try:
        return repository.resolve(revision)
    except ConfigError as error:
        raise ConfigError(f"--against {revision}: {error.message}", hint=f"--against takes {_OTHER}") from error


def _command(order: Order) -> list[str]:
    on, given = order.on, order.given
    options: list[Any] = ["--target", order.name, "--runtime", on.runtime, "--runs", order.runs, "--json"]
    options += ["--timeout-multiplier", on.timeout_multiplier]
    options += ["--targets-file", on.targets_file.absolute()] if on.targets_file else []
    options += [word for path in given.inputs or () for word in ("--input", path.absolute())]
    options += ["--method", given.method] if given.method else []
    options += ["--quantize-inputs"] if given.quantize else []
    options += ["--io", given.io.value] if not order.model.endswith(SUFFIXES) else []
    return [sys.executable, "-m", "cortex_m_hil.cli", "profile", order.model, *map(str, options)]


def _told(out: str, revision: str, log: str) -> Profile:
    """Return the profile that the process printed; raise ConfigError with its error in place of one."""
    answers = [line for line in out.splitlines() if "exit_status" in _fields(line)]  # a module may print as well
    if not answers:
        raise ConfigError(f"at {revision}: its hil printed no profile", hint="--verbose shows what it printed", log=log)
    if error := _fields(answers[-1]).get("error"):
        raise ConfigError(f"at {revision}: {error['message']}", hint=error["hint"], log=log)
    return Profile.from_json(answers[-1], revision)
