"""A module that is exported once and lowered for each target."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest
import torch
from executorch.backends.cortex_m.quantizer.quantizer import CortexMQuantizer
from executorch.exir import to_edge
from torch import nn
from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e

from cortex_m_hil.errors import ConfigError, LoweringError
from cortex_m_hil.lowering import Exported, Layout, LoweringOptions, clear_cache, export, lower
from cortex_m_hil.lowering.content_digest import digest
from cortex_m_hil.lowering.module_export import strict_export
from cortex_m_hil.targets.cpu import Isa
from networks import Net

IMAGE = (torch.linspace(-1, 1, 3 * 17 * 17).reshape(1, 3, 17, 17),)


def normalized() -> nn.Module:
    """Quantising folds a batch norm into the weights before it."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 4, 1))


def network() -> nn.Module:
    torch.manual_seed(0)
    return Net()


MODULES = {"normalized": normalized, "network": network}


# ExecuTorch has no float operators in the explicit layout.
@pytest.mark.slow
@pytest.mark.parametrize(
    ("layout", "quantize"), [("channels_last", True), ("channels_last", False), ("explicit", True)]
)
@pytest.mark.parametrize("name", MODULES)
@pytest.mark.parametrize("classes", [(Isa.MVE, Isa.DSP), tuple(Isa)], ids=["two", "all"])
def test_programs_and_references_are_those_of_the_module(
    name: str, layout: Layout, quantize: bool, classes: tuple[Isa, ...]
) -> None:
    """For each class, though an earlier lowering has worked with the same export."""
    module, options = MODULES[name](), LoweringOptions(layout=layout, quantize=quantize)
    exported = export(module, IMAGE, layout)
    content = digest(exported.program)
    for isa in classes:
        clear_cache()
        one = lower(exported, isa=isa, options=options)
        clear_cache()
        other = lower(module, IMAGE, isa=isa, options=options)
        assert one.pte == other.pte and one.name == other.name == type(module).__name__
        assert one.reference is not None and other.reference is not None
        some, others = (program.reference(program.inputs) for program in (one, other))  # type: ignore[misc]
        for kind in ("dialect", "quantized", "eager"):
            for array, wanted in zip(getattr(some, kind) or (), getattr(others, kind) or (), strict=True):
                np.testing.assert_array_equal(array, wanted)
    assert digest(exported.program) == content


@pytest.mark.slow
@pytest.mark.parametrize("strict", [True, False])
@pytest.mark.parametrize("layout", ["channels_last", "explicit"])
def test_a_program_of_torchs_own_export_gives_the_bytes_of_its_module(layout: Layout, strict: bool) -> None:
    """Names of nodes and modules too; the user's program stays as it is."""
    module = normalized().eval()
    program = torch.export.export(module, IMAGE, strict=strict)
    content, options = digest(program), LoweringOptions(layout=layout)
    for isa in Isa:
        one, other = lower(program, isa=isa, options=options), lower(module, IMAGE, isa=isa, options=options)
        assert (one.pte, one.nodes, one.name) == (other.pte, other.nodes, other.name)
    graph = lower(program.module(), IMAGE, isa=Isa.DSP, options=options)  # with a call that checks shapes
    whole = lower(module, IMAGE, isa=Isa.DSP, options=options)
    assert [one.operator for one in graph.file.instructions] == [one.operator for one in whole.file.instructions]
    others = lower(program, (IMAGE[0] + 1,), isa=Isa.DSP, options=options)
    assert others.pte == lower(module, (IMAGE[0] + 1,), isa=Isa.DSP, options=options).pte
    assert digest(program) == content


def prepared() -> tuple[Any, tuple[torch.Tensor]]:
    """A graph that PT2E has calibrated, and its inputs."""
    inputs = (IMAGE[0].to(memory_format=torch.channels_last),)
    laid_out: nn.Module = normalized().eval().to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    graph = prepare_pt2e(torch.export.export(laid_out, inputs).module(check_guards=False), CortexMQuantizer())
    graph(*inputs)
    return graph, inputs


