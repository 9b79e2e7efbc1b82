"""The reader against the wheel's schema, against real files, and against arbitrary bytes."""

from __future__ import annotations

import importlib.util
import re
import struct
import time
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cortex_m_hil.errors import ConfigError, ProgramRejected
from cortex_m_hil.program import schema, tensor
from cortex_m_hil.program.known_answer import known_answer
from cortex_m_hil.program.pte_file import PteFile
from cortex_m_hil.program.pte_reader import parse_pte
from cortex_m_hil.program.schema import ValueKind
from cortex_m_hil.program.tensor import HostTensor, TensorSpec
from cortex_m_hil.program.values import Instruction, Planned, Value
from cortex_m_hil.targets.cpu import Isa

FILES = [known_answer(isa).program for isa in Isa]


def schema_text(name: str) -> str:
    """A schema file of the installed wheel, without comments; importing executorch is not needed for it."""
    spec = importlib.util.find_spec("executorch")
    if spec is None or not spec.submodule_search_locations:
        pytest.skip("executorch is not installed")
    path = Path(next(iter(spec.submodule_search_locations))) / "schema" / name
    return re.sub(r"//.*", "", path.read_text())


def blocks(kind: str) -> dict[str, str]:
    return dict(re.findall(rf"\b{kind} (\w+)[^{{]*\{{(.*?)\}}", schema_text("program.fbs"), re.DOTALL))


def test_every_slot_is_the_schemas() -> None:
    tables, unions = blocks("table"), blocks("union")
    for table in schema.FIELDS:
        slots = schema.SLOTS[table]
        expected: dict[str, int] = {}
        slot = 0
        for name, type_name in re.findall(r"(\w+)\s*:\s*(\[?\w+\]?)", tables[table]):
            if type_name in unions:
                expected[f"{name}_type"] = slot
                slot += 1
            expected[name] = slot
            slot += 1
        assert slots.items() <= expected.items(), table


def test_unions_are_the_schemas() -> None:
    unions = {name: re.findall(r"\w+", body) for name, body in blocks("union").items()}
    assert unions["KernelTypes"] == [kind.value for kind in schema.KERNEL_TYPES]
    assert unions["InstructionArguments"] == [kind.value for kind in schema.INSTRUCTION_ARGUMENTS]


def test_enums_are_the_schemas() -> None:
    enums = {name: dict(re.findall(r"(\w+)\s*=\s*(\d+)", body)) for name, body in blocks("enum").items()}
    assert int(enums["TensorShapeDynamism"]["STATIC"]) == schema.STATIC_SHAPE
    assert int(enums["TensorShapeDynamism"]["DYNAMIC_UNBOUND"]) == schema.DYNAMIC_UNBOUND
    assert int(enums["TensorDataLocation"]["EXTERNAL"]) == schema.EXTERNAL_DATA
    numbers = {n: int(v) for n, v in re.findall(r"(\w+)\s*=\s*(\d+)", schema_text("scalar_type.fbs"))}
    assert schema.SCALAR_TYPES.items() <= numbers.items()
    assert re.findall(r'file_identifier "(....)"', schema_text("program.fbs"))[0].encode() == schema.FILE_IDENTIFIER


def test_scalar_types_are_the_schemas_vector_element_types() -> None:
    """The struct codes used for vectors and scalars have the schema's widths."""
    tables = blocks("table")
    assert "items: [long]" in tables["IntList"] and "int_val: long" in tables["Int"]
    assert "items: [int]" in tables["TensorList"] and "args: [int]" in tables["KernelCall"]
    assert "sizes: [int]" in tables["Tensor"] and "dim_order: [ubyte]" in tables["Tensor"]
    assert "offsets: [uint64]" in tables["SubsegmentOffsets"]
    assert "non_const_buffer_sizes: [int64]" in tables["ExecutionPlan"]


@pytest.mark.parametrize("isa", Isa)
def test_the_known_answer_program_is_parsed_with_its_operators_and_specs(isa: Isa) -> None:
    data = known_answer(isa).program
    file = parse_pte(data, "known_answer.pte")
    assert file.size == len(data)
    assert [i.operator for i in file.instructions] == [
        "cortex_m::quantize_per_tensor.out",
        "cortex_m::quantized_linear.out",
        "cortex_m::dequantize_per_tensor.out",
    ]
    assert file.input_specs() == (TensorSpec("float32", (1, 16), (0, 1)),)
    assert file.output_specs() == (TensorSpec("float32", (1, 8), (0, 1)),)
    linear = file.instructions[1]
    weight = file.constant(linear.args[1])
    assert weight is not None and weight.array().shape == (8, 16) and weight.array().dtype == np.int8
    bias, kernel_sum = (file.values[linear.args[number]].kind for number in (2, 3))
    assert (kernel_sum is ValueKind.TENSOR) == (isa is Isa.MVE)
    assert (bias is ValueKind.TENSOR) == (isa is not Isa.MVE)
    assert len(file.ints(linear.args[7])) == 1
    assert file.planned_bytes >= sum(16 * 4 for _ in file.inputs)
    assert file.dataflow.computed_by[0] == linear
    assert file.dataflow.producer(file.inputs[0]) is None


