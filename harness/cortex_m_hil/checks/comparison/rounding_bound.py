"""The deviations from fake-quant and from the dialect that rounding explains, estimated by disturbed runs of each."""

from __future__ import annotations

import numpy as np

from cortex_m_hil.checks.comparison.compared_output import ComparedOutput
from cortex_m_hil.checks.comparison.comparison_result import quanta_word
from cortex_m_hil.checks.comparison.tolerance import Spread
from cortex_m_hil.errors.text import counted
from cortex_m_hil.program.tensor import Array


def rounding_explains(output: ComparedOutput, deviation: Array) -> tuple[bool, Array, str]:
    """Return whether the deviation from fake-quant is allowed, a mask of wrong elements, and the bound in words."""
    limit = output.tolerance.fake_quant_qtol
    if limit is not None:
        wrong = np.abs(deviation) > limit
        return not wrong.any(), wrong, f"{limit} allowed"
    bound = _bound(output, output.quantized, output.disturbed)
    drift = bound.drift / max(1, deviation.size)
    worst = int(bound.worst)
    elements, quanta = counted(int(bound.elements), "element"), f"{worst} {quanta_word(worst)}"
    why = f"rounding alone explains at most {elements} off, by up to {quanta} and {drift:.2g} on average"
    return _is_within(output, deviation, bound), deviation != 0, why


def is_rounding(output: ComparedOutput) -> bool:
    """Tell whether the default tolerance would allow a deviation that `fake_quant_qtol` does not."""
    deviation = output.deviation_from(output.quantized)
    return deviation is not None and _is_within(output, deviation, _bound(output, output.quantized, output.disturbed))


def float_rounding_explains(output: ComparedOutput, deviation: Array) -> tuple[bool, str]:
    """Tell whether other last bits of float operators explain a deviation from the dialect, and the bound in words.

    Integers have no such bound: they are the dialect's to `qtol`, unless a float operator comes before them.
    """
    if not output.disturbed_floats:
        return False, ""
    bound = _bound(output, output.dialect, output.disturbed_floats)
    why = f"; other last bits of floats explain {int(bound.elements)}, by up to {int(bound.worst)}"
    return _is_within(output, deviation, bound), why


def _bound(output: ComparedOutput, reference: Array | None, disturbed: tuple[Array, ...]) -> Spread:
    """Return the deviation from a reference that its disturbed runs explain for this output."""
    if reference is None or (undisturbed := output.in_quanta(reference)) is None:
        return Spread()
    runs = map(output.in_quanta, disturbed)
    return Spread.of_disturbed_runs([run - undisturbed for run in runs if run is not None])


def _is_within(output: ComparedOutput, deviation: Array, bound: Spread) -> bool:
    """Tell whether a deviation is within a bound, less the `qtol` allowed from the dialect."""
    less = np.maximum(np.abs(deviation) - output.tolerance.qtol, 0)
    return Spread.of_deviation(np.sign(deviation) * less).within(bound)
