"""How two runtimes' values for one tensor differ: counted by bits, told by distance."""

from __future__ import annotations

import numpy as np
import pytest

from cortex_m_hil.diagnose.compare_runtimes import difference
from cortex_m_hil.program.tensor import HostTensor

NAN = float("nan")


@pytest.mark.parametrize(
    ("mine", "theirs", "said"),
    [
        ([0.0, 1.0], [-0.0, 1.0], "1 of 2 float32, only in the sign of zeros or the bits of NaNs"),
        ([NAN, 1.0], [NAN, 1.5], "1 of 2 float32, by up to 0.5"),
        ([NAN, 1.0], [2.0, 1.5], "2 of 2 float32, by up to nan"),
        ([np.inf, 1.0], [-np.inf, 1.0], "1 of 2 float32, by up to inf"),
        ([3, -128], [3, 127], "1 of 2 int8, by up to 255 quanta"),
    ],
)
def test_what_is_said_of_two_tensors(mine: list[float], theirs: list[float], said: str) -> None:
    dtype = np.int8 if isinstance(mine[0], int) else np.float32
    one, other = (HostTensor.from_array(np.array(values, dtype)) for values in (mine, theirs))
    assert str(difference(0, "aten::add.out", 1, one, other)) == said