def test_output_quantization_is_the_final_dequantize() -> None:
    found = parse_pte(FILES[0]).dataflow.output_quantizations[0]
    assert found is not None and (found.qmin, found.qmax, found.dtype) == (-128, 127, "int8")
    expected = known_answer(Isa.MVE).expected[0].array()
    quanta = expected / np.float32(found.scale)
    assert np.abs(quanta - np.rint(quanta)).max() < 1e-3


def view_chain(kind: str) -> PteFile:
    """quantize → dequantize into value 1, then a view of it as output: by an operator, or by address alone."""
    int8, f32 = TensorSpec.contiguous("int8", (2, 3)), TensorSpec.contiguous("float32", (2, 3))
    flat = TensorSpec.contiguous("float32", (6,))
    numbers = [0.5, 3, -128, 127, 1]
    scalars = tuple(
        Value(4 + n, ValueKind.DOUBLE if isinstance(x, float) else ValueKind.INT, scalar=x)
        for n, x in enumerate(numbers)
    )
    kept = Planned(1, 64, 24)
    values = (
        Value(0, ValueKind.TENSOR, int8, planned=Planned(1, 0, 6)),
        Value(1, ValueKind.TENSOR, f32, planned=kept),
        Value(2, ValueKind.TENSOR, flat, planned=kept if kind == "alias" else Planned(1, 128, 24)),
        Value(3, ValueKind.NULL),
        *scalars,
    )
    call = schema.InstructionKind.KERNEL
    instructions = [Instruction(0, call, "cortex_m::dequantize_per_tensor.out", (0, 4, 5, 6, 7, 8, 1, 1))]
    if kind != "alias":
        instructions.append(Instruction(1, call, kind, (1, 3, 2, 2)))
    names = tuple(i.operator for i in instructions)
    return PteFile(b"", "", "forward", values, (0,), (2,), tuple(instructions), names, (), (0, 256))


@pytest.mark.parametrize("kind", ["alias", "aten::view_copy.out", "dim_order_ops::_clone_dim_order.out"])
def test_quantization_is_followed_through_views(kind: str) -> None:
    assert view_chain(kind).dataflow.output_quantizations[0] == (0.5, 3, -128, 127, "int8")


def test_quantization_stops_at_arithmetic() -> None:
    assert view_chain("aten::mul.out").dataflow.output_quantizations[0] is None


# --- bad files -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("data", [b"", b"ET12", b"\0\0\0\0ET11" + b"\0" * 64, b"not a program at all, but long enough"])
def test_bytes_without_the_pte_identifier_are_rejected(data: bytes) -> None:
    with pytest.raises(ProgramRejected, match=r"x\.pte: not a \.pte"):
        parse_pte(data, "x.pte")


def test_every_truncation_is_rejected() -> None:
    data = FILES[0]
    for length in range(len(data)):
        with pytest.raises(ProgramRejected):
            parse_pte(data[:length])


def test_truncation_is_called_so() -> None:
    with pytest.raises(ProgramRejected, match="truncated: the header announces"):
        parse_pte(FILES[0][:-1])


@pytest.mark.parametrize(
    ("at", "value", "message"),
    [
        (schema.HEADER_AT + 8, 1 << 63, "contradicts itself"),
        (schema.HEADER_AT + 16, 1 << 63, "truncated"),
        (schema.HEADER_AT + 8, 8, "contradicts itself"),
        (schema.HEADER_AT + 16, 8, "contradicts itself"),
        (schema.HEADER_AT + 24, 1 << 60, "truncated"),
    ],
)
def test_contradicting_sizes_in_the_extended_header_are_rejected(at: int, value: int, message: str) -> None:
    data = bytearray(FILES[0])
    assert data[schema.HEADER_AT : schema.HEADER_AT + 4] == schema.HEADER_MAGIC
    struct.pack_into("<Q", data, at, value)
    with pytest.raises(ProgramRejected, match=message):
        parse_pte(bytes(data))


def inspect_all(data: bytes) -> None:
    """Parse, and look at everything a parsed file offers."""
    file = parse_pte(data)
    file.input_specs()
    assert all(spec.nbytes >= 0 for spec in file.output_specs())
    assert len(file.dataflow.output_quantizations) == len(file.dataflow.computed_by) == len(file.outputs)
    for value in file.values:
        file.constant(value.index)
        file.ints(value.index) if value.kind is ValueKind.INT_LIST else None


def only_rejects(data: bytes) -> None:
    try:
        inspect_all(data)
    except ProgramRejected as error:
        assert len(str(error)) < 1000


