"""The deviation from fake-quant that rounding explains, estimated by disturbed runs of the fake-quantised module."""

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
    bound = _bound(output)
    drift = bound.drift / max(1, deviation.size)
    worst = int(bound.worst)
    elements, quanta = counted(int(bound.elements), "element"), f"{worst} {quanta_word(worst)}"
    why = f"rounding alone explains {elements} off, by up to {quanta} and {drift:.2g} on average"
    return _is_within(output, deviation, bound), deviation != 0, why


def is_rounding(output: ComparedOutput) -> bool:
    """Tell whether the default tolerance would allow a deviation that `fake_quant_qtol` does not."""
    deviation = output.deviation_from(output.quantized)
    return deviation is not None and _is_within(output, deviation, _bound(output))


def _bound(output: ComparedOutput) -> Spread:
    """Return the deviation from fake-quant that rounding explains for this output."""
    if output.quantized is None or (undisturbed := output.in_quanta(output.quantized)) is None:
        return Spread()
    runs = map(output.in_quanta, output.disturbed)
    return Spread.of_disturbed_runs([run - undisturbed for run in runs if run is not None])


def _is_within(output: ComparedOutput, deviation: Array, bound: Spread) -> bool:
    """Tell whether a deviation from fake-quant is within a bound, less the `qtol` allowed from the dialect."""
    less = np.maximum(np.abs(deviation) - output.tolerance.qtol, 0)
    return Spread.of_deviation(np.sign(deviation) * less).within(bound)
