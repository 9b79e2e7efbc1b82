"""Mutations of a `.pte` file: edits of fields by the schema, flipped bits, changed lengths."""

from __future__ import annotations

import hashlib
import random
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from itertools import count
from typing import Final

from cortex_m_hil.program.schema import (
    HEADER_AT,
    HEADER_MAGIC,
    INSTRUCTION_ARGUMENTS,
    KERNEL_TYPES,
    SLOTS,
    InstructionKind,
    ValueKind,
)

FIELD_SHARE: Final = 0.75  # share of mutants that edit fields; of the rest 2/3 flip bits, 1/3 change the length


class FieldEdit(str, Enum):
    """The kind of a mutation, by the edited part of the file.

    All kinds except the last three edit fields of the format.
    """

    HEADER = "extended-header"
    OFFSET = "offset"
    VTABLE = "vtable"
    UNION = "union-type"
    VALUE_INDEX = "value-index"
    CHAIN = "chain"
    MORPH = "instruction-morph"
    SIZE = "size"
    LENGTH = "vector-length"
    DIM_ORDER = "dim-order"
    DTYPE = "dtype"
    CONSTANT = "constant-bounds"
    PLAN = "memory-plan"
    SCALAR = "scalar"
    NAME = "name"
    FLIP = "bit-flip"
    TRUNCATE = "truncation"
    EXTEND = "extension"


BLIND: Final = frozenset({FieldEdit.FLIP, FieldEdit.TRUNCATE, FieldEdit.EXTEND})


@dataclass(frozen=True, slots=True)
class ProgramMutant:
    """A mutated program.

    Attributes:
        kind: the kind of the first edit.
        edits: each difference from the original program, in words.
        data: the bytes of the file.
    """

    seed: int
    number: int
    kind: FieldEdit
    edits: tuple[str, ...]
    data: bytes = field(repr=False)

    @property
    def field_aware(self) -> bool:
        return self.kind not in BLIND


# --- the fields of a valid file ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Site:
    """A number in the file that can be edited.

    Attributes:
        at: the position of the number in bytes.
        code: the format of the number, as a struct code.
        base: for an offset the position that it is relative to, else -1.
        target: for an offset the position that it points to, else -1.
    """

    kind: FieldEdit
    at: int
    code: str
    name: str
    base: int = -1
    target: int = -1


@dataclass(frozen=True, slots=True)
class _Field:
    """The format of a table's field.

    Attributes:
        form: a struct code, "[code]", "text", "Table", "[Table]" or "union".
        kind: the kind of edits of the field's number, or of the vector's items.
    """

    form: str
    kind: FieldEdit = FieldEdit.OFFSET


_INDICES: Final = _Field("[i]", FieldEdit.VALUE_INDEX)
_FIELDS: Final[Mapping[str, Mapping[str, _Field]]] = {
    "Program": {
        "execution_plan": _Field("[ExecutionPlan]"),
        "constant_buffer": _Field("[Buffer]"),
        "segments": _Field("[DataSegment]"),
        "constant_segment": _Field("SubsegmentOffsets"),
    },
    "ExecutionPlan": {
        "name": _Field("text"),
        "values": _Field("[EValue]"),
        "inputs": _INDICES,
        "outputs": _INDICES,
        "chains": _Field("[Chain]"),
        "operators": _Field("[Operator]"),
        "non_const_buffer_sizes": _Field("[q]", FieldEdit.PLAN),
    },
    "Chain": {"instructions": _Field("[Instruction]", FieldEdit.CHAIN)},
    "Instruction": {"instr_args_type": _Field("B", FieldEdit.CHAIN), "instr_args": _Field("union")},
    "KernelCall": {"op_index": _Field("i", FieldEdit.CHAIN), "args": _INDICES},
    "MoveCall": {"move_from": _Field("i", FieldEdit.VALUE_INDEX), "move_to": _Field("i", FieldEdit.VALUE_INDEX)},
    "JumpFalseCall": {
        "cond_value_index": _Field("i", FieldEdit.VALUE_INDEX),
        "destination_instruction": _Field("i", FieldEdit.CHAIN),
    },
    "FreeCall": {"value_index": _Field("i", FieldEdit.VALUE_INDEX)},
    "Operator": {"name": _Field("text"), "overload": _Field("text")},
    "EValue": {"val_type": _Field("B", FieldEdit.UNION), "val": _Field("union")},
    "Null": {},
    "Int": {"int_val": _Field("q", FieldEdit.SCALAR)},
    "Bool": {"bool_val": _Field("B", FieldEdit.SCALAR)},
    "Double": {"double_val": _Field("d", FieldEdit.SCALAR)},
    "String": {"string_val": _Field("text")},
    "IntList": {"items": _Field("[q]", FieldEdit.VALUE_INDEX)},
    "DoubleList": {"items": _Field("[d]", FieldEdit.SCALAR)},
    "BoolList": {"items": _Field("[B]", FieldEdit.SCALAR)},
    "TensorList": {"items": _INDICES},
    "OptionalTensorList": {"items": _INDICES},
    "Tensor": {
        "scalar_type": _Field("b", FieldEdit.DTYPE),
        "storage_offset": _Field("i", FieldEdit.CONSTANT),
        "sizes": _Field("[i]", FieldEdit.SIZE),
        "dim_order": _Field("[B]", FieldEdit.DIM_ORDER),
        "data_buffer_idx": _Field("I", FieldEdit.CONSTANT),
        "allocation_info": _Field("AllocationDetails"),
        "shape_dynamism": _Field("b", FieldEdit.SIZE),
        "extra_tensor_info": _Field("ExtraTensorInfo"),
    },
    "ExtraTensorInfo": {"location": _Field("B", FieldEdit.CONSTANT)},
    "AllocationDetails": {
        "memory_id": _Field("I", FieldEdit.PLAN),
        "memory_offset_low": _Field("I", FieldEdit.PLAN),
        "memory_offset_high": _Field("I", FieldEdit.PLAN),
    },
    "Buffer": {"storage": _Field("[B]", FieldEdit.CONSTANT)},
    "DataSegment": {"offset": _Field("Q", FieldEdit.CONSTANT), "size": _Field("Q", FieldEdit.CONSTANT)},
    "SubsegmentOffsets": {
        "segment_index": _Field("I", FieldEdit.CONSTANT),
        "offsets": _Field("[Q]", FieldEdit.CONSTANT),
    },
}
_UNIONS: Final[Mapping[str, tuple[str, Sequence[Enum]]]] = {
    "EValue": ("val_type", KERNEL_TYPES),
    "Instruction": ("instr_args_type", INSTRUCTION_ARGUMENTS),
}
MOST_ITEMS: Final = 64  # sites per vector: inline constants are data, not fields


