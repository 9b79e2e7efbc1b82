"""A pytest plugin that runs ExecuTorch's own suites on this project's targets: `hil dev upstream`.

Every implementation test runs once per target, lowered for the target's configuration, and keeps its own comparison and
expected failures. `flow` lints and runs the programs that the test would have passed to an FVP, and compares their
integers with the dialect. Other tests are not changed.
"""

from __future__ import annotations

import argparse
import contextlib
import copy
import functools
import os
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pytest

from cortex_m_hil import flow
from cortex_m_hil.campaigns import property_names as prop
from cortex_m_hil.checks.comparison.tolerance import Tolerance
from cortex_m_hil.checks.executorch_verdict import ALL
from cortex_m_hil.diagnose.lifetime_check import WatchedMemory
from cortex_m_hil.errors import HarnessError, InfraError, UnsupportedOperator
from cortex_m_hil.errors.text import counted
from cortex_m_hil.maintainers import executorch_suites as suite
from cortex_m_hil.program.program import Program
from cortex_m_hil.program.tensor import HostTensor
from cortex_m_hil.pytest_plugin import report_properties
from cortex_m_hil.pytest_plugin.fixtures import RESOLVED, TEST_ID, Hil
from cortex_m_hil.pytest_plugin.summary import RERUN
from cortex_m_hil.runner.build import portable_operators

NOT_RUN: pytest.StashKey[dict[str, str]] = pytest.StashKey()  # by module: why it was not run, number of its tests
_FIXTURE: Final = "cortex_m_target"  # ExecuTorch's fixture: the configuration that a test of ops/ is lowered for
_EXTRA: Final = "executorch-cortex-m-hil[upstream]"
_OF_EXTRA: Final = ("torchvision",)
_WORKER_OUTPUT: Final = "hil_not_run"


# --- collection ---------------------------------------------------------------------------------------


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.getgroup("hil").addoption("--hil-backend-suite", action="store_true", help="for hil dev upstream")


def _suite(options: argparse.Namespace) -> Path:
    return suite.find_backend_suite() if options.hil_backend_suite else suite.find_suite()


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config, args: list[str]) -> None:
    """Add the suite to the arguments unless files are named, which may be relative to the suite's folder.

    The suite's conftest has options and a seed, so it must be known this early.

    Raises:
        UsageError: TEST_SEED is set to another seed, or a named file is missing and there is a hint about it.
    """
    seed = str(early_config.known_args_namespace.hil_seed)
    if os.environ.setdefault("TEST_SEED", seed) != seed:
        raise pytest.UsageError("TEST_SEED has no meaning here: --hil-seed=N is what the suite is seeded with")
    named, folder = early_config.known_args_namespace.file_or_dir, _suite(early_config.known_args_namespace)
    if early_config.known_args_namespace.hil_backend_suite:
        suite.only_cortex_m_flow()
    if not named:
        named.append(str(folder))
        args.append(str(folder))
    for number, word in enumerate(named):
        file, colons, rest = word.partition("::")
        if Path(file).exists():
            continue
        if (folder / file).exists():
            named[number] = f"{folder / file}{colons}{rest}"
            args[:] = [named[number] if one == word else one for one in args]
        else:
            _explain(file, folder, early_config.known_args_namespace)


def _explain(file: str, folder: Path, options: argparse.Namespace) -> None:
    """Raise UsageError for a missing file about which there is a hint; pytest itself reports any other."""
    is_backend = options.hil_backend_suite
    with contextlib.suppress(HarnessError):  # the suite is not installed
        if ((suite.find_suite if is_backend else suite.find_backend_suite)() / file).exists():
            of, how = ("Cortex-M", "without") if is_backend else ("backend", "with")
            raise pytest.UsageError(f"{file} is of ExecuTorch's {of} tests: {how} --backend-suite")
    if there := sorted(str(path.relative_to(folder)) for path in folder.rglob(Path(file).name)):
        raise pytest.UsageError(f"{file} is not there, from the suite's folder: is it {' or '.join(there)}?")


@pytest.hookimpl(trylast=True)
def pytest_configure(config: pytest.Config) -> None:
    config.stash[NOT_RUN] = {}
    config.stash[RERUN] = f"hil dev upstream{' --backend-suite' * config.option.hil_backend_suite}", "--"
    if hasattr(config, "workerinput"):
        return
    if getattr(config.option, _FIXTURE, None):
        raise pytest.UsageError("--cortex-m-target has no meaning here: --target names what the suite is run on")
    # For ExecuTorch's header; the tests are parametrised below.
    setattr(config.option, _FIXTURE, [resolved.display_name for resolved in config.stash[RESOLVED]])


