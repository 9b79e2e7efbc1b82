"""Results of a run: outputs, memory peaks, ticks, the log, and the identity of the target that ran."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Final

from cortex_m_hil.program.operator_costs import CountOperators, OperatorCost, counted_operators
from cortex_m_hil.program.tensor import HostTensor
from cortex_m_hil.targets.target import Clock

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

INSTRUCTIONS: Final = "instructions"  # the tick source of a runner that has calibrated its timer in instructions


@dataclass(frozen=True)
class Identity:
    """The contents of a runner's handshake.

    Sizes of pools and banks are in bytes; `tick_hz` is 0 where `tick_source` is `none`. `architecture` is the
    architecture that the runner was compiled for, by the compiler's predefined macros. `firmware` is the name and
    version of the user's own firmware, `without` the requests that it does not answer, as bits `1 << Request.STEP`.
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
    method_pool: int
    temp_pool: int
    banks: tuple[int, ...]
    tick_source: str
    tick_hz: int
    operators: tuple[str, ...] = field(repr=False)
    firmware: str = ""
    without: int = 0

    @property
    def planned_pool(self) -> int:
        """Return the bytes of all banks."""
        return sum(self.banks)

    @property
    def counts(self) -> bool:
        """Tell whether the runner found each CPU instruction to take the same time, so that ticks are their number."""
        return self.tick_source == INSTRUCTIONS


@dataclass(frozen=True)
class Arena:
    """The bytes of a bank that a loaded program's planned buffers take: the bank's region, their address and size."""

    region: str
    address: int
    nbytes: int


@dataclass(frozen=True)
class Usage:
    """The peak use of a memory, and its size; 0 where the size has no bound or is not measured."""

    used: int
    size: int


@dataclass(frozen=True)
class Ran:
    """The target, engine and runtime that executed a program; results are keyed by it.

    Attributes:
        display_name: the target that was asked for, and the fallback that ran in its place, as in
            `Resolved.display_name`.
        target: the name of the target that ran.
        engine: the simulator and its version, or the board.
        runtime, runtime_version: `builtin` or `executorch`, with its version.
        clock: the clock that the target's ticks follow.
        firmware: the name and version of the user's own firmware; "" for a runner.
    """

    display_name: str
    target: str
    engine: str
    runtime: str
    runtime_version: str
    clock: Clock
    firmware: str = ""

    @property
    def label(self) -> str:
        firmware = f"own firmware {self.firmware}, " if self.firmware else ""
        return f"{self.display_name} · {firmware}{self.runtime} {self.runtime_version} on {self.engine}"


@dataclass(frozen=True)
class RunResult:
    """The result of one run of a program.

    Attributes:
        outputs: the outputs in the program's order; `array()` gives each in its logical shape.
        unwritten: a mask for each output, of its logical shape: elements that the program did not write.
        stats: peaks of memory use, by the names of `statistics.STATISTICS`, which has the units.
        ticks: the ticks of `Identity.tick_source` during execution; `ran.clock` tells what they count.
        arenas: address and size of the planned buffers in each bank, as the target reported.
        instructions: the exact number of CPU instructions executed; None where only ticks are known.
        ran: the target, engine and runtime that executed the program.
        log: what the target printed since the program was loaded, oldest line first.
        seconds: the host's time for loading, executing and reading back.
        saturated: with `quantize_inputs`, the share of input values that saturated; else None.
        count: returns `operators`, by running the program once more; None where it cannot be run again.
    """

    outputs: tuple[HostTensor, ...]
    unwritten: tuple[npt.NDArray[np.bool_], ...] = field(repr=False)
    stats: Mapping[str, Usage]
    ticks: int
    seconds: float
    ran: Ran
    log: str = field(repr=False)
    saturated: float | None = None
    arenas: tuple[Arena, ...] = ()
    count: CountOperators | None = field(default=None, repr=False, compare=False)

    @property
    def instructions(self) -> int | None:
        return self.ticks if self.ran.clock is Clock.INSTRUCTIONS else None

    @property
    def operators(self) -> tuple[OperatorCost, ...]:
        """Return the cost of each operator. On first use the target runs the program once more, step by step.

        The rows add up to `ticks`. The cost outside of operators is the last row.

        Raises:
            ConfigError: the target counts neither instructions nor cycles, or this result comes from no run.
            HarnessError: the second run fails.
        """
        return counted_operators(self.count)


@dataclass(frozen=True)
class OperatorOutput:
    """The digest of an operator's outputs.

    Attributes:
        operator: the operator's name as in errors, with its graph node where that is known.
        digest: a CRC-32 of all its outputs.
    """

    operator: str
    digest: str


@dataclass(frozen=True)
class Frame:
    """The outputs, state digests and ticks of one frame of a stream.

    Attributes:
        outputs: the outputs in the program's order; `array()` gives each in its logical shape.
        state: the CRC-32 of each state's bytes after the frame.
        ticks: the ticks of `Identity.tick_source` during execution.
    """

    outputs: tuple[HostTensor, ...]
    state: tuple[int, ...]
    ticks: int


@dataclass(frozen=True)
class Streamed:
    """The result of a stream.

    Attributes:
        frames: a `Frame` for each, in order.
        state: the contents of each state after the last frame; another stream may begin with these.
        stats, ran, log: as in `RunResult`.
        seconds: the host's time for loading and all frames.
        warnings: remarks on results that are right but prove nothing; each is issued as a HilWarning.
        saturated: as in `RunResult`, over all frames.
    """

    frames: tuple[Frame, ...]
    state: tuple[HostTensor, ...]
    stats: Mapping[str, Usage]
    seconds: float
    ran: Ran
    log: str = field(repr=False)
    warnings: tuple[str, ...] = ()
    saturated: float | None = None

    def as_run(self) -> RunResult:
        """Combine all frames into one run: their outputs one after the other, and the sum of their ticks."""
        outputs = tuple(output for frame in self.frames for output in frame.outputs)
        ticks = sum(frame.ticks for frame in self.frames)
        return RunResult(outputs, (), self.stats, ticks, self.seconds, self.ran, self.log)


class Verdict(str, Enum):
    """The verdict of a test, in one word, for tables and reports."""

    PASS = "pass"
    FAIL = "FAIL"
    INFRA = "INFRA"
    ERROR = "ERROR"  # the test itself is written or configured wrongly
    SKIP = "skip"
    XFAIL = "xfail"
    XPASS = "XPASS"

    @property
    def is_bad(self) -> bool:
        """Tell whether the verdict is a failure or an error that somebody has to look at."""
        return self in (Verdict.FAIL, Verdict.XPASS, Verdict.ERROR, Verdict.INFRA)
