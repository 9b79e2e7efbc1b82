"""The partition of a program: which instructions run on Cortex-M kernels, on portable ones, and in float.

The partition is made from the file alone. For a program that was lowered by hil it also has graph nodes, the user's
source lines, and why the quantiser left instructions in float.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Final

from cortex_m_hil.program.dataflow import COPY_IN_PLACE, QUANTISED, VIEWS, Memory
from cortex_m_hil.program.lifetimes import Lifetimes
from cortex_m_hil.program.multiply_accumulates import macs_of
from cortex_m_hil.program.pte_file import PteFile
from cortex_m_hil.program.schema import InstructionKind, ValueKind
from cortex_m_hil.program.tensor import TensorSpec
from cortex_m_hil.program.values import Instruction


class PartitionKind(str, Enum):
    """The kind of an instruction: which kind of kernel runs it, or that it only moves data."""

    CORTEX_M = "Cortex-M kernel"
    INTEGER = "portable integer"
    FLOAT = "portable float"
    MOVEMENT = "data movement"
    CONVERSION = "quantise or dequantise"
    DELEGATE = "delegate"
    CONTROL_FLOW = "control flow"

    @property
    def computes(self) -> bool:
        return self not in (PartitionKind.MOVEMENT, PartitionKind.CONVERSION, PartitionKind.CONTROL_FLOW)


_CONVERSIONS: Final = frozenset(
    f"{namespace}::{name}.out"
    for namespace in ("cortex_m", "quantized_decomposed")
    for name in ("quantize_per_tensor", "dequantize_per_tensor", "quantize_per_channel", "dequantize_per_channel")
)
_MOVES: Final = frozenset(
    {
        *("aten::cat.out", "aten::stack.out", "aten::full.out", "aten::full_like.out", "aten::copy.out"),
        *("aten::constant_pad_nd.out", "aten::repeat.out", "aten::flip.out", "aten::pixel_shuffle.out"),
        *("aten::index.Tensor_out", "aten::index_select.out", "aten::gather.out", "aten::embedding.out"),
        *("aten::split_copy.Tensor_out", "aten::split_with_sizes_copy.out", "aten::unbind_copy.int_out"),
        *("aten::slice_scatter.out", "aten::select_scatter.out", "aten::index_put.out", "aten::roll.out"),
        COPY_IN_PLACE,
        *VIEWS,
    }
)
"""Portable operators that put elements elsewhere, or fill, and compute nothing."""


def kind_of(file: PteFile, instruction: Instruction) -> PartitionKind:
    """Return the kind of an instruction, by its operator's namespace and, for a portable one, its tensors' dtypes."""
    if instruction.kind is not InstructionKind.KERNEL:
        return PartitionKind.DELEGATE if instruction.kind is InstructionKind.DELEGATE else PartitionKind.CONTROL_FLOW
    if instruction.operator in _CONVERSIONS:
        return PartitionKind.CONVERSION
    if instruction.operator.startswith("cortex_m::"):
        return PartitionKind.CORTEX_M
    if instruction.operator in _MOVES:
        return PartitionKind.MOVEMENT
    return PartitionKind.FLOAT if any(map(_is_float, _tensors(file, instruction))) else PartitionKind.INTEGER


def _is_float(spec: TensorSpec) -> bool:
    return spec.dtype.startswith("float")


def _tensors(file: PteFile, instruction: Instruction) -> Iterator[TensorSpec]:
    """Yield the specs of the tensors that an instruction reads (constants too), writes or has as scratch, each once."""
    for value in sorted({*file.dataflow.arguments[instruction.index], *file.dataflow.written[instruction.index]}):
        spec = file.values[value].spec
        if spec is not None and spec.kind is ValueKind.TENSOR:
            yield spec


# --- the partition -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class PartitionStep:
    """An instruction, the kind of kernel that runs it, and its cost.

    Attributes:
        instruction: the number of the instruction.
        macs: multiply-accumulates; None where they are not known.
        nbytes: bytes of the tensors that the instruction reads and writes, with constants and scratch.
        node: the graph node with the module's path, "" where it is not known.
        source: the user's `file:line`, "" where it is not known.
        why: why the quantiser left the instruction in float; "" if it quantised it, or if the reason is not known.
        ticks: CPU instructions, or cycles of a board, that the instruction took; None where they were not counted.
        results: dtypes of the tensors that the instruction writes.
    """

    instruction: int
    operator: str
    kind: PartitionKind
    macs: int | None
    nbytes: int
    node: str = ""
    source: str = ""
    why: str = ""
    ticks: int | None = None
    results: tuple[str, ...] = ()

    @property
    def counts(self) -> bool:
        """Tell whether the step counts in the shares of operators: it writes floats or quantised integers.

        Index arithmetic, comparisons and the indices of an argmax never have a Cortex-M kernel, so they do not count.
        """
        known = self.kind in (PartitionKind.CORTEX_M, PartitionKind.DELEGATE)
        return known or (self.kind.computes and any(map(_is_value, self.results)))

    @property
    def is_portable_float(self) -> bool:
        """Tell whether the step runs on a portable kernel and computes floats."""
        return self.kind is PartitionKind.FLOAT and any(one.startswith("float") for one in self.results)

    @property
    def module(self) -> str:
        """Return the path of the module that the node is of; "" where it is not known."""
        return self.node.partition(" (")[2].removesuffix(")")


@dataclass(frozen=True)
class StepGroup:
    """A group of steps: all of one operator and kind, all of one kind, or an island."""

    steps: tuple[PartitionStep, ...] = field(repr=False)

    @property
    def macs(self) -> int | None:
        """Return the sum of the multiply-accumulates; None where those of one step are not known."""
        known = [one.macs for one in self.steps if one.macs is not None]
        return sum(known) if len(known) == len(self.steps) else None

    @property
    def nbytes(self) -> int:
        return sum(one.nbytes for one in self.steps)

    @property
    def ticks(self) -> int | None:
        """Return the ticks that the steps took; None where they were not counted."""
        known = [one.ticks for one in self.steps if one.ticks is not None]
        return sum(known) if known and len(known) == len(self.steps) else None


@dataclass(frozen=True)
class Island(StepGroup):
    """A float island: connected operators that compute in float, with the data movement between them."""

    @property
    def computing(self) -> tuple[PartitionStep, ...]:
        return tuple(one for one in self.steps if one.kind.computes)

    @property
    def place(self) -> str:
        """Return the place of the island, such as `block.conv, model.py:12`.

        Modules come first (or instructions, if the modules are not known), then the lines of the user's code.
        """
        modules = dict.fromkeys(one.module or one.node for one in self.computing if one.node)
        lines = dict.fromkeys(one.source for one in self.computing if one.source)
        numbers = [f"operator {one.instruction}" for one in self.computing]
        return ", ".join([*(_few(list(modules)) or _few(numbers)), *_few(list(lines))])

    @property
    def operators(self) -> tuple[str, ...]:
        """Return the operators that compute, each once."""
        return tuple(dict.fromkeys(one.operator for one in self.computing))

    @property
    def why(self) -> tuple[str, ...]:
        """Return why the quantiser left the island's operators in float, each reason once; empty if none is known."""
        return tuple(dict.fromkeys(one.why for one in self.computing if one.why))

    def __str__(self) -> str:
        macs = "MACs not known" if self.macs is None else f"{self.macs} MACs"
        reasons = f" ({'; '.join(_few(self.why))})" if self.why else ""
        return f"{self.place}: {', '.join(_few(self.operators))}, {macs}{reasons}"


