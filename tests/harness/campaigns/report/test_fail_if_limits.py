"""Limits of figures: what is beyond one is told, what keeps to it is not, and what is not there is no success."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cortex_m_hil.campaigns.nightly.nightly import NightlyPlan
from cortex_m_hil.campaigns.report.changes import ChangeKind
from cortex_m_hil.campaigns.report.fail_if_limits import FigureLimit, beyond_limits
from cortex_m_hil.campaigns.report.nightly_results import Figure, Key, Night, Result, by_key
from cortex_m_hil.runner.run_results import Verdict


def result(*values: Figure, test: str = "t", target: str = "m0-qemu", figure: str = "instructions") -> Result:
    return Result(Key("tests", "builtin", test, target), target, "QEMU", Verdict.PASS, figures={figure: values})


def night(*results: Result) -> Night:
    return Night("1", "c1", False, 0.0, {}, True, by_key(results))


def told(
    limit: FigureLimit, old: Result | None, *new: Result, whole: bool = True
) -> list[tuple[ChangeKind, str, str, str]]:
    before = None if old is None else night(old)
    found = beyond_limits([limit], before, night(*new), whole=whole)
    return [(one.kind, one.before, one.after, one.limit) for one in found]


@pytest.mark.parametrize(
    ("limit", "before", "after", "text"),
    [
        ({"above": 120}, None, 120, ""),
        ({"above": 120}, None, 121, "at most 120"),
        ({"above": "+1 %"}, None, 121, ""),
        ({"above": "+1 %"}, 100, 101, ""),
        ({"above": "+1%"}, 100, 102, "at most 101 (+1%)"),
        ({"above": "+0 %"}, 100_000_001, 100_000_002, "at most 100000001 (+0 %)"),
        ({"above": "+0.1 %"}, 1000, 1001, ""),
        ({"above": "+5 %"}, 0, 1, "at most 0 (+5 %)"),
        ({"below": 20.5}, None, 20.5, ""),
        ({"below": 20.5}, None, 20.25, "at least 20.5"),
        ({"below": "-10 %"}, 100, 90, ""),
        ({"below": "-10 %"}, 100, 89, "at least 90 (-10 %)"),
        ({"below": 20}, None, float("inf"), ""),
        ({"below": 20}, None, float("nan"), "at least 20"),
        ({"above": "+1 %"}, float("nan"), 5, "at most nan (+1 %)"),
    ],
)
def test_what_is_beyond_a_limit(limit: dict[str, object], before: float | None, after: float, text: str) -> None:
    given = FigureLimit.model_validate({"figure": "instructions", **limit})
    found = told(given, None if before is None else result(before), result(after))
    assert [(kind, said) for kind, _, _, said in found] == ([(ChangeKind.LIMIT, text)] if text else [])


@given(st.integers(1, 10**15), st.integers(0, 1000))
def test_a_relative_limit_allows_exactly_its_share(before: int, percent: int) -> None:
    """The last count that is allowed, and one more."""
    limit = FigureLimit(figure="instructions", above=f"+{percent} %")
    last = before * (100 + percent) // 100
    assert told(limit, result(before), result(last)) == []
    assert [kind for kind, *_ in told(limit, result(before), result(last + 1))] == [ChangeKind.LIMIT]


def test_programs_of_a_test_count_together_and_the_worst_error_alone() -> None:
    assert told(FigureLimit(figure="instructions", above=100), None, result(60, 41))[0][2] == "101"
    assert told(FigureLimit(figure="max_quanta", above=1), None, result(1, 1, figure="max_quanta")) == []
    assert told(FigureLimit(figure="sqnr_db", below=30), None, result(50.0, 29.0, figure="sqnr_db"))[0][2] == "29"


def test_patterns_name_tests_and_targets() -> None:
    many = [result(9, test=f"it.py::t[{number}-x]", target=target) for number in (1, 2) for target in ("m0", "m4")]
    found = list(
        beyond_limits(
            [FigureLimit(figure="instructions", test="it.py::t[1-*", target="m?", above=1)],
            None,
            night(*many),
            whole=True,
        )
    )
    assert [(one.key.test, one.key.target) for one in found] == [("it.py::t[1-x]", "m0"), ("it.py::t[1-x]", "m4")]


def test_a_figure_that_no_test_has_is_missing_unless_tests_are_left() -> None:
    [(kind, *_, said)] = told(FigureLimit(figure="instruction", above=1), None, result(1))
    assert kind is ChangeKind.MISSING and "did you mean 'instructions'?" in said
    [of_all] = beyond_limits([FigureLimit(figure="instruction", above=1)], None, night(result(1)), whole=True)
    assert (of_all.key.test, of_all.key.target) == ("", "")  # patterns that name everything name nothing
    [(kind, *_, said)] = told(FigureLimit(figure="instructions", target="m4-*", above=1), None, result(1))
    assert kind is ChangeKind.MISSING and "no test that it names has this figure" in said
    [(kind, *_)] = told(FigureLimit(figure="outputs", above=1), None, result("ab", figure="outputs"))
    assert kind is ChangeKind.MISSING
    assert told(FigureLimit(figure="instruction", above=1), None, result(1), whole=False) == []


def test_a_figure_that_one_test_has_no_more_is_missing() -> None:
    other = result(1, test="other")
    found = told(
        FigureLimit(figure="sqnr_db", below=1),
        result(30.0, figure="sqnr_db"),
        result(7),
        replace(other, figures={"sqnr_db": (9,)}),
    )
    assert found == [(ChangeKind.MISSING, "30", "-", "")]


@pytest.mark.parametrize("verdict", Verdict)
def test_what_was_measured_is_judged_whatever_the_verdict(verdict: Verdict) -> None:
    limit, failed = FigureLimit(figure="instructions", above="+1 %"), replace(result(102, 100), verdict=verdict)
    assert told(limit, result(100, 100), failed) == []
    assert told(limit, result(100, 99), failed) == [(ChangeKind.LIMIT, "199", "202", "at most 200.99 (+1 %)")]
    assert told(limit, failed, result(300, 1)) == [(ChangeKind.LIMIT, "202", "301", "at most 204.02 (+1 %)")]
    assert told(FigureLimit(figure="instructions", above=201), None, failed) == [
        (ChangeKind.LIMIT, "-", "202", "at most 201")
    ]


def test_what_a_test_measured_before_it_failed_is_compared_with_the_same_programs() -> None:
    half = replace(result(103), verdict=Verdict.FAIL)
    limit = FigureLimit(figure="instructions", above="+1 %")
    assert told(limit, result(100, 100), half) == [(ChangeKind.LIMIT, "100", "103", "at most 101 (+1 %)")]
    assert (
        told(FigureLimit(figure="instructions", below=150), None, half) == []
    )  # how many there would be, nobody knows
    assert told(limit, half, result(100, 100)) == []


def test_a_program_that_went_wrong_is_compared_with_nothing_that_comes_after() -> None:
    wrong = replace(result(50), verdict=Verdict.FAIL, error="Mismatch")
    assert told(FigureLimit(figure="instructions", above="+1 %"), wrong, result(100)) == []


def test_a_limit_comes_back_from_a_plan() -> None:
    limits = (FigureLimit(figure="instructions", above="+1 %"), FigureLimit(figure="sqnr_db", target="m0-*", below=20))
    plan = NightlyPlan(
        (), None, (), (), "", (), "1/1", limits, {"builtin": ("native",)}, ("*",), "", "", {}, models=("*::net",)
    )
    assert NightlyPlan.from_fields(json.loads(json.dumps(plan.as_fields()))) == plan
    older = {
        name: value for name, value in plan.as_fields().items() if name not in ("limits", "coverage", "fit", "models")
    }
    assert NightlyPlan.from_fields(older) == replace(plan, limits=(), coverage={}, fit=(), models=())
    assert NightlyPlan.from_fields({**plan.as_fields(), "fit": True}) == plan  # of earlier versions
    flat = {**plan.as_fields(), "coverage": ["native"]}  # of version 0.1
    assert NightlyPlan.from_fields(flat) == plan
