"""Known bug 46 on an installed ExecuTorch: lint refuses just the minima that CMSIS-NN or its kernel gets wrong."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import product

import pytest
import torch

import cortex_m_hil as hil
from cortex_m_hil.errors import VerdictError
from cortex_m_hil.targets.load import load_targets
from installed import installed_executorch
from networks import Apply

SIZES = (2, 4, 3, 2)
SHAPES = [tuple(zip(*shape, strict=True)) for shape in product(*([(n, n), (1, n), (n, 1)] for n in SIZES))]
OPERATORS = (torch.minimum, torch.maximum)


@pytest.fixture(scope="module", params=["m55-qemu", "m4-qemu", "m0-qemu"])
def target(request: pytest.FixtureRequest) -> Iterator[hil.api.OpenTarget]:
    with installed_executorch(load_targets()[request.param]), hil.open(request.param, runtime="executorch") as opened:
        yield opened


def test_lint_foresees_the_minima_that_a_target_gets_wrong(target: hil.api.OpenTarget) -> None:
    """All ways in which two shapes of four dimensions broadcast to one; the two operators take turns."""
    foreseen = 0
    for number, (one, other) in enumerate(SHAPES):
        torch.manual_seed(number)
        operator: Callable[..., torch.Tensor] = OPERATORS[number % 2]
        module, inputs = Apply(operator), (torch.randn(one), torch.randn(other))
        grave = [one for one in target.lint(target.lower(module, inputs, layout="explicit")) if not one.is_note]
        if not grave:
            target.check(module, inputs, layout="explicit")
            continue
        assert [one.bug for one in grave] == [46]
        foreseen += 1
        with pytest.raises(VerdictError):
            target.check(module, inputs, lint=False, layout="explicit")
    assert len(SHAPES) == 81 and foreseen == 12