def mutations() -> st.SearchStrategy[bytes]:
    """Real files with bytes and words overwritten, and perhaps cut."""
    positions = st.integers(0, max(map(len, FILES)) - 4)
    words = st.one_of(st.integers(0, 2**32 - 1), st.sampled_from([0, 1, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, 4, 64]))
    edits = st.lists(st.tuples(positions, words, st.sampled_from([1, 2, 4])), min_size=1, max_size=6)
    return st.builds(mutate, st.sampled_from(FILES), edits, st.one_of(st.none(), st.integers(0, 4000)))


def mutate(data: bytes, edits: list[tuple[int, int, int]], cut: int | None) -> bytes:
    changed = bytearray(data)
    for at, word, width in edits:
        start = at % (len(changed) - 4)
        changed[start : start + width] = word.to_bytes(4, "little")[:width]
    return bytes(changed[:cut])


@settings(max_examples=700)
@given(mutations())
def test_mutated_files_are_rejected_or_read(data: bytes) -> None:
    only_rejects(data)


@settings(max_examples=300)
@given(st.binary(max_size=400))
def test_arbitrary_bytes_are_rejected(data: bytes) -> None:
    only_rejects(b"\x10\0\0\0ET12" + data)


@pytest.mark.slow
def test_every_single_byte_change_is_survived() -> None:
    data = FILES[1]
    for at in range(len(data)):
        only_rejects(data[:at] + bytes([data[at] ^ 0xFF]) + data[at + 1 :])


def test_shared_vectors_cannot_multiply_the_work() -> None:
    """A small file in which many tables share one large vector would cost the square of its size: 16 times for 4."""
    seconds_to_reject(20_000)  # with what is done once
    few, many = (min(seconds_to_reject(count) for _ in range(3)) for count in (20_000, 80_000))
    assert many < 8 * few


def seconds_to_reject(count: int) -> float:
    """Of CPU time. Root → Program without vtable entries is impossible; a table with all the file as vector is not."""
    blob = struct.pack("<I4s", 8 + 20, schema.FILE_IDENTIFIER)
    vtable = struct.pack("<HHHHHHHH", 16, 8, 0, 4, 0, 0, 0, 0) + b"\0" * 4
    table = struct.pack("<iI", 20, 4)
    vector = struct.pack("<I", count) + struct.pack(f"<{count}I", *[0] * count)
    started = time.thread_time()
    with pytest.raises(ProgramRejected):
        parse_pte(blob + vtable + table + vector)
    return time.thread_time() - started


# --- tensors ---------------------------------------------------------------------------------------------


@st.composite
def arrays(draw: st.DrawFn) -> tuple[tensor.Array, tuple[int, ...]]:
    shape = tuple(draw(st.lists(st.integers(0, 4), max_size=5)))
    dtype = draw(st.sampled_from(sorted(schema.DTYPES.values())))
    order = tuple(draw(st.permutations(range(len(shape)))))
    return (np.arange(int(np.prod(shape))) % 2 * 3).reshape(shape).astype(dtype), order


@given(arrays())
def test_host_tensor_round_trip(case: tuple[tensor.Array, tuple[int, ...]]) -> None:
    array, order = case
    tensor = HostTensor.from_array(array, order)
    assert len(tensor.data) == tensor.spec.nbytes == array.nbytes
    assert tensor.array().dtype == array.dtype
    np.testing.assert_array_equal(tensor.array(), array)
    np.testing.assert_array_equal(HostTensor(tensor.spec, tensor.data).array(), array)


def test_bytes_are_in_the_specs_own_order() -> None:
    array = np.arange(12, dtype=np.int8).reshape(1, 3, 2, 2)
    tensor = HostTensor.from_array(array, (0, 2, 3, 1))
    assert list(tensor.data) == [0, 4, 8, 1, 5, 9, 2, 6, 10, 3, 7, 11]


@pytest.mark.parametrize("value", [True, False, 7, -(2**40), 0.1, float("inf")])
def test_scalars_travel_as_eight_bytes(value: int | float | bool) -> None:
    tensor = HostTensor.from_scalar(value)
    assert len(tensor.data) == 8 and tensor.item() == value and type(tensor.item()) is type(value)


def test_dimensions_of_size_one_do_not_change_the_layout() -> None:
    nchw, nhwc = (0, 1, 2, 3), (0, 2, 3, 1)
    same, other = (1, 1, 5, 5), (1, 2, 5, 5)
    assert TensorSpec("int8", same, nchw).same_memory(TensorSpec("int8", same, nhwc))
    assert not TensorSpec("int8", other, nchw).same_memory(TensorSpec("int8", other, nhwc))


def test_invalid_tensor_specs_and_byte_counts_are_refused() -> None:
    with pytest.raises(ConfigError):
        TensorSpec("int8", (2, 2), (0, 0))
    with pytest.raises(ConfigError):
        TensorSpec("bfloat16", (2,), (0,))
    with pytest.raises(ConfigError, match="takes 4 bytes, not 3"):
        HostTensor(TensorSpec.contiguous("float32", (1,)), b"abc")
