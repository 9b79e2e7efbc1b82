"""The pytest plugin: its hooks for options, markers, parametrisation by target, header and summary."""

from __future__ import annotations

import argparse
import traceback
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from datetime import date
from functools import partial
from typing import Any, Final

import pytest

from cortex_m_hil.campaigns import property_names as prop
from cortex_m_hil.campaigns.report.terminal_summary import NO_RUNNER
from cortex_m_hil.checks.comparison.advice_texts import LOCALIZE
from cortex_m_hil.errors import (
    ConfigError,
    HarnessError,
    HilWarning,
    InfraError,
    Mismatch,
    NotOffered,
    PortNotFound,
    VerdictError,
)
from cortex_m_hil.errors.text import counted, printable, printable_lines
from cortex_m_hil.host import sandbox
from cortex_m_hil.host.files import check_folder
from cortex_m_hil.host.garbage_collection import garbage_collection_paused
from cortex_m_hil.lowering import RED_ZONE
from cortex_m_hil.lowering.disk_cache import disk
from cortex_m_hil.pytest_plugin import (
    cases,
    coverage,
    failure_bundles,
    markers,
    option_names,
    options,
    quarantine,
    report_properties,
    runtime_differences,
    seeding,
    summary,
    trace,
)
from cortex_m_hil.pytest_plugin import termination as ending
from cortex_m_hil.pytest_plugin.fixtures import (
    APP,
    DUTS,
    HIL,
    KNOWN,
    LOCALIZED,
    LOCALIZED_SECTION,
    LOG,
    LOG_TAIL,
    RESOLVED,
    RUNNERS,
    TEST_ID,
    DutCache,
    hil,
    hil_app,
    hil_dut,
    hil_launch,
    hil_lower,
    lacks_target,
    no_target,
    not_parametrized,
    resolved_of,
    run_pte,
    runner_elf,
    target_spec,
)
from cortex_m_hil.pytest_plugin.summary import Summary
from cortex_m_hil.runner.run_results import Verdict
from cortex_m_hil.targets.resolve import Resolved
from cortex_m_hil.targets.target import HardwareLauncher

__all__ = ["HilWarning", "hil", "hil_app", "hil_dut", "hil_launch", "hil_lower", "run_pte", "runner_elf", "target_spec"]

BAD_TEST: pytest.StashKey[ConfigError] = pytest.StashKey()  # the mistake in a test that prevents its run
_NO_ERROR: Final = ConfigError("")
_WIDE: Final = ("session", "package", "module", "class")


def pytest_addoption(parser: pytest.Parser, pluginmanager: pytest.PytestPluginManager) -> None:
    config = pluginmanager.get_plugin("pytestconfig")
    assert isinstance(config, pytest.Config)
    options.add(parser, config)


def pytest_configure(config: pytest.Config) -> None:
    for line in markers.DESCRIPTIONS:
        config.addinivalue_line("markers", line)
    config.stash[DUTS] = DutCache()
    config.stash[RUNNERS] = {}
    config.stash[quarantine.ENTRIES] = []
    disk.enabled = not config.getoption("hil_no_cache")
    ending.prepare(config)
    try:
        config.stash[RESOLVED] = options.targets(config)
        runtime_differences.prepare(config)
        config.stash[KNOWN] = options.known(config)
        if (file := config.getoption("hil_quarantine")) is not None:
            config.stash[quarantine.ENTRIES] = quarantine.load(file)
        for option in ("--hil-bundles", "--hil-keep-programs"):
            if (folder := config.getoption(option)) is not None:
                check_folder(folder, option_names.spelled(config, option))
        if not options.only_shows(config):
            coverage.prepare(config, config.stash[RESOLVED])
            trace.prepare(config)
    except HarnessError as error:
        raise pytest.UsageError(error.describe()) from None
    _seed(config, config.option)  # needed if this plugin was registered too late for the hook below


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_load_initial_conftests(
    early_config: pytest.Config, parser: pytest.Parser, args: list[str]
) -> Generator[None, object, object]:
    """Seed the generators before the initial conftest.py files are imported, and register the short option names after.

    A conftest.py may draw random weights on import, and may register options, whose names have precedence over ours.
    """
    option_names.understood(early_config, parser, args)
    _seed(early_config, early_config.known_args_namespace)
    result = yield
    options.add_short(parser, early_config)
    return result


