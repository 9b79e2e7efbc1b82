"""Targets, their boards and their launchers as checked, frozen values.

A launcher is a frozen dataclass of the settings of one target, in a file of its own. Who needs to know something of it
asks it; nobody asks which one it is.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any, ClassVar, Final

from pydantic import BaseModel, ConfigDict

from cortex_m_hil.errors import ConfigError, HarnessError, ProgramFailed
from cortex_m_hil.targets.connection import BoardTools, Connection, Elf, RunningProcess
from cortex_m_hil.targets.cpu import Isa, architecture
from cortex_m_hil.targets.tool_commands import Procedure

LEASE_WAIT: Final = 600.0  # seconds for a board that others use


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
    def connect(self, target: Target, elf: Elf, directory: Path, tools: BoardTools | None) -> Connection:
        """A runner that serves; `directory` is for its files. `tools` are of a leased board."""

    @abstractmethod
    def start(self, target: Target, elf: Elf, directory: Path, arguments: Sequence[str]) -> RunningProcess:
        """A process that runs `elf` once with `arguments` (argv[0] included), or serves where there are none."""

    def launch(self, elf: Path, directory: Path, arguments: Sequence[str], seconds: float) -> RunningProcess:
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

    def explain_launch(self, target: Target, process: RunningProcess, status: int, log: str) -> HarnessError | None:
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
    wait: float = LEASE_WAIT

    @property
    def hardware(self) -> bool:
        """A virtual board is a simulator."""
        return not all(port.url.startswith("vboard:") for port in self.ports or (Port(self.port),))


@dataclass(frozen=True)
class Pools:
    """Bytes of the runner's three static pools.

    `shared`: where it is not 0, programs and planned buffers share so much memory, and one of full size leaves less
    than its pool for the other.
    """

    program: int
    planned: int
    method: int
    shared: int = 0

    def planned_beside(self, program: int) -> int:
        """What is left for planned buffers beside a program of so many bytes in its pool."""
        return min(self.planned, self.shared - program) if self.shared else self.planned


@dataclass(frozen=True)
class Resident:
    """Flash beside the runner: a program that lies there need not fit the pool."""

    address: int
    size: int  # bytes


@dataclass(frozen=True)
class Board:
    """One memory map: a folder with `board.yaml`, `board.ld` and `board.cpp`.

    `portable`: whether its runners have the portable operators that ExecuTorch's own test runner is built without.
    """

    name: str
    directory: Path
    pools: Pools
    resident: Resident = Resident(0, 0)
    portable: bool = True

    @property
    def program_room(self) -> int:
        """Bytes of the largest program, wherever it lies."""
        return max(self.pools.program, self.resident.size)

    def planned_room(self, program: int) -> int:
        """Bytes for the tensors of a program of so many bytes, wherever it lies best."""
        in_flash = program > self.pools.program or program <= self.resident.size
        return self.pools.planned if in_flash else self.pools.planned_beside(program)

    def keeps_in_flash(self, program: int, planned: int) -> bool:
        """Whether a program of `program` bytes has to lie in flash: the RAM does not hold it and its tensors."""
        in_ram = program <= self.pools.program and planned <= self.pools.planned_beside(program)
        return not in_ram and program <= self.resident.size


@dataclass(frozen=True)
class ExecutorchInstall:
    """`runtimes: {executorch: …}`: where the user's own ExecuTorch is installed. `prefix` may contain `{cpu}`.

    `build` is a shell command that is run in `base` where `prefix` is older than `source`. `libraries` are registries
    of the prefix (`portable_ops_lib`), linked whole instead of this project's selection of portable operators.
    """

    prefix: str
    origin: str  # "targets.yaml:3"
    source: Path | None = None
    build: str = ""
    libraries: tuple[str, ...] = ()
    base: Path | None = None


@dataclass(frozen=True)
class Target:
    """An entry of `targets.yaml`."""

    name: str
    cpu: str
    isa: Isa
    board: Board
    launcher: Launcher
    fallback: str | None
    origin: str  # "targets.yaml:12"; of one that comes with this package "cortex_m_hil/targets.yaml:12"
    executorch: ExecutorchInstall | None = None  # the file's, the same for all its targets
    fpu: bool = True  # False: compiled for a core without one, though its CPU can have one
    entry: Mapping[str, Any] = field(default_factory=dict, compare=False, repr=False)  # as the file has it
    alternatives: tuple[Target, ...] = field(default=(), compare=False, repr=False)  # the others that there are

    @property
    def config(self) -> str:
        """What the runner is built for, as its handshake says it: `cpu/isa/board`."""
        return f"{self.cpu}/{self.isa.value.lower()}/{self.board.name}"

    @property
    def architecture(self) -> str:
        """What the runner must have been compiled for, as its handshake says it: `armv8-m.main+fp.dp+dsp+mve.fp`."""
        return architecture(self.cpu, self.isa, self.fpu)
