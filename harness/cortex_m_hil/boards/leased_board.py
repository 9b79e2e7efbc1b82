"""A leased board: its lease, tools and health record in one object, for the launcher and the Dut."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Callable, Mapping
from pathlib import Path

from cortex_m_hil.boards import health, labgrid, leases
from cortex_m_hil.boards.board_tools import CommandTools
from cortex_m_hil.errors import HarnessError
from cortex_m_hil.host.spans import span
from cortex_m_hil.runner.links.uart import LABGRID
from cortex_m_hil.targets.connection import Elf
from cortex_m_hil.targets.target import HardwareLauncher, Target


class LeasedBoard:
    """A board of `target`; the constructor waits for a free one and leases it until `release`.

    The constructor raises BoardBusy or BoardWedged if it gets no board. The attribute `target` is the same target with
    the leased board's port.
    """

    def __init__(self, target: Target, elf: Elf, what: str) -> None:
        assert isinstance(target.launcher, HardwareLauncher)
        launcher = target.launcher
        try:
            self._lease, variables = _lease(launcher, elf, what)
        except HarnessError as error:
            error.target = target.name
            raise
        variables = {"port": self._lease.port, **variables}
        self._tools = CommandTools(launcher.flash, launcher.reset, launcher.power, variables, target.name)
        self._elf = elf
        self._tried: set[str] = set()  # names of recovery steps taken since the last boot began
        self.target = dataclasses.replace(target, launcher=dataclasses.replace(launcher, port=self._lease.port))

    @property
    def can_flash(self) -> bool:
        return self._tools.flashing is not None

    @property
    def can_reset(self) -> bool:
        return self._tools.resetting is not None

    @property
    def flash_incomplete(self) -> bool:
        return bool(self._lease.health.flashing)

    @property
    def is_wedged(self) -> bool:
        """Tell whether the board is recorded as wedged for another setup, so that this is the first try with ours."""
        return bool(self._lease.health.wedged)

    def passed(self) -> None:
        """Record that the board works, if it was recorded as wedged."""
        if self.is_wedged:
            self._lease.health = self._lease.health.recovered()

    def flash(self, elf: Path, build_id: str) -> str:
        self._tried.add("reflash")
        with span("flash", build_id):
            return health.flash(self._lease, self._tools, elf, build_id)

    def reset(self) -> str:
        self._tried.add("reset")
        return self._tools.reset()

    def begin(self) -> None:
        """Note the begin of a boot: recovery steps taken from now on are not repeated if the boot fails."""
        self._tried.clear()

    def recover(self, cause: HarnessError, self_test: Callable[[], object]) -> str:
        """Recover the board by a reset, a flash or a power cycle; return the name of the step that helped.

        Raises as `health.recover`.
        """
        steps = health.recovery_steps(self._lease, self._tools, self._elf.path, self._elf.build_id)
        return health.recover(self._lease, cause, steps, self_test, frozenset(self._tried))

    def release(self) -> None:
        """End the lease of the board. The port must be closed before."""
        self._lease.release()


def _setup(launcher: HardwareLauncher, elf: Elf) -> str:
    """Return a digest of all that affects the start of a board: build id, baud rate and tools."""
    tools = [
        tool and dataclasses.replace(tool, origin="", seconds=0.0)
        for tool in (launcher.flash, launcher.reset, launcher.power)
    ]
    return hashlib.sha256(repr((elf.build_id, launcher.baud, tools)).encode()).hexdigest()[:16]


def _lease(
    launcher: HardwareLauncher, elf: Elf, what: str
) -> tuple[leases.Lease | labgrid.RemoteLease, Mapping[str, str]]:
    """Lease a board of the launcher; return the lease, and the template variables that select the board for tools."""
    with span("wait", f"for a board: {launcher.port}"):
        return _acquired(launcher, elf, what)


def _acquired(
    launcher: HardwareLauncher, elf: Elf, what: str
) -> tuple[leases.Lease | labgrid.RemoteLease, Mapping[str, str]]:
    setup = _setup(launcher, elf)
    if launcher.port.startswith(LABGRID):
        remote = labgrid.acquire(launcher.port, what=what, wait=launcher.wait, setup=setup)
        return remote, remote.variables
    ports = [port.url for port in launcher.ports]
    local = leases.acquire(ports, what=what, wait=launcher.wait, build=elf.build_id, setup=setup)
    number = next(port.serial_number for port in launcher.ports if port.url == local.port)
    return local, {"serial_number": number} if number else {}
