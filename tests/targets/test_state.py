"""A program that keeps state, for frames one after another."""

from __future__ import annotations

from cortex_m_hil.pytest_plugin.fixtures import Hil
from networks import listener


def test_frames_one_after_another(hil: Hil) -> None:
    module, frames = listener(5)
    program = hil.lower(module, frames[0], calibration=frames)
    hil.verify(program)
    assert len(hil.stream(program, frames).frames) == 5
