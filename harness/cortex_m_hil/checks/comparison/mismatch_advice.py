"""The advice about a wrong output: the cause that its findings point to, and the next step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from cortex_m_hil.checks.argument_layout import has_kernel_sum
from cortex_m_hil.checks.comparison import advice_texts
from cortex_m_hil.checks.comparison.advice_texts import Advice
from cortex_m_hil.checks.comparison.compared_output import ComparedOutput
from cortex_m_hil.checks.comparison.comparison_result import WARNINGS, Figures, Finding, FindingKind
from cortex_m_hil.checks.comparison.rounding_bound import is_rounding
from cortex_m_hil.checks.comparison.tolerance import GOOD_SQNR

LOST_SQNR: Final = 3.0  # dB; below it half of the signal is lost, which a coarse calibration does not explain


def advice_about(output: ComparedOutput, findings: Sequence[Finding], figures: Figures) -> Advice:
    kinds = {finding.kind for finding in findings} - WARNINGS
    if not kinds:
        return Advice()
    if output.dialect is None or kinds & {FindingKind.SHAPE, FindingKind.UNWRITTEN}:
        return Advice(hint=advice_texts.READING)
    if FindingKind.COLLAPSE in kinds and (likely := _likely_cause(output)):
        general = advice_texts.EXPECTED.hint if output.is_expected else advice_texts.TARGET.hint
        return Advice(
            likely, f"{advice_texts.LAYOUT}; {advice_texts.READING}" if "quantized_linear" in likely else general
        )
    if output.is_expected:
        return advice_texts.EXPECTED
    if kinds == {FindingKind.EAGER}:
        return _of_quantisation(figures)
    if kinds == {FindingKind.QUANTIZED} and is_rounding(output):
        return advice_texts.ROUNDING
    return (
        advice_texts.LOWERING
        if kinds <= {FindingKind.QUANTIZED, FindingKind.EAGER} and _agrees_with_dialect(output)
        else advice_texts.TARGET
    )


def _of_quantisation(figures: Figures) -> Advice:
    """Return the advice for an output with only the SQNR below its bound, with the bound and the SQNR."""
    if figures.sqnr_db is None or figures.sqnr_db <= LOST_SQNR:
        return advice_texts.LOST
    return advice_texts.QUANTISATION if figures.sqnr_db < GOOD_SQNR else advice_texts.BOUND


def _agrees_with_dialect(output: ComparedOutput) -> bool:
    """Tell whether the output agrees with the dialect, apart from differences that have findings of their own.

    For quantised outputs every difference has a finding of its own.
    """
    if output.quantization is not None or output.dialect is None:
        return output.dialect is not None
    rtol, atol = output.tolerance.rtol, output.tolerance.atol
    return bool(np.isclose(output.array, output.dialect, rtol, atol, equal_nan=True).all())


def _likely_cause(output: ComparedOutput) -> str:
    """Return what usually collapses an output of its operator, "" where no cause is known."""
    made_by = output.file.dataflow.computed_by[output.number]
    if made_by is None:
        return ""
    folded = has_kernel_sum(output.file, made_by)
    if folded is None:
        return f"{made_by.operator} (operator {made_by.index}) {advice_texts.FEEDS}"
    where = f"quantized_linear (operator {made_by.index})"
    if not folded:
        return f"{where} has bias and no kernel_sum (the DSP/SCALAR layout): a runtime that drops the bias"
    return f"{where} folds the bias into kernel_sum (the MVE layout), which a DSP or SCALAR runtime ignores"
