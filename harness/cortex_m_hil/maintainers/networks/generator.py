"""Random small networks over all operators that ExecuTorch lowers for Cortex-M, as recipes.

A recipe is determined by the seed, its number and the results of earlier rounds of programs. Each attribute is drawn by
`Choices.pick`, which prefers options that were drawn less often so far; a part of the programs repeats, with changes,
the choices of a program that made the compiler execute a new line.

Networks that executorch 1.5.1 is known to lower wrongly (bugs 12 to 20 in docs/known_bugs.md) are left out: a clamp in
front of an operator whose inputs share one quantisation, a clamp behind anything but a layer, an addition or an input;
padding of an image of one pixel, or of one row that a pool counts; an average pool that rounds its size up and counts
padding.

Functions that are not continuous (rounding, comparisons, indices of the largest) are applied to inputs only: of
computed values, which differ by rounding between two correct implementations, they may differ by a whole unit.
"""

from __future__ import annotations

import hashlib
import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TypeVar

from cortex_m_hil.maintainers.networks import recipe as values
from cortex_m_hil.maintainers.networks.recipe import Recipe, RecipeStep, Shape, broadcast, image_size

ROUND: Final = 25  # programs in a round, after which the generator uses their results
REPEATED: Final = 0.25  # share of the programs that repeat the choices of a program that reached something new
KEPT: Final = 0.85  # share of that program's choices that are repeated
SEEDS: Final = 1 << 32

T = TypeVar("T")
Choice = tuple[str, str]


def generator_digest() -> str:
    """Return a digest of this generator's source files: another generator makes other networks from the same seed."""
    folder = Path(values.__file__).parent
    files = (Path(__file__), folder / "recipe.py", folder / "recipe_part.py")
    return hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()[:16]


class Choices:
    """A source of random choices that records the drawn options."""

    def __init__(self, chance: random.Random, counts: Counter[Choice], repeated: Sequence[Choice] = ()) -> None:
        """Start with a random generator and the choices so far.

        Args:
            chance: the random generator.
            counts: how often each choice was made before; it is updated in place.
            repeated: the choices of an earlier program, most of which are repeated.
        """
        self.chance, self.made = chance, list[Choice]()
        self._counts, self._repeated = counts, list(repeated)

    def pick(self, asked: str, options: Sequence[T], shares: Sequence[float] = ()) -> T:
        """Draw one of several options, preferring those that were drawn less often so far.

        Args:
            asked: the name of the question, under which the choice is counted and recorded.
            options: the options.
            shares: how often each is to be drawn in the long run, as a share of their sum; (): all equally often.
        """
        if len(options) == 1:
            return options[0]
        names = [str(option) for option in options]
        at = self._from_repeated(asked, names)
        if at is None:
            shares = shares or [1.0] * len(options)
            weights = [
                share / (1 + self._counts[asked, name] / share) for share, name in zip(shares, names, strict=True)
            ]
            at = self.chance.choices(range(len(options)), weights)[0]
        self._counts[asked, names[at]] += 1
        self.made.append((asked, names[at]))
        return options[at]

    def _from_repeated(self, asked: str, names: Sequence[str]) -> int | None:
        """Return the index of the option that the repeated program chose here; None if that choice is not repeated."""
        for place, (what, chosen) in enumerate(self._repeated):
            if what == asked:
                del self._repeated[: place + 1]
                return names.index(chosen) if chosen in names and self.chance.random() < KEPT else None
        return None


@dataclass
class Generator:
    """A generator of the programs of one seed, in their order.

    Attributes:
        counts: how often each choice was made so far.
        reached: the lines and decisions that the programs of earlier rounds reached.
        discoveries: the choices of programs that were the first to reach something.
    """

    seed: int
    counts: Counter[Choice] = field(default_factory=Counter)
    reached: set[str] = field(default_factory=set)
    discoveries: list[tuple[Choice, ...]] = field(default_factory=list)

    def learn(self, recipes: Sequence[Recipe], reached: Sequence[frozenset[str]]) -> None:
        """Record the lines that a round's programs reached, and the choices of programs that reached new lines."""
        for recipe, found in zip(recipes, reached, strict=True):
            if found - self.reached:
                self.discoveries.append(recipe.choices)
                self.reached |= found

    def draw(self, number: int) -> Recipe:
        """Draw the program with this number, which must be the next one."""
        chance = random.Random(f"{self.seed} {number}")
        repeats = bool(self.discoveries) and chance.random() < REPEATED
        repeated = chance.choice(self.discoveries) if repeats else ()
        drawing = Drawing(Choices(chance, self.counts, repeated))
        return drawing.recipe(number, chance.randrange(SEEDS))


