"""Parts of a float program: some of its operators as a module, with the program's values as inputs.

A part is turned into Python source and run from it, so the test file that a search writes is what was tried.
"""

from __future__ import annotations

import dataclasses
import itertools
import linecache
import math
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import torch
from torch.fx import Node
from torch.utils import _pytree as pytree

from cortex_m_hil.errors import ConfigError
from cortex_m_hil.lowering.content_digest import NoContent, digest
from cortex_m_hil.lowering.options import LoweringOptions

_NAME: Final = "Part"
# Operators whose weights' channels can be cut, with the input's dimension that matches the weights' second dimension.
_WITH_WEIGHTS: Final[Mapping[Any, int]] = {torch.ops.aten.conv2d.default: 1, torch.ops.aten.linear.default: -1}
_CUTS: Final[tuple[Callable[[int], int], ...]] = (lambda _: 1, lambda size: size // 2, lambda size: size - 1)
_FEW: Final = 256  # elements of a tensor in a test's source at most; larger tensors are in a file
_INDENT: Final = " " * 8


@dataclass(frozen=True, eq=False)
class Origin:
    """The origin of a program: the whole module as a part, and its options except for calibration samples and io.

    Attributes:
        calibrated: whether calibration samples were given.
        had_io: whether inputs or outputs were lowered to int8; a part has other inputs and outputs.
    """

    part: ModulePart
    options: LoweringOptions
    calibrated: bool = False
    had_io: bool = False


@dataclass(frozen=True)
class Ref:
    """A reference to a value by its name: an input, a constant, or the result of a step."""

    name: str

    def __repr__(self) -> str:
        return self.name


@dataclass(frozen=True, eq=False)
class ModuleStep:
    """An operation `name = target(*args, **kwargs)` of a part; its arguments contain `Ref`s to values."""

    name: str
    target: Any
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]

    @cached_property
    def reads(self) -> tuple[str, ...]:
        leaves = pytree.tree_leaves((self.args, dict(self.kwargs)))
        return tuple(dict.fromkeys(leaf.name for leaf in leaves if isinstance(leaf, Ref)))

    def with_values(self, values: Mapping[str, Any]) -> Any:
        """Compute the step's result; `values` by name replace its references."""
        args, kwargs = pytree.tree_map(
            lambda leaf: values[leaf.name] if isinstance(leaf, Ref) else leaf, (self.args, dict(self.kwargs))
        )
        return self.target(*args, **kwargs)

    def replace(self, name: str, value: Any) -> ModuleStep:
        """Return the step with the value called `name` replaced by `value`."""

        def changed(leaf: Any) -> Any:
            return value if isinstance(leaf, Ref) and leaf.name == name else leaf

        args, kwargs = pytree.tree_map(changed, (self.args, dict(self.kwargs)))
        return dataclasses.replace(self, args=args, kwargs=kwargs)


