"""Localising: bugs are planted into kernels, into the graph and into the quantisation, and have to be named."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
import torch
from torch import nn

from cortex_m_hil import flow
from cortex_m_hil.diagnose.localize import Cause, Localization, Row, _conclusions, localize
from cortex_m_hil.errors import ConfigError, InfraError
from cortex_m_hil.flow.dut import Dut
from cortex_m_hil.host import timeouts
from cortex_m_hil.program.program import Intermediate, Program
from cortex_m_hil.program.tensor import HostTensor
from cortex_m_hil.targets.cpu import Isa
from cortex_m_hil.targets.load import load_targets
from cortex_m_hil.targets.resolve import resolve
from known_bugs.modules import hard_sigmoid
from misbehaving import OPTIONS, ones
from misbehaving import program as lowered
from networks import Net
from planting import BUGS, Bug, network

pytest_plugins = ["pytester"]

NATIVE = resolve("native", load_targets())
# Other values, an output that is not written, and what the test of the plugin plants too: each is a build.
HERE = (
    pytest.param("bias_dropped", marks=pytest.mark.slow),
    "last_output_row_unwritten",
    "zero_point_ignored_in_padding",
)


@functools.cache
def program(isa: Isa) -> Program:
    module, inputs = network()
    return flow.lower(module, inputs, isa=isa)


@pytest.fixture(scope="module")
def native() -> Iterator[Dut]:
    with flow.open_dut(NATIVE) as dut:
        yield dut


@pytest.mark.slow
def test_a_target_that_falls_silent_is_an_infra_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever it was asked last: diagnosis asks for more than a run does."""
    monkeypatch.setattr(timeouts, "REQUEST", 0.2)
    with flow.open_dut(NATIVE) as dut:
        running = dut.session()
        (runner,) = (one for one in psutil.Process().children(recursive=True) if one.name() == "runner.elf")

        def references(inputs: Any) -> tuple[Intermediate, ...]:
            runner.suspend()
            return ()

        with pytest.raises(InfraError, match="no answer to RESET") as caught:
            localize(dut, replace(program(NATIVE.target.isa), intermediates=references))
        assert caught.value.target == "native" and running.broken


def names(found: Localization) -> set[str]:
    return {row.operator.partition("::")[2].partition(".")[0] for row in found.at_fault}


def assert_named(bug: Bug, found: Localization) -> None:
    assert names(found) and names(found) <= bug.operators, "\n".join(found.lines())
    assert found.conclusions[0].startswith("this kernel is wrong: cortex_m::")
    assert found.causes == tuple((Cause.KERNEL, row) for row in found.at_fault)


@pytest.mark.first_only
@pytest.mark.parametrize("name", HERE)
def test_a_bug_of_a_kernel_is_named(name: str, tmp_path: Path) -> None:
    bug = BUGS[name]
    with flow.open_dut(NATIVE, firmware=bug.plant(tmp_path)) as dut:
        found = localize(dut, program(Isa.SCALAR))
    assert_named(bug, found)


def test_every_patch_fits_the_kernels(tmp_path: Path) -> None:
    assert len(BUGS) >= 12
    for name, bug in BUGS.items():
        bug.plant(tmp_path / name)


@pytest.mark.slow
def test_what_is_right_is_said_to_be(native: Dut) -> None:
    """Both networks, and all that is known of them: the user's line, the module, what rounding does."""
    for one in (program(Isa.SCALAR), flow.lower(Net(), (torch.rand(1, 3, 17, 17),), isa=Isa.SCALAR)):
        found = localize(native, one)
        assert not found.at_fault
        assert all((row.known and row.inputs_right is (row.departure is None)) or row.departure for row in found.rows)
        assert not any("pass built" in conclusion or "coarse" in conclusion for conclusion in found.conclusions)
        assert all((row.graph_quanta or 0) <= 1 for row in found.rows)
        assert any(row.source.startswith(str(Path(__file__).parents[2])) for row in found.rows)
        assert sum(row.graph_quanta is not None for row in found.rows) >= len(found.rows) // 2
        assert {row.module for row in found.rows} >= {"head"}


def changed(original: Program, change: Callable[[int, Intermediate], Intermediate]) -> Program:
    """The program with other references at its instructions."""
    at_instructions = original.intermediates
    assert at_instructions is not None

    def intermediates(inputs: tuple[HostTensor, ...]) -> tuple[Intermediate, ...]:
        return tuple(change(number, one) for number, one in enumerate(at_instructions(inputs)))

    return replace(original, intermediates=intermediates)


