"""Programs with operators that misbehave: hil_test::*, in builds with HIL_TEST_KERNELS (kernels/testing.cpp)."""

from __future__ import annotations

import functools
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from executorch.exir import EdgeCompileConfig, ExecutorchBackendConfig, to_edge
from torch import nn

from cortex_m_hil.lowering import quiet
from cortex_m_hil.lowering.bank_planning import planning_algorithm
from cortex_m_hil.lowering.pipeline import graph_nodes
from cortex_m_hil.lowering.redzone_planning import RedzonePlanner, planning_pass
from cortex_m_hil.program.program import Program
from cortex_m_hil.program.tensor import HostTensor

OPTIONS = {"HIL_TEST_KERNELS": "ON"}
UNMAPPED, UNDEFINED, STACK, UNALIGNED = range(4)
BUSY, ASLEEP = range(2)

LIBRARY: Any = torch.library.Library("hil_test", "DEF")  # type: ignore[no-untyped-call]
for operator in ("fault", "hang", "exit"):
    LIBRARY.define(f"{operator}(Tensor x, int kind) -> Tensor")
    LIBRARY.define(f"{operator}.out(Tensor x, int kind, *, Tensor(a!) out) -> Tensor(a!)")
    LIBRARY.impl(operator, lambda x, kind: x.clone(), "CompositeExplicitAutograd")
    LIBRARY.impl(f"{operator}.out", lambda x, kind, *, out: out.copy_(x), "CompositeExplicitAutograd")
for operator, arguments in (("stray", "int at, int byte"), ("overcopy", "int extra"), ("peek", "int at")):
    LIBRARY.define(f"{operator}(Tensor x, {arguments}) -> Tensor")
    LIBRARY.define(f"{operator}.out(Tensor x, {arguments}, *, Tensor(a!) out) -> Tensor(a!)")
    LIBRARY.impl(operator, lambda x, *_: x.clone(), "CompositeExplicitAutograd")
    LIBRARY.impl(f"{operator}.out", lambda x, *_, out: out.copy_(x), "CompositeExplicitAutograd")


class Misbehaving(nn.Module):
    """A module with one of the operators that misbehave, after one that does not: it is not instruction 0."""

    def __init__(self, operator: str, kind: int) -> None:
        super().__init__()
        self.operator = getattr(torch.ops.hil_test, operator)
        self.kind = kind

    def forward(self, x: Any) -> Any:
        return self.operator(torch.clone(x), self.kind)


def program(module: nn.Module, inputs: tuple[torch.Tensor, ...] = (torch.ones(4),)) -> Program:
    """Return the program as ExecuTorch alone lowers it, so that it has no names but those of the operators."""
    with quiet():
        exported = torch.export.export(module.eval(), inputs, strict=True)
        lowered = to_edge(exported, compile_config=EdgeCompileConfig(_check_ir_validity=False)).to_executorch()
    return Program.from_bytes(lowered.buffer, f"{type(module).__name__}.pte")


def with_redzones(module: nn.Module, shape: tuple[int, ...] = (4,)) -> Program:
    """Return the program of a module, planned with red zones, with names of graph nodes and its example input."""
    planner = RedzonePlanner(planning_algorithm((), "it"))
    with quiet():
        exported = torch.export.export(module.eval(), (torch.ones(shape),), strict=True)
        edge = to_edge(exported, compile_config=EdgeCompileConfig(_check_ir_validity=False))
        lowered = edge.to_executorch(ExecutorchBackendConfig(memory_planning_pass=planning_pass(planner)))
    made = Program.from_bytes(lowered.buffer, f"{type(module).__name__}.pte")
    return replace(
        made,
        size_without_redzones=planner.size_without_redzones,
        nodes=graph_nodes(lowered, made.file),
        inputs=ones(shape),
    )


@functools.cache
def bad(operator: str, kind: int) -> Program:
    return program(Misbehaving(operator, kind))


def ones(shape: tuple[int, ...] = (4,)) -> tuple[HostTensor, ...]:
    return (HostTensor.from_array(np.ones(shape, np.float32)),)
