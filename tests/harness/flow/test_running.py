"""One program on a target: what `run` answers for."""

from __future__ import annotations

import pytest

from cortex_m_hil import flow
from cortex_m_hil.errors import Mismatch
from cortex_m_hil.targets.load import load_targets
from cortex_m_hil.targets.resolve import resolve
from misbehaving import OPTIONS, Misbehaving, spaced


def test_an_output_that_is_written_in_part_is_no_result() -> None:
    """Whoever asks for it: a fixture, a script, the command line."""
    program = spaced(Misbehaving("overcopy", -8))
    with flow.open_dut(resolve("native", load_targets()), options=OPTIONS) as dut:
        with pytest.raises(Mismatch, match="2 of 4 elements of output 0 were never written") as caught:
            flow.run(dut, program, linted=False)
        result = flow.run(dut, program, linted=False, complete=False)
    assert caught.value.operator and "hil compare-runtimes" in caught.value.hint
    assert result.unwritten[0].tolist() == [False, False, True, True]
