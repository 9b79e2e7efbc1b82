"""The results of an evaluation on one target: its figures, and violations of thresholds."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import Any, Final

from cortex_m_hil.campaigns.evaluation import accuracy
from cortex_m_hil.campaigns.evaluation.accuracy import NONE, ClassRow, Collapse, Detections
from cortex_m_hil.campaigns.evaluation.data_sets import Benchmark
from cortex_m_hil.campaigns.evaluation.evaluation import DONE, INFRA, REFERENCES, TARGET, ModelTask, target_of
from cortex_m_hil.campaigns.store import Run
from cortex_m_hil.checks.lint_rules.hints import UNLINTED
from cortex_m_hil.errors import ConfigError
from cortex_m_hil.errors.text import counted

SOURCE_NAMES: Final = {"target": "target", "dialect": "dialect", "quantized": "fake-quant", "eager": "eager"}


@dataclass(frozen=True)
class Thresholds:
    """The thresholds that every target has to meet; None: no threshold.

    Attributes:
        min_top1: the share of right answers, 0 to 1.
        min_auc: the area under the ROC curve, 0 to 1.
        max_false_accepts: the most `Detections.false_accepts`.
        max_false_rejects: the most `Detections.false_rejects`.
        negative: classes that are no event; empty if all classes are of the same kind.
        stream: whether the samples are consecutive windows of one stream.
    """

    min_top1: float | None = None
    min_auc: float | None = None
    max_false_accepts: int | None = None
    max_false_rejects: int | None = None
    negative: tuple[int, ...] = ()
    stream: bool = False

    def with_defaults(self, task: ModelTask, classes: int, benchmark: Benchmark | None) -> Thresholds:
        """Return the thresholds with defaults added: the benchmark's.

        And if there are two classes, class 0 is negative.

        Args:
            task: the model's task.
            classes: the number of classes that the model knows.
            benchmark: the MLPerf Tiny task that the data belongs to; None: another data set.

        Raises:
            ConfigError: the model's task has no such figure, or the model has no such class.
        """
        if task is ModelTask.ANOMALY:
            self._refuse_of_classes()
            least = benchmark.min_auc if benchmark is not None and self.min_auc is None else self.min_auc
            return replace(self, min_auc=least)
        if self.min_auc is not None:
            raise ConfigError(
                "--min-auc: the model is a classifier", hint="--min-top1 is the threshold for such a model"
            )
        usual = benchmark.negative if benchmark is not None else (0,) if classes == 2 else ()
        whole = replace(self, negative=self.negative or usual)
        if not whole.negative and (self.stream or (self.max_false_accepts, self.max_false_rejects) != (None, None)):
            what = "false accepts and rejects are counted of events, and it is not known which classes are none"
            raise ConfigError(what, hint="--negative 0 if class 0 is no event")
        outside = [one for one in whole.negative if one >= classes]
        if outside:
            raise ConfigError(
                f"--negative {outside[0]}: the model has {classes} classes", hint="classes are numbered from 0"
            )
        least = benchmark.min_top1 if benchmark is not None and self.min_top1 is None else self.min_top1
        return replace(whole, min_top1=least)

    def _refuse_of_classes(self) -> None:
        given = {
            "--min-top1": self.min_top1 is not None,
            "--max-false-accepts": self.max_false_accepts is not None,
            "--max-false-rejects": self.max_false_rejects is not None,
            "--negative": bool(self.negative),
            "--stream": self.stream,
        }
        for name in (name for name, is_given in given.items() if is_given):
            raise ConfigError(
                f"{name}: the model is an autoencoder", hint="--min-auc is the threshold for such a model"
            )


@dataclass(frozen=True)
class Results:
    """The results on one target. Lists have an item for each sample that was run, in the order of the data.

    Attributes:
        labels: the labels of these samples.
        answers: by source (target or reference), classes or scores.
        quanta: by reference, the largest distance of the target's outputs from the reference; None where nothing is
            quantised.
        digests: the digests of the target's outputs.
        seconds: the time of all runs on the target.
        left: how many samples were not run.
        ended: the description of the error that ended the evaluation; "" without an error.
        infra: whether that error says nothing about the program.
    """

    labels: tuple[int, ...]
    answers: Mapping[str, Sequence[Any]]
    quanta: Mapping[str, Sequence[int] | None]
    digests: tuple[str, ...]
    seconds: float
    left: int
    ended: str
    infra: bool

    @classmethod
    def from_runs(cls, target: str, runs: Sequence[Run], labels: Sequence[int]) -> Results:
        mine = [run for run in runs if target_of(run) == target]
        parts = sorted((run.figures for run in mine if run.verdict == DONE), key=lambda one: int(one["first"]))
        digests = tuple(digest for one in parts for digest in one["digests"])
        done = [label for one in parts for label in labels[one["first"] :][: len(one["digests"])]]
        last = mine[-1] if mine and mine[-1].verdict != DONE else None
        return cls(
            labels=tuple(done),
            answers=_joined([one["answers"] for one in parts]),
            quanta=_joined([one["quanta"] for one in parts]),
            digests=digests,
            seconds=sum(one["seconds"] for one in parts),
            left=len(labels) - len(done),
            ended="" if last is None else last.figures["told"].replace(UNLINTED, "--no-lint"),  # as commands say it
            infra=last is not None and last.verdict == INFRA,
        )


def _joined(parts: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Join the lists of each source, one after the other; None where a part has none."""
    found: dict[str, Any] = {}
    for source in parts[0] if parts else ():
        lists = [one[source] for one in parts]
        found[source] = None if None in lists else [item for one in lists for item in one]
    return found


