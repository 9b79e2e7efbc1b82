"""The report of an evaluation, from results that are made up."""

from __future__ import annotations

import pytest

from cortex_m_hil.campaigns.evaluation.evaluation import ModelTask
from cortex_m_hil.campaigns.evaluation.evaluation_report import EvaluationReport, Results, Thresholds


def results(*digests: str) -> Results:
    labels = tuple(number % 2 for number, _ in enumerate(digests))
    return Results(labels, {"target": list(labels)}, {}, digests, 1.0, 0, "", False)


@pytest.mark.parametrize(
    ("digests", "has_one_answer", "problems"),
    [
        (("a", "b", "c"), True, []),
        (("a", "x", "c"), True, ["outputs of 1 sample differ from the first target's, though integers are computed "
                                 "alike on all targets"]),
        (("a", "x"), True, ["outputs of 1 sample differ from the first target's, though integers are computed "
                            "alike on all targets"]),  # as far as both are done
        (("a", "x", "c"), False, []),  # it has references, or computes in float
    ],
)  # fmt: skip
def test_targets_that_differ_in_a_program_with_one_answer_are_a_problem(
    digests: tuple[str, ...], has_one_answer: bool, problems: list[str]
) -> None:
    report = EvaluationReport(
        "m4", ModelTask.CLASSES, results(*digests), Thresholds(), True, results("a", "b", "c"), has_one_answer
    )
    assert report.problems == problems and report.failed == bool(problems)
