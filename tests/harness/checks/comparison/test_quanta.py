"""How many elements are how far off."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from cortex_m_hil.checks.comparison.quanta import histograms
from cortex_m_hil.program.known_answer import known_answer
from cortex_m_hil.program.program import Program, References
from cortex_m_hil.program.tensor import Array, HostTensor
from cortex_m_hil.targets.cpu import Isa

FILE = Program.from_bytes(known_answer(Isa.SCALAR).program).file


def outputs(integers: list[int]) -> Array:
    """Of the known program, as if it had computed these."""
    quantization = FILE.dataflow.output_quantizations[0]
    assert quantization is not None
    values = (np.array([integers]) - quantization.zero_point) * np.float32(quantization.scale)
    return values.astype(np.float32)


@given(st.lists(st.tuples(st.integers(-128, 127), st.integers(-128, 127)), min_size=8, max_size=8))
def test_every_element_is_in_the_bucket_of_its_distance(pairs: list[tuple[int, int]]) -> None:
    given, wanted = (outputs([pair[side] for pair in pairs]) for side in (0, 1))
    found = histograms(FILE, (HostTensor.from_array(given),), References(dialect=(wanted,)))["max_quanta"]
    bounds = {bucket: tuple(map(int, bucket.split("-"))) for bucket in found}
    counted = {
        bucket: sum(least[0] <= abs(one - other) <= least[-1] for one, other in pairs)
        for bucket, least in bounds.items()
    }
    assert counted == dict(found) and sum(found.values()) == 8


def test_buckets_of_large_differences_are_powers_of_two() -> None:
    given, wanted = outputs([0, 1, 2, 3, 4, 7, 8, 100]), outputs([0] * 8)
    told = histograms(FILE, (HostTensor.from_array(given),), References(dialect=(wanted,), quantized=(given,)))
    assert told["max_quanta"] == {"0": 1, "1": 1, "2": 1, "3": 1, "4-7": 2, "8-15": 1, "64-127": 1}
    assert told["fake_quant_quanta"] == {"0": 8}


def test_what_cannot_be_compared_has_none() -> None:
    output = HostTensor.from_array(outputs([0] * 8))
    assert histograms(FILE, (output,), References()) == {}
    assert histograms(FILE, (output,), References(dialect=(np.zeros((1, 9), np.float32),))) == {}