@dataclass(frozen=True)
class EvaluationReport:
    """The report on one target.

    Attributes:
        differ: whether the data's inputs differ from each other.
        first: the results of the target that is named first; None: this target is the first.
        has_one_answer: whether it runs the same program as the first target, with the same bits on all targets.
        on_executorch: the verdict of `flow.judge_on_executorch`: why the program would fail on ExecuTorch; "" if it
            would not, or no sample was run.
    """

    target: str
    task: ModelTask
    results: Results
    asked: Thresholds
    differ: bool
    first: Results | None = None  # the first target's results, if this is another target
    has_one_answer: bool = False
    on_executorch: str = ""

    @cached_property
    def accuracy(self) -> dict[str, float | None]:
        """Return top-1 or AUC by source; None where it is not defined."""
        return {source: self._accuracy(answers) for source, answers in self.results.answers.items()}

    def _accuracy(self, answers: Sequence[Any]) -> float | None:
        labels = self.results.labels
        if not labels or None in answers:
            return None
        if self.task is ModelTask.CLASSES:
            return accuracy.top1(answers, labels)
        return accuracy.auc(answers, [label == 1 for label in labels])

    @cached_property
    def same(self) -> dict[str, int | None]:
        """Return by reference for how many samples target and reference have the same answer.

        For scores, samples whose outputs are equal in quanta are counted; None where nothing is quantised.
        """
        return {source: self._same_answers(source) for source in REFERENCES if source in self.results.answers}

    def _same_answers(self, source: str) -> int | None:
        if self.task is ModelTask.CLASSES:
            pairs = zip(self.results.answers[TARGET], self.results.answers[source], strict=True)
            return sum(bool(one == other) for one, other in pairs)
        quanta = self.results.quanta[source]
        return None if quanta is None else len([one for one in quanta if one == 0])

    @cached_property
    def max_quanta(self) -> dict[str, int | None]:
        return {source: max(far, default=0) if far is not None else None for source, far in self.results.quanta.items()}

    @cached_property
    def same_outputs(self) -> int | None:
        """Return how many samples have exactly the outputs of the first target; None if this is the first."""
        if self.first is None:
            return None
        return sum(one == other for one, other in zip(self.results.digests, self.first.digests, strict=False))

    @cached_property
    def classes(self) -> tuple[ClassRow, ...]:
        if self.task is not ModelTask.CLASSES or not self.results.labels:
            return ()
        return accuracy.by_class(self.results.answers[TARGET], self.results.labels)

    @cached_property
    def detections(self) -> Detections | None:
        if self.task is not ModelTask.CLASSES or not self.asked.negative or not self.results.labels:
            return None
        counts = accuracy.detections_in_stream if self.asked.stream else accuracy.detections
        return counts(self.results.answers[TARGET], self.results.labels, self.asked.negative)

    @cached_property
    def collapses(self) -> dict[str, Collapse]:
        """Return by source the class that nearly all answers have (a collapse); other sources are left out."""
        if self.task is not ModelTask.CLASSES or not self.results.labels:
            return {}
        found = {
            source: accuracy.collapse(given, self.results.labels) for source, given in self.results.answers.items()
        }
        return {source: one for source, one in found.items() if one is not None}

    @property
    def constant(self) -> bool:
        """Tell whether all outputs are equal although the inputs are not."""
        return self.differ and len(self.results.digests) > 1 and len(set(self.results.digests)) == 1

    @property
    def speed(self) -> float | None:
        """Return the samples per second of the host's clock, loading the program included; None before any run."""
        return len(self.results.labels) / self.results.seconds if self.results.seconds else None

    @cached_property
    def problems(self) -> list[str]:
        """Return the problems: errors, and violated thresholds; gravest first."""
        if not self.results.labels:
            return []
        return [*self._of_outputs(), *self._of_thresholds(), *filter(None, [self.on_executorch])]

    def _of_outputs(self) -> Iterator[str]:
        broken = sum(one in (None, NONE) for one in self.results.answers[TARGET])
        if broken:
            yield f"outputs of {counted(broken, 'sample')} are not finite"
        if self.has_one_answer and self.first is not None and self.same_outputs is not None:
            both = min(len(self.results.digests), len(self.first.digests))
            if other := both - self.same_outputs:
                what = f"outputs of {counted(other, 'sample')} differ from the first target's"
                yield f"{what}, though integers are computed alike on all targets"
        if self.constant:
            yield f"collapse: the same outputs for all {len(self.results.digests)} samples"
        if TARGET in self.collapses:
            others = [SOURCE_NAMES[source] for source in self.collapses if source != TARGET]
            also = f"; {' and '.join(others)} as well" if others else ""
            yield f"collapse: {self.collapses[TARGET]}{also}"
        far = self.results.quanta.get("dialect")
        wrong = sum(one > 0 for one in far or ())
        if wrong:
            what = f"outputs of {counted(wrong, 'sample')} differ from the dialect"
            yield f"{what}, by up to {self.max_quanta['dialect']} quanta"

    def _of_thresholds(self) -> Iterator[str]:
        found, asked = self.accuracy[TARGET], self.asked
        for name, least in (("top-1", asked.min_top1), ("AUC", asked.min_auc)):
            if least is not None and found is not None and found < least:
                yield f"{name} is {found:.4f}, at least {least:g} is asked"
        if self.detections is not None:
            for name, count, most in (
                ("false accepts", self.detections.false_accepts, asked.max_false_accepts),
                ("false rejects", self.detections.false_rejects, asked.max_false_rejects),
            ):
                if most is not None and count > most:
                    yield f"{count} {name}, at most {most} are asked"

    @property
    def unknown(self) -> str:
        """Return why the result is inconclusive; "" if it is conclusive."""
        if self.results.infra:
            return self.results.ended
        if self.results.left and not self.results.ended:
            return f"{counted(self.results.left, 'sample')} left: the same command goes on"
        if (
            self.asked.min_auc is not None
            and self.results.labels
            and self.accuracy[TARGET] is None
            and not self.problems
        ):
            return "no AUC: the samples are all normal, or all anomalies"
        return ""

    @property
    def failed(self) -> bool:
        """Tell whether an error or a violated threshold is certain."""
        return bool(self.results.ended and not self.results.infra) or bool(self.problems and not self.unknown)

    def fields(self) -> dict[str, Any]:
        """Return the report as fields for JSON."""
        by_classes, found = self.task is ModelTask.CLASSES, self.detections
        return {
            "task": self.task,
            "outcome": "ended early" if self.results.ended else "under way" if self.results.left else "complete",
            "samples": len(self.results.labels),
            "left": self.results.left,
            "top1": self.accuracy if by_classes else None,
            "auc": None if by_classes else self.accuracy,
            "same_answers": self.same,
            "max_quanta": self.max_quanta,
            "same_outputs": self.same_outputs,
            "classes": [{**asdict(row), "recall": row.recall, "precision": row.precision} for row in self.classes],
            "events": found and found.events,
            "false_accepts": found and found.false_accepts,
            "false_rejects": found and found.false_rejects,
            "collapse": self.collapses,
            "constant": self.constant,
            "samples_per_second": self.speed,
            "problems": self.problems,
            "ended": self.results.ended,
        }
