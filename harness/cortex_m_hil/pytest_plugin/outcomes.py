"""The outcome of each test, from the reports of its phases: in the only process, or in xdist's controller."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

import pytest

from cortex_m_hil.campaigns import property_names as prop
from cortex_m_hil.campaigns.report.terminal_summary import NO_RUNNER, TargetOutcome
from cortex_m_hil.errors import HarnessError
from cortex_m_hil.errors.text import printable
from cortex_m_hil.pytest_plugin.report_properties import LARGEST
from cortex_m_hil.runner.run_results import Verdict

_OWN: Final = f"{HarnessError.__module__}."  # prefix of the harness's errors in a traceback
WORKER_CRASHED: Final = "WorkerCrashed"
_NEEDED: Final = (prop.TEST, prop.REQUESTED, prop.RAN, prop.VERDICT, prop.ERROR)


class Outcomes:
    """The outcomes of tests on targets.

    Attributes:
        without_target: headlines of tests that need a target but have none, by node id.
    """

    def __init__(self) -> None:
        self.without_target: dict[str, str] = {}
        self._found: dict[str, TargetOutcome] = {}
        self._seconds: dict[str, float] = {}
        self._earlier: dict[str, tuple[str, ...]] = {}  # outcomes of attempts before a rerun
        self._phase: dict[str, str] = {}  # phase of the last report
        self._repeated: dict[str, str] = {}  # outcomes of attempts that a plugin is repeating; "" if not known

    def add(self, report: pytest.TestReport) -> None:
        self._notice_attempt(report)
        found: dict[str, Any] = dict(prop.recorded(report.user_properties))
        self._seconds[report.nodeid] = self._seconds.get(report.nodeid, 0.0) + report.duration
        if report.failed and prop.VERDICT in found and prop.REQUESTED not in found:
            self.without_target[report.nodeid] = headline(report)
        if not all(name in found for name in _NEEDED):
            return
        outcome = TargetOutcome(
            found[prop.TEST],
            found[prop.REQUESTED],
            found[prop.RAN],
            Verdict[found[prop.VERDICT]],
            found[prop.ERROR],
            report.nodeid,
            headline=headline(report),
            uninformative=bool(found.get(prop.UNINFORMATIVE)),
            runtime=str(found.get(prop.RUNTIME_NAME, "")),
            operator=str(found.get(prop.OPERATOR, "")),
            departs=str(found.get(prop.RUNTIME_DIFFERENCE, "")),
            missing_elsewhere=tuple(filter(None, str(found.get(prop.MISSING_ELSEWHERE, "")).split(", "))),
            outputs=tuple(str(what) for name, what in prop.recorded(report.user_properties) if name == prop.OUTPUTS),
            runner=found.get(prop.RUNTIME) != NO_RUNNER,
            peaks={name: found[key] for key, name in LARGEST.items() if key in found},
        )
        if _is_repeated(report):
            self._repeated[report.nodeid] = outcome.ending
        elif report.failed or report.when != "teardown":  # a passed teardown repeats the verdict of the call
            self._found[report.nodeid] = outcome

    def _notice_attempt(self, report: pytest.TestReport) -> None:
        """Notice the beginning of an attempt, and whether a report with the outcome `rerun` shows that it is repeated.

        Whether a repeated attempt has a teardown depends on the version of pytest-rerunfailures.
        """
        test = report.nodeid
        if report.when == "setup" or self._phase.get(test, "setup") not in ("setup", "call"):
            self._earlier[test] = self._endings(test)
            self._repeated.pop(test, None)
        self._phase[test] = str(report.when)
        if _is_repeated(report):
            self._repeated.setdefault(test, f"{Verdict.INFRA.value} {WORKER_CRASHED}" if is_crash(report) else "")

    def _endings(self, node_id: str) -> tuple[str, ...]:
        now = self._repeated.get(node_id, "")
        return (*self._earlier.get(node_id, ()), *([now] if now else []))

    def is_repeated(self, node_id: str) -> bool:
        """Tell whether a plugin repeats the attempt of a test to which the last report belongs."""
        return node_id in self._repeated

    def all(self) -> list[TargetOutcome]:
        """Return all outcomes in the order in which the tests began to end, with durations and earlier attempts."""
        return [one for node_id in self._found if (one := self.outcome(node_id)) is not None]

    def outcome(self, node_id: str) -> TargetOutcome | None:
        """Return the outcome of a test; None if it used no target."""
        found = self._found.get(node_id)
        if found is None:
            return None
        return replace(found, seconds=self._seconds[node_id], earlier=self._endings(node_id))


def is_crash(report: pytest.TestReport) -> bool:
    """Tell whether a report was made by xdist, for a test that crashed its worker."""
    return report.when not in ("setup", "call", "teardown")


def _is_repeated(report: pytest.TestReport) -> bool:
    return str(report.outcome) == "rerun"


def headline(report: pytest.TestReport) -> str:
    """Return the first line of a failed report, with the cause if the error names one.

    "" if the report is no failure.
    """
    if not report.failed:
        return ""
    crash = getattr(report.longrepr, "reprcrash", None)
    lines = (crash.message if crash is not None else str(report.longrepr)).splitlines() or [""]
    causes = [" ".join(line.split()) for line in lines[1:] if line.startswith("  cause:")]
    return printable("; ".join([lines[0].removeprefix(_OWN), *causes]))
