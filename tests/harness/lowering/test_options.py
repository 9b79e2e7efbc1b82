"""Options of the lowering: each is in the key of what is remembered, and what is no option is refused at once."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, replace
from typing import Any

import pytest
import torch
from executorch.backends.cortex_m.quantizer.quantizer import CortexMQuantizer
from torch import nn
from torchao.quantization.pt2e.quantizer import ComposableQuantizer, Quantizer

import wheel
from cortex_m_hil.errors import ConfigError
from cortex_m_hil.lowering import LoweringOptions, clear_cache, lower
from cortex_m_hil.targets.cpu import Isa
from cortex_m_hil.targets.memory import Placed

X = torch.linspace(-2, 2, 32).reshape(1, 2, 4, 4)
OTHER: dict[str, Any] = {
    "calibration": [(2 * X,)],
    "quantize": False,
    "layout": "explicit",
    "redzones": True,
    "io": "int8",
    "banks": (Placed("small", 64), Placed("large", 64 << 10)),
}


class Divided(nn.Module):
    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: Any) -> Any:
        y = self.inner(x)
        return y / (y * y + 1)


@pytest.fixture(autouse=True)
def clean() -> Iterator[None]:
    clear_cache()
    yield
    clear_cache()


@pytest.mark.first_only
@pytest.mark.parametrize("name", [one.name for one in fields(LoweringOptions)])
def test_each_option_is_in_the_key(name: str) -> None:
    """A new field needs another value here, and has to change what is made."""
    if name == "layout":
        wheel.require((), layout="explicit")
    if name == "quantizer":
        of_int16 = wheel.needed(
            "executorch.backends.cortex_m.quantizer.quantization_configs", "INT16_PER_TENSOR_CONFIG"
        )
        OTHER["quantizer"] = CortexMQuantizer(of_int16)
    torch.manual_seed(0)
    # What is divided is quantised to int16 by the other quantiser.
    module = Divided(nn.Conv2d(2, 3, 3)) if name == "quantizer" else nn.Conv2d(2, 3, 3)
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
        ({"quantizer": 3}, "quantizer=3: it takes a quantiser"),
        ({"quantizer": CortexMQuantizer}, "quantizer=CortexMQuantizer: it takes a quantiser"),
        ({"quantizer": CortexMQuantizer(), "quantize": False}, "nothing is quantised"),
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


class Nothing(Quantizer):  # type: ignore[misc]
    """A quantiser of the user's, which leaves everything in float."""

    def annotate(self, model: Any) -> Any:
        return model

    def validate(self, model: Any) -> None:
        pass


@pytest.mark.slow
def test_a_quantiser_of_the_users_has_the_key_of_its_content() -> None:
    module = nn.Conv2d(2, 3, 3)
    default = lower(module, (X,), isa=Isa.DSP)
    used = CortexMQuantizer()
    for quantizer in (used, used, CortexMQuantizer()):
        program = lower(module, (X,), isa=Isa.DSP, options=LoweringOptions(quantizer=quantizer))
        assert (program.pte, program.no_key) == (default.pte, "")


@pytest.mark.slow
def test_code_of_the_users_in_a_quantiser_gives_no_key() -> None:
    module = nn.Linear(4, 2)
    for quantizer in (Nothing(), ComposableQuantizer([Nothing()])):
        program = lower(module, (torch.rand(1, 4),), isa=Isa.DSP, options=LoweringOptions(quantizer=quantizer))
        assert "Nothing" in program.no_key
        assert [one.operator for one in program.file.instructions] == ["aten::linear.out"]
