"""Values of the host models at each instruction, where they need more than a look at a graph."""

from __future__ import annotations

from collections import Counter
from types import SimpleNamespace
from typing import Any

import torch
from torch.fx import Graph, Node

from cortex_m_hil.host.random_generators import seed
from cortex_m_hil.lowering import lower
from cortex_m_hil.lowering.intermediates import _Floats, _on_right_inputs, _Origin
from cortex_m_hil.targets.cpu import Isa
from random_networks import ResidualNorms


class Floats(_Floats):
    """Knows fake-quant's value of the first node that computes, and of no other."""

    def __init__(self, first: Node) -> None:
        super().__init__(SimpleNamespace(quantized=None, quantised_inputs={}), None, ())  # type: ignore[arg-type]
        self.first = first

    def origin(self, node: Node, value: Any) -> _Origin | None:
        return _Origin(torch.full((3,), 2.0), torch.zeros(3)) if node is self.first else None


def test_a_node_is_computed_once_however_many_read_it() -> None:
    calls: Counter[str] = Counter()

    def plus(one: Any, other: Any) -> Any:
        calls["plus"] += 1
        return one + other

    graph = Graph()
    first = graph.call_function(torch.neg, (graph.placeholder("x"),))
    first.meta["output_qparams"] = {0: SimpleNamespace(scale=1.0, zp=0, qmin=-128, qmax=127)}
    one, other = first, graph.call_function(plus, (first, first))
    for _ in range(20):
        one, other = graph.call_function(plus, (one, other)), graph.call_function(plus, (other, one))
    dialect = dict.fromkeys(graph.nodes, torch.zeros(3, dtype=torch.int32))
    found = _on_right_inputs(graph.call_function(plus, (one, other)), dialect, Floats(first))
    assert found.tolist() == [2 * 3 * 2**20] * 3 and calls["plus"] == 42


def test_what_follows_an_operator_of_several_outputs_is_computed_on_right_inputs() -> None:
    """A layer norm has three: on fake-quant's integers it gives fake-quant's floats."""
    seed(0)
    program = lower(ResidualNorms(2), (torch.rand(60, 80),), isa=Isa.DSP)
    assert program.intermediates is not None
    found = [
        (instruction.operator, value.graph_quanta)
        for instruction, value in zip(program.file.instructions, program.intermediates(program.inputs), strict=True)
    ]
    norms = [quanta for operator, quanta in found if operator == "cortex_m::quantize_per_tensor.out"]
    assert norms[1:] == [0] * (len(norms) - 1) and len(norms) > 2
