"""A reader of `.pte` files: FlatBuffers with every offset checked, header, values, instructions.

A ProgramRejected names the part of the file that is damaged.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final, NamedTuple

from cortex_m_hil.errors.text import counted
from cortex_m_hil.program.dataflow import states
from cortex_m_hil.program.flatbuffers import FlatbufferReader, Table
from cortex_m_hil.program.methods import choose_method, constant_value
from cortex_m_hil.program.pte_file import MAX_METHOD_NAME, MAX_RANK, Constant, PteFile
from cortex_m_hil.program.schema import (
    DTYPES,
    DYNAMIC_UNBOUND,
    EXTERNAL_DATA,
    FILE_IDENTIFIER,
    HEADER_AT,
    HEADER_MAGIC,
    HEADER_MINIMUM,
    HEADER_WITH_DATA_SIZE,
    INSTRUCTION_ARGUMENTS,
    KERNEL_TYPES,
    SLOTS,
    STATIC_SHAPE,
    InstructionKind,
    ValueKind,
)
from cortex_m_hil.program.tensor import MAX_TENSOR_BYTES, TensorSpec
from cortex_m_hil.program.values import Instruction, Planned, Value

_LEAF: Final = '[1, {"type": null,'  # the beginning of `encoded_out_str` if a method returned no container


class Layout(NamedTuple):
    """The extended header: bytes of the FlatBuffer, and where segments begin and end in the file."""

    program_size: int
    segments_begin: int
    segments_end: int


class _Areas(NamedTuple):
    """The places in the file, (begin, end) by data_buffer_idx, of constants and of mutable tensors' initial values."""

    constants: tuple[tuple[int, int], ...]
    states: tuple[tuple[int, int], ...]


def parse_pte(data: bytes, source: str = "", method: str = "") -> PteFile:
    """Read a `.pte`, and return it with one method selected. The time is linear in the number of bytes.

    Args:
        data: the content of the file. Bytes that are no program raise ProgramRejected and nothing else.
        source: the file's name, for messages.
        method: the method's name; "" for `forward`, or the only one that computes.

    Raises:
        ProgramRejected: the bytes are no program that is supported. All methods are checked, not only the selected one.
        ConfigError: there is no such method, or there are several and `method` is "".
    """
    return choose_method(read_methods(data, source), source, method)


def read_methods(data: bytes, source: str = "") -> tuple[PteFile, ...]:
    """Return all methods of a `.pte` that compute, in the file's order.

    Raises:
        ProgramRejected: the bytes are no program that is supported.
    """
    found = read_all_methods(data, source)
    constants = {file.method: value for file, value in found if value is not None}
    computing = [file for file, value in found if value is None]
    if not computing:
        problem = f"none of the program's {counted(len(constants), 'method')} computes anything"
        raise FlatbufferReader(data, len(data), source).fail(problem)
    names = tuple(file.method for file in computing)
    return tuple(replace(file, methods=names, constants=constants) for file in computing)


def read_all_methods(data: bytes, source: str) -> list[tuple[PteFile, Constant | None]]:
    """Return all methods of a `.pte` in the file's order, each constant method with its value, others with None.

    Raises:
        ProgramRejected: the bytes are no program that is supported, or two of its methods have one name.
    """
    layout = read_header(data, source)
    reader = FlatbufferReader(data, layout.program_size, source)
    program = Table(reader, reader.integer(0, "I", "root offset"), "Program")
    areas = _Areas(_constant_areas(program, layout), _state_areas(program, layout))
    found: dict[str, tuple[PteFile, Constant | None]] = {}
    for number, plan in enumerate(program.children("execution_plan", "ExecutionPlan")):
        file = _read_method(plan, number, areas)
        if file.method in found:
            raise reader.fail(f"two methods are called {file.method!r}")
        found[file.method] = file, constant_value(file, is_list=_is_list(plan))
    return [*found.values()]


