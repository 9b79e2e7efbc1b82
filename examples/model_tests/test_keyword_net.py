"""Is the network on the target the one that was trained?"""

from __future__ import annotations

import numpy as np
import pytest
import torch

from cortex_m_hil import Lowering, OpenTarget, Program, Tolerance
from keyword_net import recordings, trained


@pytest.fixture(scope="module")
def program(hil_lower: Lowering) -> Program:
    """Lowered once for each target, calibrated with the recordings."""
    samples = recordings()
    return hil_lower(trained(), (samples[0],), calibration=[(sample,) for sample in samples])


def test_outputs(hil: OpenTarget, program: Program) -> None:
    """Against ExecuTorch's Python operators, the quantised module and the float module."""
    hil.verify(program, Tolerance(eager_sqnr=20.0))


def test_memory(hil: OpenTarget, program: Program) -> None:
    stats = hil.run(program).stats
    assert stats["program"].used <= 16 * 1024
    assert stats["planned"].used <= 8 * 1024


def test_keywords(hil: OpenTarget, program: Program) -> None:
    """The scores may differ a little; which is the highest may not."""
    network = trained()
    for sample in recordings():
        with torch.no_grad():
            expected = int(network(sample).argmax())
        scores = hil.run(program, (sample.numpy(),)).outputs[0].array()
        assert int(np.argmax(scores)) == expected
