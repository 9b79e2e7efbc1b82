"""Findings about outputs of any dtype: wrong shape, elements not written, collapsed values."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np

from cortex_m_hil.checks.comparison.compared_output import UNINFORMATIVE_QUANTA, ComparedOutput, first, value_range
from cortex_m_hil.checks.comparison.comparison_result import Finding, FindingKind

COLLAPSE_RANGE: Final = 0.10  # share of the reference's range


def other_shape(output: ComparedOutput) -> Iterator[Finding]:
    came = output.array
    for reference in output.references:
        if (reference.shape, reference.dtype) != (came.shape, came.dtype):
            wanted = f"the reference is {reference.dtype}{list(reference.shape)}"
            yield output.find(FindingKind.SHAPE, f"{came.dtype}{list(came.shape)} came back, {wanted}")
            return


def output_findings(output: ComparedOutput) -> list[Finding]:
    return [*_never_written(output), *_uninformative(output)]


def _never_written(output: ComparedOutput) -> Iterator[Finding]:
    mask = output.unwritten
    if mask is not None and mask.any():
        text = f"{int(mask.sum())} of {mask.size} elements never written, first at {list(first(mask))}"
        yield output.find(FindingKind.UNWRITTEN, text, mask)


def _uninformative(output: ComparedOutput) -> Iterator[Finding]:
    """Yield a warning where the comparison proves nothing: no reference, no elements, or a nearly constant one."""
    reference = next(iter(output.references), None)
    if reference is None:
        yield output.find(
            FindingKind.UNINFORMATIVE, "there is no reference, so the run proves nothing about the values"
        )
    elif reference.size == 0:
        yield output.find(FindingKind.UNINFORMATIVE, "the output has no elements, so the comparison proves nothing")
    elif output.is_flat(reference):
        limit = f"{output.flatness(reference):.3g} (2 x tolerance or {UNINFORMATIVE_QUANTA} quanta)"
        text = (
            f"the reference's range {value_range(reference):.3g} is within {limit}: a comparison with it proves nothing"
        )
        yield output.find(FindingKind.UNINFORMATIVE, text)


def collapsed(output: ComparedOutput) -> Iterator[Finding]:
    """Yield a finding for far fewer distinct values, or a far smaller range, than the reference has."""
    reference = next(iter(output.references), None)
    if reference is None or reference.size < 2:
        return
    if output.integers is not None and output.expected is not None:
        have, want = len(np.unique(output.integers)), len(np.unique(output.expected))
        if 2 * have < want:
            text = f"the {reference.size} elements have only {have} different values, the reference's have {want}"
            yield output.find(FindingKind.COLLAPSE, text)
            return
    got, wide = float(np.ptp(output.finite_values)), value_range(reference)
    if got <= COLLAPSE_RANGE * wide:
        text = f"nearly constant: a range of {got:.3g}; the reference's is {wide:.3g}"
        yield output.find(FindingKind.COLLAPSE, text)
