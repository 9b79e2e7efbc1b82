"""Executing a program once on a live target: load, fill with poison, set inputs, execute, read back."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np
import numpy.typing as npt

from cortex_m_hil.errors import HarnessError
from cortex_m_hil.flow.program_state import fill_around, write_state
from cortex_m_hil.host.spans import span
from cortex_m_hil.program.program import Program
from cortex_m_hil.program.tensor import HostTensor
from cortex_m_hil.runner.links.protocol import MemoryRegion
from cortex_m_hil.runner.run_results import Ran, RunResult
from cortex_m_hil.runner.session.session import Session
from cortex_m_hil.targets.target import Target

POISON, COUNTER_POISON = 0xA5, 0x5A


class Device(Protocol):
    """A target that executes programs, such as a `Dut`."""

    seconds: float  # the simulator's CPU time that one program may take
    recovered_by: str  # the recovery step that brought a board back since the last restart; "" if none

    @property
    def target(self) -> Target:
        """Return the target, with the port of the leased board if there is one."""

    def session(self) -> Session:
        """Return the live session. Raises infra errors where the target cannot be started."""

    def ran(self) -> Ran:
        """Return the names and versions of the target, engine and runtime that execute programs."""

    def restart(self) -> None:
        """End the simulator, or close the port. The next use boots the target again."""

    def recover(self, cause: HarnessError) -> HarnessError:
        """Recover a board, and return `cause`. Raises BoardWedged if nothing helps."""


def execute(
    dut: Device, session: Session, program: Program, inputs: Sequence[HostTensor], guard: Guard | None = None
) -> RunResult:
    began = time.monotonic()
    load(session, program)
    kept = program.file.state_is_loaded
    outputs, unwritten, ticks = execute_loaded(dut, session, inputs, guard, keep_state=kept)
    if guard:
        guard.judge(dut, session, inputs)
    seconds = time.monotonic() - began
    return RunResult(
        tuple(outputs), tuple(unwritten), session.stats(), ticks, seconds, dut.ran(), session.log, arenas=session.arenas
    )


def load(session: Session, program: Program) -> None:
    with span("run", f"load {program.name}"):
        session.load(program.pte, lambda at: operator_at(program, at), file=program.file)


def execute_loaded(
    dut: Device,
    session: Session,
    inputs: Sequence[HostTensor],
    guard: Guard | None = None,
    *,
    keep_state: bool = False,
) -> tuple[list[HostTensor], list[npt.NDArray[np.bool_]], int]:
    """Execute a loaded program; return its outputs, a mask of unwritten elements for each, and the first pass's ticks.

    The program is executed a second time, with the complementary fill pattern (poison), if there is a guard or an
    output looks unwritten.

    Args:
        dut: the target.
        session: the target's live session, with the program loaded.
        inputs: values for the program's inputs.
        guard: watches memory in both passes; None: memory is not watched.
        keep_state: begin with the state on the target, such as after a load, and not with the program's initial state.

    Raises:
        ResponseTimeout: the program does not end in time.
    """
    outputs, ticks = one_pass(dut, session, inputs, POISON, guard, keep_state=keep_state)
    unwritten = [_equals(output, POISON) for output in outputs]
    if guard or any(mask.any() for mask in unwritten):
        again, _ = one_pass(dut, session, inputs, COUNTER_POISON, guard)
        unwritten = [mask & _equals(output, COUNTER_POISON) for mask, output in zip(unwritten, again, strict=True)]
    return outputs, unwritten, ticks


def one_pass(
    dut: Device,
    session: Session,
    inputs: Sequence[HostTensor],
    poison: int,
    guard: Guard | None,
    *,
    keep_state: bool = False,
) -> tuple[list[HostTensor], int]:
    """Execute a loaded program once; return its outputs and ticks. The arguments are those of `execute_loaded`.

    Raises:
        ResponseTimeout: the program does not end in time.
    """
    with span("run", "execute"):
        prepare(session, inputs, poison, guard, keep_state=keep_state)
        ticks = session.execute(dut.seconds)
        if guard:
            guard.inspect(session, poison)
        return session.outputs(), ticks


def prepare(
    session: Session,
    inputs: Sequence[HostTensor],
    poison: int,
    guard: Guard | None = None,
    *,
    keep_state: bool = False,
) -> None:
    """Prepare a loaded program for a pass: fill the arena with poison, set the inputs, and reset the state.

    The pass begins at the first instruction, unless stepping was abandoned in the middle: STEP goes on where it
    stopped.

    Args:
        session: the live session, with the program loaded.
        inputs: values for the program's inputs.
        poison: the byte that fills the arena.
        guard: fills the memory that it watches, after the poison; None: no guard.
        keep_state: whether the state stays as the last call left it.
    """
    fill_around(session, session.file, poison)
    if guard:
        guard.fill(session, poison)
    if session.file is not None and not keep_state:
        write_state(session, session.file, session.file.initial_state())
    for number, value in enumerate(inputs):
        session.set_input(number, value)


def operator_at(program: Program, instruction: int) -> str:
    """Return an instruction's operator, such as `cortex_m::quantized_linear.out`, with its graph node where known."""
    if not 0 <= instruction < len(program.file.instructions):
        return ""
    name = program.file.instructions[instruction].operator
    node = program.nodes[instruction]
    return f"{name} ({node})" if node else name


def operator_that_keeps_its_size(session: Session, program: Program) -> str:
    """Return the first operator that leaves its output at the upper bounds though its input is smaller; "" if none.

    It compares the sizes of tensors of dynamic shape after the last run: each kernel has to set the size of its output.
    """
    values, written = program.file.values, program.file.dataflow.written_tensors
    sized: dict[int, bool] = {}

    def is_smaller(value: int) -> bool:
        if value not in sized:
            sized[value] = session.describe(MemoryRegion.VALUE, value) != values[value].spec
        return sized[value]

    for instruction in program.file.instructions:
        outputs = [one for one in written[instruction.index] if values[one].is_dynamic]
        inputs = [one for one in instruction.args if one not in outputs and values[one].is_dynamic]
        if any(map(is_smaller, inputs)) and not all(map(is_smaller, outputs)):
            return operator_at(program, instruction.index)
    return ""


def _equals(output: HostTensor, poison: int) -> npt.NDArray[np.bool_]:
    """Return a mask, in the output's logical shape, of the elements with nothing but poison in their bytes."""
    spec = output.spec
    itemsize = np.dtype(spec.dtype).itemsize
    stored = np.frombuffer(output.data, np.uint8).reshape([*(spec.shape[d] for d in spec.dim_order), itemsize])
    mask: npt.NDArray[np.bool_] = (stored == poison).all(axis=-1)
    return mask.transpose([spec.dim_order.index(d) for d in range(len(spec.shape))])


class Guard(Protocol):
    """A guard that watches memory while a program runs twice: with POISON and with COUNTER_POISON."""

    def fill(self, session: Session, poison: int) -> None:
        """Fill the watched memory; the arena is full of `poison`, and the inputs are not yet set."""

    def inspect(self, session: Session, poison: int) -> None:
        """Inspect the watched memory after the program has run."""

    def judge(self, dut: Device, session: Session, inputs: Sequence[HostTensor]) -> None:
        """Judge both passes, and raise a verdict if the program changed or read memory that it must not."""


Guards = Callable[[Program], Guard]
