"""Buffers that forward changes become state of the program, whatever PT2E thinks of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from cortex_m_hil.errors import ConfigError, LoweringError
from cortex_m_hil.lowering import LoweringOptions, lower
from cortex_m_hil.lowering.pipeline import cache
from cortex_m_hil.lowering.reference import to_host
from cortex_m_hil.program.program import Program
from cortex_m_hil.targets.cpu import Isa

X = torch.linspace(-1, 1, 4).reshape(1, 4)
Change = Callable[[torch.Tensor, torch.Tensor], Any]


class Keeps(nn.Module):
    """Gives a layer of what it keeps, after it has changed that."""

    state: torch.Tensor

    def __init__(self, change: Change, *shape: int, first: float = 0.0, persistent: bool = True) -> None:
        super().__init__()
        self.register_buffer("state", torch.full(shape or (1, 4), first), persistent=persistent)
        self.change = change
        self.layer = nn.Linear(4, 4)
        with torch.no_grad():
            self.layer.weight.copy_(torch.eye(4) + 0.1)
            self.layer.bias.zero_()

    def forward(self, x: Any) -> Any:
        self.change(self.state, x)
        return self.layer(self.state)


class Outer(nn.Module):
    """Two that have buffers of one name, called in the other order than they are listed in."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = Keeps(added, first=0.5), Keeps(added, first=0.25, persistent=False)

    def forward(self, x: Any) -> Any:
        return self.one(self.two(x))


def added(state: torch.Tensor, x: Any) -> None:
    state.copy_(torch.clamp(state + x, -3.0, 3.0))


def shifted(state: torch.Tensor, x: Any) -> None:
    state.copy_(torch.cat((state[:, 1:], x.unsqueeze(1)), 1))


FORMS: dict[str, tuple[Change, tuple[int, ...]]] = {
    "copied": (added, (1, 4)),
    "shifted": (shifted, (1, 3, 4)),
    "faded in place": (lambda state, x: state.mul_(0.5).add_(x), (1, 4)),
    "a row of a cache": (lambda state, x: state[:, 1].copy_(x), (1, 3, 4)),
    "rows of a cache": (lambda state, x: state[:, 1:2].copy_(x.unsqueeze(1)), (1, 3, 4)),
    "an index": (lambda state, x: state.index_copy_(1, torch.tensor([2]), x.unsqueeze(1)), (1, 3, 4)),
}


def lowered(module: nn.Module, **options: Any) -> Program:
    return lower(module, (X,), isa=Isa.DSP, options=LoweringOptions(**options))


def streamed(program: Program, frames: int) -> Any:
    assert program.stream is not None
    return program.stream(
        [(to_host(X * (number + 1)),) for number in range(frames)], program.file.initial_state(), True
    )


@pytest.mark.first_only
@pytest.mark.parametrize("form", FORMS)
def test_every_frame_of_each_model_finds_what_the_last_one_left(form: str) -> None:
    """The float module, run by hand, is the authority; the dialect is as near as quantisation lets it."""
    change, shape = FORMS[form]
    module = Keeps(change, *shape, first=0.5)
    samples = [(X * (number + 1),) for number in range(4)]
    program = lowered(module, calibration=samples)
    assert (module.state == 0.5).all() and program.state_names == ("state",)
    found = streamed(program, 4)
    quantum = 0.1
    for references, (x,) in zip(found, samples, strict=True):
        with torch.no_grad():
            output = module(x)
        for model in (references.eager, references.quantized, references.dialect):
            np.testing.assert_allclose(model[0], output, atol=quantum)
            np.testing.assert_allclose(model[1], module.state, atol=quantum)
    # Nothing is left of it: the next one begins anew, and so does every call.
    again = streamed(program, 1)
    np.testing.assert_array_equal(again[0].dialect[0], found[0].dialect[0])
    assert program.reference is not None
    for dialect in (program.reference(program.inputs).dialect for _ in range(2)):
        assert dialect is not None
        np.testing.assert_array_equal(dialect[0], found[0].dialect[0])


@pytest.mark.slow
def test_the_file_has_what_each_state_begins_with() -> None:
    for quantize in (True, False):
        program = lowered(Outer(), quantize=quantize)
        assert all(program.file.values[value].initial for value in program.file.states)
        held = [set(state.array().ravel()) for state in program.file.initial_state()]
        assert dict(zip(program.state_names, held, strict=True)) == {"one.state": {0.5}, "two.state": {0.25}}
    zeros = lowered(Keeps(added))
    assert zeros.file.initial_state()[0].data == bytes(16)


@pytest.mark.slow
def test_what_a_state_begins_with_is_content() -> None:
    first = lowered(Keeps(added, first=0.5))
    hits = cache.hits
    assert lowered(Keeps(added, first=0.5)).pte == first.pte and cache.hits == hits + 1
    assert lowered(Keeps(added, first=0.75)).pte != first.pte
    again = lowered(Keeps(added, first=0.5))
    streamed(again, 3)
    assert lowered(Keeps(added, first=0.5)).pte == first.pte


@pytest.mark.slow
def test_state_that_one_sample_leaves_is_calibrated() -> None:
    """Of a state of zeros alone the quantiser would learn a range of nothing."""
    found = streamed(lowered(Keeps(added)), 2)
    with torch.no_grad():
        np.testing.assert_allclose(found[0].dialect[0], found[0].eager[0], atol=0.1)
    assert np.abs(found[0].dialect[1]).max() == pytest.approx(1, abs=0.05)


class ChangesItsInput(Keeps):
    def forward(self, x: Any) -> Any:
        x.add_(1)
        return super().forward(x)


def test_an_input_that_changes_with_the_state_is_refused() -> None:
    with pytest.raises(LoweringError, match="changes a buffer, and one of its inputs") as caught:
        lowered(ChangesItsInput(added))
    assert "clone" in caught.value.hint


@pytest.mark.slow
def test_a_program_with_state_has_no_parts() -> None:
    """As `hil shrink` asks for."""
    origin = lowered(Keeps(added)).origin
    assert origin is not None
    with pytest.raises(ConfigError, match="has state"):
        origin()
