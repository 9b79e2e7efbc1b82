"""The product on a board whose line and supply fail on demand."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator

import numpy as np
import pytest

import reference
from cortex_m_hil import App
from cortex_m_hil.errors import LaunchError

FRAMES = [np.random.default_rng(seed).integers(-1000, 1000, 256).astype(np.int16) for seed in range(10)]


def inject(*faults: str) -> None:
    subprocess.run(["hil", "board", "virtual", "f405", "fault", *faults], check=True)


@pytest.fixture(autouse=True)
def sound_afterwards() -> Iterator[None]:
    yield
    inject()


def test_no_frame_is_wrong_where_bytes_are_damaged(hil_app: Callable[..., App]) -> None:
    app = hil_app()
    app.attach(["mic_frame"])
    inject("corrupt=0.002")  # of all bytes
    recording = app.record("mic_frame", FRAMES, {"features": "int8"}, timeout=60.0)
    assert recording.lost == 0 and recording.resent > 0
    for frame, features in zip(FRAMES, recording.outputs["features"], strict=True):
        assert features is not None and (features == reference.features(frame)).all()


def test_a_reset_in_the_middle_is_told_and_the_next_boot_is_sound(hil_app: Callable[..., App]) -> None:
    app = hil_app()
    app.send("mic_frame", FRAMES[0])
    inject("reset_after=100")
    with pytest.raises(LaunchError, match="reset in the middle"):
        app.record("mic_frame", FRAMES, {"features": "int8"}, timeout=60.0)
    again = hil_app()
    again.send("mic_frame", FRAMES[1])
    again.compare({"features": reference.features(FRAMES[1])})
