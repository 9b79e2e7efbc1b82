"""The model of the product, on the product's firmware."""

from __future__ import annotations

import torch

from cortex_m_hil import OpenTarget


def test_the_classifier_gives_the_references_bits(hil: OpenTarget) -> None:
    module = torch.nn.Sequential(torch.nn.Linear(64, 32), torch.nn.ReLU(), torch.nn.Linear(32, 8))
    hil.check(module, (torch.rand(1, 64),))


def test_its_firmware_answers(hil: OpenTarget) -> None:
    assert hil.dut.session().identity.firmware.endswith(" 1.0")
