"""One output of a run with its references and tolerance, and the quantities that the rules of a comparison need."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np

from cortex_m_hil.checks.comparison.comparison_result import DIALECT, Finding, FindingKind
from cortex_m_hil.checks.comparison.quanta import QUANTISED, finite, to_quanta
from cortex_m_hil.checks.comparison.tolerance import Tolerance
from cortex_m_hil.program.dataflow import Quantization
from cortex_m_hil.program.io_quantization import output_quantization
from cortex_m_hil.program.pte_file import PteFile
from cortex_m_hil.program.tensor import Array

UNINFORMATIVE_QUANTA: Final = 4


@dataclass(frozen=True)
class ComparedOutput:
    """An output, its references and its tolerance.

    Attributes:
        file: the program.
        number: the number of the output, from 0.
        array: the values from the target, in the logical shape; quantised integers whose scale the program's constants
            tell are converted to floats, here and in the references.
        is_expected: whether ``dialect`` has the user's expected values; then ``eager`` has them too if they are judged
            by their SQNR.
        disturbed: the outputs of disturbed runs of the fake-quantised module.
        disturbed_floats: the outputs of runs of the dialect with disturbed float results.
        unwritten: a mask of the elements that the program did not write; None: not known.
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
    disturbed_floats: tuple[Array, ...]
    unwritten: Array | None

    @property
    def quantization(self) -> Quantization | None:
        """Return the quantisation of the integers that a float output is dequantised from.

        None without such integers.
        """
        behind = self.file.dataflow.output_quantizations[self.number]
        return behind or output_quantization(self.file, self.number)

    @cached_property
    def is_quanta(self) -> bool:
        """Tell whether the output's integers are quantised numbers, and not choices such as an index."""
        return self.quantization is None and self.number in self.file.dataflow.quantised_outputs

    @property
    def references(self) -> list[Array]:
        """Return the available references, the one with the most authority first."""
        return [reference for reference in (self.dialect, self.quantized, self.eager) if reference is not None]

    @property
    def authority(self) -> str:
        """Return the name of `dialect` for messages."""
        return "what is expected" if self.is_expected else DIALECT

    @cached_property
    def finite_values(self) -> Array:
        """Return the output as float64, with zero where it is not finite; another rule reports such elements."""
        return finite(self.array)

    @cached_property
    def integers(self) -> Array | None:
        return self.in_quanta(self.array)

    @cached_property
    def expected(self) -> Array | None:
        """Return the dialect's integers.

        Where either value is not finite, the output's own, as another rule reports it.
        """
        deviation = self.deviation_from(self.dialect)
        return None if deviation is None or self.integers is None else self.integers - deviation

    def in_quanta(self, values: Array) -> Array | None:
        """Return values of this output as whole numbers of quanta, in float64; None if the output is not quantised."""
        if self.is_quanta:
            return values.astype(np.float64)
        return None if self.quantization is None else to_quanta(finite(values), self.quantization)

    def deviation_from(self, reference: Array | None) -> Array | None:
        """Return the signed distance of each element from a reference, in quanta; None if it cannot be given in quanta.

        It is 0 for an element that is not finite in either, which another rule reports.
        """
        if reference is None or self.integers is None:
            return None
        expected = self.in_quanta(reference)
        return None if expected is None else np.where(self.is_known(reference), self.integers - expected, 0.0)

    def is_known(self, reference: Array) -> Array:
        """Return a mask of the elements that are finite in the output and in a reference."""
        both: Array = np.isfinite(self.array) & np.isfinite(reference)
        return both

    def is_judged_by_sqnr(self) -> bool:
        """Tell whether the SQNR judges the output: the user gave the expected values, and all of them are finite."""
        return self.is_expected and self.eager is not None and bool(np.isfinite(self.eager).all())

    def is_flat(self, reference: Array) -> bool:
        """Tell whether a reference is so flat that a constant output would pass.

        A single integer is not flat; several equal integers are.
        """
        if reference.dtype.kind != "f" and reference.size == 1:
            return False
        return value_range(reference) <= self.flatness(reference)

    def flatness(self, reference: Array) -> float:
        """Return the largest range of a flat reference, in the reference's unit: the deviation that is tolerated."""
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
    """Return the largest minus the smallest finite value; for a single element, its absolute value."""
    known = reference[np.isfinite(reference)].astype(np.float64)
    if known.size == 0:
        return 0.0
    return float(np.ptp(known)) if known.size > 1 else float(abs(known[0]))


def first(mask: Array) -> tuple[int, ...]:
    return tuple(int(i) for i in np.unravel_index(int(mask.argmax()), mask.shape))
