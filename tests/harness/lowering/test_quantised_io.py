"""io="int8": inputs and outputs by ExecuTorch's passes, their references, and what is no choice."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import cortex_m_hil as hil
from cortex_m_hil.checks.comparison.compare_outputs import compare
from cortex_m_hil.checks.comparison.comparison_result import FindingKind
from cortex_m_hil.checks.comparison.quanta import histograms
from cortex_m_hil.checks.comparison.tolerance import Tolerance
from cortex_m_hil.errors import ConfigError, LoweringError, Mismatch
from cortex_m_hil.lowering.quantised_io import FloatReferences
from cortex_m_hil.program.io_quantization import output_quantization
from cortex_m_hil.program.program import References
from cortex_m_hil.program.tensor import HostTensor
from networks import Apply
from quantised_io import int8_io


@pytest.fixture(scope="module")
def native() -> Iterator[hil.OpenTarget]:
    with hil.open("native") as target:
        yield target


def network() -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 6), nn.ReLU(), nn.Linear(6, 4)), (torch.randn(1, 8),)


class Two(nn.Module):
    """Two inputs of floats and one of indices; two outputs of floats, and one of indices."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.other = nn.Linear(8, 4), nn.Linear(8, 4)

    def forward(self, x: Any, y: Any, index: Any) -> Any:
        first, second = self.one(x), self.other(y)
        return first, second, index + 1


def two() -> tuple[nn.Module, tuple[Any, ...]]:
    torch.manual_seed(0)
    return Two(), (torch.randn(1, 8), torch.randn(1, 8), torch.tensor([3]))


def dtypes(program: hil.Program) -> tuple[list[str], list[str]]:
    file = program.file
    return [one.dtype for one in file.input_specs()], [one.dtype for one in file.output_specs()]


@pytest.mark.slow
def test_the_program_is_that_of_executorchs_own_path() -> None:
    module, inputs = network()
    made = hil.lower(module, inputs, isa=hil.Isa.DSP, io="int8")
    theirs = hil.load_program(int8_io(module, inputs, [inputs]))
    assert dict(made.constants) == dict(theirs.constants)
    assert [one.operator for one in made.file.instructions] == [one.operator for one in theirs.file.instructions]
    assert dtypes(made) == (["int8"], ["int8"])
    assert made.inputs[0].spec.dtype == "int8"


@pytest.mark.slow
def test_the_choice_is_part_of_the_key() -> None:
    module, inputs = network()
    hil.lower(module, inputs, isa=hil.Isa.SCALAR)
    made = hil.lower(module, inputs, isa=hil.Isa.SCALAR, io="int8")
    assert not made.no_key and dtypes(made) == (["int8"], ["int8"])
    again = hil.lower(module, inputs, isa=hil.Isa.SCALAR, io="int8")
    assert again.pte == made.pte
    assert dtypes(hil.lower(module, inputs, isa=hil.Isa.SCALAR)) == (["float32"], ["float32"])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("io", "inputs", "outputs"),
    [
        ("int8", ["int8", "int8", "int64"], ["int8", "int8", "int64"]),
        ({"inputs": (1,)}, ["float32", "int8", "int64"], ["float32", "float32", "int64"]),
        ({"outputs": [0]}, ["float32", "float32", "int64"], ["int8", "float32", "int64"]),
        ({"inputs": (0, 1), "outputs": (1,)}, ["int8", "int8", "int64"], ["float32", "int8", "int64"]),
    ],
)
def test_each_input_and_output_may_be_chosen(
    native: hil.OpenTarget, io: Any, inputs: list[str], outputs: list[str]
) -> None:
    module, given = two()
    assert dtypes(native.lower(module, given, io=io)) == (inputs, outputs)
    found = native.check(module, given, io=io).outputs
    assert [one.max_quanta for one in found[:2]] == [0, 0]
    assert all(one.sqnr_db is not None and one.sqnr_db > 20 for one in found[:2])