def test_localize_counts_the_elements_that_differ_from_the_reference(native: Dut) -> None:
    """The last instruction's reference is one off in two elements."""
    last = len(program(Isa.SCALAR).file.instructions) - 1

    def change(number: int, one: Intermediate) -> Intermediate:
        if number != last:
            return one
        values = one.dialect[0].array().copy()
        values[0, [3, 7]] += 1.0
        return replace(one, dialect=(HostTensor.from_array(values),))

    found = localize(native, changed(program(Isa.SCALAR), change))
    assert found.first is not None and found.at_fault == (found.first,)
    departure = found.first.kernel_error
    assert departure is not None and found.first.departure == departure
    assert (departure.elements, departure.numel, departure.first) == (2, 10, (0, 3))
    assert departure.distance == pytest.approx(1.0)
    assert found.conclusions[0].startswith("this kernel is wrong: cortex_m::dequantize_per_tensor.out")


def test_a_node_that_a_pass_got_wrong_is_told_from_a_kernel(native: Dut) -> None:
    found = localize(native, changed(program(Isa.SCALAR), lambda n, one: replace(one, graph_quanta=9 if n == 3 else 0)))
    assert not found.at_fault
    (conclusion,) = [one for one in found.conclusions if one.startswith("a pass built the wrong graph")]
    assert "operator 3" in conclusion and "9 quanta" in conclusion
    assert [(cause, row.instruction) for cause, row in found.causes] == [(Cause.GRAPH, 3)]


def test_a_layout_of_another_class_is_told_from_a_kernel(native: Dut) -> None:
    """The kernel computes rightly what it is given: the bias is in `kernel_sum`, which it never reads."""
    folded = flow.lower(nn.Linear(16, 8), (torch.rand(1, 16) * 0.01,), isa=Isa.MVE)
    found = localize(native, folded)
    assert not found.at_fault and found.is_wrong
    assert [row.operator for row in found.wrong_layout] == ["cortex_m::quantized_linear.out"]
    assert found.causes == ((Cause.LAYOUT, found.wrong_layout[0]),)
    (conclusion,) = found.conclusions
    assert conclusion.startswith("a pass built the wrong graph for this class: cortex_m::quantized_linear.out")
    assert "operator 1" in conclusion and "MVE layout on a SCALAR target" in conclusion
    assert "WRONG LAYOUT" in "\n".join(found.lines()) and "AT FAULT" not in "\n".join(found.lines())
    assert [(one["at_fault"], one["wrong_layout"]) for one in found.fields()["rows"]] == [
        (False, None), (False, "MVE layout on a SCALAR target"), (False, None),
    ]  # fmt: skip
    assert not localize(native, program(Isa.SCALAR)).is_wrong


