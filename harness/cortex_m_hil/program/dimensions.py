"""Dimensions of a program's inputs whose size is not fixed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

SIZES: Final = "sizes within the bounds; for others lower the module with other dynamic_shapes"


@dataclass(frozen=True, slots=True)
class Dimension:
    """A dimension of an input, whose size is not fixed.

    The size is `factor` times what `symbol` stands for, plus `offset`; a symbol stands for the same number in each
    dimension that has it.

    Attributes:
        input: the number of the input.
        number: the number of the dimension in it.
        name: what the input's argument is called.
        symbol, factor, offset: what the size is made of.
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
    """Return what is wrong with inputs of these shapes, which have the right rank; "" where nothing is."""
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
