"""`check_program`, `budget` and `operators` of an open target: programs that exist already, judged and counted."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import cortex_m_hil as hil
from bundling import bundle
from cortex_m_hil import errors
from cortex_m_hil.diagnose.budgets import Budget, require_budget
from cortex_m_hil.diagnose.profile_measurement import operator_costs
from cortex_m_hil.program.bpte_file import read_cases
from cortex_m_hil.program.known_answer import known_answer
from cortex_m_hil.targets.target import Clock
from quantised_io import doubles
from several_methods import PAIR, ROW, modules, three_methods

SMALL = known_answer(hil.Isa.DSP)
X, Y = SMALL.inputs[0].array(), SMALL.expected[0].array()
QUANTA = np.array([[-4, 4, -28, 126]], np.int8)  # of `doubles`: 0, 1, -3 and 62 are doubled
FLOATS = np.array([[0.25, 0.75, -3.0, 99.0]], np.float32)


@pytest.fixture(scope="module")
def m4() -> Iterator[hil.OpenTarget]:
    with hil.open("m4-qemu") as target:
        yield target


@pytest.fixture(scope="module")
def native() -> Iterator[hil.OpenTarget]:
    with hil.open("native") as target:
        yield target


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with programs."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "small.pte").write_bytes(SMALL.program)
    return tmp_path


def moved(by: float) -> Any:
    array = Y.copy()
    array[0, 3] += by
    return array


# --- what is expected -----------------------------------------------------------------------------------------


def test_a_file_is_run_and_compared(m4: hil.OpenTarget, folder: Path) -> None:
    """With arrays or tensors, a path, bytes or a program; as `hil run --expect` does."""
    found = m4.check_program("small.pte", [X], [Y])
    assert found.ok and found.outputs[0].max_quanta == 0 and found.outputs[0].authority == "what is expected"
    for source in (folder / "small.pte", SMALL.program, hil.load_program(SMALL.program)):
        assert m4.check_program(source, (torch.tensor(X),), (torch.tensor(Y),)).ok
    with pytest.raises(errors.Mismatch) as caught:
        m4.check_program("small.pte", [X], [moved(0.5)])
    told = dict(caught.value.details)
    assert caught.value.message == "output 0: quanta: 1 of 8 elements off, by up to 38 quanta"
    assert caught.value.target == "m4-qemu" and caught.value.operator == "cortex_m::quantized_linear.out"
    assert told["program"] == "small (small.pte)" and told["method"] == "forward"
    assert told["first"].startswith("[0, 3]: expected ") and "qtol=N" in caught.value.hint
    assert m4.check_program("small.pte", [X], [moved(0.5)], qtol=38).outputs[0].max_quanta == 38
    far = m4.check_program("small.pte", [X], [1.01 * Y], eager_sqnr=30)  # computed by other arithmetic
    assert far.outputs[0].sqnr_db is not None and 30 < far.outputs[0].sqnr_db < 50
    with pytest.raises(errors.Mismatch, match="SQNR against what is expected"):
        m4.check_program("small.pte", [X], [1.01 * Y], eager_sqnr=60)


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"source": "none.pte"}, "cannot read none.pte: No such file"),
        ({"inputs": []}, "the program has 1 input, 0 given"),
        ({"inputs": [X[:, 1:]]}, "input 0: the program takes float32[1, 16], not float32[1, 15]"),
        ({"inputs": [X.astype(np.float64)]}, "input 0: the program takes float32[1, 16], not float64[1, 16]"),
        ({"inputs": [np.full_like(X, np.nan)]}, "input 0: cortex_m::quantize_per_tensor is given a NaN in 16 of 16"),
        ({"inputs": X}, "inputs takes tuple or list, not ndarray float32"),
        ({"expected": []}, "small has 1 output, 0 expected given\n"),
        ({"expected": [Y, Y]}, "small has 1 output, 2 expected given\n"),
        ({"expected": [Y[0]]}, "expected[0] is float32[8]; output 0 of the program is float32[1, 8]"),
        (
            {"expected": [Y.astype(np.float64)]},
            "expected[0] is float64[1, 8]; output 0 of the program is float32[1, 8]",
        ),
        ({"expected": [Y.astype(np.int8)]}, "expected[0] is int8[1, 8]; output 0 of the program is float32[1, 8]"),
        ({"expected": [[0.0] * 8]}, "expected[0]: [0.0, "),
        ({"expected": [None]}, "expected[0]: None is no tensor, array or number"),
        ({"expected": [np.array(["a"])]}, "is no tensor, array or number"),
        ({"expected": Y}, "expected takes tuple or list, not ndarray float32"),
        ({"expected": None}, "nothing is expected of small, so nothing would be checked"),
        ({"expected": None, "inputs": None}, "nothing is expected of small, so nothing would be checked"),
        ({"method": "encode"}, "small.pte: the program has 1 method: forward, and not 'encode'"),
        ({"qtol": -1}, "qtol=-1: it takes a whole number of quanta"),
        ({"atol": float("nan")}, "atol=nan: it takes a finite number"),
        ({"qtol": 1, "eager_sqnr": 20}, "qtol and eager_sqnr are two ways"),
        ({"tolerance": 1}, "unexpected keyword argument 'tolerance'"),
    ],
)
def test_a_call_that_is_wrong_runs_nothing(
    m4: hil.OpenTarget, folder: Path, changes: dict[str, Any], told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(m4, "_ran", lambda *_: pytest.fail("it ran"))
    given: dict[str, Any] = {"source": "small.pte", "inputs": [X], "expected": [Y], **changes}
    with pytest.raises(errors.ConfigError) as caught:
        m4.check_program(**given)
    text = str(caught.value)
    assert told in text and caught.value.hint, text
    if changes.keys() & {"inputs", "expected"} and "takes tuple" not in told:
        assert "program: small (small.pte)" in text and "method:  forward" in text


def test_values_that_are_not_finite_are_expected_in_their_place(m4: hil.OpenTarget) -> None:
    with pytest.raises(errors.Mismatch, match="output 0: nan: 1 of 8 elements"):
        m4.check_program(SMALL.program, [X], [moved(float("nan"))])


def test_quanta_are_given_as_quanta_or_quantised_where_that_is_asked_for(native: hil.OpenTarget) -> None:
    program = doubles()
    with pytest.raises(errors.ConfigError, match=r"int8\[1, 4\] \(scale 0.5, zero point 3\)") as caught:
        native.check_program(program, [FLOATS], [QUANTA])
    assert "quantize_inputs=True" in caught.value.hint
    found = native.check_program(program, [FLOATS], [QUANTA], quantize_inputs=True)
    assert found.outputs[0].max_quanta == 0 and found.saturated == 0.25
    with pytest.raises(errors.ConfigError) as caught:  # outputs are never quantised for somebody
        native.check_program(program, [FLOATS], [2 * FLOATS], quantize_inputs=True)
    told = "expected[0] is float32[1, 4]; output 0 of the program is int8[1, 4] (scale 0.25, zero point -4)"
    assert told in caught.value.message and "numpy.rint(x / 0.25) - 4, -128, 127" in caught.value.hint
    other = QUANTA.copy()
    other[0, 1] += 1
    with pytest.raises(errors.Mismatch, match="by up to 1 quantum") as mismatch:
        native.check_program(program, [FLOATS], [other], quantize_inputs=True)
    assert ("inputs", "1 of 4 values of its inputs saturate") in mismatch.value.details
    assert native.check_program(program, [FLOATS], [other], quantize_inputs=True, qtol=1).ok


@pytest.mark.slow
def test_a_method_is_named(native: hil.OpenTarget, tmp_path: Path) -> None:
    pte, decoder = three_methods(), modules()["decode"][0]
    expected = decoder(*PAIR)
    assert native.check_program(pte, PAIR, expected, method="decode").ok
    with pytest.raises(errors.Mismatch, match="output 1: ") as caught:
        native.check_program(pte, PAIR, (expected[0], expected[0]), method="decode")
    assert ("method", "decode") in caught.value.details
    for method, told in (("", "3 methods: decode, encode, reset"), ("rate", "rate is a constant")):
        with pytest.raises(errors.ConfigError, match=told):
            native.check_program(pte, ROW, ROW, method=method)
    (tmp_path / "three.pte").write_bytes(pte)
    bundled = bundle(tmp_path / "three.pte", [(PAIR, expected), (PAIR, (expected[0], expected[0]))], "decode")
    good, wrong = read_cases(bundled, "three.bpte")
    assert native.check_program(good).ok
    with pytest.raises(errors.Mismatch) as caught:
        native.check_program(bundled, method="decode")
    assert ("method", "decode") in caught.value.details
    assert ("program", f"{wrong.name.replace('three', 'program')} (program.pte)") in caught.value.details
    with pytest.raises(errors.ConfigError, match="nothing is expected of program, method encode"):
        native.check_program(bundled, method="encode")


def test_a_program_for_another_class_is_refused(native: hil.OpenTarget) -> None:
    mve = known_answer(hil.Isa.MVE)
    given = ([mve.inputs[0].array()], [mve.expected[0].array()])
    with pytest.raises(errors.LintError, match="MVE layout on a SCALAR target"):
        native.check_program(mve.program, *given)
    with pytest.raises(errors.Mismatch):
        native.check_program(mve.program, *given, lint=False)


@pytest.mark.parametrize("source", [b"", b"no program", SMALL.program[:-100], SMALL.program[:40]])
def test_bytes_that_are_no_program(native: hil.OpenTarget, source: bytes) -> None:
    with pytest.raises(errors.ProgramRejected):
        native.check_program(source, [X], [Y])


# --- bundled programs -----------------------------------------------------------------------------------------


def test_a_bundled_program_is_judged_by_its_cases(m4: hil.OpenTarget, folder: Path) -> None:
    cases = [((X,), (Y,)), ((X,), (-Y,)), ((X,), None)]
    for name, chosen in (("good", cases[:1] * 2), ("wrong", cases[:2]), ("silent", cases[::2]), ("empty", [])):
        (folder / f"{name}.bpte").write_bytes(bundle(folder / "small.pte", chosen))
    found = m4.check_program("good.bpte")
    assert found.outputs[0].max_quanta == 0 and found.outputs[0].sqnr_db == np.inf
    with pytest.raises(errors.Mismatch, match=r"SQNR against what is expected is -6\.0 dB") as caught:
        m4.check_program("wrong.bpte")
    assert ("program", "wrong, test case 1 (wrong.bpte)") in caught.value.details
    with pytest.raises(errors.Mismatch, match="saturation: "):  # in quanta, as it was asked for
        m4.check_program("wrong.bpte", qtol=1)
    assert m4.check_program(hil.load_program("wrong.bpte").cases[0]).ok
    for name, inputs, expected, told in (
        ("good", [X], None, "inputs are given for a bundled program"),
        ("good", [X], [Y], "expected outputs are given for a bundled program"),
        ("silent", None, None, "nothing is expected of silent, test case 1, so"),
        ("empty", None, None, "nothing is expected of empty, so"),
    ):
        with pytest.raises(errors.ConfigError, match=told):
            m4.check_program(f"{name}.bpte", inputs, expected)


# --- operators ------------------------------------------------------------------------------------------------


def test_operators_are_counted_when_asked_for(m4: hil.OpenTarget, monkeypatch: pytest.MonkeyPatch) -> None:
    run = m4.run(hil.load_program(SMALL.program), [X])
    whole = run.instructions
    assert whole is not None
    for result in (run, m4.check_program(SMALL.program, [X], [Y])):
        rows = result.operators
        assert [row.index for row in rows] == [0, 1, 2] and sum(row.ticks for row in rows) == whole
        assert all(row.instructions == row.ticks and row.clock is Clock.INSTRUCTIONS for row in rows)
        assert rows[1].operator == "cortex_m::quantized_linear.out" and rows[1].ticks > 1000
        assert result.operators is rows  # counted once
    monkeypatch.setattr("cortex_m_hil.api.operator_costs", lambda *_: pytest.fail("counted unasked"))
    m4.check_program(SMALL.program, [X], [Y])


@pytest.mark.slow
def test_operators_of_a_module_have_its_paths(m4: hil.OpenTarget) -> None:
    torch.manual_seed(0)
    module = torch.nn.Sequential(torch.nn.Linear(16, 8), torch.nn.ReLU(), torch.nn.Linear(8, 4))
    found = m4.check(module, (torch.rand(1, 16),))
    layers = [row for row in found.operators if "quantized_linear" in row.operator]
    assert [row.module for row in layers] == ["0", "2"] and layers[0].ticks > layers[1].ticks
    checked = m4.verify(m4.lower(module, (torch.rand(1, 16),)))
    assert checked.result.operators is checked.comparison.operators
    assert sum(row.ticks for row in checked.result.operators) == checked.result.instructions


def test_without_a_count_there_are_no_operators(native: hil.OpenTarget) -> None:
    result = native.check_program(SMALL.program, [X], [Y])
    with pytest.raises(errors.ConfigError, match="native counts neither instructions nor cycles"):
        _ = result.operators
    with pytest.raises(errors.ConfigError, match="no run of this result"):
        _ = hil.Comparison((), ()).operators


def test_what_belongs_to_no_operator_is_a_row_of_its_own(m4: hil.OpenTarget) -> None:
    program = hil.load_program(SMALL.program)
    rows = operator_costs(m4.dut, program, SMALL.inputs, 10_000, Clock.CORE)
    assert (rows[-1].index, rows[-1].operator, rows[-1].instructions) == (None, "the rest", None)
    assert sum(row.ticks for row in rows) == 10_000 and str(rows[-1]) == f"the rest: {rows[-1].ticks} cycles"


# --- budgets --------------------------------------------------------------------------------------------------


@pytest.fixture
def limited(m4: hil.OpenTarget) -> Iterator[hil.OpenTarget]:
    yield m4
    m4._budget, m4._unjudged = None, False


def check(target: hil.OpenTarget) -> hil.Comparison:
    return target.check_program(SMALL.program, [X], [Y])


def test_a_budget_of_a_bank_is_judged_by_its_region(limited: hil.OpenTarget) -> None:
    [bank] = limited.target.board.memory.banks
    figure = limited.run(hil.load_program(SMALL.program), [X]).stats["planned"].used
    limited.budget(bank={bank.region: figure})
    assert check(limited).ok
    limited.budget(bank={bank.region: figure - 1})
    with pytest.raises(errors.BudgetExceeded, match=f"{figure} bytes of bank {bank.region}, {figure - 1} allowed"):
        check(limited)
    limited.budget(bank={"dtcm": "64K"})
    with pytest.raises(errors.ConfigError, match=f"bank 'dtcm' cannot be judged: the target has {bank.region}"):
        check(limited)
    for wrong in ({}, {1: 2}, "64K", {"ram": 0}):
        with pytest.raises(errors.ConfigError, match=r"hil\.budget: "):
            limited.budget(bank=wrong)  # type: ignore[arg-type]


def test_a_budget_is_kept_to_the_last_unit_and_exceeded_by_one(limited: hil.OpenTarget) -> None:
    result = limited.run(hil.load_program(SMALL.program), [X])
    took: dict[str, Any] = {
        "instructions": result.instructions,
        "flash": len(SMALL.program),
        "ram": result.stats["planned"].used,
    }
    limited.budget(**took)
    assert check(limited).ok and limited.run(hil.load_program(SMALL.program), [X]).outputs
    weigh = {"instructions": "takes", "flash": "flash", "ram": "held"}
    for name, figure in took.items():
        assert figure is not None
        limited.budget(**{name: figure - 1})
        with pytest.raises(errors.BudgetExceeded) as caught:
            check(limited)
        unit = name if name == "instructions" else f"bytes of {name}"
        told = rf"program: {figure} {unit}, {figure - 1} allowed: \d+\.\d % more"
        assert re.fullmatch(told, caught.value.message) and caught.value.target == "m4-qemu"
        assert [label for label, _ in caught.value.details].count(weigh[name]) >= 2
        assert "raise the limit" in caught.value.hint
    limited.budget(instructions=100, flash="1K", ram=10)
    with pytest.raises(errors.BudgetExceeded, match=r" % more; .* % more; .* % more ") as caught:
        check(limited)
    takes = [text for label, text in caught.value.details if label == "takes"]
    assert re.fullmatch(r"4\d\.\d+ %: operator 1, cortex_m::quantized_linear.out: \d+ instructions", takes[0])


def test_a_verdict_on_outputs_goes_before_a_budget(limited: hil.OpenTarget) -> None:
    limited.budget(instructions=1)
    with pytest.raises(errors.Mismatch):
        limited.check_program(SMALL.program, [X], [moved(0.5)])


@pytest.mark.parametrize(
    ("limits", "told"),
    [
        ({}, "no limit: instructions=, flash=, ram= or bank="),
        ({"instructions": 0}, "instructions=0: 1 or more"),
        ({"instructions": 1.5}, "instructions=1.5: a whole number"),
        ({"instructions": True}, "instructions=True: a whole number"),
        ({"instructions": 1 << 63}, "1 or more, in 64 bits"),
        ({"ram": "1Q"}, "'1Q' is not a size"),
        ({"flash": -5}, "-5 is not a size"),
        ({"bank": {}}, "sizes by the names of regions, such as"),
        ({"banks": {}}, "unexpected keyword argument 'banks'"),
    ],
)
def test_what_is_no_budget(limited: hil.OpenTarget, limits: dict[str, Any], told: str) -> None:
    with pytest.raises(errors.ConfigError, match=re.escape(told)):
        limited.budget(**limits)


def test_a_budget_that_cannot_be_judged_is_no_pass(native: hil.OpenTarget) -> None:
    native.budget(instructions=10**9, ram="1K")
    with pytest.raises(errors.ConfigError, match="a budget of 1000000000 instructions cannot be judged") as caught:
        check(native)
    assert "hil_budget(" in caught.value.hint
    native.budget(instructions=10**9, ram=1)  # what can be judged goes first
    with pytest.raises(errors.BudgetExceeded, match="bytes of ram"):
        check(native)
    native._budget = None  # for the other tests


def test_kernels_that_count_what_they_execute_are_judged_by_no_instructions(m4: hil.OpenTarget) -> None:
    """With --hil-coverage: a HilWarning says so, or the suite could not be run for its coverage."""
    program = hil.load_program(SMALL.program)
    result = m4.run(program, [X])
    counting = replace(result, ran=replace(result.ran, clock=Clock.INSTRUMENTED))
    with pytest.warns(hil.HilWarning, match="the budget of 1 instructions is not judged"):
        require_budget(Budget(instructions=1), m4.dut, program, SMALL.inputs, counting)
    with pytest.raises(errors.BudgetExceeded, match="bytes of ram"):
        require_budget(Budget(ram=1), m4.dut, program, SMALL.inputs, counting)


def test_a_budget_of_nothing_is_an_error() -> None:
    with hil.open("native") as target:
        target.budget(ram="1K")
        with pytest.raises(errors.ConfigError, match="no program ran under the budget ram=1024"):
            target.budget(ram="2K")
        target.budget(ram="2K")
        assert check(target).ok
    with pytest.raises(errors.ConfigError, match="no program ran under the budget"), hil.open("native") as target:
        assert check(target).ok
        target.budget(ram=1)
    with pytest.raises(errors.LaunchError), hil.open("native") as target:  # an error of the block goes first
        target.budget(ram=1)
        raise errors.LaunchError("gone")


def test_a_stream_is_judged_by_its_longest_frame(limited: hil.OpenTarget) -> None:
    program = hil.load_program(SMALL.program)
    limited.budget(instructions=100)
    with pytest.raises(errors.BudgetExceeded, match=r"^program, frame [01]: \d+ instructions, 100 allowed"):
        limited.stream(program, [(X,), (X,)])


def test_red_zones_are_no_ram_of_a_budget() -> None:
    torch.manual_seed(0)
    module, inputs = torch.nn.Linear(8, 4), (torch.rand(2, 8),)
    with hil.open("native", redzones=True) as target:
        program = target.lower(module, inputs)
        without = hil.lower(module, inputs, isa=target.isa).file.planned_bytes
        assert program.file.planned_bytes > without
        target.budget(ram=without)
        assert target.verify(program).comparison.ok