@functools.cache
def converted() -> tuple[Any, tuple[torch.Tensor]]:
    graph, inputs = prepared()
    return convert_pt2e(graph), inputs


@pytest.mark.slow
def test_what_pt2e_converted_is_lowered_as_it_is() -> None:
    module = normalized().eval()
    graph, inputs = converted()
    float_options = LoweringOptions(quantize=False)
    one, other = lower(graph, inputs, isa=Isa.DSP, options=float_options), lower(module, IMAGE, isa=Isa.DSP)
    assert [call.operator for call in one.file.instructions] == [call.operator for call in other.file.instructions]
    assert one.reference is not None and other.reference is not None
    ours, theirs = (program.reference(program.inputs).dialect for program in (one, other))  # type: ignore[misc]
    assert ours is not None and theirs is not None
    np.testing.assert_array_equal(ours[0], theirs[0])
    again = lower(torch.export.export(graph, inputs), isa=Isa.DSP, options=float_options)
    assert {call.operator for call in again.file.instructions} == {call.operator for call in one.file.instructions}


class Holds(nn.Module):
    """A module of the user's with another inside."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: Any) -> Any:
        return self.inner(x)


@pytest.mark.first_only
@pytest.mark.parametrize("wrap", [lambda graph: graph, Holds], ids=["itself", "within"])
def test_what_pt2e_converted_is_not_quantised_twice(wrap: Any) -> None:
    graph, inputs = converted()
    for given in (wrap(graph), torch.export.export(wrap(graph), inputs)):
        with pytest.raises(
            ConfigError, match=r": the module is quantised already \(\d+ operators such as quan"
        ) as raised:
            lower(given, inputs, isa=Isa.DSP)
        assert "quantize=False lowers it as it is" in raised.value.hint
        assert "GraphModule" not in raised.value.message


def test_what_is_still_to_be_converted() -> None:
    graph, inputs = prepared()
    for quantize in (True, False):
        with pytest.raises(ConfigError, match=r"Sequential: .*not converted: it has a HistogramObserver") as raised:
            lower(graph, inputs, isa=Isa.DSP, options=LoweringOptions(quantize=quantize))
        assert "convert_pt2e(prepared)" in raised.value.hint


@pytest.mark.slow
def test_the_name_is_that_of_the_module_whatever_it_came_through() -> None:
    module = Holds(nn.Linear(4, 2)).eval()
    inputs = (torch.rand(1, 4),)
    for strict in (True, False):
        program = torch.export.export(module, inputs, strict=strict)
        again = torch.export.export(program.module(), inputs, strict=strict)
        for given in (program, program.module(), again):
            assert lower(given, inputs, isa=Isa.DSP).name == "Holds"


def linear(**arguments: Any) -> Any:
    return torch.export.export(nn.Linear(4, 2), (torch.rand(3, 4),), **arguments)


def named() -> Any:
    return torch.export.export(nn.Linear(4, 2), (), {"input": torch.rand(3, 4)})


@functools.cache
def edge() -> Any:
    return to_edge(linear())


@functools.cache
def executorch() -> Any:
    return to_edge(linear()).to_executorch()


def without_inputs() -> Any:
    program = torch.export.export(nn.Linear(4, 2), (torch.rand(3, 4),))
    program.example_inputs = None
    return program


@pytest.mark.first_only
@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: linear().run_decompositions(), r"is decomposed \(aten.addmm.default\)"),
        (lambda: edge().exported_program(), "is one of to_edge or to_executorch"),
        (lambda: executorch().exported_program(), "is one of to_edge or to_executorch"),
        (edge, "ExportedProgram, not a EdgeProgramManager"),
        (executorch, "ExportedProgram, not a ExecutorchProgramManager"),
        (named, "takes keyword arguments: input"),
        (without_inputs, "has no example inputs"),
    ],
)
def test_an_exported_program_that_cannot_be_lowered(make: Any, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        lower(make(), isa=Isa.DSP)


@pytest.mark.slow
def test_decompositions_that_change_nothing_are_no_mistake() -> None:
    program = linear()
    one, other = lower(program.run_decompositions({}), isa=Isa.DSP), lower(program, isa=Isa.DSP)
    assert one.pte == other.pte


def test_an_export_for_training_is_told_so() -> None:
    program = torch.export.export(normalized().train(), IMAGE)
    with pytest.raises(LoweringError, match=r"running_mean, 1\.running_var") as raised:
        lower(program, isa=Isa.DSP)
    assert "was it exported for training? module.eval()" in raised.value.hint


def test_what_is_no_module_is_told_before_its_inputs_are_asked_for() -> None:
    with pytest.raises(ConfigError, match=r"a torch.nn.Module or a torch.export.ExportedProgram, not a str"):
        lower("model.pt2", isa=Isa.DSP)


def test_it_is_the_module_as_it_was() -> None:
    module = nn.Linear(4, 2)
    x = torch.ones(1, 4)
    exported, before = export(module, (x,)), module(x).detach().numpy()
    with torch.no_grad():
        module.bias.fill_(100)
    program = lower(exported, isa=Isa.DSP)
    assert program.reference is not None
    found = program.reference(program.inputs)
    assert found.eager is not None and found.dialect is not None
    np.testing.assert_array_equal(found.eager[0], before)
    np.testing.assert_allclose(found.dialect[0], before, atol=0.05)


@pytest.mark.slow
@pytest.mark.parametrize("layout", ["channels_last", "explicit"])
def test_other_inputs_for_the_same_export(layout: Layout) -> None:
    """The program and references are those of the module with these inputs, which calibrate it."""
    others, options = (IMAGE[0] * 3 + 1,), LoweringOptions(layout=layout)
    module = normalized()
    other = lower(module, others, isa=Isa.DSP, options=options)
    for given in (module, torch.export.export(module.eval(), IMAGE)):
        exported = export(given, IMAGE if given is module else None, layout)
        one = lower(exported, others, isa=Isa.DSP, options=options)
        assert one.pte == other.pte and one.inputs[0].data == other.inputs[0].data
        assert one.reference is not None and other.reference is not None
        some, more = (program.reference(program.inputs).eager for program in (one, other))  # type: ignore[misc]
        np.testing.assert_allclose(some[0], more[0], rtol=1e-5)  # type: ignore[index]


@pytest.mark.slow
def test_the_layout_is_that_of_the_export() -> None:
    exported = export(normalized(), IMAGE, "explicit")
    operators = [one.operator for one in lower(exported, isa=Isa.DSP).file.instructions]
    assert "cortex_m::quantized_conv2d_nhwc.out" in operators


@pytest.fixture(scope="module")
def exported() -> Exported:
    return export(normalized(), IMAGE)


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (
            lambda exported: lower(exported, (IMAGE[0][..., :5],), isa=Isa.DSP),
            r"Sequential: the inputs are \(Tensor float32\[1, 3, 17, 5\],\), it was exported with \(Tensor",
        ),
        (lambda _: lower(normalized(), isa=Isa.DSP), "inputs are missing"),
        (
            lambda exported: lower(exported, isa=Isa.DSP, options=LoweringOptions(layout="explicit")),
            'layout="explicit": the module was exported for channels_last',
        ),
        (
            lambda _: export(normalized(), IMAGE, "nhwc"),  # type: ignore[arg-type]
            "layout='nhwc': there is no such layout",
        ),
        (
            lambda _: export(normalized(), IMAGE[0]),  # type: ignore[arg-type]
            "inputs is a tuple of tensors",
        ),
        (lambda exported: export(exported, IMAGE), "it is exported already"),
    ],
)
def test_a_call_that_does_not_fit(exported: Exported, call: Any, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        call(exported)


@pytest.mark.slow
def test_a_lowering_works_on_a_copy() -> None:
    """Whatever torchao or ExecuTorch write to: the export is the float reference, and may be lowered again."""
    exported = export(normalized(), IMAGE)
    lower(exported, isa=Isa.MVE)
    plain = strict_export(normalized().eval().to(memory_format=torch.channels_last), exported.inputs)  # type: ignore[call-overload]
    assert isinstance(exported, Exported)
    for name, value in plain.state_dict.items():
        assert torch.equal(value, exported.program.state_dict[name])
