"""What a launcher says of itself, and how one is found by its key in `targets.yaml`.

A launcher is a frozen dataclass of the settings of one target, in a file of its own. Who needs to know something of it
asks it; nobody asks which one it is.
"""

from __future__ import annotations

import importlib.metadata
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from pydantic import BaseModel, ConfigDict

from cortex_m_hil.errors import ConfigError, HarnessError, ProgramFailed, did_you_mean

if TYPE_CHECKING:
    from cortex_m_hil.launchers.process import Process
    from cortex_m_hil.launchers.serial import Tools
    from cortex_m_hil.links import Connection
    from cortex_m_hil.runner.build import Elf
    from cortex_m_hil.targets.model import Target
    from cortex_m_hil.targets.tool_commands import Procedure

# Those that come with this package, by their key below `launcher:`. In the same words as an entry point.
SHIPPED: Mapping[str, str] = {
    "qemu": "cortex_m_hil.launchers.qemu:QemuLauncher",
    "fvp": "cortex_m_hil.launchers.fvp:FvpLauncher",
    "native": "cortex_m_hil.launchers.native:NativeLauncher",
    "serial": "cortex_m_hil.launchers.serial:SerialLauncher",
}
GROUP = "cortex_m_hil.launchers"  # the entry points of other packages


class Strict(BaseModel):
    """A mapping in a YAML file: what it does not name is an unknown key."""

    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)


class Clock(str, Enum):
    """What the runner's ticks follow; the value is the word in the names of figures.

    A simulator has no cycles: the host's own clock, and that of a QEMU without -icount, follow the time that the host
    takes, so the same program gives other numbers each time; the clock of an FVP counts what the model executes.
    INSTRUCTIONS is exact, where both launcher and runner say so: the same program gives the same number. INSTRUMENTED
    is that of a runner whose kernels count coverage as well.
    """

    INSTRUCTIONS = "instructions"
    CORE = "cycles"
    MODEL = "model_ticks"
    HOST = "host_ticks"
    INSTRUMENTED = "instrumented_ticks"

    @property
    def meaning(self) -> str:
        return {
            Clock.INSTRUCTIONS: "exact",
            Clock.CORE: "cycles of the core",
            Clock.MODEL: "of the model's clock: no cycles of a core",
            Clock.INSTRUMENTED: "of kernels that count what they execute: no measure of cost",
            Clock.HOST: "of the host's time: differ from run to run, no measure of cost",
        }[self]


class Launcher(ABC):
    """Brings a target to life. Subclasses are frozen dataclasses: `launchers.simulator.Simulator`, or a board's.

    `settings`: what the key takes in `targets.yaml`. `shorthand`: the setting that a plain text stands for.
    `optional`: a machine may well be without it, so it is looked for when a target is resolved, and `hil doctor` has a
    row for it. What is not optional is looked for when it is used, or where the target has a fallback.
    """

    settings: ClassVar[type[Strict]]
    shorthand: ClassVar[str] = ""
    optional: ClassVar[bool] = True

    @classmethod
    @abstractmethod
    def parse(cls, settings: Any, where: str) -> Launcher:
        """From valid `settings`. ConfigError, beginning with `where`, for what a type cannot say."""

    @abstractmethod
    def describe(self) -> str:
        """In a few words, for `hil targets`: `qemu mps2-an386`."""

    @property
    def program(self) -> str:
        """The executable that it needs, as `hil doctor` names its row."""
        return self.describe()

    @abstractmethod
    def require(self) -> None:
        """ToolchainError or PortNotFound where it cannot run on this machine, ConfigError where a setting is wrong.

        At the cost of a look, not of a start.
        """

    @abstractmethod
    def engine(self, board: str) -> str:
        """What executes instructions, with its version: `QEMU 7.2.22`. `board` is the name of the target's."""

    @property
    def hardware(self) -> bool:
        """Whether a core executes the instructions, and no simulator."""
        return False

    @property
    def clock(self) -> Clock:
        """What the runner's ticks follow. INSTRUCTIONS, if the runner finds them to be, and else MODEL."""
        return Clock.CORE if self.hardware else Clock.HOST

    @property
    def counts_coverage(self) -> bool:
        """Whether a runner whose kernels count what they execute may run: it is larger, and several times slower."""
        return False

    @property
    def takes_foreign_runners(self) -> bool:
        """Whether a runner that a stranger built may run: emulated, and in a sandbox."""
        return False

    def shim(self) -> str:
        """What the executable calls itself, where it is not what its name says; else ""."""
        return ""

    def check(self, folder: Path) -> str:
        """What `hil doctor` says of it, once it has tried more than `require`; `folder` is empty."""
        return self.engine("")

    def definitions(self) -> Mapping[str, str]:
        """Further CMake definitions of a runner for it."""
        return {}

    @abstractmethod
    def connect(self, target: Target, elf: Elf, directory: Path, tools: Tools | None) -> Connection:
        """A runner that serves; `directory` is for its files. `tools` are of a leased board."""

    @abstractmethod
    def start(self, target: Target, elf: Elf, directory: Path, arguments: Sequence[str]) -> Process:
        """A process that runs `elf` once with `arguments` (argv[0] included), or serves where there are none."""

    def launch(self, elf: Path, directory: Path, arguments: Sequence[str], seconds: float) -> Process:
        """A process that runs a program of the user's, which is no runner, for at most `seconds` of its CPU time.

        Its console is on standard output and standard error, joined. `arguments` as `start`.
        """
        raise ConfigError(f"{self.describe()} runs no programs but runners", hint="hil launch on a QEMU target")

    def memory(self) -> Sequence[range]:
        """The addresses at which there is memory, ascending; none where that is not known before the start."""
        return ()

    @abstractmethod
    def explain_end(self, target: Target, connection: Connection, status: int | None, log: str) -> HarnessError:
        """Why a runner that should be there is gone. `status` as `Process.wait` gives it, `log` all it printed."""

    def explain_launch(self, target: Target, process: Process, status: int, log: str) -> HarnessError | None:
        """What was wrong with the end of a program that was launched; None where nothing was."""
        return None if status == 0 else ProgramFailed(f"the program ended with exit status {status}")


