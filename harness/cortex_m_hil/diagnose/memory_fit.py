"""Finds the least memory that a program needs in each region: it runs in this size, and fails in one step less.

Each trial links a runner with other sizes, and runs the program. The search begins at the peaks that the runner
reports.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from enum import Enum
from typing import Final

from cortex_m_hil import flow
from cortex_m_hil.errors import BuildError, ConfigError, Mismatch, OutOfTargetMemory, ProtocolError, TargetFault
from cortex_m_hil.flow.dut import Dut
from cortex_m_hil.host.folders import TemporaryFolder
from cortex_m_hil.program.program import Program
from cortex_m_hil.runner.build import BuildTree
from cortex_m_hil.runner.compiler import compiler
from cortex_m_hil.runner.run_results import Ran, RunResult
from cortex_m_hil.targets.memory import ALIGNMENT, STACK_ALIGNMENT, Memory, aligned
from cortex_m_hil.targets.resolve import Resolved
from cortex_m_hil.targets.target import HardwareLauncher, Target


def _simulator(target: Target) -> str:
    """Return an option that names a simulator of a board's CPU, if possible one other than Arm's models.

    Return "" if there is no simulator.
    """
    same = [one for one in target.alternatives if (one.cpu, one.isa, one.fpu) == (target.cpu, target.isa, target.fpu)]
    found = sorted(
        (one for one in same if not isinstance(one.launcher, HardwareLauncher)),
        key=lambda one: one.fallback is not None,
    )
    return f", -t {found[0].name}" if found else " (hil targets)"


class Region(str, Enum):
    """A kind of memory whose size is set in a board's `memory:`; each of several banks is a region (`bank_regions`)."""

    PROGRAM = "program"
    PLANNED = "planned"
    METHOD = "method"
    TEMP = "temp"
    STACK = "stack"


_BANK: Final = "bank "


def bank_regions(memory: Memory) -> list[str]:
    """Return the names of the regions for planned tensors: `planned`, or with several banks `bank NAME` for each."""
    if len(memory.banks) == 1:
        return [Region.PLANNED.value]
    return [f"{_BANK}{bank.region}" for bank in memory.banks]


def step_of(region: str) -> int:
    """Return the step in bytes by which a region's size is changed."""
    return STACK_ALIGNMENT if region == Region.STACK else ALIGNMENT


_SAID: Final[Mapping[str, tuple[str, ...]]] = {
    "program": ("program pool:",),
    "planned": ("the planned pool ",),
    "method": ("the method pool ", "the temp pool "),
    "temp": ("the temp pool ", "the method pool "),  # if `temp` is too small, ExecuTorch uses the method pool
    "stack": ("stack:",),
}
"""For each region the beginnings of an OutOfTargetMemory's message that is about the region."""
Sizes = Mapping[str, int]


@dataclass(frozen=True)
class Need:
    """The memory that a program needs of one region.

    Attributes:
        region: the region: `program`, `planned` or `bank NAME`, `method`, `temp`, `stack`.
        size: the smallest multiple of `step`, in bytes, in which the program runs.
        step: the step of the search, in bytes.
        reported_peak: the peak that the runner reported with this size, in bytes.
        failure_one_step_below: the class and message of the error with `size` − `step` bytes; "" if the region cannot
            be smaller.
    """

    region: str
    size: int
    step: int
    reported_peak: int
    failure_one_step_below: str


@dataclass(frozen=True)
class Fit:
    """The memory that a program needs in all regions, on one target, with one set of inputs.

    Attributes:
        program: the program's name.
        needs: the needs in the order of `Region`; without the stack where the target does not measure it (`native`),
            and without `temp` where it has no memory of its own.
        temp: the peak of temporarily allocated bytes; other memory of the method is kept as long as the program.
        runs: the number of runs.
        ran: the target, engine and runtime that executed the program.
        compiler: the compiler of the runner; with another compiler the stack may be different.
    """

    program: str
    needs: tuple[Need, ...]
    temp: int
    runs: int
    ran: Ran
    compiler: str

    def size(self, region: str) -> int:
        """Return the bytes that a region needs; 0 where that is not measured."""
        return next((need.size for need in self.needs if need.region == region), 0)

    def memory(self, board: Memory) -> Memory:
        """Return a board's memory with the sizes of this fit."""
        return _in_sizes(board, {need.region: need.size for need in self.needs})


