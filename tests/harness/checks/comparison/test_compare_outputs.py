"""The comparison on the self-test's own program: right answers pass, each kind of wrong answer has its finding."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cortex_m_hil import errors
from cortex_m_hil.checks.comparison.advice_texts import LOCALIZE, Advice
from cortex_m_hil.checks.comparison.compare_outputs import compare
from cortex_m_hil.checks.comparison.comparison_result import Comparison, Figures, FindingKind
from cortex_m_hil.checks.comparison.tolerance import NO_SQNR, Tolerance
from cortex_m_hil.program.known_answer import known_answer
from cortex_m_hil.program.program import References
from cortex_m_hil.program.pte_file import PteFile
from cortex_m_hil.program.pte_reader import parse_pte
from cortex_m_hil.program.tensor import Array, HostTensor, TensorSpec
from cortex_m_hil.targets.cpu import Isa

EXPECTED = known_answer(Isa.MVE).expected[0].array()
DEFAULT = Tolerance()


def reshaped(file: PteFile, shape: tuple[int, ...], dtype: str = "float32") -> PteFile:
    """The same program with another output spec, so that outputs of any size can be tried."""
    values = list(file.values)
    index = file.outputs[0]
    values[index] = replace(values[index], spec=TensorSpec.contiguous(dtype, shape))
    return replace(file, values=tuple(values))


def unquantised(file: PteFile) -> PteFile:
    return replace(file, instructions=file.instructions[:-1])


FILE = parse_pte(known_answer(Isa.MVE).program)
DSP_FILE = parse_pte(known_answer(Isa.DSP).program)
QUANTIZATION = FILE.dataflow.output_quantizations[0]
assert QUANTIZATION is not None
SCALE, ZERO = np.float32(QUANTIZATION.scale), QUANTIZATION.zero_point


def dequantised(quanta: Array) -> Array:
    return (quanta.astype(np.float32) - np.float32(ZERO)) * SCALE


def check(
    output: Array,
    reference: Array | None = EXPECTED,
    tolerance: Tolerance = DEFAULT,
    *,
    file: PteFile = FILE,
    quantized: Array | None = None,
    disturbed: tuple[Array, ...] = (),
    disturbed_floats: tuple[Array, ...] = (),
    eager: Array | None = None,
    unwritten: Array | None = None,
) -> Comparison:
    """`quantized` and `eager` default to `reference`, which is the dialect's."""
    dialect, fake, float_ = (None if one is None else (one,) for one in (reference, quantized, eager))
    runs, floats = (tuple((run,) for run in several) for several in (disturbed, disturbed_floats))
    references = References(dialect, fake or dialect, float_ or dialect, runs, disturbed_floats=floats)
    masks = None if unwritten is None else (unwritten,)
    return compare(file, (HostTensor.from_array(output),), references, tolerance, masks)


def kinds(comparison: Comparison) -> set[str]:
    return {finding.kind.value for finding in comparison.findings}


def test_the_right_answer_passes() -> None:
    found = check(EXPECTED)
    assert found.ok and not found.findings
    assert found.outputs == (Figures(0, 0, 0.0, math.inf),)
    found.raise_for_verdict("x")


@pytest.mark.parametrize(("step", "qtol", "ok"), [(1, 0, False), (1, 1, True), (2, 1, False), (-3, 3, True)])
def test_a_difference_beyond_qtol_is_a_mismatch(step: int, qtol: int, ok: bool) -> None:
    output = EXPECTED.copy()
    output[0, 5] += step * SCALE
    found = check(output, tolerance=Tolerance(qtol=qtol))
    assert found.ok is ok
    assert found.outputs[0].max_quanta == abs(step)
    if not ok:
        assert {"quanta", "quantized"} <= kinds(found)
        with pytest.raises(errors.Mismatch) as caught:
            found.raise_for_verdict("m4-qemu")
        lines = str(caught.value).splitlines()
        for part in ("m4-qemu", "output 0", f"1 of 8 elements off, by up to {abs(step)} quant", "quantized_linear"):
            assert part in lines[0]
        assert f"{abs(step)} quant" in lines[1] and lines[1].count("from") == 3
        assert re.match(r"  first: +\[0, 5\]: expected 1.2451.* \(q \d+\), got ", lines[2])
        assert "the target: " in lines[3]
        assert max(map(len, lines)) <= 140 and len(lines) == 5