@dataclass(frozen=True, slots=True)
class _Call:
    """The positions of a KernelCall's type, of its fields `op_index` and `args` (0 if absent), and of its arguments."""

    type_at: int
    first: int
    second: int
    args: tuple[int, ...]


class _Walk:
    """A walk over a valid `.pte` that collects every field once as a site, and the kernel calls in order."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.sites: list[Site] = []
        self.calls: list[_Call] = []
        self._seen: set[int] = set()
        self._header()
        self._offset(0, "root", "Program", FieldEdit.OFFSET)

    def _get(self, at: int, code: str) -> int:
        return int(struct.unpack_from(f"<{code}", self.data, at)[0])

    def _header(self) -> None:
        if self.data[HEADER_AT : HEADER_AT + 4] != HEADER_MAGIC:
            return
        fields = [
            (4, "I", "length"),
            (8, "Q", "program size"),
            (16, "Q", "segment base"),
            (24, "Q", "segment data size"),
        ]
        for at, code, name in fields:
            if at < self._get(HEADER_AT + 4, "I"):
                self.sites.append(Site(FieldEdit.HEADER, HEADER_AT + at, code, f"header.{name}"))

    def _offset(self, at: int, name: str, form: str, items: FieldEdit, kind: FieldEdit = FieldEdit.OFFSET) -> None:
        """Add the offset at `at` as a site, and walk the object that it points to.

        Args:
            at: position of the offset.
            name: name of the field, for messages.
            form: the form of that object, as in `_Field`.
            items: the kind of edits of a vector's items.
            kind: the kind of edits of the offset itself.
        """
        target = at + self._get(at, "I")
        self.sites.append(Site(kind, at, "I", name, at, target))
        if target in self._seen:
            return
        self._seen.add(target)
        if form == "text":
            self._vector(target, "B", name, FieldEdit.NAME)
        elif form.startswith("["):
            self._vector(target, form[1:-1], name, items)
        else:
            self._table(target, form)

    def _vector(self, at: int, item: str, name: str, kind: FieldEdit) -> None:
        length = self._get(at, "I")
        self.sites.append(Site(FieldEdit.LENGTH, at, "I", f"{name}.length"))
        if len(item) > 1:
            for number in range(length):
                self._offset(at + 4 + 4 * number, f"{name}[{number}]", item, FieldEdit.OFFSET, kind)
            return
        size = struct.calcsize(f"<{item}")
        for number in range(min(length, MOST_ITEMS)):
            self.sites.append(Site(kind, at + 4 + size * number, item, f"{name}[{number}]"))

    def _table(self, at: int, type_name: str) -> None:
        vtable = at - self._get(at, "i")
        self.sites.append(Site(FieldEdit.VTABLE, at, "i", f"{type_name}.vtable", at, vtable))
        if vtable not in self._seen:
            self._seen.add(vtable)
            for number in range(self._get(vtable, "H") // 2):
                self.sites.append(Site(FieldEdit.VTABLE, vtable + 2 * number, "H", f"{type_name}.vtable[{number}]"))
        for name, how in _FIELDS[type_name].items():
            place = self._place(at, SLOTS[type_name][name])
            if place and len(how.form) == 1:
                self.sites.append(Site(how.kind, place, how.form, f"{type_name}.{name}"))
            elif place and how.form == "union":
                self._union(at, place, type_name, name)
            elif place:
                self._offset(place, f"{type_name}.{name}", how.form, how.kind)

    def _place(self, at: int, slot: int) -> int:
        """Return the absolute position of a table's field, 0 where it is absent."""
        vtable = at - self._get(at, "i")
        entry = 4 + 2 * slot
        offset = self._get(vtable + entry, "H") if entry < self._get(vtable, "H") else 0
        return at + offset if offset else 0

    def _union(self, at: int, place: int, type_name: str, name: str) -> None:
        selector, members = _UNIONS[type_name]
        type_at = self._place(at, SLOTS[type_name][selector])
        member = str(members[self._get(type_at, "B") - 1].value) if type_at else ""
        if member not in _FIELDS:
            return
        self._offset(place, f"{type_name}.{name}", member, FieldEdit.OFFSET)
        if member == InstructionKind.KERNEL.value:
            body = place + self._get(place, "I")
            second = self._place(body, SLOTS[member]["args"])
            vector = second + self._get(second, "I")
            args = struct.unpack_from(f"<{self._get(vector, 'I')}i", self.data, vector + 4)
            self.calls.append(_Call(type_at, self._place(body, SLOTS[member]["op_index"]), second, args))


