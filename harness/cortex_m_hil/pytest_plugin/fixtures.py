"""Fixtures: `hil`, which most tests use, and below it `target_spec`, `runner_elf`, `hil_dut`, `hil_lower`, `run_pte`.

The fixtures have no logic of their own: they pass the right Dut to `flow`, and the results of `flow` to pytest.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cortex_m_hil import flow
from cortex_m_hil.api import App, Checked, Launched, Lowering, OpenTarget, Reporting, load_program
from cortex_m_hil.checks.executorch_verdict import require_occurring
from cortex_m_hil.checks.lint import missing_elsewhere
from cortex_m_hil.diagnose.failure_bundle import Attempt, BundleTask
from cortex_m_hil.diagnose.lifetime_check import WatchedMemory
from cortex_m_hil.diagnose.localize import Localization, localize
from cortex_m_hil.errors import ConfigError, HarnessError, VerdictError
from cortex_m_hil.flow.coverage.counting import SLOWER
from cortex_m_hil.host import timeouts
from cortex_m_hil.host.api_calls import checked_call
from cortex_m_hil.host.paths import path_under_test
from cortex_m_hil.program.program import Intermediate, Program
from cortex_m_hil.pytest_plugin import coverage, markers, option_names, report_properties
from cortex_m_hil.runner.build import build_runner
from cortex_m_hil.runner.run_results import RunResult
from cortex_m_hil.targets.connection import Elf
from cortex_m_hil.targets.resolve import Resolved

ToldOfTask = Callable[[pytest.Item, Attempt], None]
ToldOfRun = Callable[[pytest.Item, str, Attempt, RunResult | None], None]
ToldOfEach = Callable[[pytest.Item, flow.Dut, Program, Localization], None]
KNOWN = pytest.StashKey[frozenset[int | str]]()  # causes that the ini file accepts in all tests
RESOLVED: pytest.StashKey[list[Resolved]] = pytest.StashKey()
DUTS: pytest.StashKey[DutCache] = pytest.StashKey()
RUNS: pytest.StashKey[ToldOfRun] = pytest.StashKey()  # called for each run, where tests run on several runtimes
RUNNERS: pytest.StashKey[dict[tuple[str, str], Elf]] = pytest.StashKey()  # ELFs by target and runtime
TEST_ID: pytest.StashKey[str] = pytest.StashKey()  # the node id without its target
LOG: pytest.StashKey[str] = pytest.StashKey()  # the target's log of its last run
APP: pytest.StashKey[App] = pytest.StashKey()  # the application that a test drives
LOCALIZED: pytest.StashKey[str] = pytest.StashKey()  # localisation of the last program that failed
EVERY: pytest.StashKey[ToldOfEach] = pytest.StashKey()  # called for every localised program, if set
HIL: pytest.StashKey[Hil] = pytest.StashKey()  # the fixture of a test that has it
TASKS: pytest.StashKey[ToldOfTask] = pytest.StashKey()  # called for every program, passed or not, if set
FAILURE: pytest.StashKey[Attempt] = pytest.StashKey()  # the last task that failed, with all facts about it
LOCALIZED_SECTION = "localised"  # title of the section with the localisation in a failure's report
LOG_TAIL = 40  # lines of the target's log in a failure's report


def no_target(config: pytest.Config) -> str:
    option = option_names.spelled(config, "--hil-target")
    owner = "".join(f"; {line}" for line in option_names.others(config) if line.startswith("--target "))
    return f"no target given: {option}=m4-qemu (names, comma lists, globs, all), or hil_targets in the ini file{owner}"


def not_parametrized() -> str:
    return (
        "a target is a parameter of a test, and pytest gives none to methods of unittest.TestCase, to doctests and to "
        "fixtures that are asked for with getfixturevalue: use a function, or a method of a plain class, that names it"
    )


def lacks_target(config: pytest.Config, error: BaseException | None) -> bool:
    """Tell whether an error means that a test uses a target, but none is given."""
    return isinstance(error, ConfigError) and error.message in (no_target(config), not_parametrized())


def resolved_of(item: pytest.Item) -> Resolved | None:
    """Return the target that this run of a test is for; None if the test needs no target, or none was given."""
    callspec = getattr(item, "callspec", None)
    resolved: Resolved | None = callspec.params.get("target_spec") if callspec else None
    return resolved


class DutCache:
    """The live targets of this process, by target and runner, kept for the whole run.

    Other processes have their own.
    """

    def __init__(self) -> None:
        self._duts: dict[tuple[str, str], flow.Dut] = {}

    def get(self, resolved: Resolved, elf: Elf) -> flow.Dut:
        key = (resolved.name, elf.build_id)
        if key not in self._duts:
            self._duts[key] = flow.Dut(resolved, elf)
        return self._duts[key]

    def close(self) -> None:
        for dut in self._duts.values():
            dut.close()
        self._duts.clear()


class Hil(OpenTarget):
    """A target as one test uses it: an OpenTarget whose measurements go into the test's report."""

    def __init__(self, dut: flow.Dut, node: pytest.Item, redzones: bool) -> None:
        super().__init__(dut, redzones=redzones)
        self._node = node
        node.stash[HIL] = self
        if (limits := markers.budget(node, dut.resolved)) is not None:
            self._set_budget(limits)
            self._unjudged = markers.is_own(node, "hil_budget")  # a module's marker may be meant for other tests
        self._known = frozenset({*markers.known(node), *node.config.stash[KNOWN]})
        self._seen: set[int | str] = set()  # the accepted causes that occurred
        self._has_run = False
        self._intermediates: tuple[Intermediate, ...] = ()  # values of the last program that was localised
        self._result: RunResult | None = None  # the result of the program that is being checked

    def require_judged(self) -> None:
        """Raise ConfigError for a budget that nothing ran under, and KnownBugAbsent for what no program showed.

        Of the marker `hil_known` those of the test itself count: one of a module may be meant for other tests.
        """
        __tracebackhide__ = True
        super().require_judged()
        expected = markers.known(self._node, own=True)
        if expected and not self._has_run:
            what = "hil_known has no effect: no program was linted and run"
            raise ConfigError(what, hint="hil.check or hil.run in this test, or no marker")
        require_occurring(self._seen, self.target, sorted(expected, key=str))

    def _occurred(self, causes: frozenset[int | str]) -> None:
        self._has_run = True
        self._seen |= causes
        if self._seen:
            report_properties.record_known(self._node, self._seen)

    def _located(self, path: Path) -> Path:
        folder = self._node.path.parent
        if not path.is_absolute() and not (folder / path).exists():
            hint = "a relative path is one from the folder of the test's file"
            raise ConfigError(f"there is no {path} in {folder}", hint=hint)
        return folder / path

    def _watched(self, program: Program) -> WatchedMemory:
        memory = super()._watched(program)
        report_properties.record_watched_bytes(self._node, memory.nbytes)
        return memory

    def _begins(self, program: Program) -> None:
        missing = missing_elsewhere(program, self.target, self.dut.resolved.runtime)
        report_properties.record_missing_elsewhere(self._node, missing)

    def _ran(self, program: Program, result: RunResult) -> None:
        self._result = result
        self._node.stash[LOG] = "\n".join(result.log.splitlines()[-LOG_TAIL:])
        report_properties.record_run(self._node, program, result, self.dut.elf)

    def _compared(self, checked: Checked) -> None:
        super()._compared(checked)
        report_properties.record_comparison(self._node, checked.comparison)
        self._intermediates = ()
        wanted = not checked.comparison.ok and self._node.config.getoption("hil_localize")
        if wanted or EVERY in self._node.config.stash:
            self._node.stash[LOCALIZED] = self._localized(checked.program)

    def _failed(self, task: BundleTask, error: VerdictError, checked: Checked | None) -> None:
        failure = Attempt.from_task(self.dut, task, error, checked)
        self._node.stash[FAILURE] = replace(failure, intermediates=self._intermediates if checked else ())
        self._tell_of_task(failure)

    def _passed(self, task: BundleTask, checked: Checked | None) -> None:
        self._tell_of_task(Attempt.from_task(self.dut, task, None, checked))

    def _tell_of_task(self, ended: Attempt) -> None:
        result, self._result = self._result, None
        ended = replace(ended, ticks=result.ticks if result else None)
        if RUNS in self._node.config.stash:
            self._node.config.stash[RUNS](self._node, self._node.stash[TEST_ID], ended, result)
        if TASKS in self._node.config.stash:
            self._node.config.stash[TASKS](self._node, ended)

    def _localized(self, program: Program) -> str:
        """Return the localisation of a program as text, or the reason why it is missing.

        An error of the harness is part of that text: it must not hide the verdict that is about to be reported.
        """
        try:
            if program.intermediates is not None:
                self._intermediates = known = program.intermediates(program.inputs)
                program = replace(program, intermediates=lambda _: known)
            found = localize(self.dut, program)
        except HarnessError as error:
            return f"not localised: {error.describe()}"
        report_properties.record_localization(self._node, found)
        if EVERY in self._node.config.stash:
            self._node.config.stash[EVERY](self._node, self.dut, program, found)
        return "\n".join([*found.lines(), "", *found.plot()])


