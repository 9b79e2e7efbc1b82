"""A program that keeps state, for frames one after another."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from executorch.backends.cortex_m.quantizer.quantizer import CortexMQuantizer
from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e

from cortex_m_hil.lowering import export
from cortex_m_hil.lowering.mutable_buffers import ExplicitStateProgram
from cortex_m_hil.pytest_plugin.fixtures import Hil
from networks import CACHE_WRITES, Listener, Unrolled, cached_attention, listener


def test_frames_one_after_another(hil: Hil) -> None:
    module, frames = listener(5)
    program = hil.lower(module, frames[0], calibration=frames)
    hil.verify(program)
    assert len(hil.stream(program, frames).frames) == 5


def unrolled(module: Listener, frames: Any, quantize: bool) -> Unrolled:
    """Quantised, its steps have the scales of the program with state, where calibration would give each its own."""
    if not quantize:
        return Unrolled(module.step, module)
    stateful = ExplicitStateProgram.of(export(module, frames[0]).program, "Listener")
    prepared = prepare_pt2e(stateful.program.module(check_guards=False), CortexMQuantizer())
    state = stateful.first
    for frame in [*frames, frames[-1]]:
        state = stateful.next(prepared(*state, *frame))
    quantised = convert_pt2e(prepared)
    assert stateful.names == stateful.changed == ("window", "hidden")

    def step(x: Any, window: Any, hidden: Any) -> tuple[Any, Any, Any]:
        (window, hidden), output = quantised(window, hidden, x)
        return output, window, hidden

    return Unrolled(step, quantised)


FLOAT_LISTENER = pytest.param(False, marks=pytest.mark.hil_known("aten::linear.out", 42), id="float")
FLOAT_ATTENTION = pytest.param(False, marks=pytest.mark.hil_known("aten::linear.out"), id="float")
QUANTIZED = pytest.param(True, id="quantized")


@pytest.mark.parametrize("count", [24, pytest.param(1000, marks=pytest.mark.slow)])
@pytest.mark.parametrize("quantize", [FLOAT_LISTENER, QUANTIZED])
def test_a_stream_is_the_unrolled_program_bit_for_bit(hil: Hil, quantize: bool, count: int) -> None:
    """Frames one after another, and eight in each call of a program that keeps nothing.

    The state goes from its outputs to its inputs, so that no more than eight steps are unrolled into one program.
    """
    module, frames = listener(count)
    calibration = frames[:24] if quantize else None
    program = hil.lower(module, frames[0], calibration=calibration, quantize=quantize)
    streamed = hil.stream(program, frames)
    state: tuple[Any, ...] = (module.window, module.hidden)
    blocks = [torch.cat([x for (x,) in frames[at : at + 8]], 1) for at in range(0, count, 8)]
    at_once = hil.lower(unrolled(module, frames[:24], quantize), (blocks[0], *state), quantize=False)
    assert program.state_names and not at_once.state_names
    given = []
    for block in blocks:
        outputs, *after = hil.run(at_once, (block, *state)).outputs
        given.extend(outputs.array()[0])
        state = tuple(one.array() for one in after)
    for number, (frame, wanted) in enumerate(zip(streamed.frames, given, strict=True)):
        assert frame.outputs[0].array()[0].tobytes() == wanted.tobytes(), f"frame {number}"
    assert [one.array().tobytes() for one in streamed.state] == [one.tobytes() for one in state]
    assert len({frame.state for frame in streamed.frames}) == count


@pytest.mark.parametrize("quantize", [FLOAT_ATTENTION, QUANTIZED])
@pytest.mark.parametrize("way", CACHE_WRITES)
def test_attention_with_a_cache_gives_what_it_gives_at_once(hil: Hil, way: str, quantize: bool) -> None:
    module, tokens = cached_attention(way)
    frames = [(tokens[:, at : at + 1], torch.tensor([at])) for at in range(tokens.shape[1])]
    program = hil.lower(module, frames[0], calibration=frames if quantize else None, quantize=quantize)
    outputs = np.concatenate([frame.outputs[0].array() for frame in hil.stream(program, frames).frames], 1)
    with torch.no_grad():
        np.testing.assert_allclose(outputs, module.at_once(tokens).numpy(), atol=0.03 if quantize else 1e-6)
