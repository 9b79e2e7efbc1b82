"""Comparison of outputs with references, by the rules of docs/architecture.md, "Truth and tolerance".

Works without torch. Differences in quanta are computed on the integer tensor before the final dequantize, recovered
from the float output as ``output / scale + zero_point``, which is exact to far less than half a quantum for int8 and
int16.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from cortex_m_hil.checks.comparison.compared_output import ComparedOutput
from cortex_m_hil.checks.comparison.comparison_result import Comparison, Figures, Finding, FindingKind
from cortex_m_hil.checks.comparison.float_findings import float_findings
from cortex_m_hil.checks.comparison.integer_findings import integer_findings
from cortex_m_hil.checks.comparison.mismatch_advice import advice_about
from cortex_m_hil.checks.comparison.output_findings import other_shape, output_findings
from cortex_m_hil.checks.comparison.tolerance import Tolerance
from cortex_m_hil.program.io_quantization import dequantized, output_quantization
from cortex_m_hil.program.program import References
from cortex_m_hil.program.pte_file import PteFile
from cortex_m_hil.program.tensor import Array, HostTensor


def compare(
    program_file: PteFile,
    outputs: Sequence[HostTensor],
    references: References,
    tolerance: Tolerance,
    unwritten: Sequence[Array] | None = None,
) -> Comparison:
    """Compare the outputs of a program with all available references.

    Args:
        program_file: the parsed program.
        outputs: the outputs of the target, in order.
        references: the expected outputs; any of the references may be missing.
        tolerance: how far outputs may be from each reference.
        unwritten: a bool mask per output, of logical shape: True where two runs, with complementary fill patterns, both
            left the pattern unchanged. None: not known.
    """
    wanted = len(program_file.outputs)
    if len(outputs) != wanted:
        text = f"the program has {wanted} outputs, {len(outputs)} arrived"
        return Comparison((Finding(FindingKind.SHAPE, 0, text),), ())
    is_expected = references.expected is not None
    if is_expected:
        references = References(dialect=references.expected, eager=references.eager)
    compared = [
        ComparedOutput(
            file=program_file,
            number=number,
            array=_as_floats(program_file, number, outputs[number].array()),
            tolerance=tolerance,
            is_expected=is_expected,
            dialect=_pick(program_file, references.dialect, number),
            quantized=_pick(program_file, references.quantized, number),
            eager=_pick(program_file, references.eager, number),
            disturbed=_runs(program_file, references.disturbed, number),
            disturbed_floats=_runs(program_file, references.disturbed_floats, number),
            unwritten=None if unwritten is None else unwritten[number],
        )
        for number in range(wanted)
    ]
    # Wrong outputs may be of any magnitude; one that overflows in a computation here is found wrong all the same.
    with np.errstate(over="ignore", invalid="ignore"):
        results = [_compared(output) for output in compared]
        advice = [advice_about(*one) for one in zip(compared, *zip(*results, strict=True), strict=True)]
    return Comparison(
        findings=tuple(finding for found, _ in results for finding in found),
        outputs=tuple(figures for _, figures in results),
        advice=tuple(advice),
        computed_by=tuple(one.operator if one is not None else "" for one in program_file.dataflow.computed_by),
    )


def _pick(file: PteFile, arrays: tuple[Array, ...] | None, number: int) -> Array | None:
    return _as_floats(file, number, arrays[number]) if arrays is not None and number < len(arrays) else None


def _runs(file: PteFile, runs: Sequence[tuple[Array, ...]], number: int) -> tuple[Array, ...]:
    return tuple(_as_floats(file, number, run[number]) for run in runs if number < len(run))


def _as_floats(file: PteFile, number: int, values: Array) -> Array:
    """Return an output's integers as the floats that they represent, if the program's constants tell the scale."""
    by = output_quantization(file, number)
    return values if by is None or values.dtype.name != by.dtype else dequantized(values, by)


def _compared(output: ComparedOutput) -> tuple[list[Finding], Figures]:
    if shape := list(other_shape(output)):
        return shape, Figures()
    findings = output_findings(output)
    more, figures = float_findings(output, findings) if output.array.dtype.kind == "f" else integer_findings(output)
    return findings + more, figures
