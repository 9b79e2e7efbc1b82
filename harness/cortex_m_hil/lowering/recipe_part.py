"""A recipe as a float program (`parts.Part`), which can be run, exported, cut down and written as a test."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping
from typing import Any, Final

import torch

from cortex_m_hil.lowering.parts import Part, Ref, Step
from cortex_m_hil.lowering.recipe import Recipe, Shape

aten: Final = torch.ops.aten


def part_of(recipe: Recipe) -> Part:
    """Always the same for one recipe; leaves torch's own generators alone."""
    return _Builder(recipe).part()


def other_inputs(part: Part) -> tuple[Any, ...]:
    """The same numbers in another order, so that no range changes."""
    return tuple(value.flatten().flip(0).reshape(value.shape) for value in part.inputs.values())


def last_layer(part: Part) -> Step | None:
    """The convolution or fully connected layer that the output comes from with nothing but an activation between."""
    steps = {step.name: step for step in part.steps}
    name = part.outputs[0]
    while name in steps and steps[name].target in _CLAMPS:
        name = steps[name].reads[0]
    layer = steps.get(name)
    return layer if layer is not None and layer.target in (aten.conv2d.default, aten.linear.default) else None


def with_channels_reversed(part: Part) -> Part | None:
    """With the output channels of the last layer the other way round; None where there is none, or it has groups."""
    layer = last_layer(part)
    if layer is None or (layer.target is aten.conv2d.default and layer.args[6:7] not in ((), (1,))):
        return None
    names = {ref.name for ref in layer.args[1:3] if isinstance(ref, Ref)}
    if not names <= part.constants.keys():
        return None
    changed = {name: value.flip(0) if name in names else value for name, value in part.constants.items()}
    return dataclasses.replace(part, constants=changed)


def channel_dim(part: Part) -> int:
    """The dimension of the output that the last layer's channels are."""
    layer = last_layer(part)
    return 1 if layer is not None and layer.target is aten.conv2d.default else -1


def with_padding_apart(part: Part) -> Part | None:
    """With the zero padding of the first convolution done by an operator of its own; None where it has none."""
    first = part.steps[0]
    if first.target is not aten.conv2d.default or first.args[0].name not in part.inputs or len(first.args) < 5:
        return None
    data, weight, bias, stride, (rows, columns), *rest = first.args
    if not rows and not columns:
        return None
    pad = Step("padded", aten.pad.default, (data, [columns, columns, rows, rows], "constant", 0.0), {})
    arguments = (Ref("padded"), weight, bias, stride, [0, 0], *rest)
    return dataclasses.replace(part, steps=(pad, dataclasses.replace(first, args=arguments), *part.steps[1:]))


def with_batch(part: Part, inputs: tuple[Any, ...]) -> tuple[Part, tuple[Any, ...]] | None:
    """For twice as many inputs: its own ones twice, and its own ones with others; None where it takes a batch."""
    if any(value.dim() < 2 or value.shape[0] != 1 for value in part.inputs.values()):
        return None
    twice = {name: torch.cat([value, value]) for name, value in part.inputs.items()}
    both = tuple(torch.cat(pair) for pair in zip(part.inputs.values(), inputs, strict=True))
    return dataclasses.replace(part, inputs=twice), both


