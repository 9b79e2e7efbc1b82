"""A leased board: the lease, its tools and its health, as the launcher and the Dut use them."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Callable, Mapping
from pathlib import Path

from cortex_m_hil.boards import health, labgrid, leases
from cortex_m_hil.boards.run_tools import Tools
from cortex_m_hil.errors import HarnessError
from cortex_m_hil.targets.connection import Elf
from cortex_m_hil.targets.model import HardwareLauncher, Target


class LeasedBoard:
    """Waits for a board of `target`, and has it until `release`. BoardBusy or BoardWedged where there is none.

    `target` is then the same target with the port of the board that it is.
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
        self._tools = Tools(launcher.flash, launcher.reset, launcher.power, variables, target.name)
        self._elf = elf
        self._tried: set[str] = set()  # steps of the recovery_steps, since the last boot began
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
        """For somebody with another setup: this is the first try with ours."""
        return bool(self._lease.health.wedged)

    def passed(self) -> None:
        """The board works after all."""
        if self.is_wedged:
            self._lease.health = self._lease.health.well()

    def flash(self, elf: Path, build_id: str) -> str:
        self._tried.add("reflash")
        return health.flash(self._lease, self._tools, elf, build_id)

    def reset(self) -> str:
        self._tried.add("reset")
        return self._tools.reset()

    def begin(self) -> None:
        """A boot begins: what it does to the board need not be done again if it fails."""
        self._tried.clear()

    def recover(self, cause: HarnessError, self_test: Callable[[], object]) -> str:
        """Reset, reflash, power cycle; the name of what helped. BoardWedged if nothing does."""
        steps = health.recovery_steps(self._lease, self._tools, self._elf.path, self._elf.build_id)
        return health.recover(self._lease, cause, steps, self_test, frozenset(self._tried))

    def release(self) -> None:
        """The port must be closed by now."""
        self._lease.release()


def _setup(launcher: HardwareLauncher, elf: Elf) -> str:
    """A digest of what a board's coming up depends on, beside the board."""
    tools = [
        tool and dataclasses.replace(tool, origin="", seconds=0.0)
        for tool in (launcher.flash, launcher.reset, launcher.power)
    ]
    return hashlib.sha256(repr((elf.build_id, launcher.baud, tools)).encode()).hexdigest()[:16]


def _lease(
    launcher: HardwareLauncher, elf: Elf, what: str
) -> tuple[leases.Lease | labgrid.RemoteLease, Mapping[str, str]]:
    """A lease, and what its board's tools call it."""
    setup = _setup(launcher, elf)
    if launcher.port.startswith(labgrid.SCHEME):
        remote = labgrid.acquire(launcher.port, what=what, wait=launcher.wait, setup=setup)
        return remote, remote.variables
    ports = [port.url for port in launcher.ports]
    local = leases.acquire(ports, what=what, wait=launcher.wait, build=elf.build_id, setup=setup)
    number = next(port.serial_number for port in launcher.ports if port.url == local.port)
    return local, {"serial_number": number} if number else {}
