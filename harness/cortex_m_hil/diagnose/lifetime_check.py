"""Finds reads of tensors whose lifetime is over, by filling memory that no instruction may read any more with poison.

If a memory plan ends a lifetime too early, or a kernel keeps a pointer, results are right by chance as long as the old
bytes are unchanged. Two passes with complementary poisons must give the same outputs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial

from cortex_m_hil.diagnose.redzones import RedZones, role
from cortex_m_hil.errors import LifetimeViolation
from cortex_m_hil.flow.single_run import COUNTER_POISON, POISON, Device, operator_at
from cortex_m_hil.flow.stepping import steps
from cortex_m_hil.program.lifetimes import Extent
from cortex_m_hil.program.program import Program
from cortex_m_hil.program.tensor import HostTensor
from cortex_m_hil.runner.session.session import Session


def check_lifetimes(dut: Device, session: Session, program: Program, inputs: Sequence[HostTensor]) -> None:
    """Raise LifetimeViolation where an operator reads memory in which no tensor is live.

    The program is loaded, and run twice, step by step. Elements that an operator does not write differ between the two
    runs too; this check does not report them.
    """
    poisoned = _PoisonedRuns(dut, program, inputs)
    first, second = (poisoned.run(_fill(poison)) for poison in (POISON, COUNTER_POISON))
    reader = next((at for at, (one, other) in enumerate(zip(first, second, strict=True)) if one != other), None)
    if reader is None or poisoned.only_leaves_out(reader):
        return
    tensor = poisoned.culprit(reader, first[reader])
    what = f"{role(program, tensor)}, whose lifetime is over" if tensor is not None else "memory that holds no tensor"
    raise LifetimeViolation(
        f"an operator reads {what}",
        target=dut.target.name,
        operator=operator_at(program, reader),
        hint="the kernel reads outside its arguments, or the memory plan ends the tensor's lifetime too early",
        log=session.log,
    )


Fill = Callable[[Extent], Iterator[tuple[Extent, int]]]
"""Returns, for an extent without a live tensor, extents and the bytes to fill them with."""


def _fill(poison: int, others: Sequence[Extent] = (), pattern: int = 0) -> Fill:
    """Return a fill with the poison, except for dead parts of the extents `others`, which get `pattern`."""

    def fill(extent: Extent) -> Iterator[tuple[Extent, int]]:
        yield extent, poison
        for other in others:
            if extent.overlaps(other):
                yield Extent(max(extent.begin, other.begin), min(extent.end, other.end)), pattern

    return fill


class _PoisonedRuns:
    """Runs of one program by steps, with poison where no tensor is live."""

    def __init__(self, dut: Device, program: Program, inputs: Sequence[HostTensor]) -> None:
        self._dut, self._program, self._inputs = dut, program, inputs
        self._lifetimes, self._written = program.lifetimes, program.file.dataflow.written_tensors

    def run(self, fill: Fill) -> list[tuple[int, ...]]:
        """Run once, and return for each instruction the digests of the tensors that it writes.

        An instruction that a jump skips has no digests: ().
        """
        found: list[tuple[int, ...]] = []
        begin = partial(self._fill_at_first, fill)
        for done in steps(self._dut, self._program, self._inputs, before=begin):
            found += [()] * (done.index - len(found))
            found.append(done.digests())
            self._fill(done.session, fill, done.index)
        return found

    def _fill_at_first(self, fill: Fill, session: Session, index: int) -> None:
        if index == 0:
            self._fill(session, fill, -1)

    def only_leaves_out(self, position: int) -> bool:
        """Tell whether an instruction's outputs differ between the runs only in elements that it does not write.

        That is so if they are equal when the memory of the outputs has the same content before both runs.
        """
        own = [extent for value in self._written[position] if (extent := self._lifetimes.extent(value)) is not None]
        runs = [self.run(_fill(poison, own)) for poison in (POISON, COUNTER_POISON)]
        return runs[0][position] == runs[1][position]

    def culprit(self, reader: int, expected: tuple[int, ...]) -> int | None:
        """Return the one dead tensor whose bytes change the results of the instruction `reader`; None without one."""
        alive = {*self._lifetimes.live(reader - 1), *self._written[reader]}
        for value in self._program.file.values:
            extent = self._lifetimes.extent(value.index)
            if extent is None or value.index in alive:
                continue
            if self.run(_fill(POISON, [extent], COUNTER_POISON))[reader] != expected:
                return value.index
        return None

    def _fill(self, session: Session, fill: Fill, position: int) -> None:
        for dead in self._lifetimes.dead(position):
            for extent, poison in fill(dead):
                session.fill_planned(poison, extent.begin, extent.end)


class WatchedMemory(RedZones):
    """The guard of `--redzones`: writes outside tensors, and reads of tensors whose lifetime is over."""

    def judge(self, dut: Device, session: Session, inputs: Sequence[HostTensor]) -> None:
        """Raise RedzoneViolation or LifetimeViolation for the first operator that writes or reads where it must not."""
        super().judge(dut, session, inputs)
        check_lifetimes(dut, session, self.program, inputs)
