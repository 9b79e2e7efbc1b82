"""A small network as data: the generator draws it, a campaign stores it, and `recipe_part` builds its float program."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cortex_m_hil.campaigns.store import Plan

Shape = tuple[int, ...]


@dataclass(frozen=True)
class RecipeStep:
    """An operator on values, which have numbers: first the inputs, then the results of steps.

    Attributes:
        kind: the operator, as in `recipe_part`.
        of: the numbers of the operands.
        how: the operator's attributes, such as the stride.
    """

    kind: str
    of: tuple[int, ...]
    how: Mapping[str, Any]


@dataclass(frozen=True)
class Recipe(Plan):
    """All the data that determine a generated program.

    Attributes:
        number: the program's number in its campaign.
        seed: the seed of the numbers in inputs and weights.
        inputs: the shapes of the inputs.
        values: the distribution of the inputs' numbers.
        weights: the distribution of the layers' weights.
        relation: the relation that is checked in addition to the outputs; "" if none.
        choices: the draws in order, each as the question and the chosen option.
    """

    number: int
    seed: int
    inputs: tuple[Shape, ...]
    values: str
    weights: str
    layout: str
    quantize: bool
    redzones: bool
    relation: str
    steps: tuple[RecipeStep, ...]
    choices: tuple[tuple[str, str], ...] = ()

    @property
    def classes(self) -> tuple[str, ...]:
        """Return the choices for attributes of its operators, each once, such as `conv stride (2, 1)`."""
        return tuple(dict.fromkeys(f"{asked} {chosen}" for asked, chosen in self.choices if " " in asked))


def image_size(size: int, kernel: int, stride: int, padding: int, dilation: int = 1, *, ceil: bool = False) -> int:
    """Return the output size of a convolution or a pool in one dimension; 0 where no window fits.

    Where the size is rounded up (`ceil`), a window may not begin in the padding after the image (torch's
    `pooling_output_shape`).
    """
    room = size + 2 * padding - dilation * (kernel - 1) - 1
    if room < 0:
        return 0
    steps = -(-room // stride) if ceil else room // stride
    return steps if ceil and steps * stride >= size + padding else steps + 1


def broadcast(one: Sequence[int], other: Sequence[int]) -> Shape:
    """Return the shape that two tensors, which must fit each other, broadcast to."""
    rank = max(len(one), len(other))
    padded = [(1,) * (rank - len(shape)) + tuple(shape) for shape in (one, other)]
    return tuple(b if a == 1 else a for a, b in zip(*padded, strict=True))
