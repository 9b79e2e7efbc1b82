"""What a comparison found, and the Mismatch that it makes of it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final

from cortex_m_hil.checks.advice import Advice
from cortex_m_hil.errors import Mismatch


class Kind(str, Enum):
    """What a finding is about, gravest first: the order in which one of them becomes the message."""

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


WARNINGS: Final = frozenset({Kind.UNINFORMATIVE, Kind.REFERENCE_SATURATION})


@dataclass(frozen=True, slots=True)
class Finding:
    """One rule that output number ``output`` breaks; ``index`` is that of the element the message speaks of."""

    kind: Kind
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
    """Worst figures of one output; None where there was nothing to compare with.

    ``max_quanta`` against the dialect, ``fake_quant_quanta`` and ``max_abs_error`` against fake-quant (the latter
    against eager where nothing is quantised), ``sqnr_db`` against eager. Where a user says what is expected, the first
    and ``max_abs_error`` are against that, and ``authority`` says so.
    """

    max_quanta: int | None = None
    fake_quant_quanta: int | None = None
    max_abs_error: float | None = None
    sqnr_db: float | None = None
    authority: str = "the dialect"

    def __str__(self) -> str:
        """All distances side by side, those that are known."""
        quanta = [
            f"{distance} {quanta_word(distance)} from {name}"
            for name, distance in ((self.authority, self.max_quanta), ("fake-quant", self.fake_quant_quanta))
            if distance is not None
        ]
        if self.max_abs_error is not None and self.fake_quant_quanta is None:
            quanta.append(f"{self.max_abs_error:.3g} from the reference")
        return ", ".join(quanta + ([f"{self.sqnr_db:.1f} dB from eager"] if self.sqnr_db is not None else []))


def quanta_word(number: int) -> str:
    return "quantum" if number == 1 else "quanta"


@dataclass(frozen=True, slots=True)
class Comparison:
    """Everything that was found, and the figures per output."""

    findings: tuple[Finding, ...]
    outputs: tuple[Figures, ...]
    operators: tuple[str, ...] = ()
    """Per output: the operator that computed it ("" unknown)."""
    advice: tuple[Advice, ...] = ()

    @property
    def ok(self) -> bool:
        return all(finding.kind in WARNINGS for finding in self.findings)

    @property
    def warnings(self) -> tuple[Finding, ...]:
        return tuple(finding for finding in self.findings if finding.kind in WARNINGS)

    @property
    def errors(self) -> tuple[Finding, ...]:
        """Gravest first."""
        order = list(Kind)
        wrong = (finding for finding in self.findings if finding.kind not in WARNINGS)
        return tuple(sorted(wrong, key=lambda finding: (order.index(finding.kind), finding.output)))

    def raise_for_verdict(self, target: str) -> None:
        """Mismatch if anything is wrong: the gravest finding, its distances, elements, cause and next step."""
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
            operator=self.operators[first.output] if self.operators else "",
            details=[(label, text) for label, text in details if text],
            hint=advice.hint,
            log="\n".join(map(str, (*errors, *self.warnings))),
        )
