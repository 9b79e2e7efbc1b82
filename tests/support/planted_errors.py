"""Errors of a lowering, planted one at a time into the arguments of one operator of a Cortex-M graph.

ExecuTorch's Python operators then compute what a target would compute that was given the wrong program: its outputs
equal the dialect in every bit, and only fake-quant and the float module can tell.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import fx
from torch.utils import _pytree as pytree

from cortex_m_hil.checks.comparison.compare_outputs import compare
from cortex_m_hil.checks.comparison.comparison_result import Comparison
from cortex_m_hil.checks.comparison.tolerance import Tolerance
from cortex_m_hil.lowering.reference import RememberedReferences, to_torch
from cortex_m_hil.program.program import Program, References
from cortex_m_hil.program.tensor import Array, HostTensor

Arguments = dict[str, Any]  # arguments of one call, by their names in the schema
Error = Callable[[Arguments], Arguments]
"""Returns changed arguments for an operator.

Raises KeyError if there is no such argument, ValueError if nothing would change.
"""


def _scaled(value: Any, factor: float) -> Any:
    if isinstance(value, torch.Tensor):
        return (value.double() * factor).round().to(value.dtype)
    return [round(one * factor) for one in value] if isinstance(value, list) else round(value * factor)


def _plus(value: Any, step: int) -> Any:
    return [one + step for one in value] if isinstance(value, list) else value + step


def _first(arguments: Arguments, *names: str) -> str:
    found = [name for name in names if name in arguments]
    if not found:
        raise KeyError(names)
    return found[0]


def _need(condition: bool) -> None:
    if not condition:
        raise ValueError("the error would not matter here")


def _output_scale(factor: float) -> Error:
    def plant(a: Arguments) -> Arguments:
        name = _first(a, "requantize_multipliers", "output_multiplier")
        return a | {name: _scaled(a[name], factor)}

    return plant


def _shift(step: int) -> Error:
    def plant(a: Arguments) -> Arguments:
        name = _first(a, "requantize_shifts", "output_shift")
        return a | {name: _plus(a[name], step)}

    return plant


def _zero_point(step: int, *names: str) -> Error:
    def plant(a: Arguments) -> Arguments:
        name = _first(a, *names)
        return a | {name: a[name] + step}

    return plant


def _no_bias(a: Arguments) -> Arguments:
    _need(a["bias"] is not None)
    return a | {"bias": torch.zeros_like(a["bias"])}


def _next_bias(a: Arguments) -> Arguments:
    _need(a["bias"] is not None)
    return a | {"bias": a["bias"].roll(1)}


def _weights(change: Callable[[Any], Any]) -> Error:
    """Change the weights of a convolution; in all its layouts height and width are dimensions 1 and 2."""

    def plant(a: Arguments) -> Arguments:
        _need(a["weight"].dim() == 4 and a["weight"].shape[1] == a["weight"].shape[2] > 1)
        return a | {"weight": change(a["weight"])}

    return plant


def _next_weights(a: Arguments) -> Arguments:
    name = _first(a, "weight", "weights")
    return a | {name: a[name].roll(1, dims=3 if "depth_multiplier" in a else 0)}


def _lost_weights(a: Arguments) -> Arguments:
    name = _first(a, "weight", "weights")
    changed = a[name].clone()
    changed[(..., 0) if "depth_multiplier" in a else (0,)] = 0
    return a | {name: changed}


def _next_multiplier(a: Arguments) -> Arguments:
    names = ("requantize_multipliers", "requantize_shifts")
    _need(isinstance(a[names[0]], torch.Tensor))  # a linear layer has one for all channels
    return a | {name: a[name].roll(1) for name in names}


def _padding(offset: int) -> Error:
    """Pad with the zero point plus ``offset`` quanta in place of the zero point."""

    def plant(a: Arguments) -> Arguments:
        _need(any(a["padding"]) and "output_padding" not in a)
        high, wide = a["padding"]
        value = max(-128, min(127, -a["input_offset"] + offset))
        padded = torch.nn.functional.pad(a["input"], (wide, wide, high, high), value=value)
        return a | {"input": padded, "padding": [0, 0]}

    return plant


def _pixel_off(a: Arguments) -> Arguments:
    _need(a["input"].dim() == 4)
    return a | {"input": a["input"].roll(1, dims=3)}


def _bound(name: str, value: int) -> Error:
    def plant(a: Arguments) -> Arguments:
        _need(a[name] != value)
        return a | {name: value}

    return plant


def _swapped(*pairs: tuple[str, str]) -> Error:
    def plant(a: Arguments) -> Arguments:
        return a | {left: a[right] for pair in pairs for left, right in (pair, pair[::-1])}

    return plant


def _one_operand_twice(a: Arguments) -> Arguments:
    _need(a["self"].shape == a["other"].shape)
    return a | {"other": a["self"]}


def _first_image_twice(a: Arguments) -> Arguments:
    name = _first(a, "input", "self", "lhs")
    _need(a[name].shape[0] > 1)
    changed = a[name].clone()
    changed[1] = changed[0]
    return a | {name: changed}


def _not_transposed(a: Arguments) -> Arguments:
    return a | {"rhs_transposed": a["rhs_transposed"].transpose(1, 2)}


def _joined_in_other_order(a: Arguments) -> Arguments:
    _need(len({tuple(one.shape) for one in a["tensors"]}) == 1)
    return a | {"tensors": list(a["tensors"])[::-1]}


ERRORS: dict[str, Error] = {
    "output scale 1 % too small": _output_scale(0.99),
    "output scale 5 % too small": _output_scale(0.95),
    "shift one too large": _shift(1),
    "shift one too small": _shift(-1),
    "output zero point + 1": _zero_point(1, "output_offset", "output_zero_point"),
    "output zero point - 1": _zero_point(-1, "output_offset", "output_zero_point"),
    "input zero point + 1": _zero_point(1, "input_offset", "self_zero_point", "lhs_zero_point", "input_zero_point"),
    "input zero point - 1": _zero_point(-1, "input_offset", "self_zero_point", "lhs_zero_point", "input_zero_point"),
    "bias dropped": _no_bias,
    "bias of the next channel": _next_bias,
    "weights of the next channel": _next_weights,
    "weights of a channel lost": _lost_weights,
    "multiplier of the next channel": _next_multiplier,
    "kernel flipped": _weights(lambda weight: weight.flip(1, 2)),
    "kernel's axes swapped": _weights(lambda weight: weight.transpose(1, 2)),
    "padding value 1 off": _padding(1),
    "padding value 16 off": _padding(16),
    "image a pixel off": _pixel_off,
    "upper bound of the activation too low": _bound("activation_max", 64),
    "lower bound of the activation too high": _bound("activation_min", -100),
    "scales of the operands swapped": _swapped(("self_multiplier", "other_multiplier"), ("self_shift", "other_shift")),
    "one operand twice": _one_operand_twice,
    "first image twice": _first_image_twice,
    "operand not transposed": _not_transposed,
    "joined in the other order": _joined_in_other_order,
    "table shifted by one": lambda a: a | {"lut": a["lut"].roll(1)},
    "table of another function": lambda a: a | {"lut": a["lut"].flip(0)},
    "softmax of inputs 5 % too small": lambda a: a | {"input_multiplier": _scaled(a["input_multiplier"], 0.95)},
}


def planted(program: Program, seed: int) -> Iterator[tuple[str, References]]:
    """Yield the name of each error that some operator of a program's graph can have, and references with the error.

    The references' dialect has the outputs that a target with the error would compute. Errors that change no output are
    left out, since they cannot be detected.
    """
    assert isinstance(program.reference, RememberedReferences)
    models = program.reference.models()
    references = models(program.inputs)
    arguments = tuple(to_torch(value) for value in program.inputs)
    recorded = fx.Interpreter(models.dialect, garbage_collect_values=False)
    with torch.no_grad():
        right = _flat(recorded.run(*arguments))
        for name, error in ERRORS.items():
            for wrong in _wrong_outputs(models.dialect, arguments, recorded.env, error, random.Random(seed)):
                if any((one != other).any() for one, other in zip(wrong, right, strict=True)):
                    yield name, replace(references, dialect=wrong)
                    break


def _flat(outputs: Any) -> tuple[Array, ...]:
    return tuple(np.array(output.numpy()) for output in pytree.tree_flatten(outputs)[0])


def _wrong_outputs(
    model: Any, arguments: tuple[Any, ...], values: dict[fx.Node, Any], error: Error, chance: random.Random
) -> Iterator[tuple[Array, ...]]:
    """Yield the outputs with an error in one operator, for each that can have it, in random order."""
    calls = [node for node in model.graph.nodes if node.op == "call_function" and hasattr(node.target, "_schema")]
    for node in chance.sample(calls, len(calls)):
        try:
            result = _call(node, error, values)
        except (KeyError, ValueError, RuntimeError, AssertionError):
            continue  # no such argument, or the operator itself refuses it
        before = dict(itertools.takewhile(lambda item, here=node: item[0] is not here, values.items()))  # type: ignore[misc]
        yield _flat(fx.Interpreter(model).run(*arguments, initial_env=before | {node: result}))


def _call(node: fx.Node, error: Error, values: dict[fx.Node, Any]) -> Any:
    """Return the result of a call with changed arguments."""
    call: Any = node.target
    names = [argument.name for argument in call._schema.arguments]
    arguments = fx.map_arg(node.args, values.__getitem__)
    return call(*error(dict(zip(names, arguments, strict=False))).values(), **node.kwargs)


def judged(program: Program, references: References) -> Comparison:
    """Return the verdict by the default tolerance on a target that gives what the dialect gives."""
    assert references.dialect is not None
    outputs = tuple(HostTensor.from_array(array) for array in references.dialect)
    return compare(program.file, outputs, references, Tolerance())