@dataclass(frozen=True)
class UnacceleratedSteps(StepGroup):
    """Steps of one operator in one module, from one line of the user's code, on no Cortex-M kernel for one reason."""

    def __str__(self) -> str:
        """Return a line such as `block.conv, model.py:12: aten::convolution.out ×2, 1536 MACs (why)`."""
        first, count = self.steps[0], len(self.steps)
        module = first.module or ("" if first.source else first.node or f"operator {first.instruction}")
        where = ", ".join(filter(None, (module, first.source)))
        times = f" ×{count}" if count > 1 else ""
        macs = ", MACs not known" if self.macs is None else f", {self.macs} MACs" if self.macs else ""
        why = first.why or ("" if first.kind is PartitionKind.FLOAT else first.kind.value)
        return f"{where}: {first.operator}{times}{macs}" + (f" ({why})" if why else "")


_SHOWN: Final = 3


def _is_value(dtype: str) -> bool:
    """Tell whether the elements of a dtype represent real numbers, unlike indices and booleans."""
    return dtype.startswith("float") or dtype in QUANTISED


def _few(items: Sequence[str]) -> list[str]:
    return [*items[:_SHOWN], *(["…"] if len(items) > _SHOWN else [])]


@dataclass(frozen=True)
class Partition(StepGroup):
    """The steps of a program, grouped by the kind of kernel that runs them.

    Attributes:
        steps: an item for each instruction.
        islands: the float islands, in the order in which they begin.
    """

    islands: tuple[Island, ...] = ()

    @classmethod
    def of(
        cls,
        file: PteFile,
        nodes: Sequence[str] = (),
        sources: Sequence[str] = (),
        float_reasons: Sequence[str] = (),
        ticks: Sequence[int] = (),
    ) -> Partition:
        """Make the partition of a program.

        Each sequence has an item for each instruction, or is empty where nothing is known.

        Args:
            file: the program.
            nodes: the graph node of each instruction.
            sources: the user's `file:line` of each instruction.
            float_reasons: why the quantiser left each instruction in float.
            ticks: CPU instructions, or cycles of a board, that each instruction took.
        """
        known = [_one_for_each(values, len(file.instructions)) for values in (nodes, sources, float_reasons, ticks)]
        steps = [_step(file, one, *told) for one, *told in zip(file.instructions, *known, strict=True)]
        members = _connected(file, [one.kind for one in steps])
        islands = [Island(tuple(steps[at] for at in island)) for island in members]
        return cls(tuple(steps), tuple(one for one in islands if one.computing))

    @property
    def kinds(self) -> dict[PartitionKind, StepGroup]:
        """Return the steps by kind, in the order of `PartitionKind`, without kinds that the program has no step of."""
        return {
            kind: StepGroup(tuple(one for one in self.steps if one.kind is kind))
            for kind in PartitionKind
            if self.count(kind)
        }

    @property
    def operators(self) -> dict[tuple[str, PartitionKind], StepGroup]:
        """Return the steps by operator and kind, in the order in which the pairs first occur in the program."""
        found: dict[tuple[str, PartitionKind], list[PartitionStep]] = {}
        for one in self.steps:
            found.setdefault((one.operator, one.kind), []).append(one)
        return {key: StepGroup(tuple(steps)) for key, steps in found.items()}

    def count(self, kind: PartitionKind) -> int:
        return sum(one.kind is kind for one in self.steps)

    @property
    def cortex_m_macs(self) -> float | None:
        """Return the share of multiply-accumulates on Cortex-M kernels, 0 to 1.

        None where the program has no multiply-accumulates, or where those of an operator are not known.
        """
        mine = sum(one.macs or 0 for one in self.steps if one.kind is PartitionKind.CORTEX_M)
        return mine / self.macs if self.macs else None

    @property
    def cortex_m_operator_share(self) -> float | None:
        """Return the share of Cortex-M kernels in the steps that `counts` holds for; None without such steps."""
        return self.count(PartitionKind.CORTEX_M) / len(self.counting) if self.counting else None

    @property
    def counting(self) -> tuple[PartitionStep, ...]:
        """Return the steps that `cortex_m_operator_share` is a share of: those that `counts` holds for."""
        return tuple(one for one in self.steps if one.counts)

    @property
    def left_in_float(self) -> tuple[PartitionStep, ...]:
        """Return the steps that compute in float."""
        return tuple(one for one in self.steps if one.is_portable_float)

    @property
    def elsewhere(self) -> tuple[UnacceleratedSteps, ...]:
        """Return steps without a Cortex-M kernel that `counts` holds for or that have multiply-accumulates, by place.

        Groups with the most multiply-accumulates come first, the others in the order of the program.
        """
        found: dict[tuple[str, ...], list[PartitionStep]] = {}
        for one in self.steps:
            if one.kind is not PartitionKind.CORTEX_M and (one.counts or one.macs):
                found.setdefault((one.operator, one.module, one.source, one.why), []).append(one)
        return tuple(
            sorted((UnacceleratedSteps(tuple(steps)) for steps in found.values()), key=lambda one: -(one.macs or 0))
        )

    @property
    def uncounted(self) -> tuple[str, ...]:
        """Return the operators whose multiply-accumulates are not known."""
        return tuple(dict.fromkeys(one.operator for one in self.steps if one.macs is None))


