"""The outcome of a test, from reports as pytest, xdist and pytest-rerunfailures make them."""

from __future__ import annotations

from typing import Any

import pytest

from cortex_m_hil.campaigns import property_names as prop
from cortex_m_hil.pytest_plugin.outcomes import Outcomes
from cortex_m_hil.runner.run_results import Verdict

TEST = "test_it.py::test_it[native]"


def report(when: str, outcome: str, verdict: Verdict | None = None, error: str = "") -> pytest.TestReport:
    known = {prop.TEST: "test_it.py::test_it", prop.REQUESTED: "native", prop.RAN: "native"}
    ended = {} if verdict is None else {prop.VERDICT: verdict.name, prop.ERROR: error}
    phase: Any = when
    given: Any = outcome
    properties = (
        () if when == "???" else tuple((prop.PREFIX + name, value) for name, value in {**known, **ended}.items())
    )
    return pytest.TestReport(TEST, ("test_it.py", 1, "test_it"), {}, given, None, phase, user_properties=properties)


PASSES = [report("setup", "passed"), report("call", "passed", Verdict.PASS), report("teardown", "passed", Verdict.PASS)]
WRONG = [report("setup", "passed"), report("call", "rerun", Verdict.FAIL, "Mismatch")]


@pytest.mark.parametrize(
    ("attempt", "ending"),
    [
        (WRONG, "FAIL Mismatch"),
        ([*WRONG, report("teardown", "passed", Verdict.FAIL, "Mismatch")], "FAIL Mismatch"),
        ([*WRONG, report("teardown", "rerun", Verdict.INFRA, "LinkError")], "INFRA LinkError"),
        ([report("setup", "rerun", Verdict.INFRA, "LinkError")], "INFRA LinkError"),
        ([report("setup", "passed"), report("???", "rerun")], "INFRA WorkerCrashed"),
        ([report("???", "rerun")], "INFRA WorkerCrashed"),
    ],
)
def test_an_attempt_that_was_repeated_has_one_ending(attempt: list[pytest.TestReport], ending: str) -> None:
    outcomes = Outcomes()
    for _ in range(2):
        for one in attempt:
            outcomes.add(one)
        assert outcomes.is_repeated(TEST) and not outcomes.all()
    for one in PASSES:
        outcomes.add(one)
        assert not outcomes.is_repeated(TEST)
    [found] = outcomes.all()
    assert (found.verdict, found.earlier) == (Verdict.PASS, (ending, ending))
