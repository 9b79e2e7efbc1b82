"""Comparison of outputs with references, by the rules of docs/architecture.md, "Truth and tolerance".

Works without torch. Differences in quanta are taken on the integer tensor before the final dequantize, recovered from
the float output as ``output / scale + zero_point``, which is exact to far less than half a quantum for int8 and int16.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from cortex_m_hil.checks.advice import (
    BOUND,
    EXPECTED,
    LAYOUT,
    LOST,
    LOWERING,
    QUANTISATION,
    READING,
    ROUNDING,
    TARGET,
    Advice,
)
from cortex_m_hil.checks.comparison import DIALECT, WARNINGS, Comparison, Figures, Finding, Kind, quanta_word
from cortex_m_hil.checks.layout import has_kernel_sum
from cortex_m_hil.checks.quanta import QUANTISED, distance, finite, to_quanta
from cortex_m_hil.checks.tolerance import GOOD_SQNR, Spread, Tolerance
from cortex_m_hil.program.dataflow import OutputQuantization, computing_operator, output_quantization, quantised_outputs
from cortex_m_hil.program.model import PteFile
from cortex_m_hil.program.program import References
from cortex_m_hil.program.tensor import Array, HostTensor

UNINFORMATIVE_QUANTA: Final = 4
SATURATION_OUTPUT: Final = 0.01  # share of the elements that are wrongly at a bound
SATURATION_REFERENCE: Final = 0.10  # share of the elements; min-max observers put one or two there by construction
CHOICES: Final = 2  # elements that rounding may change, though it did in none of the disturbed runs
COLLAPSE_RANGE: Final = 0.10  # of the reference's range
OTHER_SCALE: Final = 0.01  # of a quantum; float32 is off by 1e-5 of one
LOST_SQNR: Final = 3.0  # dB: with half of the signal gone, no calibration is only coarse


def compare(
    program_file: PteFile,
    outputs: Sequence[HostTensor],
    references: References,
    tolerance: Tolerance,
    unwritten: Sequence[Array] | None = None,
) -> Comparison:
    """Compare the outputs of a program with all references that there are.

    Args:
        program_file: the parsed program.
        outputs: what the target returned, in order.
        references: any of them may be missing.
        tolerance: how far outputs may be from each reference.
        unwritten: a bool mask per output, of logical shape: True where two runs with complementary poison both left the
            poison. None: not known.
    """
    wanted = len(program_file.outputs)
    if len(outputs) != wanted:
        text = f"the program has {wanted} outputs, {len(outputs)} arrived"
        return Comparison((Finding(Kind.SHAPE, 0, text),), ())
    is_expected = references.expected is not None
    if is_expected:
        references = References(dialect=references.expected, eager=references.eager)
    quanta = quantised_outputs(program_file)
    results = [
        _Output(
            number=number,
            actual=outputs[number],
            quantization=output_quantization(program_file, number),
            is_quanta=number in quanta,
            tolerance=tolerance,
            likely=_likely_cause(program_file, number),
            is_expected=is_expected,
            dialect=_pick(references.dialect, number),
            quantized=_pick(references.quantized, number),
            eager=_pick(references.eager, number),
            disturbed=tuple(run[number] for run in references.disturbed if number < len(run)),
            unwritten=None if unwritten is None else unwritten[number],
        ).compare()
        for number in range(wanted)
    ]
    made_by = [computing_operator(program_file, number) for number in range(wanted)]
    return Comparison(
        findings=tuple(finding for found, _, _ in results for finding in found),
        outputs=tuple(figures for _, figures, _ in results),
        advice=tuple(advice for _, _, advice in results),
        operators=tuple(instruction.operator if instruction is not None else "" for instruction in made_by),
    )


def _pick(arrays: tuple[Array, ...] | None, number: int) -> Array | None:
    return arrays[number] if arrays is not None and number < len(arrays) else None


def _likely_cause(file: PteFile, number: int) -> str:
    """Return the most frequent cause of a collapsed output of this program, "" where none is known."""
    made_by = computing_operator(file, number)
    if made_by is None:
        return ""
    folded = has_kernel_sum(file, made_by)
    if folded is None:
        return f"{made_by.operator} (instruction {made_by.index}) or what feeds it"
    where = f"quantized_linear (instruction {made_by.index})"
    if not folded:
        return f"{where} has bias and no kernel_sum (the DSP/SCALAR layout): a runtime that drops the bias"
    return f"{where} folds the bias into kernel_sum (the MVE layout), which a DSP or SCALAR runtime ignores"


@dataclass(frozen=True)
class _Output:
    """An output with everything it is compared with.

    Attributes:
        is_quanta: whether it is integers that stand for numbers by a scale, and not choices.
        likely: the likely cause of a collapse.
        is_expected: whether ``dialect`` is what a user says it is; ``eager`` is the same where that is judged by its
            SQNR.
        disturbed: the outputs of disturbed runs of the fake-quantised module.
    """

    number: int
    actual: HostTensor
    quantization: OutputQuantization | None
    is_quanta: bool
    tolerance: Tolerance
    likely: str
    is_expected: bool
    dialect: Array | None
    quantized: Array | None
    eager: Array | None
    disturbed: tuple[Array, ...]
    unwritten: Array | None

    def compare(self) -> tuple[list[Finding], Figures, Advice]:
        # Wrong outputs may be of any size; a float that overflows on the way is wrong all the same.
        with np.errstate(over="ignore", invalid="ignore"):
            findings, figures = self._compare()
            return findings, figures, self._advice({finding.kind for finding in findings} - WARNINGS, figures)

    def _advice(self, kinds: set[Kind], figures: Figures) -> Advice:
        if not kinds:
            return Advice()
        if self.dialect is None or kinds & {Kind.SHAPE, Kind.UNWRITTEN}:
            return Advice(hint=READING)
        if Kind.COLLAPSE in kinds and self.likely:
            layout = "quantized_linear" in self.likely
            general = EXPECTED.hint if self.is_expected else TARGET.hint
            return Advice(self.likely, f"{LAYOUT}; {READING}" if layout else general)
        if self.is_expected:
            return EXPECTED
        if kinds == {Kind.EAGER}:
            return self._quantisation(figures)
        if kinds == {Kind.QUANTIZED} and self._is_rounding():
            return ROUNDING
        return LOWERING if kinds <= {Kind.QUANTIZED, Kind.EAGER} and self._agrees_with_dialect() else TARGET

    def _quantisation(self, figures: Figures) -> Advice:
        """Return what to say of an SQNR under its bound, and nothing else wrong: the bound, or what is reached."""
        if figures.sqnr_db is None or figures.sqnr_db <= LOST_SQNR:
            return LOST
        return QUANTISATION if figures.sqnr_db < GOOD_SQNR else BOUND

    def _agrees_with_dialect(self) -> bool:
        """Tell whether the output agrees with the dialect, apart from differences that have findings of their own.

        Where there is a quantisation, all differences have.
        """
        if self.quantization is not None or self.dialect is None:
            return self.dialect is not None
        near = np.isclose(self.actual.array(), self.dialect, self.tolerance.rtol, self.tolerance.atol, equal_nan=True)
        return bool(near.all())

    def _compare(self) -> tuple[list[Finding], Figures]:
        array = self.actual.array()
        references = self._references()
        shape = self._shape(array, references)
        if shape is not None:
            return [shape], Figures()
        findings = [*self._unwritten(), *self._not_finite(array, references), *self._uninformative()]
        findings += self._reference_not_finite(array)
        if array.dtype.kind != "f":
            differ = list(self._exact(array, references))
            others = self._other_quanta if self.is_quanta else self._choices
            return findings + (differ or list(others(array))), self._integer_figures(array)
        # Non-finite elements have their own finding; the other rules look at the rest with zero in their place.
        return self._float(array, finite(array), findings)

    def _references(self) -> list[Array]:
        return [reference for reference in (self.dialect, self.quantized, self.eager) if reference is not None]

    def _float(self, array: Array, clean: Array, findings: list[Finding]) -> tuple[list[Finding], Figures]:
        sqnr, worse_than_eager = self._against_eager(clean)
        quanta = fake_quanta = integers = expected = None
        if self.quantization is None:
            error, apart = self._against_float(clean)
        else:
            integers = to_quanta(clean, self.quantization)
            if self.dialect is not None:
                expected = to_quanta(finite(self.dialect), self.quantization)
                quanta = int(np.abs(integers - expected).max(initial=0))
                if not self._is_judged_by_sqnr():
                    findings += self._quanta(integers, expected)
                    findings += self._saturation(integers, expected)
            findings += self._off_grid(array, integers, expected)
            apart, fake_quanta, error = self._against_fake_quant(clean, integers)
        if not any(finding.kind is Kind.UNINFORMATIVE for finding in findings):
            findings += self._collapse(clean, integers, expected)
        return findings + apart + worse_than_eager, Figures(quanta, fake_quanta, error, sqnr, self._authority())

    def _authority(self) -> str:
        return "what is expected" if self.is_expected else DIALECT

    def _is_judged_by_sqnr(self) -> bool:
        """Tell whether expected values, computed by other arithmetic, are judged by their SQNR: all must be finite."""
        return self.is_expected and self.eager is not None and bool(np.isfinite(self.eager).all())

    def _find(self, kind: Kind, message: str, wrong: Array | None = None, *elements: tuple[str, str]) -> Finding:
        """Return a finding about this output; ``wrong`` masks the elements that the message is about."""
        return Finding(kind, self.number, message, None if wrong is None else _first(wrong), elements)

    def _shape(self, array: Array, references: list[Array]) -> Finding | None:
        for reference in references:
            if reference.shape != array.shape or reference.dtype != array.dtype:
                return self._find(
                    Kind.SHAPE,
                    f"{array.dtype}{list(array.shape)} came back, the reference is "
                    f"{reference.dtype}{list(reference.shape)}",
                )
        return None

    def _unwritten(self) -> Iterator[Finding]:
        if self.unwritten is None or not self.unwritten.any():
            return
        index = _first(self.unwritten)
        count = int(self.unwritten.sum())
        yield self._find(
            Kind.UNWRITTEN,
            f"{count} of {self.unwritten.size} elements never written, first at {list(index)}",
            self.unwritten,
        )

    def _not_finite(self, array: Array, references: list[Array]) -> Iterator[Finding]:
        if array.dtype.kind != "f":
            return
        expected = references[0] if references else np.zeros_like(array)
        same = (array == expected) | (np.isnan(array) & np.isnan(expected))
        wrong = ~same & ~(np.isfinite(array) & np.isfinite(expected))
        if wrong.any():
            index = _first(wrong)
            yield self._find(
                Kind.NAN,
                f"{int(wrong.sum())} of {array.size} elements not finite, or not where the reference is not; "
                f"first {array[index]} at {list(index)}",
                wrong,
            )

    def _exact(self, array: Array, references: list[Array]) -> Iterator[Finding]:
        if not references:
            return
        wrong = self._differs(array, references[0])
        if wrong.any():
            index = _first(wrong)
            yield self._find(
                Kind.EXACT,
                f"{int(wrong.sum())} of {array.size} elements differ{self._by(array, references[0])}",
                wrong,
                ("first", f"{list(index)}: expected {references[0][index]}, got {array[index]}"),
            )

    def _by(self, array: Array, reference: Array) -> str:
        """Return by how much integers differ that are quanta, "" for others."""
        if not self.is_quanta:
            return ""
        most = int(distance(array, reference).max(initial=0))
        return f", by up to {most} {quanta_word(most)}"

    def _differs(self, array: Array, reference: Array) -> Array:
        """Return a mask of the elements that differ from a reference, by more than `qtol` where they are quanta."""
        if array.dtype not in QUANTISED:
            return np.asarray(array != reference)
        return np.asarray(distance(array, reference) > self.tolerance.qtol)

    def _choices(self, array: Array) -> Iterator[Finding]:
        """Yield findings where integers that the module chose, such as an index of the largest, were chosen otherwise.

        They are compared with the choices of fake-quant and eager. Two values that are nearly equal change places by
        rounding. Other choices than fake-quant's are wrong where the disturbed runs do not explain them; with a
        `fake_quant_qtol` above 0 all may be due to these quanta. Other choices than eager's are never wrong: it is not
        known how coarse the quantisation may be.
        """
        if self.is_expected:
            return
        told = []
        if self.quantized is not None:
            wrong = self._differs(array, self.quantized)
            explained = Spread.explained([self._differs(run, self.quantized) for run in self.disturbed]).elements
            limit = self.tolerance.fake_quant_qtol
            allowed = explained + CHOICES if limit is None else math.inf if limit else 0
            why = f"rounding explains {explained:.0f}" if limit is None else f"fake_quant_qtol is {limit}"
            text = f"{int(wrong.sum())} of {wrong.size} elements are not fake-quant's ({why})"
            if wrong.sum() > allowed:
                yield self._find(Kind.QUANTIZED, text, wrong)
            elif wrong.any():
                told.append(text)
        if self.eager is not None and (wrong := self._differs(array, self.eager)).any():
            told.append(f"{int(wrong.sum())} of {wrong.size} elements are not the float module's")
        if told:
            yield self._find(Kind.OTHER_CHOICES, ", ".join(told))

    def _other_quanta(self, array: Array) -> Iterator[Finding]:
        """Yield findings where integers that stand for numbers are far from fake-quant's or the float module's.

        Fake-quant's are compared as the integers behind floats are. The scale is not in the program: instead of the
        SQNR against the float module there is one about the mean, which is no better, and so proves nothing wrong.
        """
        if self.is_expected:
            return
        if self.quantized is not None:
            deviation = _deviation(array, self.quantized)
            right, wrong, why = self._explained(deviation)
            if not right:
                text = f"{_off(deviation)} fake-quant, and {deviation.mean():+.2g} on average ({why})"
                yield self._find(Kind.QUANTIZED, text, wrong)
        if self.eager is not None and (deviation := _deviation(array, self.eager)).any():
            sqnr = _decibels(self.eager - self.eager.mean(dtype=np.float64), deviation)
            is_met = np.abs(deviation).max() <= self._flatness(self.eager)
            is_flat = self.eager.size == 1 or self._is_flat(self.eager)
            if sqnr < self.tolerance.eager_sqnr and not (is_met and is_flat):
                why = f"SQNR about the mean {sqnr:.1f} dB, the bound {self.tolerance.eager_sqnr:.1f} dB"
                yield self._find(Kind.OTHER_CHOICES, f"{_off(deviation)} the float module ({why})")

    def _integer_figures(self, array: Array) -> Figures:
        """Return the distances of quantised integers, in quanta; choices have one from the dialect at most."""
        if array.dtype not in QUANTISED:
            return Figures()
        against = self.dialect, self.quantized if self.is_quanta and not self.is_expected else None
        quanta, fake = (None if one is None else int(distance(array, one).max(initial=0)) for one in against)
        return Figures(quanta, fake, authority=self._authority())

    def _quanta(self, integers: Array, expected: Array) -> Iterator[Finding]:
        difference = np.abs(integers - expected)
        wrong = difference > self.tolerance.qtol
        if wrong.any():
            most = int(difference.max())
            allowed = f" ({self.tolerance.qtol} allowed)" if self.tolerance.qtol else ""
            yield self._find(
                Kind.QUANTA,
                f"{int(wrong.sum())} of {wrong.size} elements off, by up to {most} {quanta_word(most)}{allowed}",
                wrong,
                *self._elements(wrong, difference, expected, integers),
            )

    def _elements(self, wrong: Array, error: Array, expected: Array, got: Array) -> Iterator[tuple[str, str]]:
        """Yield the first wrong element, and the worst one unless it is the first."""
        first, worst = _first(wrong), _first(error == error.max())
        yield "first", f"{list(first)}: {self._pair(expected[first], got[first])}"
        if worst != first:
            yield "worst", f"{list(worst)}: {self._pair(expected[worst], got[worst])}"

    def _pair(self, expected: float, got: float) -> str:
        if self.quantization is None:
            return f"expected {expected:.6g}, got {got:.6g}"
        scale, zero = self.quantization.scale, self.quantization.zero_point
        wanted, given = (expected - zero) * scale, (got - zero) * scale
        return f"expected {wanted:.6g} (q {int(expected)}), got {given:.6g} (q {int(got)})"

    def _off_grid(self, array: Array, integers: Array, expected: Array | None) -> Iterator[Finding]:
        """Yield a finding for values that the dequantize kernel cannot give: it is one float32 multiplication.

        Integers beyond the range pass where the dialect leaves it too, as then the program does: quantized_div
        saturates at int16's -32768, whatever the range says.
        """
        if self.quantization is None:
            return
        q = self.quantization
        grid = (integers - q.zero_point).astype(np.float32) * np.float32(q.scale)
        slack = 4 * np.spacing(np.maximum(np.abs(grid), np.float32(q.scale)))
        outside = (integers < q.qmin) | (integers > q.qmax)
        if expected is not None:
            outside &= integers != expected
        wrong = np.isfinite(array) & ((np.abs(array - grid) > slack) | outside)
        if wrong.any():
            index = _first(wrong)
            yield self._find(
                Kind.OFF_GRID,
                f"{int(wrong.sum())} of {wrong.size} elements are off the quantised range (scale {q.scale:.6g}, "
                f"zero point {q.zero_point}, {q.qmin} to {q.qmax}), first {array[index]:.9g} at {list(index)}",
                wrong,
            )

    def _saturation(self, integers: Array, expected: Array) -> Iterator[Finding]:
        if self.quantization is None or not integers.size:
            return
        q = self.quantization
        # A bound that is the zero point is where a relu puts its zeros.
        for bound in (b for b in (q.qmin, q.qmax) if b != q.zero_point):
            wrong = (integers == bound) & (np.abs(expected - bound) > self.tolerance.qtol)
            if wrong.mean() >= SATURATION_OUTPUT:
                yield self._find(
                    Kind.SATURATION,
                    f"{int(wrong.sum())} of {wrong.size} elements sit at {bound}, the reference's do not",
                )
            pinned = int((expected == bound).sum())
            if pinned > max(2, SATURATION_REFERENCE * expected.size):
                yield self._find(
                    Kind.REFERENCE_SATURATION,
                    f"{pinned} of {expected.size} elements of the reference itself sit at {bound}: "
                    "the quantisation range is too small, or the lowering pins them",
                )

    def _reference_not_finite(self, array: Array) -> Iterator[Finding]:
        """Yield a warning where the module's value is infinite or NaN and the output's is finite.

        A quantised output has a largest value.
        """
        if self.eager is None or self.is_expected or array.dtype.kind != "f":
            return
        wrong = np.isfinite(array) & ~np.isfinite(self.eager)
        if wrong.any():
            text = f"{int(wrong.sum())} of {wrong.size} elements of the float module are not finite, the output's are"
            yield self._find(Kind.REFERENCE_NOT_FINITE, f"{text}: not in the SQNR", wrong)

    def _uninformative(self) -> Iterator[Finding]:
        """Yield a warning for a reference so flat that a constant output would pass, or for none at all."""
        references = self._references()
        if not references:
            yield self._find(Kind.UNINFORMATIVE, "no reference: proves nothing about the values")
        elif references[0].size == 0:
            yield self._find(Kind.UNINFORMATIVE, "no elements: proves nothing")
        elif self._is_flat(references[0]):
            spread, flat = _spread(references[0]), self._flatness(references[0])
            limit = f"{flat:.3g} (2 x tolerance or {UNINFORMATIVE_QUANTA} quanta)"
            text = f"the reference's range {spread:.3g} is within {limit}: proves nothing"
            yield self._find(Kind.UNINFORMATIVE, text)

    def _is_flat(self, reference: Array) -> bool:
        """Tell whether a reference is so flat that a constant output would pass.

        A single integer is not flat; several that are all alike are.
        """
        if reference.dtype.kind != "f" and reference.size == 1:
            return False
        return _spread(reference) <= self._flatness(reference)

    def _flatness(self, reference: Array) -> float:
        """Return the range that proves nothing, in the reference's unit: what the tolerance lets pass."""
        quanta = max(UNINFORMATIVE_QUANTA, 2 * self.tolerance.qtol, 2 * (self.tolerance.fake_quant_qtol or 0))
        if self.quantization is not None:
            return quanta * self.quantization.scale
        if reference.dtype.kind == "f":
            return 2 * self.tolerance.atol
        return quanta if reference.dtype in QUANTISED else 0.0

    def _collapse(self, clean: Array, integers: Array | None, expected: Array | None) -> Iterator[Finding]:
        """Yield a finding for far fewer distinct values, or a far smaller range, than the reference has."""
        reference = next((r for r in (self.dialect, self.quantized, self.eager) if r is not None), None)
        if reference is None or reference.size < 2:
            return
        if integers is not None and expected is not None:
            have, want = len(np.unique(integers)), len(np.unique(expected))
            if 2 * have < want:
                yield self._find(Kind.COLLAPSE, f"{have} distinct values of {clean.size}; the reference has {want}")
                return
        got, wide = float(np.ptp(clean)), _spread(reference)
        if got <= COLLAPSE_RANGE * wide:
            yield self._find(Kind.COLLAPSE, f"nearly constant: a range of {got:.3g}; the reference's is {wide:.3g}")

    def _against_fake_quant(self, clean: Array, integers: Array) -> tuple[list[Finding], int | None, float | None]:
        """Compare a quantised output with fake-quant, by `fake_quant_qtol` or as far as rounding explains.

        Returns:
            The findings, and the worst distance, in quanta and in units of the output; None without a reference.
        """
        if self.quantized is None or self.quantization is None:
            return [], None, None
        reference = finite(self.quantized)
        expected = to_quanta(reference, self.quantization)
        deviation = integers - expected
        most = int(np.abs(deviation).max(initial=0))
        worst = float(np.abs(clean - reference).max(initial=0.0))
        right, wrong, why = self._explained(deviation)
        findings = list(self._other_scale(reference, expected))
        if not right:
            text = (
                f"{int(wrong.sum())} of {wrong.size} elements off fake-quant, by up to {most} {quanta_word(most)} and "
                f"{deviation.mean():+.2g} on average ({why})"
            )
            elements = self._elements(wrong, np.abs(deviation), expected, integers)
            findings.append(self._find(Kind.QUANTIZED, text, wrong, *elements))
        return findings, most, worst

    def _rounding(self) -> Spread:
        """Return how much of this output's deviation from fake-quant rounding explains."""
        if self.quantized is not None and self.is_quanta:
            return Spread.explained([_deviation(run, self.quantized) for run in self.disturbed])
        if self.quantized is None or self.quantization is None:
            return Spread()
        undisturbed, *runs = (to_quanta(finite(run), self.quantization) for run in (self.quantized, *self.disturbed))
        return Spread.explained([run - undisturbed for run in runs])

    def _is_rounding(self) -> bool:
        """Tell whether the default tolerance would let pass what `fake_quant_qtol` does not."""
        if self.quantized is not None and self.is_quanta:
            return self._is_within(_deviation(self.actual.array(), self.quantized), self._rounding())
        if self.quantized is None or self.quantization is None:
            return False
        found, expected = (to_quanta(finite(one), self.quantization) for one in (self.actual.array(), self.quantized))
        return self._is_within(found - expected, self._rounding())

    def _is_within(self, deviation: Array, bound: Spread) -> bool:
        """Tell whether a deviation from fake-quant is within a bound, less the `qtol` allowed from the dialect."""
        return Spread.of(np.sign(deviation) * np.maximum(np.abs(deviation) - self.tolerance.qtol, 0)).within(bound)

    def _explained(self, deviation: Array) -> tuple[bool, Array, str]:
        """Return whether the deviation from fake-quant is right, a mask of the wrong elements, and what is allowed."""
        limit = self.tolerance.fake_quant_qtol
        if limit is not None:
            wrong = np.abs(deviation) > limit
            return not wrong.any(), wrong, f"{limit} allowed"
        bound = self._rounding()
        drift = bound.drift / max(1, deviation.size)
        why = f"rounding explains {int(bound.elements)}, {int(bound.worst)} and {drift:.2g}"
        return self._is_within(deviation, bound), deviation != 0, why

    def _other_scale(self, reference: Array, expected: Array) -> Iterator[Finding]:
        """Yield a finding where fake-quant's values are not multiples of the program's output scale.

        If these were counted in the program's quanta, another scale of the last dequantize would look like rounding.
        """
        assert self.quantization is not None
        grid = (expected - self.quantization.zero_point) * np.float64(np.float32(self.quantization.scale))
        if (np.abs(reference - grid) > OTHER_SCALE * self.quantization.scale).any():
            text = f"fake-quant's values are not multiples of the program's output scale {self.quantization.scale:.6g}"
            yield self._find(Kind.QUANTIZED, text)

    def _against_float(self, clean: Array) -> tuple[float | None, list[Finding]]:
        """Compare a float output by atol and rtol with expected values, else fake-quant, else eager.

        Returns:
            The largest error, None without a reference, and the findings.
        """
        name, reference = ("fake-quant", self.quantized) if self.quantized is not None else ("eager", self.eager)
        if self.is_expected:
            name, reference = self._authority(), self.dialect
        if reference is None:
            return None, []
        # Infinities of the reference were checked already; they would poison the difference.
        finite = np.isfinite(reference)
        expected = np.where(finite, reference.astype(np.float64), clean)
        error = np.abs(clean - expected)
        wrong = error > self.tolerance.atol + self.tolerance.rtol * np.abs(expected)
        worst = float(error.max(initial=0.0))
        if not wrong.any():
            return worst, []
        text = (
            f"{int(wrong.sum())} of {wrong.size} elements differ from {name} by more than "
            f"{self.tolerance.atol:.3g} + {self.tolerance.rtol:.3g}·|expected|, by up to {worst:.3g}"
        )
        return worst, [self._find(Kind.QUANTIZED, text, wrong, *self._elements(wrong, error, expected, clean))]

    def _against_eager(self, clean: Array) -> tuple[float | None, list[Finding]]:
        """Return the SQNR over the elements that are finite in eager, and the findings about it.

        The SQNR is None where there is nothing to compare with.
        """
        if self.eager is None:
            return None, []
        known = np.isfinite(self.eager)
        if not known.any() or (self.is_expected and not self._is_judged_by_sqnr()):
            return None, []
        expected, clean = self.eager[known].astype(np.float64), clean[known]
        noise = clean - expected
        sqnr, worst = _decibels(expected, noise), float(np.abs(noise).max())
        # A signal of a few quanta cannot have a better ratio when it is met to a few quanta; the warning
        # of an uninformative reference speaks for it.
        if sqnr == math.inf or (worst <= self._flatness(self.eager) and self._is_flat(self.eager)):
            return sqnr, []
        bound, name = self.tolerance.eager_sqnr, self._authority() if self.is_expected else "the float module"
        if sqnr >= bound:
            return sqnr, list(self._offset(expected, noise, f"SQNR against {name} is {sqnr:.1f} dB"))
        return sqnr, [self._find(Kind.EAGER, f"SQNR against {name} is {sqnr:.1f} dB, the bound {bound:.1f} dB")]

    def _offset(self, expected: Array, noise: Array, text: str) -> Iterator[Finding]:
        """Yield a warning where the SQNR is within its bound by an offset that all elements share.

        About the mean a constant has 0 dB at most. A right output whose variation is a few quanta has little more, and
        of few elements the offset may be the signal: it proves nothing wrong. No constant is within half the range that
        proves nothing of elements that vary by more than that range.
        """
        about_mean, bound = _decibels(expected - expected.mean(), noise), self.tolerance.eager_sqnr
        is_near = float(np.abs(noise).max()) <= self._flatness(expected) / 2
        if about_mean < bound and expected.size > 1 and not is_near:
            text += f" with the offset that all elements share, {about_mean:.1f} dB about their mean"
            yield self._find(Kind.OFFSET, f"{text} (the bound {bound:.1f} dB)")


def _decibels(signal: Array, noise: Array) -> float:
    """Return the ratio of the powers of signal and noise; infinite without noise, minus infinite without signal."""
    power, lost = float((signal**2).sum()), float((noise**2).sum())
    if not lost:
        return math.inf
    return 10 * math.log10(power / lost) if power else -math.inf


def _spread(reference: Array) -> float:
    """Return the largest minus the smallest finite value; for a single element its distance from zero."""
    finite = reference[np.isfinite(reference)].astype(np.float64)
    if finite.size == 0:
        return 0.0
    return float(np.ptp(finite)) if finite.size > 1 else float(abs(finite[0]))


def _deviation(integers: Array, expected: Array) -> Array:
    apart: Array = integers.astype(np.float64) - expected.astype(np.float64)
    return apart


def _off(deviation: Array) -> str:
    most = int(np.abs(deviation).max(initial=0))
    return f"{int((deviation != 0).sum())} of {deviation.size} elements are up to {most} {quanta_word(most)} off"


def _first(mask: Array) -> tuple[int, ...]:
    return tuple(int(i) for i in np.unravel_index(int(mask.argmax()), mask.shape))
