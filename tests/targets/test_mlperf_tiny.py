"""MLPerf Tiny's four networks, whole, as the executorch wheel ships them (weights are random, seeded)."""

from __future__ import annotations

from typing import Any

import pytest
from executorch.examples.models.mlperf_tiny.deep_autoencoder import DeepAutoEncoderModel
from executorch.examples.models.mlperf_tiny.ds_cnn import DSCNNKWSModel
from executorch.examples.models.mlperf_tiny.mobilenet_v1_025 import MobileNetV1025Model
from executorch.examples.models.mlperf_tiny.resnet8 import ResNet8Model

from cortex_m_hil.pytest_plugin.fixtures import Hil

# What they need of a board, the tensors and the program.
NETWORKS = [
    pytest.param(DeepAutoEncoderModel, id="deep_autoencoder", marks=pytest.mark.requires(ram="4K", flash="272K")),
    pytest.param(DSCNNKWSModel, id="ds_cnn", marks=pytest.mark.requires(ram="16K", flash="50K")),
    pytest.param(MobileNetV1025Model, id="mobilenet_v1_025", marks=pytest.mark.requires(ram="136K", flash="294K")),
    pytest.param(ResNet8Model, id="resnet8", marks=pytest.mark.requires(ram="50K", flash="96K")),
]


@pytest.mark.target_timeout(120)
@pytest.mark.parametrize("network", NETWORKS)
def test_network(hil: Hil, network: type[Any]) -> None:
    model = network()
    hil.check(model.get_eager_model(), model.get_example_inputs(), qtol=0)