@pytest.mark.parametrize("file", [FILE, unquantised(FILE)])
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_what_is_not_finite_is_not_told_as_a_number(file: PteFile, value: float) -> None:
    odd = EXPECTED.copy()
    odd[0, 3] = value

    def told(output: Array, expected: Array) -> str:
        """What is told where element 5 is far off as well."""
        other = output.copy()
        other[0, 5] += 3 * SCALE
        found = compare(file, (HostTensor.from_array(other),), References(expected=(expected,)), Tolerance(atol=0.0))
        assert "nan" in kinds(found) and found.outputs[0].max_quanta in (3, None)
        return "\n".join(str(element) for one in found.findings for element in one.elements)

    assert "[0, 5]: expected" in told(EXPECTED, odd) and "[0, 3]: expected" not in told(EXPECTED, odd)
    assert "[0, 5]: expected" in told(odd, EXPECTED) and "[0, 3]: expected" not in told(odd, EXPECTED)


def test_a_dropped_bias_collapses() -> None:
    """What a DSP runtime makes of the MVE layout: values within a few quanta of each other."""
    output = dequantised(np.array([[ZERO, ZERO + 1, ZERO, ZERO, ZERO + 1, ZERO, ZERO, ZERO]]))
    found = check(output)
    assert {"collapse", "quanta", "quantized", "eager"} <= kinds(found)
    with pytest.raises(errors.Mismatch) as caught:
        found.raise_for_verdict("m4-fvp")
    text = str(caught.value)
    for part in ("collapse", "the 8 elements have only 2 different values, the reference's have 8", "m4-fvp"):
        assert part in text.splitlines()[0]
    assert re.search(r"^  first: +\[0, 0\]: expected ", text, re.MULTILINE)
    assert re.search(r"^  worst: +\[0, \d\]: expected ", text, re.MULTILINE)
    assert re.search("^  cause: .*kernel_sum", text, re.MULTILINE)


def test_collapse_is_told_even_within_the_tolerance() -> None:
    """A tolerance wide enough to make a check uninformative must not hide a constant output."""
    loose = Tolerance(atol=1e-6, rtol=1.0, eager_sqnr=-300.0)
    found = check(np.zeros_like(EXPECTED), tolerance=loose, file=unquantised(FILE))
    assert kinds(found) == {"collapse"} and not found.ok
    assert "nearly constant" in found.errors[0].message


def test_likely_cause_knows_both_layouts() -> None:
    flat = dequantised(np.full((1, 8), ZERO))
    assert "drops the bias" in check(flat, file=DSP_FILE).advice[0].cause
    assert "folds the bias into kernel_sum" in check(flat).advice[0].cause
    assert "hil lint" in check(flat).advice[0].hint


def test_a_collapse_of_another_operator_is_not_blamed_on_the_layout() -> None:
    instructions = [replace(one, operator=one.operator.replace("_linear", "_add")) for one in FILE.instructions]
    found = check(dequantised(np.full((1, 8), ZERO)), file=replace(FILE, instructions=tuple(instructions)))
    assert found.advice[0].cause == "cortex_m::quantized_add.out (operator 1) or what feeds it"
    assert "hil lint" not in found.advice[0].hint and "--redzones" in found.advice[0].hint


