"""The known-answer self-test: a known program with known outputs shows whether the target works."""

from __future__ import annotations

from typing import Final

from cortex_m_hil.errors import LaunchError, SelfTestFailed
from cortex_m_hil.flow.single_run import Device, execute
from cortex_m_hil.program.known_answer import KnownAnswer, known_answer
from cortex_m_hil.program.program import Program
from cortex_m_hil.runner.run_results import RunResult
from cortex_m_hil.runner.session.session import ResponseTimeout

SAME_AGAIN: Final = (
    "a second run gave the same: the cause is a kernel or the build, hardly the board, and not your program"
)
OTHER_AGAIN: Final = (
    "a second run gave something else: the cause is memory, clock or power of the target, not your program"
)


def selftest(dut: Device) -> RunResult:
    """Run the known-answer self-test, and return its result; its outputs must be right bit for bit.

    If they are wrong, the program is run again: a wrong kernel gives the same outputs each time; memory, clock or power
    do not.

    Raises:
        LaunchError: the program does not end.
        SelfTestFailed: the outputs are wrong.
    """
    known = known_answer(dut.target.isa)
    program = Program.from_bytes(known.program, "known_answer.pte")
    result = _once(dut, program, known)
    for number, (got, wanted) in enumerate(zip(result.outputs, known.expected, strict=True)):
        if got.data != wanted.data:
            again = _once(dut, program, known).outputs[number]
            made_by = program.file.dataflow.computed_by[number]
            raise SelfTestFailed(
                f"the self-test's output is {got.array().tolist()}, expected {wanted.array().tolist()}",
                target=dut.target.name,
                operator=made_by.operator if made_by is not None else "",
                hint=SAME_AGAIN if again.data == got.data else OTHER_AGAIN,
            )
    return result


def _once(dut: Device, program: Program, known: KnownAnswer) -> RunResult:
    """Run the self-test within the target's limit for one program, `dut.seconds`."""
    try:
        return execute(dut, dut.session(), program, known.inputs)
    except ResponseTimeout:
        dut.restart()
        raise LaunchError("the self-test does not end", target=dut.target.name) from None