def sites(pte: bytes) -> tuple[Site, ...]:
    """Return the fields of a valid `.pte`, one that `parse_pte` accepts."""
    return tuple(_Walk(pte).sites)


# --- mutations -----------------------------------------------------------------------------------------------

_DOUBLES: Final = (0.0, -0.0, 1.0, -1.0, 0.5, 5e-324, 1e-40, 1e38, 1.7e308, float("inf"), float("-inf"), float("nan"))
_INT: Final = 1 + KERNEL_TYPES.index(ValueKind.INT)
_FREQUENT_EDITS: Final = (1, 1, 1, 1, 1, 1, 2, 2, 3, 4)


class Mutator:
    """A source of mutants of one program; `mutant(seed, number)` always returns the same one."""

    def __init__(self, pte: bytes) -> None:
        self.pte = pte
        self._name = hashlib.sha256(pte).hexdigest()
        walk = _Walk(pte)
        self._calls = walk.calls
        self._by_kind: dict[FieldEdit, list[Site]] = {}
        for site in walk.sites:
            self._by_kind.setdefault(site.kind, []).append(site)
        self._kinds = sorted(self._by_kind) + ([FieldEdit.MORPH] if self._calls else [])
        self._boundaries = sorted({site.at for site in walk.sites} | {s.target for s in walk.sites if s.target >= 0})

    def mutant(self, seed: int, number: int) -> ProgramMutant:
        for attempt in count():
            chance = random.Random(f"{self._name}:{seed}:{number}:{attempt}")
            kind, edits, data = self._mutate(chance)
            if data != self.pte:
                return ProgramMutant(seed, number, kind, edits, data)
        raise AssertionError("not reached: count() does not end")

    def _mutate(self, chance: random.Random) -> tuple[FieldEdit, tuple[str, ...], bytes]:
        roll = chance.random()
        if roll < FIELD_SHARE:
            return self._edit_fields(chance)
        if roll < FIELD_SHARE + (1 - FIELD_SHARE) * 2 / 3:
            return self._flip(chance)
        return self._resize(chance)

    def _edit_fields(self, chance: random.Random) -> tuple[FieldEdit, tuple[str, ...], bytes]:
        data = bytearray(self.pte)
        edits: list[str] = []
        kinds = [chance.choice(self._kinds) for _ in range(chance.choice(_FREQUENT_EDITS))]
        for kind in kinds:
            edits.append(self._morph(chance, data) if kind is FieldEdit.MORPH else self._edit(chance, kind, data))
        return kinds[0], tuple(edits), bytes(data)

    def _edit(self, chance: random.Random, kind: FieldEdit, data: bytearray) -> str:
        candidates = self._by_kind[kind]
        site = chance.choice(candidates)
        other = chance.choice(candidates)
        old = struct.unpack_from(f"<{site.code}", data, site.at)[0]
        if other is not site and other.code == site.code and site.base < 0 and chance.random() < 0.15:
            theirs = struct.unpack_from(f"<{other.code}", data, other.at)[0]
            struct.pack_into(f"<{site.code}", data, site.at, theirs)
            struct.pack_into(f"<{site.code}", data, other.at, old)
            return f"{site.name} at {site.at} ↔ {other.name} at {other.at}"
        new = self._double(chance, old) if site.code == "d" else self._number(chance, site, other, int(old))
        struct.pack_into(f"<{site.code}", data, site.at, new)
        return f"{site.name} at {site.at}: {old} → {new}"

    @staticmethod
    def _double(chance: random.Random, old: float) -> float:
        return chance.choice((*_DOUBLES, -old, old * 2, old * (1 + 2**-20), old + 1))

    def _number(self, chance: random.Random, site: Site, other: Site, old: int) -> int:
        """Draw a number that the field can hold and that is likely to break a parser."""
        bits = 8 * struct.calcsize(f"<{site.code}")
        top = (1 << (bits - 1)) - 1
        values = [0, 1, -1, 2, top, top + 1, old + 1, old - 1, old * 2, old ^ 1 << chance.randrange(bits)]
        values += [chance.randrange(20), chance.getrandbits(bits), len(self.pte), chance.choice((4, 8, 16, 255))]
        if site.base >= 0:  # an offset: to another table or vector, to itself, outside of the file
            sign = -1 if site.kind is FieldEdit.VTABLE else 1
            redirected = [
                sign * (place - site.base) for place in (other.target, other.target, other.at, self._end(chance))
            ]
            values = values[:8] + redirected * 3
        else:
            values += [int.from_bytes(self.pte[other.at : other.at + bits // 8], "little")] * 2
        new = chance.choice(values) & (1 << bits) - 1
        return new - (1 << bits) if site.code.islower() and new > top else new

    def _end(self, chance: random.Random) -> int:
        return chance.choice((len(self.pte), len(self.pte) - 1, len(self.pte) - 4, chance.randrange(len(self.pte))))

    def _morph(self, chance: random.Random, data: bytearray) -> str:
        """Turn a kernel call into a move, a jump or a free, which no seed program has, as lowering makes none."""
        number = chance.randrange(len(self._calls))
        call = self._calls[number]
        into = chance.choice((InstructionKind.MOVE, InstructionKind.JUMP_FALSE, InstructionKind.FREE))
        selectors = [site.at for site in self._by_kind[FieldEdit.UNION]]  # one per EValue, in order
        first = chance.randrange(len(selectors))
        second = chance.randrange(len(selectors) if into is InstructionKind.MOVE else len(self._calls) + 1)
        if into is InstructionKind.JUMP_FALSE and chance.random() < 0.8:  # its condition must be a Bool
            # ... which no call that is left needs as an Int.
            first = chance.choice([index for index in call.args if data[selectors[index]] == _INT] or [first])
            data[selectors[first]] = 1 + KERNEL_TYPES.index(ValueKind.BOOL)
            second = chance.choice((number, second))
        data[call.type_at] = 1 + INSTRUCTION_ARGUMENTS.index(into)
        for at, value in ((call.first, first), (call.second, second)):
            if at:
                struct.pack_into("<i", data, at, value)
        return f"instruction {number} becomes {into.value}({first}, {second})"

    def _flip(self, chance: random.Random) -> tuple[FieldEdit, tuple[str, ...], bytes]:
        data = bytearray(self.pte)
        places = [chance.randrange(8 * len(data)) for _ in range(chance.choice((1, 1, 1, 2, 4, 8)))]
        for place in places:
            data[place // 8] ^= 1 << place % 8
        return FieldEdit.FLIP, tuple(f"bit {place % 8} of byte {place // 8}" for place in places), bytes(data)

    def _resize(self, chance: random.Random) -> tuple[FieldEdit, tuple[str, ...], bytes]:
        if chance.random() < 0.3:
            more = chance.randbytes(chance.choice((1, 3, 4, 16, 100)))
            return FieldEdit.EXTEND, (f"{len(more)} bytes more",), self.pte + more
        near = chance.choice(self._boundaries) + chance.randrange(-2, 6)
        at = chance.choice((chance.randrange(len(self.pte)), max(0, min(near, len(self.pte) - 1)), len(self.pte) - 1))
        return FieldEdit.TRUNCATE, (f"{at} of {len(self.pte)} bytes",), self.pte[:at]


def mutants(pte: bytes, seed: int) -> Iterator[ProgramMutant]:
    """Return an endless iterator over the mutants 0, 1, 2 … of a seed."""
    mutator = Mutator(pte)
    return (mutator.mutant(seed, number) for number in count())
