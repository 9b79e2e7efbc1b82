"""A program of three methods on every target: an encoder with a state, a decoder and a reset, which share weights."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

import cortex_m_hil
from bundling import bundle
from cortex_m_hil.errors import ConfigError, Mismatch
from cortex_m_hil.pytest_plugin.fixtures import Hil
from several_methods import CONSTANTS, PAIR, ROW, modules, three_methods


def test_three_methods_of_one_program(hil: Hil) -> None:
    """Weights and inputs are such that no sum is rounded, so that the outputs are torch's bits."""
    program = cortex_m_hil.load_program(three_methods(), method="encode")
    assert dict(program.constants) == CONSTANTS
    for name, (module, inputs) in modules().items():
        outputs = module(*inputs)
        result = hil.run(program, inputs, method=name)
        for found, expected in zip(result.outputs, outputs if isinstance(outputs, tuple) else (outputs,), strict=True):
            np.testing.assert_array_equal(found.array(), expected.detach().numpy())


def test_a_methods_state_goes_on_after_another_method_ran(hil: Hil) -> None:
    program = cortex_m_hil.load_program(three_methods(), method="decode")
    encode, _ = modules()["encode"]
    frames = [(ROW[0] * number,) for number in range(4)]
    expected = [encode(*frame).detach().numpy() for frame in frames]
    begun = hil.stream(program, frames[:2], method="encode")
    decoded = hil.run(program, PAIR)
    ended = hil.stream(program, frames[2:], method="encode", state=begun.state)
    for frame, wanted in zip([*begun.frames, *ended.frames], expected, strict=True):
        np.testing.assert_array_equal(frame.outputs[0].array(), wanted)
    assert decoded.outputs == hil.run(program.method("decode"), PAIR).outputs
    assert torch.from_numpy(ended.state[0].array().copy()).tolist() == [[6.0, 12.0, 18.0, 24.0]]


def test_calls_take_the_name_of_a_method(
    hil: Hil, run_pte: Callable[..., cortex_m_hil.RunResult], tmp_path: Path
) -> None:
    """`run_pte`, `hil.lint` and `hil.verify`; a bundled program's cases are their method's."""
    path = tmp_path / "three.pte"
    path.write_bytes(three_methods())
    expected = [one.detach() for one in modules()["decode"][0](*PAIR)]
    found = run_pte(path, PAIR, method="decode")
    np.testing.assert_array_equal(found.outputs[1].array(), expected[1].numpy())
    program = cortex_m_hil.load_program(bundle(path, [(PAIR, expected)], "decode"), method="reset")
    assert all(one.is_note for one in hil.lint(program, method="encode"))
    assert hil.verify(program, method="decode").comparison.outputs[0].max_abs_error == 0
    wrong = cortex_m_hil.load_program(bundle(path, [(PAIR, [-one for one in expected])], "decode"), method="reset")
    with pytest.raises(Mismatch, match="2 of 4 elements differ from what is expected"):
        hil.verify(wrong, method="decode")
    with pytest.raises(ConfigError, match="and not 'decoed'"):
        hil.run(program, PAIR, method="decoed")
