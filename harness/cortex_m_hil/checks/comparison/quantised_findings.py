"""Findings about float outputs of a dequantize operator, by the integers that they are dequantised from."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np

from cortex_m_hil.checks.comparison.compared_output import ComparedOutput, first
from cortex_m_hil.checks.comparison.comparison_result import Finding, FindingKind, quanta_word
from cortex_m_hil.checks.comparison.quanta import finite
from cortex_m_hil.checks.comparison.rounding_bound import float_rounding_explains, rounding_explains
from cortex_m_hil.program.dataflow import Quantization
from cortex_m_hil.program.tensor import Array

SATURATION_OUTPUT: Final = 0.01  # share of all elements that are at a bound and should not be
SATURATION_REFERENCE: Final = 0.10  # share of the reference's elements; min-max observers put one or two at a bound
OTHER_SCALE: Final = 0.01  # share of a quantum; float32 rounding is 1e-5 of a quantum


def other_quanta(output: ComparedOutput, integers: Array, expected: Array) -> Iterator[Finding]:
    difference = np.abs(integers - expected)
    wrong = difference > output.tolerance.qtol
    if not wrong.any():
        return
    right, why = float_rounding_explains(output, integers - expected)
    if not right:
        most = int(difference.max())
        allowed = f" ({output.tolerance.qtol} allowed)" if output.tolerance.qtol else ""
        text = f"{int(wrong.sum())} of {wrong.size} elements off, by up to {most} {quanta_word(most)}{allowed}{why}"
        yield output.find_far(FindingKind.QUANTA, text, wrong, expected, integers)


def saturated(output: ComparedOutput, q: Quantization, integers: Array, expected: Array) -> Iterator[Finding]:
    """Yield findings for elements at a bound of the quantised range, and a warning if the reference's are there too."""
    if not integers.size:
        return
    # If a bound is the zero point, the zeros of a relu are there, which is no saturation.
    for bound in (b for b in (q.qmin, q.qmax) if b != q.zero_point):
        wrong = (integers == bound) & (np.abs(expected - bound) > output.tolerance.qtol)
        if wrong.mean() >= SATURATION_OUTPUT:
            text = f"{int(wrong.sum())} of {wrong.size} elements sit at {bound}, the reference's do not"
            yield output.find(FindingKind.SATURATION, text)
        pinned = int((expected == bound).sum())
        if pinned > max(2, SATURATION_REFERENCE * expected.size):
            text = f"{pinned} of {expected.size} elements of the reference itself sit at {bound}"
            why = "the quantisation range is too small, or the lowering pins them"
            yield output.find(FindingKind.REFERENCE_SATURATION, f"{text}: {why}")


def off_grid(output: ComparedOutput, q: Quantization, integers: Array) -> Iterator[Finding]:
    """Yield a finding for values that the dequantize kernel, one float32 multiplication, cannot produce.

    Integers beyond the range are allowed where the dialect's are too: quantized_div saturates at int16's -32768,
    whatever the range of its output is.
    """
    array = output.array
    grid = (integers - q.zero_point).astype(np.float32) * np.float32(q.scale)
    slack = 4 * np.spacing(np.maximum(np.abs(grid), np.float32(q.scale)))
    outside = (integers < q.qmin) | (integers > q.qmax)
    if output.expected is not None:
        outside &= integers != output.expected
    wrong = np.isfinite(array) & ((np.abs(array - grid) > slack) | outside)
    if wrong.any():
        index = first(wrong)
        text = (
            f"{int(wrong.sum())} of {wrong.size} elements are off the quantised range (scale {q.scale:.6g}, "
            f"zero point {q.zero_point}, {q.qmin} to {q.qmax}), first {array[index]:.9g} at {list(index)}"
        )
        yield output.find(FindingKind.OFF_GRID, text, wrong)


def off_fake_quant(
    output: ComparedOutput, q: Quantization, integers: Array
) -> tuple[int | None, float | None, list[Finding]]:
    """Compare a quantised output with fake-quant, by `fake_quant_qtol` or by the deviation that rounding explains.

    Returns:
        The worst distance, in quanta and in units of the output, or None without a reference; and the findings.
    """
    if output.quantized is None or (deviation := output.deviation_from(output.quantized)) is None:
        return None, None, []
    reference, expected = finite(output.quantized), integers - deviation
    most = int(np.abs(deviation).max(initial=0))
    right, wrong, why = rounding_explains(output, deviation)
    known = output.is_known(output.quantized)
    findings = list(_other_scale(output, q, reference[known], expected[known]))
    if not right:
        text = (
            f"{int(wrong.sum())} of {wrong.size} elements off fake-quant, by up to {most} {quanta_word(most)} and "
            f"{deviation.mean():+.2g} on average ({why})"
        )
        findings.append(output.find_far(FindingKind.QUANTIZED, text, wrong, expected, integers))
    return most, float(np.abs(output.finite_values - reference).max(initial=0.0)), findings


def _other_scale(output: ComparedOutput, q: Quantization, values: Array, integers: Array) -> Iterator[Finding]:
    """Yield a finding where fake-quant's values are not multiples of the program's output scale.

    Otherwise a wrong scale of the last dequantize would look like rounding in the program's quanta.
    """
    grid = (integers - q.zero_point) * np.float64(np.float32(q.scale))
    if (np.abs(values - grid) > OTHER_SCALE * q.scale).any():
        text = f"fake-quant's values are not multiples of the program's output scale {q.scale:.6g}"
        yield output.find(FindingKind.QUANTIZED, text)
