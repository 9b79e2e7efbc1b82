"""Targets, their boards and their launchers as checked, frozen values.

A launcher is a frozen dataclass of the settings of one target, in a file of its own. Callers use its properties and
methods only; no code checks which launcher class it is.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict

from cortex_m_hil.errors import ConfigError, HarnessError, ProgramFailed
from cortex_m_hil.host import timeouts
from cortex_m_hil.targets.board_tool_commands import Procedure
from cortex_m_hil.targets.connection import BoardTools, Connection, Elf, RunningProcess
from cortex_m_hil.targets.cpu import Isa, architecture
from cortex_m_hil.targets.memory import Memory
from cortex_m_hil.targets.runtimes import AUTO


class Strict(BaseModel):
    """A mapping in a YAML file that rejects unknown keys."""

    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)


class Clock(str, Enum):
    """The clock that a runner's ticks follow; the value is the word for it in the names of JUnit properties.

    A simulator has no cycles: HOST is the host's own clock, which a QEMU without -icount follows as well, so the same
    program gives other numbers each time; MODEL, the clock of an FVP, counts what the model executes. INSTRUCTIONS is
    exact, where both launcher and runner report this clock: the same program gives the same number. INSTRUMENTED is the
    clock of a runner whose kernels count coverage as well. CORE counts cycles of a real core.
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
    """The settings of one target's launcher, with the methods that start the target.

    Subclasses are frozen dataclasses, such as `launchers.simulator.Simulator` or `HardwareLauncher`.

    Attributes:
        settings: the pydantic model of the launcher's settings in `targets.yaml`.
        shorthand: the setting that gets the value if `targets.yaml` has a string in place of a mapping.
        optional: whether many machines lack the launcher's program. If so, `require` is called as soon as a target is
            resolved, and `hil doctor` has a row for it; for other launchers it is called on first use, or where the
            target has a fallback.
    """

    settings: ClassVar[type[Strict]]
    shorthand: ClassVar[str] = ""
    optional: ClassVar[bool] = True

    @classmethod
    @abstractmethod
    def parse(cls, settings: Any, where: str) -> Launcher:
        """Make a launcher of valid `settings`.

        Raises ConfigError, with a message that begins with `where`, for values that the types of `settings` do not rule
        out.
        """

    @abstractmethod
    def describe(self) -> str:
        """Return a few words for `hil targets`, such as `qemu mps2-an386`."""

    @property
    def program(self) -> str:
        """Return the name of the executable that the launcher needs, for its row in `hil doctor`."""
        return self.describe()

    @abstractmethod
    def require(self) -> None:
        """Check that the launcher can run on this machine, without starting a process.

        Raises ToolchainError or PortNotFound where it cannot run, ConfigError where a setting is wrong.
        """

    @abstractmethod
    def engine(self, board: str) -> str:
        """Return the simulator or board that executes instructions, with its version: `QEMU 7.2.22`.

        `board` is the target's board.
        """

    @property
    def is_hardware(self) -> bool:
        """Tell whether a real core executes the instructions, and no simulator."""
        return False

    def clock(self, counts: bool) -> Clock:
        """Return the clock that ticks follow; `counts`: the runner says that they are instructions."""
        return Clock.CORE if self.is_hardware else Clock.HOST

    @property
    def counts_coverage(self) -> bool:
        """Tell whether the launcher can run runners that count coverage, which are larger and several times slower."""
        return False

    @property
    def takes_foreign_runners(self) -> bool:
        """Tell whether a runner that was built on another machine may run, because a sandbox confines it."""
        return False

    def shim(self) -> str:
        """Return the name that the executable reports if it is not the program of its file name, else ""."""
        return ""

    def check(self, folder: Path) -> str:
        """Check more than `require` does, and return the text for `hil doctor`.

        `folder` is an empty folder for temporary files.
        """
        return self.engine("")

    def definitions(self) -> Mapping[str, str]:
        """Return further CMake definitions with which a runner for this launcher is built."""
        return {}

    @abstractmethod
    def connect(self, target: Target, elf: Elf, directory: Path, tools: BoardTools | None) -> Connection:
        """Start a runner that serves, and connect to it.

        `directory` is for the runner's files; `tools` act on a leased board, None for a simulator.
        """

    @abstractmethod
    def start(self, target: Target, elf: Elf, directory: Path, arguments: Sequence[str]) -> RunningProcess:
        """Start a process that runs `elf` once with `arguments`, argv[0] included.

        Without arguments it serves requests. `directory` is for the process's files. Raises ConfigError for a target
        without a process, such as a board.
        """

    def launch(
        self, elf: Path, directory: Path, arguments: Sequence[str], seconds: float, *, count: Path | None = None
    ) -> RunningProcess:
        """Start a user's program, which is no runner, for at most `seconds` of CPU time.

        Args:
            elf: the program.
            directory: the program's working folder.
            arguments: the program's command line, argv[0] included.
            seconds: CPU time that the program may use.
            count: the file into which the number of executed instructions is written as the program ends, by a
                launcher that can count them exactly; None: they are not counted.

        Returns:
            The process; the program's console is on standard output and standard error, joined.

        Raises:
            ConfigError: this launcher runs only runners.
        """
        raise ConfigError(
            f"{self.describe()} cannot run programs other than runners", hint="hil launch on a QEMU target"
        )

    def memory(self) -> Sequence[range]:
        """Return the address ranges of memory, ascending; empty where they are known only while it runs."""
        return ()

    @abstractmethod
    def explain_end(self, target: Target, connection: Connection, status: int | None, log: str) -> HarnessError:
        """Return the error that explains why a runner has ended unexpectedly.

        `status` is that of `Process.wait`, `log` is everything that the runner printed.
        """

    def explain_launch(self, target: Target, process: RunningProcess, status: int, log: str) -> HarnessError | None:
        """Return the error that explains the end of a launched program, None if the program ended normally."""
        return None if status == 0 else ProgramFailed(f"the program ended with exit status {status}")


