"""The pytest plugin: options, markers, parametrisation by target, header and table."""

from __future__ import annotations

import argparse
import os
import shlex
import signal
import subprocess
import threading
from collections.abc import Generator, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import pytest

from cortex_m_hil import flow, launchers
from cortex_m_hil.errors import ConfigError, HarnessError, HilWarning, InfraError
from cortex_m_hil.host import sandbox, supervisor
from cortex_m_hil.lowering import RED_ZONE
from cortex_m_hil.numbers import argument
from cortex_m_hil.pytest_plugin import markers, seeding
from cortex_m_hil.pytest_plugin.fixtures import (
    LOG,
    LOG_TAIL,
    POOL,
    RESOLVED,
    TEST_ID,
    Pool,
    embedded,
    hil,
    hil_dut,
    hil_lower,
    no_target,
    not_parametrized,
    resolved_of,
    run_pte,
    runner_elf,
    target_spec,
)
from cortex_m_hil.report.table import Outcome, table
from cortex_m_hil.results import STATISTICS, Verdict
from cortex_m_hil.targets.load import load_targets
from cortex_m_hil.targets.resolve import Resolved, resolve, select
from cortex_m_hil.text import printable

__all__ = ["HilWarning", "hil", "hil_dut", "hil_lower", "run_pte", "runner_elf", "target_spec"]

BAD_TEST: pytest.StashKey[ConfigError] = pytest.StashKey()  # why a test cannot be run as it is written
# Options that may change a verdict: a rerun has to have them too.
DEFAULTS: Final[Mapping[str, Any]] = {
    "--runtime": "builtin",
    "--require-fvp": False,
    "--dut-scope": "session",
    "--timeout-multiplier": 1.0,
    "--hil-seed": 0,
    "--redzones": False,
}
RERUN: pytest.StashKey[tuple[str, str]] = pytest.StashKey()  # a command, and what goes before its node ids
OUTCOMES: pytest.StashKey[dict[str, Outcome]] = pytest.StashKey()
RERUN_NAMED = 30  # failures; more of them are asked for by pytest's own memory of the last run
_WIDE = ("session", "package", "module", "class")
_SHOWING = ("collectonly", "showfixtures", "show_fixtures_per_test", "setupplan")
_ENDING = (signal.SIGTERM, signal.SIGHUP)
_PARENT = "hil_controller"  # of a worker's input: the process that started it
_PROPERTIES = ("hil_test", "hil_requested", "hil_ran", "hil_verdict", "hil_error")


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("hil", "hardware-in-the-loop tests on Cortex-M")
    names = ("--hil-target",) if embedded() else ("--target", "--hil-target")
    group.addoption(
        *names,
        dest="hil_target",
        action="append",
        default=[],
        metavar="NAME",
        help="target to run on: a name, comma list, glob or 'all' of targets.yaml; repeatable",
    )
    group.addoption("--targets-file", type=Path, metavar="FILE", help="extends the default targets (./targets.yaml)")

    def decisive(option: str, **attributes: Any) -> None:
        group.addoption(option, default=DEFAULTS[option], **attributes)

    flag = {"action": "store_true"}
    decisive("--runtime", dest="hil_runtime", help="what executes programs: builtin, executorch")
    decisive("--require-fvp", **flag, help="an FVP that is not installed is an error, no fallback")
    decisive("--dut-scope", choices=("function", "session"), help="how long a simulator lives (default: session)")
    multiplier, seed = argument(float, *flow.MULTIPLIERS), argument(int, 0, seeding.HIGHEST)
    decisive("--timeout-multiplier", type=multiplier, metavar="X", help="stretches every program's time limit")
    decisive("--hil-seed", type=seed, metavar="N", help="what all random numbers of tests on a target follow from")
    decisive("--redzones", **flag, help="plan memory that no tensor owns around every tensor, and watch it")
    group.addoption(
        "--keep-programs", type=Path, metavar="DIR", help="write every program that is run into DIR, with its inputs"
    )
    parser.addini("hil_targets", "default targets, as in --target", type="args", default=[])


def pytest_configure(config: pytest.Config) -> None:
    for line in markers.DESCRIPTIONS:
        config.addinivalue_line("markers", line)
    config.stash[POOL] = Pool()
    config.stash[OUTCOMES] = {}
    _end_in_time(config)
    try:
        config.stash[RESOLVED] = _resolve(config)
    except HarnessError as error:
        raise pytest.UsageError(error.describe()) from None
    _seed(config, config.option)  # where this plugin was registered too late for the hook below


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config) -> None:
    """A conftest.py may make weights when it is imported."""
    _seed(early_config, early_config.known_args_namespace)


