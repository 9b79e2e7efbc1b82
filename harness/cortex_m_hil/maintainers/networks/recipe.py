"""A small network as data: what `fuzz.generate` draws, what a campaign remembers, what `recipe_part` builds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Shape = tuple[int, ...]


@dataclass(frozen=True)
class Step:
    """An operator on values by their numbers: those of inputs, then of what steps give. `how` are its attributes."""

    kind: str
    of: tuple[int, ...]
    how: Mapping[str, Any]


@dataclass(frozen=True)
class Recipe:
    """All that a generated program follows from.

    Attributes:
        number: its place in the sequence of its campaign.
        seed: of the numbers in its inputs and weights.
        inputs: their shapes; `values` is how their numbers are spread, `weights` how those of layers are.
        relation: what is checked of it besides its outputs; "" for nothing.
        choices: what was drawn, as (what was asked, what was chosen), in order.
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
    steps: tuple[Step, ...]
    choices: tuple[tuple[str, str], ...] = ()

    @classmethod
    def of(cls, fields: Mapping[str, Any]) -> Recipe:
        """From what `asdict` made of one, and JSON of that."""
        steps = tuple(Step(one["kind"], tuple(one["of"]), one["how"]) for one in fields["steps"])
        inputs = tuple(map(tuple, fields["inputs"]))
        choices = tuple((asked, chosen) for asked, chosen in fields["choices"])
        return cls(**{**fields, "steps": steps, "inputs": inputs, "choices": choices})

    @property
    def classes(self) -> tuple[str, ...]:
        """What was chosen for the attributes of its operators, each class once, such as `conv stride (2, 1)`."""
        return tuple(dict.fromkeys(f"{asked} {chosen}" for asked, chosen in self.choices if " " in asked))


def image_size(size: int, kernel: int, stride: int, padding: int, dilation: int = 1, *, ceil: bool = False) -> int:
    """Of what a convolution or a pool gives, in one dimension; 0 or less where there is none.

    Rounded up, a window may not begin in the padding behind the image (torch's `pooling_output_shape`).
    """
    room = size + 2 * padding - dilation * (kernel - 1) - 1
    if room < 0:
        return 0
    steps = -(-room // stride) if ceil else room // stride
    return steps if ceil and steps * stride >= size + padding else steps + 1


def broadcast(one: Sequence[int], other: Sequence[int]) -> Shape:
    """The shape of what an operator makes of two tensors that fit each other."""
    rank = max(len(one), len(other))
    padded = [(1,) * (rank - len(shape)) + tuple(shape) for shape in (one, other)]
    return tuple(b if a == 1 else a for a, b in zip(*padded, strict=True))
