"""torch's modes (gradients, inference, autocast off) change nothing of what a target runs, in a module or around it."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e

from cortex_m_hil.errors import LoweringError
from cortex_m_hil.lowering import LoweringOptions, export, lower
from cortex_m_hil.lowering.installed_executorch import executorch_api
from cortex_m_hil.lowering.nested_graphs import graphs_of
from cortex_m_hil.program.program import Program
from cortex_m_hil.targets.cpu import Isa

Mode = Callable[[], AbstractContextManager[Any]]
MODES: dict[str, Mode] = {
    "enable_grad": torch.enable_grad,
    "no_grad": torch.no_grad,
    "inference_mode": torch.inference_mode,
    "autocast off": lambda: torch.autocast("cpu", enabled=False),
}
AROUND: dict[str, Mode] = {**MODES, "autocast": lambda: torch.autocast("cpu")}
X = torch.linspace(-1, 1, 4).reshape(1, 4)


class Layers(nn.Module):
    """What `work` computes with these layers, which are the same in each."""

    def __init__(self, work: Callable[[Any, Any], Any]) -> None:
        super().__init__()
        self.work = work
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            self.first, self.last = nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x: Any) -> Any:
        return self.work(self, x)


class Cache(nn.Module):
    """A running mean, which is written to in a mode."""

    mean: torch.Tensor

    def __init__(self, mode: Mode) -> None:
        super().__init__()
        self.mode = mode
        self.register_buffer("mean", torch.zeros(1, 4))

    def forward(self, x: Any) -> Any:
        with self.mode():
            self.mean.mul_(0.5).add_(x)
        return self.mean + 1


def plain(self: Any, x: Any) -> Any:
    return self.last(self.first(x))


def in_mode(mode: Mode) -> Callable[[Any, Any], Any]:
    def work(self: Any, x: Any) -> Any:
        with mode():
            x = self.first(x)
        return self.last(x)

    return work


def one_in_the_other(self: Any, x: Any) -> Any:
    with torch.no_grad():
        x = self.first(x)
        with torch.enable_grad():
            return self.last(x)


@torch.no_grad()
def as_a_whole(self: Any, x: Any) -> Any:
    return self.last(self.first(x))


FORMS: dict[str, Callable[[Any, Any], Any]] = {
    **{name: in_mode(mode) for name, mode in MODES.items()},
    "one in the other": one_in_the_other,
    "as a whole": as_a_whole,
}


def lowered(module: Any, inputs: Any = (X,), **options: Any) -> Program:
    return lower(module, inputs, isa=Isa.DSP, name="Layers", **options)


@functools.cache
def in_no_mode() -> Program:
    return lowered(Layers(plain))


@pytest.mark.slow
@pytest.mark.parametrize("form", FORMS)
def test_what_a_module_computes_in_a_mode_is_quantised(form: str) -> None:
    wanted = in_no_mode()
    assert [node for node in wanted.nodes if "linear" in node] == [
        "cortex_m_quantized_linear_default (first)",
        "cortex_m_quantized_linear_default_1 (last)",
    ]
    module = Layers(FORMS[form]).eval()
    with torch.no_grad():  # what was made in inference mode needs it in other modes
        module(X)
        exported = torch.export.export(module, (X,), strict=True)
    for given in (module, exported, *exported_with_gradients(module)):
        program = lowered(given)
        assert program.pte == wanted.pte and program.nodes == wanted.nodes


@pytest.mark.slow
def test_what_executorchs_quantiser_does_not_see() -> None:
    """Known bug 40, by ExecuTorch's own steps; where this fails, they look into graphs inside a graph."""
    quantizer = executorch_api().quantizer()
    found = []
    for form in (plain, as_a_whole):
        exported = torch.export.export(Layers(form).eval(), (X,), strict=True)
        prepared = prepare_pt2e(exported.module(check_guards=False), quantizer)
        prepared(X)
        exported = torch.export.export(convert_pt2e(prepared), (X,), strict=True)
        nodes = [node for graph in graphs_of(exported) for node in graph.nodes]
        linear = [node for node in nodes if node.target is torch.ops.aten.linear.default]
        found.append(["dequantize" in str(node.args[1].target) for node in linear])
    assert found == [[True, True], [False, False]]


