"""Digests of each operator's outputs in a run, to find the first operator at which two runs of a test differ."""

from __future__ import annotations

from collections.abc import Sequence

from cortex_m_hil.flow.dut import Dut
from cortex_m_hil.flow.stepping import steps
from cortex_m_hil.program.program import Program
from cortex_m_hil.program.tensor import HostTensor
from cortex_m_hil.runner.run_results import OperatorOutput


def operator_outputs(dut: Dut, program: Program, inputs: Sequence[HostTensor]) -> list[OperatorOutput]:
    """Step a program, and return a digest of the outputs of each operator call, in the order of the program.

    Raises:
        HarnessError: `flow.stepping.steps` raises it.
    """
    calls = (done for done in steps(dut, program, inputs) if done.is_kernel)
    return [OperatorOutput(call.operator, " ".join(f"{crc:08x}" for crc in call.digests())) for call in calls]