class _Builder:
    def __init__(self, recipe: Recipe) -> None:
        self.recipe = recipe
        self.random, self.weights = (torch.Generator().manual_seed(2 * recipe.seed + one) for one in (0, 1))
        self.inputs = {f"x{number}": self.spread(shape) for number, shape in enumerate(recipe.inputs)}
        self.constants: dict[str, Any] = {}
        self.steps: list[Step] = []
        self.values = dict(self.inputs)

    def part(self) -> Part:
        refs = [Ref(name) for name in self.inputs]
        for step in self.recipe.steps:
            given = [refs[number] for number in step.of]
            refs.append(_KINDS[step.kind](self, step.how, *given))
        return Part(tuple(self.steps), self.inputs, self.constants, frozenset(self.constants))

    # --- numbers ---------------------------------------------------------------------------------------------

    def spread(self, shape: Shape) -> Any:
        normal = torch.randn(shape, generator=self.random)
        uniform = torch.rand(shape, generator=self.random)
        made: Mapping[str, Callable[[], Any]] = {
            "uniform": lambda: uniform,
            "normal": lambda: normal,
            "wide": lambda: normal * 20,
            "tiny": lambda: normal * 1e-3,
            "shifted": lambda: normal * 0.3 + 6,
            "negative": lambda: -uniform - 0.5,
            "sparse": lambda: torch.where(uniform < 0.7, torch.zeros(()), normal),
            "uneven": lambda: normal * torch.exp2(torch.arange(shape[-1]) % 5 - 2.0),
        }
        return made[self.recipe.values]()

    def parameter(self, shape: Shape, fan_in: int, channel: int) -> Any:
        """Weights; `uneven` ones have scales that differ from channel to channel."""
        values = (torch.rand(shape, generator=self.weights) * 2 - 1) * math.sqrt(3 / max(1, fan_in))
        if self.recipe.weights == "uneven":
            factors = torch.exp2(torch.randint(-3, 3, (shape[channel],), generator=self.weights).float())
            values = values * factors.reshape([-1 if dim == channel else 1 for dim in range(len(shape))])
        return self.constant(values)

    def bias(self, how: Mapping[str, Any], channels: int) -> Any:
        if not how["bias"]:
            return None
        return self.constant(torch.rand(channels, generator=self.weights) * 2 - 0.7)

    def constant(self, values: Any) -> Ref:
        name = f"c{len(self.constants)}"
        self.constants[name] = self.values[name] = values
        return Ref(name)

    # --- operators -------------------------------------------------------------------------------------------

    def call(self, target: Any, *args: Any, **kwargs: Any) -> Ref:
        step = Step(f"v{len(self.steps)}", target, args, kwargs)
        with torch.no_grad():
            self.values[step.name] = step.with_values(self.values)
        self.steps.append(step)
        return Ref(step.name)

    def shape(self, ref: Ref) -> Shape:
        return tuple(self.values[ref.name].shape)

    def activated(self, ref: Ref, name: str) -> Ref:
        return self.call(_ACTIVATIONS[name][0], ref, *_ACTIVATIONS[name][1:]) if name else ref


_ACTIVATIONS: Final[Mapping[str, tuple[Any, ...]]] = {
    "relu": (aten.relu.default,),
    "relu6": (aten.hardtanh.default, 0.0, 6.0),
    "hardtanh": (aten.hardtanh.default, -0.8, 0.6),
    "clamp": (aten.clamp.default, -0.3, 0.9),
    "hardsigmoid": (aten.hardsigmoid.default,),
    "hardswish": (aten.hardswish.default,),
}
_CLAMPS: Final = (aten.relu.default, aten.hardtanh.default, aten.clamp.default)


def _conv(b: _Builder, how: Mapping[str, Any], x: Ref) -> Ref:
    depth = b.shape(x)[1] // how["groups"]
    weight = b.parameter((how["out"], depth, *how["kernel"]), depth * math.prod(how["kernel"]), 0)
    bias = b.bias(how, how["out"])
    window = [list(how[name]) for name in ("stride", "padding", "dilation")]
    return b.activated(b.call(aten.conv2d.default, x, weight, bias, *window, how["groups"]), how["activation"])