def _seed(config: pytest.Config, options: argparse.Namespace) -> None:
    if _patterns(config, options):
        seeding.start(config, options.hil_seed, config.rootpath)


def _patterns(config: pytest.Config, options: argparse.Namespace) -> list[str]:
    patterns: list[str] = options.hil_target or config.getini("hil_targets")
    return patterns


def _resolve(config: pytest.Config) -> list[Resolved]:
    patterns = _patterns(config, config.option)
    if not patterns:
        return []
    targets = load_targets(_targets_file(config))
    runtime = config.getoption("hil_runtime")
    require_fvp = config.getoption("require_fvp")
    names = select(patterns, targets)
    resolved = [resolve(name, targets, runtime=runtime, require_fvp=require_fvp) for name in names]
    return [launchers.name_stand_in(one) for one in resolved]


def _targets_file(config: pytest.Config) -> Path | None:
    """What the option names, else the `targets.yaml` of the folder pytest was called in or of its root."""
    given: Path | None = config.getoption("targets_file")
    if given is not None:
        return given
    for folder in (config.invocation_params.dir, config.rootpath):
        if os.path.lexists(folder / "targets.yaml"):
            return folder / "targets.yaml"
    return None


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Here, since xdist's controller ends a worker as soon as that has said that its session is finished."""
    if signal.getsignal(signal.SIGINT) is _interrupt_once:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # execnet interrupts a worker that takes 5 s to end
    session.config.stash[POOL].close()


def pytest_unconfigure(config: pytest.Config) -> None:
    if POOL in config.stash:
        config.stash[POOL].close()


# --- how the run is ended ------------------------------------------------------------------------------------


class _Workers:
    """The processes that xdist's controller has started."""

    def __init__(self) -> None:
        self._processes: list[subprocess.Popen[bytes]] = []

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: Any) -> None:
        if node.gateway.spec.popen and not node.gateway.spec.via:
            node.workerinput[_PARENT] = os.getpid()
            self._processes.append(node.gateway._io.popen)

    def pytest_keyboard_interrupt(self) -> None:
        """xdist would wait 10 s for the tests that its workers are at."""
        for worker in self._processes:
            worker.send_signal(signal.SIGINT)


def _end_in_time(config: pytest.Config) -> None:
    """A worker ends with its controller; any other run ends in good order when it is told to."""
    if threading.current_thread() is not threading.main_thread():
        return
    if hasattr(config, "workerinput"):
        if _PARENT in config.workerinput:
            supervisor.die_with(config.workerinput[_PARENT], signal.SIGKILL)
            signal.signal(signal.SIGINT, _interrupt_once)
        return
    config.pluginmanager.register(_Workers(), "hil-workers")
    ending = _Ending()
    config.pluginmanager.register(ending, "hil-ending")
    for number in _ENDING:
        if signal.getsignal(number) is signal.SIG_DFL:  # not where somebody has other plans, as nohup has
            signal.signal(number, ending.take)
            config.add_cleanup(ending.restore)


class _Ending:
    """SIGTERM and SIGHUP end a run as Ctrl-C does, with what there is of a summary."""

    def __init__(self) -> None:
        self._taken: signal.Signals | None = None

    def take(self, number: int, frame: object) -> None:
        """A second signal ends the process at once."""
        signal.signal(number, signal.SIG_DFL)
        self._taken = signal.Signals(number)
        self.pytest_runtest_logstart()

    def pytest_runtest_logstart(self) -> None:
        """Once more before the next test: what a handler raises is lost where it interrupts a destructor."""
        if self._taken is not None:
            pytest.exit(f"ended by {self._taken.name}", returncode=128 + self._taken)

    def restore(self) -> None:
        for number in _ENDING:
            if signal.getsignal(number) == self.take:
                signal.signal(number, signal.SIG_DFL)


def _interrupt_once(number: int, frame: object) -> None:
    """A terminal interrupts workers too; the controller's interrupt must not disturb them while they put away."""
    signal.signal(number, signal.SIG_IGN)
    raise KeyboardInterrupt


