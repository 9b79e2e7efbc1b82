"""What rounding explains: correct networks pass by default, and errors of a lowering do not."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from cortex_m_hil import flow
from cortex_m_hil.checks.comparison.compare_outputs import compare
from cortex_m_hil.checks.comparison.comparison_result import FindingKind
from cortex_m_hil.checks.comparison.tolerance import Tolerance
from cortex_m_hil.checks.lint import lint
from cortex_m_hil.checks.lint_rules.finding import Rule
from cortex_m_hil.flow.dut import Dut
from cortex_m_hil.host.random_generators import seed
from cortex_m_hil.lowering import LoweringOptions, lower
from cortex_m_hil.lowering.rounding import FLOAT_RUNS, RUNS
from cortex_m_hil.program.program import Program, References
from cortex_m_hil.program.tensor import HostTensor
from cortex_m_hil.runner.build import portable_operators
from cortex_m_hil.targets.cpu import Isa
from cortex_m_hil.targets.load import load_targets
from cortex_m_hil.targets.resolve import resolve
from planted_errors import judged, planted
from random_networks import ResidualNorms, network


@pytest.fixture(scope="module")
def dut() -> Iterator[Dut]:
    with flow.open_dut(resolve("native", load_targets())) as opened:
        yield opened


def check(dut: Dut, module: nn.Module, inputs: tuple[Any, ...]) -> flow.Checked:
    return flow.verify(dut, flow.lower(module, inputs, isa=dut.target.isa), tolerance=Tolerance())


def first_layer() -> tuple[nn.Module, tuple[Any, ...]]:
    return nn.Sequential(nn.Conv2d(1, 4, 3, padding=1), nn.ReLU()), (torch.rand(1, 1, 16, 16),)


@pytest.mark.first_only
@pytest.mark.parametrize("number", range(3))
def test_a_convolution_passes_whatever_the_seed(dut: Dut, number: int) -> None:
    """Of 1,024 elements one or two are a quantum from fake-quant, for most seeds, and none from the dialect."""
    seed(number)
    assert check(dut, *first_layer()).comparison.outputs[0].max_quanta == 0


# Small ones, which have every operator between them; all of 300 are in tests/nightly/test_random_networks.py.
@pytest.mark.slow
@pytest.mark.parametrize("number", [2, 3, 5, 8, 13, 15, 19, 23, 26, 27, 34, 39])
def test_random_networks_pass(dut: Dut, number: int) -> None:
    check(dut, *network(number))


def test_a_network_follows_from_its_number() -> None:
    before = torch.random.get_rng_state()
    (one, given), (same, again) = network(5), network(5)
    assert torch.equal(torch.random.get_rng_state(), before)
    assert str(one) == str(same) and torch.equal(given[0], again[0])
    assert torch.equal(one(*given), same(*again))


@pytest.fixture(scope="module")
def convolution() -> Program:
    seed(1)
    return lower(*first_layer(), isa=Isa.DSP)


def references(program: Program) -> References:
    assert program.reference is not None
    return program.reference(program.inputs)


@pytest.mark.slow
def test_disturbed_runs_are_the_same_each_time_and_leave_the_generators_alone(convolution: Program) -> None:
    states = torch.random.get_rng_state(), np.random.get_state()[1].tolist()  # type: ignore[index]
    one, other = references(convolution), references(convolution)
    assert torch.equal(torch.random.get_rng_state(), states[0])
    assert np.random.get_state()[1].tolist() == states[1]  # type: ignore[index]
    assert len(one.disturbed) == len(RUNS) and one.quantized is not None
    for (run,), (again,) in zip(one.disturbed, other.disturbed, strict=True):
        np.testing.assert_array_equal(run, again)
        assert run.shape == one.quantized[0].shape
    assert any((run != one.quantized[0]).any() for (run,) in one.disturbed)


@pytest.mark.slow
def test_at_least_one_step_of_the_last_operator_is_rounding() -> None:
    """A softmax's quantum is 1/256; quantised anew, to a finer scale, it is several. Chance may move none of a few."""
    seed(1)
    program = lower(nn.Sequential(nn.Linear(8, 9), nn.Softmax(-1)), (torch.randn(1, 8),), isa=Isa.DSP)
    outputs = references(program)
    assert outputs.quantized is not None
    (up,), (down,) = outputs.disturbed[-2:]
    assert np.sort((up - outputs.quantized[0]).ravel()) == pytest.approx([0] * 8 + [1 / 256], abs=1e-3)
    assert np.sort((down - outputs.quantized[0]).ravel()) == pytest.approx([-1 / 256] + [0] * 8, abs=1e-3)


def test_last_bits_of_floats_are_disturbed_where_integers_depend_on_them() -> None:
    seed(0)
    inputs = (torch.rand(60, 80),)
    norms = references(lower(ResidualNorms(4), inputs, isa=Isa.DSP))
    assert len(norms.disturbed_floats) == len(FLOAT_RUNS) and norms.dialect is not None
    moved = [(run != norms.dialect[0]).mean() for (run,) in norms.disturbed_floats]
    assert 0 < max(moved) < 0.05
    assert references(lower(nn.Linear(80, 4), inputs, isa=Isa.DSP)).disturbed_floats == ()  # integers alone
    scaled = nn.Sequential(nn.Linear(80, 4), Halved(), nn.Linear(4, 4))  # single roundings, the same everywhere
    assert references(lower(scaled, inputs, isa=Isa.DSP)).disturbed_floats == ()