@dataclass(frozen=True)
class Port:
    """Where a board is, and what its tools tell it from others by."""

    url: str  # what pyserial opens: /dev/ttyACM0, socket://host:port, rfc2217://host:port; or vboard:NAME, labgrid://…
    serial_number: str = ""


@dataclass(frozen=True)
class HardwareLauncher(Launcher):
    """A board, any of `ports`, which is leased; `port` is the one that is used, the first until there is a lease."""

    optional: ClassVar[bool] = False

    port: str
    baud: int
    flash: Procedure | None = None
    reset: Procedure | None = None
    power: Procedure | None = None
    ports: tuple[Port, ...] = ()
    wait: float = 600.0  # seconds for a board that others use

    @property
    def hardware(self) -> bool:
        """A virtual board is a simulator."""
        return not all(port.url.startswith("vboard:") for port in self.ports or (Port(self.port),))


def find(key: str) -> type[Launcher]:
    """The launcher of that key, from this package or another. ConfigError where there is none, or a broken one."""
    if key in SHIPPED:
        return _load(EntryPoint(key, SHIPPED[key], GROUP))
    offered = _offered()
    if key not in offered:
        raise ConfigError(f"unknown key {key!r}", hint=did_you_mean(key, [*SHIPPED, *offered]))
    return _load(offered[key])


def _offered() -> dict[str, EntryPoint]:
    """What other packages bring. Looked for only where a key is not of this package: it costs milliseconds."""
    offered: dict[str, EntryPoint] = {}
    for one in importlib.metadata.entry_points(group=GROUP):
        if one.name in SHIPPED or one.name in offered:
            other = _package(offered[one.name]) if one.name in offered else "this package"
            raise ConfigError(
                f"launcher {one.name!r} comes from {_package(one)} and from {other}", hint="uninstall one of them"
            )
        offered[one.name] = one
    return offered


def _load(entry: EntryPoint) -> type[Launcher]:
    module = entry.value.partition(":")[0]
    try:
        found = entry.load()
    except Exception as error:  # a stranger's module may raise anything
        raise ConfigError(
            f"launcher {entry.name!r} of {_package(entry)} does not load: {type(error).__name__}: {error}",
            hint=f"python -c 'import {module}' shows where",
        ) from error
    if not (isinstance(found, type) and issubclass(found, Launcher)):
        raise ConfigError(
            f"launcher {entry.name!r} of {_package(entry)}: {entry.value} is no subclass of Launcher",
            hint="cortex_m_hil.targets.launcher.Launcher",
        )
    return found


def _package(entry: EntryPoint) -> str:
    return f"{entry.dist.name} {entry.dist.version}" if entry.dist else "this package"