# Parametrised with the scope of the widest fixture that depends on it (`plugin._scope`); "session" is the widest.
@pytest.fixture(scope="session")
def target_spec(request: pytest.FixtureRequest) -> Resolved:
    """Return the requested target and the target that really runs; parametrised by `--target`."""
    resolved: Resolved | None = getattr(request, "param", None)
    if resolved is None:
        __tracebackhide__ = True
        raise ConfigError(not_parametrized() if request.config.stash[RESOLVED] else no_target(request.config))
    return resolved


@pytest.fixture(scope="session")
def hil_lower(request: pytest.FixtureRequest, target_spec: Resolved) -> Lowering:
    """Return the function `hil_lower(module, inputs, …)`, which lowers for the target.

    A fixture of any scope may use it, to lower once for many tests. Arguments, results and errors are those of
    `hil.lower`.
    """
    return Lowering(target_spec, request.config.getoption("hil_redzones"))


@pytest.fixture(scope="session")
def runner_elf(request: pytest.FixtureRequest, target_spec: Resolved) -> Elf:
    """Return the runner built for the target, from the cache if it is there.

    A test module may override this fixture, to build another runner.

    The runner is built once in a run, though pytest sets the fixture up again whenever the target changes between
    tests: changes of the firmware during a run take effect in the next run.

    Raises ToolchainError or BuildError, and ConfigError for a machine that the simulator does not have.
    """
    __tracebackhide__ = True
    known, key = request.config.stash[RUNNERS], (target_spec.name, target_spec.runtime)
    if key not in known:
        with Reporting(target_spec):
            flow.require(target_spec)
            options = coverage.build_options(request.config)
            known[key] = build_runner(target_spec.target, target_spec.runtime, options)
    return known[key]