def _one_for_each(values: Sequence[Any], count: int) -> Sequence[Any]:
    return values if len(values) == count else [None] * count


def _step(
    file: PteFile, instruction: Instruction, node: str | None, source: str | None, why: str | None, ticks: int | None
) -> PartitionStep:
    kind = kind_of(file, instruction)
    nbytes = sum(spec.nbytes for spec in _tensors(file, instruction))
    reason = why if kind is PartitionKind.FLOAT else None
    macs = macs_of(file, instruction)
    outs = file.dataflow.outs[instruction.index]
    results = tuple(spec.dtype for out in outs if (spec := file.values[out].spec) is not None)
    return PartitionStep(
        instruction.index, instruction.name, kind, macs, nbytes, node or "", source or "", reason or "", ticks,
        results,
    )  # fmt: skip


def _connected(file: PteFile, kinds: Sequence[PartitionKind]) -> list[list[int]]:
    """Return the instructions that compute or move floats, in groups that are connected by float values."""
    groups: dict[int, set[int]] = {}  # for each instruction the group that it is in
    writer: dict[Memory, int] = {}  # for each memory the instruction that wrote the floats in it
    data = file.dataflow
    for instruction, kind, outs in zip(file.instructions, kinds, data.outs, strict=True):
        moves = kind is PartitionKind.MOVEMENT and any(map(_is_float, _tensors(file, instruction)))
        belongs = moves or kind is PartitionKind.FLOAT
        if belongs:
            read = {data.memory[value] for value in data.arguments[instruction.index] if value not in outs}
            group = {instruction.index}.union(*(groups[writer[memory]] for memory in read if memory in writer))
            groups.update(dict.fromkeys(group, group))
        for value in outs:
            writer.pop(data.memory[value], None)
            spec = file.values[value].spec
            if belongs and spec is not None and _is_float(spec):
                writer[data.memory[value]] = instruction.index
    return [sorted(group) for group in {id(group): group for group in groups.values()}.values()]