class Halved(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return 0.5 * x


def test_a_tie_after_a_layer_norm_is_no_error_of_the_target(dut: Dut) -> None:
    seed(0)
    found = check(dut, ResidualNorms(4), (torch.rand(60, 80),)).comparison.outputs[0]
    assert found.max_quanta is not None and 0 < found.max_quanta <= 2


@pytest.mark.slow
def test_errors_of_a_kernel_are_not_last_bits_of_floats() -> None:
    """The outputs of each error, as if a kernel had computed them, compared with the references without it."""
    seed(0)
    program = lower(ResidualNorms(2), (torch.rand(60, 80),), isa=Isa.DSP)
    right, names = references(program), set()
    for name, wrong in planted(program, seed=1):
        assert right.dialect is not None and wrong.dialect is not None
        if np.array_equal(wrong.dialect[0], right.dialect[0]):
            continue
        outputs = [HostTensor.from_array(one) for one in wrong.dialect]
        found = compare(program.file, outputs, right, Tolerance())
        assert FindingKind.QUANTA in {one.kind for one in found.errors}, name
        names.add(name)
    assert len(names) >= 15


@pytest.mark.slow
def test_a_hard_swish_in_place_is_disturbed_as_any_other() -> None:
    """MobileNetV3 has them in place: the input, by which the disturbance is measured, is overwritten."""
    seed(1)
    layer, inputs = nn.Linear(9, 7), (torch.randn(16, 9) * 4,)
    runs = [
        references(lower(nn.Sequential(layer, nn.Hardswish(inplace)), inputs, isa=Isa.DSP)).disturbed
        for inplace in (False, True)
    ]
    for (one,), (other,) in zip(*runs, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.slow
def test_an_empty_output_has_nothing_to_disturb() -> None:
    found = references(lower(nn.Linear(8, 4), (torch.zeros(0, 8),), isa=Isa.DSP))
    assert [outputs[0].shape for outputs in found.disturbed] == [(0, 4)] * len(RUNS)


def test_there_is_nothing_to_disturb_without_quantisation() -> None:
    seed(1)
    program = lower(nn.Conv2d(2, 3, 3), (torch.rand(1, 2, 6, 6),), isa=Isa.DSP, options=LoweringOptions(quantize=False))
    assert references(program).disturbed == ()


@pytest.mark.slow
def test_errors_of_a_lowering_are_not_rounding(convolution: Program) -> None:
    """All that a single layer can have, and of one quantum too: the dialect, which has them as well, sees none."""
    comparisons = {name: judged(convolution, found) for name, found in planted(convolution, seed=1)}
    caught = {name: not found.ok for name, found in comparisons.items()}
    assert {error.kind for found in comparisons.values() for error in found.errors} <= {
        FindingKind.QUANTIZED,
        FindingKind.EAGER,
    }
    some = {"output zero point + 1", "input zero point - 1", "bias dropped", "kernel flipped", "image a pixel off"}
    assert some <= set(caught)
    assert [name for name, one in caught.items() if not one] == []


def test_a_hard_sigmoid_of_less_than_a_half_is_lowered_wrongly_and_caught() -> None:
    """Known bug 14 (docs/known_bugs.md): executorch 1.5.1 clamps the zero point that it would need."""
    layer = nn.Conv2d(1, 1, 1)
    nn.init.constant_(layer.weight, 0.5)
    for bias, right in ((1.0, True), (-1.0, False)):
        nn.init.constant_(layer.bias, bias)  # type: ignore[arg-type]
        program = lower(nn.Sequential(layer, nn.Hardsigmoid()), (torch.rand(1, 1, 8, 8),), isa=Isa.DSP)
        assert program.reference is not None
        assert judged(program, program.reference(program.inputs)).ok == right


class NothingGetsThrough(nn.Module):
    """A layer whose inputs are all zero, behind a relu."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(4, 4), nn.Linear(4, 4)
        nn.init.constant_(self.first.bias, -9.0)
        nn.init.constant_(self.last.bias, 1.0)

    def forward(self, x: Any) -> Any:
        return self.last(torch.relu(self.first(x)))


CLAMPS = {
    "relu of a table": nn.Sequential(nn.Tanh(), nn.ReLU()),
    "relu of a relu": nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.ReLU()),
    "hard tanh of a relu": nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Hardtanh()),
}


def test_a_bias_beyond_int32_is_caught() -> None:
    """Known bug 15 (docs/known_bugs.md): the bias's scale is that of inputs that are all zero."""
    program = lower(NothingGetsThrough(), (torch.rand(3, 4),), isa=Isa.DSP)
    found = judged(program, references(program))
    assert {error.kind for error in found.errors} == {FindingKind.EAGER}
    assert "calibrate with inputs of the range that is run" in found.advice[0].hint


@pytest.mark.slow
@pytest.mark.parametrize("module", CLAMPS.values(), ids=CLAMPS)
def test_a_clamp_of_integers_that_ignores_their_zero_point_is_caught(module: nn.Module) -> None:
    """Known bug 16 (docs/known_bugs.md). By fake-quant; and before it runs, on either runtime."""
    seed(1)
    program = lower(module, (torch.randn(3, 8),), isa=Isa.DSP)
    assert FindingKind.QUANTIZED in {error.kind for error in judged(program, references(program)).errors}
    target = load_targets()["m4-qemu"]
    for runtime in ("builtin", "executorch"):
        (finding,) = lint(program, target, operators=None, runtime=runtime)
        assert finding.rule is Rule.DTYPE and "computes without their scales and zero points" in finding.message
    offered = {one.operator for one in program.file.instructions} - set(portable_operators())
    *_, finding = lint(program, target, operators=offered)
    assert finding.rule is Rule.OPERATOR and "left it on quantised integers" in finding.message
