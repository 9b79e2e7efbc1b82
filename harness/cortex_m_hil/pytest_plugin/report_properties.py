"""The properties that a test records in its reports; xdist's controller, JUnit and JSON files get them from there.

If a test runs several programs, the figures of each are recorded, in the order of the runs.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import pytest

from cortex_m_hil.campaigns import property_names as prop
from cortex_m_hil.campaigns.report.terminal_summary import NO_RUNNER
from cortex_m_hil.checks.comparison.comparison_result import Comparison, FindingKind
from cortex_m_hil.diagnose.localize import Localization
from cortex_m_hil.flow import App, Dut, Launched
from cortex_m_hil.program.program import Program
from cortex_m_hil.runner import launchers
from cortex_m_hil.runner.run_results import OperatorOutput, RunResult, Verdict
from cortex_m_hil.runner.statistics import STATISTICS
from cortex_m_hil.targets.connection import Elf
from cortex_m_hil.targets.resolve import Resolved
from cortex_m_hil.targets.target import Clock

FOUND, MADE, NO_KEY = "found", "made", "no key: "
_OF_COLLECTION: Final = (
    *(prop.TEST, prop.REQUESTED, prop.RAN, prop.SEED, prop.ISA, prop.RUNTIME_NAME, prop.RUNTIME_REASON),
)
# Figures that are not recorded for a runner that counts coverage, whose kernels are not optimised.
_OF_CODE: Final = frozenset({*(clock.value for clock in Clock), prop.STACK_BYTES, prop.RUN_SECONDS})

LARGEST: Final[Mapping[str, str]] = {
    **{one.figure: f"{one.name} {one.unit}" for one in STATISTICS},
    prop.INSTRUCTIONS: prop.INSTRUCTIONS,
}
"""Figures whose largest value on each target is in the summary, with their names there."""


def record_identity(item: pytest.Item, test: str, resolved: Resolved, seed: int) -> None:
    """Record the properties that every report of a test on a target has."""
    found = {prop.TEST: test, prop.REQUESTED: resolved.name, prop.RAN: resolved.display_name}
    chosen = {prop.RUNTIME_NAME: resolved.runtime, prop.RUNTIME_REASON: resolved.runtime_reason or None}
    record(item, {**found, **chosen, prop.SEED: seed, prop.ISA: resolved.target.isa.value})
    if not uses_runner(item):
        record(item, {prop.RUNTIME: NO_RUNNER})


def uses_runner(item: pytest.Item) -> bool:
    """Tell whether a test has a fixture that boots this package's runner."""
    return "runner_elf" in getattr(item, "fixturenames", ())


def record_use_of_runner(item: pytest.Item) -> None:
    """Remove the property that a test uses no runner, since a test may request one as late as in its body."""
    item.user_properties[:] = [one for one in item.user_properties if one != (prop.PREFIX + prop.RUNTIME, NO_RUNNER)]


def forget_attempt(item: pytest.Item) -> None:
    """Remove the properties that an earlier attempt of the same test recorded."""
    item.user_properties[:] = [
        (name, value)
        for name, value in item.user_properties
        if not name.startswith(prop.PREFIX) or name.removeprefix(prop.PREFIX) in _OF_COLLECTION or value == NO_RUNNER
    ]


def record_verdict(
    item: pytest.Item, report: pytest.TestReport, verdict: Verdict, error: str, *, operator: str, stage: str
) -> None:
    """Record the verdict in this report and in those of later phases: JUnit files use the last phase's report."""
    places = {name: place for name, place in ((prop.OPERATOR, operator), (prop.STAGE, stage)) if place}
    found = {prop.VERDICT: verdict.name, prop.ERROR: error, **places}
    report.user_properties += _properties(found)
    record(item, found)


def record_bundle(item: pytest.Item, report: pytest.TestReport, path: Path) -> None:
    """Record the path of the failure's bundle, as a path below the folder given by `--hil-bundles`."""
    report.user_properties += _properties({prop.BUNDLE: str(path)})
    record(item, {prop.BUNDLE: str(path)})


def record_known(node: pytest.Item, causes: Iterable[int | str]) -> None:
    """Record the known bugs of ExecuTorch, and the operators that it lacks, that occur in a test that accepts them."""
    name = prop.PREFIX + prop.KNOWN_BUGS
    node.user_properties[:] = [one for one in node.user_properties if one[0] != name]
    record(node, {prop.KNOWN_BUGS: ", ".join(sorted(map(str, causes)))})


def record_missing_elsewhere(node: pytest.Item, operators: Iterable[str]) -> None:
    """Record operators of a test's program that the other runtime does not have, beside those of its other programs."""
    before = str(dict(prop.recorded(node.user_properties)).get(prop.MISSING_ELSEWHERE, ""))
    found = {*operators, *filter(None, before.split(", "))}
    name = prop.PREFIX + prop.MISSING_ELSEWHERE
    node.user_properties[:] = [one for one in node.user_properties if one[0] != name]
    record(node, {prop.MISSING_ELSEWHERE: ", ".join(sorted(found)) or None})


def record_quarantine(item: pytest.Item, reason: str) -> None:
    """Record why a test is quarantined, once for all of its phases."""
    if prop.QUARANTINE not in dict(prop.recorded(item.user_properties)):
        record(item, {prop.QUARANTINE: reason})


def record_ended_quarantine(item: pytest.Item, what: str) -> None:
    """Record that a test's quarantine has ended; `what` is its last day and its reason."""
    record(item, {prop.QUARANTINE_ENDED: what})


def record_missing_target(report: pytest.TestReport) -> None:
    """Record the verdict ERROR for a test that needs a target but has none."""
    report.user_properties += _properties({prop.VERDICT: Verdict.ERROR.name})