@functools.cache
def _excluded() -> tuple[str, ...]:
    """Return the operators that ExecuTorch's own test runner lacks (backends/cortex_m/test/build_test_runner.sh)."""
    return portable_operators()


def _excluded_from(item: pytest.Item) -> tuple[str, ...]:
    """Return the operators that a test's runner is treated as lacking.

    ExecuTorch's strict xfails rely on operators that its runner lacks: with them, broadcasting divisions and softmax
    over another dimension would pass. ExecuTorch runs the other tests of the backend suite with other runners, which
    have these operators.
    """
    expected_to_pass = item.get_closest_marker("xfail") is None
    return () if item.config.option.hil_backend_suite and expected_to_pass else _excluded()


@functools.cache
def _selected(module: Path) -> frozenset[str]:
    return suite.implementation_tests(module)


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    """Ignore a module without tests that run on a target, so that it is not even imported."""
    if collection_path.suffix == ".py" and not _selected(collection_path):
        return True
    return None


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """Skip a module that needs a package which is not installed, and note it for the summary."""
    report = yield
    missing = _missing_package(report.call.excinfo) if report.failed and report.call else ""
    if missing and isinstance(collector, pytest.Module):
        tests = len(_selected(collector.path))
        how = f"pip install '{_EXTRA}'" if missing in _OF_EXTRA else f"pip install {missing}"
        why = f"no package {missing}; {counted(tests, 'test function')} not run ({how})"
        collector.config.stash[NOT_RUN][collector.nodeid] = why
        report.outcome = "skipped"
        report.longrepr = (str(collector.path), 0, why)
    return report


def _missing_package(failure: pytest.ExceptionInfo[BaseException] | None) -> str:
    """Return the name of the package whose absence caused this failure; "" if something else did."""
    error: BaseException | None = failure.value if failure is not None else None
    while error is not None and not isinstance(error, ModuleNotFoundError):
        error = error.__cause__
    package = (error.name or "").partition(".")[0] if isinstance(error, ModuleNotFoundError) else ""
    return "" if package in ("executorch", "torch", "harness") else package


