"""Targets and boards as checked, frozen values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cortex_m_hil.targets.cpu import Isa, architecture
from cortex_m_hil.targets.launcher import Launcher


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
