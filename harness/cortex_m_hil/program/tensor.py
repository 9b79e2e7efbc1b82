"""Tensors of a program: dtype, shape, dim order, bytes, and the dimensions of inputs whose size is not fixed."""

from __future__ import annotations

import io
import math
import struct
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from cortex_m_hil.errors import ConfigError
from cortex_m_hil.program.schema import DTYPES, ValueKind

# Importing NumPy takes longer than a whole command that needs no tensors, so NumPy is imported where it is used.
if TYPE_CHECKING:
    import numpy.typing as npt

    Array = npt.NDArray[Any]
else:
    Array = Any
MAX_TENSOR_BYTES: Final = 1 << 31  # no Cortex-M addresses more
SIZES: Final = "sizes within the bounds; for others lower the module with other dynamic_shapes"

_SCALAR_DTYPES: Final = {ValueKind.INT: "int64", ValueKind.BOOL: "int64", ValueKind.DOUBLE: "float64"}


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """The type and layout of one input, output or value. Raises ConfigError where the parts contradict each other.

    Scalars (``kind`` INT, BOOL, DOUBLE) have shape ``()`` and travel as 8 bytes, i64 or f64 (docs/protocol.md,
    "Memory regions").

    Attributes:
        dtype: a numpy name.
        shape: the logical shape.
        dim_order: the dimensions from outer to inner, as in ExecuTorch.
        kind: TENSOR, or the kind of a scalar.
    """

    dtype: str
    shape: tuple[int, ...]
    dim_order: tuple[int, ...]
    kind: ValueKind = ValueKind.TENSOR

    def __post_init__(self) -> None:
        if self.dtype not in DTYPES.values():
            raise ConfigError(
                f"{self.dtype!r} is no dtype a tensor can have here",
                hint=f"known: {', '.join(sorted(DTYPES.values()))}",
            )
        if sorted(self.dim_order) != list(range(len(self.shape))) or any(size < 0 for size in self.shape):
            raise ConfigError(
                f"dim order {self.dim_order} does not fit shape {self.shape}",
                hint="each dimension once, from outer to inner",
            )

    @classmethod
    def contiguous(cls, dtype: str, shape: tuple[int, ...]) -> TensorSpec:
        """Make the spec of a contiguous tensor: its dim order is 0, 1, 2 and so on."""
        return cls(dtype, shape, tuple(range(len(shape))))

    @classmethod
    def scalar(cls, kind: ValueKind) -> TensorSpec:
        """Make the spec of an Int, Bool or Double input."""
        return cls(_SCALAR_DTYPES[kind], (), (), kind)

    def within(self, shape: tuple[int, ...]) -> bool:
        """Tell whether a shape has the spec's rank, and no dimension larger than the spec's."""
        return len(shape) == len(self.shape) and all(size <= most for size, most in zip(shape, self.shape, strict=True))

    @property
    def numel(self) -> int:
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        import numpy as np

        return self.numel * np.dtype(self.dtype).itemsize

    @property
    def memory_order(self) -> tuple[int, ...]:
        """Return the dim order without dimensions of size 1, whose place changes no byte."""
        return tuple(dim for dim in self.dim_order if self.shape[dim] != 1)

    def same_memory(self, other: TensorSpec) -> bool:
        """Tell whether the same bytes mean the same tensor under both specs."""
        return (
            (self.kind, self.dtype, self.shape) == (other.kind, other.dtype, other.shape)
            and (self.memory_order == other.memory_order or self.numel == 0)
        )  # fmt: skip

    def reads_as(self, view: TensorSpec) -> bool:
        """Tell whether the bytes of this tensor, read as `view`, are a reshape of it: the same elements in one order.

        False where they differ in their number of elements or dtype.
        """
        if (self.numel, self.dtype) != (view.numel, view.dtype):
            return False
        plain = all(list(one.memory_order) == sorted(one.memory_order) for one in (self, view))
        return plain or bool((self._elements() == view._elements()).all())

    def _elements(self) -> Array:
        """Return for each place in memory the number of its element in row-major order."""
        import numpy as np

        return np.arange(self.numel).reshape(self.shape).transpose(self.dim_order).ravel()

    def __str__(self) -> str:
        if self.kind is not ValueKind.TENSOR:
            return str(self.kind.value)
        order = "" if self.dim_order == tuple(range(len(self.shape))) else f" dim order {list(self.dim_order)}"
        return f"{self.dtype}{list(self.shape)}{order}"