def exported_with_gradients(module: Any) -> list[Any]:
    """Torch refuses to go on with gradients on what was made in inference mode."""
    with contextlib.suppress(RuntimeError):
        return [torch.export.export(module, (X,), strict=True)]
    return []


@pytest.mark.first_only
@pytest.mark.parametrize("mode", AROUND)
def test_the_callers_mode_makes_no_difference(mode: str) -> None:
    wanted = in_no_mode()
    with AROUND[mode]():
        program = lowered(Layers(plain), (X.clone(),))
        assert program.pte == wanted.pte and program.reference is not None and wanted.reference is not None
        found, other = program.reference(program.inputs), wanted.reference(wanted.inputs)
    for kind in ("eager", "quantized", "dialect"):
        np.testing.assert_array_equal(getattr(found, kind)[0], getattr(other, kind)[0])


@pytest.mark.first_only
@pytest.mark.parametrize("frozen", [False, pytest.param(True, marks=pytest.mark.slow)])
@pytest.mark.parametrize("mode", AROUND)
def test_attention_is_lowered_in_its_parts(mode: str, frozen: bool) -> None:
    """Without gradients torch runs an encoder's layer as one operator, which no target has."""
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True).requires_grad_(not frozen)
    with AROUND[mode]():
        nodes = [str(node.target) for node in export(layer, (torch.rand(1, 5, 8),)).program.graph.nodes]
    assert not [node for node in nodes if "encoder" in node or "multi_head" in node]
    assert nodes.count("aten.linear.default") == 4
    assert torch.backends.mha.get_fastpath_enabled()


@pytest.mark.slow
@pytest.mark.parametrize("mode", MODES)
def test_state_that_is_written_to_in_a_mode_is_kept(mode: str) -> None:
    program = lowered(Cache(MODES[mode]), options=LoweringOptions(quantize=False))
    assert program.state_names == ("mean",)
    assert program.pte == lowered(Cache(MODES["enable_grad"]), options=LoweringOptions(quantize=False)).pte


@pytest.mark.slow
def test_several_values_leave_a_mode() -> None:
    def halves(mode: Mode) -> Callable[[Any, Any], Any]:
        def work(self: Any, x: Any) -> Any:
            with mode():
                one, other = torch.split(self.first(x), 2, 1)
            return torch.cat([other, one], 1), self.last(x), other

        return work

    assert lowered(Layers(halves(torch.no_grad))).pte == lowered(Layers(halves(torch.enable_grad))).pte


@pytest.mark.slow
def test_a_mode_and_dynamic_shapes() -> None:
    shapes = {"x": {0: torch.export.Dim("batch", min=1, max=8)}}
    some = torch.rand(3, 4)
    wanted = lowered(Layers(plain), (some,), dynamic_shapes=shapes)
    assert lowered(Layers(as_a_whole), (some,), dynamic_shapes=shapes).pte == wanted.pte


def drawing(self: Any, x: Any) -> Any:
    return self.last(x + torch.rand(4))


def drawing_in_a_branch(self: Any, x: Any) -> Any:
    def some(x: Any) -> Any:
        with torch.no_grad():
            return x + torch.rand(4)

    return self.last(torch.cond(x.sum() > 0, some, lambda x: x + 1, (x,)))


@pytest.mark.parametrize("work", [torch.no_grad()(drawing), drawing_in_a_branch])
def test_random_numbers_are_found_inside(work: Callable[[Any, Any], Any]) -> None:
    with pytest.raises(
        LoweringError, match=rf"^Layers: forward draws random numbers at {__file__}:\d+, with aten.rand"
    ):
        export(Layers(work), (X,))


@pytest.mark.slow
def test_a_mode_in_a_branch() -> None:
    def branches(mode: Mode) -> Callable[[Any, Any], Any]:
        def work(self: Any, x: Any) -> Any:
            def some(x: Any) -> Any:
                with mode():
                    return x + 1

            return torch.cond(x.sum() > 0, some, lambda x: x - 1, (self.last(x),))

        return work

    options = LoweringOptions(quantize=False)
    one, other = (lowered(Layers(branches(mode)), options=options).pte for mode in (torch.no_grad, torch.enable_grad))
    assert one == other