@pytest.mark.parametrize(
    "io", ["int16", "", None, {"input": (0,)}, {"inputs": 0}, {"inputs": (True,)}, {"inputs": (-1,)}, ("inputs",)]
)
def test_what_is_no_choice_is_refused(io: Any) -> None:
    module, inputs = network()
    with pytest.raises(ConfigError, match=r"^(hil\.lower: )?io") as caught:
        hil.lower(module, inputs, isa=hil.Isa.SCALAR, io=io)
    assert caught.value.hint


@pytest.mark.slow
def test_an_input_or_output_that_cannot_be_int8_is_named() -> None:
    module, inputs = two()
    with pytest.raises(ConfigError, match=r"Two: io: input 2 is no tensor of floats; 3 inputs") as caught:
        hil.lower(module, inputs, isa=hil.Isa.SCALAR, io={"inputs": (2,)})
    assert caught.value.hint == "of floats are: 0, 1"
    with pytest.raises(ConfigError, match=r"output 7 is no tensor of floats; 3 outputs"):
        hil.lower(module, inputs, isa=hil.Isa.SCALAR, io={"outputs": (7,)})
    x = (torch.rand(1, 8),)
    in_float = Apply(torch.atan)
    with pytest.raises(LoweringError, match=r"io: input 0 is not quantised: .*atan.* reads it"):
        hil.lower(in_float, x, isa=hil.Isa.SCALAR, quantize=False, io="int8")
    with pytest.raises(LoweringError, match=r"io: output 0 is not dequantised: .*atan.* gives it") as wrong:
        hil.lower(in_float, x, isa=hil.Isa.SCALAR, quantize=False, io={"outputs": (0,)})
    assert 'io={"inputs"' in wrong.value.hint


class Sum(nn.Module):
    """Keeps what it is given, in state that is quantised; gives two numbers of it."""

    total: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)
        self.register_buffer("total", torch.zeros(1, 4))

    def forward(self, x: Any) -> Any:
        self.total.copy_(self.total + x)
        return self.layer(self.total), torch.relu(self.layer(self.total))


@pytest.mark.slow
def test_a_module_with_state_takes_and_gives_int8(native: hil.OpenTarget) -> None:
    """ExecuTorch's pass counts the state among the outputs; the constants have the program's own numbers."""
    torch.manual_seed(0)
    module, frames = Sum(), [(torch.rand(1, 4),) for _ in range(4)]
    samples = [(torch.rand(1, 4),) for _ in range(8)]
    program = native.lower(module, frames[0], calibration=samples, io="int8")
    assert dtypes(program) == (["int8"], ["int8", "int8"]) and len(program.file.states) == 1
    assert len(program.constants) == 15
    assert all(program.output_quantization(number) is not None for number in (0, 1))
    assert [one.max_quanta for one in native.check(module, frames[0], calibration=samples, io="int8").outputs] == [0, 0]
    streamed = native.stream(program, [(x.numpy(),) for (x,) in frames], quantize_inputs=True)
    by = program.output_quantization(1)
    assert by is not None
    for (x,), frame in zip(frames, streamed.frames, strict=True):
        wanted = module(x)[1].detach().numpy()
        assert np.abs((frame.outputs[1].array().astype(float) - by.zero_point) * by.scale - wanted).max() < 4 * by.scale


# --- references ------------------------------------------------------------------------------------------------


def test_the_float_module_gets_the_floats_that_were_given(native: hil.OpenTarget) -> None:
    """Dequantised inputs would hide what their quantisation costs."""
    module, inputs = network()
    [with_floats], [with_int8] = native.check(module, inputs).outputs, native.check(module, inputs, io="int8").outputs
    assert with_int8 == with_floats
    with pytest.raises(Mismatch, match=r"eager: SQNR against the float module is .* dB, the bound 15") as caught:
        native.check(module, inputs, io="int8", more_inputs=[(4 * inputs[0],)])
    assert dict(caught.value.details)["inputs"].startswith("more_inputs[0], int8")