class Coarse(nn.Module):
    """One channel takes all the range, and is not used: the others are lost."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(32, 32), nn.Linear(32, 8)
        with torch.no_grad():
            self.first.weight[0] = 50.0
            self.second.weight[:, 0] = 0.0

    def forward(self, x: Any) -> Any:
        return self.second(torch.relu(self.first(x)))


@pytest.mark.slow
def test_a_coarse_quantisation_is_told_from_both(native: Dut) -> None:
    found = localize(native, flow.lower(Coarse(), (torch.rand(1, 32),), isa=Isa.SCALAR))
    assert not found.at_fault
    assert any(one.startswith("quantisation is coarse here") and "(second)" in one for one in found.conclusions)
    assert [(cause, row.module) for cause, row in found.causes] == [(Cause.QUANTISATION, "second")]


@pytest.mark.slow
@pytest.mark.parametrize("factor", [0.01, 100.0])
def test_calibration_of_another_range_is_named_at_the_input(native: Dut, factor: float) -> None:
    """The float input is exact: what the first operator leaves of it is its own loss."""
    module, (x,) = network()
    found = localize(native, flow.lower(module, (x,), isa=Isa.SCALAR, calibration=[(x * factor,)]))
    (first, *_) = found.rows
    assert found.causes[0] == (Cause.QUANTISATION, first) and "quantize_per_tensor" in first.operator
    (said,) = [one for one in found.conclusions if one.startswith("quantisation is coarse here")]
    assert first.place in said and "its inputs exact" in said and "it holds" in said
    assert "calibrate with inputs of the range that is run" in said


def test_what_all_lose_together_is_not_called_little() -> None:
    left = [36.0, 31.0, 26.0, 22.0]
    rows = [Row(n, f"cortex_m::op{n}.out", "", "", "int8[1]", True, graph_quanta=0, dialect_db=db, inputs_db=before)
            for n, (before, db) in enumerate(zip([40.0, *left], left, strict=False))]  # fmt: skip
    (said,) = _conclusions(rows)
    assert "cortex_m::op1.out" in said and "as little as 22.0 dB" in said and "no operator loses much" not in said
    assert list(_conclusions(rows[:2])) == ["kernels and graph are right, and no operator loses much to quantisation"]


@pytest.mark.slow
def test_a_node_that_cannot_be_compared_is_named_and_not_called_right(native: Dut) -> None:
    """Known bug 14 (docs/known_bugs.md): a pass clamps a zero point, and fake-quant has no value of that zero point."""
    module, inputs = hard_sigmoid(-1.0)()
    found = localize(native, flow.lower(module, inputs, isa=Isa.SCALAR))
    assert not found.at_fault
    assert [row.operator for row in found.not_compared] == ["cortex_m::quantized_depthwise_conv2d.out"]
    assert found.causes == ((Cause.NOT_COMPARED, found.not_compared[0]),)
    not_known, right = found.conclusions
    assert not_known.startswith("whether a pass built the right graph is not known of cortex_m::quantized_depthwise")
    assert right.startswith("kernels are right; ")
    assert localize(native, program(Isa.SCALAR)).not_compared == ()


def test_there_is_a_conclusion_where_nothing_is_quantised(native: Dut) -> None:
    found = localize(native, flow.lower(nn.Softmax(-1), (torch.eye(3, 5),), isa=Isa.SCALAR, quantize=False))
    assert not found.not_compared and found.conclusions[0].startswith("kernels and graph are right; ")


class TwoOutputs(nn.Module):
    """One that is finished, and one whose kernel writes a byte somewhere."""

    def __init__(self, at: int) -> None:
        super().__init__()
        self.at = at

    def forward(self, x: Any) -> Any:
        return torch.clone(x), torch.ops.hil_test.stray(x, self.at, 0x41)


@pytest.mark.slow
def test_damage_to_an_output_that_nothing_reads_again_is_found() -> None:
    """No instruction of the program has a wrong value of its own."""
    file = lowered(TwoOutputs(0)).file
    first, second = (file.values[out].planned for out in file.outputs)
    assert first is not None and second is not None
    one = lowered(TwoOutputs(first.offset - second.offset))
    values = (Intermediate(dialect=ones()),) * 2
    with flow.open_dut(NATIVE, options=OPTIONS) as dut:
        found = localize(dut, replace(one, inputs=ones(), intermediates=lambda _: values))
    (row,) = found.at_fault
    assert row.operator == "hil_test::stray.out" and row.damaged == (0,)
    assert "hil_test::stray.out" in found.conclusions[0]


def test_a_program_without_references_is_a_mistake_of_the_call(native: Dut) -> None:
    with pytest.raises(ConfigError, match="no references"):
        localize(native, Program.from_bytes(program(Isa.SCALAR).pte, "x.pte"))


@pytest.mark.slow
def test_other_inputs_than_the_programs_own(native: Dut) -> None:
    one = program(Isa.SCALAR)
    given = HostTensor.from_array(np.full((1, 3, 24, 24), 0.25, np.float32), one.inputs[0].spec.dim_order)
    found = localize(native, one, (given,))
    assert not found.at_fault and found.rows[0].distinct == 1


def test_a_failing_test_says_which_operator_departs(pytester: pytest.Pytester, tmp_path: Path) -> None:
    """With --hil-localize; in the report, and in the JUnit file."""
    firmware = BUGS["zero_point_ignored_in_padding"].plant(tmp_path)
    pytester.makepyfile(
        f"""
        import sys
        import pytest
        from cortex_m_hil.runner.build import build_runner
        sys.path.insert(0, {str(Path(__file__).parents[2] / "support")!r})
        from pathlib import Path
        from planting import network

        @pytest.fixture
        def runner_elf(target_spec):
            return build_runner(target_spec.target, firmware=Path({str(firmware)!r}))

        def test_network(hil):
            hil.check(*network())
        """
    )
    result = pytester.runpytest_subprocess("--target=native", "--hil-localize", "--junit-xml=junit.xml")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*- localised -*", "this kernel is wrong: cortex_m::pad.out*"])
    assert 'name="hil_at_fault" value="cortex_m::pad.out' in (pytester.path / "junit.xml").read_text()


@pytest.mark.slow
def test_a_failing_test_says_that_its_layout_is_of_another_class(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import torch
        from cortex_m_hil import Isa

        def test_bias(hil):
            hil.check(torch.nn.Linear(16, 8), (torch.rand(1, 16) * 0.01,), isa=Isa.MVE, lint=False)
        """
    )
    result = pytester.runpytest_subprocess("--target=native", "--hil-localize", "--junit-xml=junit.xml")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*- localised -*", "a pass built the wrong graph for this class: *quantized_linear*"])
    junit = (pytester.path / "junit.xml").read_text()
    assert 'name="hil_wrong_layout" value="cortex_m::quantized_linear.out' in junit and "hil_at_fault" not in junit
