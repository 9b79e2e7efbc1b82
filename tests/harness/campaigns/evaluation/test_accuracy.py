"""Figures of answers against labels; the area under the curve against scikit-learn's."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from types import ModuleType

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cortex_m_hil.campaigns.evaluation.accuracy import (
    NONE,
    ClassRow,
    Collapse,
    Detections,
    auc,
    by_class,
    collapse,
    detections,
    detections_in_stream,
    predicted_class,
    squared_error,
    top1,
)

SCORED = st.lists(st.tuples(st.integers(-3, 3) | st.floats(-10, 10), st.booleans()), min_size=2, max_size=60)
CLASSES = st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), min_size=1, max_size=60)


@pytest.fixture(scope="module")
def metrics() -> ModuleType:
    """Return scikit-learn's metrics, imported where they are used: importing them takes a second in every worker."""
    return importlib.import_module("sklearn.metrics")


@given(SCORED)
def test_auc_is_that_of_scikit_learn(metrics: ModuleType, scored: list[tuple[float, bool]]) -> None:
    """Small whole numbers make ties."""
    scores, positive = zip(*scored, strict=True)
    if len(set(positive)) < 2:
        assert auc(scores, positive) is None
    else:
        assert auc(scores, positive) == pytest.approx(metrics.roc_auc_score(positive, scores), abs=1e-12)


def test_auc_counts_pairs() -> None:
    assert auc([3, 1, 2, 2], [True, False, True, False]) == 3.5 / 4
    assert auc([1, 1, 1], [True, False, False]) == 0.5
    assert auc([0, 1], [True, False]) == 0.0


@given(CLASSES)
def test_rows_of_classes_are_those_of_scikit_learn(metrics: ModuleType, pairs: list[tuple[int, int]]) -> None:
    answers, labels = zip(*pairs, strict=True)
    rows = by_class(answers, labels)
    every = [row.label for row in rows]
    precision, recall, _, count = metrics.precision_recall_fscore_support(
        labels, answers, labels=every, zero_division=np.nan
    )
    assert every == sorted({*answers, *labels})
    assert [row.count for row in rows] == count.tolist()
    for row, wanted_precision, wanted_recall in zip(rows, precision, recall, strict=True):
        assert (row.precision is None) == np.isnan(wanted_precision)
        assert (row.recall is None) == np.isnan(wanted_recall)
        assert row.precision is None or row.precision == pytest.approx(wanted_precision)
        assert row.recall is None or row.recall == pytest.approx(wanted_recall)
    assert top1(answers, labels) == sum(row.right for row in rows) / len(labels)


def test_an_output_that_is_not_finite_is_no_answer() -> None:
    assert predicted_class(np.array([[0.0, 2.0, 2.0]])) == 1
    assert predicted_class(np.array([0.0, np.nan])) == predicted_class(np.array([np.inf, 0.0])) == NONE
    assert by_class([NONE, 1], [0, 1]) == (ClassRow(0, 1, 0, 0), ClassRow(1, 1, 1, 1))
    assert detections([NONE], [1], (0,)) == Detections(1, 1, 0)


def test_the_mean_is_over_all_elements() -> None:
    assert squared_error(np.array([[1, 5]], np.float32), np.array([[1, 1]], np.float32)) == 8


@pytest.mark.parametrize(
    ("answers", "labels", "wanted"),
    [
        ([3] * 30, [0, 1, 3] * 10, Collapse(3, 20, 20)),
        ([3] * 18 + [0] * 2 + [3] * 10, [0] * 20 + [3] * 10, Collapse(3, 18, 20)),
        ([3] * 17 + [0] * 3 + [3] * 10, [0] * 20 + [3] * 10, None),  # bad, and no collapse
        ([0] * 95 + [1] * 5, [0] * 95 + [1] * 5, None),  # nearly everything is of one class, and it is found
        ([0] * 100, [0] * 100, None),
        ([0] * 100, [0] * 91 + [1] * 9, None),  # too few to tell
        ([1, 0] * 20, [0, 1] * 20, Collapse(1, 20, 20)),  # exchanged
    ],
)
def test_a_collapse_is_one_answer_for_nearly_all_other_classes(
    answers: Sequence[int], labels: Sequence[int], wanted: Collapse | None
) -> None:
    assert collapse(answers, labels) == wanted


def test_detections_count_samples() -> None:
    assert detections([0, 1, 2, 1, 0], [0, 1, 1, 0, 2], (0,)) == Detections(3, 2, 2)
    assert detections([0, 1], [1, 0], (0, 1)) == Detections(0, 0, 0)


def test_detections_of_a_stream_count_occurrences() -> None:
    labels = [0, 0, 1, 1, 1, 0, 0, 2, 2, 0, 0, 1, 1]
    assert detections_in_stream(labels, labels, (0,)) == Detections(3, 0, 0)
    #          early: the run reaches into the word; a false accept at 6; 2 is taken for 1; the last is missed
    answers = [0, 1, 1, 0, 0, 0, 2, 1, 1, 0, 0, 0, 0]
    assert detections_in_stream(answers, labels, (0,)) == Detections(3, 2, 2)
    assert detections_in_stream([0] * 13, labels, (0,)) == Detections(3, 3, 0)
    assert detections_in_stream([1] * 13, labels, (0,)) == Detections(3, 1, 0)  # one long run, which has both words
