"""A pytest plugin for `hil nightly`, which writes each test's result into a pipe as the test ends.

Tests that were recorded before, and tests of other shards, are not run. Each line of the pipe is a JSON object: the
number of tests that will be run, the name of a test that has begun, or the fields of a `Result`.
"""

from __future__ import annotations

import contextlib
import getpass
import json
import os
import re
import socket
import sys
import time
import zlib
from collections import Counter
from collections.abc import Generator, Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pytest

from cortex_m_hil.campaigns import property_names as prop
from cortex_m_hil.campaigns.provenance import Sources
from cortex_m_hil.campaigns.report.nightly_results import BEGUN, COLLECTED, RUNNER, Figure, Key, Result
from cortex_m_hil.checks.comparison.quanta import histograms
from cortex_m_hil.diagnose.failure_bundle import Attempt
from cortex_m_hil.diagnose.profile import Profile, pack
from cortex_m_hil.diagnose.profile_measurement import COSTS, profile_of_run
from cortex_m_hil.errors import IdentityError
from cortex_m_hil.errors.text import folders_replaced, printable_lines
from cortex_m_hil.program.memory_shortage import peak_by_bank
from cortex_m_hil.program.size import measure_pte
from cortex_m_hil.pytest_plugin import memory_fit_plugin as fitting
from cortex_m_hil.pytest_plugin import options, report_properties
from cortex_m_hil.pytest_plugin.fixtures import LOCALIZED_SECTION, RESOLVED, TASKS, TEST_ID, resolved_of
from cortex_m_hil.pytest_plugin.outcomes import WORKER_CRASHED, Outcomes, headline, is_crash
from cortex_m_hil.pytest_plugin.scheduling import without_target
from cortex_m_hil.pytest_plugin.summary import from_here
from cortex_m_hil.runner.elf_size import measure_elf
from cortex_m_hil.runner.run_results import Verdict
from cortex_m_hil.targets.target import Clock

LOG_LIMIT: Final = 16 << 10  # characters of a log that are kept
TELLING: Final = 8  # characters; shorter values of environment variables are not replaced in texts
SHARED: Final = "(shared)"  # stands for the bytes of a runner that several operators share
_BEGAN, _MEASURED = pytest.StashKey[float](), pytest.StashKey[set[str]]()  # build ids of runners
_SOURCES: Final = pytest.StashKey[Sources]()
_FOLDERS: Final = ("PWD", "OLDPWD")  # environment variables that a shell sets
# Properties that are no figures: a result has fields of its own for them.
_FIELDS: Final = frozenset(
    (
        *(prop.TEST, prop.REQUESTED, prop.RAN, prop.VERDICT, prop.ERROR, prop.BUNDLE, prop.ENGINE),
        *(prop.CPU_SECONDS, prop.PARTS, prop.RUNNER, prop.RUNTIME_NAME, prop.PROFILE),
    )
)
_ABOUT: Final = frozenset(
    (
        *(prop.SEED, prop.ISA, prop.OPERATOR, prop.STAGE, prop.LOWERING, prop.LOWER_SECONDS, prop.RUN_SECONDS),
        *(prop.RUNTIME, prop.BUILD_ID, prop.PROGRAM, prop.RUNTIME_REASON),
    )
)


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("hil")
    group.addoption("--hil-results-to", type=int, metavar="FD", help="for hil nightly")
    group.addoption("--hil-suite", default="", help="for hil nightly")
    group.addoption("--hil-recorded", type=Path, metavar="FILE", help="for hil nightly")
    group.addoption("--hil-fit", action="append", default=[], metavar="PATTERN", help="for hil nightly")
    group.addoption("--hil-shard", metavar="I/N", help="for hil nightly")


@pytest.hookimpl(trylast=True)
def pytest_configure(config: pytest.Config) -> None:
    config.stash[TASKS] = _tell_parts
    config.stash[_MEASURED] = set()
    config.stash[_SOURCES] = Sources()
    if config.getoption("hil_fit"):
        fitting.prepare(config)
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(Teller(config, config.getoption("hil_results_to")), "hil-nightly")


# --- where tests run -----------------------------------------------------------------------------------------


