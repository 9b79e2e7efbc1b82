"""The float program (`submodules.ModulePart`) of a recipe, which can be run, exported, shrunk and written as a test."""

from __future__ import annotations

import dataclasses
import math
import operator
from collections.abc import Callable, Mapping
from typing import Any, Final

import torch

from cortex_m_hil.lowering.submodules import ModulePart, ModuleStep, Ref
from cortex_m_hil.maintainers.networks.recipe import Recipe, Shape

aten: Final = torch.ops.aten


def part_of(recipe: Recipe) -> ModulePart:
    """Build the part of a recipe, which is always the same; torch's own random generators are left alone."""
    return _Builder(recipe).part()


def other_inputs(part: ModulePart) -> tuple[Any, ...]:
    """Return the part's inputs with their numbers in reverse order, so that no range changes."""
    return tuple(value.flatten().flip(0).reshape(value.shape) for value in part.inputs.values())


def last_layer(part: ModulePart) -> ModuleStep | None:
    """Return the convolution or linear layer whose result, or its clamped result, is the output; None without one."""
    steps = {step.name: step for step in part.steps}
    name = part.outputs[0]
    while name in steps and steps[name].target in _CLAMPS:
        name = steps[name].reads[0]
    layer = steps.get(name)
    return layer if layer is not None and layer.target in (aten.conv2d.default, aten.linear.default) else None


def with_channels_reversed(part: ModulePart) -> ModulePart | None:
    """Return the part with the last layer's output channels reversed; None without such a layer, or with groups."""
    layer = last_layer(part)
    if layer is None or (layer.target is aten.conv2d.default and layer.args[6:7] not in ((), (1,))):
        return None
    names = {ref.name for ref in layer.args[1:3] if isinstance(ref, Ref)}
    if not names <= part.constants.keys():
        return None
    changed = {name: value.flip(0) if name in names else value for name, value in part.constants.items()}
    return dataclasses.replace(part, constants=changed)


def channel_dim(part: ModulePart) -> int:
    """Return the dimension of the output that holds the last layer's channels."""
    layer = last_layer(part)
    return 1 if layer is not None and layer.target is aten.conv2d.default else -1


def with_padding_apart(part: ModulePart) -> ModulePart | None:
    """Return the part with its first convolution's zero padding as a separate operator; None without such padding."""
    first = part.steps[0]
    if first.target is not aten.conv2d.default or first.args[0].name not in part.inputs or len(first.args) < 5:
        return None
    data, weight, bias, stride, (rows, columns), *rest = first.args
    if not rows and not columns:
        return None
    pad = ModuleStep("padded", aten.pad.default, (data, [columns, columns, rows, rows], "constant", 0.0), {})
    arguments = (Ref("padded"), weight, bias, stride, [0, 0], *rest)
    return dataclasses.replace(part, steps=(pad, dataclasses.replace(first, args=arguments), *part.steps[1:]))


def with_batch(part: ModulePart, inputs: tuple[Any, ...]) -> tuple[ModulePart, tuple[Any, ...]] | None:
    """Return the part for a batch of two, and the batch to run: its own inputs with `inputs`.

    It is calibrated with a batch of its own inputs twice. None if an input already has a batch, or no batch dimension.
    """
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
        self.steps: list[ModuleStep] = []
        self.values = dict(self.inputs)

    def part(self) -> ModulePart:
        refs = [Ref(name) for name in self.inputs]
        for step in self.recipe.steps:
            given = [refs[number] for number in step.of]
            refs.append(_KINDS[step.kind](self, step.how, *given))
        return ModulePart(tuple(self.steps), self.inputs, self.constants, frozenset(self.constants))

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
        """Add weights as a constant, and return it; `uneven` weights have scales that differ between channels.

        Args:
            shape: the shape of the weights.
            fan_in: the number of products in each sum, by which the weights are scaled.
            channel: the dimension of the channels.
        """
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
        step = ModuleStep(f"v{len(self.steps)}", target, args, kwargs)
        with torch.no_grad():
            self.values[step.name] = step.with_values(self.values)
        self.steps.append(step)
        return Ref(step.name)

    def shape(self, ref: Ref) -> Shape:
        return tuple(self.values[ref.name].shape)

    def activated(self, ref: Ref, name: str) -> Ref:
        if not name:
            return ref
        target = aten.hardtanh if name == "relu6" else getattr(aten, name)
        return self.call(target.default, ref, *_BOUNDS.get(name, ()))


