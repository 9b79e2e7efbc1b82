"""Reads the coverage counts of one target, during each boot and before it ends."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from cortex_m_hil.errors import ConfigError, HarnessError
from cortex_m_hil.flow.coverage import gcov
from cortex_m_hil.flow.coverage.counts import Counts, Coverage, Files, LostCounts, merged
from cortex_m_hil.host.paths import cache_directory
from cortex_m_hil.runner import linked_executorch
from cortex_m_hil.runner.session.session import Session
from cortex_m_hil.targets.connection import Elf
from cortex_m_hil.targets.cpu import HOST
from cortex_m_hil.targets.resolve import Resolved
from cortex_m_hil.targets.target import Target

# Factor on a program's time limit: kernels that count coverage are not optimised, and execute up to 12 times the
# instructions (MLPerf Tiny's MobileNet, m4-qemu; m55-qemu 10, m0-qemu 6, native 3).
SLOWER = 15.0
ENDED = "the target ended, and what it executed since it was last read is lost"


def check(resolved: Resolved) -> None:
    """Check that coverage can be counted on a target.

    Raises:
        ConfigError: the target cannot count coverage.
        ToolchainError: gcov is missing, or an ExecuTorch that counts coverage.
    """
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
            hint="a QEMU target, or the runtime builtin",
        )
    linked_executorch.find_prefix(resolved.target, cache_directory(), counts=True)


@dataclass
class _Boot:
    """The latest counts since one boot: data by object file, and gcov's counts. Counters are never reset."""

    counted: Mapping[str, bytes] = field(default_factory=dict)
    files: dict[str, Files] = field(default_factory=dict)


class Counting:
    """The counts of all boots of one target, and the lines that each test executed."""

    def __init__(self, target: Target, elf: Elf, runtime: str) -> None:
        self._target, self._runtime, self._elf = target, runtime, elf
        self._boot = _Boot()
        self._ended: list[_Boot] = []
        self._executed: dict[str, set[int]] = {}  # lines executed since the last call of take_executed
        self._tests: dict[str, dict[str, int]] = {}
        self._why = ""  # why reading the counts broke the session; "" if it did not
        self._lost: list[LostCounts] = []

    def read(self, session: Session) -> None:
        """Read the counts so far. If that fails, the session is broken, but the test does not fail."""
        if session.broken:
            return
        try:
            counted = session.coverage()
        except HarnessError as error:
            self._why = str(error).splitlines()[0]
            return
        try:
            self._take(counted)
        except HarnessError as error:
            problem = LostCounts(self._target.name, "", error.message)
            self._lost += [problem] if problem not in self._lost else []  # every further reading fails in the same way

    def _take(self, counted: Mapping[str, bytes]) -> None:
        """Run gcov on the data files that have changed since the last reading, and note newly executed lines."""
        boot = self._boot
        changed = [name for name, content in counted.items() if boot.counted.get(name) != content]
        found = gcov.by_object(self._target, self._elf, counted, changed)
        for name, files in found.items():
            before = boot.files.get(name, {})
            for file, counts in files.items():
                lines = counts.executed_since(before.get(file, Counts()))
                if lines:
                    self._executed.setdefault(file, set()).update(lines)
        boot.files.update(found)
        boot.counted = counted

    def lines(self) -> dict[str, frozenset[int]]:
        """Return all lines with code by source file, executed or not; known once the counts of this boot were read."""
        return {name: frozenset(counts.lines) for name, counts in merged(self._boot.files).items()}

    def take_executed(self) -> Mapping[str, set[int]]:
        """Return by source file the lines that were executed since the last call."""
        executed, self._executed = self._executed, {}
        return executed

    def end_test(self, name: str) -> None:
        """Assign the lines executed since the last call to a test."""
        known = self._tests.setdefault(name, {})
        for file, lines in self.take_executed().items():
            known[file] = max(known.get(file, 0), len(lines))

    def end(self, session: Session, during: str) -> None:
        """Read the counts before the session is closed, and note counts that are lost.

        Args:
            session: the session that ends.
            during: the test that was running.
        """
        self.read(session)
        if session.broken:
            self._lost.append(LostCounts(self._target.name, during, self._why or ENDED))
        if self._boot.files:
            self._ended.append(self._boot)
        self._boot, self._why = _Boot(), ""

    def tell(self, coverage: Coverage) -> None:
        """Add all counts to the coverage of a run, once the target is closed."""
        coverage.lost += self._lost
        for boot in self._ended:
            coverage.add_boot(self._target, self._runtime, merged(boot.files))
        for test, executed in self._tests.items():
            coverage.class_coverage(self._target, self._runtime).add_test(test, executed)
