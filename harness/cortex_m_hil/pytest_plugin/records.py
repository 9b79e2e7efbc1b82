"""The properties that a test records in its reports, which travel to xdist's controller and into JUnit and JSON files.

Their names are written here and nowhere else; docs/writing-tests.md has the units. A test that runs several programs
has the figures of each, in the order of the runs.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import pytest

from cortex_m_hil.campaigns.report.table import NO_RUNNER
from cortex_m_hil.checks.comparison import Comparison, FindingKind
from cortex_m_hil.diagnose.localize import Localization
from cortex_m_hil.program.program import Program
from cortex_m_hil.runner.results import STATISTICS, OperatorOutput, RunResult, Verdict
from cortex_m_hil.targets.connection import Elf
from cortex_m_hil.targets.model import Clock
from cortex_m_hil.targets.resolve import Resolved

TEST, REQUESTED, RAN, SEED, ISA = "hil_test", "hil_requested", "hil_ran", "hil_seed", "hil_isa"
VERDICT, ERROR, UNINFORMATIVE = "hil_verdict", "hil_error", "hil_uninformative"
RUNTIME: Final = "hil_runtime"
OPERATOR: Final = "hil_operator"
OPERATOR_OUTPUTS: Final = "hil_operator_outputs"
WATCHED: Final = "hil_watched_bytes"
LOWERING: Final = "hil_lowering"
BUNDLE: Final = "hil_bundle"
QUARANTINE: Final = "hil_quarantine"
QUARANTINE_ENDED: Final = "hil_quarantine_ended"
NOT_FITTED: Final = "hil_not_fitted"
FOUND, MADE, NO_KEY = "found", "made", "no key: "
_OF_COLLECTION: Final = (TEST, REQUESTED, RAN, SEED, ISA)


def _property_of(clock: Clock) -> str:
    return f"hil_{clock.value}"


# Figures that do not hold for a runner that counts coverage: its kernels are not optimised.
_OF_CODE: Final = frozenset({*map(_property_of, Clock), "hil_stack_bytes", "hil_run_seconds"})

LARGEST: Final[Mapping[str, str]] = {
    **{one.property_name: f"{one.name} {one.unit}" for one in STATISTICS},
    _property_of(Clock.INSTRUCTIONS): "instructions",
}
"""Properties whose largest value on each target is shown, with the names that the summary gives them."""


def begin(item: pytest.Item, test: str, resolved: Resolved, seed: int) -> None:
    """Record the properties that every report of a test on a target has."""
    isa = resolved.target.isa.value
    _record(item, {TEST: test, REQUESTED: resolved.name, RAN: resolved.display_name, SEED: seed, ISA: isa})
    if not uses_runner(item):
        _record(item, {RUNTIME: NO_RUNNER})


def uses_runner(item: pytest.Item) -> bool:
    """Tell whether a test has a fixture that boots this package's runner."""
    return "runner_elf" in getattr(item, "fixturenames", ())


def runner_is_used(item: pytest.Item) -> None:
    """Remove the property that says a test uses no runner: it may ask for one as late as in its body."""
    item.user_properties[:] = [one for one in item.user_properties if one != (RUNTIME, NO_RUNNER)]


def begin_again(item: pytest.Item) -> None:
    """Remove the properties that an earlier attempt of the same test recorded."""
    item.user_properties[:] = [
        (name, value)
        for name, value in item.user_properties
        if name in _OF_COLLECTION or name[:4] != "hil_" or value == NO_RUNNER
    ]


def end(item: pytest.Item, report: pytest.TestReport, verdict: Verdict, error: str, operator: str = "") -> None:
    """Record the verdict in the report at hand, and in those of later phases: JUnit files are made of the last one."""
    found = {VERDICT: verdict.name, ERROR: error, **({OPERATOR: operator} if operator else {})}
    report.user_properties += found.items()
    _record(item, found)


def bundled(item: pytest.Item, report: pytest.TestReport, path: Path) -> None:
    """Record the path of the failure's bundle, as `--hil-bundles` names the folder."""
    report.user_properties.append((BUNDLE, str(path)))
    _record(item, {BUNDLE: str(path)})


def quarantined(item: pytest.Item, reason: str) -> None:
    """Record why a test is quarantined, once for all of its phases."""
    if QUARANTINE not in dict(item.user_properties):
        _record(item, {QUARANTINE: reason})