_BOUNDS: Final = {"relu6": (0.0, 6.0), "hardtanh": (-0.8, 0.6), "clamp": (-0.3, 0.9)}
_CLAMPS: Final = (aten.relu.default, aten.hardtanh.default, aten.clamp.default)


def _conv(b: _Builder, how: Mapping[str, Any], x: Ref) -> Ref:
    depth = b.shape(x)[1] // how["groups"]
    weight = b.parameter((how["out"], depth, *how["kernel"]), depth * math.prod(how["kernel"]), 0)
    bias = b.bias(how, how["out"])
    window = [list(how[name]) for name in ("stride", "padding", "dilation")]
    return b.activated(b.call(aten.conv2d.default, x, weight, bias, *window, how["groups"]), how["activation"])


def _conv1d(b: _Builder, how: Mapping[str, Any], x: Ref) -> Ref:
    depth = b.shape(x)[1] // how["groups"]
    weight = b.parameter((how["out"], depth, how["kernel"]), depth * how["kernel"], 0)
    window = [[how[name]] for name in ("stride", "padding", "dilation")]
    layer = b.call(aten.conv1d.default, x, weight, b.bias(how, how["out"]), *window, how["groups"])
    return b.activated(layer, how["activation"])


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


def _join(b: _Builder, how: Mapping[str, Any], x: Ref, y: Ref) -> Ref:
    alpha = {} if how["alpha"] == 1 else {"alpha": how["alpha"]}
    packet = getattr(aten, how["function"])
    target = packet.default if how["function"] in ("minimum", "maximum", "bmm") else packet.Tensor
    return b.activated(b.call(target, x, y, **alpha), how["activation"])


def _positive(b: _Builder, how: Mapping[str, Any], x: Ref) -> Ref:
    """Append nodes that compute x * x + 1, which is safe as a divisor and has a logarithm."""
    return b.call(aten.add.Tensor, b.call(aten.mul.Tensor, x, x), b.constant(torch.ones(b.shape(x))))


_ARGUMENTS: Final = {"leaky_relu": (0.2,), "hardtanh": (-0.5, 2.0), "elu": (1.3,), "pow": (3.0,)}
_OF_POSITIVE: Final = frozenset({"log", "log1p", "sqrt", "rsqrt", "reciprocal"})
_OF_SMALL: Final = frozenset({"exp", "pow", "sin", "cos"})


def _function(b: _Builder, how: Mapping[str, Any], x: Ref) -> Ref:
    """Add a function of one value; if it could overflow or has a pole, a safe function of the value is its input."""
    name = how["function"]
    if name in _OF_POSITIVE:
        x = _positive(b, how, x)
    elif name in _OF_SMALL:
        x = b.call(aten.tanh.default, x)
    target = aten.pow.Tensor_Scalar if name == "pow" else getattr(aten, name).default
    return b.call(target, x, *_ARGUMENTS.get(name, ()))


def _reduce(b: _Builder, how: Mapping[str, Any], x: Ref) -> Ref:
    dims, keep = list(how["dims"]), how["keepdim"]
    if how["function"] == "var":
        return b.call(aten.var.correction, x, dims, correction=0, keepdim=keep)
    functions = {"mean": aten.mean.dim, "sum": aten.sum.dim_IntList, "amin": aten.amin.default}
    return b.call(functions[how["function"]], x, dims, keep)


