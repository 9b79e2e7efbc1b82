"""The signal-to-quantisation-noise ratio of an output against the float module, and the findings about it."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from cortex_m_hil.checks.comparison.compared_output import ComparedOutput
from cortex_m_hil.checks.comparison.comparison_result import Finding, FindingKind
from cortex_m_hil.errors.text import in_decibels
from cortex_m_hil.program.tensor import Array


def decibels(signal: Array, noise: Array) -> float:
    """Return the ratio of the powers of signal and noise; infinite without noise, minus infinite without signal."""
    power, lost = float((signal**2).sum()), float((noise**2).sum())
    if not lost:
        return math.inf
    return 10 * math.log10(power / lost) if power else -math.inf


def against_eager(output: ComparedOutput) -> tuple[float | None, list[Finding]]:
    """Return the SQNR over the elements that are finite in the float module's output, and the findings about it.

    The SQNR is None without a reference.
    """
    eager = output.eager
    if eager is None or (output.is_expected and not output.is_judged_by_sqnr()):
        return None, []
    known = np.isfinite(eager)
    if not known.any():
        return None, []
    expected = eager[known].astype(np.float64)
    noise = output.finite_values[known] - expected
    sqnr, worst = decibels(expected, noise), float(np.abs(noise).max())
    # With a signal of a few quanta the ratio is low even if the error is a few quanta; the warning of an uninformative
    # reference covers this case.
    if sqnr == math.inf or (worst <= output.flatness(eager) and output.is_flat(eager)):
        return sqnr, []
    bound, name = output.tolerance.eager_sqnr, output.authority if output.is_expected else "the float module"
    text = f"SQNR against {name} is {in_decibels(sqnr)}"
    if output.tolerance.has_enough(sqnr):
        return sqnr, list(_offset(output, expected, noise, text))
    return sqnr, [output.find(FindingKind.EAGER, f"{text}, the bound {in_decibels(bound)}")]


def _offset(output: ComparedOutput, expected: Array, noise: Array, text: str) -> Iterator[Finding]:
    """Yield a warning where the SQNR meets its bound only by an offset that all elements share.

    Measured about the mean, a constant output has 0 dB at most. A right output that varies by a few quanta has little
    more, and with few elements the offset may be the signal: so this is no error.
    """
    about_mean, bound = decibels(expected - expected.mean(), noise), output.tolerance.eager_sqnr
    is_near = float(np.abs(noise).max()) <= output.flatness(expected) / 2
    if not output.tolerance.has_enough(about_mean) and expected.size > 1 and not is_near:
        text += f" with the offset that all elements share, {in_decibels(about_mean)} about their mean"
        yield output.find(FindingKind.OFFSET, f"{text} (the bound {in_decibels(bound)})")
