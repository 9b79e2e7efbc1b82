"""Writes what a program did on a target as an ETDump, which ExecuTorch's Inspector opens.

The format is that of devtools/etdump/etdump_schema_flatcc.fbs of ExecuTorch; the events, their names and their order
are those of its runtime (runtime/executor/method.cpp, codegen/gen.py, devtools/etdump/etdump_flatcc.cpp).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import flatbuffers

from cortex_m_hil.flow.dut import Dut
from cortex_m_hil.flow.stepping import Executed, steps
from cortex_m_hil.program.program import Program
from cortex_m_hil.program.schema import DTYPES, InstructionKind, ValueKind
from cortex_m_hil.program.tensor import HostTensor
from cortex_m_hil.program.values import Instruction
from cortex_m_hil.runner.links.protocol import MemoryRegion

_CALLS: Final = {
    InstructionKind.KERNEL: "OPERATOR_CALL",
    InstructionKind.DELEGATE: "DELEGATE_CALL",
    InstructionKind.JUMP_FALSE: "JF_CALL",
    InstructionKind.MOVE: "MOVE_CALL",
    InstructionKind.FREE: "FREE_CALL",
}
# Kernels that ExecuTorch registers by hand (kernels/prim_ops), so that they trace nothing.
_UNTRACED: Final = ("executorch_prim::", "aten::sym_", "aten::_local_scalar_dense")
_SCALAR_TYPES: Final = {dtype: number for number, dtype in DTYPES.items()}
# The fields of each table that is written, in the schema's order: a field's number is its place.
_FIELDS: Final[Mapping[str, tuple[str, ...]]] = {
    "ETDump": ("version", "run_data"),
    "RunData": ("name", "bundled_input_index", "allocators", "events"),
    "Event": ("profile_event", "allocation_event", "debug_event"),
    "ProfileEvent": (
        "name", "chain_index", "instruction_id", "delegate_debug_id_int", "delegate_debug_id_str",
        "delegate_debug_metadata", "start_time", "end_time",
    ),
    "DebugEvent": (
        "chain_index", "instruction_id", "debug_entry", "delegate_debug_id_int", "delegate_debug_id_str", "name",
    ),
    "Value": (
        "val", "tensor", "tensor_list", "int_value", "float_value", "double_value", "bool_value", "output",
    ),
    "Tensor": ("scalar_type", "sizes", "strides", "offset"),
    "TensorList": ("tensors",),
    "Bool": ("bool_val",),
}  # fmt: skip
_TENSOR, _TENSOR_LIST = 5, 6  # of the schema's enum ValueType
_VERSION: Final = 0  # of the schema
_NO_CHAIN: Final = -1


@dataclass(frozen=True)
class TracedCall:
    """One execution of an instruction.

    Attributes:
        index: the number of the instruction in the program.
        ticks: ticks of the target's clock that it took.
        outputs: the tensors that it wrote; empty where they were not read.
    """

    index: int
    ticks: int
    outputs: tuple[HostTensor, ...] = ()


@dataclass(frozen=True)
class TracedRun:
    """One run of a program, in single steps.

    Attributes:
        ticks: ticks of the whole run.
        calls: the instructions in the order in which they were executed.
        outputs: the program's outputs; empty where no tensors were read.
    """

    ticks: int
    calls: tuple[TracedCall, ...]
    outputs: tuple[HostTensor, ...] = ()


def traced_run(dut: Dut, program: Program, inputs: Sequence[HostTensor], ticks: int, *, outputs: bool) -> TracedRun:
    """Run a program in single steps, and return what each of them took and wrote.

    Args:
        dut: the target.
        program: the program.
        inputs: its inputs.
        ticks: the ticks of a whole run on these inputs.
        outputs: whether to read the tensors that each instruction writes, and the program's outputs.

    Raises:
        HarnessError: `flow.stepping.steps` raises it.
    """
    calls = [
        TracedCall(done.index, done.ticks, tuple(_written(done)) if outputs else ())
        for done in steps(dut, program, inputs)
    ]
    return TracedRun(ticks, tuple(calls), tuple(dut.session().outputs()) if outputs else ())


def _written(done: Executed) -> Iterator[HostTensor]:
    for value in done.program.file.dataflow.written_tensors[done.index]:
        known = done.program.file.values[value]
        spec = done.session.describe(MemoryRegion.VALUE, value) if known.is_dynamic else known.spec
        if spec is not None:
            yield HostTensor(spec, done.session.read(MemoryRegion.VALUE, value, spec.nbytes))


def etdump(program: Program, runs: Sequence[TracedRun]) -> tuple[bytes, bytes]:
    """Return an ETDump of runs of a program, and the debug buffer with the tensors that were read in them.

    Times are ticks of the target's clock, which a run begins at 0. Inspector shows them as they are with the time scale
    `TimeScale.CYCLES`; the file says nowhere whether they are cycles or instructions. A step is not divided: an
    operator's `native_call_…` has the runtime's work for the call in it, and takes as long as its `OPERATOR_CALL`.

    Tensors are contiguous, whatever their dim order on the target: Inspector reads no strides.
    """
    writer = _Writer(program)
    return writer.finish([writer.run(one) for one in runs]), bytes(writer.buffer)


class _Writer:
    """Writes the tables of an ETDump."""

    def __init__(self, program: Program) -> None:
        self.buffer = bytearray()
        self._program = program
        self._builder = flatbuffers.Builder(1024)

    def finish(self, runs: Sequence[int]) -> bytes:
        root = self._table("ETDump", version=(_VERSION, "Uint32"), run_data=self._vector(runs))
        self._builder.FinishSizePrefixed(root, b"ED00")
        return bytes(self._builder.Output())

    def run(self, run: TracedRun) -> int:
        events: list[int] = []
        now = 0
        for call in run.calls:
            events += self._call(call, now)
            now += call.ticks
        events += [self._debug(_NO_CHAIN, 0, tensor, is_output=True) for tensor in run.outputs]
        events.append(self._profile("Method::execute", _NO_CHAIN, 0, 0, run.ticks))
        name = self._builder.CreateSharedString("Execute")
        return self._table("RunData", name=name, events=self._vector(events))

    def _call(self, call: TracedCall, begin: int) -> Iterator[int]:
        """Yield the events of an instruction in the order in which ExecuTorch's runtime writes them."""
        instruction, end = self._program.file.instructions[call.index], begin + call.ticks
        if (name := _native_call(instruction)) is not None:
            if call.outputs and self._program.file.values[instruction.args[-1]].kind is ValueKind.TENSOR_LIST:
                yield self._debug_list(call.index, call.outputs)
            else:
                yield from (self._debug(0, call.index, tensor) for tensor in call.outputs)
            yield self._profile(name, 0, call.index, begin, end)
        yield self._profile(_CALLS[instruction.kind], 0, call.index, begin, end)

    def _profile(self, name: str, chain: int, index: int, begin: int, end: int) -> int:
        text = self._builder.CreateSharedString(name)
        event = self._table(
            "ProfileEvent", name=text, chain_index=(chain, "Int32"), instruction_id=(index, "Int32"),
            start_time=(begin, "Uint64"), end_time=(end, "Uint64"),
        )  # fmt: skip
        return self._table("Event", profile_event=event)

    def _debug(self, chain: int, index: int, tensor: HostTensor, *, is_output: bool = False) -> int:
        value: dict[str, Any] = {"val": (_TENSOR, "Int8"), "tensor": self._tensor(tensor)}
        if is_output:
            value["output"] = self._table("Bool", bool_val=(True, "Bool"))
        return self._debug_event(chain, index, value)

    def _debug_list(self, index: int, tensors: Sequence[HostTensor]) -> int:
        found = self._table("TensorList", tensors=self._vector([self._tensor(one) for one in tensors]))
        return self._debug_event(0, index, {"val": (_TENSOR_LIST, "Int8"), "tensor_list": found})

    def _debug_event(self, chain: int, index: int, value: dict[str, Any]) -> int:
        entry = self._table("Value", **value)
        event = self._table(
            "DebugEvent", chain_index=(chain % (1 << 64), "Uint64"), instruction_id=(index, "Int32"), debug_entry=entry
        )
        return self._table("Event", debug_event=event)

    def _tensor(self, tensor: HostTensor) -> int:
        shape = tensor.spec.shape
        strides = [math.prod(shape[dim + 1 :]) for dim in range(len(shape))]
        data = tensor.array().tobytes()
        offset = len(self.buffer) if data else -1
        self.buffer += data
        dtype = _SCALAR_TYPES[tensor.spec.dtype]
        return self._table(
            "Tensor", scalar_type=(dtype, "Int8"), sizes=self._longs(shape), strides=self._longs(strides),
            offset=(offset, "Int64"),
        )  # fmt: skip

    def _longs(self, numbers: Sequence[int]) -> int:
        self._builder.StartVector(8, len(numbers), 8)
        for number in reversed(numbers):
            self._builder.PrependInt64(number)
        return int(self._builder.EndVector())

    def _vector(self, tables: Sequence[int]) -> int:
        self._builder.StartVector(4, len(tables), 4)
        for table in reversed(tables):
            self._builder.PrependUOffsetTRelative(table)
        return int(self._builder.EndVector())

    def _table(self, table: str, **fields: Any) -> int:
        """Write a table of the schema, and return its place.

        Args:
            table: the table's name.
            fields: of each field a number with its type, or the place of what it refers to.
        """
        names = _FIELDS[table]
        self._builder.StartObject(len(names))
        for name, value in fields.items():
            if isinstance(value, tuple):
                number, kind = value
                prepend: Callable[[int], None] = getattr(self._builder, f"Prepend{kind}")
                prepend(number)
            else:
                self._builder.PrependUOffsetTRelative(value)
            self._builder.Slot(names.index(name))
        return int(self._builder.EndObject())


def _native_call(instruction: Instruction) -> str | None:
    """Return the name that ExecuTorch's generated code gives to an operator's call; None where it traces none."""
    if instruction.kind is not InstructionKind.KERNEL or instruction.operator.startswith(_UNTRACED):
        return None
    return f"native_call_{instruction.operator.partition('::')[2]}"
