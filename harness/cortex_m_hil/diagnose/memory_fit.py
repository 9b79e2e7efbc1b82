"""The least memory that a program runs in, by region: proven by a run there, and by a failure one step below.

Each try links a runner with certain sizes, and runs it. The search begins at the peaks that the runner reports.
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
from cortex_m_hil.runner.build import BuildTree, compiler
from cortex_m_hil.runner.results import Ran, RunResult
from cortex_m_hil.targets.memory import ALIGNMENT, STACK_ALIGNMENT
from cortex_m_hil.targets.resolve import Resolved
from cortex_m_hil.targets.target import HardwareLauncher, Target


def _simulator(target: Target) -> str:
    """Return an option that names a simulator of a board's CPU, which is there where Arm's models are not; "": none."""
    same = [one for one in target.alternatives if (one.cpu, one.isa, one.fpu) == (target.cpu, target.isa, target.fpu)]
    found = sorted(
        (one for one in same if not isinstance(one.launcher, HardwareLauncher)),
        key=lambda one: one.fallback is not None,
    )
    return f", -t {found[0].name}" if found else " (hil targets)"


class Region(str, Enum):
    """Memory that a board's `memory:` sizes."""

    PROGRAM = "program"
    PLANNED = "planned"
    METHOD = "method"
    STACK = "stack"


STEPS: Final = {
    Region.PROGRAM: ALIGNMENT,
    Region.PLANNED: ALIGNMENT,
    Region.METHOD: ALIGNMENT,
    Region.STACK: STACK_ALIGNMENT,
}
"""Step sizes in bytes."""
_SAID: Final = {
    Region.PROGRAM: ("program pool:",),
    Region.PLANNED: ("the planned pool ",),
    Region.METHOD: ("the method pool ", "the temp pool "),
    Region.STACK: ("stack:",),
}
"""How an OutOfTargetMemory's message begins where it is about the region."""
Sizes = Mapping[Region, int]


@dataclass(frozen=True)
class Need:
    """The memory that a program needs of one region.

    Attributes:
        region: the region.
        size: bytes, the smallest multiple of `step` that it runs in.
        step: bytes.
        used: bytes, the peak that the runner reported there.
        below: how it fails in `size` − `step`: the error's class and message. "" where a region cannot be smaller.
    """

    region: Region
    size: int
    step: int
    used: int
    below: str


@dataclass(frozen=True)
class Fit:
    """The memory that a program needs in all, on one target, with one set of inputs.

    Attributes:
        program: its name.
        needs: in Region's order; without the stack where the target does not measure it (`native`).
        temp: bytes of the method pool that were given back, at their peak; the rest stays as long as the program.
        runs: how many there were.
        ran: what executed them.
        compiler: what it was built with; another may need another stack.
    """

    program: str
    needs: tuple[Need, ...]
    temp: int
    runs: int
    ran: Ran
    compiler: str

    def size(self, region: Region) -> int:
        """Return the bytes that a region needs; 0 where that is not measured."""
        return next((need.size for need in self.needs if need.region is region), 0)


class Fitting:
    """A target's runner, linked anew for each run. For many programs, one after the other; to be used in `with`."""

    def __init__(
        self, resolved: Resolved, *, multiplier: float = 1.0, changed: Mapping[str, str] | None = None
    ) -> None:
        """Prepare the build; the first program compiles it.

        Args:
            resolved: the target.
            multiplier: of the time that a program may take.
            changed: other texts for files of the firmware, as `BuildTree.build` takes them.

        Raises:
            ConfigError: the target is a board.
            HarnessError: what `build_runner` raises.
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
            HarnessError: what `flow.run` raises for the run in the board's own memory.
            Mismatch: outputs depend on the sizes.
            ProtocolError: a figure is wrong: the program fails in what the runner says it used, or runs in less.
        """
        return _Search(self._resolved, program, lambda sizes: self._run(program, sizes)).fit()

    def _run(self, program: Program, sizes: Sizes | None) -> RunResult:
        """Run a program in memory of these sizes, or in the board's own where `sizes` is None."""
        board = self._resolved.target.board
        stack = (sizes or {}).get(Region.STACK)
        if sizes is not None:
            memory = board.memory.resized(
                program=sizes[Region.PROGRAM], banks=[sizes[Region.PLANNED]], method=sizes[Region.METHOD], stack=stack
            )
            board = replace(board, memory=replace(memory, shared=0, resident=""))
        self._tree.resize(board.memory)
        resolved = replace(self._resolved, target=replace(self._resolved.target, board=board))
        with Dut(resolved, self._tree.build(self._changed), multiplier=self._multiplier) as dut:
            result = flow.run(dut, program, linted=sizes is None)
        if stack and result.stats[Region.STACK.value].size != stack:
            told = result.stats[Region.STACK.value].size
            hint = f"delete what sizes the stack in {board.directory / 'board.ld'}: memory: says it"
            raise BuildError(f"the stack has {told} bytes, {stack} were asked for", target=dut.target.name, hint=hint)
        return result


