"""The host models' values at each instruction of a program, to find the instruction at which a target or pass deviates.

An instruction belongs to the node of the same name in the dialect's graph. The counterpart of this node in the
fake-quantised graph is found by the node's earlier names, and accepted if it has the same quantisation.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import torch
from torch.fx import Interpreter, Node
from torch.utils import _pytree as pytree

from cortex_m_hil.lowering.mutable_buffers import state_restored
from cortex_m_hil.lowering.node_origins import names
from cortex_m_hil.lowering.reference import HostModels, as_floats, kernel_arithmetic, to_torch
from cortex_m_hil.program.program import Intermediate
from cortex_m_hil.program.pte_file import PteFile
from cortex_m_hil.program.tensor import Array, HostTensor
from cortex_m_hil.program.values import Instruction

_FUSED: Final = 4  # at most so many nodes from an operator to the quantise after it: convolution, batch norm, relu, …
_TO_NHWC: Final = (0, 2, 3, 1)


@dataclass(frozen=True)
class _Grid:
    """The quantisation of a node's integers: the grid of values that they can represent."""

    scale: float
    zero_point: int
    qmin: int
    qmax: int

    @classmethod
    def of(cls, node: Node) -> _Grid | None:
        """Read the grid from a node's metadata, or from a quantise operator's arguments.

        None is returned for a node that has neither, or is quantised per channel.
        """
        if "quantize_per_tensor" in node.name and not node.name.startswith("de") and len(node.args) >= 5:
            found = node.args[1:5]
        else:
            noted = node.meta.get("output_qparams") or {}
            if set(noted) != {0}:
                return None
            found = (noted[0].scale, noted[0].zp, noted[0].qmin, noted[0].qmax)
        if not isinstance(found[0], float) or not all(isinstance(one, int) for one in found[1:]):
            return None
        return cls(*found)  # type: ignore[arg-type]

    def quantize(self, values: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
        whole = torch.round(values * (1.0 / self.scale)) + self.zero_point  # as quantize_per_tensor of torchao does
        return torch.empty_like(like).copy_(whole.clamp(self.qmin, self.qmax))


class _Recorder(Interpreter):
    """An interpreter that runs a graph and keeps the value of each node."""

    def __init__(self, module: Any) -> None:
        super().__init__(module, garbage_collect_values=False)
        self.values: dict[Node, Any] = {}

    def run_node(self, node: Node) -> Any:
        self.values[node] = super().run_node(node)
        return self.values[node]


def _record(module: Any, inputs: Sequence[HostTensor], structure: Any, states: Sequence[str] = ()) -> dict[Node, Any]:
    recorder = _Recorder(module)
    leaves = [to_torch(value) for value in inputs]
    with torch.no_grad(), state_restored(module, states):
        recorder.run(*pytree.tree_unflatten(leaves, structure))
    return recorder.values


def intermediates(
    file: PteFile,
    nodes: Sequence[str],
    sources: Sequence[str],
    models: HostModels,
    eager: Any | None,
    inputs: Sequence[HostTensor],
) -> tuple[Intermediate, ...]:
    """Return for each instruction the values that the host models compute for it.

    Unknown values are empty: ``dialect`` where no node of the dialect has the instruction's name, dtypes and shapes;
    the others where the instruction has no counterpart in the fake-quantised graph.

    Args:
        file: the program.
        nodes: the graph node of each instruction (`Program.nodes`).
        sources: the user's `file:line` of each instruction.
        models: the host models of the program.
        eager: the exported float program; None if not known.
        inputs: the program's inputs.
    """
    with kernel_arithmetic():
        dialect = _record(models.dialect, inputs, models.structure, models.states)
        floats = _Floats(models, eager, inputs)
        by_name = {node.name: node for node in dialect}
        found = []
        for instruction, name, source in zip(file.instructions, nodes, sources, strict=True):
            node = by_name.get(name.partition(" ")[0])
            found.append(replace(_intermediate(file, instruction, node, dialect, floats), source=source))
    return tuple(found)


def _intermediate(
    file: PteFile, instruction: Instruction, node: Node | None, dialect: Mapping[Node, Any], floats: _Floats
) -> Intermediate:
    values = () if node is None else _fitting(file, instruction, dialect[node])
    if node is None or not values:
        return Intermediate()
    origin = floats.origin(node, dialect[node])
    grid = _Grid.of(node)
    if origin is None or grid is None:
        return Intermediate(values)
    return Intermediate(
        values,
        quantized=_array(origin.quantized),
        eager=_array(origin.eager),
        scale=grid.scale,
        zero_point=grid.zero_point,
        graph_quanta=_graph_quanta(node, dialect, floats, grid, origin.quantized),
    )


def _fitting(file: PteFile, instruction: Instruction, value: Any) -> tuple[HostTensor, ...]:
    """Return a node's values in the program's dim orders, or an empty tuple where dtypes or shapes differ."""
    items = value if isinstance(value, (tuple, list)) else (value,)
    places = file.dataflow.written[instruction.index]
    if len(items) != len(places):
        return ()
    found = []
    for item, place in zip(items, places, strict=True):
        spec = file.values[place].spec_of(tuple(item.shape)) if isinstance(item, torch.Tensor) else None
        if spec is None:
            return ()
        laid_out = HostTensor.from_array(_array(item), spec.dim_order)
        if laid_out.spec != spec:
            return ()
        found.append(laid_out)
    return tuple(found)


def _array(value: torch.Tensor) -> Array:
    return np.asarray(value.detach().cpu().numpy())


@dataclass(frozen=True, eq=False)
class _Origin:
    """The values that the fake-quantised and the float model compute at one node of the dialect, in its dim order."""

    quantized: torch.Tensor
    eager: torch.Tensor


class _Floats:
    """The recorded values of the fake-quantised and the float graph, to be found by nodes of the dialect."""

    def __init__(self, models: HostModels, eager: Any | None, inputs: Sequence[HostTensor]) -> None:
        inputs = as_floats(tuple(inputs), models.quantised_inputs)
        self._quantized = (
            {} if models.quantized is None else _record(models.quantized, inputs, models.structure, models.states)
        )
        self._nodes = {node.name: node for node in self._quantized}
        module = None if eager is None else eager.module(check_guards=False)
        floats = {} if module is None else _record(module, inputs, models.structure, models.states)
        self._eager = {node.name: value for node, value in floats.items()}
        self.on_right_inputs: dict[Node, Any] = {}  # results of `_on_right_inputs`, which several nodes may read

    def origin(self, node: Node, value: Any) -> _Origin | None:
        grid = _Grid.of(node)
        if grid is None or not isinstance(value, torch.Tensor) or value.is_floating_point():
            return None
        for name in names(node):
            found = self._observed(self._nodes[name], grid) if name in self._nodes else None
            if found is not None and found.name in self._eager:
                pair = self._quantized[found], self._eager[found.name]
                laid_out = [_laid_out(one, value) for one in pair]
                if laid_out[0] is not None and laid_out[1] is not None:
                    return _Origin(laid_out[0], laid_out[1])
        return None

    def _observed(self, node: Node, grid: _Grid) -> Node | None:
        """Return `node` or a following node whose value is quantised on this grid; None if there is none."""
        if _quantizes(node):
            source = node.args[0]
            return source if _Grid.of(node) == grid and isinstance(source, Node) else None
        waiting = [(node, _FUSED)]
        while waiting:
            at, left = waiting.pop(0)
            for user in at.users:
                if _quantizes(user):
                    if _Grid.of(user) == grid:
                        return at
                elif left:
                    waiting.append((user, left - 1))
        return None


def _quantizes(node: Node) -> bool:
    return node.op == "call_function" and node.name.startswith("quantize_per_tensor")


def _laid_out(value: Any, like: torch.Tensor) -> torch.Tensor | None:
    """Return a float value in the dialect's shape, or None where its shape does not fit."""
    if not isinstance(value, torch.Tensor):
        return None
    if value.shape == like.shape:
        return value
    if value.dim() == 4 and value.permute(_TO_NHWC).shape == like.shape:
        return value.permute(_TO_NHWC)
    return None


def _graph_quanta(
    node: Node, dialect: Mapping[Node, Any], floats: _Floats, grid: _Grid, expected: torch.Tensor
) -> int | None:
    """Return the distance in quanta of a node from fake-quant when it gets fake-quant's inputs.

    None if one is not known. If the passes built the right node, equal inputs give results that differ only by
    rounding.
    """
    got = _on_right_inputs(node, dialect, floats)
    if got is None:
        return None
    wanted = grid.quantize(expected, got)
    return int((got.to(torch.int32) - wanted.to(torch.int32)).abs().max()) if got.numel() else 0


def _on_right_inputs(node: Node, dialect: Mapping[Node, Any], floats: _Floats) -> Any:
    """Return the value that a node computes from fake-quant's tensors as inputs.

    None where one of these is not known.
    """
    if node not in floats.on_right_inputs:
        floats.on_right_inputs[node] = _computed_on_right_inputs(node, dialect, floats)
    return floats.on_right_inputs[node]


def _computed_on_right_inputs(node: Node, dialect: Mapping[Node, Any], floats: _Floats) -> Any:
    inputs: dict[Node, Any] = {}
    for used in node.all_input_nodes:
        inputs[used] = value = dialect[used]
        if used.op == "call_function" and isinstance(value, (torch.Tensor, tuple)) and "alloc" not in used.name:
            origin, grid = floats.origin(used, value), _Grid.of(used)
            if origin is not None and grid is not None and isinstance(value, torch.Tensor):
                inputs[used] = grid.quantize(origin.quantized, value)
            else:
                inputs[used] = _on_right_inputs(used, dialect, floats)
            if inputs[used] is None:
                return None
    if not any(used.op == "call_function" for used in inputs):
        return None  # the node reads the program's inputs only
    arguments, keywords = torch.fx.map_arg((node.args, node.kwargs), lambda used: inputs[used])
    with torch.no_grad():
        return node.target(*arguments, **keywords)  # type: ignore[operator]
