"""Numbers of program.fbs, scalar_type.fbs and bundled_program.fbs: slots of tables, tags of unions, and dtypes."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Final

FILE_IDENTIFIER: Final = b"ET12"
HEADER_MAGIC: Final = b"eh00"
HEADER_AT: Final = 8  # after the root offset and the file identifier
HEADER_MINIMUM: Final = 24  # magic, length, program size, segment base
HEADER_WITH_DATA_SIZE: Final = 32  # ... and segment data size

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

FIELDS: Final[Mapping[str, Mapping[str, str]]] = {
    "Program": {
        "version": "uint",
        "execution_plan": "[ExecutionPlan]",
        "constant_buffer": "[Buffer]",
        "backend_delegate_data": "[BackendDelegateInlineData]",
        "segments": "[DataSegment]",
        "constant_segment": "SubsegmentOffsets",
        "mutable_data_segments": "[SubsegmentOffsets]",
        "named_data": "[NamedData]",
    },
    "ExecutionPlan": {
        "name": "string",
        "container_meta_type": "ContainerMetadata",
        "values": "[EValue]",
        "inputs": "[int]",
        "outputs": "[int]",
        "chains": "[Chain]",
        "operators": "[Operator]",
        "delegates": "[BackendDelegate]",
        "non_const_buffer_sizes": "[int64]",
        "non_const_buffer_device": "[NonConstBufferDevice]",
    },
    "Chain": {"inputs": "[int]", "outputs": "[int]", "instructions": "[Instruction]", "stacktrace": "[FrameList]"},
    "Instruction": {"instr_args": "InstructionArguments"},
    "KernelCall": {"op_index": "int", "args": "[int]"},
    "DelegateCall": {"delegate_index": "int", "args": "[int]"},
    "MoveCall": {"move_from": "int", "move_to": "int"},
    "JumpFalseCall": {"cond_value_index": "int", "destination_instruction": "int"},
    "FreeCall": {"value_index": "int"},
    "Operator": {"name": "string", "overload": "string"},
    "BackendDelegate": {"id": "string", "processed": "BackendDelegateDataReference", "compile_specs": "[CompileSpec]"},
    "EValue": {"val": "KernelTypes"},
    "Null": {},
    "Int": {"int_val": "long"},
    "Bool": {"bool_val": "bool"},
    "Double": {"double_val": "double"},
    "String": {"string_val": "string"},
    "IntList": {"items": "[long]"},
    "DoubleList": {"items": "[double]"},
    "BoolList": {"items": "[bool]"},
    "TensorList": {"items": "[int]"},
    "OptionalTensorList": {"items": "[int]"},
    "Tensor": {
        "scalar_type": "byte",
        "storage_offset": "int",
        "sizes": "[int]",
        "dim_order": "[ubyte]",
        "requires_grad": "bool",
        "data_buffer_idx": "uint",
        "allocation_info": "AllocationDetails",
        "layout": "byte",
        "shape_dynamism": "byte",
        "extra_tensor_info": "ExtraTensorInfo",
    },
    "ExtraTensorInfo": {
        "mutable_data_segments_idx": "uint64",
        "fully_qualified_name": "string",
        "location": "byte",
        "device_type": "byte",
        "device_index": "byte",
    },
    "AllocationDetails": {"memory_id": "uint", "memory_offset_low": "uint", "memory_offset_high": "uint"},
    "Buffer": {"storage": "[ubyte]"},
    "DataSegment": {"offset": "uint64", "size": "uint64"},
    "SubsegmentOffsets": {"segment_index": "uint", "offsets": "[uint64]"},
    "ContainerMetadata": {"encoded_inp_str": "string", "encoded_out_str": "string"},
    "Frame": {"filename": "string", "lineno": "int", "name": "string", "context": "string"},
    "FrameList": {"items": "[Frame]"},
    "BackendDelegateDataReference": {"location": "byte", "index": "uint"},
    "CompileSpec": {"key": "string", "value": "[ubyte]"},
    "NonConstBufferDevice": {"buffer_idx": "int", "device_type": "byte", "device_index": "byte"},
    "BackendDelegateInlineData": {"data": "[ubyte]"},
    "NamedData": {"key": "string", "segment_index": "uint32"},
}
"""For each table its fields in the order of program.fbs, with their types; an enum has the type that stores it."""
BUNDLED_IDENTIFIER: Final = b"BP08"
BUNDLED_FIELDS: Final[Mapping[str, Mapping[str, str]]] = {
    "BundledProgram": {"version": "uint", "method_test_suites": "[BundledMethodTestSuite]", "program": "[ubyte]"},
    "BundledMethodTestSuite": {"method_name": "string", "test_cases": "[BundledMethodTestCase]"},
    "BundledMethodTestCase": {"inputs": "[Value]", "expected_outputs": "[Value]"},
    "BundledValue": {"val": "ValueUnion"},
    "BundledTensor": {"scalar_type": "byte", "sizes": "[int]", "data": "[ubyte]", "dim_order": "[ubyte]"},
}
"""Fields by table of bundled_program.fbs, whose `Value` and `Tensor` are `BundledValue` and `BundledTensor` here.

The fields are numbered in the order of the file.
"""
UNIONS: Final = ("KernelTypes", "InstructionArguments")
_BUNDLED_UNION: Final = "ValueUnion"


def _slots(fields: Mapping[str, str]) -> dict[str, int]:
    """Return the slot of each field of a table. A union takes two slots: its type, then its value."""
    names = (
        name
        for field, kind in fields.items()
        for name in ([f"{field}_type"] * (kind in (*UNIONS, _BUNDLED_UNION)) + [field])
    )
    return {name: slot for slot, name in enumerate(names)}


SLOTS: Final[Mapping[str, Mapping[str, int]]] = {
    table: _slots(fields) for table, fields in {**FIELDS, **BUNDLED_FIELDS}.items()
}
"""Field slot by table and field."""


class ValueKind(str, Enum):
    """The kind of an EValue; the values are the table names of the KernelTypes union."""

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


LISTS_OF_TENSORS: Final = frozenset({ValueKind.TENSOR_LIST, ValueKind.OPTIONAL_TENSOR_LIST})
"""Kinds of lists whose items are indices of values; in an optional list -1 stands for None."""


class InstructionKind(str, Enum):
    """The kind of an instruction; the values are the table names of the InstructionArguments union."""

    KERNEL = "KernelCall"
    DELEGATE = "DelegateCall"
    MOVE = "MoveCall"
    JUMP_FALSE = "JumpFalseCall"
    FREE = "FreeCall"


# Union member n of the schema is entry n - 1: 0 stands for "no value" in every FlatBuffers union.
KERNEL_TYPES: Final = tuple(ValueKind)
INSTRUCTION_ARGUMENTS: Final = tuple(InstructionKind)
BUNDLED_VALUES: Final = (ValueKind.TENSOR, ValueKind.INT, ValueKind.BOOL, ValueKind.DOUBLE)
STATIC_SHAPE: Final = 0  # TensorShapeDynamism.STATIC
DYNAMIC_UNBOUND: Final = 2  # TensorShapeDynamism.DYNAMIC_UNBOUND
EXTERNAL_DATA: Final = 1  # TensorDataLocation.EXTERNAL