class _Search:
    """The search for one program's sizes. `run` returns a result, or raises the error that the program fails by."""

    def __init__(self, resolved: Resolved, program: Program, run: Callable[[Sizes | None], RunResult]) -> None:
        self._resolved, self._program, self._run = resolved, program, run
        self._known: dict[tuple[tuple[Region, int], ...], RunResult | OutOfTargetMemory | TargetFault] = {}

    def fit(self) -> Fit:
        whole = self._run(None)
        self._expected = whole.outputs
        sizes = self._at_the_marks(whole)
        self._require(sizes, "at the peaks that it told")
        sizes[Region.METHOD] = self._smallest(sizes, Region.METHOD, self._mark(whole, Region.METHOD))
        if Region.STACK in sizes:
            sizes[Region.STACK] = self._smallest(sizes, Region.STACK, self._mark(whole, Region.STACK))
        result = self._require(sizes, "in the sizes that were found")
        needs = tuple(self._need(sizes, region, result) for region in sizes)
        made_by = compiler(self._resolved.target).banner
        return Fit(
            self._program.name, needs, result.stats["temp"].used, 1 + len(self._known), result.ran, made_by
        )  # fmt: skip

    def _at_the_marks(self, whole: RunResult) -> dict[Region, int]:
        """Return sizes that are enough: the peaks, and the stack as it is.

        Words of the stack that were reserved and not written leave no mark.
        """
        sizes = {region: self._mark(whole, region) for region in (Region.PROGRAM, Region.PLANNED, Region.METHOD)}
        temp = whole.stats[Region.METHOD.value].used + whole.stats["temp"].used
        sizes[Region.METHOD] = _up(temp, Region.METHOD)
        stack = whole.stats[Region.STACK.value].size
        return {**sizes, Region.STACK: stack} if stack else sizes

    @staticmethod
    def _mark(whole: RunResult, region: Region) -> int:
        """Return the least size that the region can have, by the peak that was reported."""
        return _up(whole.stats[region.value].used, region)

    def _smallest(self, sizes: Sizes, region: Region, low: int) -> int:
        """Return the smallest size of a region that passes.

        Args:
            sizes: of all regions; the program passes in these.
            region: the one that is searched, first in doubled steps up from `low`, then by halving.
            low: the least size that is possible.
        """
        step, high, failed = STEPS[region], sizes[region], low - STEPS[region]
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

    def _need(self, sizes: Sizes, region: Region, result: RunResult) -> Need:
        size, step, used = sizes[region], STEPS[region], result.stats[region.value].used
        if size == step:
            return Need(region, size, step, used, "")
        failure = self._try({**sizes, region: size - step})
        if isinstance(failure, RunResult) or not _is_about(failure, region):
            said = "it runs" if isinstance(failure, RunResult) else f"it fails by {failure.describe()}"
            raise self._wrong(f"{region.value} in {size - step} bytes, one step below what it needs: {said}")
        return Need(region, size, step, used, f"{type(failure).__name__}: {failure.message}")

    def _require(self, sizes: Sizes, where: str) -> RunResult:
        result = self._try(sizes)
        if isinstance(result, RunResult):
            return result
        told = ", ".join(f"{region.value} {size}" for region, size in sizes.items())
        raise self._wrong(f"{where} ({told} bytes): it fails by {type(result).__name__}: {result.message}")

    def _wrong(self, what: str) -> ProtocolError:
        return ProtocolError(f"{self._program.name}: {what}", target=self._resolved.name)

    def _passes(self, sizes: Sizes) -> bool:
        return isinstance(self._try(sizes), RunResult)

    def _try(self, sizes: Sizes) -> RunResult | OutOfTargetMemory | TargetFault:
        key = tuple(sizes.items())
        if key not in self._known:
            try:
                self._known[key] = self._same(self._run(sizes))
            except (OutOfTargetMemory, TargetFault) as error:
                self._known[key] = error
        return self._known[key]

    def _same(self, result: RunResult) -> RunResult:
        for number, (one, other) in enumerate(zip(result.outputs, self._expected, strict=True)):
            if one != other:
                what = f"output {number} of {self._program.name} depends on how much memory there is"
                raise Mismatch(what, target=self._resolved.name, hint="hil run --redzones: who writes elsewhere?")
        return result


def _up(size: int, region: Region) -> int:
    """Round a size up to a multiple of the region's step; no region is empty."""
    step = STEPS[region]
    return max(step, -(-size // step) * step)


def _doubling(low: int, high: int, step: int) -> Iterator[int]:
    """Yield low, low + step, low + 3 steps, …, below `high`."""
    further = step
    while low < high:
        yield low
        low, further = low + further, 2 * further


def _is_about(error: OutOfTargetMemory | TargetFault, region: Region) -> bool:
    """Tell whether an error is about a region. A fault is about the stack: nothing but its size was changed."""
    if isinstance(error, TargetFault):
        return region is Region.STACK
    return error.message.startswith(_SAID[region])
