"""The content of a `.pte`, as a frozen dataclass."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final

from cortex_m_hil.errors import ProgramRejected
from cortex_m_hil.program.dataflow import Dataflow
from cortex_m_hil.program.schema import ValueKind
from cortex_m_hil.program.tensor import HostTensor, TensorSpec
from cortex_m_hil.program.values import Instruction, Value
from cortex_m_hil.targets.memory import Memory, aligned

MAX_RANK: Final = 16  # kTensorDimensionLimit of ExecuTorch's runtime
MAX_METHOD_NAME: Final = 128  # bytes: LOAD, which names the method, is a short frame on a UART too

Plain = int | float | bool | str | HostTensor
Constant = Plain | tuple[Plain, ...]
"""The value that a constant method returns; a tuple where it returned a list or another container."""


@dataclass(frozen=True, eq=False)
class PteFile:
    """The checked content of a `.pte` with one of its methods selected: every index and every offset is in range."""

    data: bytes = field(repr=False)
    source: str
    method: str
    values: tuple[Value, ...] = field(repr=False)
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    instructions: tuple[Instruction, ...] = field(repr=False)
    operators: tuple[str, ...]
    delegates: tuple[str, ...]
    planned_sizes: tuple[int, ...]
    """Bytes of each planned buffer; entry 0 is a placeholder, as in the file."""
    states: tuple[int, ...] = ()
    """Values that a program keeps from one call to the next, in the order of the file."""
    methods: tuple[str, ...] = ()
    """Names of all methods that compute, in the order of the file; `method` is one of them."""
    constants: Mapping[str, Constant] = field(default_factory=dict, repr=False)
    """The values of the constant methods, by name, in the order of the file."""

    @cached_property
    def dataflow(self) -> Dataflow:
        """Return the data flow: which values each instruction writes and reads, and their quantisation."""
        return Dataflow(self.values, self.instructions, self.inputs, self.outputs, self.states)

    @property
    def size(self) -> int:
        """Return the size of the file in bytes."""
        return len(self.data)

    @property
    def planned_bases(self) -> tuple[int, ...]:
        """Return where each planned buffer begins in the arena, by its number; the last item is the arena's size.

        Buffers count from 1, so item 0 is of no buffer.
        """
        return (0, *itertools.accumulate((-(-size // 16) * 16 for size in self.planned_sizes[1:]), initial=0))

    @property
    def planned_bytes(self) -> int:
        """Return the bytes of the planned arena: its buffers one after another, aligned to 16 (docs/protocol.md)."""
        return self.planned_bases[-1]

    @cached_property
    def unplanned(self) -> tuple[int, ...]:
        """Return the inputs and outputs, by value index, for which the program leaves the memory to its caller."""
        ends = (self.values[index] for index in dict.fromkeys((*self.inputs, *self.outputs)))
        return tuple(
            value.index
            for value in ends
            if value.kind is ValueKind.TENSOR and value.planned is None and value.constant is None and _nbytes(value)
        )

    @property
    def unplanned_bytes(self) -> int:
        """Return the bytes of all inputs and outputs in `unplanned`, one after another, aligned to 16."""
        return sum(aligned(_nbytes(self.values[index])) for index in self.unplanned)

    def bytes_in_banks(self, memory: Memory) -> list[int]:
        """Return the bytes that the program takes in each bank of a target's memory.

        Planned buffers beyond the last bank, which have no place, add further items.
        """
        return memory.buffers_of_banks(self.planned_sizes, self.unplanned_bytes)

    @property
    def state_is_loaded(self) -> bool:
        """Tell whether loading the program sets every state, because the file has an initial value for each."""
        return all(self.values[value].initial is not None for value in self.states)

    def input_specs(self) -> tuple[TensorSpec, ...]:
        """Return the specs of the inputs.

        Raises:
            ProgramRejected: an input is neither a tensor nor a number, or is a constant.
        """
        for index in self.inputs:
            if self.values[index].constant is not None:
                raise ProgramRejected(f"{self.label}: input value {index} is a constant")
        return tuple(self._spec(index, "input") for index in self.inputs)

    def output_specs(self) -> tuple[TensorSpec, ...]:
        """Return the specs of the outputs.

        Raises:
            ProgramRejected: an output is neither a tensor nor a number.
        """
        return tuple(self._spec(index, "output") for index in self.outputs)

    def output_value(self, number: int) -> Value:
        """Return the value that is the output of that number.

        Raises:
            ProgramRejected: the value is neither a tensor nor a number.
        """
        self._spec(self.outputs[number], "output")
        return self.values[self.outputs[number]]

    def _spec(self, index: int, role: str) -> TensorSpec:
        value = self.values[index]
        if value.spec is None:
            problem = f"{self.label}: {role} value {index} is a {value.kind.value}"
            raise ProgramRejected(problem, hint="inputs and outputs are tensors and numbers: leave out what is None")
        return value.spec

    def constant(self, index: int) -> HostTensor | None:
        """Return the constant tensor at a value index, or None where the value is no constant tensor."""
        value = self.values[index]
        return self._held(value, value.constant)

    @property
    def label(self) -> str:
        """Return the name of the file for messages, with the method's where the file has several that compute."""
        source = self.source or "program"
        return source if len(self.methods) < 2 else f"{source}, method {self.method}"

    def initial_state(self) -> tuple[HostTensor, ...]:
        """Return the initial value of each state: that in the file, else zeros, which ExecuTorch does not guarantee."""
        values = [self.values[index] for index in self.states]
        held = [self._held(value, value.initial) for value in values]
        return tuple(
            HostTensor(value.spec, bytes(value.spec.nbytes)) if one is None else one
            for one, value in zip(held, values, strict=True)
            if value.spec is not None
        )

    def _held(self, value: Value, place: tuple[int, int] | None) -> HostTensor | None:
        if value.spec is None or place is None:
            return None
        return HostTensor(value.spec, self.data[place[0] : place[0] + place[1]])

    def ints(self, index: int) -> tuple[int, ...]:
        """Return the numbers of an IntList, looked up through its value indices."""
        found = (self.values[int(item)].scalar for item in self.values[index].items)
        return tuple(item for item in found if isinstance(item, int))


def _nbytes(value: Value) -> int:
    return value.spec.nbytes if value.spec is not None else 0
