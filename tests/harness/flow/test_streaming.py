"""Programs with state: what one call leaves the next finds, and no test finds what another left."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from cortex_m_hil import HilWarning, OpenTarget, errors
from cortex_m_hil.checks.lint_rules.finding import Rule
from cortex_m_hil.diagnose.lifetime_check import WatchedMemory
from cortex_m_hil.flow import single_run
from cortex_m_hil.flow.dut import Dut, open_dut
from cortex_m_hil.lowering import LoweringOptions, lower
from cortex_m_hil.lowering.reference import to_host
from cortex_m_hil.program.program import Program
from cortex_m_hil.program.pte_file import PteFile
from cortex_m_hil.runner.build import build_runner
from cortex_m_hil.runner.links.protocol import MemoryRegion
from cortex_m_hil.runner.session.session import Session
from cortex_m_hil.targets.cpu import Isa
from cortex_m_hil.targets.load import load_targets
from cortex_m_hil.targets.resolve import resolve
from networks import listener
from planting import FOLDER, plant
from random_networks import ResidualNorms

TARGETS = load_targets()
# State is kept by the host and by code that all classes share; tests/targets/test_state.py runs on the others.
NAMES = ["native", "m4-qemu", *(pytest.param(name, marks=pytest.mark.slow) for name in ("m55-qemu", "m0-qemu"))]
FRAMES = 24
PLANTED = sorted((FOLDER / "state").glob("*.patch"))


@functools.cache
def program(isa: Isa, redzones: bool = False) -> Program:
    module, frames = listener(FRAMES)
    return lower(module, frames[0], isa=isa, options=LoweringOptions(calibration=frames, redzones=redzones))


def frames() -> list[tuple[torch.Tensor, ...]]:
    return listener(FRAMES)[1]


@pytest.fixture(scope="module", params=NAMES)
def target(request: pytest.FixtureRequest) -> Iterator[OpenTarget]:
    with OpenTarget(open_dut(resolve(request.param, TARGETS))) as opened:
        yield opened


@pytest.fixture(scope="module")
def native() -> Iterator[OpenTarget]:
    with OpenTarget(open_dut(resolve("native", TARGETS))) as opened:
        yield opened


@pytest.mark.slow
def test_a_stream_is_the_dialects_bit_for_bit(target: OpenTarget) -> None:
    """Frame by frame, as is the state; each frame is another one's, so that the comparison proves something."""
    one = program(target.isa)
    found = target.stream(one, frames())
    assert one.stream is not None and one.state_names == ("window", "hidden")
    inputs = [tuple(map(to_host, frame)) for frame in frames()]
    wanted = one.stream(inputs, one.file.initial_state(), False)
    for frame, references in zip(found.frames, wanted, strict=True):
        assert references.dialect is not None
        np.testing.assert_array_equal(frame.outputs[0].array(), references.dialect[0])
    assert wanted[-1].dialect is not None
    for state, reference in zip(found.state, wanted[-1].dialect[1:], strict=True):
        np.testing.assert_array_equal(state.array(), reference)
    assert len({frame.outputs[0].data for frame in found.frames}) > FRAMES // 2
    assert len({frame.state for frame in found.frames}) == FRAMES


@pytest.mark.slow
def test_a_stream_can_be_saved_restored_and_begun_anew(target: OpenTarget) -> None:
    one = program(target.isa)
    whole = target.stream(one, frames())
    begun = target.stream(one, frames()[:7])
    ended = target.stream(one, frames()[7:], state=begun.state)
    for found, wanted in zip((*begun.frames, *ended.frames), whole.frames, strict=True):
        assert (found.outputs, found.state) == (wanted.outputs, wanted.state)
    assert ended.state == whole.state
    assert target.stream(one, frames()).frames[0].outputs == whole.frames[0].outputs
    assert target.run(one, frames()[0]).outputs == whole.frames[0].outputs
    assert target.run(one, frames()[0]).outputs == whole.frames[0].outputs


def test_a_program_is_loaded_once_for_all_frames(native: OpenTarget, monkeypatch: pytest.MonkeyPatch) -> None:
    loads = []
    load = Session.load

    def counted(*given: Any, **more: Any) -> Any:
        loads.append(1)
        return load(*given, **more)

    monkeypatch.setattr(Session, "load", counted)
    native.stream(program(Isa.SCALAR), frames())
    assert len(loads) == 1