@pytest.hookimpl(wrapper=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> Generator[None, None, None]:
    yield  # during this the package's plugin stores each item's name without its target
    recorded = {(test, target) for test, target in json.loads(config.getoption("hil_recorded").read_text())}
    number, of = map(int, config.getoption("hil_shard").split("/"))
    left = [item for item in items if _name(item) not in recorded and _shard(_name(item)[0], of) == number]
    if len(left) < len(items):
        config.hook.pytest_deselected(items=[item for item in items if item not in set(left)])
    items[:] = left


def _name(item: pytest.Item) -> tuple[str, str]:
    """Return a test's id without its target, and the name of the requested target, in the form of `Key`."""
    resolved = resolved_of(item)
    return (_shareable_id(item.nodeid), "") if resolved is None else (_shareable_id(item.stash[TEST_ID]), resolved.name)


def _shareable_id(test: str) -> str:
    """Return a test's id with digests in place of this machine's folders, which parameters may name.

    Digests keep different ids different.
    """
    return folders_replaced(test, lambda found: f"…{zlib.crc32(found[0].encode()):08x}/")


def _shard(test: str, of: int) -> int:
    """Return the shard, from 1 to `of`, of a test with all its targets: they share the lowering."""
    return zlib.crc32(test.encode()) % of + 1


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    __tracebackhide__ = True
    item.stash[_BEGAN] = time.process_time()
    item.config.stash[_SOURCES].check()


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, None, None]:
    """Check after a test's body that it imported no module of another checkout.

    If it did, its outcome says nothing about this checkout.
    """
    __tracebackhide__ = True
    try:
        yield
    finally:
        item.config.stash[_SOURCES].check()


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    if call.when == "teardown" and _BEGAN in item.stash:
        report_properties.record(item, {prop.CPU_SECONDS: round(time.process_time() - item.stash[_BEGAN], 3)})
    report = yield
    if call.excinfo is not None and isinstance(call.excinfo.value, IdentityError) and resolved_of(item) is None:
        report_properties.record_infra_without_target(report)
    return report


def _tell_parts(item: pytest.Item, ended: Attempt) -> None:
    """Add a program's figures by part to the test's report, and once for each runner the use of its bytes."""
    profile = _profile(ended)
    found = {**_sections(ended), **_banks(ended), **_deviations(ended), **_ticks_by_part(profile)}
    report_properties.record(item, {prop.PARTS: json.dumps(found), prop.PROFILE: pack(profile) if profile else None})
    fitting.record(item, ended)
    measured, elf = item.config.stash[_MEASURED], ended.dut.elf
    if elf.build_id not in measured:
        measured.add(elf.build_id)
        report_properties.record(item, {prop.RUNNER: json.dumps(_of_runner(elf.path))})


def _sections(ended: Attempt) -> Mapping[str, Mapping[str, int]]:
    size = measure_pte(ended.task.program.file)
    return {prop.PTE_BYTES: {section.value: nbytes for section, nbytes in size.sections.items()}}


def _banks(ended: Attempt) -> Mapping[str, Mapping[str, int]]:
    """Return the planned bytes by bank, and what is held at each bank's peak, with the operator that runs then."""
    file, memory = ended.task.program.file, ended.dut.target.board.memory
    sizes = zip((bank.region for bank in memory.banks), file.bytes_in_banks(memory), strict=False)
    planned = {region: nbytes for region, nbytes in sizes if nbytes}
    return {prop.PLANNED_BYTES: planned, prop.PLANNED_PEAK: peak_by_bank(file, memory)}


def _deviations(ended: Attempt) -> Mapping[str, Mapping[str, int]]:
    if ended.references is None:
        return {}
    return histograms(ended.task.program.file, ended.outputs, ended.references)


def _profile(ended: Attempt) -> Profile | None:
    """Return what each call of a program that passed takes, by running it once more in steps.

    None where the clock counts neither instructions nor the core's cycles.
    """
    if ended.error is not None or ended.ticks is None or ended.ran is None or ended.ran.clock not in COSTS:
        return None
    task = ended.task
    return profile_of_run(ended.dut, task.program, task.inputs, "those of the test", ended.ran, ended.ticks)


def _ticks_by_part(profile: Profile | None) -> Mapping[str, Mapping[str, int]]:
    """Return the ticks by operator, and exact ones also by layer."""
    if profile is None:
        return {}
    operators, layers = Counter[str](), Counter[str]()
    for row in (row for row in profile.rows if row.calls):
        operators[row.operator] += row.ticks
        layers[f"{row.operator} in {row.place}"] += row.ticks
    found = {profile.clock.value: operators}
    return {**found, prop.LAYERS: layers} if profile.clock is Clock.INSTRUCTIONS else found


def _of_runner(path: Path) -> dict[str, dict[str, int]]:
    """Return the use of a runner's bytes: its memory by operator, and its file, as it is in flash, by section."""
    elf = measure_elf(path)
    own = {one.operator: one.own for one in elf.operators}
    rest = sum(section.nbytes for section in elf.sections) - sum(own.values())
    return {
        prop.ELF_BYTES: {**own, SHARED: rest},
        prop.ELF_STORED_BYTES: {section.name: section.stored for section in elf.sections},
    }


# --- where reports arrive ------------------------------------------------------------------------------------