class Fitting:
    """A target's runner, linked again for each run, to fit programs one after the other.

    Use it in a `with` statement.
    """

    def __init__(
        self, resolved: Resolved, *, multiplier: float = 1.0, changed: Mapping[str, str] | None = None
    ) -> None:
        """Prepare the build; the first program compiles it.

        Args:
            resolved: the target.
            multiplier: a factor on the time that a program may take.
            changed: new contents of files of the firmware, as for `BuildTree.build`.

        Raises:
            ConfigError: the target is a board.
            HarnessError: `build_runner` raises it.
        """
        target = resolved.target
        if isinstance(target.launcher, HardwareLauncher):
            what = "a board would be flashed ten times and more, once for each size that is tried"
            hint = f"a simulator of a {target.cpu}{_simulator(target)}: its pools need the same there"
            raise ConfigError(what, target=resolved.name, hint=hint)
        self._resolved, self._multiplier, self._changed = resolved, multiplier, changed or {}
        self._folder = TemporaryFolder("hil-fit-")
        try:
            self._tree = BuildTree(target, self._folder.path, resolved.runtime, lenient=bool(changed))
        except BaseException:
            self._folder.remove()
            raise

    def __enter__(self) -> Fitting:
        return self

    def __exit__(self, *_: object) -> None:
        self._folder.remove()

    def fit(self, program: Program) -> Fit:
        """Return the sizes that `program` needs with its `inputs`.

        Raises:
            HarnessError: the run in the board's own memory fails.
            Mismatch: outputs depend on the sizes.
            ProtocolError: a reported peak is wrong: the program fails in memory of this size, or runs in less.
        """
        return _Search(self._resolved, program, lambda sizes: self._run(program, sizes)).fit()

    def _run(self, program: Program, sizes: Sizes | None) -> RunResult:
        """Run a program in memory of these sizes, or in the board's own where `sizes` is None."""
        board = self._resolved.target.board
        stack = (sizes or {}).get(Region.STACK)
        if sizes is not None:
            board = replace(board, memory=_in_sizes(board.memory, sizes))
        self._tree.resize(board.memory)
        resolved = replace(self._resolved, target=replace(self._resolved.target, board=board))
        with Dut(resolved, self._tree.build(self._changed), multiplier=self._multiplier) as dut:
            result = flow.run(dut, program, linted=sizes is None)
        if stack and result.stats[Region.STACK.value].size != stack:
            told = result.stats[Region.STACK.value].size
            hint = f"delete the stack's size from {board.directory / 'board.ld'}: memory: sets it"
            raise BuildError(f"the stack has {told} bytes, {stack} were asked for", target=dut.target.name, hint=hint)
        return result


def _in_sizes(memory: Memory, sizes: Sizes) -> Memory:
    """Return memory with these sizes, without shared memory, and without programs in flash."""
    found = memory.resized(
        program=sizes[Region.PROGRAM],
        banks=[sizes[region] for region in bank_regions(memory)],
        method=sizes[Region.METHOD],
        temp=sizes.get(Region.TEMP),
        stack=sizes.get(Region.STACK),
    )
    return replace(found, shared=0, resident="")


