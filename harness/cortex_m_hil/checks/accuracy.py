"""How good answers are against labels: of classes, of anomaly scores, of keywords in a stream. Works without torch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Final

import numpy as np

from cortex_m_hil.program.tensor import Array

NONE: Final = -1  # the answer of outputs that are not finite
COLLAPSE_SHARE: Final = 0.9  # of the samples of all other classes, which are told to be of one
COLLAPSE_SAMPLES: Final = 10  # of them there have to be, before anything is said


def answer(output: Array) -> int:
    """The class that an output names: the first of its largest elements; NONE where one is not finite."""
    return int(output.argmax()) if np.isfinite(output).all() else NONE


def squared_error(output: Array, wanted: Array) -> float:
    """The mean over all elements, in the square of their unit."""
    return float(np.square(output.astype(np.float64) - wanted.astype(np.float64)).mean())


def top1(answers: Sequence[int], labels: Sequence[int]) -> float:
    """The share of right answers, 0 to 1. There is at least one."""
    return sum(one == label for one, label in zip(answers, labels, strict=True)) / len(labels)


def auc(scores: Sequence[float], positive: Sequence[bool]) -> float | None:
    """The area under the ROC curve: how probable is it that a positive has a higher score than a negative?

    Equal scores count one half. Exact, of whole numbers: Mann-Whitney's U over the number of pairs (Hanley and McNeil,
    1982). None where there are only positives or only negatives.
    """
    values, is_positive = np.asarray(scores, np.float64), np.asarray(positive, np.bool_)
    above, below = values[is_positive], np.sort(values[~is_positive])
    if not above.size or not below.size:
        return None
    # Negatives below each positive, and those that are not above it: half the sum counts ties as one half.
    pairs = np.searchsorted(below, above, "left").sum() + np.searchsorted(below, above, "right").sum()
    return int(pairs) / (2 * above.size * below.size)


@dataclass(frozen=True)
class ClassRow:
    """One class: samples of it, how many of these were told to be it, and how many of all were."""

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
    """Each class that is a label or an answer, in order."""
    count, predicted = Counter(labels), Counter(answers)
    right = Counter(label for one, label in zip(answers, labels, strict=True) if one == label)
    every = sorted({*answers, *labels} - {NONE})
    return tuple(ClassRow(one, count[one], right[one], predicted[one]) for one in every)


@dataclass(frozen=True)
class Collapse:
    """`told` of the `others`, which are samples of all other classes, were told to be of class `answer`."""

    answer: int
    told: int
    others: int

    def __str__(self) -> str:
        return f"class {self.answer} for {self.told} of {self.others} samples of other classes"


def collapse(answers: Sequence[int], labels: Sequence[int]) -> Collapse | None:
    """The class that nearly everything is told to be, if there is one. A stream that is nearly all of one is none."""
    given, wanted = np.asarray(answers), np.asarray(labels)
    for one in dict.fromkeys(answers):
        others = wanted != one
        told = int((given[others] == one).sum())
        if others.sum() >= COLLAPSE_SAMPLES and told >= COLLAPSE_SHARE * others.sum():
            return Collapse(one, told, int(others.sum()))
    return None


@dataclass(frozen=True)
class Detections:
    """Of classes that are to be detected. In a stream `wanted` and accepts are occurrences, elsewhere samples.

    Attributes:
        wanted: how often there was something to detect.
        false_rejects: how often of these it was not.
        false_accepts: how often something was detected that was not there, or was another.
    """

    wanted: int
    false_rejects: int
    false_accepts: int


def detections(answers: Sequence[int], labels: Sequence[int], negative: Collection[int]) -> Detections:
    """Sample by sample; `negative` are the classes that are nothing to detect."""
    pairs = list(zip(answers, labels, strict=True))
    wanted = [(given, label) for given, label in pairs if label not in negative]
    accepts = sum(given != label and given not in (*negative, NONE) for given, label in pairs)
    return Detections(len(wanted), sum(given != label for given, label in wanted), accepts)


def detections_in_stream(answers: Sequence[int], labels: Sequence[int], negative: Collection[int]) -> Detections:
    """Of samples that are windows of one stream, in order. An occurrence is a run of windows of the same class.

    It is rejected if none of its windows is told to be it. A run of equal answers is a false accept if none of its
    windows is of that class.
    """
    wanted, accepted = _occurrences(labels, negative), _occurrences(answers, (*negative, NONE))
    rejects = sum(label not in answers[first:last] for label, first, last in wanted)
    return Detections(len(wanted), rejects, sum(one not in labels[first:last] for one, first, last in accepted))


def _occurrences(classes: Sequence[int], negative: Collection[int]) -> list[tuple[int, int, int]]:
    """Class, first window and the one behind the last, of each run that is not of a negative class."""
    found, at = [], 0
    for one, run in groupby(classes):
        first, at = at, at + len(list(run))
        if one not in negative:
            found.append((one, first, at))
    return found