class Teller:
    """A plugin of the only process, or of xdist's controller, that writes results to the pipe `to`."""

    def __init__(self, config: pytest.Config, to: int) -> None:
        self._config = config
        self._pipe = os.fdopen(to, "w", encoding="utf-8")
        self._outcomes = Outcomes()
        self._phases: dict[str, list[pytest.TestReport]] = {}
        self._told = False
        self._runners: set[Key] = set()
        self._crashed: dict[str, Result] = {}  # results of crashed tests that will be run again, by node id
        self._begun: set[str] = set()  # node ids of tests that have begun

    def _tell(self, fields: Mapping[str, Any]) -> None:
        """Write a line to the pipe and flush it, so that the reader gets whole lines."""
        self._pipe.write(json.dumps(fields) + "\n")
        self._pipe.flush()

    def _tell_collected(self, number: int) -> None:
        if not self._told:
            self._told = True
            self._tell({COLLECTED: number})

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        if not self._config.getoption("numprocesses", None):
            self._tell_collected(len(session.items))

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, node: object, ids: list[str]) -> None:
        """Report the number of tests from the first worker; every worker collects the same."""
        self._tell_collected(len(ids))

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        if nodeid not in self._begun:  # otherwise it is another attempt of the same test
            self._begun.add(nodeid)
            self._tell({BEGUN: True})

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            key = self._key(report.nodeid or "collection")
            text = str(report.longrepr)
            what = next(reversed([line for line in text.splitlines() if line.strip()]), "")
            log = self._impersonal(text)
            self._tell_result(Result(key, "", "", Verdict.ERROR, "CollectError", self._impersonal(what), log=log))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._outcomes.add(report)
        self._phases.setdefault(report.nodeid, []).append(report)
        repeated = self._outcomes.is_repeated(report.nodeid)
        if is_crash(report) and repeated:
            self._crashed[report.nodeid] = self._of_crash(report)
        elif is_crash(report):
            self._crashed.pop(report.nodeid, None)
            self._tell_result(self._of_crash(report))
        elif report.when == "teardown" and not repeated:
            self._crashed.pop(report.nodeid, None)
            phases = self._phases.pop(report.nodeid)
            result = self._result(report.nodeid, phases)
            # A runner's figures may be in the report of an earlier attempt, which was repeated.
            self._tell_runner(result, dict(prop.recorded(one for phase in phases for one in phase.user_properties)))
            self._tell_result(result)  # last: a test with a recorded result is not run again

    def _tell_runner(self, result: Result, known: Mapping[str, Any]) -> None:
        """Report each runner's figures once, though each worker has them."""
        if prop.RUNNER in known and (key := replace(result.key, test=RUNNER)) not in self._runners:
            self._runners.add(key)
            parts = json.loads(known[prop.RUNNER])
            figures = {name: (sum(of.values()),) for name, of in parts.items()}
            self._tell_result(Result(key, result.ran, "", Verdict.PASS, figures=figures, parts=parts))

    def pytest_sessionfinish(self) -> None:
        """Report the tests that crashed and were to be run again, but for which no worker was left."""
        for result in self._crashed.values():
            self._tell_result(result)

    def _of_crash(self, report: pytest.TestReport) -> Result:
        by_id = {options.id_of(self._config, one): one for one in self._config.stash[RESOLVED]}
        test = without_target(report.nodeid, by_id)
        of = next((one for name, one in by_id.items() if without_target(report.nodeid, [name]) != report.nodeid), None)
        said = self._impersonal(str(report.longrepr))
        rerun = self._rerun_id(report.nodeid)
        key = self._key(test, of.name, of.runtime) if of else self._key(test)
        return Result(key, "", "", Verdict.INFRA, WORKER_CRASHED, said, node_id=rerun)

    def _result(self, node_id: str, phases: list[pytest.TestReport]) -> Result:
        outcome = self._outcomes.outcome(node_id)
        properties = list(prop.recorded(phases[-1].user_properties))
        known: dict[str, Any] = dict(properties)
        verdict, error, said = (
            _of_phases(phases) if outcome is None else (outcome.verdict, outcome.error, outcome.headline)
        )
        return Result(
            self._key(node_id) if outcome is None else self._key(outcome.test, *outcome.place),
            ran=str(known.get(prop.RAN, "")),
            engine=str(known.get(prop.ENGINE, "")),
            verdict=verdict,
            error=error,
            headline=self._impersonal(said),
            seconds=round(sum(one.duration for one in phases), 3),
            cpu_seconds=float(known.get(prop.CPU_SECONDS, 0.0)),
            earlier=outcome.earlier if outcome else (),
            figures=_values((name, self._shareable(value)) for name, value in properties if name not in _ABOUT),
            about=_values((name, self._shareable(value)) for name, value in properties if name in _ABOUT),
            parts=_parts(properties),
            profiles=tuple(str(value) for name, value in properties if name == prop.PROFILE),
            node_id=self._rerun_id(node_id),
            log=self._log(phases),
            localized=self._impersonal(_section(_last_attempt(phases), LOCALIZED_SECTION)),
            bundle=Path(str(known.get(prop.BUNDLE, ""))).name,
        )

    def _key(self, test: str, target: str = "", runtime: str = "") -> Key:
        """Return the key of a result; a test without a target is counted for the runtime of the run."""
        suite, of_run = (self._config.getoption(name) for name in ("hil_suite", "hil_runtime"))
        return Key(suite, runtime or of_run, _shareable_id(test), target)

    def _rerun_id(self, node_id: str) -> str:
        """Return the node id by which to rerun a test, without [parameters] if they hold a path of this machine."""
        name = node_id.split("@", maxsplit=1)[0]
        name = name if _shareable_id(name) == name else name.partition("[")[0]
        return from_here(self._config, name)

    def _tell_result(self, result: Result) -> None:
        self._tell({**result.fields(), "profiles": result.profiles})

    def _log(self, phases: list[pytest.TestReport]) -> str:
        """Return the reports of the phases that failed, with the target's log."""
        apart = (LOCALIZED_SECTION,)
        said = [
            "\n".join(
                [report.longreprtext, *(f"--- {name}\n{text}" for name, text in report.sections if name not in apart)]
            )
            for report in phases
            if report.failed
        ]
        return self._impersonal("\n".join(said)[-LOG_LIMIT:])

    def _shareable(self, value: object) -> object:
        return self._impersonal(value) if isinstance(value, str) else value

    def _impersonal(self, text: str) -> str:
        """Return a text without data of this machine: paths, host name, user name, values of environment variables.

        Results are shared with others.
        """
        for place, word in (*self._places(), *self._environment()):
            text = text.replace(place, word)
        text = folders_replaced(text, "…/")
        return printable_lines(re.sub(rf"\b{re.escape(socket.gethostname())}\b", "host", text))

    def _environment(self) -> Iterator[tuple[str, str]]:
        """Yield values of environment variables, such as tokens, that texts may contain, with their replacements.

        The longest values come first, since one may contain another. PWD and OLDPWD are replaced as paths, not by name.
        """
        known = {name: value for name, value in os.environ.items() if len(value) >= TELLING}
        long = [(value, "…" if name in _FOLDERS else f"${name}") for name, value in known.items()]
        yield from sorted(long, key=lambda one: -len(one[0]))

    def _places(self) -> Iterator[tuple[str, str]]:
        folders = (str(self._config.rootpath), str(self._config.invocation_params.dir))
        for folder in dict.fromkeys(one for one in folders if one != "/"):
            yield f"{folder}/", ""
            yield folder, "."
        for prefix in dict.fromkeys((sys.prefix, sys.base_prefix)):
            yield f"{prefix}/", "python:"
        yield str(Path.home()), "~"
        with contextlib.suppress(KeyError, OSError):  # a user without a name
            yield f"pytest-of-{getpass.getuser()}", "pytest-of-user"  # tmp_path's folder has the user's name


