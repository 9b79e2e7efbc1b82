"""What one target counts, from each boot to its end."""

from __future__ import annotations

from collections.abc import Mapping

from cortex_m_hil.coverage import gcov
from cortex_m_hil.coverage.counts import Coverage, Lost
from cortex_m_hil.errors import ConfigError, HarnessError
from cortex_m_hil.host.paths import cache_directory
from cortex_m_hil.runner import executorch_install
from cortex_m_hil.runner.build import Elf
from cortex_m_hil.session.session import Session
from cortex_m_hil.targets.cpu import HOST
from cortex_m_hil.targets.model import Target
from cortex_m_hil.targets.resolve import Resolved

# Of the budget for a program, which is for kernels that are optimised: they execute 12 times the instructions at most
# (MLPerf Tiny's MobileNet, m4-qemu; m55-qemu 10, m0-qemu 6, native 3).
SLOWER = 15.0
ENDED = "the target ended, and what it executed since it was last read is lost"


def check(resolved: Resolved) -> None:
    """ConfigError where a target's kernels cannot be counted, ToolchainError without gcov."""
    if not resolved.target.launcher.counts_coverage:
        raise ConfigError(
            f"coverage is collected on QEMU and native only, not on {resolved.target.launcher.describe()}",
            target=resolved.display_name,
            hint="the same kernels on a QEMU target of its ISA class: hil targets",
        )
    if resolved.runtime == "executorch":
        _check_executorch(resolved)
    gcov.tool(resolved.target)


def _check_executorch(resolved: Resolved) -> None:
    if resolved.target.cpu == HOST.name:
        raise ConfigError(
            "ExecuTorch's libraries on the host count no coverage",
            target=resolved.display_name,
            hint="a QEMU target; on the host drop --runtime or --hil-coverage",
        )
    executorch_install.find(resolved.target, cache_directory(), counts=True)


class Counting:
    """What the boots of one target have counted. Counters are never reset: the last reading has all of a boot."""

    def __init__(self, target: Target, elf: Elf, runtime: str) -> None:
        self._target = target
        self._runtime = runtime
        self._elf = elf
        self._last: Mapping[str, bytes] | None = None
        self._boots: list[Mapping[str, bytes]] = []
        self._why = ""  # the session ended, where it was the reading
        self._lost: list[Lost] = []

    def read(self, session: Session) -> None:
        """What was counted so far. Where that fails the session is broken, which is no matter of the test's."""
        if session.broken:
            return
        try:
            self._last = session.coverage()
        except HarnessError as error:
            self._why = str(error).splitlines()[0]

    def end(self, session: Session, during: str) -> None:
        """Before the session is closed, while the test `during` was run."""
        self.read(session)
        if session.broken:
            self._lost.append(Lost(self._target.name, during, self._why or ENDED))
        if self._last is not None:
            self._boots.append(self._last)
        self._last, self._why = None, ""

    def tell(self, coverage: Coverage) -> None:
        """All of it, once the target is closed."""
        coverage.lost += self._lost
        for counted in self._boots:
            try:
                coverage.add_boot(self._target, self._runtime, gcov.kernels(self._target, self._elf, counted))
            except HarnessError as error:
                coverage.lost.append(Lost(self._target.name, "", error.message))