def record_infra_without_target(report: pytest.TestReport) -> None:
    """Record the verdict INFRA for a failed test that uses no target: nothing ran on a target."""
    report.user_properties += _properties({prop.VERDICT: Verdict.INFRA.name})


def is_infra(report: pytest.TestReport) -> bool:
    return (prop.VERDICT, Verdict.INFRA.name) in prop.recorded(report.user_properties)


def record_apps(node: pytest.Item, dut: Dut, apps: Sequence[App]) -> None:
    """Record what ran in a test that drives the channels of its target's firmware, and the longest latency."""
    if apps and (ran := dut.last_ran()) is not None:
        longest = max((one.longest_latency for one in apps if one.longest_latency is not None), default=None)
        runtime = f"{ran.runtime} {ran.runtime_version}"
        record(node, {prop.ENGINE: ran.engine, prop.RUNTIME: runtime, prop.BUILD_ID: dut.elf.build_id})
        record(node, {prop.LATENCY_TICKS: longest})


def record_launch(node: pytest.Item, resolved: Resolved, elf: Path, program: Launched) -> None:
    """Record what ran in a test that starts an ELF of its own."""
    digest = hashlib.sha256(elf.read_bytes()).hexdigest()[:16]
    record(node, {prop.ENGINE: launchers.engine(resolved.target), prop.BUILD_ID: digest})
    record(node, {prop.INSTRUCTIONS: program.instructions})


def record_run(node: pytest.Item, program: Program, result: RunResult, elf: Elf) -> None:
    seconds = program.lowering_seconds
    figures = {
        prop.ENGINE: result.ran.engine,
        prop.RUNTIME: f"{result.ran.runtime} {result.ran.runtime_version}",
        prop.BUILD_ID: elf.build_id,
        prop.PROGRAM: hashlib.sha256(program.identity).hexdigest()[:16],
        prop.PTE_BYTES: len(program.pte),
        prop.CORTEX_M_OPERATORS: program.partition.cortex_m_operator_share,
        prop.CORTEX_M_MACS: program.partition.cortex_m_macs,
        prop.LOWERING: _lowering(program),
        prop.LOWER_SECONDS: None if seconds is None else round(seconds, 3),
        prop.RUN_SECONDS: round(result.seconds, 3),
        prop.OUTPUTS: hashlib.sha256(b"".join(one.data for one in result.outputs)).hexdigest()[:16],
        result.ran.clock.value: result.ticks,
        **{one.figure: result.stats[one.name].used for one in STATISTICS},
    }
    if elf.counts:
        figures = {name: value for name, value in figures.items() if name not in _OF_CODE}
    record(node, figures)


def _lowering(program: Program) -> str | None:
    """Return where a lowered program came from; None if the test did not lower it.

    `found`: it was in the cache; `made`: it was lowered; `no key: …`: it was lowered because it cannot be cached.
    """
    if program.lowering_seconds is None:
        return None
    return FOUND if program.remembered else NO_KEY + program.no_key if program.no_key else MADE


def record_comparison(node: pytest.Item, comparison: Comparison) -> None:
    outputs = comparison.outputs
    sqnr = _of(min, (figures.sqnr_db for figures in outputs))
    figures = {
        prop.MAX_QUANTA: _of(max, (figures.max_quanta for figures in outputs)),
        prop.FAKE_QUANT_QUANTA: _of(max, (figures.fake_quant_quanta for figures in outputs)),
        prop.MAX_ABS_ERROR: _of(max, (figures.max_abs_error for figures in outputs)),
        prop.SQNR_DB: None if sqnr is None else round(sqnr, 1),
        prop.UNINFORMATIVE: sum(finding.kind is FindingKind.UNINFORMATIVE for finding in comparison.warnings) or None,
    }
    record(node, figures)


def record_watched_bytes(node: pytest.Item, nbytes: int) -> None:
    """Record how many bytes of a memory plan belong to no tensor, and are watched for writes by `--redzones`."""
    record(node, {prop.WATCHED_BYTES: nbytes})


def record_fit(node: pytest.Item, sizes: Mapping[str, int]) -> None:
    """Record the least bytes in which a program ran, by region."""
    record(node, {prop.fit_bytes(region): size for region, size in sizes.items()})


def record_missing_fit(node: pytest.Item, why: str) -> None:
    record(node, {prop.NOT_FITTED: why})


def record_localization(node: pytest.Item, found: Localization) -> None:
    """Record the faulty operators, and operators with the layout of another ISA class, in the order of the program."""
    wrong = {prop.AT_FAULT: found.at_fault, prop.WRONG_LAYOUT: found.wrong_layout}
    record(node, {name: "; ".join(row.place for row in rows) or None for name, rows in wrong.items()})


def record_runtime_difference(node: pytest.Item, what: str) -> None:
    """Record a text on the first program of a test that differs from another runtime."""
    if prop.RUNTIME_DIFFERENCE not in dict(prop.recorded(node.user_properties)):
        record(node, {prop.RUNTIME_DIFFERENCE: what})


def record_operator_outputs(node: pytest.Item, outputs: Sequence[OperatorOutput]) -> None:
    """Record the digests of each operator's outputs, as JSON: a list of pairs of operator and digest."""
    record(node, {prop.OPERATOR_OUTPUTS: json.dumps([(one.operator, one.digest) for one in outputs])})


def record(node: pytest.Item, properties: Mapping[str, object]) -> None:
    """Record properties for the later reports of a test, except those that are None."""
    node.user_properties += _properties(properties)


def _properties(properties: Mapping[str, object]) -> list[tuple[str, object]]:
    return [(prop.PREFIX + name, value) for name, value in properties.items() if value is not None]


def _of(choose: Callable[[list[Any]], Any], values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return choose(known) if known else None
