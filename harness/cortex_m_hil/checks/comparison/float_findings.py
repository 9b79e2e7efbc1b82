"""Findings about float outputs: NaN and infinity, and values by their integers or else by atol and rtol."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from cortex_m_hil.checks.comparison.compared_output import ComparedOutput, first
from cortex_m_hil.checks.comparison.comparison_result import Figures, Finding, FindingKind
from cortex_m_hil.checks.comparison.output_findings import collapsed
from cortex_m_hil.checks.comparison.quantised_findings import off_fake_quant, off_grid, other_quanta, saturated
from cortex_m_hil.checks.comparison.sqnr import against_eager


def float_findings(output: ComparedOutput, found: list[Finding]) -> tuple[list[Finding], Figures]:
    """Return findings and figures of a float output; `found` has the findings about its reference so far."""
    sqnr, worse_than_eager = against_eager(output)
    findings = [*_not_finite(output), *_reference_not_finite(output)]
    quanta, fake_quanta, q, integers, expected = None, None, output.quantization, output.integers, output.expected
    if q is None or integers is None:
        error, apart = _beyond_tolerance(output)
    else:
        if expected is not None:
            quanta = int(np.abs(integers - expected).max(initial=0))
            if not output.is_judged_by_sqnr():
                findings += [*other_quanta(output, integers, expected), *saturated(output, q, integers, expected)]
        findings += off_grid(output, q, integers)
        fake_quanta, error, apart = off_fake_quant(output, q, integers)
    if not any(finding.kind is FindingKind.UNINFORMATIVE for finding in found):
        findings += collapsed(output)
    return findings + apart + worse_than_eager, Figures(quanta, fake_quanta, error, sqnr, output.authority)


def _not_finite(output: ComparedOutput) -> Iterator[Finding]:
    """Yield a finding where a float is infinite or NaN and the reference is finite, or the reverse."""
    array = output.array
    if array.dtype.kind != "f":
        return
    expected = next(iter(output.references), np.zeros_like(array))
    same = (array == expected) | (np.isnan(array) & np.isnan(expected))
    wrong = ~same & ~(np.isfinite(array) & np.isfinite(expected))
    if wrong.any():
        index = first(wrong)
        text = f"{int(wrong.sum())} of {array.size} elements not finite, or not where the reference is not"
        yield output.find(FindingKind.NAN, f"{text}; first {array[index]} at {list(index)}", wrong)


def _reference_not_finite(output: ComparedOutput) -> Iterator[Finding]:
    """Yield a warning where the module's value is infinite or NaN and the output's is finite.

    A quantised output saturates at its largest value.
    """
    if output.eager is None or output.is_expected or output.array.dtype.kind != "f":
        return
    wrong = np.isfinite(output.array) & ~np.isfinite(output.eager)
    if wrong.any():
        text = f"{int(wrong.sum())} of {wrong.size} elements of the float module are not finite, the output's are"
        yield output.find(FindingKind.REFERENCE_NOT_FINITE, f"{text}: they are left out of the SQNR", wrong)


def _beyond_tolerance(output: ComparedOutput) -> tuple[float | None, list[Finding]]:
    """Compare a float output by atol and rtol with expected values, or with fake-quant or eager, in this order.

    Returns:
        The largest error, None without a reference, and the findings.
    """
    name, reference = ("fake-quant", output.quantized) if output.quantized is not None else ("eager", output.eager)
    if output.is_expected:
        name, reference = output.authority, output.dialect
    if reference is None:
        return None, []
    # Elements that are not finite were checked already; they would make the largest difference NaN.
    expected = np.where(output.is_known(reference), reference.astype(np.float64), output.finite_values)
    error, tolerance = np.abs(output.finite_values - expected), output.tolerance
    wrong = error > tolerance.atol + tolerance.rtol * np.abs(expected)
    worst = float(error.max(initial=0.0))
    if not wrong.any():
        return worst, []
    text = (
        f"{int(wrong.sum())} of {wrong.size} elements differ from {name} by more than "
        f"{tolerance.atol:.3g} + {tolerance.rtol:.3g}·|expected|, by up to {worst:.3g}"
    )
    return worst, [output.find_far(FindingKind.QUANTIZED, text, wrong, expected, output.finite_values)]