@pytest.fixture
def hil_dut(request: pytest.FixtureRequest, target_spec: Resolved, runner_elf: Elf) -> Iterator[flow.Dut]:
    """Yield the live target. It stays up between tests (unless `--dut-scope=function`), and boots again when broken."""
    report_properties.record_use_of_runner(request.node)
    dut = request.config.stash[DUTS].get(target_spec, runner_elf)
    multiplier = request.config.getoption("hil_timeout_multiplier")
    multiplier *= SLOWER if runner_elf.counts else 1.0
    dut.seconds = min(markers.seconds(request.node) * multiplier, timeouts.LONGEST_EXECUTION)
    dut.what = request.node.nodeid
    dut.keep = request.config.getoption("hil_keep_programs")
    coverage.count(request.node, dut)
    checks = request.config.getoption("hil_self_test")
    if checks:
        dut.verify()
    yield dut
    try:
        if checks:
            dut.verify()
    finally:
        coverage.attribute_counts(request.node.stash[TEST_ID], dut)
        _end_or_release(request, dut)


def _end_or_release(request: pytest.FixtureRequest, dut: flow.Dut) -> None:
    if request.config.getoption("hil_dut_scope") == "function":
        dut.close()
    else:
        dut.release_between_tests()


@pytest.fixture
def hil(request: pytest.FixtureRequest, hil_dut: flow.Dut) -> Hil:
    """Give the target of this test, to lower for, run and check on: `hil.check(module, inputs)`.

    A `cortex_m_hil.OpenTarget`, with `check`, `check_program`, `verify`, `lower`, `lint`, `run`, `stream` and `budget`;
    their docstrings have arguments, results and errors. What is measured goes into the JUnit file.
    """
    return Hil(hil_dut, request.node, request.config.getoption("hil_redzones"))


