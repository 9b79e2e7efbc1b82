"""The nested graphs of a program, and the inlining of graphs for torch's modes, which make no difference on a target.

`with torch.no_grad():` in a module becomes a graph of its own in the export, called by an operator that sets the mode.
ExecuTorch's quantiser and Cortex-M passes look at the outermost graph alone: what is inside stays in float32.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from cortex_m_hil.lowering.installed_executorch import load_torch


def graphs_of(program: Any) -> Iterator[Any]:
    """Yield the graph of a `torch.export.ExportedProgram`, and its inner graphs, such as branches of `torch.cond`."""
    torch = load_torch()
    yield from (one.graph for one in program.graph_module.modules() if isinstance(one, torch.fx.GraphModule))


def has_modes(program: Any) -> bool:
    """Tell whether a part of the program is a graph of its own, for `torch.no_grad()` or disabled `torch.autocast`."""
    return any(_call_of(node) for graph in graphs_of(program) for node in graph.nodes)


def without_modes(program: Any) -> Any:
    """Return the module of a `torch.export.ExportedProgram`, with the graphs that `has_modes` finds inlined.

    The module has to be exported again. Its nodes keep their names and metadata, which nodes of inner graphs would lose
    in the new export.
    """
    from torch._export.utils import node_inline_

    torch = load_torch()
    module = program.module(check_guards=False)
    inside_out = [one for one in module.modules() if isinstance(one, torch.fx.GraphModule)][::-1]
    for outer in inside_out:
        for node in list(outer.graph.nodes):
            if found := _call_of(node):
                body, arguments = found
                with outer.graph.inserting_before(node):
                    call = outer.graph.call_module(body.target, arguments)
                node.replace_all_uses_with(call)
                outer.graph.erase_node(node)
                node_inline_(call)
    return module


def _call_of(node: Any) -> tuple[Any, tuple[Any, ...]] | None:
    """Return graph and arguments of a node that sets the gradient mode or disables autocast; None for other nodes.

    Such a graph can be inlined: the mode changes nothing on a target. Autocast that is enabled changes dtypes.
    """
    operators = load_torch().ops.higher_order
    if node.target is operators.wrap_with_set_grad_enabled:
        _, body, *arguments = node.args
        return body, tuple(arguments)
    if node.target is operators.wrap_with_autocast:
        _, _, enabled, _, body, *arguments = node.args
        return None if enabled else (body, tuple(arguments))
    return None
