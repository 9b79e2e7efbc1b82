"""A thousand frames through a network that keeps state: every output and every state is the dialect's, bit for bit."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from contextlib import nullcontext

import pytest

from cortex_m_hil import OpenTarget
from cortex_m_hil.flow.dut import open_dut
from cortex_m_hil.lowering import LoweringOptions, lower
from cortex_m_hil.program.program import Program
from cortex_m_hil.targets.cpu import Isa
from cortex_m_hil.targets.load import load_targets
from cortex_m_hil.targets.resolve import resolve
from installed import installed_executorch
from networks import listener

TARGETS = load_targets()
CORES = ("m4-qemu", "m55-qemu", "m0-qemu")
FRAMES = 1000
CALIBRATION = 20


@functools.cache
def program(isa: Isa) -> Program:
    module, frames = listener(FRAMES)
    return lower(module, frames[0], isa=isa, options=LoweringOptions(calibration=frames[:CALIBRATION]))


@pytest.fixture(
    params=[(name, "builtin") for name in ("native", *CORES)] + [(name, "executorch") for name in CORES], ids="-".join
)
def target(request: pytest.FixtureRequest) -> Iterator[OpenTarget]:
    name, runtime = request.param
    resolved = resolve(name, TARGETS, runtime=runtime)
    found = installed_executorch(resolved.target) if runtime == "executorch" else nullcontext()
    with found, OpenTarget(open_dut(resolved)) as opened:
        yield opened


def test_a_thousand_frames_are_the_dialects(target: OpenTarget) -> None:
    found = target.stream(program(target.isa), listener(FRAMES)[1])
    assert len({frame.state for frame in found.frames}) > FRAMES * 0.9
    assert len({frame.outputs[0].data for frame in found.frames}) > FRAMES / 2
