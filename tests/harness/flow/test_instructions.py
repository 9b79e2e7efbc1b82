"""On QEMU a program takes the same number of instructions each time, to the last one."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
import torch

from cortex_m_hil import flow
from cortex_m_hil.errors import ProtocolError
from cortex_m_hil.flow.dut import Dut
from cortex_m_hil.flow.single_run import prepare
from cortex_m_hil.program.program import Program
from cortex_m_hil.runner.launchers.qemu import QemuLauncher
from cortex_m_hil.runner.links import protocol
from cortex_m_hil.targets.load import load_targets
from cortex_m_hil.targets.resolve import resolve
from cortex_m_hil.targets.target import Clock
from networks import Net

TARGETS = ["m0-qemu", "m4-qemu", pytest.param("m33-qemu", marks=pytest.mark.slow), "m55-qemu"]


@pytest.fixture(params=TARGETS)
def dut(request: pytest.FixtureRequest) -> Iterator[Dut]:
    with flow.open_dut(resolve(request.param, load_targets())) as opened:
        yield opened


def lowered(dut: Dut, module: torch.nn.Module, *shape: int) -> Program:
    return flow.lower(module.eval(), (torch.rand(shape),), isa=dut.target.isa)


def counted(dut: Dut, program: Program) -> int:
    result = flow.run(dut, program)
    assert result.instructions is not None and result.ran.clock is Clock.INSTRUCTIONS
    return result.instructions


def ticks_of_steps(dut: Dut, program: Program) -> list[int]:
    session = dut.session()
    session.load(program.pte, file=program.file)
    prepare(session, program.inputs, 0xA5)
    return [session.step(1, dut.seconds).ticks for _ in program.file.instructions]


@pytest.mark.first_only
def test_the_number_of_instructions_is_the_same_each_time(dut: Dut) -> None:
    """In the same process, after other programs, and in a new process; and so is that of each operator."""
    program, other = lowered(dut, Net(), 1, 3, 17, 17), lowered(dut, torch.nn.Linear(9, 5), 2, 9)
    first = counted(dut, program)
    steps = ticks_of_steps(dut, program)
    assert counted(dut, other) < first == counted(dut, program) == sum(steps)
    dut.restart()
    assert ticks_of_steps(dut, program) == steps
    dut.restart()
    assert counted(dut, program) == first


@pytest.mark.first_only
@pytest.mark.parametrize(("name", "is_an_error"), [("m55-qemu", True), ("native", False)])
def test_a_counter_that_stands_still_is_an_error(name: str, is_an_error: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where instructions are counted; by a clock of the host a program may well take no time. ExecuTorch #21833."""
    ticks = protocol.ticks
    monkeypatch.setattr(protocol, "ticks", lambda reader: ticks(reader) and 0)
    with flow.open_dut(resolve(name, load_targets())) as dut:
        program = lowered(dut, torch.nn.Linear(9, 5), 2, 9)
        if is_an_error:
            with pytest.raises(
                ProtocolError, match=r"0 instructions while 3 operators were executed \[target m55-qemu"
            ):
                flow.run(dut, program)
        else:
            assert flow.run(dut, program).ticks == 0


def with_args(name: str, *args: str) -> Dut:
    resolved = resolve(name, load_targets())
    assert isinstance(resolved.target.launcher, QemuLauncher)
    launcher = replace(resolved.target.launcher, args=(*resolved.target.launcher.args, *args))
    return flow.open_dut(replace(resolved, target=replace(resolved.target, launcher=launcher)))


@pytest.mark.slow
@pytest.mark.parametrize("name", TARGETS)
def test_the_number_does_not_depend_on_how_long_an_instruction_takes(name: str) -> None:
    """The board's timer runs two, four and eight times as fast against them; the user's icount replaces ours."""
    duts = [with_args(name, *args) for args in ((), ("-icount", "shift=8"), ("-icount", "9,sleep=off"))]
    program = lowered(duts[0], torch.nn.Linear(32, 16), 7, 32)
    counts = []
    for dut in duts:
        with dut:
            counts.append(counted(dut, program))
    assert counts == counts[:1] * 3


@pytest.mark.slow
@pytest.mark.parametrize(("setting", "clock"), [("shift=0", Clock.MODEL), ("shift=auto", Clock.HOST)])
def test_where_no_instructions_can_be_counted_there_are_ticks(setting: str, clock: Clock) -> None:
    """An instruction that takes less than two ticks of the timer, or no certain time."""
    with with_args("m4-qemu", "-icount", setting) as dut:
        assert (dut.session().identity.tick_source, dut.ran().clock) == ("SysTick", clock)


def test_what_is_no_qemu_counts_no_instructions() -> None:
    with flow.open_dut(resolve("native", load_targets())) as dut:
        assert dut.session().identity.tick_source == "CLOCK_MONOTONIC"
        assert dut.ran().clock is Clock.HOST
