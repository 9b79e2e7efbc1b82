"""Outputs against references: the rules of DESIGN, "Truth and tolerance". Works without torch.

Differences in quanta are taken on the integer tensor before the final dequantize, recovered from the float output as
``output / scale + zero_point``, which is exact to far less than half a quantum for int8 and int16.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final

import numpy as np

from harness.errors import Mismatch
from harness.program import (
    Array,
    HostTensor,
    OutputQuantization,
    PteFile,
    References,
    ValueKind,
    computing_operator,
    output_quantization,
)

VACUOUS_QUANTA: Final = 4
SATURATION_OUTPUT: Final = 0.01  # of the elements, wrongly at a bound
SATURATION_REFERENCE: Final = 0.10  # of the elements; min-max observers put one or two there by construction
COLLAPSE_RANGE: Final = 0.10  # of the reference's range


@dataclass(frozen=True, slots=True)
class Tolerance:
    """``qtol`` in quanta, ``atol`` and ``rtol`` as in numpy.allclose, ``eager_sqnr`` in dB."""

    qtol: int = 0
    atol: float = 1e-3
    rtol: float = 1e-3
    eager_sqnr: float = 15.0


@dataclass(frozen=True, slots=True)
class DialectDifference:
    """Where ExecuTorch's Python operator and CMSIS-NN's arithmetic are known to differ.

    ``bound`` is in quanta, at the output of a program that contains the operator; ``source`` says where that was
    measured.
    """

    operator: str
    bound: int
    reason: str
    source: str


_MEAN: Final = (
    "a mean that lies halfway between two integers: CMSIS-NN rounds the integers' mean away from zero, the dialect the "
    "float mean less the zero point to even"
)

DIALECT_DIFFERENCES: tuple[DialectDifference, ...] = (
    DialectDifference(
        "cortex_m::quantized_avg_pool2d.out", 1, _MEAN, "CMSIS-NN arm_avgpool_s8.c; tests/targets/test_differences.py"
    ),
    DialectDifference(
        "cortex_m::quantized_avg_pool2d_nhwc.out", 1, _MEAN,
        "CMSIS-NN arm_avgpool_s8.c; tests/targets/test_differences.py",
    ),
    DialectDifference(
        "cortex_m::quantized_div.out", 1,
        "a quotient that lies halfway between two integers: ExecuTorch's kernel rounds it away from zero, the dialect "
        "to even",
        "ExecuTorch op_quantized_div.cpp; tests/targets/test_differences.py",
    ),
)  # fmt: skip
"""The one table. An entry that no longer occurs fails tests/targets/test_differences.py."""


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
    VACUOUS = "vacuous"
    REFERENCE_SATURATION = "reference_saturation"


_QUANTISED: Final = (np.dtype("int8"), np.dtype("int16"))
"""Integers of these dtypes are quanta; other integers (indices, truth values) agree or do not."""
WARNINGS: Final = frozenset({Kind.VACUOUS, Kind.REFERENCE_SATURATION})


@dataclass(frozen=True, slots=True)
class Finding:
    """One rule that output number ``output`` breaks; ``index`` is that of the element the message speaks of."""

    kind: Kind
    output: int
    message: str
    index: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True)
class Figures:
    """Worst figures of one output; None where there was nothing to compare with.

    ``max_quanta`` against the dialect, ``max_abs_error`` against fake-quant (else eager), ``sqnr_db`` against eager.
    """

    max_quanta: int | None = None
    max_abs_error: float | None = None
    sqnr_db: float | None = None


@dataclass(frozen=True, slots=True)
class Comparison:
    """Everything that was found, and the figures per output."""

    findings: tuple[Finding, ...]
    outputs: tuple[Figures, ...]
    likely: tuple[str, ...] = ()
    """Per output: the operator that computed it, and what a collapse of it usually means ("" unknown)."""
    operators: tuple[str, ...] = ()

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
        """Mismatch if anything is wrong. Its first line alone is enough to act on; the log has all findings."""
        errors = self.errors
        if not errors:
            return
        first = errors[0]
        # The first differing element is told by the value rules; a collapse or a saturation borrows it.
        value = next((e for e in errors if e.output == first.output and e.index is not None), None)
        detail = f"; {value.message}" if value is not None and value is not first else ""
        cause = self.likely[first.output] if first.kind is Kind.COLLAPSE and self.likely else ""
        message = f"output {first.output}: {first.kind.value}: {first.message}{detail}"
        log = "\n".join(f"output {f.output}: {f.kind.value}: {f.message}" for f in (*errors, *self.warnings))
        raise Mismatch(
            message + (f"; likely cause: {cause}" if cause else ""),
            target=target,
            operator=self.operators[first.output] if self.operators else "",
            hint="another target of the same ISA class tells the program from the target",
            log=log,
        )


def compare(
    program_file: PteFile,
    outputs: Sequence[HostTensor],
    references: References,
    tolerance: Tolerance,
    unwritten: Sequence[Array] | None = None,
) -> Comparison:
    """Compare outputs, in order, with whatever references there are.

    ``unwritten`` has a bool mask per output, of logical shape: True where two runs with complementary poison both
    left the poison.
    """
    wanted = len(program_file.outputs)
    if len(outputs) != wanted:
        text = f"the program has {wanted} outputs, {len(outputs)} arrived"
        return Comparison((Finding(Kind.SHAPE, 0, text),), ())
    results = [
        _Output(
            number=number,
            actual=outputs[number],
            quantization=output_quantization(program_file, number),
            tolerance=tolerance,
            allowance=_allowance(program_file),
            dialect=_pick(references.dialect, number),
            quantized=_pick(references.quantized, number),
            eager=_pick(references.eager, number),
            unwritten=None if unwritten is None else unwritten[number],
        ).compare()
        for number in range(wanted)
    ]
    made_by = [computing_operator(program_file, number) for number in range(wanted)]
    return Comparison(
        findings=tuple(finding for found, _ in results for finding in found),
        outputs=tuple(figures for _, figures in results),
        likely=tuple(_likely_cause(program_file, number) for number in range(wanted)),
        operators=tuple(instruction.operator if instruction is not None else "" for instruction in made_by),
    )


def _pick(arrays: tuple[Array, ...] | None, number: int) -> Array | None:
    return arrays[number] if arrays is not None and number < len(arrays) else None


def _allowance(file: PteFile) -> int:
    """Quanta the table grants a program."""
    used = {instruction.operator for instruction in file.instructions}
    return max((entry.bound for entry in DIALECT_DIFFERENCES if entry.operator in used), default=0)


def _likely_cause(file: PteFile, number: int) -> str:
    """What a collapsed output of this program most often means."""
    made_by = computing_operator(file, number)
    if made_by is None:
        return ""
    if made_by.operator != "cortex_m::quantized_linear.out" or len(made_by.args) < 4:
        return f"{made_by.operator} (instruction {made_by.index}) or what feeds it"
    where = f"quantized_linear (instruction {made_by.index})"
    if file.values[made_by.args[3]].kind is ValueKind.NULL:
        return f"{where} has bias and no kernel_sum (the DSP/SCALAR layout): a runtime that drops the bias"
    return f"{where} folds the bias into kernel_sum (the MVE layout), which a DSP or SCALAR runtime ignores"


@dataclass(frozen=True)
class _Output:
    """One output with everything it is compared with."""

    number: int
    actual: HostTensor
    quantization: OutputQuantization | None
    tolerance: Tolerance
    allowance: int
    dialect: Array | None
    quantized: Array | None
    eager: Array | None
    unwritten: Array | None

    def compare(self) -> tuple[list[Finding], Figures]:
        # Wrong outputs may be of any size; a float that overflows on the way is wrong all the same.
        with np.errstate(over="ignore", invalid="ignore"):
            return self._compare()

    def _compare(self) -> tuple[list[Finding], Figures]:
        array = self.actual.array()
        references = [r for r in (self.dialect, self.quantized, self.eager) if r is not None]
        shape = self._shape(array, references)
        if shape is not None:
            return [shape], Figures()
        findings = [*self._unwritten(), *self._not_finite(array, references)]
        if array.dtype.kind != "f":
            return findings + list(self._exact(array, references)), self._integer_figures(array)
        # Non-finite elements have their own finding; the other rules look at the rest through a finite stand-in.
        clean = _finite(array)
        return self._float(array, clean, findings)

    def _float(self, array: Array, clean: Array, findings: list[Finding]) -> tuple[list[Finding], Figures]:
        vacuous = self._vacuous()
        findings += vacuous
        error, figures_error = self._against_float(clean)
        sqnr, sqnr_finding = self._against_eager(clean)
        quanta: int | None = None
        integers = expected = None
        if self.quantization is not None:
            integers = _to_quanta(clean, self.quantization)
            if self.dialect is not None:
                expected = _to_quanta(_finite(self.dialect), self.quantization)
            findings += self._off_grid(array, integers, expected)
            if expected is not None:
                quanta = int(np.abs(integers - expected).max(initial=0))
                findings += self._quanta(integers, expected)
                findings += self._saturation(integers, expected)
        if not vacuous:
            findings += self._collapse(clean, integers, expected)
        findings += [*error, *sqnr_finding]
        return findings, Figures(quanta, figures_error, sqnr)

    def _find(self, kind: Kind, message: str, index: tuple[int, ...] | None = None) -> Finding:
        return Finding(kind, self.number, message, index)

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
            Kind.UNWRITTEN, f"{count} of {self.unwritten.size} elements never written, first at {list(index)}", index
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
                index,
            )

    def _exact(self, array: Array, references: list[Array]) -> Iterator[Finding]:
        if not references:
            return
        wrong = array != references[0]
        if self.dialect is not None and array.dtype in _QUANTISED:
            wrong = _distance(array, self.dialect) > max(self.tolerance.qtol, self.allowance)
        if wrong.any():
            index = _first(wrong)
            yield self._find(
                Kind.EXACT,
                f"{int(wrong.sum())} of {array.size} elements differ, first at {list(index)}: "
                f"expected {references[0][index]}, got {array[index]}",
                index,
            )

    def _integer_figures(self, array: Array) -> Figures:
        if self.dialect is None or array.dtype not in _QUANTISED:
            return Figures()
        return Figures(int(_distance(array, self.dialect).max(initial=0)))

    def _quanta(self, integers: Array, expected: Array) -> Iterator[Finding]:
        limit = max(self.tolerance.qtol, self.allowance)
        difference = np.abs(integers - expected)
        wrong = difference > limit
        if not wrong.any() or self.quantization is None:
            return
        first = _first(wrong)
        worst = tuple(int(i) for i in np.unravel_index(int(difference.argmax()), difference.shape))
        yield self._find(
            Kind.QUANTA,
            f"{int(wrong.sum())} of {wrong.size} elements more than {limit} quanta off, first at {list(first)}: "
            f"{self._pair(expected[first], integers[first])}; "
            f"worst {int(difference.max())} quanta at {list(worst)}: {self._pair(expected[worst], integers[worst])}",
            first,
        )

    def _pair(self, expected: float, got: float) -> str:
        if self.quantization is None:
            return f"expected {expected:.6g}, got {got:.6g}"
        scale, zero = self.quantization.scale, self.quantization.zero_point
        wanted, given = (expected - zero) * scale, (got - zero) * scale
        return f"expected {wanted:.6g} (q {int(expected)}), got {given:.6g} (q {int(got)})"

    def _off_grid(self, array: Array, integers: Array, expected: Array | None) -> Iterator[Finding]:
        """The dequantize kernel is one float32 multiplication: anything but its result did not come from it.

        Where the dialect leaves the range too, the program does: quantized_div saturates at int16's -32768, whatever
        the range says.
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
                index,
            )

    def _saturation(self, integers: Array, expected: Array) -> Iterator[Finding]:
        if self.quantization is None or not integers.size:
            return
        limit = max(self.tolerance.qtol, self.allowance)
        q = self.quantization
        # A bound that is the zero point is where a relu puts its zeros.
        for bound in (b for b in (q.qmin, q.qmax) if b != q.zero_point):
            wrong = (integers == bound) & (np.abs(expected - bound) > limit)
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

    def _vacuous(self) -> list[Finding]:
        """A reference so flat that a constant output would pass."""
        reference = next((r for r in (self.dialect, self.quantized, self.eager) if r is not None), None)
        if reference is None:
            return [self._find(Kind.VACUOUS, "no reference: proves nothing about the values")]
        scale = self.quantization.scale if self.quantization is not None else 0.0
        spread = _spread(reference)
        limit = max(2 * self._absolute(), VACUOUS_QUANTA * scale)
        if spread > limit or reference.size == 0:
            return []
        return [
            self._find(
                Kind.VACUOUS,
                f"the reference's range {spread:.3g} is within {limit:.3g} (2 x tolerance or {VACUOUS_QUANTA} quanta): "
                "proves nothing",
            )
        ]

    def _absolute(self) -> float:
        scale = self.quantization.scale if self.quantization is not None else 0.0
        return self.tolerance.atol + self.tolerance.qtol * scale

    def _collapse(self, clean: Array, integers: Array | None, expected: Array | None) -> Iterator[Finding]:
        """Far fewer distinct values, or a far smaller range, than the reference."""
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

    def _against_float(self, clean: Array) -> tuple[list[Finding], float | None]:
        """atol + qtol·scale and rtol against fake-quant, or against eager where nothing is quantised."""
        name, reference = ("fake-quant", self.quantized) if self.quantized is not None else ("eager", self.eager)
        if reference is None or (self.quantization is not None and self.quantized is None):
            return [], None
        # Infinities of the reference were checked already; they would poison the difference.
        finite = np.isfinite(reference)
        expected = np.where(finite, reference.astype(np.float64), clean)
        error = np.abs(clean - expected)
        wrong = error > self._absolute() + self.tolerance.rtol * np.abs(expected)
        worst = float(error.max(initial=0.0))
        if not wrong.any():
            return [], worst
        index = _first(wrong)
        text = (
            f"{int(wrong.sum())} of {wrong.size} elements differ from {name} by more than "
            f"{self._absolute():.3g} + {self.tolerance.rtol:.3g}·|expected|, first at {list(index)}: "
            f"expected {expected[index]:.6g}, got {clean[index]:.6g}; worst {worst:.3g}"
        )
        return [self._find(Kind.QUANTIZED, text, index)], worst

    def _against_eager(self, clean: Array) -> tuple[float | None, list[Finding]]:
        if self.eager is None or not np.isfinite(self.eager).all():
            return None, []
        expected = self.eager.astype(np.float64)
        noise, signal = float(((clean - expected) ** 2).sum()), float((expected**2).sum())
        if noise == 0.0:
            return math.inf, []
        sqnr = 10 * math.log10(signal / noise) if signal else -math.inf
        scale = self.quantization.scale if self.quantization is not None else 0.0
        flat = _spread(self.eager) <= max(2 * self._absolute(), VACUOUS_QUANTA * scale)
        # A signal of a few quanta cannot have a better ratio; the vacuous warning speaks for it.
        if sqnr >= self.tolerance.eager_sqnr or flat:
            return sqnr, []
        bound = self.tolerance.eager_sqnr
        return sqnr, [
            self._find(Kind.EAGER, f"SQNR against the float module is {sqnr:.1f} dB, the bound {bound:.1f} dB")
        ]


def _finite(values: Array) -> Array:
    """As float64, zero where there is no finite value."""
    clean: Array = np.where(np.isfinite(values), values, 0).astype(np.float64)
    return clean


def _to_quanta(values: Array, quantization: OutputQuantization) -> Array:
    """The integers behind dequantised values, as float64 whole numbers."""
    rounded: Array = np.rint(values.astype(np.float64) / np.float64(np.float32(quantization.scale)))
    return rounded + quantization.zero_point


def _distance(integers: Array, expected: Array) -> Array:
    distance: Array = np.abs(integers.astype(np.int64) - expected.astype(np.int64))
    return distance


def _spread(reference: Array) -> float:
    """Largest minus smallest finite value; of a single element its distance from zero."""
    finite = reference[np.isfinite(reference)].astype(np.float64)
    if finite.size == 0:
        return 0.0
    return float(np.ptp(finite)) if finite.size > 1 else float(abs(finite[0]))


def _first(mask: Array) -> tuple[int, ...]:
    return tuple(int(i) for i in np.unravel_index(int(mask.argmax()), mask.shape))