def _read_method(plan: Table, number: int, areas: _Areas) -> PteFile:
    name = plan.text("name")
    if not 0 < len(name.encode()) <= MAX_METHOD_NAME:
        problem = f"the name of method {number} has {len(name.encode())} bytes; 1 to {MAX_METHOD_NAME} are supported"
        raise plan.reader.fail(problem)
    planned_sizes = _read_planned_sizes(plan)
    tables = list(plan.children("values", "EValue"))
    values = tuple(_read_value(table, index, len(tables), areas, planned_sizes) for index, table in enumerate(tables))
    operators = tuple(_operator_name(table) for table in plan.children("operators", "Operator"))
    delegates = tuple(table.text("id") for table in plan.children("delegates", "BackendDelegate"))
    inputs = _value_indices(plan, "inputs", len(values))
    instructions = _read_instructions(plan, operators, delegates, len(values))
    return PteFile(
        data=plan.reader.data,
        source=plan.reader.source,
        method=name,
        values=values,
        inputs=inputs,
        outputs=_value_indices(plan, "outputs", len(values)),
        instructions=instructions,
        operators=operators,
        delegates=delegates,
        planned_sizes=planned_sizes,
        states=states(values, inputs, instructions),
    )


def _is_list(plan: Table) -> bool:
    """Tell whether a method returned a list, tuple or dict in Python: the file has torch's text of it."""
    structure = plan.child("container_meta_type", "ContainerMetadata")
    text = "" if structure is None else structure.text("encoded_out_str")
    return bool(text) and not text.startswith(_LEAF)


def read_header(data: bytes, source: str) -> Layout:
    """Return the sizes in the header of a `.pte` file. They are checked against the number of bytes in `data`.

    Raises:
        ProgramRejected: `data` is no `.pte`, its header is damaged, or the header has sizes beyond the end of `data`.
    """
    reader = FlatbufferReader(data, len(data), source)
    if data[4:8] != FILE_IDENTIFIER or len(data) < HEADER_AT:
        found = f"bytes 4 to 8 are {data[4:8]!r}, not {FILE_IDENTIFIER!r}" if len(data) >= 8 else f"{len(data)} bytes"
        raise reader.fail(f"not a .pte: {found}", hint="is it the right file? A .pte is what lowering a module gives")
    if data[HEADER_AT : HEADER_AT + 4] != HEADER_MAGIC:
        return Layout(len(data), len(data), len(data))
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
        return Layout(size, size, size)
    return Layout(size, base, base + tail if has_data_size else len(data))


def _read_planned_sizes(plan: Table) -> tuple[int, ...]:
    sizes = plan.integers("non_const_buffer_sizes", "q")
    for number, size in enumerate(sizes):
        if size < 0 or size > MAX_TENSOR_BYTES:
            raise plan.reader.fail(f"planned buffer {number} has an absurd size of {size} bytes")
    return sizes


def _constant_areas(program: Table, layout: Layout) -> tuple[tuple[int, int], ...]:
    """Return (begin, end) in the file of each constant by data_buffer_idx; it ends there or earlier."""
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
    if len(offsets) == 1 and not list(program.children("segments", "DataSegment")):
        return ((0, 0),)  # an export without constants still writes the placeholder offset, and no segment
    return _parts(program, layout, subsegment, "constants")


def _state_areas(program: Table, layout: Layout) -> tuple[tuple[int, int], ...]:
    """Return (begin, end) in the file of mutable tensors' initial values by data_buffer_idx.

    Each value ends at `end` or earlier.
    """
    held = list(program.children("mutable_data_segments", "SubsegmentOffsets"))
    if len(held) > 1:
        raise program.reader.fail(f"{len(held)} segments of mutable data; a program of one method has one")
    return _parts(program, layout, held[0], "initial values") if held else ()


def _parts(program: Table, layout: Layout, subsegment: Table, what: str) -> tuple[tuple[int, int], ...]:
    """Return (begin, end) of each part of a segment. Its length is not in the file, so the end is the segment's end."""
    reader = program.reader
    segments = [(table.integer("offset", "Q"), table.integer("size", "Q"))
                for table in program.children("segments", "DataSegment")]  # fmt: skip
    number = subsegment.integer("segment_index", "I")
    if number >= len(segments):
        raise reader.fail(f"{what} are in segment {number} of {len(segments)}")
    begin = layout.segments_begin + segments[number][0]
    end = begin + segments[number][1]
    if end > layout.segments_end:
        raise reader.fail(f"segment {number} ends at byte {end}, the segments at {layout.segments_end}")
    return tuple((min(begin + offset, end), end) for offset in subsegment.integers("offsets", "Q"))


def _read_value(table: Table, index: int, count: int, areas: _Areas, planned_sizes: tuple[int, ...]) -> Value:
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
        return _read_tensor(body, index, areas, planned_sizes)
    return _read_plain_value(body, index, kind, count)


