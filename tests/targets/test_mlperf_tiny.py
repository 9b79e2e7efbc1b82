"""MLPerf Tiny's four networks, whole, as the executorch wheel ships them (weights are random, seeded by name)."""

from __future__ import annotations

import pytest
from executorch.examples.models.mlperf_tiny.deep_autoencoder import DeepAutoEncoderModel
from executorch.examples.models.mlperf_tiny.ds_cnn import DSCNNKWSModel
from executorch.examples.models.mlperf_tiny.mobilenet_v1_025 import MobileNetV1025Model
from executorch.examples.models.mlperf_tiny.resnet8 import ResNet8Model

from harness.fixtures import Hil

MODELS = {
    "deep_autoencoder": DeepAutoEncoderModel,
    "ds_cnn": DSCNNKWSModel,
    "mobilenet_v1_025": MobileNetV1025Model,
    "resnet8": ResNet8Model,
}


@pytest.mark.target_timeout(120)
@pytest.mark.parametrize("name", MODELS)
def test_network(hil: Hil, name: str) -> None:
    model = MODELS[name]()
    hil.check(model.get_eager_model(), model.get_example_inputs(), qtol=0)