# --- what floats cost ----------------------------------------------------------------------------------------


def planned_in_int8(file: PteFile, found: Partition) -> int:
    """Estimate the bytes of the memory plan if every tensor that was left in float were int8.

    The estimate is the peak of live bytes, with one byte for each element in float islands and without the conversions
    at the islands' ends. No plan takes less, and few plans take more.
    """
    data, lifetimes = file.dataflow, Lifetimes(file)
    base = {view.value: view.base for view in lifetimes.views}
    islands = [one for one in found.islands if any(step.is_portable_float for step in one.steps)]
    inside = [step.instruction for one in islands for step in one.steps]
    made = {value for at in inside for value in data.written[at]}
    taken = {base.get(value, value) for at in inside for value in data.arguments[at]} - made
    edges = {base.get(value, value) for value in (*file.inputs, *file.outputs, *file.states)}
    copies, gone = set(), set()
    for at in (step.instruction for step in found.steps if step.kind is PartitionKind.CONVERSION):
        if entering := taken.intersection(data.written[at]) - edges:
            copies.update(entering)
        if entering or (made - edges).intersection(base.get(value, value) for value in data.arguments[at]):
            gone.add(at)

    def size(value: int, nbytes: int) -> int:
        spec = file.values[value].spec
        if value in copies:
            return 0
        if value not in made or spec is None or not _is_float(spec):
            return nbytes
        return spec.numel + (nbytes if value in edges else 0)

    return lifetimes.peak(size, without=gone).nbytes
