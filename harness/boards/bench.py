"""A leased board on the bench: the lease, its tools and its health, as the launcher and the Dut use them."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path

from harness.boards import health, leases
from harness.boards.tools import Tools
from harness.build import Elf
from harness.errors import HarnessError
from harness.targets import SerialLauncher, Target


class Bench:
    """Waits for a board of `target`, and has it until `release`. BoardBusy or BoardWedged where there is none.

    `target` is then the same target with the port of the board that it is.
    """

    def __init__(self, target: Target, elf: Elf, what: str) -> None:
        assert isinstance(target.launcher, SerialLauncher)
        launcher = target.launcher
        try:
            ports = [port.url for port in launcher.pool]
            self._lease = leases.acquire(ports, what=what, wait=launcher.wait, build=elf.build_id)
        except HarnessError as error:
            error.target = target.name
            raise
        port = next(port for port in launcher.pool if port.url == self._lease.port)
        words = {"port": port.url} | ({"serial_number": port.serial_number} if port.serial_number else {})
        self._tools = Tools(launcher.flash, launcher.reset, launcher.power, words, target.name)
        self._elf = elf
        self.target = dataclasses.replace(target, launcher=dataclasses.replace(launcher, port=port.url))

    @property
    def can_flash(self) -> bool:
        return self._tools.flashing is not None

    @property
    def can_reset(self) -> bool:
        return self._tools.resetting is not None

    @property
    def in_doubt(self) -> bool:
        return bool(self._lease.health.flashing)

    def flash(self, elf: Path, build_id: str) -> str:
        return health.flash(self._lease, self._tools, elf, build_id)

    def reset(self) -> str:
        return self._tools.reset()

    def recover(self, cause: HarnessError, canary: Callable[[], object]) -> str:
        """Reset, reflash, power cycle; the name of what helped. BoardWedged if nothing does."""
        rungs = health.ladder(self._lease, self._tools, self._elf.path, self._elf.build_id)
        return health.recover(self._lease, cause, rungs, canary)

    def release(self) -> None:
        """The port must be closed by now."""
        self._lease.release()
