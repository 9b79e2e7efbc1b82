"""Dynamic shapes: input dimensions that an export leaves open, and checks that the passes do not fix them."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import FrameType
from typing import Any, Final
from unittest import mock

from cortex_m_hil.errors import ConfigError, LoweringError
from cortex_m_hil.lowering.installed_executorch import load_torch
from cortex_m_hil.lowering.options import Inputs
from cortex_m_hil.program.pte_file import PteFile
from cortex_m_hil.program.tensor import Dimension

_BOUNDS: Final = 'bounds for it: torch.export.Dim("batch", min=1, max=8)'
_OF_EXAMPLE: Final = (
    "a tuple with None or a dict of dimensions for each input, or a dict of these by name: "
    '({0: torch.export.Dim("batch", min=1, max=8)},); and an example of a size within, at least 2'
)
_EACH_SIZE: Final = (
    "lower it for each size, without dynamic_shapes; quantize=False, on portable kernels, may leave it dynamic"
)
_PASSES: Final = "/backends/cortex_m/"


def dimensions_of(program: Any) -> tuple[Dimension, ...]:
    """Return the dimensions of an exported program's inputs that are not fixed.

    Raise ConfigError for a dimension without an upper bound, for which memory is planned, and for one whose size is not
    `factor` · `symbol` + `offset`.
    """
    return tuple(_dimension(program, number, name, dim, size) for number, name, dim, size in _symbolic(program))


def _symbolic(program: Any) -> Iterator[tuple[int, str, int, Any]]:
    """Yield for each size that is not fixed: number and name of the input, number of the dimension, its `SymInt`."""
    torch = load_torch()
    nodes = {node.name: node for node in program.graph.nodes if node.op == "placeholder"}
    for number, name in enumerate(program.graph_signature.user_inputs):
        value = nodes[name].meta.get("val") if name in nodes else None
        for dim, size in enumerate(value.shape if isinstance(value, torch.Tensor) else ()):
            if isinstance(size, torch.SymInt) and size.node.maybe_as_int() is None:  # otherwise torch has fixed it
                yield number, name, dim, size


def _dimension(program: Any, number: int, name: str, dim: int, size: Any) -> Dimension:
    where, expression = f"dimension {dim} of {name}", size.node.expr
    known = program.range_constraints.get(expression)
    if known is None or not str(known.upper).isdigit():  # the upper bound is infinite
        least = "" if known is None else f": {known.lower} or more"
        raise ConfigError(f"{where} has no upper bound{least}", hint=_BOUNDS)
    symbol, *others = expression.free_symbols
    factor = expression.coeff(symbol)
    offset = (expression - factor * symbol).expand()
    if others or not factor.is_Integer or not offset.is_Integer or factor < 1:
        raise ConfigError(f"{where} is {expression}, and no multiple of one size", hint=_BOUNDS)
    return Dimension(number, dim, name, str(symbol), int(factor), int(offset), int(known.lower), int(known.upper))


def shapes_for(dimensions: Sequence[Dimension], inputs: Inputs) -> Any:
    """Return `dynamic_shapes` for `torch.export.export` that fix all but the given dimensions.

    None if none is given.
    """
    if not dimensions:
        return None
    torch = load_torch()
    leaves, structure = torch.utils._pytree.tree_flatten(inputs)
    sizes: list[dict[int, Any]] = [{} for _ in leaves]
    roots: dict[str, Any] = {}
    for one in dimensions:
        least, most = ((bound - one.offset) // one.factor for bound in (one.least, one.most))
        root = roots.setdefault(one.symbol, torch.export.Dim(one.symbol, min=least, max=most))
        size = root if one.factor == 1 else one.factor * root
        sizes[one.input][one.number] = size + one.offset if one.offset else size
    tensors = [isinstance(leaf, torch.Tensor) for leaf in leaves]
    named = [of if tensor else None for of, tensor in zip(sizes, tensors, strict=True)]
    return torch.utils._pytree.tree_unflatten(named, structure)


def expanded_shapes(title: str, module: Any, inputs: Sequence[Any], shapes: Any) -> Any:
    """Return `dynamic_shapes` by argument, where torch.export's `ShapesCollection` or `AdditionalInputs` was given.

    Raise ConfigError where the inputs are copies: these objects refer to the caller's own tensors.
    """
    kept = load_torch().export
    if not isinstance(shapes, (kept.ShapesCollection, kept.AdditionalInputs)):
        return shapes
    try:
        return shapes.dynamic_shapes(module, tuple(inputs))
    except (TypeError, ValueError) as error:
        what = f"{title}: dynamic_shapes: {type(shapes).__name__}: {error}"
        raise ConfigError(what, hint="make it of the very tensors that are the example inputs") from None


def check_shapes(title: str, module: Any, inputs: Inputs, shapes: Any) -> None:
    """Raise ConfigError, with argument and dimension, for `dynamic_shapes` that do not fit the example inputs.

    This includes mistakes that torch.export accepts silently, such as a dimension that a tensor does not have. Other
    mistakes are left to torch.export.
    """
    try:
        named = inspect.signature(module.forward).bind(*inputs).arguments  # *xs is a tuple called xs in it
    except TypeError:
        return  # the module cannot be called with these inputs, which its run reports
    try:
        sizes: dict[str, tuple[int, str]] = {}
        for name, one in _by_name(named, shapes).items():
            _check_tensors(name, named[name], one, sizes)
    except ConfigError as error:
        raise ConfigError(f"{title}: dynamic_shapes: {error.message}", hint=_OF_EXAMPLE) from None


def _unfit(what: str) -> ConfigError:
    return ConfigError(what, hint=_OF_EXAMPLE)


def _by_name(named: Mapping[str, Any], shapes: Any) -> Mapping[str, Any]:
    """Return the parts of `dynamic_shapes` by the names of the arguments that they are for.

    `named` are the module's arguments by name; ConfigError is raised where `shapes` do not fit them.
    """
    if isinstance(shapes, Mapping):
        if strange := [repr(one) for one in shapes if one not in named]:
            raise _unfit(f"no input is called {', '.join(strange)}: there is {', '.join(named)}")
        return shapes
    if not isinstance(shapes, (tuple, list)):
        raise _unfit(f"{type(shapes).__name__} is given, and what is wanted is one of each input, or by name")
    if len(shapes) != len(named):
        raise _unfit(f"{len(shapes)} are given, and {len(named)} inputs: {', '.join(named)}")
    return dict(zip(named, shapes, strict=True))


def _check_tensors(name: str, value: Any, given: Any, sizes: dict[str, tuple[int, str]]) -> None:
    """Check the shapes given for a value and for all tensors in it.

    Args:
        name: the name of the value in messages.
        value: a tensor, a container of tensors, or anything else, which is not checked.
        given: the part of `dynamic_shapes` for the value; None: its sizes are fixed.
        sizes: size and place of each named dimension met so far; new ones are added.
    """
    if given is None:
        return
    if isinstance(value, load_torch().Tensor):
        _check_tensor(name, tuple(value.shape), given, sizes)
    elif isinstance(value, Mapping) and isinstance(given, Mapping):
        for key in value.keys() & given.keys():
            _check_tensors(f"{name}[{key!r}]", value[key], given[key], sizes)
    elif isinstance(value, (tuple, list)) and isinstance(given, (tuple, list)):
        for number, (one, of) in enumerate(zip(value, given)):  # noqa: B905 - torch.export compares the lengths
            _check_tensors(f"{name}[{number}]", one, of, sizes)


def _check_tensor(name: str, shape: tuple[int, ...], given: Any, sizes: dict[str, tuple[int, str]]) -> None:
    if isinstance(given, (tuple, list)):
        if len(given) != len(shape):
            raise _unfit(f"{name} has {len(shape)} dimensions, and {len(given)} are given")
        given = dict(enumerate(given))
    if not isinstance(given, Mapping):
        raise _unfit(f"{type(given).__name__} is given of {name}, and what is wanted is a dict of its dimensions")
    dims = load_torch().export.Dim
    for number, size in given.items():
        if not isinstance(number, int) or not 0 <= number < len(shape):
            raise _unfit(f"{name} has no dimension {number!r}: its shape is {list(shape)}")
        where = f"dimension {number} of {name}"
        if type(size) is dims:  # derived dimensions are checked by torch.export
            _check_size(where, shape[number], size, sizes)
        elif isinstance(size, type(dims.AUTO)) and size.max and not (size.min or 0) <= shape[number] <= size.max:
            wanted = f"{size.min or 0} to {size.max}"
            raise _unfit(f"{where} is {shape[number]} in the example, and is to be {wanted}")


def _check_size(where: str, size: int, dim: Any, sizes: dict[str, tuple[int, str]]) -> None:
    if size == 1:
        raise _unfit(f"{where} is 1 in the example, which torch.export makes a fixed size")
    if not dim.min <= size <= dim.max:
        raise _unfit(f"{where} is {size} in the example, and {dim.__name__} is {dim.min} to {dim.max}")
    known, first = sizes.setdefault(dim.__name__, (size, where))
    if known != size:
        raise _unfit(f"{where} is {size} in the example, and {first} is {known}: both are {dim.__name__}")


@dataclass(frozen=True, slots=True)
class _SizeRequest:
    """The place where a pass asked for the concrete number of a symbolic size, which fixes the size.

    Attributes:
        operator: the operator of the node that the pass was handling; "" if unknown.
        place: file and line of the pass; "" if unknown.
    """

    operator: str = ""
    place: str = ""

    @classmethod
    def in_frames(cls, frame: FrameType | None) -> _SizeRequest:
        """Return the request made by the innermost stack frame of ExecuTorch's Cortex-M backend."""
        place = ""
        while frame is not None:
            if _PASSES in frame.f_code.co_filename:
                place = place or f"{frame.f_code.co_filename.rpartition('/')[2]}:{frame.f_lineno}"
                for value in frame.f_locals.values():
                    if isinstance(value, load_torch().fx.Node) and hasattr(value.target, "_schema"):
                        return cls(f"{value.target._schema.name} ({value.name})", place)
            frame = frame.f_back
        return cls("", place)