@dataclass(frozen=True)
class Port:
    """A board's port, and the serial number by which flash tools select the board."""

    url: str  # what pyserial opens: /dev/ttyACM0, socket://host:port, rfc2217://host:port; or vboard:NAME, labgrid://…
    serial_number: str = ""


@dataclass(frozen=True)
class HardwareLauncher(Launcher):
    """The launcher of a board.

    Any free board of those at `ports` is leased. `port` is the leased board's; before there is a lease, the first one.
    """

    optional: ClassVar[bool] = False

    port: str
    baud: int
    flash: Procedure | None = None
    reset: Procedure | None = None
    power: Procedure | None = None
    ports: tuple[Port, ...] = ()
    wait: float = timeouts.LEASE_WAIT

    @property
    def is_hardware(self) -> bool:
        """Tell whether the port belongs to a real board: a virtual board is a simulator."""
        return not all(port.url.startswith("vboard:") for port in self.ports or (Port(self.port),))


@dataclass(frozen=True)
class Board:
    """A board: one memory map, in a folder with `board.yaml`, `board.cpp` and, for further sections, `board.ld`.

    Attributes:
        name: the folder's name.
        directory: the folder.
        memory: the memory as `board.yaml` describes it, with a target's own keys if it overrides any.
        portable: whether runners get the portable operators that ExecuTorch's own test runner lacks.
    """

    name: str
    directory: Path
    memory: Memory
    portable: bool = True


@dataclass(frozen=True)
class ExecutorchInstall:
    """An ExecuTorch that the user has installed: `runtimes: {executorch: …}` in a targets file.

    Attributes:
        prefix: the folder of the installation; it may contain `{cpu}`.
        origin: file and line of the entry, such as "targets.yaml:3".
        source: the folder of ExecuTorch's sources, if the entry names it.
        build: a shell command, run in `base` where `prefix` is older than `source`; "": no command.
        libraries: libraries of the prefix that register operators (`portable_ops_lib`), linked whole in place of this
            project's selection of portable operators.
        base: the folder of the targets file.
    """

    prefix: str
    origin: str
    source: Path | None = None
    build: str = ""
    libraries: tuple[str, ...] = ()
    base: Path | None = None


@dataclass(frozen=True)
class OwnFirmware:
    """The user's own firmware, with the target library, in place of a runner: `firmware:` of a target.

    Attributes:
        elf: the path of the ELF.
        build: a shell command that builds the firmware, run in `base` before each use; "": no command.
        base: the folder of the targets file, in a bisection that of the commit.
        origin: file and line of the entry, such as "targets.yaml:3".
    """

    elf: Path
    build: str
    base: Path
    origin: str


@dataclass(frozen=True)
class Target:
    """A target: an entry of `targets.yaml`."""

    name: str
    cpu: str
    isa: Isa
    board: Board
    launcher: Launcher
    fallback: str | None
    origin: str  # "targets.yaml:12"; for a default target "cortex_m_hil/targets.yaml:12"
    executorch: ExecutorchInstall | None = None  # ExecuTorch's settings, the same for all targets of a file
    runtime: str = AUTO  # the runtime that the entry names, else the file's default
    fpu: bool = True  # False: compiled for a core without a floating-point unit, though the CPU can have one
    firmware: OwnFirmware | None = None  # None: a runner is built for the target
    entry: Mapping[str, Any] = field(default_factory=dict, compare=False, repr=False)  # the entry as it is in the file
    alternatives: tuple[Target, ...] = field(default=(), compare=False, repr=False)  # all other targets

    @property
    def config(self) -> str:
        """Return the configuration that the runner is built for, as its handshake reports it: `cpu/isa/board`.

        "" for the user's own firmware, which may report anything.
        """
        if self.firmware is not None:
            return ""
        return f"{self.cpu}/{self.isa.value.lower()}/{self.board.name}"

    @property
    def architecture(self) -> str:
        """Return the architecture that the runner's handshake must report: `armv8-m.main+fp.dp+dsp+mve.fp`."""
        return architecture(self.cpu, self.isa, self.fpu)
