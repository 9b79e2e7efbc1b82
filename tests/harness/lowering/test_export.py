"""A module that is exported once and lowered for each target."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from cortex_m_hil.errors import ConfigError
from cortex_m_hil.lowering import Exported, Layout, LoweringOptions, clear_cache, export, lower
from cortex_m_hil.lowering.content import digest
from cortex_m_hil.lowering.live import strict_export
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
@pytest.mark.parametrize(
    ("layout", "quantize"), [("channels_last", True), ("channels_last", False), ("explicit", True)]
)
@pytest.mark.parametrize("name", MODULES)
def test_programs_and_references_are_those_of_the_module(name: str, layout: Layout, quantize: bool) -> None:
    """For each class, though an earlier lowering has worked with the same export."""
    module, options = MODULES[name](), LoweringOptions(layout=layout, quantize=quantize)
    exported = export(module, IMAGE, layout)
    content = digest(exported.program)
    for isa in Isa:
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


def test_the_layout_is_that_of_the_export() -> None:
    exported = export(normalized(), IMAGE, "explicit")
    operators = [one.operator for one in lower(exported, isa=Isa.DSP).file.instructions]
    assert "cortex_m::quantized_conv2d_nhwc.out" in operators


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda exported: lower(exported, IMAGE, isa=Isa.DSP), "an exported module has its inputs"),
        (lambda _: lower(normalized(), isa=Isa.DSP), "inputs are missing"),
        (
            lambda exported: lower(exported, isa=Isa.DSP, options=LoweringOptions(layout="explicit")),
            'layout="explicit": the module was exported for channels_last',
        ),
        (
            lambda _: export(normalized(), IMAGE, "nhwc"),  # type: ignore[arg-type]
            "layout='nhwc': there is none",
        ),
        (
            lambda _: export(normalized(), IMAGE[0]),  # type: ignore[arg-type]
            "inputs is a tuple of tensors",
        ),
        (lambda exported: export(exported, IMAGE), "it is exported already"),
    ],
)
def test_a_call_that_does_not_fit(call: Any, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        call(export(normalized(), IMAGE))


def test_a_lowering_works_on_a_copy() -> None:
    """Whatever torchao or ExecuTorch write to: the export is the float reference, and may be lowered again."""
    exported = export(normalized(), IMAGE)
    lower(exported, isa=Isa.MVE)
    plain = strict_export(normalized().eval().to(memory_format=torch.channels_last), exported.inputs)  # type: ignore[call-overload]
    assert isinstance(exported, Exported)
    for name, value in plain.state_dict.items():
        assert torch.equal(value, exported.program.state_dict[name])