def _seed(config: pytest.Config, given: argparse.Namespace) -> None:
    if options.patterns(config):
        # The suite's own conftest.py seeds each module, since its tolerances may not fit other weights.
        is_upstream = config.pluginmanager.has_plugin("cortex_m_hil.maintainers.pytest_plugins.upstream")
        seeding.start(config, given.hil_seed, config.rootpath, modules=given.hil_seed if is_upstream else None)


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Close the targets and collect the coverage before xdist's controller ends this worker.

    The controller ends a worker as soon as it has reported the end of its session.
    """
    ending.put_away()
    session.config.stash[DUTS].close()
    coverage.finish(session.config)


def pytest_unconfigure(config: pytest.Config) -> None:
    if DUTS in config.stash:
        config.stash[DUTS].close()


def _without_board(resolved: Resolved) -> str:
    """Return why a target's board is missing, to report it before anything is lowered.

    "" if it is there or not needed.
    """
    if isinstance(resolved.target.launcher, HardwareLauncher):
        try:
            resolved.target.launcher.require()
        except PortNotFound as error:
            return f": {error.message}; {error.hint}"
    return ""


def pytest_report_header(config: pytest.Config) -> list[str]:
    lines = []
    lines += [f"hil: {line}" for line in option_names.others(config)]
    lines += [f"hil: {line}" for line in options.replaced(config)]
    for resolved in config.stash[RESOLVED]:
        board = "" if resolved.fallback_reason else _without_board(resolved)
        more = f"; {resolved.reasons}" if resolved.reasons else ""
        lines.append(f"hil: {resolved.label}{board}{more}")
    if config.stash[RESOLVED] and (known := config.stash[KNOWN]):
        causes = ", ".join(sorted(map(str, known)))
        lines.append(f"hil: accepted though ExecuTorch fails on it (ini hil_known): {causes}")
    lines += [f"hil: {line}" for line in quarantine.ended(config.stash[quarantine.ENTRIES], date.today())]
    if config.getoption("hil_seed"):
        lines.append(f"hil: seed {config.getoption('hil_seed')}")
    if config.stash[RESOLVED] and (missing := sandbox.warning()):
        lines.append(f"hil: {missing}")
    if config.getoption("hil_redzones"):
        lines.append(
            "hil: red zones: every run is watched for writes outside tensors "
            f"({RED_ZONE} bytes or more around each that hil plans), and for reads of dead ones"
        )
    return lines


def pytest_report_collectionfinish(items: list[pytest.Item]) -> list[str]:
    """Report how many tests use a target but not the harness's runner.

    This is no part of the header, since the tests' fixtures are known only after the collection.
    """
    own = [item for item in items if resolved_of(item) is not None and not report_properties.uses_runner(item)]
    launching = sum("hil_launch" in getattr(item, "fixturenames", ()) for item in own)
    numbers = {"an own ELF, by hil_launch": launching, NO_RUNNER: len(own) - launching}
    return [f"hil: on a target, with {what}: {counted(number, 'test')}" for what, number in numbers.items() if number]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "target_spec" in metafunc.fixturenames:
        resolved: list[Resolved | None] = [*metafunc.config.stash[RESOLVED]] or [None]
        ids = [options.id_of(metafunc.config, one) if one else "no-target" for one in resolved]
        metafunc.parametrize("target_spec", resolved, ids=ids, indirect=True, scope=_scope(metafunc))
    cases.parametrize(metafunc)


def _scope(metafunc: pytest.Metafunc) -> Any:
    """Return the narrowest scope that `target_spec` may have for a test.

    It is the scope of the user's widest fixture that depends on it. With a wide scope pytest runs all tests on one
    target and then on the next; with a narrow one each test runs on all its targets in turn, which share most of the
    lowering.
    """
    users = _dependents(metafunc, {"target_spec"})
    scopes = {one.scope for one in users if one.argname not in ("target_spec", "hil_lower")}
    return next((scope for scope in _WIDE if scope in scopes), "function")


def _dependents(metafunc: pytest.Metafunc, names: set[str]) -> set[pytest.FixtureDef[Any]]:
    """Return the fixtures of a test that depend, directly or not, on fixtures with these names."""
    every = {one for name in metafunc.fixturenames for one in metafunc._arg2fixturedefs.get(name, ())}
    found: set[pytest.FixtureDef[Any]] = set()
    while more := {one for one in every - found if names.intersection(one.argnames)}:
        found |= more
        names = names | {one.argname for one in more}
    return found


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Keep the garbage collector off during collection: test files import torch, and ExecuTorch's suite ExecuTorch."""
    with garbage_collection_paused():
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    report = yield
    if problem := option_names.too_late(report, collector.config):
        if not hasattr(collector.config, "workerinput"):  # in a worker this would look like a crash
            raise pytest.UsageError(problem)
        report.longrepr = problem
    return report


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for item in items:
        if "target_spec" not in getattr(item, "fixturenames", ()):
            _understand(item, partial(markers.check_without_target, item))
            continue
        resolved = resolved_of(item)
        if resolved is not None:
            _record_identity(item, resolved)
            _understand(item, partial(_mark, item, resolved))
        elif config.stash[RESOLVED]:
            item.stash[BAD_TEST] = ConfigError(not_parametrized())
        elif not options.only_shows(config) and not hasattr(config, "workerinput"):
            # In a worker the fixture reports this; an error here would look like a crashed worker.
            raise pytest.UsageError(f"{item.nodeid}: {no_target(config)}")


