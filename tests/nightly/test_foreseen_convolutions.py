"""Known bugs 39 and 44 on an installed ExecuTorch: lint refuses just the convolutions that CMSIS-NN gets wrong."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest
import torch
from torch import nn

import cortex_m_hil as hil
from cortex_m_hil.errors import VerdictError
from cortex_m_hil.targets.load import load_targets
from installed import installed_executorch

CONVOLUTIONS = 60


@pytest.fixture(scope="module", params=["m55-qemu", "m4-qemu", "m0-qemu"])
def target(request: pytest.FixtureRequest) -> Iterator[hil.api.OpenTarget]:
    with installed_executorch(load_targets()[request.param]), hil.open(request.param, runtime="executorch") as opened:
        yield opened


def convolution(seed: int) -> tuple[nn.Conv2d, tuple[torch.Tensor]]:
    """Of an image of one row, with a kernel of one row."""
    draw = random.Random(seed)
    torch.manual_seed(seed)
    while True:
        kernel, width, padding = draw.randint(1, 5), draw.randint(1, 12), draw.randint(0, 2)
        if width + 2 * padding >= kernel:
            break
    channels, stride = draw.choice([1, 2, 3, 4, 8]), draw.randint(1, 4)
    made = nn.Conv2d(
        channels, 3, (1, kernel), stride=(draw.randint(1, 2), stride), padding=(draw.choice([0, 0, 0, 1]), padding),
        dilation=(draw.choice([1, 1, 2]), 1),
    )  # fmt: skip
    return made, (torch.randn(1, channels, 1, width),)


def test_lint_foresees_the_rows_that_a_target_gets_wrong(target: hil.api.OpenTarget) -> None:
    foreseen = 0
    for seed in range(CONVOLUTIONS):
        module, inputs = convolution(seed)
        grave = [one for one in target.lint(target.lower(module, inputs)) if not one.is_note]
        foreseen += bool(grave)
        if not grave:
            target.check(module, inputs)
            continue
        assert "known bug 39" in grave[0].message or "scratch" in grave[0].message, grave[0]
        with pytest.raises(VerdictError):
            target.check(module, inputs, lint=False)
    assert (foreseen > CONVOLUTIONS // 8) == (target.isa is hil.Isa.MVE)


def transposed(seed: int) -> tuple[nn.ConvTranspose2d, tuple[torch.Tensor]]:
    """Draw a transposed convolution; two in three have the many channels of bug 44."""
    draw = random.Random(seed)
    torch.manual_seed(seed)
    channels, kernel = draw.choice([3, 17, 20]), (draw.randint(1, 3), draw.randint(1, 3))
    padding = (draw.randint(0, 2), draw.randint(0, 2))
    made = nn.ConvTranspose2d(channels, 5, kernel, stride=(draw.randint(1, 3), draw.randint(1, 3)), padding=padding)
    return made, (torch.randn(1, channels, 5, 6),)


def test_lint_foresees_the_transposed_convolutions_that_lose_their_input(target: hil.api.OpenTarget) -> None:
    foreseen = 0
    for seed in range(CONVOLUTIONS):
        module, inputs = transposed(seed)
        grave = [one for one in target.lint(target.lower(module, inputs)) if not one.is_note]
        if not grave:
            target.check(module, inputs)
        elif grave[0].bug == 44:  # others of CMSIS-NN's write outside of their memory: not run
            foreseen += 1
            with pytest.raises(VerdictError):
                target.check(module, inputs, lint=False)
    assert foreseen > CONVOLUTIONS // 8
