"""The result of a comparison, and the Mismatch that it raises."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any, Final

from cortex_m_hil.checks.comparison.advice_texts import Advice
from cortex_m_hil.errors import Mismatch
from cortex_m_hil.errors.text import in_decibels
from cortex_m_hil.program.operator_costs import CountOperators, OperatorCost, counted_operators


class FindingKind(str, Enum):
    """The rule that an output breaks, in order of gravity: the gravest finding becomes the message."""

    SHAPE = "shape"
    UNWRITTEN = "unwritten"
    NAN = "nan"
    COLLAPSE = "collapse"
    SATURATION = "saturation"
    QUANTA = "quanta"
    OFF_GRID = "off_grid"
    EXACT = "exact"
    QUANTIZED = "quantized"
    EAGER = "eager"
    UNINFORMATIVE = "uninformative"
    REFERENCE_SATURATION = "reference_saturation"
    REFERENCE_NOT_FINITE = "reference_not_finite"
    OTHER_CHOICES = "other_choices"
    OFFSET = "offset"


DIALECT: Final = "the dialect"
WARNINGS: Final = frozenset(
    {
        FindingKind.UNINFORMATIVE,
        FindingKind.REFERENCE_SATURATION,
        FindingKind.REFERENCE_NOT_FINITE,
        FindingKind.OTHER_CHOICES,
        FindingKind.OFFSET,
    }
)


@dataclass(frozen=True, slots=True)
class Finding:
    """A rule that an output breaks.

    Attributes:
        kind: the rule. Kinds in `WARNINGS` do not prove the output wrong.
        output: the number of the output, from 0.
        message: a line of text.
        index: the index, in the logical shape, of the element that the message is about; None: it is about all
            elements.
    """

    kind: FindingKind
    output: int
    message: str
    index: tuple[int, ...] | None = None
    elements: tuple[tuple[str, str], ...] = ()
    """The first and the worst element, each with its label."""

    def __str__(self) -> str:
        where = "".join(f"; {label} {text}" for label, text in self.elements)
        return f"output {self.output}: {self.kind.value}: {self.message}{where}"


@dataclass(frozen=True, slots=True)
class Figures:
    """The worst figures of one output; a figure is None where its reference is missing.

    Attributes:
        max_quanta: largest distance in quanta from the dialect, or from the user's expected values; `authority` says
            which.
        fake_quant_quanta: largest distance in quanta from the fake-quantised module.
        max_abs_error: largest absolute error, from the fake-quantised module; from the float module where nothing is
            quantised, or from the user's expected values.
        sqnr_db: signal-to-quantisation-noise ratio in dB against the float module; infinite where nothing differs.
        authority: the name, for messages, of the reference that `max_quanta` is about.
    """

    max_quanta: int | None = None
    fake_quant_quanta: int | None = None
    max_abs_error: float | None = None
    sqnr_db: float | None = None
    authority: str = DIALECT

    def __str__(self) -> str:
        """Return all known distances side by side."""
        quanta = [
            f"{distance} {quanta_word(distance)} from {name}"
            for name, distance in ((self.authority, self.max_quanta), ("fake-quant", self.fake_quant_quanta))
            if distance is not None
        ]
        if self.max_abs_error is not None and self.fake_quant_quanta is None:
            quanta.append(f"{self.max_abs_error:.3g} from the reference")
        name = "eager" if self.authority == DIALECT else "it"
        return ", ".join(quanta + ([f"{in_decibels(self.sqnr_db)} from {name}"] if self.sqnr_db is not None else []))


def quanta_word(number: int) -> str:
    return "quantum" if number == 1 else "quanta"


@dataclass(frozen=True, slots=True)
class Comparison:
    """The findings and figures of comparing the outputs of a run with their references.

    Attributes:
        findings: all findings, in the order of the outputs; each is one of `errors` or of `warnings`.
        outputs: the figures of each output.
        computed_by: for each output the operator that computed it, "" where it is not known.
        advice: for each output the likely cause and next step, by its findings.
        saturated: with `quantize_inputs`, the share of input values that saturated; else None.
        count: returns `operators`, by running the program once more; None where it cannot be run again.
    """

    findings: tuple[Finding, ...]
    outputs: tuple[Figures, ...]
    computed_by: tuple[str, ...] = ()
    advice: tuple[Advice, ...] = ()
    saturated: float | None = None
    count: CountOperators | None = field(default=None, repr=False, compare=False)

    @property
    def operators(self) -> tuple[OperatorCost, ...]:
        """Return the cost of each operator, as `RunResult.operators` does; of several runs, the first."""
        return counted_operators(self.count)

    @property
    def ok(self) -> bool:
        """Tell whether nothing is wrong; there may be warnings."""
        return all(finding.kind in WARNINGS for finding in self.findings)

    @property
    def warnings(self) -> tuple[Finding, ...]:
        """Return the findings that do not prove the outputs wrong, but show that the comparison proves little."""
        return tuple(finding for finding in self.findings if finding.kind in WARNINGS)

    @property
    def errors(self) -> tuple[Finding, ...]:
        """Return the findings that prove the outputs wrong, gravest first."""
        order = list(FindingKind)
        wrong = (finding for finding in self.findings if finding.kind not in WARNINGS)
        return tuple(sorted(wrong, key=lambda finding: (order.index(finding.kind), finding.output)))

    def raise_for_verdict(self, target: str) -> None:
        """Raise Mismatch if anything is wrong: the gravest finding, its distances, elements, cause and next step."""
        errors = self.errors
        if not errors:
            return
        first = errors[0]
        mine = [error for error in errors if error.output == first.output]
        advice = self.advice[first.output] if self.advice else Advice()
        distance = str(self.outputs[first.output]) if self.outputs else ""
        elements = next((error.elements for error in mine if error.elements), ())
        details = [("distance", distance), *elements, ("cause", advice.cause)]
        raise Mismatch(
            f"output {first.output}: {first.kind.value}: {first.message}",
            target=target,
            operator=self.computed_by[first.output] if self.computed_by else "",
            details=[(label, text) for label, text in details if text],
            hint=advice.hint,
            log="\n".join(map(str, (*errors, *self.warnings))),
        )


def worst(comparisons: Sequence[Comparison]) -> Comparison:
    """Return one comparison for several runs of a program: all findings, and the worst figures of each output."""
    outputs = zip(*(one.outputs for one in comparisons), strict=True)
    findings = tuple(finding for one in comparisons for finding in one.findings)
    return replace(comparisons[0], findings=findings, outputs=tuple(map(_worst, outputs)))


def _worst(figures: Sequence[Figures]) -> Figures:
    def known(name: str) -> list[Any]:
        return [value for one in figures if (value := getattr(one, name)) is not None]

    return Figures(
        max_quanta=max(known("max_quanta"), default=None),
        fake_quant_quanta=max(known("fake_quant_quanta"), default=None),
        max_abs_error=max(known("max_abs_error"), default=None),
        sqnr_db=min(known("sqnr_db"), default=None),
        authority=figures[0].authority,
    )
