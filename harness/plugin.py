"""The pytest plugin: options, markers, parametrisation by target, header and table."""

from __future__ import annotations

import fnmatch
import os
from collections.abc import Generator, Sequence
from pathlib import Path
from typing import Any

import pytest

from harness import launchers
from harness.errors import HarnessError, InfraError, VerdictError
from harness.fixtures import (
    DETAILS,
    LOG,
    MULTIPLIER,
    POOL,
    TEST_ID,
    HilWarning,
    Pool,
    embedded,
    hil,
    hil_dut,
    no_target,
    run_pte,
    runner_elf,
    target_spec,
)
from harness.lowering import RED_ZONE
from harness.report.table import Outcome, table
from harness.resolve import Resolved, resolve, select
from harness.results import Verdict
from harness.targets import Isa, Target, load_targets, parse_size

__all__ = ["HilWarning", "hil", "hil_dut", "run_pte", "runner_elf", "target_spec"]

RESOLVED: pytest.StashKey[list[Resolved]] = pytest.StashKey()
RERUN: pytest.StashKey[tuple[str, str]] = pytest.StashKey()  # a command, and what goes before its node ids
OUTCOMES: pytest.StashKey[dict[str, Outcome]] = pytest.StashKey()
RERUN_NAMED = 30  # failures; more of them are asked for by pytest's own memory of the last run
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
    group.addoption(
        "--runtime", dest="hil_runtime", default="builtin", help="what executes programs: builtin, executorch"
    )
    group.addoption("--require-fvp", action="store_true", help="an FVP that is not installed is an error, no fallback")
    group.addoption(
        "--dut-scope",
        choices=("function", "session"),
        default="session",
        help="how long a simulator lives (default: session)",
    )
    group.addoption(
        "--timeout-multiplier", type=float, default=1.0, metavar="X", help="stretches every program's time limit"
    )
    group.addoption(
        "--redzones", action="store_true", help="plan memory that no tensor owns around every tensor, and watch it"
    )
    group.addoption(
        "--keep-programs", type=Path, metavar="DIR", help="write every program that is run into DIR, with its inputs"
    )
    parser.addini("hil_targets", "default targets, as in --target", type="args", default=[])


def pytest_configure(config: pytest.Config) -> None:
    for line in (
        'requires(isa=None, *, ram=None, flash=None): skip on targets without this ISA class ("mve", "dsp") or memory',
        "xfail_on(pattern, *, reason, raises=VerdictError): strictly expected to fail on matching targets",
        "target_timeout(seconds): engine time that a program of this test may take",
    ):
        config.addinivalue_line("markers", line)
    config.stash[MULTIPLIER] = config.getoption("timeout_multiplier")
    if config.stash[MULTIPLIER] <= 0:
        raise pytest.UsageError("--timeout-multiplier must be positive")
    config.stash[POOL] = Pool()
    config.stash[OUTCOMES] = {}
    try:
        config.stash[RESOLVED] = _resolve(config)
    except HarnessError as error:
        raise pytest.UsageError(error.describe()) from None


def _resolve(config: pytest.Config) -> list[Resolved]:
    patterns = config.getoption("hil_target") or config.getini("hil_targets")
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


def pytest_unconfigure(config: pytest.Config) -> None:
    if POOL in config.stash:
        config.stash[POOL].close()


def pytest_report_header(config: pytest.Config) -> list[str]:
    lines = []
    if embedded():
        lines.append("hil: use --hil-target here; pytest-embedded is installed and owns --target")
    for resolved in config.stash[RESOLVED]:
        lines.append(f"hil: {resolved.label}" + (f"; {resolved.why}" if resolved.why else ""))
    if config.getoption("redzones"):
        lines.append(f"hil: red zones: at least {RED_ZONE} bytes around every planned tensor, watched in every run")
    return lines


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "target_spec" in metafunc.fixturenames:
        resolved: list[Resolved | None] = [*metafunc.config.stash[RESOLVED]] or [None]
        ids = [one.name if one else "no-target" for one in resolved]
        metafunc.parametrize("target_spec", resolved, ids=ids, indirect=True, scope="function")