def _read_plain_value(body: Table, index: int, kind: ValueKind, count: int) -> Value:
    """Return a value that is anything but a tensor."""
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


def _read_tensor(body: Table, index: int, areas: _Areas, planned_sizes: tuple[int, ...]) -> Value:
    spec = _read_spec(body, index)
    if body.integer("storage_offset", "i"):
        raise body.reader.fail(f"tensor {index} has a storage offset, which the runtime does not support")
    extra = body.child("extra_tensor_info", "ExtraTensorInfo")
    if extra is not None and extra.integer("location", "B") == EXTERNAL_DATA:
        raise body.reader.fail(f"the data of tensor {index} is in another file")
    allocation = body.child("allocation_info", "AllocationDetails")
    planned = _read_planned(allocation, index, spec.nbytes, planned_sizes) if allocation is not None else None
    buffer = body.integer("data_buffer_idx", "I")
    held = None
    if buffer:
        what, known = ("constant", areas.constants) if planned is None else ("mutable", areas.states)
        begin, end = known[buffer] if buffer < len(known) else (0, -1)
        if begin + spec.nbytes > end:
            raise body.reader.fail(f"the data of {what} tensor {index} ({spec}) lies outside the file")
        held = (begin, spec.nbytes)
    constant, initial = (held, None) if planned is None else (None, held)
    is_dynamic = body.integer("shape_dynamism", "b") != STATIC_SHAPE
    return Value(
        index, ValueKind.TENSOR, spec, planned=planned, constant=constant, initial=initial, is_dynamic=is_dynamic
    )


# ScalarType numbers that NumPy has no dtype for, or no kernel.
_NOT_HERE: Final = {8: "complex32", 9: "complex64", 10: "complex128", 15: "bfloat16"}


def _read_spec(body: Table, index: int) -> TensorSpec:
    number = body.integer("scalar_type", "b")
    if number not in DTYPES:
        dtype = _NOT_HERE.get(number, f"dtype number {number}")
        hint = "leave it to whoever calls the program, or compute it in a dtype that there is: float32, int32, int8"
        raise body.reader.fail(f"tensor {index} is {dtype}, which is not supported", hint=hint)
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


def _read_planned(allocation: Table, index: int, nbytes: int, planned_sizes: tuple[int, ...]) -> Planned:
    memory_id = allocation.integer("memory_id", "I")
    low, high = allocation.integer("memory_offset_low", "I"), allocation.integer("memory_offset_high", "I")
    offset = high << 32 | low
    if not 1 <= memory_id < len(planned_sizes) or offset + nbytes > planned_sizes[memory_id]:
        raise allocation.reader.fail(
            f"tensor {index}: {nbytes} bytes at {offset} of planned buffer {memory_id}, "
            f"and the buffers have {list(planned_sizes[:8])} bytes"
        )
    return Planned(memory_id, offset, nbytes)


def _operator_name(table: Table) -> str:
    overload = table.text("overload")
    return table.text("name") + (f".{overload}" if overload else "")


def _value_indices(table: Table, name: str, count: int) -> tuple[int, ...]:
    indices = table.integers(name, "i")
    if any(not 0 <= index < count for index in indices):
        raise table.reader.fail(f"{table.type_name}.{name} refers to a value that does not exist")
    return indices


def _read_instructions(
    plan: Table, operators: tuple[str, ...], delegates: tuple[str, ...], values: int
) -> tuple[Instruction, ...]:
    chains = list(plan.children("chains", "Chain"))
    if len(chains) != 1:
        raise plan.reader.fail(f"the method has {len(chains)} chains; one is supported")
    tables = list(chains[0].children("instructions", "Instruction"))
    return tuple(
        _read_instruction(table, index, operators, delegates, values, len(tables)) for index, table in enumerate(tables)
    )


def _read_instruction(
    table: Table, index: int, operators: tuple[str, ...], delegates: tuple[str, ...], values: int, instructions: int
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
    args, destinations = (args[:1], args[1:]) if kind is InstructionKind.JUMP_FALSE else (args, ())
    if not all(0 <= arg < values for arg in args) or not all(0 <= at <= instructions for at in destinations):
        raise table.reader.fail(f"instruction {index}, a {kind.value}, refers to what does not exist")
    return Instruction(index, kind, "", args, *destinations)
