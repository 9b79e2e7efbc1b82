"""Measure whole pytest runs in seconds, with an empty and with a full cache; also against another command."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import statistics
import sys
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench_lowering import failed
from cortex_m_hil.errors import ConfigError
from cortex_m_hil.host import subprocesses, toolchain
from cortex_m_hil.host.folders import TemporaryFolder
from cortex_m_hil.host.paths import cache_directory
from cortex_m_hil.lowering.disk_cache import disk
from cortex_m_hil.maintainers.executorch_suites import find_suite

DEADLINE = 4 * 3600.0  # seconds for one run


@dataclass(frozen=True)
class Command:
    """A command that is timed.

    Attributes:
        first: the command that builds its runners beforehand; None if no runners have to be built.
        caches: whether the command is faster the second time; if not, one run is both the cold and the warm run.
    """

    words: tuple[str, ...]
    first: tuple[str, ...] | None
    caches: bool = True

    @classmethod
    def building(cls, words: tuple[str, ...]) -> Command:
        """Return a command that builds its runners in its first run."""
        return cls(words, words)


@dataclass(frozen=True)
class Seconds:
    """The seconds of each run of a command, in order; cold and warm runs alternate."""

    command: tuple[str, ...]
    cold: tuple[float, ...]
    warm: tuple[float, ...]

    @property
    def medians(self) -> dict[str, float]:
        return {"cold_seconds": statistics.median(self.cold), "warm_seconds": statistics.median(self.warm)}


@dataclass(frozen=True)
class Compared:
    """The seconds of our command and of the command to compare with.

    `cold_ratio` and `warm_ratio` are medians of our seconds divided by the other's, run by run; None without another.
    """

    ours: Seconds
    theirs: Seconds | None

    @property
    def cold_ratio(self) -> float | None:
        return _ratio(self.ours.cold, self.theirs.cold) if self.theirs else None

    @property
    def warm_ratio(self) -> float | None:
        return _ratio(self.ours.warm, self.theirs.warm) if self.theirs else None


def pytest_command(targets: Sequence[str], paths: Sequence[Path]) -> tuple[str, ...]:
    here = (sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider")
    return (*here, f"--hil-target={','.join(targets)}", *map(str, paths))


def upstream_command(targets: Sequence[str], options: Sequence[str]) -> tuple[str, ...]:
    """Return the `hil dev upstream` command that runs ExecuTorch's tests of operators."""
    ours = (sys.executable, "-m", "cortex_m_hil.cli", "dev", "upstream", f"--target={','.join(targets)}", *options)
    return (*ours, "--", "-q", str(find_suite() / "ops"))


def upstreams_own(targets: Sequence[str], options: Sequence[str], keyword: str, folder: Path) -> str:
    """Build runners, and return a shell command that runs ExecuTorch's own test command on each target.

    These runs of pytest load none of our code; the FVP that they start is the shim, which runs QEMU.

    Args:
        targets: the targets' names.
        options: further options of `hil dev fvp-shim install`.
        keyword: the expression for pytest's -k.
        folder: the folder for the runners.

    Raises:
        ConfigError: the runners cannot be built.
    """
    here = (sys.executable, "-m", "cortex_m_hil.cli")
    runners = [f"--runner={name}" for name in targets]
    done = toolchain.run_tool([*here, "fvp-shim", "install", str(folder), *runners, *options, "--json"], DEADLINE)
    said = json.loads(done.out) if done.out else {"error": {"message": done.err.strip(), "hint": "the words above"}}
    if done.status != 0:
        raise ConfigError(
            f"no runners for ExecuTorch's own command: {said['error']['message']}", hint=said["error"]["hint"]
        )
    first = shlex.quote(str(Path(sys.executable).parent))
    only = f"-q -p no:cacheprovider -k {shlex.quote(keyword)}"
    return " && ".join([f"PATH={first}:$PATH", *(f"{command} {only}" for command in said["commands"])])


def build_command(targets: Sequence[str], options: Sequence[str]) -> tuple[str, ...]:
    """Return the `hil build` command for the runners that the tests will find in the cache."""
    return (sys.executable, "-m", "cortex_m_hil.cli", "build", f"--target={','.join(targets)}", *options)


def measure(ours: Command, theirs: Command | None, repetitions: Iterable[int]) -> Compared:
    """Measure the seconds of commands, cold and warm.

    First the runners of each command are built. Each repetition then runs both commands cold, and those that use a
    cache also warm. Each command has a cache folder of its own (`HIL_CACHE_DIR`).

    Args:
        ours: the command to measure.
        theirs: the command to compare with; None: there is none.
        repetitions: one item for each repetition.

    Raises:
        ToolchainError: a run fails, so its time is useless.
    """
    with TemporaryFolder() as folder:
        commands = [ours] if theirs is None else [ours, theirs]
        sides = [_Side(command, folder / str(number)) for number, command in enumerate(commands)]
        for side in sides:
            if side.command.first is not None:
                side.run(side.command.first)
        cold: list[list[float]] = []
        warm: list[list[float]] = []
        for _ in repetitions:
            cold.append([side.cold_seconds() for side in sides])
            warm.append([side.warm_seconds(before) for side, before in zip(sides, cold[-1], strict=True)])
    found = [
        Seconds(side.command.words, tuple(row[number] for row in cold), tuple(row[number] for row in warm))
        for number, side in enumerate(sides)
    ]
    return Compared(found[0], found[1] if theirs is not None else None)


@dataclass(frozen=True)
class _Side:
    command: Command
    cache: Path

    def cold_seconds(self) -> float:
        shutil.rmtree(self.cache / disk.folder.relative_to(cache_directory()), ignore_errors=True)
        return self.run(self.command.words)

    def warm_seconds(self, cold: float) -> float:
        return self.run(self.command.words) if self.command.caches else cold

    def run(self, words: tuple[str, ...]) -> float:
        """Run a command with this side's cache folder, and return its seconds.

        Raises:
            ToolchainError: the command fails.
        """
        self.cache.mkdir(exist_ok=True)
        log = self.cache.with_suffix(".log")
        log.unlink(missing_ok=True)
        began = time.monotonic()
        status = subprocesses.run(words, log, DEADLINE, env={**os.environ, "HIL_CACHE_DIR": str(self.cache)})
        seconds = time.monotonic() - began
        if status != 0:
            raise failed(" ".join(words), status, log)
        return seconds


def _ratio(ours: Sequence[float], theirs: Sequence[float]) -> float:
    return statistics.median(one / other for one, other in zip(ours, theirs, strict=True))