def _record_identity(item: pytest.Item, resolved: Resolved) -> None:
    """Store the test's id without its target, and record the properties that identify it in each of its reports."""
    callspec = item.callspec  # type: ignore[attr-defined]
    others = [part for part in callspec._idlist if part != options.id_of(item.config, resolved)]
    base = item.nodeid.split("[")[0]
    item.stash[TEST_ID] = printable(base + (f"[{'-'.join(others)}]" if others else ""))
    report_properties.record_identity(item, item.stash[TEST_ID], resolved, item.config.getoption("hil_seed"))


def _understand(item: pytest.Item, markers_of: Callable[[], None]) -> None:
    """Apply the markers of a test; keep a ConfigError as the error of this test alone, which its setup raises."""
    try:
        markers_of()
    except ConfigError as error:
        item.stash[BAD_TEST] = error


def _mark(item: pytest.Item, resolved: Resolved) -> None:
    for meaning in list(markers.expectations(item, resolved)):
        item.add_marker(meaning)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Return a scheduler that runs each test on all its targets and runtimes in one worker.

    None unless `--dist=load`.
    """
    names = [options.id_of(config, resolved) for resolved in config.stash[RESOLVED]]
    if config.getoption("dist") != "load" or len(names) < 2:
        return None
    from cortex_m_hil.pytest_plugin.scheduling import ByTest

    return ByTest(config, log, names)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    __tracebackhide__ = True
    report_properties.forget_attempt(item)
    failure_bundles.forget(item)
    runtime_differences.forget_attempt(item, item.stash.get(TEST_ID, ""), resolved_of(item))
    if BAD_TEST in item.stash:
        raise item.stash[BAD_TEST].with_traceback(None)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    """Raise ConfigError for a test that passed, but in which no program ran under its budget."""
    __tracebackhide__ = True
    result = yield
    if HIL in item.stash:
        item.stash[HIL].require_judged()
    return result


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    error = call.excinfo.value if call.excinfo else None
    if isinstance(error, Mismatch):
        error.hint = error.hint.replace(LOCALIZE, _localized_by(item))
    with _cause_apart(error):
        report = yield
    if isinstance(error, ConfigError) and error is item.stash.get(BAD_TEST, None):
        file, line, _ = item.location
        report.longrepr = f"{file}:{(line or 0) + 1}: {error.describe()}"
    if isinstance(error, HarnessError):
        _without_word_on_frames(report)
    if isinstance(error, NotOffered):  # skipped, as by the marker `requires`
        file, line, _ = item.location
        report.outcome, report.longrepr = "skipped", (file, line or 0, f"Skipped: {error.message}")
    if resolved_of(item) is None:
        if report.failed and (lacks_target(item.config, error) or error is item.stash.get(BAD_TEST, _NO_ERROR)):
            report_properties.record_missing_target(report)
        return report
    if isinstance(error, InfraError) and hasattr(report, "wasxfail"):
        # An infra error says nothing about the program, so it is not the failure that a plain xfail marker expects.
        del report.wasxfail
        report.outcome = "failed"
    if isinstance(error, VerdictError) and error.accepted and report.failed:
        report.outcome = "skipped"
        report.wasxfail = error.accepted
    known = quarantine.entry_of(item, date.today())
    if known is not None and call.when != "teardown":
        _expect(item, report, error, known)
    if call.when == "setup" and (entry := quarantine.ended_entry_of(item, date.today())) is not None:
        report_properties.record_ended_quarantine(item, f"{entry.until}: {entry.reason}")
    verdict = _verdict(report, error)
    if verdict is not None:
        name = type(error).__name__ if error and verdict is not Verdict.SKIP else ""
        operator = error.operator if isinstance(error, HarnessError) else ""
        stage = error.stage if isinstance(error, Mismatch) else ""
        report_properties.record_verdict(item, report, verdict, name, operator=operator, stage=stage)
    if report.failed:
        report.sections += list(_sections(item, error))
        report.sections += list(failure_bundles.sections(item, report, _of_harness(error)))
    if call.when == "teardown":
        failure_bundles.forget(item)
    return report


def _expect(item: pytest.Item, report: pytest.TestReport, error: BaseException | None, known: quarantine.Entry) -> None:
    """Turn the failure of a quarantined test into an expected one, unless it is an infra error or a ConfigError."""
    report_properties.record_quarantine(item, known.reason)
    if report.failed and error is not None and not isinstance(error, (InfraError, ConfigError)):
        report.outcome = "skipped"
        report.wasxfail = f"quarantined: {known.reason}"


def _without_word_on_frames(report: pytest.TestReport) -> None:
    """Remove pytest's remark that all frames are hidden, which would look like the error's hint."""
    if (trace := getattr(report.longrepr, "reprtraceback", None)) is not None:
        trace.extraline = None


def _localized_by(item: pytest.Item) -> str:
    """Return a text about the faulty operator: this run's localisation, or the command that localises the test."""
    resolved = resolved_of(item)
    if LOCALIZED in item.stash or resolved is None:
        return "what was localised" if LOCALIZED in item.stash else LOCALIZE
    return summary.localize_command(item.config, resolved, item.stash[TEST_ID])


