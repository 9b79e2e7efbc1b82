"""Values and instructions of a `.pte`, as frozen dataclasses."""

from __future__ import annotations

from dataclasses import dataclass, replace

from cortex_m_hil.program.schema import InstructionKind, ValueKind
from cortex_m_hil.program.tensor import TensorSpec


@dataclass(frozen=True, slots=True)
class Planned:
    """The place of a tensor in the memory plan: bytes within planned buffer ``memory_id``."""

    memory_id: int
    offset: int
    nbytes: int


@dataclass(frozen=True, slots=True)
class Value:
    """An EValue of a program.

    Attributes:
        spec: dtype, shape and layout of a tensor or numeric scalar; else None.
        scalar: the Python value of an Int, Bool, Double or String.
        items: for lists: value indices for IntList, TensorList and OptionalTensorList (-1: none), the numbers
            themselves for DoubleList and BoolList.
        constant: (offset, bytes) in the file, for a constant tensor.
        initial: (offset, bytes) in the file of the initial value of a planned tensor.
        is_dynamic: whether the shape of the tensor is an upper bound.
    """

    index: int
    kind: ValueKind
    spec: TensorSpec | None = None
    scalar: int | float | bool | str | None = None
    items: tuple[int | float | bool, ...] = ()
    planned: Planned | None = None
    constant: tuple[int, int] | None = None
    initial: tuple[int, int] | None = None
    is_dynamic: bool = False

    def spec_of(self, shape: tuple[int, ...]) -> TensorSpec | None:
        """Return the spec with this shape.

        None unless it is the value's own shape, or a smaller one of a dynamic value.
        """
        if self.spec is None or shape == self.spec.shape:
            return self.spec
        return replace(self.spec, shape=shape) if self.is_dynamic and self.spec.within(shape) else None


@dataclass(frozen=True, slots=True)
class Instruction:
    """A step of the program's chain.

    Attributes:
        operator: ``ns::name.overload``, a delegate's id, or empty.
        args: of a kernel, the arguments of its schema, the out tensors, and the returned values again; of a move, its
            source and destination; of a jump, its condition.
        destination: the instruction that a jump goes to, -1 for others.
    """

    index: int
    kind: InstructionKind
    operator: str
    args: tuple[int, ...]
    destination: int = -1

    @property
    def name(self) -> str:
        """Return the operator's name, or the kind of an instruction that calls no operator."""
        return self.operator or self.kind.name.lower()
