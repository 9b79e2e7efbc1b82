"""MLPerf Tiny's anomaly detection network, as the executorch wheel ships it."""

from __future__ import annotations

from executorch.examples.models.mlperf_tiny.deep_autoencoder import DeepAutoEncoder, DeepAutoEncoderModel

from harness.fixtures import Hil


def test_deep_autoencoder(hil: Hil) -> None:
    hil.check(DeepAutoEncoder().eval(), DeepAutoEncoderModel().get_example_inputs(), qtol=0)
