"""A known program with known outputs: is the target well?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cortex_m_hil.errors import (
    LaunchError,
)
from cortex_m_hil.flow.execution import execute
from cortex_m_hil.known_answer import known_answer
from cortex_m_hil.program.program import Program
from cortex_m_hil.results import RunResult
from cortex_m_hil.session.session import ResponseTimeout

if TYPE_CHECKING:
    from cortex_m_hil.flow.dut import Dut


def selftest(dut: Dut) -> RunResult:
    """The self-test: a known program with known outputs, bit for bit. LaunchError if the target fails it."""
    known = known_answer(dut.target.isa)
    program = Program.from_bytes(known.program, "known_answer.pte")
    try:
        result = execute(dut, dut.session(), program, known.inputs)
    except ResponseTimeout:
        dut.restart()
        raise LaunchError("the self-test does not end", target=dut.target.name) from None
    for got, wanted in zip(result.outputs, known.expected, strict=True):
        if got.data != wanted.data:
            raise LaunchError(
                f"the self-test's output is {got.array().tolist()}, expected {wanted.array().tolist()}",
                target=dut.target.name,
                hint="the simulator, the build or the board is broken, not your program",
            )
    return result
