"""One output of a run with its references and tolerance, and the quantities that the rules of a comparison need."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np

from cortex_m_hil.checks.comparison_result import DIALECT, Finding, FindingKind
from cortex_m_hil.checks.quanta import QUANTISED, finite, to_quanta
from cortex_m_hil.checks.tolerance import Tolerance
from cortex_m_hil.program.dataflow import Quantization
from cortex_m_hil.program.io_quantization import output_quantization
from cortex_m_hil.program.pte_file import PteFile
from cortex_m_hil.program.tensor import Array

UNINFORMATIVE_QUANTA: Final = 4


@dataclass(frozen=True)
class ComparedOutput:
    """An output with everything it is compared with.

    Attributes:
        file: the program.
        number: its number, from 0.
        array: what the target returned, in the logical shape; integers whose scale the program's constants tell are the
            floats that they stand for, here and in the references.
        is_expected: whether ``dialect`` is what a user says it is; ``eager`` is the same where that is judged by its
            SQNR.
        disturbed: the outputs of disturbed runs of the fake-quantised module.
        unwritten: a mask of the elements that nobody wrote; None: not known.
    """

    file: PteFile
    number: int
    array: Array
    tolerance: Tolerance
    is_expected: bool
    dialect: Array | None
    quantized: Array | None
    eager: Array | None
    disturbed: tuple[Array, ...]
    unwritten: Array | None

    @property
    def quantization(self) -> Quantization | None:
        """Return that of the integers behind a float output; None where there are none."""
        behind = self.file.dataflow.output_quantizations[self.number]
        return behind or output_quantization(self.file, self.number)

    @cached_property
    def is_quanta(self) -> bool:
        """Tell whether it is integers that stand for numbers by a scale, and not choices."""
        return self.quantization is None and self.number in self.file.dataflow.quantised_outputs

    @property
    def references(self) -> list[Array]:
        """Return the references that there are, the one with the most authority first."""
        return [reference for reference in (self.dialect, self.quantized, self.eager) if reference is not None]

    @property
    def authority(self) -> str:
        """Return the name of `dialect` for messages."""
        return "what is expected" if self.is_expected else DIALECT

    @cached_property
    def finite_values(self) -> Array:
        """Return the output as float64 with zero where it is not finite, which is a finding of its own."""
        return finite(self.array)

    @cached_property
    def integers(self) -> Array | None:
        return self.in_quanta(self.array)

    @cached_property
    def expected(self) -> Array | None:
        """Return the dialect's integers; the output's own where either value is not finite, a finding of its own."""
        deviation = self.deviation_from(self.dialect)
        return None if deviation is None or self.integers is None else self.integers - deviation

    def in_quanta(self, values: Array) -> Array | None:
        """Return values of this output as whole numbers of quanta, in float64; None where they have none."""
        if self.is_quanta:
            return values.astype(np.float64)
        return None if self.quantization is None else to_quanta(finite(values), self.quantization)

    def deviation_from(self, reference: Array | None) -> Array | None:
        """Return how many quanta each element is from a reference, with its sign; None where either has none.

        An element that is not finite in either is a finding of its own, and 0 here.
        """
        if reference is None or self.integers is None:
            return None
        expected = self.in_quanta(reference)
        return None if expected is None else np.where(self.is_known(reference), self.integers - expected, 0.0)

    def is_known(self, reference: Array) -> Array:
        """Return a mask of the elements that are finite here and in a reference."""
        both: Array = np.isfinite(self.array) & np.isfinite(reference)
        return both

    def is_judged_by_sqnr(self) -> bool:
        """Tell whether expected values, computed by other arithmetic, are judged by their SQNR: all must be finite."""
        return self.is_expected and self.eager is not None and bool(np.isfinite(self.eager).all())

    def is_flat(self, reference: Array) -> bool:
        """Tell whether a reference is so flat that a constant output would pass.

        A single integer is not flat; several that are all alike are.
        """
        if reference.dtype.kind != "f" and reference.size == 1:
            return False
        return value_range(reference) <= self.flatness(reference)

    def flatness(self, reference: Array) -> float:
        """Return the range that proves nothing, in the reference's unit: what the tolerance lets pass."""
        quanta = max(UNINFORMATIVE_QUANTA, 2 * self.tolerance.qtol, 2 * (self.tolerance.fake_quant_qtol or 0))
        if self.quantization is not None:
            return quanta * self.quantization.scale
        if reference.dtype.kind == "f":
            return 2 * self.tolerance.atol
        return quanta if reference.dtype in QUANTISED else 0.0

    def find(self, kind: FindingKind, message: str, wrong: Array | None = None, *elements: tuple[str, str]) -> Finding:
        """Return a finding about this output; ``wrong`` masks the elements that the message is about."""
        return Finding(kind, self.number, message, None if wrong is None else first(wrong), elements)

    def find_far(self, kind: FindingKind, message: str, wrong: Array, expected: Array, got: Array) -> Finding:
        """Return a finding that shows the first wrong element, and the worst one unless it is the first."""
        error = np.abs(got - expected)
        places = dict.fromkeys((first(wrong), first(error == error.max())))
        elements = [f"{list(one)}: {self._pair(expected[one], got[one])}" for one in places]
        return self.find(kind, message, wrong, *zip(("first", "worst"), elements, strict=False))

    def _pair(self, expected: float, got: float) -> str:
        if self.quantization is None:
            return f"expected {expected:.6g}, got {got:.6g}"
        scale, zero = self.quantization.scale, self.quantization.zero_point
        wanted, given = (expected - zero) * scale, (got - zero) * scale
        return f"expected {wanted:.6g} (q {int(expected)}), got {given:.6g} (q {int(got)})"


def value_range(reference: Array) -> float:
    """Return the largest minus the smallest finite value; for a single element its distance from zero."""
    known = reference[np.isfinite(reference)].astype(np.float64)
    if known.size == 0:
        return 0.0
    return float(np.ptp(known)) if known.size > 1 else float(abs(known[0]))


def first(mask: Array) -> tuple[int, ...]:
    return tuple(int(i) for i in np.unravel_index(int(mask.argmax()), mask.shape))