@pytest.mark.slow
def test_state_is_no_part_of_what_red_zones_and_lifetimes_poison() -> None:
    for name in ("native", "m55-qemu"):
        with OpenTarget(open_dut(resolve(name, TARGETS)), redzones=True) as target:
            with_redzones = program(target.isa, redzones=True)
            assert WatchedMemory(with_redzones).zones
            target.verify(with_redzones)
            plain, found = target.stream(program(target.isa), frames()), target.stream(with_redzones, frames())
            assert [frame.outputs for frame in found.frames] == [frame.outputs for frame in plain.frames]


class Fading(nn.Module):
    """Operators that both runtimes have in float: ExecuTorch's on the host as well."""

    trace: torch.Tensor

    def __init__(self, first: float) -> None:
        super().__init__()
        self.register_buffer("trace", torch.full((1, 6), first))

    def forward(self, x: Any) -> Any:
        self.trace.mul_(0.5).add_(x)
        return self.trace - x


@pytest.mark.first_only
@pytest.mark.parametrize("first", [0.0, 2.0])
@pytest.mark.parametrize("runtime", ["builtin", "executorch"])
def test_a_runtime_loads_what_a_state_begins_with(runtime: str, first: float) -> None:
    """Zeros too: what lies in the arena before is poison, and an earlier program's state."""
    with OpenTarget(open_dut(resolve("native", TARGETS, runtime=runtime))) as target:
        module = Fading(first)
        one = target.lower(module, (torch.ones(1, 6),), quantize=False)
        target.stream(target.lower(Fading(9.0), (torch.ones(1, 6),), quantize=False), [(torch.ones(1, 6),)])
        found = target.stream(one, [(torch.full((1, 6), float(at)),) for at in range(20)])
        state = torch.full((1, 6), first)
        for at, frame in enumerate(found.frames):
            np.testing.assert_array_equal(frame.outputs[0].array(), state * 0.5 + at - at)
            state = state * 0.5 + at
        np.testing.assert_array_equal(found.state[0].array(), state)
    assert (module.trace == first).all()


# --- what proves nothing ---------------------------------------------------------------------------------------------


def with_a_nan(given: list[tuple[torch.Tensor, ...]], number: int) -> list[tuple[torch.Tensor, ...]]:
    frame = given[number][0].clone()
    frame.view(-1)[1] = float("nan")
    return [*given[:number], (frame,), *given[number + 1 :]]


def test_a_nan_that_is_quantised_has_its_frame(native: OpenTarget) -> None:
    """As in a single run, for which no integer is right either."""
    told = r"^frame 5: input 0: cortex_m::quantize_per_tensor is given a NaN in 1 of "
    with pytest.raises(errors.ConfigError, match=told):
        native.stream(program(Isa.SCALAR), with_a_nan(frames(), 5))


@pytest.mark.slow
def test_a_nan_of_a_float_program_is_told(native: OpenTarget) -> None:
    """It is right, and stays in the state: from there on a stream proves nothing."""
    one = native.lower(Fading(1.0), (torch.ones(1, 6),), quantize=False)
    given: list[tuple[torch.Tensor, ...]] = [(torch.full((1, 6), float(at)),) for at in range(8)]
    with pytest.warns(HilWarning) as told:
        found = native.stream(one, with_a_nan(given, 3))
    assert [str(warning.message) for warning in told] == [
        f"native: frame 3: {name}: uninformative: 1 of 6 elements are NaN or infinite, as in the reference, "
        "and in 4 more frames: proves nothing"
        for name in ("output 0", "state 0 (trace)")
    ]
    assert [f"native: {text}" for text in found.warnings] == [str(warning.message) for warning in told]
    with warnings.catch_warnings():
        warnings.simplefilter("error", HilWarning)
        assert not native.stream(one, given).warnings


# --- what goes wrong --------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("patch", PLANTED, ids=lambda patch: patch.stem)
def test_a_runner_that_does_not_keep_state_is_found(patch: Path, tmp_path: Path) -> None:
    resolved = resolve("native", TARGETS)
    elf = build_runner(resolved.target, firmware=plant(patch, tmp_path))
    with OpenTarget(Dut(resolved, elf)) as target, pytest.raises(errors.Mismatch, match=r"^frame [012]: "):
        target.stream(program(Isa.SCALAR), frames())


