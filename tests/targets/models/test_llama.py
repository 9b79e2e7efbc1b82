"""ExecuTorch's own Llama, two small layers of it with a key-value cache, token by token."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import published_networks
from cortex_m_hil.pytest_plugin.fixtures import Hil

pytestmark = [pytest.mark.target_timeout(120), pytest.mark.requires(ram="64K", flash="256K")]

TOKENS = 8
VOCABULARY = 64

SEED = 3


@cache
def decoder() -> tuple[nn.Module, list[tuple[torch.Tensor, torch.Tensor]]]:
    """The network, once for all targets, and its inputs: a token and its position."""
    torch.manual_seed(SEED)
    module, _ = published_networks.llama(TOKENS, VOCABULARY)
    tokens = torch.randint(0, VOCABULARY, (TOKENS, 1, 1))
    return module, [(token, torch.tensor([at])) for at, token in enumerate(tokens)]


@cache
def eager() -> Any:
    """The logits of its twin, which PyTorch runs with a cache of its own: an array of (TOKENS, VOCABULARY)."""
    torch.manual_seed(SEED)
    twin, _ = published_networks.llama(TOKENS, VOCABULARY)
    with torch.no_grad():
        return np.concatenate([twin(*frame).reshape(1, -1).numpy() for frame in decoder()[1]])


def streamed(hil: Hil, **options: Any) -> Any:
    module, frames = decoder()
    program = hil.lower(module, frames[0], **options)
    found = hil.stream(program, frames).frames
    return np.concatenate([frame.outputs[0].array().reshape(1, -1) for frame in found])


@pytest.mark.hil_known(36, "aten::linear.out", "aten::silu.out")
def test_float(hil: Hil) -> None:
    if hil.dut.resolved.runtime == "executorch":
        pytest.skip("ExecuTorch's portable library has neither linear nor silu")
    np.testing.assert_allclose(streamed(hil, quantize=False), eager(), atol=2e-5)


@pytest.mark.hil_known(36)
def test_quantized(hil: Hil) -> None:
    found, wanted = streamed(hil, calibration=decoder()[1]), eager()
    noise = np.square(found - wanted).sum() / np.square(wanted).sum()
    assert -10 * np.log10(noise) > 20
    assert np.unique(found.argmax(1)).size > 1
