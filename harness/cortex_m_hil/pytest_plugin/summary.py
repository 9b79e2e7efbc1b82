"""The summary of a run: the totals of each target, a row for each failure, and the command that reruns the failures."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator, Mapping, Sequence
from datetime import date
from typing import Any, Final

import pytest

from cortex_m_hil.campaigns import property_names as prop
from cortex_m_hil.campaigns.report.terminal_summary import (
    TargetOutcome,
    largest,
    missing_elsewhere,
    noteworthy,
    runtime_differences,
    table,
    totals,
)
from cortex_m_hil.errors.text import counted, printable
from cortex_m_hil.host.pytest_options import pytest_options
from cortex_m_hil.pytest_plugin import option_names, options, quarantine, report_properties
from cortex_m_hil.pytest_plugin.fixtures import RESOLVED
from cortex_m_hil.pytest_plugin.outcomes import Outcomes
from cortex_m_hil.runner.run_results import Verdict
from cortex_m_hil.targets.resolve import Resolved
from cortex_m_hil.targets.runtimes import AUTO

RERUN: pytest.StashKey[tuple[str, str]] = pytest.StashKey()  # a command, and the separator before its node ids
NAMED: Final = 10  # node ids in a rerun command at most; with more failures it has --last-failed
SHOWN: Final = 10  # errors in the summary at most, and uninformative tests that are named without -v


class Summary:
    """A plugin of the only process, or of xdist's controller, that prints the summary."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._outcomes = Outcomes()
        self._passed_in_quarantine: dict[str, str] = {}  # reasons of quarantined tests that passed, by node id
        self._lowering_origins: dict[
            str, list[str]
        ] = {}  # whether each test's programs came from the cache or were lowered

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._outcomes.add(report)
        properties = dict(prop.recorded(report.user_properties))
        if prop.QUARANTINE in properties and properties.get(prop.VERDICT) == Verdict.PASS.name:
            self._passed_in_quarantine[report.nodeid] = str(properties[prop.QUARANTINE])
        if origins := [str(what) for name, what in prop.recorded(report.user_properties) if name == prop.LOWERING]:
            self._lowering_origins[report.nodeid] = origins

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        outcomes = self._sorted()
        if outcomes or (self._outcomes.without_target and self._config.stash[RESOLVED]):
            terminalreporter.ensure_newline()
            verbose = self._config.get_verbosity() > 0
            shown = outcomes if verbose else noteworthy(outcomes)
            terminalreporter.section("test × target" if shown else "targets")
            for line in self._lines(outcomes, shown, verbose):
                terminalreporter.write_line(line)

    def _sorted(self) -> list[TargetOutcome]:
        """Return the outcomes sorted by target, and then by test."""
        order = [(resolved.name, resolved.runtime) for resolved in self._config.stash[RESOLVED]]
        return sorted(self._outcomes.all(), key=lambda one: (order.index(one.place), one.test))

    def _lines(self, outcomes: list[TargetOutcome], shown: list[TargetOutcome], verbose: bool) -> Iterator[str]:
        """Yield the lines of the summary.

        Args:
            outcomes: the outcomes of all tests.
            shown: the outcomes that are rows of the table.
            verbose: whether peaks, origins of programs and all uninformative tests are listed, too.
        """
        bad = [outcome for outcome in outcomes if outcome.verdict.is_bad]
        if shown:
            yield from table(shown)
            yield ""
        if verbose and (peaks := largest(outcomes)):
            yield from peaks
            yield ""
        if verbose:
            yield from _lowering_lines(self._lowering_origins)
        headlines = {**{outcome.node_id: outcome.headline for outcome in bad}, **self._outcomes.without_target}
        yield from [f"{node_id}: {headline}" for node_id, headline in headlines.items()][:SHOWN]
        if (left := len(headlines) - SHOWN) > 0:
            yield f"and {counted(left, 'more failure')}, shown above"
        yield from _uninformative(outcomes, verbose)
        yield from _differing(outcomes, verbose)
        yield from _first(missing_elsewhere(outcomes), verbose, "operator")
        known = self._config.stash[RESOLVED]
        yield from totals(outcomes, {(one.name, one.runtime): one.label for one in known})
        yield from (f"{one.name} runs on {one.runtime}: {one.runtime_reason}" for one in known if one.has_misfit)
        yield from (f"{one.name}: {one.lacks}" for one in known if one.lacks)
        yield from (
            f"quarantined, and passed: {node_id} ({reason})" for node_id, reason in self._passed_in_quarantine.items()
        )
        yield from quarantine.ended(self._config.stash[quarantine.ENTRIES], date.today())
        if self._outcomes.without_target:
            yield f"without a target  {counted(len(self._outcomes.without_target), 'error')}"
        if bad:
            yield ""
            ids = [(outcome.requested, outcome.node_id) for outcome in bad]
            yield f"rerun: {rerun_command(self._config, ids, as_called=True)}"