def _move(b: _Builder, how: Mapping[str, Any], x: Ref) -> Ref:
    """Add an operator that moves all or some of the elements of x."""
    dim, shape = how["dim"], b.shape(x)
    rank, size = len(shape), shape[dim]

    def at_dim(value: int, others: int) -> list[int]:
        return [value if one == dim else others for one in range(rank)]

    def chosen() -> Ref:
        return b.constant(torch.tensor([size - 1, 0, size // 2]))

    def split() -> Ref:
        return b.call(operator.getitem, b.call(aten.split_with_sizes.default, x, [1, size - 1], dim), 1)

    def plus(other: Ref) -> Ref:
        return b.call(aten.add.Tensor, x, other)

    made: Mapping[str, Callable[[], Ref]] = {
        "slice": lambda: b.call(aten.slice.Tensor, x, dim, 1, size, how["step"]),
        "flip": lambda: b.call(aten.flip.default, x, [dim]),
        "repeat": lambda: b.call(aten.repeat.default, x, at_dim(2, 1)),
        "index": lambda: b.call(aten.index_select.default, x, dim, chosen()),
        "put": lambda: b.call(aten.index.Tensor, x, [*[None] * dim, chosen()]),
        "split": split,
        "expand": lambda: plus(b.call(aten.expand.default, b.call(aten.amax.default, x, [dim], True), list(shape))),
        "squeeze": lambda: b.call(aten.squeeze.dims, b.call(aten.unsqueeze.default, x, dim), [dim]),
        "view": lambda: b.call(aten.view.default, b.call(aten.view.default, x, [-1]), list(shape)),
        "strided": lambda: plus(b.call(aten.as_strided.default, x, list(shape), [1] * rank, 0)),
        "arange": lambda: plus(b.call(aten.arange.start, 1, shape[-1] + 1)),
        "cumsum": lambda: b.call(aten.cumsum.default, x, dim),
        "full": lambda: plus(b.call(aten.full.default, list(shape), 1.5)),
        "full like": lambda: plus(b.call(aten.full_like.default, x, 2.5)),
    }
    return made[how["function"]]()


def _write(b: _Builder, how: Mapping[str, Any], x: Ref) -> Ref:
    """Add an operator that writes other numbers to some places of a copy of x, or gathers its elements by indices."""
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
        "fill": lambda: b.call(aten.scatter.value, x, dim, backwards(), 0.5),
        "gather": lambda: b.call(aten.gather.default, x, dim, backwards()),
        "copy": lambda: b.call(aten.copy.default, x, b.call(aten.neg.default, x)),
    }
    return made[how["function"]]()


def _choose(b: _Builder, how: Mapping[str, Any], x: Ref, y: Ref) -> Ref:
    """Add a choice between x and y by their comparison.

    The result is continuous where x and y are equal, so rounding makes no difference there.
    """
    return b.call(aten.where.self, b.call(getattr(aten, how["function"]).Tensor, x, y), x, y)


def _exact(b: _Builder, how: Mapping[str, Any], x: Ref, *inputs: Ref) -> Ref:
    """Add an operator that is not continuous, applied to the inputs rounded to halves, and add its result to x.

    The inputs are rounded to halves, so that some of them are whole numbers and some are equal.
    """
    given = []
    for ref in inputs:
        rounded = b.call(aten.round.default, b.call(aten.mul.Tensor, ref, b.constant(torch.full((), 2.5))))
        given.append(b.call(aten.mul.Tensor, rounded, b.constant(torch.full((), 0.5))))
    made = _EXACT[how["function"]](b, how["dim"], *given)
    return b.call(aten.add.Tensor, x, b.call(aten.to.dtype, made, torch.float32))


def _plain(target: Any, *more: Any) -> Callable[..., Ref]:
    return lambda b, dim, *given: b.call(target, *given, *more)


def _with_index(target: Any) -> Callable[..., Ref]:
    """Return a builder that adds the largest (or smallest) value and its index.

    The value without the index would be lowered to an operator that no runtime has (known bug 26 in
    docs/known_bugs.md).
    """

    def made(b: _Builder, dim: int, y: Ref) -> Ref:
        both = b.call(target, y, dim, True)
        values, at = (b.call(operator.getitem, both, one) for one in (0, 1))
        return b.call(aten.add.Tensor, values, b.call(aten.to.dtype, at, torch.float32))

    return made


def _along(target: Any) -> Callable[..., Ref]:
    return lambda b, dim, y: b.call(target, y, dim, True)


def _of_integers(target: Any, *more: Any) -> Callable[..., Ref]:
    def made(b: _Builder, dim: int, *given: Ref) -> Ref:
        scaled = (b.call(aten.mul.Tensor, ref, b.constant(torch.full((), 4.0))) for ref in given)
        return b.call(target, *(b.call(aten.to.dtype, ref, torch.int32) for ref in scaled), *more)

    return made


def _of_truths(target: Any) -> Callable[..., Ref]:
    return lambda b, dim, *given: b.call(target, *(b.call(aten.gt.Scalar, ref, 0.0) for ref in given))


def _of_divisor(target: Any, **more: Any) -> Callable[..., Ref]:
    """Return a builder that divides by powers of two.

    Other quotients are rounded wrongly by ExecuTorch (known bug 25 in docs/known_bugs.md).
    """

    def made(b: _Builder, dim: int, y: Ref) -> Ref:
        return b.call(target, y, b.constant(torch.exp2(torch.arange(b.shape(y)[-1]) % 3 - 1.0)), **more)

    return made


def _any(b: _Builder, dim: int, y: Ref) -> Ref:
    return b.call(aten.any.dim, b.call(aten.gt.Scalar, y, 0.5), dim, True)


def _embedding(b: _Builder, dim: int, y: Ref) -> Ref:
    """Add an embedding that looks up the positions of the largest numbers."""
    shape = b.shape(y)
    rows = b.call(aten.argmax.default, y, -1, True)
    return b.call(
        aten.squeeze.dims, b.call(aten.embedding.default, b.parameter((shape[-1], 1), 1, 0), rows), [len(shape)]
    )


def _masked_fill(b: _Builder, dim: int, y: Ref, z: Ref) -> Ref:
    return b.call(aten.masked_fill.Scalar, y, b.call(aten.gt.Tensor, y, z), -1.0)


_EXACT: Final[Mapping[str, Callable[..., Ref]]] = {
    "ceil": _plain(aten.ceil.default), "floor": _plain(aten.floor.default), "round": _plain(aten.round.default),
    "trunc": _plain(aten.trunc.default),
    "remainder": _plain(aten.remainder.Scalar, 1.5), "remainder of tensor": _of_divisor(aten.remainder.Tensor),
    "div floor": _of_divisor(aten.div.Tensor_mode, rounding_mode="floor"),
    "div trunc": _of_divisor(aten.div.Tensor_mode, rounding_mode="trunc"),
    **{name: _plain(getattr(aten, name).Scalar, 0.5) for name in ("eq", "ne", "lt", "le", "gt", "ge")},
    **{f"{name} two": _plain(getattr(aten, name).Tensor) for name in ("eq", "ne", "lt", "le", "gt")},
    **{name: _of_truths(getattr(aten, f"logical_{name}").default) for name in ("and", "or", "xor", "not")},
    "any": _any, "argmax": _along(aten.argmax.default), "argmin": _along(aten.argmin.default),
    "largest": _with_index(aten.max.dim), "smallest": _with_index(aten.min.dim),
    "integer sum": _of_integers(aten.add.Tensor), "integer product": _of_integers(aten.mul.Tensor),
    "integer remainder": _of_integers(aten.fmod.Scalar, 3), "integer largest": _of_integers(aten.maximum.default),
    "bitwise and": _of_integers(aten.bitwise_and.Tensor), "bitwise or": _of_integers(aten.bitwise_or.Tensor),
    "bitwise xor": _of_integers(aten.bitwise_xor.Tensor), "bitwise not": _of_integers(aten.bitwise_not.default),
    "embedding": _embedding, "masked fill": _masked_fill,
}  # fmt: skip


def _matmul(b: _Builder, how: Mapping[str, Any], x: Ref, y: Ref) -> Ref:
    if how["function"] == "addmm":
        return b.call(aten.addmm.default, b.parameter(b.shape(y)[-1:], 1, 0), x, y)
    return b.call({"mm": aten.mm.default, "bmm": aten.bmm.default}[how["function"]], x, y)


def _resize(b: _Builder, how: Mapping[str, Any], x: Ref) -> Ref:
    size = list(how["size"])
    if how["function"] == "adaptive":
        return b.call(aten.adaptive_avg_pool2d.default, x, size)
    if how["function"] == "nearest":
        return b.call(aten.upsample_nearest2d.vec, x, size, None)
    return b.call(aten.upsample_bilinear2d.vec, x, size, how["function"] == "bilinear aligned", None)


def _channel_norm(b: _Builder, how: Mapping[str, Any], x: Ref) -> Ref:
    channels = b.shape(x)[1]
    weight, bias = b.parameter((channels,), 1, 0), b.parameter((channels,), 1, 0)
    if how["function"] == "group":
        return b.call(aten.group_norm.default, x, how["groups"], weight, bias, 1e-5)
    if how["function"] == "instance":
        return b.call(aten.instance_norm.default, x, weight, bias, None, None, True, 0.1, 1e-5, False)
    mean, variance = b.constant(torch.linspace(-1, 1, channels)), b.constant(torch.linspace(0.5, 2, channels))
    return b.call(aten.batch_norm.default, x, weight, bias, mean, variance, False, 0.1, 1e-5, False)


def _softmax(b: _Builder, how: Mapping[str, Any], x: Ref) -> Ref:
    return b.call(aten.log_softmax.int if how["logarithm"] else aten.softmax.int, x, how["dim"])


def _norm(b: _Builder, how: Mapping[str, Any], x: Ref) -> Ref:
    width = b.shape(x)[-1]
    weight, bias = b.parameter((width,), 1, 0), b.parameter((width,), 1, 0)
    return b.call(aten.layer_norm.default, x, [width], weight, bias, how["epsilon"])


_KINDS: Final[Mapping[str, Callable[..., Ref]]] = {
    "conv": _conv,
    "conv1d": _conv1d,
    "transposed": _transposed,
    "linear": _linear,
    "avg_pool": _avg_pool,
    "max_pool": _max_pool,
    "mean": _mean,
    "join": _join,
    "positive": _positive,
    "table": lambda b, how, x: b.call(getattr(aten, how["function"]).default, x),
    "clamp": lambda b, how, x: b.activated(x, how["activation"]),
    "pad": lambda b, how, x: b.call(aten.pad.default, x, list(how["amounts"]), "constant", how["value"]),
    "function": _function,
    "reduce": _reduce,
    "move": _move,
    "write": _write,
    "choose": _choose,
    "norm": _norm,
    "exact": _exact,
    "matmul": _matmul,
    "resize": _resize,
    "channel norm": _channel_norm,
    "cat": lambda b, how, *given: b.call(aten.cat.default, list(given), how["dim"]),
    "flatten": lambda b, how, x: b.call(aten.flatten.using_ints, x, 1),
    "softmax": _softmax,
    "amax": lambda b, how, x: b.call(aten.amax.default, x, list(how["dims"]), how["keepdim"]),
    "select": lambda b, how, x: b.call(aten.select.int, x, how["dim"], how["index"]),
    "unsqueeze": lambda b, how, x: b.call(aten.unsqueeze.default, x, how["dim"]),
    "permute": lambda b, how, x: b.call(aten.permute.default, x, list(how["dims"])),
}
