"""Options of the lowering: each is in the key of what is remembered, and what is no option is refused at once."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, replace
from typing import Any

import pytest
import torch
from torch import nn

import wheel
from cortex_m_hil.errors import ConfigError
from cortex_m_hil.lowering import LoweringOptions, clear_cache, lower
from cortex_m_hil.targets.cpu import Isa

X = torch.linspace(-2, 2, 32).reshape(1, 2, 4, 4)
OTHER: dict[str, Any] = {"calibration": [(2 * X,)], "quantize": False, "layout": "explicit", "redzones": True}


@pytest.fixture(autouse=True)
def clean() -> Iterator[None]:
    clear_cache()
    yield
    clear_cache()


@pytest.mark.parametrize("name", [one.name for one in fields(LoweringOptions)])
def test_each_option_is_in_the_key(name: str) -> None:
    """A new field needs another value here, and has to change what is made."""
    if name == "layout":
        wheel.require((), layout="explicit")
    torch.manual_seed(0)
    module = nn.Conv2d(2, 3, 3)
    default = LoweringOptions()
    changed = replace(default, **{name: OTHER[name]})
    before = lower(module, (X,), isa=Isa.DSP, options=default).pte
    after = lower(module, (X,), isa=Isa.DSP, options=changed).pte
    assert before != after
    assert lower(module, (X,), isa=Isa.DSP, options=default).pte == before
    assert lower(module, (X,), isa=Isa.DSP, options=changed).pte == after


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"layout": "channel_last"}, "did you mean 'channels_last'?"),
        ({"layout": 3}, "known: channels_last, explicit"),
        ({"quantize": 0}, "quantize=0: it takes True or False"),
        ({"redzones": "yes"}, "redzones='yes': it takes True or False"),
        ({"calibration": 3}, "an iterable of input tuples, not int"),
        ({"calibration": []}, "no samples"),
        ({"calibration": X}, "sample 0 is a Tensor"),  # else each row would be a sample, and its rows the inputs
        ({"calibration": [(X,), X]}, "sample 1 is a Tensor"),
        ({"calibration": [(X,)], "quantize": False}, "what is not quantised is not calibrated"),
    ],
)
def test_what_is_no_option_is_a_config_error(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        LoweringOptions(**options)
    assert message in str(caught.value)


def test_samples_may_come_from_a_generator_and_are_lists_of_a_data_loader() -> None:
    options = LoweringOptions(calibration=([X] for _ in range(2)))
    assert options.samples((X,)) == options.samples((X,)) == ((X,), (X,))
    assert LoweringOptions().samples((X,)) == ((X,),)