@dataclass(frozen=True, eq=False)
class ModulePart:
    """A part of a program: steps in the order in which they run, and the tensors that they need.

    Results that no step reads are the part's outputs.

    Attributes:
        steps: the operations.
        inputs: the values of the inputs by name.
        constants: the tensors of the constants by name.
        parameters: names of the constants that are `nn.Parameter`s.
        digits: the largest number of significant digits in its tensors.
    """

    steps: tuple[ModuleStep, ...]
    inputs: Mapping[str, Any]
    constants: Mapping[str, Any]
    parameters: frozenset[str]
    digits: int = 17

    @classmethod
    def of(cls, exported: Any, inputs: tuple[Any, ...]) -> ModulePart:
        """Return an exported program as a part; raise ConfigError if it has control flow."""
        module = exported.module(check_guards=False)
        leaves = iter(pytree.tree_leaves(inputs))
        steps, given, constants, parameters = [], {}, {}, set()
        for node in module.graph.nodes:
            if node.op == "placeholder":
                given[node.name] = next(leaves)
            elif node.op == "get_attr":
                value = _attribute(module, node.target)
                if not isinstance(value, torch.Tensor):
                    what = f"the module has control flow: {node.target} is a {type(value).__name__}"
                    raise ConfigError(what, hint="hil localize names the operator")
                constants[node.name] = value.detach().clone()
                if isinstance(value, torch.nn.Parameter):
                    parameters.add(node.name)
            elif node.op == "call_function" and not _is_check(node):
                args, kwargs = pytree.tree_map(_ref, (node.args, node.kwargs))
                steps.append(ModuleStep(node.name, node.target, tuple(args), dict(kwargs)))
        return cls(tuple(steps), given, constants, frozenset(parameters))._without_what_is_not_read()

    @cached_property
    def values(self) -> Mapping[str, Any]:
        """Return the values of all names; raise what a step raises."""
        found = {**self.inputs, **self.constants}
        with torch.no_grad():
            for step in self.steps:
                found[step.name] = step.with_values(found)
        return found

    @cached_property
    def outputs(self) -> tuple[str, ...]:
        read = {name for step in self.steps for name in step.reads}
        return tuple(step.name for step in self.steps if step.name not in read)

    @property
    def key(self) -> object:
        """Return an object that is equal for parts with equal steps and values.

        For values without a digest the object is unique.
        """
        try:
            return digest(self.source(), dict(self.inputs), dict(self.constants))
        except NoContent:
            return object()

    @property
    def elements(self) -> int:
        """Return the number of elements of all inputs and constants."""
        return sum(value.numel() for value in (*self.inputs.values(), *self.constants.values()) if _is_tensor(value))

    def arguments(self) -> tuple[Any, ...]:
        return tuple(self.inputs.values())

    def module(self) -> Any:
        """Return the part as a torch module, made from its source."""
        source = self.source()
        file = f"<part {id(self)}>"
        linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)
        space: dict[str, Any] = {"torch": torch, "operator": operator, "CONSTANTS": dict(self.constants)}
        exec(compile(source, file, "exec"), space)
        return space[_NAME]().eval()

    def source(self) -> str:
        """Return the source of a class `Part`, which takes its constants from a mapping `CONSTANTS`."""
        begin = [f"class {_NAME}(torch.nn.Module):", "    def __init__(self):", f"{_INDENT}super().__init__()"]
        for name in self.constants:
            if name in self.parameters:
                begin.append(f'{_INDENT}self.{name} = torch.nn.Parameter(CONSTANTS["{name}"], requires_grad=False)')
            else:
                begin.append(f'{_INDENT}self.register_buffer("{name}", CONSTANTS["{name}"])')
        own = {name: Ref(f"self.{name}") for name in self.constants}
        body = [f"{_INDENT}{_line(step, own)}" for step in self.steps]
        given = ", ".join(["self", *self.inputs])
        end = f"{_INDENT}return {', '.join(self.outputs)}"
        return "\n".join([*begin, "", f"    def forward({given}):", *body, end, ""])

    # --- smaller parts ---------------------------------------------------------------------------------------

    def step_range(self, first: int, last: int) -> ModulePart | None:
        """Return the part of the steps `first` to `last` - 1; results of earlier steps that are read become inputs.

        None if the steps cannot be a part (`_of_steps`).
        """
        return self._of_steps(self.steps[first:last])

    def without_step(self, number: int) -> ModulePart | None:
        """Return the part without one step, whose result becomes an input; None where the rest cannot be a part."""
        return self._of_steps((*self.steps[:number], *self.steps[number + 1 :]))

    def _of_steps(self, steps: Sequence[ModuleStep]) -> ModulePart | None:
        """Return the part that consists of some steps, or None if these steps cannot be a part.

        A part has at least one step, its inputs are tensors or numbers, and its outputs are tensors.
        """
        made = {step.name for step in steps}
        read = dict.fromkeys(name for step in steps for name in step.reads)
        given = {name: self.values[name] for name in read if name not in made and name not in self.constants}
        if not steps or not all(isinstance(value, (torch.Tensor, int, float)) for value in given.values()):
            return None
        given = {name: value.clone() if _is_tensor(value) else value for name, value in given.items()}
        part = ModulePart(tuple(steps), given, self.constants, self.parameters)._without_what_is_not_read()
        return part if all(_is_tensor(self.values[name]) for name in part.outputs) else None

    def _without_what_is_not_read(self) -> ModulePart:
        read = {name for step in self.steps for name in step.reads}
        constants = {name: value for name, value in self.constants.items() if name in read}
        return dataclasses.replace(self, constants=constants, parameters=self.parameters & constants.keys())

    def with_smaller_tensors(self) -> Iterator[ModulePart]:
        """Yield parts with smaller tensors: a dimension is cut to 1, to its half, or by 1.

        Dimensions of inputs come first, then those of weights.
        """
        tensors = [(name, value) for name, value in self.inputs.items() if _is_tensor(value)]
        alone: list[set[tuple[str, int]]] = [{(name, dim)} for name, value in tensors for dim in range(value.dim())]
        for cut in _CUTS:
            for dims in (*alone, *self._channels()):
                name, dim = min(dims)
                size = self._tensor(name).shape[dim]
                if 0 < cut(size) < size:
                    yield self._narrowed(dims, cut(size))

    def _channels(self) -> Iterator[set[tuple[str, int]]]:
        """Yield sets of dimensions that must have the same size; a dimension is (name of the tensor, number)."""
        for step in self.steps:
            if step.target in _WITH_WEIGHTS:
                data, weight, *bias = [arg for arg in step.args[:3] if isinstance(arg, Ref)]
                if weight.name in self.constants:
                    yield {(weight.name, 0), *((one.name, 0) for one in bias)}
                    if data.name in self.inputs:
                        yield {(weight.name, 1), (data.name, _WITH_WEIGHTS[step.target])}

    def _tensor(self, name: str) -> Any:
        return self.inputs[name] if name in self.inputs else self.constants[name]

    def _narrowed(self, dims: set[tuple[str, int]], size: int) -> ModulePart:
        def changed(values: Mapping[str, Any]) -> dict[str, Any]:
            cut = dict(dims)
            return {
                name: value.narrow(cut[name], 0, size).clone() if name in cut else value
                for name, value in values.items()
            }

        return dataclasses.replace(self, inputs=changed(self.inputs), constants=changed(self.constants))

    def with_fewer_digits(self) -> Iterator[ModulePart]:
        """Yield parts whose tensors have fewer significant digits, the fewest first."""
        for digits in range(1, min(4, self.digits)):
            inputs, constants = (_rounded(values, digits) for values in (self.inputs, self.constants))
            yield dataclasses.replace(self, inputs=inputs, constants=constants, digits=digits)