@dataclass(frozen=True, slots=True)
class HostTensor:
    """A tensor or scalar as the protocol transfers it: ``data`` is in the spec's dim order.

    Raises ConfigError for a wrong size.
    """

    spec: TensorSpec
    data: bytes = field(repr=False)

    def __post_init__(self) -> None:
        if len(self.data) != self.spec.nbytes:
            raise ConfigError(
                f"{self.spec} takes {self.spec.nbytes} bytes, not {len(self.data)}",
                hint="HostTensor.from_array makes one of an array",
            )

    @classmethod
    def from_array(cls, array: Array, dim_order: tuple[int, ...] | None = None) -> HostTensor:
        """Return the values of an array of logical shape, laid out in ``dim_order`` (default: row-major).

        The values are not converted. Raises ConfigError for a dtype that no tensor can have, and for a masked array.
        """
        import numpy as np

        if isinstance(array, np.ma.MaskedArray):
            raise ConfigError("a masked array has elements without a value", hint="array.filled(value)")
        order = tuple(range(array.ndim)) if dim_order is None else dim_order
        spec = TensorSpec(array.dtype.name, tuple(array.shape), order)
        little = array.astype(array.dtype.newbyteorder("<"), copy=False)
        return cls(spec, np.ascontiguousarray(little.transpose(order)).tobytes())

    @classmethod
    def from_scalar(cls, value: int | float | bool) -> HostTensor:
        """Return an Int, Bool or Double input. Raises ConfigError for a value that 64 bits cannot represent exactly."""
        if isinstance(value, bool):
            return cls(TensorSpec.scalar(ValueKind.BOOL), struct.pack("<q", value))
        if isinstance(value, int):
            if not -(1 << 63) <= value < 1 << 63:
                number = str(value) if value.bit_length() < 100 else f"a number of {value.bit_length()} bits"
                raise ConfigError(f"{number} does not fit an Int, which has 64 bits", hint="-2**63 to 2**63 - 1")
            return cls(TensorSpec.scalar(ValueKind.INT), struct.pack("<q", value))
        if isinstance(value, float):
            return cls(TensorSpec.scalar(ValueKind.DOUBLE), struct.pack("<d", value))
        raise ConfigError(f"{type(value).__name__} is no int, float or bool", hint="a number of Python's own")

    def array(self) -> Array:
        """Return a read-only view of logical shape."""
        import numpy as np

        spec = self.spec
        stored = np.frombuffer(self.data, dtype=spec.dtype).reshape([spec.shape[dim] for dim in spec.dim_order])
        return stored.transpose([spec.dim_order.index(dim) for dim in range(len(spec.shape))])

    def item(self) -> int | float | bool:
        """Return the Python value of a scalar."""
        value: int | float = self.array().item()
        return bool(value) if self.spec.kind is ValueKind.BOOL else value

    def npy(self) -> bytes:
        """Return the content of a .npy file of logical shape."""
        import numpy as np

        array = self.array() if self.spec.kind is ValueKind.TENSOR else np.asarray(self.item())
        return npy(np.ascontiguousarray(array).reshape(self.spec.shape))


def npy(array: Array) -> bytes:
    """Return the content of a .npy file, made in memory: numpy's errors on writing a file tell no cause."""
    import numpy as np

    buffer = io.BytesIO()
    np.save(buffer, array, allow_pickle=False)
    return buffer.getvalue()


@dataclass(frozen=True, slots=True)
class Dimension:
    """A dimension of an input, whose size is not fixed.

    The size is `factor` · `symbol` + `offset`; a symbol has the same value in all dimensions.

    Attributes:
        input: the number of the input.
        number: the number of the dimension in the input.
        name: the name of the input's argument.
        symbol, factor, offset: the terms of the size.
        least, most: the bounds of the size, both included.
    """

    input: int
    number: int
    name: str
    symbol: str
    factor: int
    offset: int
    least: int
    most: int

    def __str__(self) -> str:
        return f"dimension {self.number} of {self.name}"

    @property
    def range(self) -> str:
        step = "" if self.factor == 1 else f", by {self.factor}"
        return f"{self.least} to {self.most}{step}"


def misfit(dimensions: Sequence[Dimension], shapes: Sequence[tuple[int, ...]]) -> str:
    """Return a description of what is wrong with the inputs' shapes, whose ranks are right; "" if nothing is wrong."""
    found: dict[str, tuple[int, str]] = {}
    for one in dimensions:
        size = shapes[one.input][one.number]
        value, rest = divmod(size - one.offset, one.factor)
        if not one.least <= size <= one.most or rest:
            return f"{one} is {size}, and takes {one.range}"
        known, where = found.setdefault(one.symbol, (value, f"{one}, which is {size}"))
        if known != value:
            return f"{one} is {size}, which does not go with {where}"
    return ""
