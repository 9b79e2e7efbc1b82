"""Numbers of program.fbs and scalar_type.fbs: slots of tables, tags of unions, scalar types."""

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