def _lowering_lines(origins: Mapping[str, Sequence[str]]) -> Iterator[str]:
    """Yield lines: how many programs came from the cache, and which can never be cached."""
    every = [(node_id, origin) for node_id, of_test in origins.items() for origin in of_test]
    if not every:
        return
    found = sum(origin == report_properties.FOUND for _, origin in every)
    yield f"lowering: {found} found in the cache, {len(every) - found} made"
    without: dict[str, list[str]] = {}
    for node_id, origin in every:
        if origin.startswith(report_properties.NO_KEY):
            without.setdefault(origin, []).append(node_id)
    for origin, node_ids in without.items():
        more = f" and {counted(len(node_ids) - 1, 'more program')}" if len(node_ids) > 1 else ""
        yield f"  {node_ids[0]}{more}: {origin}"
    yield ""


def _differing(outcomes: Sequence[TargetOutcome], verbose: bool) -> Iterator[str]:
    if lines := runtime_differences(outcomes):
        yield f"runtimes differ in {counted(len(lines), 'test')}:"
        yield from (f"  {line}" for line in _first(lines, verbose, "test"))


def _first(lines: Sequence[str], verbose: bool, name: str) -> Iterator[str]:
    """Yield the first lines, and how many more there are of what is called `name`; all lines if `verbose`."""
    shown = lines if verbose else lines[:SHOWN]
    yield from shown
    if len(shown) < len(lines):
        yield f"and {counted(len(lines) - len(shown), f'more {name}')}: -v names them"


def _uninformative(outcomes: Sequence[TargetOutcome], verbose: bool) -> Iterator[str]:
    tests = list(dict.fromkeys(outcome.test for outcome in outcomes if outcome.uninformative))
    if not tests:
        return
    yield "uninformative (the reference is constant or within the tolerance, so a pass proves nothing):"
    yield from (f"  {test}" for test in _first(tests, verbose, "test"))


def rerun_command(config: pytest.Config, bad: Sequence[tuple[str, str]], *, as_called: bool = False) -> str:
    """Return the command that runs tests again, with option names that work in any folder.

    Args:
        config: pytest's configuration.
        bad: the requested target and the node id of each test.
        as_called: whether to use the short names that the user wrote in this run.
    """
    command, separator = config.stash.get(RERUN, ("pytest", ""))
    targets = list(dict.fromkeys(requested for requested, _ in bad))
    words = pytest_options(target=targets, targets_file=config.getoption("hil_targets_file"))
    if separator:  # the tests were run by hil dev upstream
        words = [*(word.replace("--hil-", "--", 1) for word in words), separator]
    words += options.decisive(config)
    words = [option_names.as_called(config, word) for word in words] if as_called else words
    if len(bad) > NAMED and config.pluginmanager.hasplugin("lfplugin"):
        words += ["--last-failed", *_paths(config)]
    else:
        words += [from_here(config, node_id.split("@")[0]) for _, node_id in bad]
    return printable(f"{command} {shlex.join(words)}")


def _paths(config: pytest.Config) -> list[str]:
    """Return the paths that pytest was called with; --last-failed finds failures only in these."""
    if config.args_source != pytest.Config.ArgsSource.ARGS:
        return []
    if RERUN not in config.stash:
        return [*(["--pyargs"] if config.option.pyargs else []), *config.args]
    folder = str(config.rootpath)  # the suite's folder, which hil dev upstream adds if no path is named
    return [one.removeprefix(f"{folder}/") for one in config.args if one != folder]


def localize_command(config: pytest.Config, resolved: Resolved, node_id: str) -> str:
    """Return the command that localises a test; for ExecuTorch's own suites, an option for their run."""
    if RERUN in config.stash:
        return "--hil-localize"
    words = [from_here(config, node_id), "-t", resolved.name]
    if options.runtimes(config) != [AUTO]:
        words += ["--runtime", resolved.runtime]
    if (file := config.getoption("hil_targets_file")) is not None:
        words += ["--targets-file", str(file)]
    return printable(f"hil localize {shlex.join(words)}")


def from_here(config: pytest.Config, node_id: str) -> str:
    """Return a node id relative to the folder in which pytest was called, given one relative to the root folder.

    A test of ExecuTorch's suite is named relative to the suite's folder.
    """
    path, colons, rest = node_id.partition("::")
    file = config.rootpath / path
    if RERUN in config.stash or not file.exists():
        return node_id
    return os.path.relpath(file, config.invocation_params.dir) + colons + rest
