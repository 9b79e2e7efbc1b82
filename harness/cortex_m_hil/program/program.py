"""Programs and tensors as the host knows them. Works without torch.

`parse_pte` reads the part of ExecuTorch's `.pte` this project needs with a FlatBuffers reader of its own:
every offset is checked against the file, so arbitrary bytes end in `ProgramRejected` and nothing else.
Source of the layout: `schema/program.fbs` and `schema/scalar_type.fbs` of the executorch wheel (1.5.1),
and `exir/_serialize/_program.py` for the extended header. `tests/test_program.py` holds them against those files.
"""

from __future__ import annotations

import io
import math
import struct
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from pathlib import PurePath
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from cortex_m_hil.errors import ConfigError, ProgramRejected
from cortex_m_hil.targets.cpu import Isa
from cortex_m_hil.text import printable

Array = npt.NDArray[Any]

FILE_IDENTIFIER: Final = b"ET12"
HEADER_MAGIC: Final = b"eh00"
HEADER_AT: Final = 8  # after the root offset and the file identifier
HEADER_MINIMUM: Final = 24  # magic, length, program size, segment base
HEADER_WITH_DATA_SIZE: Final = 32  # ... and segment data size

MAX_RANK: Final = 16  # kTensorDimensionLimit of ExecuTorch's runtime
MAX_TENSOR_BYTES: Final = 1 << 31  # no Cortex-M addresses more

SCALAR_TYPES: Final[Mapping[str, int]] = {
    "BYTE": 0,
    "CHAR": 1,
    "SHORT": 2,
    "INT": 3,
    "LONG": 4,
    "HALF": 5,
    "FLOAT": 6,
    "DOUBLE": 7,
    "BOOL": 11,
    "UINT16": 27,
    "UINT32": 28,
    "UINT64": 29,
}
"""The ScalarType numbers that numpy can hold; a program with any other is rejected."""

_NUMPY_NAMES: Final[Mapping[str, str]] = {
    "BYTE": "uint8",
    "CHAR": "int8",
    "SHORT": "int16",
    "INT": "int32",
    "LONG": "int64",
    "HALF": "float16",
    "FLOAT": "float32",
    "DOUBLE": "float64",
    "BOOL": "bool",
    "UINT16": "uint16",
    "UINT32": "uint32",
    "UINT64": "uint64",
}
DTYPES: Final[Mapping[int, str]] = {SCALAR_TYPES[name]: dtype for name, dtype in _NUMPY_NAMES.items()}
"""ScalarType number to numpy name."""

SLOTS: Final[Mapping[str, Mapping[str, int]]] = {
    "Program": {"execution_plan": 1, "constant_buffer": 2, "segments": 4, "constant_segment": 5},
    "ExecutionPlan": {
        "name": 0,
        "values": 2,
        "inputs": 3,
        "outputs": 4,
        "chains": 5,
        "operators": 6,
        "delegates": 7,
        "non_const_buffer_sizes": 8,
    },
    "Chain": {"instructions": 2},
    "Instruction": {"instr_args_type": 0, "instr_args": 1},
    "KernelCall": {"op_index": 0, "args": 1},
    "DelegateCall": {"delegate_index": 0, "args": 1},
    "MoveCall": {"move_from": 0, "move_to": 1},
    "JumpFalseCall": {"cond_value_index": 0, "destination_instruction": 1},
    "FreeCall": {"value_index": 0},
    "Operator": {"name": 0, "overload": 1},
    "BackendDelegate": {"id": 0},
    "EValue": {"val_type": 0, "val": 1},
    "Null": {},
    "Int": {"int_val": 0},
    "Bool": {"bool_val": 0},
    "Double": {"double_val": 0},
    "String": {"string_val": 0},
    "IntList": {"items": 0},
    "DoubleList": {"items": 0},
    "BoolList": {"items": 0},
    "TensorList": {"items": 0},
    "OptionalTensorList": {"items": 0},
    "Tensor": {
        "scalar_type": 0,
        "storage_offset": 1,
        "sizes": 2,
        "dim_order": 3,
        "data_buffer_idx": 5,
        "allocation_info": 6,
        "shape_dynamism": 8,
        "extra_tensor_info": 9,
    },
    "ExtraTensorInfo": {"location": 2},
    "AllocationDetails": {"memory_id": 0, "memory_offset_low": 1, "memory_offset_high": 2},
    "Buffer": {"storage": 0},
    "DataSegment": {"offset": 0, "size": 1},
    "SubsegmentOffsets": {"segment_index": 0, "offsets": 1},
}
"""Field slot by table and field: position in program.fbs, a union taking two (its type, then itself)."""