@pytest.mark.first_only
def test_poison_over_state_is_found(target: OpenTarget, monkeypatch: pytest.MonkeyPatch) -> None:
    def everywhere(session: Session, file: PteFile | None, poison: int) -> None:
        session.fill(MemoryRegion.PLANNED, 0, poison)

    monkeypatch.setattr(single_run, "fill_around", everywhere)
    with pytest.raises(errors.Mismatch, match="frame 0: "):
        target.stream(program(target.isa), frames())
    with pytest.raises(errors.Mismatch):
        target.verify(program(target.isa))


@pytest.mark.slow
def test_state_that_leaks_into_the_next_test_is_found(target: OpenTarget, monkeypatch: pytest.MonkeyPatch) -> None:
    """As it would if a program that is loaded already were not loaded again."""
    one = program(target.isa)
    target.stream(one, frames())
    monkeypatch.setattr(Session, "load", lambda *_, **__: None)
    with pytest.raises(errors.Mismatch, match="frame 0: "):
        target.stream(one, frames())
    with pytest.raises(errors.Mismatch):
        target.verify(one)
    monkeypatch.undo()
    target.verify(one)
    target.stream(one, frames())


def test_a_wrong_state_has_its_name_and_its_frame(native: OpenTarget, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the outputs are right yet: the state of the last frame is read by none."""
    one = program(Isa.SCALAR)
    assert one.stream is not None
    stream = one.stream

    def last_state_off(*given: Any) -> Any:
        *before, last = stream(*given)
        assert last.dialect is not None
        output, window, hidden = last.dialect
        return (*before, replace(last, dialect=(output, window, hidden * 0.75)))

    with pytest.raises(errors.Mismatch, match=rf"frame {FRAMES - 1}: state 1 \(hidden\): \w+: \d+ of 10"):
        native.stream(replace(one, stream=last_state_off), frames())


def test_what_is_no_stream_is_refused(native: OpenTarget) -> None:
    one = program(Isa.SCALAR)
    with pytest.raises(errors.ConfigError, match="no frames"):
        native.stream(one, [])
    with pytest.raises(errors.ConfigError, match=rf"frame {FRAMES}: input 0: the program takes"):
        native.stream(one, [*frames(), (torch.zeros(1, 1, 9),)])
    with pytest.raises(errors.ConfigError, match=r"frame 0 is Tensor float32\[1, 1, 8\], and has to be a tuple"):
        native.stream(one, [frame[0] for frame in frames()])  # type: ignore[misc]
    left = native.stream(one, frames())
    for strange in (left.frames[0].state, [torch.zeros(1, 3, 8)], [np.zeros((1, 3, 8), "float32")], b"abc"):
        with pytest.raises(errors.ConfigError, match="state takes what a stream left, not "):
            native.stream(one, frames(), state=strange)  # type: ignore[arg-type]
    with pytest.raises(errors.ConfigError, match=r"the state is .* and the program's is"):
        native.stream(one, frames(), state=native.stream(one, frames()).state[:1])


@pytest.mark.slow
def test_a_program_without_state_streams_too(native: OpenTarget) -> None:
    torch.manual_seed(1)
    one = native.lower(nn.Linear(8, 3), (torch.randn(1, 8),))
    given = [(torch.randn(1, 8),) for _ in range(3)]
    found = native.stream(one, given)
    assert [frame.outputs for frame in found.frames] == [native.run(one, frame).outputs for frame in given]
    assert found.state == () and not any(frame.state for frame in found.frames)


@pytest.mark.slow
def test_a_tie_behind_a_layer_norm_is_no_error_of_a_frame(native: OpenTarget, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    one = native.lower(ResidualNorms(4), (torch.rand(60, 80),))
    given = [one.inputs, one.inputs]
    found = native.stream(one, given)
    assert one.stream is not None
    dialect = one.stream([*given], (), False)[0].dialect
    assert dialect is not None and not np.array_equal(found.frames[0].outputs[0].array(), dialect[0])
    monkeypatch.setattr("cortex_m_hil.lowering.reference.with_disturbed_floats", lambda dialect: [])
    with pytest.raises(errors.Mismatch, match=r"^frame 0: output 0: quanta: "):
        native.stream(one, given)


def test_lint_says_what_a_program_keeps(native: OpenTarget) -> None:
    (note,) = (one for one in native.lint(program(Isa.SCALAR)) if one.rule is Rule.STATE_NOTE)
    assert note.is_note and "136 bytes" in note.message and "window, float32[1, 3, 8]" in note.message
