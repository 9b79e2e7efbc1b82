"""What a run gave: outputs, peaks of memory, ticks, log, and what it was that ran."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

import numpy as np
import numpy.typing as npt

from cortex_m_hil.program.tensor import HostTensor


@dataclass(frozen=True)
class Identity:
    """A runner's handshake. Pools in bytes; `tick_hz` is 0 where `tick_source` is `none`.

    `architecture` is what its compiler was told to compile for, from the predefined macros.
    """

    build_id: str
    config: str
    cpuid: int
    isa: str
    architecture: str
    runtime: str
    runtime_version: str
    max_payload: int
    program_pool: int
    planned_pool: int
    method_pool: int
    tick_source: str
    tick_hz: int
    operators: tuple[str, ...] = field(repr=False)


@dataclass(frozen=True)
class Pool:
    """Bytes at the peak, and bytes there are."""

    used: int
    size: int


@dataclass(frozen=True)
class Stats:
    """`temp` is what was taken of the method pool and given back, by an instruction or while loading."""

    program: Pool
    planned: Pool
    method: Pool
    stack: Pool
    temp: Pool


@dataclass(frozen=True)
class Ran:
    """What executed the program: results are keyed by this, never by the name that was asked for."""

    requested: str
    target: str
    engine: str
    runtime: str
    runtime_version: str

    @property
    def label(self) -> str:
        display_name = self.target if self.requested == self.target else f"{self.requested} → {self.target}"
        return f"{display_name} · {self.runtime} {self.runtime_version} on {self.engine}"


@dataclass(frozen=True)
class RunResult:
    """`unwritten` has a mask per output: elements nobody wrote. `ticks` are in units of `Identity.tick_source`."""

    outputs: tuple[HostTensor, ...]
    unwritten: tuple[npt.NDArray[np.bool_], ...] = field(repr=False)
    stats: Stats
    ticks: int
    ran: Ran
    log: str = field(repr=False)


class Verdict(str, Enum):
    """One word a test, for tables and reports."""

    PASS = "pass"
    FAIL = "FAIL"
    INFRA = "INFRA"
    SKIP = "skip"
    XFAIL = "xfail"
    XPASS = "XPASS"