def pytest_report_header(config: pytest.Config) -> list[str]:
    lines = []
    if embedded():
        lines.append("hil: use --hil-target here; pytest-embedded is installed and owns --target")
    for resolved in config.stash[RESOLVED]:
        lines.append(f"hil: {resolved.label}" + (f"; {resolved.why}" if resolved.why else ""))
    if config.getoption("hil_seed"):
        lines.append(f"hil: seed {config.getoption('hil_seed')}")
    if config.stash[RESOLVED] and (missing := sandbox.warning()):
        lines.append(f"hil: {missing}")
    if config.getoption("redzones"):
        lines.append(f"hil: red zones: at least {RED_ZONE} bytes around every planned tensor, watched in every run")
    return lines


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "target_spec" in metafunc.fixturenames:
        resolved: list[Resolved | None] = [*metafunc.config.stash[RESOLVED]] or [None]
        ids = [one.name if one else "no-target" for one in resolved]
        metafunc.parametrize("target_spec", resolved, ids=ids, indirect=True, scope=_scope(metafunc))


def _scope(metafunc: pytest.Metafunc) -> Any:
    """The narrowest scope that a target may have here: that of the widest fixture of the user's which depends on it.

    Narrow, because pytest runs tests of a wide parameter one target after the other; otherwise a test's targets follow
    each other, and share most of its lowering.
    """
    users = _dependents(metafunc, {"target_spec"})
    scopes = {one.scope for one in users if one.argname not in ("target_spec", "hil_lower")}
    return next((scope for scope in _WIDE if scope in scopes), "function")


def _dependents(metafunc: pytest.Metafunc, names: set[str]) -> set[pytest.FixtureDef[Any]]:
    """The fixtures of a test that depend on those of these names, directly or not."""
    every = {one for name in metafunc.fixturenames for one in metafunc._arg2fixturedefs.get(name, ())}
    found: set[pytest.FixtureDef[Any]] = set()
    while more := {one for one in every - found if names.intersection(one.argnames)}:
        found |= more
        names = names | {one.argname for one in more}
    return found


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for item in items:
        if "target_spec" not in getattr(item, "fixturenames", ()):
            continue
        resolved = resolved_of(item)
        if resolved is not None:
            _name(item, resolved)
            _mark(item, resolved)
        elif config.stash[RESOLVED]:
            item.stash[BAD_TEST] = ConfigError(not_parametrized())
        elif not _only_shows(config) and not hasattr(config, "workerinput"):
            # In a worker the fixture says so; an error here would look like a crashed worker.
            raise pytest.UsageError(f"{item.nodeid}: {no_target()}")


def _only_shows(config: pytest.Config) -> bool:
    """Whether tests are listed or planned, and none is run."""
    return any(
        config.getoption(name) for name in ("collectonly", "showfixtures", "show_fixtures_per_test", "setupplan")
    )


def _name(item: pytest.Item, resolved: Resolved) -> None:
    """The test's name without its target, and what every report of it must carry."""
    callspec = item.callspec  # type: ignore[attr-defined]
    others = [part for part in callspec._idlist if part != resolved.name]
    base = item.nodeid.split("[")[0]
    item.stash[TEST_ID] = printable(base + (f"[{'-'.join(others)}]" if others else ""))
    item.user_properties += [
        ("hil_test", item.stash[TEST_ID]),
        ("hil_requested", resolved.name),
        ("hil_ran", resolved.display_name),
        ("hil_seed", item.config.getoption("hil_seed")),
    ]


def _mark(item: pytest.Item, resolved: Resolved) -> None:
    """What cannot be understood is an error of this test alone, when it is set up."""
    try:
        for meaning in list(markers.expectations(item, resolved)):
            item.add_marker(meaning)
    except ConfigError as error:
        item.stash[BAD_TEST] = error


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    __tracebackhide__ = True
    if BAD_TEST in item.stash:
        raise item.stash[BAD_TEST].with_traceback(None)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    error = call.excinfo.value if call.excinfo else None
    if isinstance(error, ConfigError) and error is item.stash.get(BAD_TEST, None):
        file, line, name = item.location
        report.longrepr = f"{file}:{(line or 0) + 1}: {name}: {error.describe()}"
    if resolved_of(item) is None:
        return report
    if isinstance(error, InfraError) and hasattr(report, "wasxfail"):
        # Nothing was learnt about the program, so this is not the failure that a plain xfail marker expects.
        del report.wasxfail
        report.outcome = "failed"
    verdict = _verdict(report, error)
    if verdict is not None:
        name = type(error).__name__ if error and verdict is not Verdict.SKIP else ""
        found: list[tuple[str, object]] = [("hil_verdict", verdict.name), ("hil_error", name)]
        report.user_properties += found
        item.user_properties += found  # for the reports of later phases: the last is what JUnit files are made of
    if report.failed:
        report.sections += list(_sections(item, error))
    return report