def _rounded(values: Mapping[str, Any], digits: int) -> dict[str, Any]:
    """Return each tensor rounded to `digits` significant digits of its largest value."""
    found = {}
    for name, value in values.items():
        largest = float(value.abs().max()) if _is_tensor(value) and value.is_floating_point() and value.numel() else 0.0
        if not math.isfinite(largest) or largest == 0.0:
            found[name] = value
            continue
        decimals = digits - 1 - math.floor(math.log10(largest))
        found[name] = torch.round(value.double() * 10.0**decimals).div(10.0**decimals).to(value.dtype)
    return found


def _is_tensor(value: Any) -> bool:
    return isinstance(value, torch.Tensor)


def _is_check(node: Node) -> bool:
    """Tell whether a node is an assertion of the export, or part of one, whose result is not used."""
    return not node.users and "assert" in str(node.target)


def _ref(leaf: Any) -> Any:
    return Ref(leaf.name) if isinstance(leaf, Node) else leaf


def _attribute(module: Any, target: Any) -> Any:
    for name in str(target).split("."):
        module = getattr(module, name)
    return module


def write_test(part: ModulePart, path: Path, said: str, imports: Sequence[str], body: str) -> None:
    """Write a test file, and next to it a file with the tensors if they are large.

    Args:
        part: the part to test.
        path: the test file.
        said: the docstring of the test file.
        imports: further import lines.
        body: the test's body, in which `{module}` and `{inputs}` are replaced; it may use the fixture `hil`.
    """
    tensors, source = {"constants": dict(part.constants), "inputs": part.arguments()}, part.source()
    if part.elements <= _FEW:
        values = [f"CONSTANTS = {_literal(tensors['constants'])}", f"INPUTS = {_literal(tensors['inputs'])}"]
    else:
        torch.save(tensors, path.with_suffix(".pt"))
        load = 'TENSORS = torch.load(pathlib.Path(__file__).with_suffix(".pt"), weights_only=True)'
        values = [load, 'CONSTANTS, INPUTS = TENSORS["constants"], TENSORS["inputs"]']
        imports = ["import pathlib", *imports]
    quotes = '"' * 3
    head = [f"{quotes}{said.replace(chr(92), '/').replace(chr(34), chr(39))}{quotes}", ""]
    test = [
        f"def test_part({'hil' if 'hil.' in body else ''}):",
        f"    {body.format(module=f'{_NAME}().eval()', inputs='INPUTS')}",
    ]
    imports = [*(["import operator"] if " = operator." in source else []), *imports]
    path.write_text("\n".join([*head, *imports, "import torch", "", *values, "", "", source, "", *test, ""]))


def _literal(value: Any) -> str:
    if isinstance(value, Mapping):
        return "{" + ", ".join(f'"{name}": {_literal(one)}' for name, one in value.items()) + "}"
    if isinstance(value, tuple):
        return "(" + "".join(f"{_literal(one)}, " for one in value).rstrip() + ")"
    if not _is_tensor(value):
        return _number(value)
    numbers = ", ".join(map(_number, value.flatten().numpy()))
    return f"torch.tensor([{numbers}], dtype={value.dtype}).reshape({list(value.shape)})"


def _number(value: Any) -> str:
    """Return a number as Python source, with the fewest digits that give the same float32."""
    text = str(value)
    return f'float("{text}")' if text in ("inf", "-inf", "nan") else text


def _line(step: ModuleStep, own: Mapping[str, Ref]) -> str:
    for name, value in own.items():
        step = step.replace(name, value)
    arguments = itertools.chain(map(_written, step.args), (f"{k}={_written(v)}" for k, v in step.kwargs.items()))
    target = step.target
    if isinstance(target, torch._ops.OpOverload):
        called = f"torch.ops.{target._schema.name.replace('::', '.')}.{target._overloadname}"
    else:
        called = f"operator.{target.__name__}"
    return f"{step.name} = {called}({', '.join(arguments)})"


def _written(value: Any) -> str:
    """Return an argument of a step as Python source."""
    if isinstance(value, (list, tuple)):
        items = ", ".join(map(_written, value))
        return f"[{items}]" if isinstance(value, list) else f"({items},)"
    return _number(value) if isinstance(value, float) else repr(value)  # a Ref, a string, torch.float32, None