class ValueKind(str, Enum):
    """What an EValue holds; the values are the table names of the KernelTypes union."""

    NULL = "Null"
    INT = "Int"
    BOOL = "Bool"
    DOUBLE = "Double"
    TENSOR = "Tensor"
    STRING = "String"
    INT_LIST = "IntList"
    DOUBLE_LIST = "DoubleList"
    BOOL_LIST = "BoolList"
    TENSOR_LIST = "TensorList"
    OPTIONAL_TENSOR_LIST = "OptionalTensorList"


class InstructionKind(str, Enum):
    """What an instruction does; the values are the table names of the InstructionArguments union."""

    KERNEL = "KernelCall"
    DELEGATE = "DelegateCall"
    MOVE = "MoveCall"
    JUMP_FALSE = "JumpFalseCall"
    FREE = "FreeCall"


# Union member n of the schema is entry n - 1: 0 stands for "no value" in every FlatBuffers union.
KERNEL_TYPES: Final = tuple(ValueKind)
INSTRUCTION_ARGUMENTS: Final = tuple(InstructionKind)
STATIC_SHAPE: Final = 0  # TensorShapeDynamism.STATIC
DYNAMIC_UNBOUND: Final = 2  # TensorShapeDynamism.DYNAMIC_UNBOUND
EXTERNAL_DATA: Final = 1  # TensorDataLocation.EXTERNAL

_SCALAR_DTYPES: Final = {ValueKind.INT: "int64", ValueKind.BOOL: "int64", ValueKind.DOUBLE: "float64"}


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """Type and layout of one input, output or value.

    ``dtype`` is a numpy name, ``shape`` is logical, ``dim_order`` lists dimensions from outer to inner as in
    ExecuTorch. Scalars (``kind`` INT, BOOL, DOUBLE) have shape ``()`` and travel as 8 bytes, i64 or f64
    (docs/protocol.md, "Spaces"). Raises ConfigError where the parts contradict each other.
    """

    dtype: str
    shape: tuple[int, ...]
    dim_order: tuple[int, ...]
    kind: ValueKind = ValueKind.TENSOR

    def __post_init__(self) -> None:
        if self.dtype not in _NUMPY_NAMES.values():
            raise ConfigError(f"{self.dtype!r} is no dtype a tensor can have here")
        if sorted(self.dim_order) != list(range(len(self.shape))) or any(size < 0 for size in self.shape):
            raise ConfigError(f"dim order {self.dim_order} does not fit shape {self.shape}")

    @classmethod
    def contiguous(cls, dtype: str, shape: tuple[int, ...]) -> TensorSpec:
        """A spec whose dim order is 0, 1, 2 …"""
        return cls(dtype, shape, tuple(range(len(shape))))

    @classmethod
    def scalar(cls, kind: ValueKind) -> TensorSpec:
        """The spec of an Int, Bool or Double input."""
        return cls(_SCALAR_DTYPES[kind], (), (), kind)

    @property
    def numel(self) -> int:
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        return self.numel * np.dtype(self.dtype).itemsize

    @property
    def memory_order(self) -> tuple[int, ...]:
        """The dim order without dimensions of size 1, whose place changes no byte."""
        return tuple(dim for dim in self.dim_order if self.shape[dim] != 1)

    def same_memory(self, other: TensorSpec) -> bool:
        """Whether the same bytes mean the same tensor under both specs."""
        return (
            (self.kind, self.dtype, self.shape) == (other.kind, other.dtype, other.shape)
            and (self.memory_order == other.memory_order or self.numel == 0)
        )  # fmt: skip

    def __str__(self) -> str:
        if self.kind is not ValueKind.TENSOR:
            return str(self.kind.value)
        order = "" if self.dim_order == tuple(range(len(self.shape))) else f" dim order {list(self.dim_order)}"
        return f"{self.dtype}{list(self.shape)}{order}"