def _transposed(b: _Builder, how: Mapping[str, Any], x: Ref) -> Ref:
    channels, groups = b.shape(x)[1], how["groups"]
    weight = b.parameter((channels, how["out"] // groups, *how["kernel"]), channels * math.prod(how["kernel"]), 1)
    window = [list(how[name]) for name in ("stride", "padding", "output_padding")]
    given = (*window, groups, list(how["dilation"]))
    layer = b.call(aten.conv_transpose2d.input, x, weight, b.bias(how, how["out"]), *given)
    return b.activated(layer, how["activation"])


def _linear(b: _Builder, how: Mapping[str, Any], x: Ref) -> Ref:
    width = b.shape(x)[-1]
    weight = b.parameter((how["out"], width), width, 0)
    return b.activated(b.call(aten.linear.default, x, weight, b.bias(how, how["out"])), how["activation"])


def _avg_pool(b: _Builder, how: Mapping[str, Any], x: Ref) -> Ref:
    window = [list(how[name]) for name in ("kernel", "stride", "padding")]
    return b.call(aten.avg_pool2d.default, x, *window, how["ceil"], how["counts_padding"])


def _max_pool(b: _Builder, how: Mapping[str, Any], x: Ref) -> Ref:
    window = [list(how[name]) for name in ("kernel", "stride", "padding", "dilation")]
    return b.activated(b.call(aten.max_pool2d.default, x, *window, how["ceil"]), how["activation"])


def _mean(b: _Builder, how: Mapping[str, Any], x: Ref) -> Ref:
    if how["adaptive"]:
        return b.call(aten.adaptive_avg_pool2d.default, x, [1, 1])
    return b.call(aten.mean.dim, x, [2, 3], True)


_JOINS: Final[Mapping[str, Any]] = {
    "add": aten.add.Tensor, "sub": aten.sub.Tensor, "mul": aten.mul.Tensor, "div": aten.div.Tensor,
    "minimum": aten.minimum.default, "maximum": aten.maximum.default, "bmm": aten.bmm.default, "ge": aten.ge.Tensor,
}  # fmt: skip


def _join(b: _Builder, how: Mapping[str, Any], x: Ref, y: Ref) -> Ref:
    alpha = {} if how["alpha"] == 1 else {"alpha": how["alpha"]}
    return b.activated(b.call(_JOINS[how["function"]], x, y, **alpha), how["activation"])


def _positive(b: _Builder, how: Mapping[str, Any], x: Ref) -> Ref:
    """The square and one: what may be divided by, and have a logarithm."""
    return b.call(aten.add.Tensor, b.call(aten.mul.Tensor, x, x), b.constant(torch.ones(b.shape(x))))


_TABLES: Final[Mapping[str, Any]] = {
    "sigmoid": aten.sigmoid.default, "tanh": aten.tanh.default, "silu": aten.silu.default, "gelu": aten.gelu.default,
    "log": aten.log.default, "log2": aten.log2.default, "log10": aten.log10.default, "log1p": aten.log1p.default,
    "sqrt": aten.sqrt.default, "rsqrt": aten.rsqrt.default,
}  # fmt: skip

_FUNCTIONS: Final[Mapping[str, tuple[Any, ...]]] = {
    "abs": (aten.abs.default,), "neg": (aten.neg.default,), "relu": (aten.relu.default,),
    "leaky_relu": (aten.leaky_relu.default, 0.2), "hardtanh": (aten.hardtanh.default, -0.5, 2.0),
    "elu": (aten.elu.default, 1.3), "sigmoid": (aten.sigmoid.default,), "tanh": (aten.tanh.default,),
    "silu": (aten.silu.default,), "gelu": (aten.gelu.default,), "exp": (aten.exp.default,),
    "pow": (aten.pow.Tensor_Scalar, 3.0), "log": (aten.log.default,), "log1p": (aten.log1p.default,),
    "sqrt": (aten.sqrt.default,), "rsqrt": (aten.rsqrt.default,), "reciprocal": (aten.reciprocal.default,),
}  # fmt: skip
_OF_POSITIVE: Final = frozenset({"log", "log1p", "sqrt", "rsqrt", "reciprocal"})
_OF_SMALL: Final = frozenset({"exp", "pow"})


def _function(b: _Builder, how: Mapping[str, Any], x: Ref) -> Ref:
    """Of any numbers: those that overflow, or have a pole, get others."""
    target, *rest = _FUNCTIONS[how["function"]]
    if how["function"] in _OF_POSITIVE:
        x = _positive(b, how, x)
    elif how["function"] in _OF_SMALL:
        x = b.call(aten.tanh.default, x)
    return b.call(target, x, *rest)


def _reduce(b: _Builder, how: Mapping[str, Any], x: Ref) -> Ref:
    dims, keep = list(how["dims"]), how["keepdim"]
    if how["function"] == "var":
        return b.call(aten.var.correction, x, dims, correction=0, keepdim=keep)
    functions = {"mean": aten.mean.dim, "sum": aten.sum.dim_IntList, "amin": aten.amin.default}
    return b.call(functions[how["function"]], x, dims, keep)


def _move(b: _Builder, how: Mapping[str, Any], x: Ref) -> Ref:
    """The same elements, or some of them, in other places."""
    dim, size = how["dim"], b.shape(x)[how["dim"]]
    rank = len(b.shape(x))
    made: Mapping[str, Callable[[], Ref]] = {
        "slice": lambda: b.call(aten.slice.Tensor, x, dim, 1, size, how["step"]),
        "flip": lambda: b.call(aten.flip.default, x, [dim]),
        "repeat": lambda: b.call(aten.repeat.default, x, [2 if one == dim else 1 for one in range(rank)]),
        "index": lambda: b.call(aten.index_select.default, x, dim, b.constant(torch.tensor([size - 1, 0, size // 2]))),
    }
    return made[how["function"]]()


def _write(b: _Builder, how: Mapping[str, Any], x: Ref) -> Ref:
    """A copy of x in which some places have other numbers, or what indices choose of it."""
    dim, shape = how["dim"], b.shape(x)
    size = shape[dim]

    def part(start: int, end: int) -> Ref:
        return b.call(aten.slice.Tensor, b.call(aten.neg.default, x), dim, start, end, 1)

    def backwards() -> Ref:
        along = torch.arange(size).flip(0).reshape([-1 if one == dim else 1 for one in range(len(shape))])
        return b.constant(along.expand(shape).contiguous())

    def put() -> Ref:
        return b.call(aten.index_put.default, x, [*[None] * dim, b.constant(torch.tensor([size - 1, 0]))], part(0, 2))

    made: Mapping[str, Callable[[], Ref]] = {
        "put": put,
        "slice": lambda: b.call(aten.slice_scatter.default, x, part(1, size), dim, 1, size, 1),
        "scatter": lambda: b.call(aten.scatter.src, x, dim, backwards(), b.call(aten.neg.default, x)),
        "gather": lambda: b.call(aten.gather.default, x, dim, backwards()),
    }
    return made[how["function"]]()


def _choose(b: _Builder, how: Mapping[str, Any], x: Ref, y: Ref) -> Ref:
    """Of two, by a comparison; continuous where they are equal, so that rounding makes no other choice."""
    return b.call(aten.where.self, b.call(_COMPARISONS[how["function"]], x, y), x, y)


_COMPARISONS: Final[Mapping[str, Any]] = {
    "gt": aten.gt.Tensor, "ge": aten.ge.Tensor, "lt": aten.lt.Tensor, "le": aten.le.Tensor,
}  # fmt: skip


def _norm(b: _Builder, how: Mapping[str, Any], x: Ref) -> Ref:
    width = b.shape(x)[-1]
    weight, bias = b.parameter((width,), 1, 0), b.parameter((width,), 1, 0)
    return b.call(aten.layer_norm.default, x, [width], weight, bias, how["epsilon"])


_KINDS: Final[Mapping[str, Callable[..., Ref]]] = {
    "conv": _conv,
    "transposed": _transposed,
    "linear": _linear,
    "avg_pool": _avg_pool,
    "max_pool": _max_pool,
    "mean": _mean,
    "join": _join,
    "positive": _positive,
    "table": lambda b, how, x: b.call(_TABLES[how["function"]], x),
    "clamp": lambda b, how, x: b.activated(x, how["activation"]),
    "pad": lambda b, how, x: b.call(aten.pad.default, x, list(how["amounts"]), "constant", how["value"]),
    "function": _function,
    "reduce": _reduce,
    "move": _move,
    "write": _write,
    "choose": _choose,
    "norm": _norm,
    "cat": lambda b, how, *given: b.call(aten.cat.default, list(given), how["dim"]),
    "flatten": lambda b, how, x: b.call(aten.flatten.using_ints, x, 1),
    "softmax": lambda b, how, x: b.call(aten.softmax.int, x, how["dim"]),
    "amax": lambda b, how, x: b.call(aten.amax.default, x, list(how["dims"]), how["keepdim"]),
    "select": lambda b, how, x: b.call(aten.select.int, x, how["dim"], how["index"]),
    "unsqueeze": lambda b, how, x: b.call(aten.unsqueeze.default, x, how["dim"]),
    "permute": lambda b, how, x: b.call(aten.permute.default, x, list(how["dims"])),
}