@pytest.mark.parametrize("file", [FILE, unquantised(FILE)], ids=["quantised", "float"])
def test_the_cause_is_told_by_who_agrees_with_whom(file: PteFile) -> None:
    other = dequantised(np.linspace(-100, 100, 8).round()[None])
    loose = Tolerance(eager_sqnr=-300.0)
    causes = {
        "the target": check(other, EXPECTED, loose, file=file),
        "the lowering": check(EXPECTED, EXPECTED, file=file, quantized=other, eager=other),
        "the quantisation": check(EXPECTED, EXPECTED, file=file, eager=other),
    }
    assert all(found.advice[0].cause.startswith(cause) for cause, found in causes.items())
    assert all(LOCALIZE in found.advice[0].hint for found in causes.values())
    unknown = compare(file, (HostTensor.from_array(other),), References(None, (EXPECTED,), None), loose)
    assert not unknown.ok and not unknown.advice[0].cause  # nobody asked the Python operators


def test_values_between_or_beyond_quanta_are_off_grid() -> None:
    output = EXPECTED.copy()
    output[0, 2] += SCALE / 4
    found = check(output)
    assert "off_grid" in kinds(found) and "quanta" not in kinds(found)
    beyond = EXPECTED.copy()
    beyond[0, 2] = dequantised(np.array(200))
    assert "off_grid" in kinds(check(beyond))
    assert "off_grid" not in kinds(check(beyond, beyond))  # so it is the program that leaves the range


def test_int8_outputs_are_compared_in_quanta() -> None:
    file = reshaped(unquantised(FILE), (1, 8), "int8")
    reference = np.arange(-4, 4, dtype=np.int8)[None]
    output = reference.copy()
    output[0, 3] += 1
    assert check(output, reference, file=file).outputs[0].max_quanta == 1
    assert "exact" in kinds(check(output, reference, file=file))
    assert check(output, reference, Tolerance(qtol=1), file=file).ok
    output[0, 3] += 1
    assert "exact" in kinds(check(output, reference, Tolerance(qtol=1), file=file))


@given(st.integers(-128, 127))
def test_every_point_of_the_grid_is_on_it(quantum: int) -> None:
    reference = dequantised(np.linspace(-128, 127, 8).round()[None])
    output = reference.copy()
    output[0, 3] = dequantised(np.array(quantum))
    assert "off_grid" not in kinds(check(output, reference))


def test_nan_and_infinity_in_an_output_are_errors() -> None:
    output = EXPECTED.copy()
    output[0, 3] = np.nan
    output[0, 6] = np.inf
    found = check(output)
    assert "nan" in kinds(found)
    assert "2 of 8 elements not finite" in found.errors[0].message


def test_a_number_where_the_reference_has_none() -> None:
    reference = EXPECTED.copy()
    reference[0, 1] = np.inf
    assert "nan" in kinds(check(EXPECTED, reference, file=unquantised(FILE)))
    assert "nan" not in kinds(check(reference, reference, file=unquantised(FILE)))


def test_elements_that_were_never_written_are_errors() -> None:
    mask = np.zeros((1, 8), bool)
    mask[0, 6:] = True
    found = check(EXPECTED, unwritten=mask)
    assert kinds(found) == {"unwritten"} and not found.ok
    assert "2 of 8 elements never written, first at [0, 6]" in found.findings[0].message


def test_another_shape_dtype_or_number_of_outputs_is_a_mismatch() -> None:
    assert kinds(check(EXPECTED[0])) == {"shape"}
    assert kinds(check(EXPECTED.astype(np.float64))) == {"shape"}
    none = compare(FILE, (), References(), DEFAULT)
    with pytest.raises(errors.Mismatch, match="1 outputs, 0 arrived"):
        none.raise_for_verdict("x")


def test_saturated_values_that_the_reference_lacks_are_reported() -> None:
    reference = dequantised(np.linspace(-100, 100, 64).round().reshape(1, 64))
    output = reference.copy()
    output[0, :8] = dequantised(np.array(127))
    assert "saturation" in kinds(check(output, reference))
    assert "saturation" not in kinds(check(reference, reference))


def test_saturation_of_the_reference_is_a_warning() -> None:
    """Pinned channels (ExecuTorch #21825) look right to whoever compares with the same lowering."""
    reference = dequantised(np.concatenate([np.full(16, 127), np.linspace(-100, 100, 48).round()])[None])
    found = check(reference, reference)
    assert found.ok and [w.kind for w in found.warnings] == [FindingKind.REFERENCE_SATURATION]