def _sections(item: pytest.Item, error: BaseException | None) -> Iterator[tuple[str, str]]:
    """What a failed report says beside the error."""
    yield "seed", f"--hil-seed={item.config.getoption('hil_seed')}"
    while error is not None and not isinstance(error, HarnessError):
        error = error.__cause__ or error.__context__
    log = error.log.splitlines() if error is not None else []
    for title, lines in (("details", log[-LOG_TAIL:]), ("target log", item.stash.get(LOG, "").splitlines())):
        if lines:
            yield title, "\n".join(lines)


def _verdict(report: pytest.TestReport, error: BaseException | None) -> Verdict | None:
    """None for a phase that decides nothing: a setup or teardown that went well."""
    if report.failed:
        if isinstance(error, InfraError):
            return Verdict.INFRA
        # A strict xfail that passed is a failed report without an exception.
        return Verdict.XPASS if error is None else Verdict.FAIL
    if report.skipped:
        return Verdict.XFAIL if hasattr(report, "wasxfail") else Verdict.SKIP
    return Verdict.PASS if report.when == "call" else None


class _Collector:
    """Where the reports arrive: the only process, or xdist's controller."""

    def __init__(self, config: pytest.Config) -> None:
        self._outcomes = config.stash[OUTCOMES]

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        found: dict[str, Any] = dict(report.user_properties)
        if not all(name in found for name in _PROPERTIES):
            return
        verdict = Verdict[found["hil_verdict"]]
        before = self._outcomes.get(report.nodeid)
        if before is not None and verdict is Verdict.PASS:
            return
        peaks = {one: found[one.property_name] for one in STATISTICS if one.property_name in found}
        self._outcomes[report.nodeid] = Outcome(
            found["hil_test"], found["hil_requested"], found["hil_ran"], verdict, found["hil_error"], report.nodeid,
            peaks,
        )  # fmt: skip


@pytest.hookimpl(trylast=True)
def pytest_sessionstart(session: pytest.Session) -> None:
    if not hasattr(session.config, "workerinput"):
        session.config.pluginmanager.register(_Collector(session.config), "hil-collector")


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    outcomes = sorted(config.stash[OUTCOMES].values(), key=lambda outcome: outcome.test)
    if not outcomes:
        return
    order = [resolved.name for resolved in config.stash[RESOLVED]]
    outcomes.sort(key=lambda outcome: order.index(outcome.requested))
    terminalreporter.section("test × target")
    for line in table(outcomes):
        terminalreporter.write_line(line)
    for resolved in config.stash[RESOLVED]:
        terminalreporter.write_line(resolved.label)
    bad = [o for o in outcomes if o.verdict in (Verdict.FAIL, Verdict.INFRA, Verdict.XPASS)]
    if bad:
        terminalreporter.write_line("")
        terminalreporter.write_line(f"rerun: {_rerun(config, bad)}")


def _rerun(config: pytest.Config, bad: Sequence[Outcome]) -> str:
    command, separator = config.stash.get(RERUN, ("pytest", ""))
    option = "--hil-target" if embedded() and not separator else "--target"
    words = [f"{option}={target}" for target in dict.fromkeys(outcome.requested for outcome in bad)]
    file = config.getoption("targets_file")
    words += [f"--targets-file={file}"] if file else []
    words += [separator] if separator else []
    words += _decisive(config)
    if len(bad) > RERUN_NAMED and config.pluginmanager.hasplugin("lfplugin"):
        words.append("--last-failed")
    else:
        words += [_from_here(config, outcome.node_id.split("@")[0]) for outcome in bad]
    return printable(f"{command} {shlex.join(words)}")


def _decisive(config: pytest.Config) -> Iterator[str]:
    """Options that may change a verdict, where they are not the default."""
    for option, default in DEFAULTS.items():
        value = config.getoption(option)
        if value != default:
            yield option if value is True else f"{option}={value}"


def _from_here(config: pytest.Config, node_id: str) -> str:
    """A node id, which is relative to the root folder, as pytest takes it where it was called."""
    path, colons, rest = node_id.partition("::")
    file = config.rootpath / path
    here = config.invocation_params.dir
    return str(file.relative_to(here) if file.is_relative_to(here) else file) + colons + rest