def _resolved(item: pytest.Item) -> Resolved | None:
    callspec = getattr(item, "callspec", None)
    resolved: Resolved | None = callspec.params.get("target_spec") if callspec else None
    return resolved


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for item in items:
        if "target_spec" not in getattr(item, "fixturenames", ()):
            continue
        resolved = _resolved(item)
        if resolved is None:
            if hasattr(config, "workerinput"):
                continue  # the fixture says so; an error here would look like a crashed worker
            raise pytest.UsageError(f"{item.nodeid}: {no_target()}")
        _name(item, resolved)
        _mark(item, resolved)


def _name(item: pytest.Item, resolved: Resolved) -> None:
    """The test's name without its target, and what every report of it must carry."""
    callspec = item.callspec  # type: ignore[attr-defined]
    others = [part for part in callspec._idlist if part != resolved.name]
    base = item.nodeid.split("[")[0]
    item.stash[TEST_ID] = base + (f"[{'-'.join(others)}]" if others else "")
    item.user_properties += [
        ("hil_test", item.stash[TEST_ID]),
        ("hil_requested", resolved.name),
        ("hil_ran", resolved.arrow),
    ]


def _mark(item: pytest.Item, resolved: Resolved) -> None:
    for marker in item.iter_markers("requires"):
        lacking = _lacking(resolved.target, *marker.args, **marker.kwargs)
        if lacking:
            item.add_marker(pytest.mark.skip(reason=f"{resolved.arrow} {lacking}"))
    for marker in item.iter_markers("xfail_on"):
        expected = _xfail(resolved, *marker.args, **marker.kwargs)
        if expected is not None:
            item.add_marker(expected)


def _lacking(target: Target, isa: str | None = None, *, ram: str | None = None, flash: str | None = None) -> str:
    """What of a `requires` marker the target does not have, in words; empty if nothing."""
    if isa is not None:
        order = [Isa.SCALAR, Isa.DSP, Isa.MVE]
        if isa.upper() not in Isa.__members__:
            raise pytest.UsageError(f"requires({isa!r}): the ISA classes are mve, dsp and scalar")
        if order.index(target.isa) < order.index(Isa[isa.upper()]):
            return f"is {target.isa.value}; needs {isa}"
    for name, asked, had in (("ram", ram, target.board.pools.planned), ("flash", flash, target.board.program_room)):
        if asked is not None and parse_size(asked) > had:
            return f"has {had} bytes of {name} for programs; needs {asked}"
    return ""


def _xfail(
    resolved: Resolved, pattern: str, *, reason: str, raises: type[BaseException] = VerdictError
) -> pytest.MarkDecorator | None:
    """An infra error is never an expected failure."""
    if issubclass(raises, InfraError):
        raise pytest.UsageError(f"xfail_on(raises={raises.__name__}): an infra error cannot be expected")
    if not any(fnmatch.fnmatch(name, pattern) for name in (resolved.name, resolved.target.name)):
        return None
    return pytest.mark.xfail(reason=reason, raises=raises, strict=True)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if _resolved(item) is None:
        return report
    error = call.excinfo.value if call.excinfo else None
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
    for title, key in (("details", DETAILS), ("target log", LOG)):
        text = item.stash.get(key, "")
        if report.failed and text:
            report.sections.append((title, text))
    return report


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
        self._outcomes[report.nodeid] = Outcome(
            found["hil_test"], found["hil_requested"], found["hil_ran"], verdict, found["hil_error"], report.nodeid
        )


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
    targets = dict.fromkeys(outcome.requested for outcome in bad)
    extra = [f"--targets-file={config.getoption('targets_file')}"] if config.getoption("targets_file") else []
    extra += [separator] if separator else []
    runtime = config.getoption("hil_runtime")
    extra += [f"--runtime={runtime}"] if runtime != "builtin" else []
    extra += ["--require-fvp"] if config.getoption("require_fvp") else []
    extra += ["--redzones"] if config.getoption("redzones") else []
    nodes = [f"'{_from_here(config, outcome.node_id.split('@')[0])}'" for outcome in bad]
    if len(nodes) > RERUN_NAMED and config.pluginmanager.hasplugin("lfplugin"):
        nodes = ["--last-failed"]
    return " ".join([command, *(f"{option}={name}" for name in targets), *extra, *nodes])


def _from_here(config: pytest.Config, node_id: str) -> str:
    """A node id, which is relative to the root folder, as pytest takes it where it was called."""
    path, colons, rest = node_id.partition("::")
    file = config.rootpath / path
    here = config.invocation_params.dir
    return str(file.relative_to(here) if file.is_relative_to(here) else file) + colons + rest
