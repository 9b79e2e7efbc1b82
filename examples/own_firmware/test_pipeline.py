"""The product's way from the microphone to the decision, on the product's firmware."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

import reference
from cortex_m_hil import App


def test_each_stage_is_the_references(hil_app: Callable[..., App]) -> None:
    app, random = hil_app(), np.random.default_rng(0)
    last = np.zeros((4, 4), np.int8)
    for loudness in (10, 300, 3000, 30000, 100, 0):
        frame = random.integers(-loudness, loudness + 1, 256).astype(np.int16)
        features = reference.features(frame)
        last = np.vstack([last[1:], reference.scores(features)])
        app.send("mic_frame", frame)
        app.compare({"features": features, "scores": last[-1], "decision": reference.decision(last)})


def test_a_decision_takes_less_than_a_millisecond(hil_app: Callable[..., App]) -> None:
    app, random = hil_app(), np.random.default_rng(1)
    frames = [random.integers(-1000, 1000, 256).astype(np.int16) for _ in range(10)]
    recording = app.record("mic_frame", frames, {"decision": "uint8"})
    slowest = max(one for one in recording.latencies["decision"] if one is not None)
    assert recording.lost == 0 and slowest < recording.tick_hz / 1000