@pytest.fixture
def hil_app(request: pytest.FixtureRequest, hil_dut: flow.Dut) -> Iterator[Callable[..., App]]:
    """Yield the function that opens the application of firmware of your own: `app = hil_app("my-product")`.

    The firmware boots anew at each call, on a board if a tool can reset that. The name limits the test to that target:
    on others it is skipped. Without a name it is for each target. `App` has `send`, `read`, `compare`, `record` and
    `attach`; their docstrings have arguments, results and errors.
    """
    opened: list[App] = []

    @checked_call("hil_app")
    def hil_app(name: str = "") -> App:
        __tracebackhide__ = True
        markers.limit_to(name, hil_dut.resolved)
        hil_dut.restart()
        opened.append(App(hil_dut))
        request.node.stash[APP] = opened[-1]
        return opened[-1]

    yield hil_app
    report_properties.record_apps(request.node, hil_dut, opened)
    for app in opened:
        app.close()


@pytest.fixture
def hil_launch(
    request: pytest.FixtureRequest, target_spec: Resolved, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[..., Launched]]:
    """Yield the function that starts an ELF of your own, which need not know of this package, on the test's target.

    It is `hil_launch(elf, *arguments, files=None, until="", timeout=60.0, count_instructions=False)`. Its arguments:
        elf: the file, from the folder of the test's file; in a bisection the commit's.
        arguments: of its command line, by semihosting; a board has none.
        files: what it finds in its folder: bytes, text, a path or an array by name; a board has no folder.
        until: a regular expression: what it prints when it has done its work; "": it ends by itself.
        timeout: seconds of the simulator's CPU time that it may take, on a board by the clock.
        count_instructions: count what it executes, on QEMU, which is then slower.

    It returns a `Launched` with `expect`, `send`, `wait`, `text`, `folder` and `instructions`; what still runs is ended
    with the test. It raises what `hil launch` ends with.
    """
    with ExitStack() as running:

        @checked_call("hil_launch")
        def hil_launch(
            elf: Path | str,
            *arguments: Any,
            files: Mapping[str, Any] | None = None,
            until: str = "",
            timeout: float = timeouts.LAUNCH,
            count_instructions: bool = False,
        ) -> Launched:
            __tracebackhide__ = True
            path = path_under_test(request.path.parent / elf)
            try:
                markers.target_timeout(timeout)
                pattern = re.compile(until, re.MULTILINE) if until else None
            except (ValueError, re.error) as error:
                raise ConfigError(
                    f"hil_launch: {error}", hint="timeout: seconds; until: a regular expression"
                ) from None
            folder = None
            if files is not None or not flow.is_board(target_spec):
                folder = tmp_path_factory.mktemp("launched")
                flow.files_in(folder, files or {})
            order = flow.Launch(path, timeout, [*map(str, arguments)], folder, pattern)
            program = running.enter_context(flow.launched(target_spec, order, count=count_instructions))
            running.callback(report_properties.record_launch, request.node, target_spec, path, program)
            return program

        yield hil_launch


@pytest.fixture
def run_pte(hil: Hil) -> Callable[..., RunResult]:
    """Return the function that runs a `.pte`.

    It is `run_pte(path_or_bytes, inputs=(), *, method="", lint=True, quantize_inputs=False)`. Its arguments:
        path_or_bytes: the path or the bytes of a `.pte`.
        inputs: arrays (or tensors) of logical shape and the program's dtypes, which the function lays out in the
            program's dim order; numbers for scalars.
        method: the name of the method; "" for `forward`, or the only one that computes.
        lint: False runs a program even if it does not fit the target.
        quantize_inputs: True quantises floats for int8 inputs by the program's scale, as in `hil.run`.

    It returns a `RunResult`, as `hil.run` does: `outputs`, a tuple of `HostTensor` in the program's order, of which
    `array()` is a NumPy array of the output's logical shape and its dtype in the program; `stats`, peaks of memory in
    bytes; `instructions`, an exact number, or None where the target does not count instructions; `ticks`, `seconds`,
    `ran`, `unwritten` and `log`. It raises the errors of `hil.run`, and compares nothing.
    """

    @checked_call("run_pte")
    def run_pte(
        pte: Path | str | bytes,
        inputs: Sequence[Any] = (),
        *,
        method: str = "",
        lint: bool = True,
        quantize_inputs: bool = False,
    ) -> RunResult:
        __tracebackhide__ = True
        with Reporting(hil.dut.resolved):
            program = load_program(pte, method=method)
            given = flow.arrange(program, inputs)
        return hil.run(program, given, lint=lint, quantize_inputs=quantize_inputs)

    return run_pte