@dataclass(frozen=True)
class DrawnValue:
    """The known properties of a value in a program that is being drawn.

    Attributes:
        origin: the kind of the step that computed it, or "input".
        clamp: the activation of that step, "" if none.
        is_bool: whether its elements are booleans, which no further step accepts.
    """

    shape: Shape
    origin: str
    clamp: str = ""
    is_bool: bool = False


ACTIVATIONS: Final = ("", "relu", "relu6", "hardtanh", "clamp", "hardswish", "hardsigmoid")
ACTIVATION_SHARES: Final = (3.0, 2.0, 1.0, 1.0, 1.0, 1.0, 0.3)
CLAMPS: Final = ("relu", "relu6", "hardtanh", "clamp")
TABLES: Final = ("sigmoid", "tanh", "silu", "gelu")
LOGARITHMS: Final = ("log", "log2", "log10", "log1p", "sqrt", "rsqrt")
KERNELS: Final = ((1, 1), (3, 3), (2, 3), (5, 5), (1, 5), (3, 1), (2, 2))
STRIDES: Final = ((1, 1), (2, 2), (1, 2), (2, 1), (3, 2))
CHANNELS: Final = (1, 2, 3, 4, 5, 7, 8, 12, 16, 17)
WIDTHS: Final = (1, 2, 3, 5, 7, 8, 9, 16, 19, 37)
FAMILIES: Final = ("images", "large images", "rows", "sequences", "signals", "floats", "portable", "portable images")