@dataclass(frozen=True, slots=True)
class HostTensor:
    """A tensor or scalar as it travels: ``data`` in the spec's own dim order. ConfigError if the size is wrong."""

    spec: TensorSpec
    data: bytes = field(repr=False)

    def __post_init__(self) -> None:
        if len(self.data) != self.spec.nbytes:
            raise ConfigError(f"{self.spec} takes {self.spec.nbytes} bytes, not {len(self.data)}")

    @classmethod
    def from_array(cls, array: Array, dim_order: tuple[int, ...] | None = None) -> HostTensor:
        """From an array of logical shape, laid out in ``dim_order`` (default: row-major)."""
        order = tuple(range(array.ndim)) if dim_order is None else dim_order
        spec = TensorSpec(array.dtype.name, tuple(array.shape), order)
        little = array.astype(array.dtype.newbyteorder("<"), copy=False)
        return cls(spec, np.ascontiguousarray(little.transpose(order)).tobytes())

    @classmethod
    def from_scalar(cls, value: int | float | bool) -> HostTensor:
        """An Int, Bool or Double input."""
        if isinstance(value, bool):
            return cls(TensorSpec.scalar(ValueKind.BOOL), struct.pack("<q", value))
        if isinstance(value, int):
            return cls(TensorSpec.scalar(ValueKind.INT), struct.pack("<q", value))
        return cls(TensorSpec.scalar(ValueKind.DOUBLE), struct.pack("<d", value))

    def array(self) -> Array:
        """A read-only view of logical shape."""
        spec = self.spec
        stored = np.frombuffer(self.data, dtype=spec.dtype).reshape([spec.shape[dim] for dim in spec.dim_order])
        return stored.transpose([spec.dim_order.index(dim) for dim in range(len(spec.shape))])

    def item(self) -> int | float | bool:
        """The Python value of a scalar."""
        value: int | float = self.array().item()
        return bool(value) if self.spec.kind is ValueKind.BOOL else value

    def npy(self) -> bytes:
        """A .npy file of logical shape. Made in memory: where numpy itself writes, why it failed is lost."""
        array = self.array() if self.spec.kind is ValueKind.TENSOR else np.asarray(self.item())
        buffer = io.BytesIO()
        np.save(buffer, np.ascontiguousarray(array).reshape(self.spec.shape))
        return buffer.getvalue()


@dataclass(frozen=True, slots=True)
class Planned:
    """Where the memory plan puts a tensor: bytes within planned buffer ``memory_id``."""

    memory_id: int
    offset: int
    nbytes: int


@dataclass(frozen=True, slots=True)
class Value:
    """One EValue.

    ``spec`` for tensors and numeric scalars; ``scalar`` for Int, Bool, Double, String; ``items`` for lists:
    value indices for IntList, TensorList and OptionalTensorList (-1: none), the numbers themselves for
    DoubleList and BoolList. ``constant`` is (offset, bytes) in the file. The shape of a tensor that ``is_dynamic`` is
    an upper bound.
    """

    index: int
    kind: ValueKind
    spec: TensorSpec | None = None
    scalar: int | float | bool | str | None = None
    items: tuple[int | float | bool, ...] = ()
    planned: Planned | None = None
    constant: tuple[int, int] | None = None
    is_dynamic: bool = False