class _Search:
    """The search for one program's sizes. `run` returns a result, or raises the error of the program."""

    def __init__(self, resolved: Resolved, program: Program, run: Callable[[Sizes | None], RunResult]) -> None:
        self._resolved, self._program, self._run = resolved, program, run
        memory = resolved.target.board.memory
        self._banks = bank_regions(memory)
        self._has_temp = memory.temp is not None and resolved.runtime == "executorch"
        self._known: dict[tuple[tuple[str, int], ...], RunResult | OutOfTargetMemory | TargetFault] = {}

    def fit(self) -> Fit:
        whole = self._run(None)
        self._expected = whole.outputs
        sizes = self._reported_sizes(whole)
        self._require(sizes, "with pools of the reported peak sizes")
        for region in ("method", "temp", "stack"):
            if region in sizes:
                sizes[region] = self._smallest(sizes, region, self._least_size(whole, region))
        result = self._require(sizes, "with the least sizes that were found")
        needs = tuple(self._need(sizes, region, result) for region in sizes)
        made_by = compiler(self._resolved.target).banner
        return Fit(
            self._program.name, needs, result.stats["temp"].used, 1 + len(self._known), result.ran, made_by
        )  # fmt: skip

    def _reported_sizes(self, whole: RunResult) -> dict[str, int]:
        """Return sizes that are enough: the reported peaks, and the unchanged stack.

        Stack words that were reserved but not written are not in the peak. And ExecuTorch does not use a memory for
        temporary allocations unless it is several times as large as an operator's load needs.
        """
        sizes = {region: self._least_size(whole, region) for region in ("program", *self._banks, "method")}
        if self._has_temp:
            sizes["temp"] = _up(whole.stats["temp"].size, "temp")
        else:
            sizes["method"] = _up(whole.stats["method"].used + whole.stats["temp"].used, "method")
        stack = whole.stats["stack"].size
        return {**sizes, "stack": stack} if stack else sizes

    @staticmethod
    def _least_size(whole: RunResult, region: str) -> int:
        """Return the least size of a region, by its reported peak: the peak, rounded up to a step."""
        return _up(_used(whole, region), region)

    def _smallest(self, sizes: Sizes, region: str, low: int) -> int:
        """Return the smallest size of a region that passes.

        Args:
            sizes: sizes of all regions in which the program passes.
            region: the region whose size is searched, first in doubled steps up from `low`, then by halving.
            low: the least size that is possible.
        """
        step, high, failed = step_of(region), sizes[region], low - step_of(region)
        for tried in _doubling(low, high, step):
            if self._passes({**sizes, region: tried}):
                high = tried
                break
            failed = tried
        while high - failed > step:
            middle = failed + (high - failed) // 2 // step * step
            if self._passes({**sizes, region: middle}):
                high = middle
            else:
                failed = middle
        return high

    def _need(self, sizes: Sizes, region: str, result: RunResult) -> Need:
        size, step, used = sizes[region], step_of(region), _used(result, region)
        if size == step:
            return Need(region, size, step, used, "")
        failure = self._try({**sizes, region: size - step})
        if isinstance(failure, RunResult) or not _is_about(failure, region):
            said = "it runs" if isinstance(failure, RunResult) else f"it fails by {failure.describe()}"
            raise self._wrong(f"{region} in {size - step} bytes, one step below what it needs: {said}")
        return Need(region, size, step, used, f"{type(failure).__name__}: {failure.message}")

    def _require(self, sizes: Sizes, where: str) -> RunResult:
        result = self._try(sizes)
        if isinstance(result, RunResult):
            return result
        told = ", ".join(f"{region} {size}" for region, size in sizes.items())
        raise self._wrong(f"{where} ({told} bytes): it fails by {type(result).__name__}: {result.message}")

    def _wrong(self, what: str) -> ProtocolError:
        return ProtocolError(f"{self._program.name}: {what}", target=self._resolved.name)

    def _passes(self, sizes: Sizes) -> bool:
        return isinstance(self._try(sizes), RunResult)

    def _try(self, sizes: Sizes) -> RunResult | OutOfTargetMemory | TargetFault:
        key = tuple(sizes.items())
        if key not in self._known:
            try:
                self._known[key] = self._require_same_outputs(self._run(sizes))
            except (OutOfTargetMemory, TargetFault) as error:
                self._known[key] = error
        return self._known[key]

    def _require_same_outputs(self, result: RunResult) -> RunResult:
        for number, (one, other) in enumerate(zip(result.outputs, self._expected, strict=True)):
            if one != other:
                what = f"output {number} of {self._program.name} depends on how much memory there is"
                raise Mismatch(what, target=self._resolved.name, hint="hil run --redzones: who writes elsewhere?")
        return result


def _used(result: RunResult, region: str) -> int:
    """Return the peak in bytes that the runner reported for a region."""
    if region.startswith(_BANK):
        return next(arena.nbytes for arena in result.arenas if arena.region == region.removeprefix(_BANK))
    return result.stats[region].used


def _up(size: int, region: str) -> int:
    """Round a size up to a multiple of the region's step; no region is empty."""
    return max(step_of(region), aligned(size, step_of(region)))


def _doubling(low: int, high: int, step: int) -> Iterator[int]:
    """Yield low, low + step, low + 3 steps, …, below `high`."""
    further = step
    while low < high:
        yield low
        low, further = low + further, 2 * further


def _is_about(error: OutOfTargetMemory | TargetFault, region: str) -> bool:
    """Tell whether an error is about a region.

    A fault is taken to be about the stack, since only its size was changed.
    """
    if isinstance(error, TargetFault):
        return region == Region.STACK
    if region.startswith(_BANK):
        return error.message.startswith(f"the planned pool in {region.removeprefix(_BANK)} ")
    return error.message.startswith(_SAID[region])