def _last_attempt(phases: list[pytest.TestReport]) -> list[pytest.TestReport]:
    began = [number for number, report in enumerate(phases) if report.when == "setup"]
    return phases[began[-1] :] if began else phases


def _section(phases: list[pytest.TestReport], wanted: str) -> str:
    return next((text for report in reversed(phases) for name, text in report.sections if name == wanted), "")


def _of_phases(phases: list[pytest.TestReport]) -> tuple[Verdict, str, str]:
    """Return verdict, error and headline of a test that uses no target, from the reports of its phases."""
    for report in phases:
        if report.failed and report_properties.is_infra(report):
            return Verdict.INFRA, IdentityError.__name__, headline(report)
        if report.failed:
            return Verdict.FAIL if report.when == "call" else Verdict.ERROR, "", headline(report)
        if report.skipped:
            return Verdict.XFAIL if hasattr(report, "wasxfail") else Verdict.SKIP, "", ""
    return Verdict.PASS, "", ""


def _values(properties: Iterable[tuple[str, object]]) -> dict[str, tuple[Figure, ...]]:
    """Return the values of each recorded property by its name, in the order of the programs."""
    found: dict[str, list[Figure]] = {}
    for name, value in properties:
        if name not in _FIELDS and isinstance(value, (int, float, str)):
            found.setdefault(name, []).append(value)
    return {name: tuple(values) for name, values in found.items()}


def _parts(properties: list[tuple[str, object]]) -> dict[str, dict[str, int]]:
    """Return the figures by part, summed over all programs of the test."""
    found: dict[str, dict[str, int]] = {}
    for text in (str(value) for name, value in properties if name == prop.PARTS):
        for figure, of in json.loads(text).items():
            for part, number in of.items():
                here = found.setdefault(figure, {})
                here[part] = here.get(part, 0) + number
    return found