@dataclass(frozen=True, slots=True)
class Instruction:
    """One step of the chain. ``operator`` is ``ns::name.overload``, a delegate's id, or empty.

    A kernel's ``args`` are its schema's arguments, the out tensors, and the returned values again.
    """

    index: int
    kind: InstructionKind
    operator: str
    args: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class PteFile:
    """What a `.pte` says, checked: every index and every offset in here is in range."""

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

    @property
    def size(self) -> int:
        """Bytes of the file."""
        return len(self.data)

    @property
    def planned_bytes(self) -> int:
        """Bytes of the planned arena: the buffers one after the other, each aligned to 16 (docs/protocol.md)."""
        return sum(-(-size // 16) * 16 for size in self.planned_sizes[1:])

    def input_specs(self) -> tuple[TensorSpec, ...]:
        """Specs of the inputs; ProgramRejected if one is neither a tensor nor a number, or a constant."""
        for index in self.inputs:
            if self.values[index].constant is not None:
                raise ProgramRejected(f"{self.source or 'program'}: input value {index} is a constant")
        return tuple(self._spec(index, "input") for index in self.inputs)

    def output_specs(self) -> tuple[TensorSpec, ...]:
        """Specs of the outputs; ProgramRejected if one is neither a tensor nor a number."""
        return tuple(self._spec(index, "output") for index in self.outputs)

    def _spec(self, index: int, role: str) -> TensorSpec:
        value = self.values[index]
        if value.spec is None:
            raise ProgramRejected(f"{self.source or 'program'}: {role} value {index} is a {value.kind.value}")
        return value.spec

    def constant(self, index: int) -> HostTensor | None:
        """The constant tensor at a value index, or None where the value is none."""
        value = self.values[index]
        if value.spec is None or value.constant is None:
            return None
        offset, nbytes = value.constant
        return HostTensor(value.spec, self.data[offset : offset + nbytes])

    def ints(self, index: int) -> tuple[int, ...]:
        """An IntList's numbers, looked up through its value indices."""
        found = (self.values[int(item)].scalar for item in self.values[index].items)
        return tuple(item for item in found if isinstance(item, int))


@dataclass(frozen=True, slots=True)
class References:
    """Host outputs, logical arrays in output order; None where there is no such reference.

    ``dialect``: the Python Cortex-M operators; ``quantized``: fake-quant; ``eager``: the float module; ``disturbed``:
    fake-quant some more times, each disturbed as rounding may (`lowering.rounding`).
    """

    dialect: tuple[Array, ...] | None = None
    quantized: tuple[Array, ...] | None = None
    eager: tuple[Array, ...] | None = None
    disturbed: tuple[tuple[Array, ...], ...] = ()


Reference = Callable[[tuple[HostTensor, ...]], References]


@dataclass(frozen=True, eq=False)
class Program:
    """A `.pte` and what the host knows of it.

    ``nodes`` has a graph node per instruction ("" unknown); ``inputs`` are example inputs, in the layout the
    program expects; ``isa`` and ``reference`` are None for a file that came from elsewhere. ``unspaced`` is None unless
    the memory plan has red zones; then it is the bytes that the plan would take without.
    """

    pte: bytes = field(repr=False)
    file: PteFile
    isa: Isa | None
    nodes: tuple[str, ...] = field(repr=False)
    name: str
    inputs: tuple[HostTensor, ...] = field(default=(), repr=False)
    reference: Reference | None = field(default=None, repr=False)
    unspaced: int | None = None

    @classmethod
    def from_bytes(cls, data: bytes, source: str = "") -> Program:
        """A program of which nothing but the bytes is known. Raises ProgramRejected."""
        source = printable(source)
        file = parse_pte(data, source)
        name = PurePath(source).stem or file.method
        return cls(data, file, None, ("",) * len(file.instructions), name)


@dataclass(frozen=True, slots=True)
class ScratchNeed:
    """Scratch of one instruction in bytes: what CMSIS-NN asks for and what the memory plan gives.

    ``elsewhere`` is what it would ask for on the other ISA classes.
    """

    instruction: int
    operator: str
    value: int
    required: int
    planned: int
    elsewhere: tuple[tuple[Isa, int], ...] = ()


# --- FlatBuffers -----------------------------------------------------------------------------------------


class _Reader:
    """Bounds-checked reads from a FlatBuffer of `limit` bytes.

    Offsets may make many fields share one vector, so the elements read in total are bounded too: a file of n
    bytes cannot cost more than a few times n.
    """

    def __init__(self, data: bytes, limit: int, source: str) -> None:
        self.data = data
        self.limit = limit
        self.source = source
        self.budget = 4 * limit + 1024

    def fail(self, problem: str) -> ProgramRejected:
        return ProgramRejected(f"{self.source or 'program'}: {problem}", hint="export the program again")

    def span(self, at: int, nbytes: int, what: str) -> None:
        """Raises ProgramRejected unless [at, at + nbytes) lies in the FlatBuffer."""
        if at < 0 or nbytes < 0 or at + nbytes > self.limit:
            raise self.fail(f"{what} at byte {at} lies outside the {self.limit} bytes of the program")

    def spend(self, elements: int, what: str) -> None:
        self.budget -= elements
        if self.budget < 0:
            raise self.fail(f"{what} claims more elements than the file can hold")

    def number(self, at: int, code: str, what: str) -> int | float:
        """One little-endian number; ``code`` as in `struct`."""
        self.span(at, struct.calcsize(f"<{code}"), what)
        value: int | float = struct.unpack_from(f"<{code}", self.data, at)[0]
        return value

    def integer(self, at: int, code: str, what: str) -> int:
        return int(self.number(at, code, what))

    def vector(self, at: int, code: str, what: str) -> tuple[int, tuple[int | float, ...]]:
        """Position of the first element, and all elements of the vector at ``at``."""
        count = self.integer(at, "I", what)
        self.spend(count, what)
        self.span(at + 4, count * struct.calcsize(f"<{code}"), what)
        return at + 4, struct.unpack_from(f"<{count}{code}", self.data, at + 4)

    def text(self, at: int, what: str) -> str:
        length = self.integer(at, "I", what)
        self.spend(length, what)
        self.span(at + 4, length, what)
        try:
            return printable(self.data[at + 4 : at + 4 + length].decode("utf-8"))
        except UnicodeDecodeError as error:
            raise self.fail(f"{what} is not UTF-8") from error


class _Table:
    """A table of a named type at an absolute position; fields are read by their names in `SLOTS`."""

    def __init__(self, reader: _Reader, at: int, type_name: str) -> None:
        self.reader = reader
        self.type_name = type_name
        self.at = at
        reader.spend(1, type_name)
        self.vtable = at - reader.integer(at, "i", type_name)
        self.vtable_bytes = reader.integer(self.vtable, "H", type_name)
        reader.span(self.vtable, max(self.vtable_bytes, 4), f"{type_name}'s vtable")
        self.table_bytes = reader.integer(self.vtable + 2, "H", type_name)
        reader.span(at, self.table_bytes, type_name)

    def position(self, name: str) -> int | None:
        """Absolute position of a field, None where it is absent."""
        entry = 4 + 2 * SLOTS[self.type_name][name]
        if entry + 2 > self.vtable_bytes:
            return None
        offset = self.reader.integer(self.vtable + entry, "H", name)
        if offset >= self.table_bytes:
            raise self.reader.fail(f"{self.type_name}.{name} lies outside its table")
        return self.at + offset if offset else None

    def target(self, name: str) -> int | None:
        """Where an offset field points, None where it is absent."""
        at = self.position(name)
        if at is None:
            return None
        target = at + self.reader.integer(at, "I", name)
        self.reader.span(target, 4, f"{self.type_name}.{name}")
        return target

    def integer(self, name: str, code: str) -> int:
        at = self.position(name)
        return 0 if at is None else self.reader.integer(at, code, f"{self.type_name}.{name}")

    def double(self, name: str) -> float:
        at = self.position(name)
        return 0.0 if at is None else float(self.reader.number(at, "d", f"{self.type_name}.{name}"))

    def text(self, name: str) -> str:
        at = self.target(name)
        return "" if at is None else self.reader.text(at, f"{self.type_name}.{name}")

    def child(self, name: str, type_name: str) -> _Table | None:
        at = self.target(name)
        return None if at is None else _Table(self.reader, at, type_name)

    def integers(self, name: str, code: str) -> tuple[int, ...]:
        """A vector of integers; an absent one is empty."""
        at = self.target(name)
        if at is None:
            return ()
        return tuple(int(item) for item in self.reader.vector(at, code, f"{self.type_name}.{name}")[1])

    def doubles(self, name: str) -> tuple[float, ...]:
        at = self.target(name)
        if at is None:
            return ()
        return tuple(float(item) for item in self.reader.vector(at, "d", f"{self.type_name}.{name}")[1])

    def children(self, name: str, type_name: str) -> Iterator[_Table]:
        at = self.target(name)
        if at is None:
            return
        first, offsets = self.reader.vector(at, "I", f"{self.type_name}.{name}")
        for position, offset in enumerate(offsets):
            yield _Table(self.reader, first + 4 * position + int(offset), type_name)


# --- the .pte --------------------------------------------------------------------------------------------


class _Layout(NamedTuple):
    """Extended header: bytes of the FlatBuffer, and where segments begin and end in the file."""

    program_size: int
    segments_begin: int
    segments_end: int


def parse_pte(data: bytes, source: str = "") -> PteFile:
    """Read a `.pte`. Arbitrary bytes raise ProgramRejected and nothing else, in time linear in their number."""
    layout = _read_header(data, source)
    reader = _Reader(data, layout.program_size, source)
    program = _Table(reader, reader.integer(0, "I", "root offset"), "Program")
    plans = list(program.children("execution_plan", "ExecutionPlan"))
    if len(plans) != 1:
        raise reader.fail(f"the program has {len(plans)} methods; one is supported")
    plan = plans[0]
    planned_sizes = _read_planned_sizes(plan)
    constants = _constant_areas(program, layout)
    tables = list(plan.children("values", "EValue"))
    values = tuple(
        _read_value(table, index, len(tables), constants, planned_sizes) for index, table in enumerate(tables)
    )
    operators = tuple(_operator_name(table) for table in plan.children("operators", "Operator"))
    delegates = tuple(table.text("id") for table in plan.children("delegates", "BackendDelegate"))
    return PteFile(
        data=data,
        source=source,
        method=plan.text("name"),
        values=values,
        inputs=_value_indices(plan, "inputs", len(values)),
        outputs=_value_indices(plan, "outputs", len(values)),
        instructions=_read_instructions(plan, operators, delegates, len(values)),
        operators=operators,
        delegates=delegates,
        planned_sizes=planned_sizes,
    )


def _read_header(data: bytes, source: str) -> _Layout:
    """The sizes the file announces, checked against the bytes that are here."""
    reader = _Reader(data, len(data), source)
    if len(data) < HEADER_AT or data[4:8] != FILE_IDENTIFIER:
        raise reader.fail(f"not a .pte: bytes 4 to 8 are {data[4:8]!r}, not {FILE_IDENTIFIER!r}")
    if data[HEADER_AT : HEADER_AT + 4] != HEADER_MAGIC:
        return _Layout(len(data), len(data), len(data))
    length = reader.integer(HEADER_AT + 4, "I", "extended header")
    if length < HEADER_MINIMUM:
        raise reader.fail(f"the extended header says it has {length} bytes; the least is {HEADER_MINIMUM}")
    reader.span(HEADER_AT, length, "extended header")
    size = reader.integer(HEADER_AT + 8, "Q", "program size")
    base = reader.integer(HEADER_AT + 16, "Q", "segment base")
    has_data_size = length >= HEADER_WITH_DATA_SIZE
    tail = reader.integer(HEADER_AT + 24, "Q", "segment data size") if has_data_size else 0
    if size < HEADER_AT + length or (base and base < size):
        raise reader.fail(f"the extended header contradicts itself: program {size}, segments at {base}")
    if tail and not base:
        raise reader.fail(f"the extended header announces {tail} bytes of segments and no place for them")
    announced = max(size, base + tail)
    if announced > len(data):
        raise reader.fail(f"truncated: the header announces {announced} bytes, {len(data)} are here")
    if not base:
        return _Layout(size, size, size)
    return _Layout(size, base, base + tail if has_data_size else len(data))


def _read_planned_sizes(plan: _Table) -> tuple[int, ...]:
    sizes = plan.integers("non_const_buffer_sizes", "q")
    for number, size in enumerate(sizes):
        if size < 0 or size > MAX_TENSOR_BYTES:
            raise plan.reader.fail(f"planned buffer {number} has an absurd size of {size} bytes")
    return sizes


def _constant_areas(program: _Table, layout: _Layout) -> tuple[tuple[int, int], ...]:
    """(begin, end) in the file by data_buffer_idx: at most so many bytes belong to that constant."""
    reader = program.reader
    inline = []
    for buffer in program.children("constant_buffer", "Buffer"):
        at = buffer.target("storage")
        nbytes = 0 if at is None else reader.integer(at, "I", "constant")
        if at is not None:
            reader.span(at + 4, nbytes, "constant")
        inline.append((at + 4, at + 4 + nbytes) if at is not None else (0, 0))
    subsegment = program.child("constant_segment", "SubsegmentOffsets")
    offsets = subsegment.integers("offsets", "Q") if subsegment is not None else ()
    if subsegment is None or not offsets:
        return tuple(inline)
    segments = [(table.integer("offset", "Q"), table.integer("size", "Q"))
                for table in program.children("segments", "DataSegment")]  # fmt: skip
    number = subsegment.integer("segment_index", "I")
    if number >= len(segments):
        # An export without constants still writes the placeholder offset, and no segment.
        if not segments and len(offsets) == 1:
            return ((0, 0),)
        raise reader.fail(f"constants are in segment {number} of {len(segments)}")
    begin = layout.segments_begin + segments[number][0]
    end = begin + segments[number][1]
    if end > layout.segments_end:
        raise reader.fail(f"segment {number} ends at byte {end}, the segments at {layout.segments_end}")
    return tuple((min(begin + offset, end), end) for offset in offsets)


def _read_value(
    table: _Table, index: int, count: int, constants: tuple[tuple[int, int], ...], planned_sizes: tuple[int, ...]
) -> Value:
    number = table.integer("val_type", "B")
    if number == 0:
        return Value(index, ValueKind.NULL)
    if number > len(KERNEL_TYPES):
        raise table.reader.fail(f"value {index} is of unknown kind {number}")
    kind = KERNEL_TYPES[number - 1]
    body = table.child("val", kind.value)
    if body is None:
        raise table.reader.fail(f"value {index} is a {kind.value} without contents")
    if kind is ValueKind.TENSOR:
        return _read_tensor(body, index, constants, planned_sizes)
    return _read_plain_value(body, index, kind, count)


def _read_plain_value(body: _Table, index: int, kind: ValueKind, count: int) -> Value:
    """Everything but a tensor."""
    if kind is ValueKind.INT:
        return Value(index, kind, TensorSpec.scalar(kind), body.integer("int_val", "q"))
    if kind is ValueKind.BOOL:
        return Value(index, kind, TensorSpec.scalar(kind), bool(body.integer("bool_val", "B")))
    if kind is ValueKind.DOUBLE:
        return Value(index, kind, TensorSpec.scalar(kind), body.double("double_val"))
    if kind is ValueKind.STRING:
        return Value(index, kind, scalar=body.text("string_val"))
    if kind is ValueKind.DOUBLE_LIST:
        return Value(index, kind, items=body.doubles("items"))
    if kind is ValueKind.BOOL_LIST:
        return Value(index, kind, items=tuple(bool(item) for item in body.integers("items", "B")))
    if kind in (ValueKind.INT_LIST, ValueKind.TENSOR_LIST, ValueKind.OPTIONAL_TENSOR_LIST):
        least = -1 if kind is ValueKind.OPTIONAL_TENSOR_LIST else 0
        items = body.integers("items", "q" if kind is ValueKind.INT_LIST else "i")
        if any(not least <= item < count for item in items):
            raise body.reader.fail(f"value {index}, a {kind.value}, refers to a value that does not exist")
        return Value(index, kind, items=items)
    return Value(index, kind)


def _read_tensor(
    body: _Table, index: int, constants: tuple[tuple[int, int], ...], planned_sizes: tuple[int, ...]
) -> Value:
    spec = _read_spec(body, index)
    if body.integer("storage_offset", "i"):
        raise body.reader.fail(f"tensor {index} has a storage offset, which the runtime does not support")
    extra = body.child("extra_tensor_info", "ExtraTensorInfo")
    if extra is not None and extra.integer("location", "B") == EXTERNAL_DATA:
        raise body.reader.fail(f"the data of tensor {index} is in another file")
    allocation = body.child("allocation_info", "AllocationDetails")
    planned = _read_planned(allocation, index, spec.nbytes, planned_sizes) if allocation is not None else None
    buffer = body.integer("data_buffer_idx", "I")
    constant = None
    if buffer and planned is None:
        begin, end = constants[buffer] if buffer < len(constants) else (0, -1)
        if begin + spec.nbytes > end:
            raise body.reader.fail(f"the data of constant tensor {index} ({spec}) lies outside the file")
        constant = (begin, spec.nbytes)
    is_dynamic = body.integer("shape_dynamism", "b") != STATIC_SHAPE
    return Value(index, ValueKind.TENSOR, spec, planned=planned, constant=constant, is_dynamic=is_dynamic)


def _read_spec(body: _Table, index: int) -> TensorSpec:
    number = body.integer("scalar_type", "b")
    if number not in DTYPES:
        raise body.reader.fail(f"tensor {index} has dtype number {number}, which is not supported")
    shape = body.integers("sizes", "i")
    dim_order = body.integers("dim_order", "B")
    if len(shape) > MAX_RANK or any(size < 0 for size in shape):
        raise body.reader.fail(f"tensor {index} has an absurd shape of rank {len(shape)}: {shape[:MAX_RANK]}")
    if sorted(dim_order) != list(range(len(shape))):
        raise body.reader.fail(f"tensor {index} of rank {len(shape)} has dim order {dim_order[:MAX_RANK]}")
    if body.integer("shape_dynamism", "b") == DYNAMIC_UNBOUND:
        raise body.reader.fail(f"tensor {index} has an unbounded shape, for which no memory is planned")
    spec = TensorSpec(DTYPES[number], shape, dim_order)
    if spec.nbytes > MAX_TENSOR_BYTES:
        raise body.reader.fail(f"tensor {index} has an absurd size of {spec.nbytes} bytes")
    return spec


def _read_planned(allocation: _Table, index: int, nbytes: int, planned_sizes: tuple[int, ...]) -> Planned:
    memory_id = allocation.integer("memory_id", "I")
    low, high = allocation.integer("memory_offset_low", "I"), allocation.integer("memory_offset_high", "I")
    offset = high << 32 | low
    if not 1 <= memory_id < len(planned_sizes) or offset + nbytes > planned_sizes[memory_id]:
        raise allocation.reader.fail(
            f"tensor {index}: {nbytes} bytes at {offset} of planned buffer {memory_id}, "
            f"and the buffers have {list(planned_sizes[:8])} bytes"
        )
    return Planned(memory_id, offset, nbytes)


def _operator_name(table: _Table) -> str:
    overload = table.text("overload")
    return table.text("name") + (f".{overload}" if overload else "")


def _value_indices(table: _Table, name: str, count: int) -> tuple[int, ...]:
    indices = table.integers(name, "i")
    if any(not 0 <= index < count for index in indices):
        raise table.reader.fail(f"{table.type_name}.{name} refers to a value that does not exist")
    return indices


def _read_instructions(
    plan: _Table, operators: tuple[str, ...], delegates: tuple[str, ...], values: int
) -> tuple[Instruction, ...]:
    chains = list(plan.children("chains", "Chain"))
    if len(chains) != 1:
        raise plan.reader.fail(f"the method has {len(chains)} chains; one is supported")
    tables = list(chains[0].children("instructions", "Instruction"))
    return tuple(
        _read_instruction(table, index, operators, delegates, values, len(tables)) for index, table in enumerate(tables)
    )


def _read_instruction(
    table: _Table, index: int, operators: tuple[str, ...], delegates: tuple[str, ...], values: int, instructions: int
) -> Instruction:
    number = table.integer("instr_args_type", "B")
    kind = INSTRUCTION_ARGUMENTS[number - 1] if 1 <= number <= len(INSTRUCTION_ARGUMENTS) else None
    body = table.child("instr_args", kind.value) if kind is not None else None
    if kind is None or body is None:
        raise table.reader.fail(f"instruction {index} is of unknown kind {number}")
    if kind in (InstructionKind.KERNEL, InstructionKind.DELEGATE):
        names = operators if kind is InstructionKind.KERNEL else delegates
        called = body.integer("op_index" if kind is InstructionKind.KERNEL else "delegate_index", "i")
        if not 0 <= called < len(names):
            raise table.reader.fail(f"instruction {index} calls number {called} of {len(names)}")
        return Instruction(index, kind, names[called], _value_indices(body, "args", values))
    args = tuple(body.integer(name, "i") for name in SLOTS[kind.value])
    limits = (values, instructions + 1) if kind is InstructionKind.JUMP_FALSE else (values, values)
    if any(not 0 <= arg < limit for arg, limit in zip(args, limits, strict=False)):
        raise table.reader.fail(f"instruction {index}, a {kind.value}, refers to what does not exist")
    return Instruction(index, kind, "", args)


# --- following values back -------------------------------------------------------------------------------

DEQUANTIZE: Final = frozenset(
    {"cortex_m::dequantize_per_tensor.out", "quantized_decomposed::dequantize_per_tensor.out"}
)
VIEWS: Final = frozenset(
    {
        "aten::alias_copy.out",
        "aten::clone.out",
        "aten::expand_copy.out",
        "aten::permute_copy.out",
        "aten::select_copy.int_out",
        "aten::slice_copy.Tensor_out",
        "aten::squeeze_copy.dim_out",
        "aten::squeeze_copy.dims_out",
        "aten::transpose_copy.int_out",
        "aten::unsqueeze_copy.out",
        "aten::view_copy.out",
        "cortex_m::transpose.out",
        "dim_order_ops::_clone_dim_order.out",
        "dim_order_ops::_to_dim_order_copy.out",
        "executorch_prim::et_view.default",
    }
)
"""Operators whose every output element is an element of their first argument, unchanged."""


class OutputQuantization(NamedTuple):
    """Parameters of the final dequantize; ``dtype`` is the integer's numpy name."""

    scale: float
    zero_point: int
    qmin: int
    qmax: int
    dtype: str


def producer(file: PteFile, value: int, before: int | None = None) -> Instruction | None:
    """The last instruction (below ``before``) that wrote a value, or the memory it aliases.

    A view that costs nothing is no instruction: its value just has the planned address of its base.
    Memory is reused over time, so the last writer is the one that counts. None for inputs and constants.
    """
    planned = file.values[value].planned
    for instruction in reversed(file.instructions[:before]):
        if instruction.kind is not InstructionKind.KERNEL:
            continue
        for arg in written(file, instruction):
            if arg == value or (planned is not None and file.values[arg].planned == planned):
                return instruction
    return None


def written(file: PteFile, instruction: Instruction) -> tuple[int, ...]:
    """Values an instruction writes: its last argument, or what that lists (operators with several outs)."""
    if not instruction.args:
        return ()
    last = file.values[instruction.args[-1]]
    if last.kind is ValueKind.TENSOR_LIST:
        return tuple(int(item) for item in last.items)
    return (last.index,)


def skip_views(file: PteFile, instruction: Instruction | None) -> Instruction | None:
    """The instruction that computed what a chain of views ends in; None if the chain begins at an input."""
    while instruction is not None and instruction.operator in VIEWS:
        source, result = file.values[instruction.args[0]], file.values[instruction.args[-1]]
        if source.spec is None or result.spec is None or source.spec.dtype != result.spec.dtype:
            return instruction
        instruction = producer(file, source.index, instruction.index)
    return instruction


def output_quantization(file: PteFile, output_index: int) -> OutputQuantization | None:
    """Quantisation of a float output: that of the dequantize it comes from, through views; else None."""
    made_by = skip_views(file, producer(file, file.outputs[output_index]))
    if made_by is None or made_by.operator not in DEQUANTIZE or len(made_by.args) < 7:
        return None
    scale, zero_point, qmin, qmax, number = (file.values[arg].scalar for arg in made_by.args[1:6])
    if not isinstance(scale, float) or not 0.0 < scale < math.inf:
        return None
    if not (isinstance(zero_point, int) and isinstance(qmin, int) and isinstance(qmax, int)):
        return None
    if not isinstance(number, int) or number not in DTYPES:
        return None
    return OutputQuantization(scale, zero_point, qmin, qmax, DTYPES[number])


def computing_operator(file: PteFile, output_index: int) -> Instruction | None:
    """The instruction that computed an output: behind views and the final dequantize."""
    made_by = skip_views(file, producer(file, file.outputs[output_index]))
    if made_by is not None and made_by.operator in DEQUANTIZE:
        made_by = skip_views(file, producer(file, made_by.args[0], made_by.index))
    return made_by