def test_other_inputs_stand_for_their_numbers() -> None:
    module, inputs = network()
    program = hil.lower(module, inputs, isa=hil.Isa.SCALAR, io="int8")
    assert isinstance(program.reference, FloatReferences)
    by = program.input_quantization(0)
    assert by is not None
    [own] = program.inputs
    other = HostTensor.from_array(own.array()[:, ::-1].copy())
    [eager] = program.reference((other,)).eager or ()
    numbers = (other.array().astype(np.float32) - by.zero_point) * np.float32(by.scale)
    with torch.no_grad():
        np.testing.assert_array_equal(eager, module(torch.from_numpy(numbers)).numpy())


def test_streams_and_localisations_quantise_where_that_is_asked_for(native: hil.OpenTarget) -> None:
    module, inputs = network()
    program = native.lower(module, inputs, io="int8")
    wide = (4 * inputs[0],)
    streamed = native.stream(program, [inputs, wide], quantize_inputs=True)
    assert [one.outputs for one in streamed.frames] == [
        native.run(program, one, quantize_inputs=True).outputs for one in (inputs, wide)
    ]
    assert streamed.saturated is not None and 0 < streamed.saturated < 1
    found = native.localize(program, wide, quantize_inputs=True)
    assert not found.at_fault and found.saturated is not None and found.saturated > streamed.saturated
    for ask in (lambda: native.stream(program, [inputs]), lambda: native.localize(program, inputs)):
        with pytest.raises(ConfigError, match=r"the program takes int8\[1, 8\] \(scale .*, not float32") as caught:
            ask()
        assert "quantize_inputs=True" in caught.value.hint


@pytest.mark.slow
def test_a_nan_has_no_integer() -> None:
    module, _ = network()
    x = torch.full((1, 8), torch.nan)
    with pytest.raises(ConfigError, match="input 0 has a NaN, which has no integer"):
        hil.lower(module, (x,), isa=hil.Isa.SCALAR, calibration=[(torch.rand(1, 8),)], io="int8")


def test_integers_are_compared_exactly_and_as_what_they_stand_for() -> None:
    module, inputs = network()
    program = hil.lower(module, inputs, isa=hil.Isa.SCALAR, io="int8")
    assert program.reference is not None
    references = program.reference(program.inputs)
    [dialect], [quantized] = references.dialect or (), references.quantized or ()
    assert dialect.dtype == np.int8 and quantized.dtype == np.float32

    def found(array: Any, **tolerance: Any) -> hil.Comparison:
        return compare(program.file, [HostTensor.from_array(array)], references, Tolerance(**tolerance))

    assert found(dialect).ok and found(dialect).outputs[0].max_quanta == 0
    off = dialect.copy()
    off[0, 1] += 1
    assert [one.kind for one in found(off).errors] == [FindingKind.QUANTA]
    assert found(off).outputs[0].max_quanta == found(off).outputs[0].fake_quant_quanta == 1
    assert found(off, qtol=1).ok
    shifted = (dialect.astype(int) - 30).clip(-128, 127).astype(np.int8)
    kinds = {one.kind for one in found(shifted, qtol=30).errors}
    assert FindingKind.EAGER in kinds
    assert histograms(program.file, [HostTensor.from_array(off)], references) == {
        "max_quanta": {"0": 3, "1": 1},
        "fake_quant_quanta": {"0": 3, "1": 1},
    }
    by = output_quantization(program.file, 0)
    assert by is not None
    beyond = np.full(off.shape, (by.qmax + 3 - by.zero_point) * by.scale, np.float32)
    most = HostTensor.from_array(np.full_like(off, by.qmax))
    assert histograms(program.file, [most], References(dialect=(beyond,))) == {"max_quanta": {"3": 4}}
