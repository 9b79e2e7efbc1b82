"""One pass over a program on a live target: load, poison, set inputs, execute, read back."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np
import numpy.typing as npt

from cortex_m_hil.errors import HarnessError, ProtocolError
from cortex_m_hil.flow.state import fill_around, is_set_by_loading, write_state
from cortex_m_hil.program.dataflow import written_tensors
from cortex_m_hil.program.program import Program
from cortex_m_hil.program.schema import InstructionKind
from cortex_m_hil.program.tensor import HostTensor
from cortex_m_hil.runner.links.protocol import MemoryRegion
from cortex_m_hil.runner.results import Ran, RunResult
from cortex_m_hil.runner.session.session import Session
from cortex_m_hil.targets.model import Clock, Target

POISON, COUNTER_POISON = 0xA5, 0x5A


class Device(Protocol):
    """A target that executes programs, as `Dut` is one."""

    seconds: float  # of the engine's CPU time that one program may take
    recovered_by: str  # the tool that brought a board back since the last restart; "" if none

    @property
    def target(self) -> Target:
        """Return the target, with the port of the very board while there is one."""

    def session(self) -> Session:
        """Return the live session. Raises infra errors where the target cannot be brought to life."""

    def ran(self) -> Ran:
        """Return the names and versions of what executes programs here."""

    def restart(self) -> None:
        """End the simulator, or close the port. The next use boots anew."""

    def recover(self, cause: HarnessError) -> HarnessError:
        """Bring a board back, and return `cause`; BoardWedged if nothing helps."""


def execute(
    dut: Device, session: Session, program: Program, inputs: Sequence[HostTensor], guard: Guard | None = None
) -> RunResult:
    began = time.monotonic()
    load(session, program)
    # With the state that the load left, where the file says what that is.
    kept = is_set_by_loading(program.file)
    outputs, unwritten, ticks = execute_loaded(dut, session, program, inputs, guard, keep_state=kept)
    if guard:
        guard.judge(dut, session, inputs)
    seconds = time.monotonic() - began
    return RunResult(tuple(outputs), tuple(unwritten), session.stats(), ticks, seconds, dut.ran(), session.log)


def load(session: Session, program: Program) -> None:
    session.load(program.pte, lambda at: operator_at(program, at), file=program.file)


def execute_loaded(
    dut: Device,
    session: Session,
    program: Program,
    inputs: Sequence[HostTensor],
    guard: Guard | None = None,
    *,
    keep_state: bool = False,
) -> tuple[list[HostTensor], list[npt.NDArray[np.bool_]], int]:
    """Outputs, a mask for each of elements that nobody wrote, and ticks of the first pass.

    It begins with the initial state; `keep_state`: with what is there, as after a load.
    """
    outputs, ticks = one_pass(dut, session, program, inputs, POISON, guard, keep_state=keep_state)
    unwritten = [_equals(output, POISON) for output in outputs]
    if guard or any(mask.any() for mask in unwritten):
        again, _ = one_pass(dut, session, program, inputs, COUNTER_POISON, guard)
        unwritten = [mask & _equals(output, COUNTER_POISON) for mask, output in zip(unwritten, again, strict=True)]
    return outputs, unwritten, ticks


def one_pass(
    dut: Device,
    session: Session,
    program: Program,
    inputs: Sequence[HostTensor],
    poison: int,
    guard: Guard | None,
    *,
    keep_state: bool = False,
) -> tuple[list[HostTensor], int]:
    """Outputs and ticks of a program that is loaded. ResponseTimeout where it does not end."""
    prepare(session, inputs, poison, guard, keep_state=keep_state)
    ticks = session.execute(dut.seconds)
    _require_ticks(dut, program, ticks)
    if guard:
        guard.inspect(session, poison)
    return [session.get_output(number) for number in range(len(program.file.outputs))], ticks


def _require_ticks(dut: Device, program: Program, ticks: int) -> None:
    """A counter that stands still would be taken for a program that costs nothing (ExecuTorch #21833)."""
    counts = dut.ran().clock in (Clock.INSTRUCTIONS, Clock.CORE)
    operators = sum(one.kind is InstructionKind.KERNEL for one in program.file.instructions)
    if counts and operators and not ticks:
        what = f"the runner counted 0 {dut.ran().clock.value} while {operators} operators were executed"
        raise ProtocolError(what, target=dut.target.name)


def prepare(
    session: Session,
    inputs: Sequence[HostTensor],
    poison: int,
    guard: Guard | None = None,
    *,
    keep_state: bool = False,
) -> None:
    """Before a pass over a loaded program: arena full of poison, inputs set, and state as it is at the beginning.

    `keep_state` leaves state as it is: the last call's.
    It begins at the first instruction unless steps were left off in the middle: STEP goes on where it stopped.
    """
    fill_around(session, session.file, poison)
    if guard:
        guard.fill(session, poison)
    if session.file is not None and not keep_state:
        write_state(session, session.file, session.file.initial_state())
    for number, value in enumerate(inputs):
        session.set_input(number, value)


def operator_at(program: Program, instruction: int) -> str:
    """`cortex_m::quantized_linear.out`, with the graph node where it is known."""
    if not 0 <= instruction < len(program.file.instructions):
        return ""
    name = program.file.instructions[instruction].operator
    node = program.nodes[instruction]
    return f"{name} ({node})" if node else name


def operator_that_keeps_its_size(session: Session, program: Program) -> str:
    """The first with an input below its upper bounds and an output at its own, as the last run left them; "" if none.

    Of operators whose outputs are of dynamic shape: there each kernel has to set the sizes of what it writes.
    """
    values = program.file.values
    sized: dict[int, bool] = {}

    def is_smaller(value: int) -> bool:
        if value not in sized:
            sized[value] = session.describe(MemoryRegion.VALUE, value) != values[value].spec
        return sized[value]

    for instruction in program.file.instructions:
        outputs = [one for one in written_tensors(program.file, instruction.index) if values[one].is_dynamic]
        inputs = [one for one in instruction.args if one not in outputs and values[one].is_dynamic]
        if any(map(is_smaller, inputs)) and not all(map(is_smaller, outputs)):
            return operator_at(program, instruction.index)
    return ""


def _equals(output: HostTensor, poison: int) -> npt.NDArray[np.bool_]:
    """Elements all of whose bytes are the poison."""
    spec = output.spec
    itemsize = np.dtype(spec.dtype).itemsize
    stored = np.frombuffer(output.data, np.uint8).reshape([*(spec.shape[d] for d in spec.dim_order), itemsize])
    mask: npt.NDArray[np.bool_] = (stored == poison).all(axis=-1)
    return mask.transpose([spec.dim_order.index(d) for d in range(len(spec.shape))])


class Guard(Protocol):
    """Watches what one program does to memory, in two passes: with POISON and with COUNTER_POISON."""

    def fill(self, session: Session, poison: int) -> None:
        """The arena is full of `poison`, the inputs are not yet set."""

    def inspect(self, session: Session, poison: int) -> None:
        """The program has run."""

    def judge(self, dut: Device, session: Session, inputs: Sequence[HostTensor]) -> None:
        """After both passes. Raises a verdict."""


Guards = Callable[[Program], Guard]