@contextmanager
def _cause_apart(error: BaseException | None) -> Iterator[None]:
    """Detach a harness error's cause while pytest makes its report, so that the error's own lines come first.

    pytest would print the whole traceback of the cause above the error; it becomes a section of the report instead.
    """
    if not isinstance(error, HarnessError):
        yield
        return
    cause, error.__cause__ = error.__cause__, None
    try:
        yield
    finally:
        error.__cause__ = cause


def _sections(item: pytest.Item, error: BaseException | None) -> Iterator[tuple[str, str]]:
    """Yield title and text of each section that a failed report gets in addition to the error."""
    yield "seed", f"--hil-seed={item.config.getoption('hil_seed')}"
    error = _of_harness(error)
    if error is not None and error.log:
        yield "details", "\n".join(error.log.splitlines()[-LOG_TAIL:])
    if error is not None and error.__cause__ is not None and error is not item.stash.get(BAD_TEST, None):
        yield "cause", _traceback(error.__cause__, error.log)
    if LOCALIZED in item.stash:
        yield LOCALIZED_SECTION, item.stash[LOCALIZED]
    log = "\n".join(item.stash[APP].log.splitlines()[-LOG_TAIL:]) if APP in item.stash else item.stash.get(LOG, "")
    if log and not (error is not None and error.log.endswith(log)):
        yield "target log", log


def _of_harness(error: BaseException | None) -> HarnessError | None:
    """Return the first HarnessError among an error and its chain of causes; None without one."""
    seen: list[BaseException] = []  # an error may be among its own causes
    while error is not None and error not in seen and not isinstance(error, HarnessError):
        seen.append(error)
        error = error.__cause__ or error.__context__
    return error if isinstance(error, HarnessError) else None


def _traceback(cause: BaseException, details: str) -> str:
    """Return the traceback of the exception that caused an error.

    The exception's message is left out if the report's section of details has the same text.
    """
    lines = traceback.format_exception(cause)
    if details and details == printable_lines(str(cause).strip()):
        text = traceback.format_exception_only(cause)
        lines[-len(text) :] = [f"{type(cause).__name__}: see details\n"]
    return "".join(lines).rstrip()


def _verdict(report: pytest.TestReport, error: BaseException | None) -> Verdict | None:
    """Return the verdict of a test's phase; None for a phase that decides nothing: a setup or teardown that passed."""
    if report.failed:
        if isinstance(error, ConfigError):
            return Verdict.ERROR
        if isinstance(error, InfraError):
            return Verdict.INFRA
        # A test with a strict xfail that passes has a failed report without an exception.
        return Verdict.XPASS if error is None else Verdict.FAIL
    if report.skipped:
        return Verdict.XFAIL if hasattr(report, "wasxfail") else Verdict.SKIP
    return Verdict.PASS if report.when == "call" else None


@pytest.hookimpl(trylast=True)
def pytest_sessionstart(session: pytest.Session) -> None:
    if not hasattr(session.config, "workerinput"):
        session.config.pluginmanager.register(Summary(session.config), "hil-summary")


@pytest.hookimpl(tryfirst=True)
def pytest_report_teststatus(report: pytest.TestReport) -> tuple[str, str, str] | None:
    """Report a test with a mistake, such as a wrong marker, as an error, as pytest reports errors of the setup."""
    found = dict(prop.recorded(report.user_properties)) if isinstance(report, pytest.TestReport) else {}
    if report.failed and found.get(prop.VERDICT) == Verdict.ERROR.name:
        return "error", "E", "ERROR"
    return None
