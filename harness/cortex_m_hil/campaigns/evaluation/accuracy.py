"""Accuracy of a model's answers against labels: for classes, anomaly scores and keywords in a stream.

These are the figures of `hil evaluate`, which `evaluation_report` collects. Needs no torch.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Final

import numpy as np

from cortex_m_hil.program.tensor import Array

NONE: Final = -1  # stands for the class where an output is not finite
COLLAPSE_SHARE: Final = 0.9  # share of the samples of other classes that are answered with one class, to be a collapse
COLLAPSE_SAMPLES: Final = 10  # least number of samples of other classes


def predicted_class(output: Array) -> int:
    """Return the predicted class, the first of an output's largest elements; NONE where an element is not finite."""
    return int(output.argmax()) if np.isfinite(output).all() else NONE


def squared_error(output: Array, wanted: Array) -> float:
    """Return the mean squared error over all elements."""
    return float(np.square(output.astype(np.float64) - wanted.astype(np.float64)).mean())


def top1(answers: Sequence[int], labels: Sequence[int]) -> float:
    """Return the share of right answers, 0 to 1. There must be at least one label."""
    return sum(one == label for one, label in zip(answers, labels, strict=True)) / len(labels)


def auc(scores: Sequence[float], positive: Sequence[bool]) -> float | None:
    """Return the area under the ROC curve: the probability that a positive sample scores higher than a negative one.

    Equal scores count one half. The result is exact: Mann-Whitney's U, a multiple of one half, over the number of pairs
    (Hanley and McNeil, 1982). None where there are only positives or only negatives.
    """
    values, is_positive = np.asarray(scores, np.float64), np.asarray(positive, np.bool_)
    above, below = values[is_positive], np.sort(values[~is_positive])
    if not above.size or not below.size:
        return None
    # For each positive: the negatives below it, and those below or equal; half the sum counts ties as one half.
    pairs = np.searchsorted(below, above, "left").sum() + np.searchsorted(below, above, "right").sum()
    return int(pairs) / (2 * above.size * below.size)


@dataclass(frozen=True)
class ClassRow:
    """The counts of one class.

    Attributes:
        count: samples of the class.
        right: samples of the class that were answered with it.
        predicted: samples of all classes that were answered with this class.
    """

    label: int
    count: int
    right: int
    predicted: int

    @property
    def recall(self) -> float | None:
        return self.right / self.count if self.count else None

    @property
    def precision(self) -> float | None:
        return self.right / self.predicted if self.predicted else None


def by_class(answers: Sequence[int], labels: Sequence[int]) -> tuple[ClassRow, ...]:
    """Return the counts of each class that occurs as a label or as an answer, in ascending order."""
    count, predicted = Counter(labels), Counter(answers)
    right = Counter(label for one, label in zip(answers, labels, strict=True) if one == label)
    every = sorted({*answers, *labels} - {NONE})
    return tuple(ClassRow(one, count[one], right[one], predicted[one]) for one in every)


@dataclass(frozen=True)
class Collapse:
    """A class that is the answer for nearly all samples of other classes.

    Attributes:
        answer: the class that is predicted too often.
        misclassified: how many samples of other classes were answered with this class.
        others: how many samples of other classes there are.
    """

    answer: int
    misclassified: int
    others: int

    def __str__(self) -> str:
        return f"class {self.answer} for {self.misclassified} of {self.others} samples of other classes"


def collapse(answers: Sequence[int], labels: Sequence[int]) -> Collapse | None:
    """Return the class that is the answer for nearly all samples of other classes, None if there is none.

    A stream whose samples are nearly all of one class is no collapse.
    """
    given, wanted = np.asarray(answers), np.asarray(labels)
    for one in dict.fromkeys(answers):
        others = wanted != one
        misclassified = int((given[others] == one).sum())
        if others.sum() >= COLLAPSE_SAMPLES and misclassified >= COLLAPSE_SHARE * others.sum():
            return Collapse(one, misclassified, int(others.sum()))
    return None


@dataclass(frozen=True)
class Detections:
    """The counts of detections. An event is a keyword in a stream, else a sample that is no negative.

    Attributes:
        events: the number of events to detect.
        false_rejects: the number of events that were not detected.
        false_accepts: the number of detections without an event of the same class.
    """

    events: int
    false_rejects: int
    false_accepts: int


def detections(answers: Sequence[int], labels: Sequence[int], negative: Collection[int]) -> Detections:
    """Count the detections sample by sample; `negative` are the classes that count as no event."""
    pairs = list(zip(answers, labels, strict=True))
    events = [(given, label) for given, label in pairs if label not in negative]
    accepts = sum(given != label and given not in (*negative, NONE) for given, label in pairs)
    return Detections(len(events), sum(given != label for given, label in events), accepts)


def detections_in_stream(answers: Sequence[int], labels: Sequence[int], negative: Collection[int]) -> Detections:
    """Count the detections in one stream whose samples are consecutive windows.

    An occurrence is a run of windows of the same class. It is rejected if none of its windows is answered with that
    class. A run of equal answers is a false accept if none of its windows is of that class.
    """
    events, accepted = _occurrences(labels, negative), _occurrences(answers, (*negative, NONE))
    rejects = sum(label not in answers[first:last] for label, first, last in events)
    return Detections(len(events), rejects, sum(one not in labels[first:last] for one, first, last in accepted))


def _occurrences(classes: Sequence[int], negative: Collection[int]) -> list[tuple[int, int, int]]:
    """Return class, first window and end (exclusive) of each run of equal classes that are not negative."""
    found, at = [], 0
    for one, run in groupby(classes):
        first, at = at, at + len(list(run))
        if one not in negative:
            found.append((one, first, at))
    return found