def quarantine_ended(item: pytest.Item, what: str) -> None:
    """Record that a test's quarantine has ended; `what` is its last day and its reason."""
    _record(item, {QUARANTINE_ENDED: what})


def without_target(report: pytest.TestReport) -> None:
    """Record the verdict ERROR for a test that no target could be given."""
    report.user_properties.append((VERDICT, Verdict.ERROR.name))


def infra_without_target(report: pytest.TestReport) -> None:
    """Record the verdict INFRA for a failed test that uses no target: its failure says nothing about the code."""
    report.user_properties.append((VERDICT, Verdict.INFRA.name))


def is_infra(report: pytest.TestReport) -> bool:
    return (VERDICT, Verdict.INFRA.name) in report.user_properties


def ran(node: pytest.Item, program: Program, result: RunResult, elf: Elf) -> None:
    seconds = program.lowering_seconds
    figures = {
        "hil_engine": result.ran.engine,
        RUNTIME: f"{result.ran.runtime} {result.ran.runtime_version}",
        "hil_build_id": elf.build_id,
        "hil_program": hashlib.sha256(program.pte).hexdigest()[:16],
        "hil_pte_bytes": len(program.pte),
        "hil_cortex_m_operators": program.partition.cortex_m_nodes,
        "hil_cortex_m_macs": program.partition.cortex_m_macs,
        LOWERING: _lowering(program),
        "hil_lower_seconds": None if seconds is None else round(seconds, 3),
        "hil_run_seconds": round(result.seconds, 3),
        "hil_outputs": hashlib.sha256(b"".join(one.data for one in result.outputs)).hexdigest()[:16],
        _property_of(result.ran.clock): result.ticks,
        **{one.property_name: result.stats[one.name].used for one in STATISTICS},
    }
    if elf.counts:
        figures = {name: value for name, value in figures.items() if name not in _OF_CODE}
    _record(node, figures)


def _lowering(program: Program) -> str | None:
    """Return how a program that its test lowered was obtained; None where the test did not lower it.

    `found`: in the cache; `made`: lowered anew; `no key: …`: lowered anew, since the cache has no key for it.
    """
    if program.lowering_seconds is None:
        return None
    return FOUND if program.remembered else NO_KEY + program.no_key if program.no_key else MADE


def compared(node: pytest.Item, comparison: Comparison) -> None:
    outputs = comparison.outputs
    sqnr = _of(min, (figures.sqnr_db for figures in outputs))
    figures = {
        "hil_max_quanta": _of(max, (figures.max_quanta for figures in outputs)),
        "hil_fake_quant_quanta": _of(max, (figures.fake_quant_quanta for figures in outputs)),
        "hil_max_abs_error": _of(max, (figures.max_abs_error for figures in outputs)),
        "hil_sqnr_db": None if sqnr is None else round(sqnr, 1),
        UNINFORMATIVE: sum(finding.kind is FindingKind.UNINFORMATIVE for finding in comparison.warnings) or None,
    }
    _record(node, figures)


def watched(node: pytest.Item, nbytes: int) -> None:
    """Record how many bytes of a program's memory plan no tensor owns, and are watched for writes with `--redzones`."""
    _record(node, {WATCHED: nbytes})


def fitted(node: pytest.Item, sizes: Mapping[str, int]) -> None:
    """Record the least bytes that a program ran in, by region."""
    _record(node, {f"hil_fit_{region}_bytes": size for region, size in sizes.items()})


def not_fitted(node: pytest.Item, why: str) -> None:
    _record(node, {NOT_FITTED: why})


def localized(node: pytest.Item, found: Localization) -> None:
    """Record the operators at fault, and those in the layout of another ISA class, in the order of the program."""
    wrong = {"hil_at_fault": found.at_fault, "hil_wrong_layout": found.wrong_layout}
    _record(node, {name: "; ".join(row.place for row in rows) or None for name, rows in wrong.items()})


def stepped(node: pytest.Item, outputs: Sequence[OperatorOutput]) -> None:
    """Record what each operator wrote, as JSON: a list of pairs of operator and digest."""
    _record(node, {OPERATOR_OUTPUTS: json.dumps([(one.operator, one.digest) for one in outputs])})


def _record(node: pytest.Item, properties: Mapping[str, object]) -> None:
    node.user_properties += [(name, value) for name, value in properties.items() if value is not None]


def _of(choose: Callable[[list[Any]], Any], values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return choose(known) if known else None