def test_uninformative_reference_is_a_warning() -> None:
    flat = dequantised(ZERO + np.array([[0, 1, 2, 3, 0, 1, 2, 3]]))
    found = check(flat, flat)
    assert found.ok and kinds(found) == {"uninformative"} and "proves nothing" in found.warnings[0].message
    assert kinds(check(EXPECTED, EXPECTED, Tolerance(atol=5.0), file=unquantised(FILE))) == {"uninformative"}
    assert kinds(check(EXPECTED, EXPECTED, Tolerance(qtol=200))) == {"uninformative"}
    assert kinds(check(EXPECTED, EXPECTED, Tolerance(fake_quant_qtol=200))) == {"uninformative"}
    assert kinds(check(EXPECTED, None)) == {"uninformative"}


@pytest.mark.parametrize("dtype", ["float32", "int8", "int64", "bool"])
def test_an_empty_batch_is_a_warning(dtype: str) -> None:
    empty = np.zeros((0, 8), dtype)
    for file in (FILE, unquantised(FILE)):
        found = check(empty, empty, file=reshaped(file, (0, 8), dtype))
        assert found.ok and kinds(found) == {"uninformative"} and "no elements" in found.warnings[0].message


@pytest.mark.parametrize(
    ("values", "warns"),
    [
        (np.full((1, 8), 7, np.int64), True),  # the same index everywhere
        (np.arange(8)[None] % 2, False),
        (np.ones((1, 8), bool), True),
        (np.array([[3]]), False),  # one index: no other would do
        (np.arange(8, dtype=np.int8)[None] // 2, True),  # 4 quanta
        (np.arange(8, dtype=np.int8)[None], False),
    ],
)
def test_constant_integers_are_a_warning(values: Array, warns: bool) -> None:
    file = reshaped(unquantised(FILE), values.shape, str(values.dtype))
    assert kinds(check(values, values, file=file)) == ({"uninformative"} if warns else set())


@pytest.mark.parametrize(
    "arguments",
    [
        {name: value}
        for name in ("qtol", "fake_quant_qtol", "atol", "rtol", "eager_sqnr")
        for value in (math.nan, math.inf, "5", True, -1 if name != "eager_sqnr" else -math.inf, [1])
    ]
    + [{"qtol": None}, {"qtol": 1.5}, {"fake_quant_qtol": 1.5}],
    ids=str,
)
def test_what_is_no_tolerance_is_a_config_error(arguments: dict[str, Any]) -> None:
    ((name, value),) = arguments.items()
    with pytest.raises(errors.ConfigError) as caught:
        Tolerance(**arguments)
    assert caught.value.message.startswith(f"{name}={value!r}: it takes ")


def test_numbers_of_numpy_are_tolerances() -> None:
    assert Tolerance(np.int64(2), np.int8(1), np.float32(0.5)).qtol == 2  # type: ignore[arg-type]


# --- fake-quant: what rounding explains ----------------------------------------------------------------------

GRID = np.linspace(-120, 120, 800).round().reshape(1, 800)
WIDE = reshaped(FILE, (1, 800))


def moved(*elements: int, by: int = 1) -> Array:
    """The grid with some elements moved, dequantised."""
    quanta = GRID.copy()
    quanta[0, list(elements)] += by
    return dequantised(quanta)


def against_fake_quant(output: Array, disturbed: tuple[Array, ...], **tolerance: int) -> Comparison:
    """The dialect agrees with the output: only fake-quant can tell."""
    return check(output, output, Tolerance(**tolerance), file=WIDE, quantized=dequantised(GRID), disturbed=disturbed)


ROUNDING = (moved(3, 90), moved(200, by=-1), moved(300, 400, 401))


def test_what_rounding_explains_passes() -> None:
    found = against_fake_quant(moved(5, 77), ROUNDING)
    assert found.ok and not found.findings
    assert (found.outputs[0].max_quanta, found.outputs[0].fake_quant_quanta) == (0, 1)


def test_a_limit_below_what_rounding_explains_is_not_blamed_on_the_lowering() -> None:
    found = against_fake_quant(moved(5, 77), ROUNDING, fake_quant_qtol=0)
    assert {error.kind for error in found.errors} == {FindingKind.QUANTIZED}
    assert "rounding" in found.advice[0].cause and "leave fake_quant_qtol out" in found.advice[0].hint
    assert "the lowering" in against_fake_quant(moved(5, by=2), ROUNDING, fake_quant_qtol=0).advice[0].cause
    assert against_fake_quant(moved(5, 77), ROUNDING).advice[0] == Advice()


@pytest.mark.parametrize(
    "wrong",
    [
        moved(5, by=2),  # too far
        moved(*range(5, 11)),  # too many
        moved(*range(800)),  # a zero point
        dequantised((GRID * 1.03).round()),  # a scale
    ],
)
def test_what_rounding_does_not_explain_fails(wrong: Array) -> None:
    found = against_fake_quant(wrong, ROUNDING)
    assert [finding.kind.value for finding in found.errors] == ["quantized"]
    with pytest.raises(errors.Mismatch) as caught:
        found.raise_for_verdict("m4-qemu")
    lines = str(caught.value).splitlines()
    assert (
        "off fake-quant" in lines[0]
        and "rounding alone explains at most 4 elements off, by up to 1 quantum and " in lines[0]
    )
    assert "0 quanta from the dialect" in lines[1]
    assert any(line.startswith("  cause:    the lowering") for line in lines)
    assert "fake_quant_qtol" in lines[-1]


def test_another_scale_of_the_last_dequantize_is_not_rounding() -> None:
    """A thousandth: too little to move an element by half a quantum."""
    found = check(moved(), quantized=moved() * np.float32(1.001), reference=moved(), file=WIDE)
    assert kinds(found) == {"quantized"} and "output scale" in found.errors[0].message


def test_without_disturbed_runs_nothing_is_rounding() -> None:
    assert not against_fake_quant(moved(5), ()).ok


def test_last_bits_of_floats_explain_a_deviation_from_the_dialect_and_no_more() -> None:
    def against_dialect(output: Array, *floats: Array, qtol: int = 0) -> Comparison:
        return check(output, moved(), Tolerance(qtol), file=WIDE, quantized=output, disturbed_floats=floats)

    passed = against_dialect(moved(5, 77), *ROUNDING)
    assert passed.ok and passed.outputs[0].max_quanta == 1
    assert not against_dialect(moved(5, 77)).ok
    more = against_dialect(moved(*range(10)), *ROUNDING)
    assert kinds(more) == {"quanta"}
    text = "10 of 800 elements off, by up to 1 quantum; other last bits of floats explain 4, by up to 1"
    assert text in more.errors[0].message
    assert kinds(against_dialect(moved(5, by=2), *ROUNDING)) == {"quanta"}
    assert against_dialect(moved(5, by=2), *ROUNDING, qtol=1).ok


def test_each_reference_has_a_tolerance_of_its_own() -> None:
    assert against_fake_quant(moved(*range(800)), (), fake_quant_qtol=1).ok
    assert not against_fake_quant(moved(5), ROUNDING, fake_quant_qtol=0).ok
    assert not against_fake_quant(moved(5, by=2), ROUNDING, fake_quant_qtol=1).ok
    off = check(moved(5), dequantised(GRID), Tolerance(fake_quant_qtol=9), file=WIDE)
    assert kinds(off) == {"quanta"}  # however far from fake-quant it may be, the dialect allows nothing
    near = check(moved(5), dequantised(GRID), Tolerance(qtol=1), file=WIDE)
    assert near.ok  # what may be a quantum from the dialect may be that from fake-quant


def test_an_output_far_from_the_float_module_blames_the_quantisation() -> None:
    with pytest.raises(errors.Mismatch, match=r"cause: +the quantisation"):
        check(EXPECTED, eager=EXPECTED[:, ::-1].copy()).raise_for_verdict("x")


def test_outputs_far_from_the_float_module_alone_are_an_eager_finding() -> None:
    """Fake-quant and dialect agree with the output, the float module does not: a wrong lowering."""
    found = check(EXPECTED, eager=EXPECTED[:, ::-1].copy())
    assert kinds(found) == {"eager"} and "dB" in found.errors[0].message
    assert check(EXPECTED, eager=EXPECTED * np.float32(1.05)).ok


def test_the_least_bound_is_met_without_a_signal_too() -> None:
    """Far from the zeros of a float module a quantised output has an SQNR of minus infinity."""
    far = dequantised(np.arange(8).reshape(1, 8) * 16 - 128)
    for bound, met in ((NO_SQNR, True), (-1000.0, False)):
        found = check(far, far, eager=np.zeros_like(far), tolerance=Tolerance(eager_sqnr=bound))
        assert found.ok is met and found.outputs[0].sqnr_db == -math.inf and ("eager" in kinds(found)) is not met
        text = "SQNR against the float module is -inf dB, the bound -1000"
        assert met or text in found.errors[0].message


def test_an_sqnr_that_is_the_offset_of_all_elements_is_told() -> None:
    """A constant in place of values that vary about 100 has 30 dB against them, and nothing of what varies."""
    eager = np.linspace(97, 103, 64, dtype=np.float32).reshape(1, 64)
    file = unquantised(reshaped(FILE, (1, 64)))
    for lost in (np.full_like(eager, 100), eager[:, ::-1].copy()):  # the second has all that a flat one has not
        found = check(lost, lost, file=file, eager=eager)
        assert found.ok and FindingKind.OFFSET in {one.kind for one in found.warnings}
        (warning,) = (one for one in found.warnings if one.kind is FindingKind.OFFSET)
        figures = re.search(
            r"SQNR against the float module is (\S+) dB with the offset .*, (\S+) dB about", str(warning)
        )
        assert figures and float(figures[1]) > 24 and float(figures[2]) < 0.1


def test_an_offset_is_no_warning_where_what_varies_is_right() -> None:
    """A few quanta may be all that int8 has for it, and of a single element nothing varies."""
    eager = np.linspace(97, 103, 64, dtype=np.float32).reshape(1, 64)
    few = dequantised(ZERO + 90 + np.arange(64).reshape(1, 64) // 11)  # 6 distinct values
    apart = (1.9 * SCALE * np.where(np.arange(64) % 2, 1, -1)).astype(np.float32)
    assert not check(few, few, file=reshaped(FILE, (1, 64)), eager=few + apart).findings
    single = np.full((1, 1), 100, np.float32)
    assert not check(single, single, file=unquantised(reshaped(FILE, (1, 1))), eager=single + 3).findings
    near = (eager * 1.001).astype(np.float32)
    assert not check(eager, eager, file=unquantised(reshaped(FILE, (1, 64))), eager=near).findings


def test_a_uninformative_dialect_does_not_excuse_a_wrong_one() -> None:
    flat = dequantised(ZERO + np.array([[0, 1, 0, 1, 0, 1, 0, 1]]))
    assert {"eager", "uninformative"} <= kinds(check(flat, flat, eager=EXPECTED))


def test_two_deviations_may_have_the_same_sign() -> None:
    """A run that moved one element up and one down explains two that went down, and three; not four."""
    step = SCALE * np.array([[0, 1, 0, -1, 0, 0, 0, 0]], np.float32)
    for signs, right in (
        ([0, 1, 0, 1, 0, 0, 0, 0], True),
        ([0, 1, 0, 1, 0, 0, -1, 0], True),
        ([1, 1, 1, 1, 0, 0, 0, 0], False),
    ):
        moved = EXPECTED - SCALE * np.array([signs], np.float32)
        found = check(moved, moved, quantized=EXPECTED, eager=EXPECTED, disturbed=(EXPECTED + step,))
        assert kinds(found) == (set() if right else {"quantized"})


def test_a_flat_float_module_excuses_what_is_near_it_only() -> None:
    """A signal-to-noise ratio says little of a constant; that zeros are no ones is plain all the same."""
    zeros, ones = dequantised(np.full((1, 8), ZERO)), np.ones((1, 8), np.float32)
    assert {"eager", "uninformative"} == kinds(check(zeros, zeros, eager=ones))
    near = dequantised(ZERO + np.array([[1, 0, 0, 2, 0, 0, 1, 0]]))
    assert kinds(check(near, near, eager=zeros)) == {"uninformative"}


def test_floats_that_were_not_quantised() -> None:
    file = unquantised(FILE)
    assert check(EXPECTED, file=file).ok
    near = EXPECTED + np.float32(5e-4)
    assert check(near, file=file).ok
    found = check(EXPECTED + np.float32(0.01), file=file)
    assert "quantized" in kinds(found) and found.outputs[0].max_quanta is None
    float_only = References(None, None, (EXPECTED,))
    far = HostTensor.from_array(EXPECTED + np.float32(0.01))
    assert "differ from eager" in compare(file, (far,), float_only, DEFAULT).errors[0].message


@pytest.mark.parametrize("dtype", ["int64", "bool"])
def test_what_is_not_quantised_is_compared_exactly(dtype: str) -> None:
    reference = (np.arange(8) % 3).astype(dtype)[None]
    file = unquantised(reshaped(FILE, (1, 8), dtype))
    assert check(reference, reference, file=file).ok
    output = reference.copy()
    output[0, 4] = 0
    found = check(output, reference, Tolerance(qtol=5), file=file)
    assert kinds(found) == {"exact"} and found.errors[0].index == (0, 4)


def test_choices_are_fake_quants_but_for_what_rounding_explains() -> None:
    """An index of the largest is another one where two were nearly equal, and then the dialect's is too."""
    chosen = (np.arange(64) % 3)[None]
    file = unquantised(reshaped(FILE, (1, 64), "int64"))
    other = {count: np.where(np.arange(64) < count, 7, chosen) for count in (1, 3, 9)}
    assert kinds(check(chosen, chosen, file=file, quantized=other[1], eager=other[1])) == {"other_choices"}
    wrong = check(chosen, chosen, file=file, quantized=other[9], disturbed=(other[9],))
    assert kinds(wrong) == {"quantized"} and "9 of 64" in wrong.errors[0].message
    assert check(chosen, chosen, file=file, quantized=other[9], disturbed=(chosen,)).ok
    assert check(chosen, chosen, Tolerance(fake_quant_qtol=1), file=file, quantized=other[9]).ok
    assert not check(chosen, chosen, Tolerance(fake_quant_qtol=0), file=file, quantized=other[1]).ok
    coarse = check(chosen, chosen, file=file, quantized=chosen, eager=other[9])
    assert coarse.ok and "9 of 64 elements are not the float module's" in coarse.warnings[0].message


def integers_out(operator: str) -> PteFile:
    """The same program with 64 int8 values from the operator as its output."""
    file = reshaped(FILE, (1, 64), "int8")
    *rest, last = file.instructions
    return replace(file, instructions=(*rest, replace(last, operator=operator, args=(file.outputs[0],))))


def test_integers_that_stand_for_numbers_are_compared_in_quanta() -> None:
    """Each may be a quantum off by rounding; those of an operator that chooses are chosen or not."""
    right = (np.arange(64, dtype=np.int8) * 3 - 100).astype(np.int8)[None]
    moved = {by: (right + by * (np.arange(64) < 5)).astype(np.int8) for by in (1, 2, 100)}
    quanta, choices = integers_out("cortex_m::quantized_linear.out"), integers_out("aten::full.out")
    assert kinds(check(right, right, file=choices, eager=moved[1])) == {"other_choices"}
    near = check(right, right, file=quanta, quantized=moved[1], disturbed=(right,), eager=moved[1])
    assert near.ok and not near.findings and near.outputs == (Figures(0, 1),)
    far = check(right, right, file=quanta, eager=moved[100])
    assert far.ok and "5 of 64 elements are up to 100 quanta off the float module" in far.warnings[0].message
    wrong = check(right, right, file=quanta, quantized=moved[2], disturbed=(moved[1],), eager=right)
    assert kinds(wrong) == {"quantized"} and "up to 2 quanta off fake-quant" in wrong.errors[0].message
    differs = check(right, moved[2], file=quanta)
    assert kinds(differs) == {"exact"} and "by up to 2 quanta" in differs.errors[0].message


def test_last_bits_of_floats_explain_integers_too() -> None:
    right = (np.arange(64, dtype=np.int8) * 3 - 100).astype(np.int8)[None]
    one, five = ((right + (np.arange(64) < count)).astype(np.int8) for count in (1, 5))
    for operator in ("cortex_m::quantized_linear.out", "aten::full.out"):  # quanta, and choices
        file = integers_out(operator)
        assert check(one, right, file=file, quantized=one, eager=one, disturbed_floats=(one,)).ok
        assert kinds(check(five, right, file=file, quantized=five, eager=five, disturbed_floats=(one,))) == {"exact"}
        assert kinds(check(one, right, file=file, quantized=one, eager=one)) == {"exact"}


def noisy(db: float) -> Array:
    """Values against which the right ones have so many dB."""
    right = EXPECTED.astype(np.float64)
    noise = np.random.default_rng(0).standard_normal(right.shape)
    noise -= right * (noise * right).sum() / (right**2).sum()
    amount = math.sqrt((right**2).sum() / (noise**2).sum() / (10 ** (db / 10) - 1))
    return np.asarray(right + amount * noise, np.float32)


@pytest.mark.parametrize(
    ("reached", "cause", "hint"),
    [
        (39.5, "int8 that uses its range reaches about 40 to 50 dB", "lower eager_sqnr"),
        (20.0, "far from the float module", "calibrate with inputs of the range that is run, or lower eager_sqnr"),
        (1.0, "little of the float module", "calibrate with inputs of the range that is run"),
    ],
)
def test_a_bound_that_no_int8_reaches_is_told_from_what_is_far(reached: float, cause: str, hint: str) -> None:
    found = check(EXPECTED, eager=noisy(reached), tolerance=Tolerance(eager_sqnr=90))
    assert found.outputs[0].sqnr_db == pytest.approx(reached, abs=0.1)
    assert kinds(found) == {"eager"} and cause in found.advice[0].cause and hint in found.advice[0].hint
    assert "far" not in found.advice[0].cause or reached == 20.0


def test_what_is_finite_of_the_float_module_is_judged_by_its_sqnr() -> None:
    eager = EXPECTED.copy()
    eager[0, 0] = -np.inf
    right = check(EXPECTED, eager=eager)
    assert right.ok and kinds(right) == {"reference_not_finite"} and right.outputs[0].sqnr_db == np.inf
    wrong = check(EXPECTED, eager=-eager)
    assert wrong.errors[0].kind is FindingKind.EAGER
    nothing = check(EXPECTED, eager=np.full_like(EXPECTED, np.nan))
    assert nothing.ok and nothing.outputs[0].sqnr_db is None and kinds(nothing) == {"reference_not_finite"}


def test_findings_are_sorted_by_severity() -> None:
    order = list(FindingKind)
    output = EXPECTED.copy()
    output[0, 0] = np.nan
    output[0, 1:] = dequantised(np.array(ZERO))
    found = [order.index(finding.kind) for finding in check(output).errors]
    assert found == sorted(found) and len(found) > 3


@settings(max_examples=200)
@given(st.lists(st.floats(width=32), min_size=1, max_size=12), st.sampled_from([FILE, unquantised(FILE)]))
def test_any_floats_are_compared_without_an_exception(values: list[float], file: PteFile) -> None:
    array = np.array(values, np.float32)
    with np.errstate(all="raise", under="ignore"):
        check(array, array[::-1].copy(), file=file).outputs  # noqa: B018
