"""Outputs in quanta: recovers the integers of dequantised values, and counts elements by distance from a reference."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np

from cortex_m_hil.program.dataflow import Quantization
from cortex_m_hil.program.io_quantization import output_quantization
from cortex_m_hil.program.program import References
from cortex_m_hil.program.pte_file import PteFile
from cortex_m_hil.program.tensor import Array, HostTensor

QUANTISED: Final = (np.dtype("int8"), np.dtype("int16"))
"""Integers of these dtypes are quanta; other integers (indices, booleans) are compared for equality."""
_SINGLE: Final = 4  # each distance below has its own bucket; every further bucket is twice as wide as the one before


def finite(values: Array) -> Array:
    """Return the values as float64, with zero where a value is not finite."""
    clean: Array = np.where(np.isfinite(values), values, 0).astype(np.float64)
    return clean


def to_quanta(values: Array, quantization: Quantization) -> Array:
    """Return the integers that values were dequantised from, as whole numbers in float64."""
    rounded: Array = np.rint(values.astype(np.float64) / np.float64(np.float32(quantization.scale)))
    return rounded + quantization.zero_point


def distance(integers: Array, expected: Array) -> Array:
    apart: Array = np.abs(integers.astype(np.int64) - expected.astype(np.int64))
    return apart


def histograms(file: PteFile, outputs: Sequence[HostTensor], references: References) -> Mapping[str, Mapping[str, int]]:
    """Count the elements of all quantised outputs by their distance from each reference, in quanta.

    Returns:
        The counts by bucket, for each of the figures `max_quanta` and `fake_quant_quanta`. A bucket is `0` … `3`,
        `4-7`, `8-15` and so on; empty buckets are left out.
    """
    against = {"max_quanta": references.expected or references.dialect, "fake_quant_quanta": references.quantized}
    found = {name: _histogram(file, outputs, known) for name, known in against.items() if known is not None}
    return {name: buckets for name, buckets in found.items() if buckets}


def _histogram(file: PteFile, outputs: Sequence[HostTensor], expected: Sequence[Array]) -> dict[str, int]:
    found: dict[int, int] = {}
    for number, (output, wanted) in enumerate(zip(outputs, expected, strict=False)):
        if (apart := quanta_apart(file, number, output.array(), wanted)) is not None:
            least, counts = np.unique(_least(apart), return_counts=True)
            for bucket, count in zip(least.tolist(), counts.tolist(), strict=True):
                found[int(bucket)] = found.get(int(bucket), 0) + count
    return {_label(bucket): found[bucket] for bucket in sorted(found)}


def quanta_apart(file: PteFile, number: int, given: Array, wanted: Array) -> Array | None:
    """Return the distance of each element of an output from the expected value, in quanta.

    None where the output is not quantised, or has another shape or dtype than expected.
    """
    if given.shape != wanted.shape:
        return None
    if given.dtype in QUANTISED and wanted.dtype.kind == "f" and (by := output_quantization(file, number)) is not None:
        apart: Array = np.abs(given.astype(np.float64) - to_quanta(finite(wanted), by))  # may be beyond int8 or int16
        return apart
    if given.dtype != wanted.dtype:
        return None
    if given.dtype in QUANTISED:
        return distance(given, wanted)
    quantization = file.dataflow.output_quantizations[number]
    if given.dtype.kind != "f" or quantization is None:
        return None
    found, expected = (to_quanta(finite(one), quantization) for one in (given, wanted))
    far: Array = np.abs(found - expected)
    return far


def _least(apart: Array) -> Array:
    """Return for each distance the lower bound of the histogram's bucket that it is in."""
    powers: Array = 2 ** np.floor(np.log2(np.maximum(apart, 1)))
    least: Array = np.where(apart < _SINGLE, apart, powers)
    return least


def _label(least: int) -> str:
    return str(least) if least < _SINGLE else f"{least}-{2 * least - 1}"