@pytest.hookimpl(wrapper=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> Generator[None, None, None]:
    """Select the implementation tests, and group all targets of a test, which share most of the lowering."""
    chosen = [item for item in items if getattr(item, "originalname", item.name) in _selected(item.path)]
    others = [item for item in items if item not in set(chosen)]
    if others:
        config.hook.pytest_deselected(items=others)
    items[:] = chosen
    yield  # during this the package's plugin stores each item's name without its target
    order = {name: place for place, name in enumerate(dict.fromkeys(item.stash[TEST_ID] for item in items))}
    items.sort(key=lambda item: order[item.stash[TEST_ID]])


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_generate_tests(metafunc: pytest.Metafunc) -> Generator[None, None, None]:
    """Keep ExecuTorch from parametrising `cortex_m_target` by its own option; here it depends on the target."""
    hidden = _FIXTURE in metafunc.fixturenames
    if hidden:
        metafunc.fixturenames.remove(_FIXTURE)
    yield
    if hidden:
        metafunc.fixturenames.append(_FIXTURE)


# --- runs ---------------------------------------------------------------------------------------------


@contextmanager
def _own_errors() -> Iterator[None]:
    """Raise InfraError for other errors than the harness's in the block, which an expected failure would hide."""
    try:
        yield
    except UnsupportedOperator as error:
        if error.operator in _excluded():
            error.hint = "excluded from ExecuTorch's tests: their own runner is built without it"
        raise
    except HarnessError:
        raise
    except Exception as error:
        what = f"the harness failed: {type(error).__name__}: {error}"
        raise InfraError(what, hint="a defect of this harness: report it with the traceback") from error


class _OwnPlans(Hil):
    """The fixture `hil` for the suite's programs, which keep their own memory plans with `--redzones`.

    The bytes that these plans leave unused or dead are watched. Whether ExecuTorch would fail is left to the test.
    """

    def __init__(self, dut: flow.Dut, node: pytest.Item, redzones: bool) -> None:
        super().__init__(dut, node, redzones)
        self._known = frozenset([ALL])

    def _watched(self, program: Program) -> WatchedMemory:
        memory = WatchedMemory(program)
        report_properties.record_watched_bytes(self._node, memory.nbytes)
        return memory


class _Executor:
    """A callable that runs the programs of one test on one target and counts the runs."""

    def __init__(self, hil: Hil, excluded: tuple[str, ...]) -> None:
        self.runs = 0
        self._hil = hil
        self._excluded = excluded

    def __call__(self, program: Program) -> Sequence[HostTensor]:
        __tracebackhide__ = True
        with _own_errors():
            done = self._hil.verify(program, Tolerance(), excluded=self._excluded)
        self.runs += 1
        return done.result.outputs


EXECUTOR: pytest.StashKey[_Executor] = pytest.StashKey()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup(item: pytest.Item) -> Generator[None, None, None]:
    """Copy the test's parameters for each target, since some tests change modules and inputs in them."""
    with _own_errors():
        callspec = getattr(item, "callspec", None)
        if callspec is not None:
            callspec.params.update(
                {name: copy.deepcopy(value) for name, value in callspec.params.items() if name != "target_spec"}
            )
        yield


@pytest.fixture(autouse=True)
def hil_takes_over(request: pytest.FixtureRequest, hil_dut: flow.Dut) -> Iterator[None]:
    """Make every test of the run a test on a target."""
    executor = request.node.stash[EXECUTOR] = _Executor(
        _OwnPlans(hil_dut, request.node, request.config.getoption("hil_redzones")), _excluded_from(request.node)
    )
    remembered = request.path.resolve().is_relative_to(_suite(request.config.option))
    with suite.taken_over(request.node.stash[TEST_ID], hil_dut.target, executor, remembered=remembered):
        yield


@pytest.hookimpl(tryfirst=True)
def pytest_fixture_setup(fixturedef: pytest.FixtureDef[Any], request: Any) -> object | None:
    if fixturedef.argname != _FIXTURE:
        return None
    config: object = suite.configuration(request.getfixturevalue("target_spec").target)
    fixturedef.cached_result = (config, fixturedef.cache_key(request), None)
    return config


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> Generator[None, object, object]:
    __tracebackhide__ = True
    caught, done = None, None
    try:
        done = yield
    except (RuntimeError, pytest.skip.Exception):
        caught = _caught(pyfuncitem)
        if caught is None:
            raise
    if caught is not None:
        raise caught  # raised here, so that it is no context of errors above
    if not pyfuncitem.stash[EXECUTOR].runs:
        what = f"{pyfuncitem.stash[TEST_ID]} passed and ran no program: nothing was learnt about the target"
        raise InfraError(what, hint="a test of the host alone: leave it out with pytest's --deselect")
    return done


def _caught(item: pytest.Function) -> BaseException | None:
    """Return the error behind a failed test of the backend suite, None where its runner skips the test.

    The suite's runner catches every error, and raises an error without its message. An InfraError, where the harness
    itself failed, is returned for a skipped test too.
    """
    runner: Any = item.funcargs.get("test_runner")
    if runner is None or not runner._results:
        return None
    last = runner._results[-1]
    error: BaseException | None = last.error
    return error if last.result.is_backend_failure() or isinstance(error, InfraError) else None


# --- reports --------------------------------------------------------------------------------------------


def pytest_sessionfinish(session: pytest.Session) -> None:
    output = getattr(session.config, "workeroutput", None)
    if output is not None:
        output[_WORKER_OUTPUT] = session.config.stash[NOT_RUN]


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Collect the modules that an xdist worker did not run; every worker collects all tests, so all report the same."""
    node.config.stash[NOT_RUN].update(getattr(node, "workeroutput", {}).get(_WORKER_OUTPUT, {}))


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    if config.getoption("hil_redzones"):
        terminalreporter.write_line(_watched(terminalreporter.stats))
    missing = config.stash[NOT_RUN]
    if not missing:
        return
    terminalreporter.section("not run")
    terminalreporter.write_line(f"{counted(len(missing), 'module')} that cannot be imported")
    for module, why in sorted(missing.items()):
        terminalreporter.write_line(f"{module}: {why}")


def _watched(stats: Mapping[str, Sequence[Any]]) -> str:
    """Return the summary line on red zones in all programs; a test's last report has its recorded properties."""
    reports = (one for reports in stats.values() for one in reports if getattr(one, "when", "") == "teardown")
    sizes = [
        value for one in reports for name, value in prop.recorded(one.user_properties) if name == prop.WATCHED_BYTES
    ]
    none = f"; {sizes.count(0)} plans leave no byte free" if 0 in sizes else ""
    return f"red zones: {counted(sum(sizes), 'byte')} watched in {counted(len(sizes), 'program')}{none}"
