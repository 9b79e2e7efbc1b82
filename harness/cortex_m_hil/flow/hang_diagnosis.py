"""Finds out by a self-test, on a board also by a second run, whether a program or the target is why no answer comes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from cortex_m_hil.errors import BoardWedged, HarnessError, LaunchError, LinkError, TargetHang
from cortex_m_hil.flow.self_test import selftest
from cortex_m_hil.flow.single_run import Device, execute
from cortex_m_hil.program.program import Program
from cortex_m_hil.program.tensor import HostTensor
from cortex_m_hil.runner.links.protocol import Request
from cortex_m_hil.runner.session.session import ResponseTimeout
from cortex_m_hil.targets.target import HardwareLauncher


@contextmanager
def hang_diagnosed(dut: Device, program: Program, inputs: Sequence[HostTensor]) -> Iterator[None]:
    """Raise an error that blames the program or the target if a run in the block gets no answer in time.

    The target has been restarted by then.

    Raises:
        TargetHang: the target passes its self-test after a restart, and on a board hangs a second time.
        InfraError: otherwise.
    """
    try:
        yield
        return
    except ResponseTimeout as stuck:
        problem = explained_silence(dut, stuck, f"no end after {dut.seconds:g} s {_measured_by(dut)}")
    if isinstance(problem, TargetHang) and isinstance(dut.target.launcher, HardwareLauncher):
        problem = _hangs_again(dut, program, inputs, problem)
    raise problem from problem.__cause__


def _measured_by(dut: Device) -> str:
    return "by the clock" if isinstance(dut.target.launcher, HardwareLauncher) else "of the simulator's CPU time"


def explained_silence(dut: Device, stuck: ResponseTimeout, what: str) -> HarnessError:
    """Return the error for a target that stopped answering, which `what` says; it has been restarted then.

    Returns:
        TargetHang where it passes its self-test after that; an InfraError where it does not, where only a recovery of
        the board helped, or where the link may have been at fault.
    """
    name, log = dut.target.name, stuck.log
    dut.restart()
    try:
        selftest(dut)
    except BoardWedged as error:
        return error
    except HarnessError as error:
        problem = LaunchError(
            f"the target stopped answering, and does not pass its self-test now: {error.message}",
            target=name,
            operator=error.operator,
            hint=error.hint,
            log=log,
        )
        problem.__cause__ = error
        return dut.recover(problem)
    if dut.recovered_by:
        return LaunchError(
            f"the target stopped answering, and came back by {dut.recovered_by} only", target=name, log=log
        )
    if stuck.request not in (Request.EXECUTE, Request.STEP) and isinstance(dut.target.launcher, HardwareLauncher):
        return LinkError(f"no answer to {stuck.request.name}; after a restart the target answers", target=name, log=log)
    return TargetHang(
        f"{what}; after a restart the target passes its self-test",
        target=name,
        operator=stuck.operator,
        log=log,
        hint="--timeout-multiplier, if the program is only slow",
    )


def _hangs_again(dut: Device, program: Program, inputs: Sequence[HostTensor], hang: TargetHang) -> HarnessError:
    """Return the hang if the program hangs a second time on the board, else another error.

    A single hang looks like a wire that is interrupted for a while.
    """
    try:
        execute(dut, dut.session(), program, inputs)
    except ResponseTimeout as stuck:
        if stuck.request is Request.EXECUTE:
            dut.restart()
            return hang
    except HarnessError as error:
        return error
    return LinkError(
        "the board fell silent while it ran the program, and did not when it ran it again",
        target=hang.target,
        operator=hang.operator,
        log=hang.log,
        hint="cable, power, or a board that hangs now and then",
    )
