"""Findings about integer outputs: quantised numbers, and choices, such as an index."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Final

import numpy as np

from cortex_m_hil.checks.comparison.compared_output import ComparedOutput, first
from cortex_m_hil.checks.comparison.comparison_result import Figures, Finding, FindingKind, quanta_word
from cortex_m_hil.checks.comparison.quanta import QUANTISED, distance
from cortex_m_hil.checks.comparison.rounding_bound import float_rounding_explains, rounding_explains
from cortex_m_hil.checks.comparison.sqnr import decibels
from cortex_m_hil.checks.comparison.tolerance import Spread
from cortex_m_hil.errors.text import in_decibels
from cortex_m_hil.program.tensor import Array

CHOICES: Final = 2  # elements that rounding may change, even if it changed none in the disturbed runs


def integer_findings(output: ComparedOutput) -> tuple[list[Finding], Figures]:
    found = list(_not_exact(output))
    if not found and not output.is_expected:
        found += _other_quanta(output) if output.is_quanta else _other_choices(output)
    return found, _figures(output)


def _figures(output: ComparedOutput) -> Figures:
    """Return the distances of quantised integers, in quanta; for choices only the one from the dialect."""
    if output.array.dtype not in QUANTISED:
        return Figures()
    against = output.dialect, output.quantized if output.is_quanta and not output.is_expected else None
    quanta, fake = (None if one is None else int(distance(output.array, one).max(initial=0)) for one in against)
    return Figures(quanta, fake, authority=output.authority)


def _not_exact(output: ComparedOutput) -> Iterator[Finding]:
    reference = next(iter(output.references), None)
    if reference is None:
        return
    wrong = _differs(output, output.array, reference)
    if wrong.any() and not (reference is output.dialect and _last_bits_explain(output, reference, wrong)):
        index, by = first(wrong), ""
        if output.is_quanta:
            most = int(distance(output.array, reference).max(initial=0))
            by = f", by up to {most} {quanta_word(most)}"
        text = f"{int(wrong.sum())} of {wrong.size} elements differ{by}"
        example = f"{list(index)}: expected {reference[index]}, got {output.array[index]}"
        yield output.find(FindingKind.EXACT, text, wrong, ("first", example))


def _last_bits_explain(output: ComparedOutput, dialect: Array, wrong: Array) -> bool:
    """Tell whether other last bits of float operators explain which integers are not the dialect's."""
    if output.is_quanta:
        deviation = output.deviation_from(dialect)
        return deviation is not None and float_rounding_explains(output, deviation)[0]
    runs = [_differs(output, run, dialect) for run in output.disturbed_floats]
    return bool(wrong.sum() <= Spread.of_disturbed_runs(runs).elements)


def _differs(output: ComparedOutput, array: Array, reference: Array) -> Array:
    """Return a mask of the elements that differ from a reference, by more than `qtol` where they are quanta."""
    if array.dtype not in QUANTISED:
        return np.asarray(array != reference)
    return np.asarray(distance(array, reference) > output.tolerance.qtol)


def _other_choices(output: ComparedOutput) -> Iterator[Finding]:
    """Yield findings where choices, such as the index of the largest value, differ from fake-quant's or eager's.

    Rounding may swap two values that are nearly equal. A choice other than fake-quant's is wrong if the disturbed runs
    do not explain it; with a `fake_quant_qtol` above 0 every one may be due to the allowed quanta. A choice other than
    eager's is never wrong: how coarse the quantisation may be is not known.
    """
    told = []
    if output.quantized is not None:
        wrong = _differs(output, output.array, output.quantized)
        runs = [_differs(output, run, output.quantized) for run in output.disturbed]
        rounded, limit = Spread.of_disturbed_runs(runs).elements, output.tolerance.fake_quant_qtol
        allowed = rounded + CHOICES if limit is None else math.inf if limit else 0
        why = f"rounding alone changes {rounded:.0f}" if limit is None else f"fake_quant_qtol is {limit}"
        text = f"{int(wrong.sum())} of {wrong.size} elements are not fake-quant's ({why})"
        if wrong.sum() > allowed:
            yield output.find(FindingKind.QUANTIZED, text, wrong)
        elif wrong.any():
            told.append(text)
    if output.eager is not None and (wrong := _differs(output, output.array, output.eager)).any():
        told.append(f"{int(wrong.sum())} of {wrong.size} elements are not the float module's")
    if told:
        yield output.find(FindingKind.OTHER_CHOICES, ", ".join(told))


def _other_quanta(output: ComparedOutput) -> Iterator[Finding]:
    """Yield findings where quantised integers are far from fake-quant's or from the float module's.

    Fake-quant's are compared like the integers of a float output. As the scale is not in the program, the SQNR against
    the float module is computed about the mean; it only gives a warning.
    """
    if (deviation := output.deviation_from(output.quantized)) is not None:
        right, wrong, why = rounding_explains(output, deviation)
        if not right:
            text = f"{_off(deviation)} fake-quant, and {deviation.mean():+.2g} on average ({why})"
            yield output.find(FindingKind.QUANTIZED, text, wrong)
    deviation = output.deviation_from(output.eager)
    if output.eager is None or deviation is None or not deviation.any():
        return
    sqnr, bound = decibels(output.eager - output.eager.mean(dtype=np.float64), deviation), output.tolerance.eager_sqnr
    is_met = np.abs(deviation).max() <= output.flatness(output.eager)
    is_flat = output.eager.size == 1 or output.is_flat(output.eager)
    if not output.tolerance.has_enough(sqnr) and not (is_met and is_flat):
        why = f"SQNR about the mean {in_decibels(sqnr)}, the bound {in_decibels(bound)}"
        yield output.find(FindingKind.OTHER_CHOICES, f"{_off(deviation)} the float module ({why})")


def _off(deviation: Array) -> str:
    most = int(np.abs(deviation).max(initial=0))
    return f"{int((deviation != 0).sum())} of {deviation.size} elements are up to {most} {quanta_word(most)} off"