class Drawing:
    """A program while it is being drawn."""

    def __init__(self, choices: Choices) -> None:
        self.choices, self.pick = choices, choices.pick
        self.inputs: list[Shape] = []
        self.made: list[tuple[RecipeStep, DrawnValue]] = []
        self.explicit, self.values = False, ""
        self.at = 0  # the value that the next step works on
        self._given: list[DrawnValue] = []

    def recipe(self, number: int, seed: int) -> Recipe:
        family = self.pick("family", FAMILIES, (5, 1, 4, 1.5, 1, 1.5, 3, 1))
        quantize = family not in ("floats", "portable", "portable images")
        layout = self.pick("layout", ("channels_last", "explicit"), (2, 1)) if quantize else "channels_last"
        self.explicit = layout == "explicit"
        spreads = ("normal", "uniform", "wide", "tiny", "shifted", "negative", "sparse", "uneven")
        self.values = self.pick(
            "values", spreads if quantize else spreads[:2], (3, 2, 1, 1, 2, 1, 1, 1) if quantize else ()
        )
        getattr(self, f"_{family.replace(' ', '_')}")()
        weights = self.pick("weights", ("alike", "uneven"))
        redzones = self.pick("red zones", (False, True), (3, 1))
        relation = self._relation() if quantize and not redzones else ""
        return Recipe(
            number, seed, tuple(self.inputs), self.values, weights, layout, quantize, redzones, relation,
            self._numbered(), tuple(self.choices.made),
        )  # fmt: skip

    def _relation(self) -> str:
        """Draw one of the relations that can be checked for this program."""
        steps = [step for step, _ in self.made]
        possible = ["", "layout"] if any(len(shape) == 4 for shape in self.inputs) else [""]
        if steps[-1].kind in ("conv", "linear") and steps[-1].how.get("groups", 1) == 1:
            possible.append("permutation")
        if steps[0].kind == "conv" and any(steps[0].how["padding"]):
            possible.append("padding")
        if all(shape[0] == 1 for shape in self.inputs) and all(step.kind in BATCHED for step in steps):
            possible.append("batch")
        return self.pick("relation", possible, [2.0 if one == "" else 1.0 for one in possible])

    # --- values ----------------------------------------------------------------------------------------------

    @property
    def value(self) -> DrawnValue:
        return self._of(self.at)

    def _of(self, number: int) -> DrawnValue:
        return self._given[number] if number >= 0 else self.made[-number - 1][1]

    def _input(self, shape: Shape) -> int:
        """Add an input and return its number.

        Inputs are numbered from 0, values of steps from -1 down, until all inputs are known.
        """
        self.inputs.append(shape)
        self._given.append(DrawnValue(shape, "input"))
        return len(self.inputs) - 1

    def _make(self, kind: str, of: Sequence[int], how: Mapping[str, Any], shape: Shape, clamp: str = "") -> int:
        is_bool = how.get("function") == "ge" and kind == "join"
        self.made.append((RecipeStep(kind, tuple(of), dict(how)), DrawnValue(shape, kind, clamp, is_bool)))
        self.at = -len(self.made)
        return self.at

    def _numbered(self) -> tuple[RecipeStep, ...]:
        def number(one: int) -> int:
            return one if one >= 0 else len(self.inputs) - one - 1

        return tuple(RecipeStep(step.kind, tuple(map(number, step.of)), step.how) for step, _ in self.made)

    # --- families --------------------------------------------------------------------------------------------

    def _images(self) -> None:
        batch, channels = self.pick("input batch", (1, 2, 3), (4, 1, 1)), self.pick("input channels", CHANNELS)
        height, width = (self.pick(f"input {name}", (1, 2, 3, 4, 5, 7, 8, 9, 12)) for name in ("height", "width"))
        self.at = self._input((batch, channels, height, width))
        for _ in range(self.pick("steps", (1, 2, 3, 4), (2, 3, 2, 1))):
            self._step(self._image_kinds())
        self._head()

    def _large_images(self) -> None:
        """Draw a program on a large image, for pools of many pixels and sums of many products."""
        channels = self.pick("input channels", (1, 2, 3))
        self.at = self._input((1, channels, 24, 20))
        if self.pick("entry", (True, False)):
            self._conv(self.pick("entry activation", ("relu", "", "relu6")))
        self._step({"avg_pool": 3, "mean": 1, "max_pool": 1, "conv": 1})
        self._head()

    def _rows(self) -> None:
        rank = self.pick("input rank", (2, 3, 4), (3, 3, 1))
        self.at = self._input(tuple(self.pick("input width", WIDTHS[: 6 if rank > 2 else 10]) for _ in range(rank)))
        for _ in range(self.pick("steps", (1, 2, 3, 4), (2, 3, 2, 1))):
            self._step(self._row_kinds())

    def _sequences(self) -> None:
        batch = self.pick("input batch", (1, 2, 3))
        rows, depth, columns = (self.pick("input width", WIDTHS) for _ in range(3))
        left, right = self._input((batch, rows, depth)), self._input((batch, depth, columns))
        self.at = left
        if self.pick("entry", (True, False)):
            self._make_linear(depth)
            left = self.at
        self._make_join("bmm", left, right, (batch, rows, columns))
        for _ in range(self.pick("steps", (0, 1, 2))):
            self._step({"linear": 2, "softmax": 2, "join": 2, "table": 1})

    def _signals(self) -> None:
        """Draw convolutions in one dimension: a Cortex-M operator in the explicit layout, else a portable one."""
        batch, channels = self.pick("input batch", (1, 2), (3, 1)), self.pick("input channels", CHANNELS)
        self.at = self._input((batch, channels, self.pick("input length", WIDTHS[2:])))
        self._conv1d()
        for _ in range(self.pick("steps", (0, 1, 2))):
            self._step({"conv1d": 2, "join": 1, "pad": 0.5, "linear": 1, "permute": 0.5})

    def _floats(self) -> None:
        if self.pick("float image", (True, False)):
            size = self.pick("input height", (4, 5, 8, 9)), self.pick("input width", (4, 5, 7, 8))
            self.at = self._input((self.pick("input batch", (1, 2)), self.pick("input channels", (1, 2, 3, 4)), *size))
            kinds = {"conv": 2, "transposed": 1, "max_pool": 1, "join": 1, "clamp": 1, "cat": 1, "softmax": 1}
        else:
            self.at = self._input(tuple(self.pick("input width", WIDTHS[:6]) for _ in range(3)))
            kinds = {"join": 3, "softmax": 1, "amax": 1, "cat": 1, "clamp": 1, "permute": 1}
        for _ in range(self.pick("steps", (1, 2, 3))):
            self._step(kinds, floats=True)

    def _portable(self) -> None:
        """Draw operators that the lowering leaves as ATen operators, on floats."""
        self.at = self._input(tuple(self.pick("input width", WIDTHS[1:6]) for _ in range(self.pick("rank", (2, 3)))))
        for _ in range(self.pick("steps", (1, 2, 3, 4), (1, 2, 2, 1))):
            rank = len(self.value.shape)
            kinds = {"function": 1.0} if rank < 2 else PORTABLE_KINDS | ({"matmul": 1.0} if rank < 4 else {})
            self._step(kinds, floats=True)

    def _portable_images(self) -> None:
        """Draw operators that the lowering leaves as ATen operators, on images of floats."""
        size = self.pick("input height", (4, 5, 8, 9)), self.pick("input width", (4, 5, 7, 8))
        self.at = self._input((self.pick("input batch", (1, 2)), self.pick("input channels", (1, 2, 4, 6)), *size))
        for _ in range(self.pick("steps", (1, 2, 3))):
            self._step(PORTABLE_IMAGE_KINDS, floats=True)

    def _head(self) -> None:
        if len(self.value.shape) != 4 or not self.pick("head", (False, True)):
            return
        batch, *sizes = self.value.shape
        if sizes[0] * sizes[1] * sizes[2] <= 600:
            self._make("flatten", [self.at], {}, (batch, sizes[0] * sizes[1] * sizes[2]))
            self._make_linear(self.pick("linear out", WIDTHS))

    def _image_kinds(self) -> dict[str, float]:
        kinds = dict(IMAGE_KINDS)
        if not self._may_share():
            kinds = {name: share for name, share in kinds.items() if name != "cat"}
        if self.value.origin == "input":
            kinds["clamp"] = 0.5
        return kinds

    def _row_kinds(self) -> dict[str, float]:
        rank = len(self.value.shape)
        kinds = dict(ROW_KINDS)
        for name, fits in {
            "cat": self._may_share(), "amax": rank > 1, "select": rank > 1, "unsqueeze": rank < 4,
            "permute": rank > 1, "clamp": self.value.origin == "input", "table": not self.value.clamp,
        }.items():  # fmt: skip
            if not fits:
                del kinds[name]
        return kinds

    def _may_share(self) -> bool:
        """Tell whether the value may feed an operator whose inputs share one quantisation.

        ExecuTorch lowers a clamp in front of such an operator wrongly.
        """
        return self.value.clamp in ("", "relu")

    # --- steps -----------------------------------------------------------------------------------------------

    def _step(self, kinds: Mapping[str, float], *, floats: bool = False) -> None:
        if self.value.is_bool:
            return
        kind = self.pick("kind", list(kinds), list(kinds.values()))
        self._is_float = floats
        getattr(self, f"_{kind.replace(' ', '_')}")()

    _is_float = False

    def _activation(self, kind: str, allowed: Sequence[str] = ACTIVATIONS) -> str:
        if self._is_float:
            return ""
        shares = [ACTIVATION_SHARES[ACTIVATIONS.index(name)] for name in allowed]
        return self.pick(f"{kind} activation", allowed, shares)

    def _window(self, kind: str, *, dilated: bool, wide: bool) -> dict[str, tuple[int, int]]:
        """Draw kernel, stride, padding and dilation of a window that fits the image.

        Args:
            kind: the operator, for the names of the choices.
            dilated: whether other dilations than 1 are drawn.
            wide: whether the padding may be as wide as the kernel.
        """
        _, _, height, width = self.value.shape
        kernels = [one for one in KERNELS if one[0] <= height + 1 and one[1] <= width + 1]
        if kind == "avg_pool" and height * width > 300:
            kernels = [(height, width), (height - 2, width - 1), *kernels]
        kernel = self.pick(f"{kind} kernel", kernels)
        rows, columns = kernel
        paddings = [(0, 0), (rows // 2, columns // 2), (rows // 2, 0), (0, columns // 2)]
        paddings += [(rows, columns), (rows, columns - 1)] if wide else []
        paddings = [
            one for one in dict.fromkeys(paddings) if rows <= height + 2 * one[0] and columns <= width + 2 * one[1]
        ]
        padding = self.pick(f"{kind} padding", paddings)
        dilations = [(1, 1), (2, 2), (1, 2), (3, 1)] if dilated else [(1, 1)]
        fitting = [
            one
            for one in dilations
            if one[0] * (rows - 1) < height + 2 * padding[0]
            and one[1] * (columns - 1) < width + 2 * padding[1]
            and (rows > 1 or one[0] == 1)
            and (columns > 1 or one[1] == 1)  # else torch 2.13.0 may crash
        ]
        dilation = self.pick(f"{kind} dilation", fitting, [3.0, *[1.0] * (len(fitting) - 1)])
        stride = self.pick(f"{kind} stride", STRIDES)
        return {"kernel": kernel, "stride": stride, "padding": padding, "dilation": dilation}

    def _windowed(self, window: Mapping[str, tuple[int, int]], *, ceil: bool = False) -> tuple[int, int]:
        sizes = [
            image_size(
                self.value.shape[2 + dim], *(window[name][dim] for name in ("kernel", "stride", "padding", "dilation")),
                ceil=ceil,
            )
            for dim in (0, 1)
        ]  # fmt: skip
        return sizes[0], sizes[1]

    def _conv(self, activation: str | None = None) -> None:
        batch, channels, *_ = self.value.shape
        form = self.pick("conv form", ("dense", "depthwise", "grouped"), (3, 2, 1))
        if form == "depthwise":
            groups, kind = channels, "depthwise"
            out = channels * self.pick("depthwise multiplier", (1, 2, 3), (3, 1, 1))
        else:
            divisors = [one for one in (2, 3, 4, 5) if channels % one == 0 and channels > one]
            groups = self.pick("grouped groups", divisors) if form == "grouped" and divisors else 1
            kind = "grouped" if groups > 1 else "conv"
            out = self.pick("conv out", [one for one in CHANNELS if one % groups == 0] or [groups])
        window = self._window(kind, dilated=True, wide=True)
        how: dict[str, Any] = {
            **window,
            "groups": groups,
            "out": out,
            "bias": self.pick(f"{kind} bias", (True, False), (3, 1)),
        }
        how["activation"] = self._activation(kind) if activation is None else activation
        self._make("conv", [self.at], how, (batch, out, *self._windowed(window)), how["activation"])

    def _conv1d(self) -> None:
        batch, channels, length = self.value.shape
        groups = channels if self.pick("conv1d form", ("dense", "depthwise"), (3, 1)) == "depthwise" else 1
        out = channels if groups > 1 else self.pick("conv1d out", CHANNELS)
        kernel = self.pick("conv1d kernel", [one for one in (1, 2, 3, 5) if one <= length])
        padding, stride = self.pick("conv1d padding", (0, kernel // 2)), self.pick("conv1d stride", (1, 2, 3))
        dilations = [one for one in (1, 2) if one * (kernel - 1) < length + 2 * padding]
        dilation = self.pick("conv1d dilation", dilations, (3, 1)[: len(dilations)])
        how: dict[str, Any] = {
            "kernel": kernel, "stride": stride, "padding": padding, "dilation": dilation, "groups": groups, "out": out,
            "bias": self.pick("conv1d bias", (True, False), (3, 1)),
        }  # fmt: skip
        how["activation"] = self._activation("conv1d", ("", "relu"))
        shape = (batch, out, image_size(length, kernel, stride, padding, dilation))
        self._make("conv1d", [self.at], how, shape, how["activation"])

    def _transposed(self) -> None:
        batch, channels, height, width = self.value.shape
        if height * width > 150:
            return self._conv()
        groups = channels if channels > 1 and self.pick("transposed grouped", (False, True), (6, 1)) else 1
        out = groups * self.pick("transposed out", CHANNELS[: 2 if groups > 1 else 8])
        kernel = self.pick("transposed kernel", KERNELS)
        stride = self.pick("transposed stride", STRIDES)
        paddings = [(0, 0), (kernel[0] // 2, kernel[1] // 2), (kernel[0] - 1, 0)]
        sizes = (height, width)
        dilation = self.pick("transposed dilation", ((1, 1), (2, 2), (1, 2)), (6, 1, 1))
        more = self.pick("transposed output padding", (0, 1), (4, 1)) if min(stride) > 1 else 0
        reach = (dilation[0] * (kernel[0] - 1) + 1, dilation[1] * (kernel[1] - 1) + 1)
        fitting = [one for one in dict.fromkeys(paddings) if all(self._grown(sizes, reach, stride, one))]
        padding = self.pick("transposed padding", fitting or [(0, 0)])
        how: dict[str, Any] = {
            "kernel": kernel, "stride": stride, "padding": padding, "out": out, "groups": groups, "dilation": dilation,
            "output_padding": (more, more), "bias": self.pick("transposed bias", (True, False), (3, 1)),
        }  # fmt: skip
        how["activation"] = self._activation("transposed", ("", *CLAMPS))
        rows, columns = (size + more for size in self._grown(sizes, reach, stride, padding))
        self._make("transposed", [self.at], how, (batch, out, rows, columns), how["activation"])
        return None

    @staticmethod
    def _grown(
        sizes: tuple[int, int], kernel: tuple[int, int], stride: tuple[int, int], padding: tuple[int, int]
    ) -> tuple[int, int]:
        rows, columns = (
            max(0, (size - 1) * step - 2 * edge + window)
            for size, window, step, edge in zip(sizes, kernel, stride, padding, strict=True)
        )
        return rows, columns

    def _avg_pool(self) -> None:
        _, channels, height, width = self.value.shape
        one_row = self.explicit and (height == 1 or channels == width == 1)
        counts = not one_row and self.pick("avg_pool counts padding", (False, True))
        self._pool("avg_pool", {"counts_padding": counts})

    def _max_pool(self) -> None:
        self._pool("max_pool", {})

    def _pool(self, kind: str, how: dict[str, Any]) -> None:
        batch, channels, *_ = self.value.shape
        window = self._window(kind, dilated=kind == "max_pool", wide=False)
        half = tuple(min(edge, size // 2) for edge, size in zip(window["padding"], window["kernel"], strict=True))
        window["padding"] = (half[0], half[1])
        counts = how.get("counts_padding", False) and any(window["padding"])
        ceil = not counts and self.pick(f"{kind} ceil", (False, True), (3, 1))
        sizes = self._windowed(window, ceil=ceil)
        if not all(sizes):
            return self._conv()
        activation = self._activation(kind, ("", "relu")) if kind == "max_pool" else ""
        self._make(kind, [self.at], {**how, **window, "ceil": ceil, "activation": activation},
                   (batch, channels, *sizes), activation or self.value.clamp)  # fmt: skip
        return None

    def _mean(self) -> None:
        batch, channels, *_ = self.value.shape
        self._make("mean", [self.at], {"adaptive": self.pick("mean adaptive", (True, False))}, (batch, channels, 1, 1))

    def _linear(self) -> None:
        self._make_linear(self.pick("linear out", WIDTHS))

    def _make_linear(self, out: int) -> None:
        how: dict[str, Any] = {"out": out, "bias": self.pick("linear bias", (True, False), (3, 1))}
        how["activation"] = self._activation("linear")
        self._make("linear", [self.at], how, (*self.value.shape[:-1], out), how["activation"])

    def _join(self) -> None:
        names = ["add", "mul", "sub", "minimum", "maximum", "div"]
        if not self._may_share():
            names = [one for one in names if one not in ("minimum", "maximum")]
        function = self.pick("join function", [*names, "ge"] if self._is_float else names)
        other = self._partner(function)
        shape = broadcast(self.value.shape, self._of(other).shape)
        self._make_join(function, self.at, other, shape)

    def _partner(self, function: str) -> int:
        """Return the number of a value that fits as the second operand: a new input, or one computed from the value."""
        shape = self.value.shape
        share = function in ("minimum", "maximum", "ge")
        broadcasts = len(shape) != 4 and (share or self._is_float)
        forms = ["input", "branch"] + (["broadcast"] if broadcasts else []) + (["channels"] if len(shape) == 4 else [])
        form = self.pick(f"{function} other", forms if function != "div" or self._is_float else ["input"])
        if function == "div":
            return self._made_positive(self._input(shape))
        if form == "input":
            return self._input(shape)
        if form == "broadcast":
            return self._input(tuple(1 if self.choices.chance.random() < 0.5 else size for size in shape))
        if form == "channels":
            return self._input((1, shape[1], 1, 1) if function in ("add", "mul") and shape[0] == 1 else shape)
        return self._branch()

    def _made_positive(self, other: int) -> int:
        if self._is_float:
            return other
        at = self.at
        self._make("positive", [other], {}, self._of(other).shape)
        made, self.at = self.at, at
        return made

    def _branch(self) -> int:
        """Add a layer or a softmax that keeps the value's shape, and return the number of its result."""
        at, shape = self.at, self.value.shape
        if len(shape) == 4:
            how = {
                "kernel": (3, 3), "stride": (1, 1), "padding": (1, 1), "dilation": (1, 1), "groups": 1, "out": shape[1],
                "bias": True, "activation": "",
            }  # fmt: skip
            self._make("conv", [at], how, shape)
        elif self._is_float:
            self._make("softmax", [at], {"dim": -1, "logarithm": False}, shape)
        else:
            self._make("linear", [at], {"out": shape[-1], "bias": True, "activation": ""}, shape)
        made, self.at = self.at, at
        return made

    def _make_join(self, function: str, one: int, other: int, shape: Shape) -> None:
        alpha = self.pick(f"{function} alpha", (1, 2, 0.5), (3, 1, 1)) if function in ("add", "sub") else 1
        activation = self._activation(function, ("", *CLAMPS)) if function in ("add", "sub") else ""
        self._make("join", [one, other], {"function": function, "alpha": alpha, "activation": activation}, shape,
                   activation)  # fmt: skip

    def _table(self) -> None:
        if self.value.clamp:
            return self._linear() if len(self.value.shape) != 4 else self._conv()
        function = self.pick("table function", [*TABLES, *LOGARITHMS])
        if function in LOGARITHMS:
            self._make("positive", [self.at], {}, self.value.shape)
        self._make("table", [self.at], {"function": function}, self.value.shape)
        return None

    def _clamp(self) -> None:
        function = "clamp" if self._is_float else self.pick("clamp function", CLAMPS)
        self._make("clamp", [self.at], {"activation": function}, self.value.shape, "clamp")

    def _pad(self) -> None:
        rank, sizes = len(self.value.shape), self.value.shape[-3:]
        if rank == 4 and sizes[1:] == (1, 1):
            return self._table()
        form = self.pick("pad form", ("last", "last two", "all") if rank < 4 or sizes[0] > 1 else ("last", "last two"))
        dims = {"last": 1, "last two": min(2, rank), "all": rank}[form]
        amounts = [self.pick("pad amount", (0, 1, 2, 3)) for _ in range(2 * dims)]
        shape = list(self.value.shape)
        for dim in range(dims):
            shape[rank - 1 - dim] += amounts[2 * dim] + amounts[2 * dim + 1]
        how = {"amounts": tuple(amounts), "value": self.pick("pad value", (0.0, 0.5))}
        self._make("pad", [self.at], how, tuple(shape), self.value.clamp)
        return None

    def _cat(self) -> None:
        shape = self.value.shape
        dim = self.pick("cat dim", list(range(len(shape))))
        count = self.pick("cat count", (2, 3))
        other = list(shape)
        other[dim] = self.pick("cat size", (1, 2, 5))
        parts = [self.at, self._input(tuple(other)), self.at][:count]
        made = tuple(sum(self._of(one).shape[dim] for one in parts) if at == dim else size
                     for at, size in enumerate(shape))  # fmt: skip
        self._make("cat", parts, {"dim": dim}, made)

    def _softmax(self) -> None:
        rank = len(self.value.shape)
        last = -1 if rank != 4 or self.explicit else 1
        dim = self.pick("softmax dim", list(range(-rank, 0))) if self._is_float else last
        logarithm = self._is_float and self.pick("softmax logarithm", (False, True), (2, 1))
        self._make("softmax", [self.at], {"dim": dim, "logarithm": logarithm}, self.value.shape)

    def _amax(self) -> None:
        rank = len(self.value.shape)
        dims = self.pick("amax dims", [(dim,) for dim in range(rank)] + ([(0, rank - 1)] if rank > 2 else []))
        keep = self.pick("amax keepdim", (True, False))
        shape = tuple(
            1 if dim in dims else size for dim, size in enumerate(self.value.shape) if keep or dim not in dims
        )
        self._make("amax", [self.at], {"dims": dims, "keepdim": keep}, shape, self.value.clamp)

    def _select(self) -> None:
        shape = self.value.shape
        dim = self.pick("select dim", list(range(len(shape))))
        index = self.pick("select index", (0, -1))
        self._make("select", [self.at], {"dim": dim, "index": index}, shape[:dim] + shape[dim + 1 :], self.value.clamp)

    def _unsqueeze(self) -> None:
        shape = self.value.shape
        dim = self.pick("unsqueeze dim", list(range(len(shape) + 1)))
        self._make("unsqueeze", [self.at], {"dim": dim}, (*shape[:dim], 1, *shape[dim:]), self.value.clamp)

    def _permute(self) -> None:
        rank = len(self.value.shape)
        orders: dict[int, list[Shape]]
        orders = {2: [(1, 0)], 3: [(0, 2, 1), (1, 0, 2), (2, 0, 1)], 4: [(0, 2, 3, 1), (0, 3, 1, 2), (1, 0, 3, 2)]}
        dims = self.pick("permute dims", orders[rank])
        shape = tuple(self.value.shape[dim] for dim in dims)
        self._make("permute", [self.at], {"dims": dims}, shape, self.value.clamp)

    def _exact(self) -> None:
        """Add to the value the result of a function that jumps (rounding, remainder, …), taken of new inputs.

        Values before it may differ by a quantum between targets; new inputs do not, so that a jump is the same on each.
        """
        shape = self.value.shape
        function = self.pick("exact function", EXACT)
        dim = self.pick("exact dim", list(range(len(shape))))
        inputs = [self._input(shape) for _ in range(2 if function in EXACT_OF_TWO else 1)]
        self._make("exact", [self.at, *inputs], {"function": function, "dim": dim}, shape)

    def _matmul(self) -> None:
        shape = self.value.shape
        out = self.pick("matmul out", WIDTHS[:6])
        function = self.pick("matmul function", ("mm", "addmm")) if len(shape) == 2 else "bmm"
        right = self._input((*shape[:-2], shape[-1], out))
        self._make("matmul", [self.at, right], {"function": function}, (*shape[:-1], out))

    def _resize(self) -> None:
        batch, channels, height, width = self.value.shape
        function = self.pick("resize function", ("nearest", "bilinear", "bilinear aligned", "adaptive"))
        sizes = [(1, 1), (2, 3)] if function == "adaptive" else [(2 * height, 2 * width), (height + 3, width - 1)]
        size = self.pick(f"{function} size", [one for one in sizes if min(one) > 0 and max(one) < 20] or [(3, 3)])
        self._make("resize", [self.at], {"function": function, "size": size}, (batch, channels, *size))

    def _channel_norm(self) -> None:
        """Add a batch norm, or on an input possibly an instance or group norm.

        Instance and group norm compute mean and variance of their input, inexactly where the numbers are nearly equal
        (known bug 29 in docs/known_bugs.md).
        """
        channels = self.value.shape[1]
        functions = ("batch", "instance", "group") if self.value.origin == "input" else ("batch",)
        function = self.pick("channel norm function", functions)
        groups = self.pick("group norm groups", [one for one in (1, 2, 3) if channels % one == 0])
        self._make("channel norm", [self.at], {"function": function, "groups": groups}, self.value.shape)

    def _function(self) -> None:
        self._make("function", [self.at], {"function": self.pick("function name", FUNCTIONS)}, self.value.shape)

    def _reduce(self) -> None:
        rank = len(self.value.shape)
        function = self.pick("reduce function", ("mean", "sum", "amin", "var"))
        dims = self.pick(f"{function} dims", [*((dim,) for dim in range(rank)), (0, rank - 1)])
        keep = self.pick(f"{function} keepdim", (True, False))
        shape = tuple(1 if at in dims else size for at, size in enumerate(self.value.shape) if keep or at not in dims)
        self._make("reduce", [self.at], {"function": function, "dims": dims, "keepdim": keep}, shape)

    def _move(self) -> None:
        shape = list(self.value.shape)
        dim = self.pick("move dim", list(range(len(shape))))
        names = (*SAME_SHAPE, "repeat", *(("slice", "index", "put", "split") if shape[dim] > 1 else ()))
        function, step = self.pick("move function", names), self.pick("slice step", (1, 2))
        size = shape[dim]
        sizes = {"slice": -(-(size - 1) // step), "repeat": 2 * size, "index": 3, "put": 3, "split": size - 1}
        shape[dim] = sizes.get(function, size)
        self._make("move", [self.at], {"function": function, "dim": dim, "step": step}, tuple(shape))

    def _write(self) -> None:
        shape = self.value.shape
        if dims := [dim for dim, size in enumerate(shape) if size > 1]:
            function = self.pick("write function", ("put", "slice", "scatter", "fill", "gather", "copy"))
            self._make("write", [self.at], {"function": function, "dim": self.pick("write dim", dims)}, shape)

    def _choose(self) -> None:
        how = {"function": self.pick("choose function", ("gt", "ge", "lt", "le"))}
        self._make("choose", [self.at, self._input(self.value.shape)], how, self.value.shape)

    def _norm(self) -> None:
        """Add a layer norm, unless it would be over too few elements.

        If few elements are all nearly equal, ExecuTorch's variance has no correct digits left (known bug 29 of
        docs/known_bugs.md).
        """
        if self.value.shape[-1] < FEWEST_NORMALISED:
            return
        self._make("norm", [self.at], {"epsilon": self.pick("norm epsilon", (1e-5, 1e-3))}, self.value.shape)


SAME_SHAPE: Final = ("flip", "expand", "squeeze", "view", "strided", "arange", "full", "full like", "cumsum")
EXACT_OF_TWO: Final = (
    "eq two", "ne two", "lt two", "le two", "gt two", "and", "or", "xor", "integer sum", "integer product",
    "integer largest", "bitwise and", "bitwise or", "bitwise xor", "masked fill",
)  # fmt: skip
EXACT: Final = (
    *EXACT_OF_TWO, "ceil", "floor", "round", "trunc", "integer remainder", "remainder", "remainder of tensor",
    "div floor", "div trunc", "eq", "ne", "lt", "le", "gt", "ge", "not", "any", "argmax", "argmin", "largest",
    "smallest", "bitwise not", "embedding",
)  # fmt: skip
FEWEST_NORMALISED: Final = 4
FUNCTIONS: Final = (
    "abs", "neg", "relu", "leaky_relu", "hardtanh", "elu", "sigmoid", "tanh", "silu", "gelu", "exp", "pow", "log",
    "log1p", "sqrt", "rsqrt", "reciprocal", "sin", "cos",
)  # fmt: skip
PORTABLE_KINDS: Final = {
    "function": 4.0, "reduce": 2.0, "move": 2.0, "choose": 1.0, "norm": 1.0, "linear": 1.0, "join": 1.0, "softmax": 0.5,
    "cat": 1.0, "amax": 0.7, "write": 1.5, "pad": 0.7, "exact": 6.0,
}  # fmt: skip
PORTABLE_IMAGE_KINDS: Final = {
    "resize": 3.0, "channel norm": 2.0, "avg_pool": 2.0, "max_pool": 1.0, "conv": 1.0, "function": 1.0,
}  # fmt: skip
IMAGE_KINDS: Final = {
    "conv": 6.0, "transposed": 1.5, "avg_pool": 1.5, "max_pool": 1.5, "mean": 0.7, "join": 2.0, "table": 1.5,
    "pad": 1.0, "cat": 1.0,
}  # fmt: skip
ROW_KINDS: Final = {
    "linear": 4.0, "join": 3.0, "softmax": 1.0, "table": 2.0, "pad": 1.0, "cat": 1.0, "amax": 0.7, "select": 0.7,
    "unsqueeze": 0.7, "permute": 1.0, "clamp": 0.5,
}  # fmt: skip
BATCHED: Final = ("conv", "linear", "avg_pool", "max_pool", "mean", "table", "flatten", "softmax")
"""Steps that work on each item of a batch by itself."""