@dataclass(eq=False)
class SizeWatch:
    """A watch that detects Cortex-M passes which fix an open size of an edge program's inputs.

    A pass that asks for the number of a symbolic size gets the size of the example input, which fixes the dimension:
    from then on, the program is for this size only.

    Attributes:
        title: the module's name, for messages.
        dimensions: the dimensions that must stay open.
        fixed_by: the request that fixed a size, by its symbol.
    """

    title: str
    dimensions: Sequence[Dimension]
    fixed_by: dict[Any, _SizeRequest] = field(default_factory=dict)

    @contextmanager
    def passes(self, program: Any) -> Iterator[None]:
        """Watch the passes that run within the block.

        Raises LoweringError, with the operator and the line of the pass, where a pass fixed a dimension.
        """
        sizes = {(number, dim): size for number, _, dim, size in _symbolic(program)}
        symbols = {place: size.node.expr.free_symbols for place, size in sizes.items()}
        with self._recording_requests():
            yield
        for one in self.dimensions:
            place = one.input, one.number
            if place not in sizes:
                self._refuse(one, "quantising, to_edge or an earlier lowering of it fixes it", "")
            if (size := sizes[place].node.maybe_as_int()) is not None:
                known = (self.fixed_by[symbol] for symbol in symbols[place] if symbol in self.fixed_by)
                by = next(known, _SizeRequest())
                where = f", in {by.place}" if by.place else ""
                what = f"ExecuTorch's Cortex-M passes fix it at {size}, its size in the example{where}"
                self._refuse(one, what, by.operator)

    def require_planned(self, file: PteFile) -> None:
        """Raise LoweringError where the program was not planned for the upper bounds."""
        for one in self.dimensions:
            value = file.values[file.inputs[one.input]]
            size = value.spec.shape[one.number] if value.spec is not None else 0
            if not value.is_dynamic or size != one.most:
                self._refuse(one, f"to_executorch plans it for {'at most ' if value.is_dynamic else ''}{size}", "")

    def _refuse(self, one: Dimension, what: str, operator: str) -> None:
        problem = f"{self.title}: {one} was to be {one.range}, and {what}"
        raise LoweringError(problem, operator=operator, hint=_EACH_SIZE)

    @contextmanager
    def _recording_requests(self) -> Iterator[None]:
        """Record within the block which pass asks for the number of a size, by patching a private method of torch."""
        environments = load_torch().fx.experimental.symbolic_shapes.ShapeEnv
        original = getattr(environments, "_set_replacement", None)
        if original is None or not self.dimensions:
            yield
            return

        def noted(environment: Any, symbol: Any, target: Any, *rest: Any, **named: Any) -> Any:
            if target.is_number:
                self.fixed_by.setdefault(symbol, _SizeRequest.in_frames(sys._getframe(1)))
            return original(environment, symbol, target, *rest, **named)

        with mock.patch.object(environments, "_set_replacement", noted):
            yield
