"""`hil run --expect`: outputs against files, judged as in a test."""

from __future__ import annotations

import re
import shutil
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from command_line import CANNOT_TELL, NO, OK, Files, Hil, answer, answers, expect
from cortex_m_hil.program.program import Program
from cortex_m_hil.program.tensor import Array
from paths import REPOSITORY
from quantised_io import doubles

SEEDS = REPOSITORY / "tests" / "fuzz_seeds"


def arguments(files: Files, expected: Array, *more: object) -> Sequence[object]:
    path = files.pte.with_name("expected.npy")
    np.save(path, expected)
    return ("run", files.pte, "-t", "m4-qemu", "-i", files.input, "--expect", path, *more)


def test_what_is_expected_passes_and_says_how_near_it_is(hil: Hil, files: Files) -> None:
    done = hil(*arguments(files, files.expected))
    assert (done.status, done.err) == (OK, "")
    assert "expected  output 0: 0 quanta from what is expected\n" in done.out
    near = answer(hil(*arguments(files, files.moved(1), "--qtol", 1, "--json")).out)
    assert near["compared"]["outputs"] == [{"max_quanta": 1, "max_abs_error": None, "sqnr_db": None}]


@pytest.mark.parametrize(("qtol", "status"), [(0, NO), (1, NO), (2, OK)])
def test_a_quantised_output_is_compared_in_quanta(hil: Hil, files: Files, qtol: int, status: int) -> None:
    done = hil(*arguments(files, files.moved(2), "--qtol", qtol))
    assert done.status == status
    if status == NO:
        allowed = f" ({qtol} allowed)" if qtol else ""
        expect(
            done, NO, f"Mismatch: output 0: quanta: 1 of 8 elements off, by up to 2 quanta{allowed} [target m4-qemu, "
        )
        expect(done, NO, "operator cortex_m::quantized_linear.out]", "distance: 2 quanta from what is expected")
        assert re.search(r"first: +\[0, 3\]: expected \S+ \(q -?\d+\), got \S+ \(q -?\d+\)", done.err)
        assert "--qtol=N" in done.err and "ExecuTorch's Python operators" not in done.err


@pytest.mark.slow
def test_each_target_is_compared_and_differing_outputs_are_written(hil: Hil, files: Files, tmp_path: Path) -> None:
    done = hil(*arguments(files, files.moved(5), "-t", "native", "--json"))
    assert [one["error"]["type"] for one in answers(done.out)] == ["Mismatch", "Mismatch"]
    assert done.status == NO
    assert hil(*arguments(files, files.moved(5), "-o", tmp_path / "got.npy")).status == NO
    np.testing.assert_array_equal(np.load(tmp_path / "got.npy"), files.expected)


@pytest.mark.parametrize(
    ("command", "target"),
    [
        (("profile",), "m4-qemu"),
        (("inspect", "partition"), "m4-qemu"),
        pytest.param(("inspect", "fit"), "native", marks=pytest.mark.slow),
        pytest.param(("compare-runtimes",), "native", marks=pytest.mark.slow),
    ],
    ids=lambda one: one[-1] if isinstance(one, tuple) else "",
)
def test_what_quantised_inputs_lose_is_told_by_each_command(
    hil: Hil, tmp_path: Path, command: tuple[str, ...], target: str
) -> None:
    (tmp_path / "doubles.pte").write_bytes(doubles())
    np.save(tmp_path / "x.npy", np.array([[0.25, 0.75, -3.0, 99.0]], np.float32))
    words = (*command, tmp_path / "doubles.pte", "-t", target, "-i", tmp_path / "x.npy")
    refused = hil(*words)
    assert refused.status == CANNOT_TELL and "int8[1, 4] (scale 0.5, zero point 3)" in refused.err
    assert "--quantize-inputs" in refused.err
    done = hil(*words, "--quantize-inputs")  # the wheel's ExecuTorch has no kernel of this program's
    assert done.status == (NO if command == ("compare-runtimes",) else OK), done.err
    assert f"those of {tmp_path / 'x.npy'}; quantised: 1 of 4 values of its inputs saturate" in done.out


def test_floats_for_an_int8_input_are_quantised_where_that_is_asked_for(hil: Hil, tmp_path: Path) -> None:
    (tmp_path / "doubles.pte").write_bytes(doubles())
    np.save(tmp_path / "x.npy", np.array([[0.25, 0.75, -3.0, 99.0]], np.float32))
    np.save(tmp_path / "y.npy", np.array([[-4, 4, -28, 126]], np.int8))  # 0, 1, -3 and 62 are doubled
    words = ("run", tmp_path / "doubles.pte", "-t", "native", "-i", tmp_path / "x.npy", "--expect", tmp_path / "y.npy")
    expect(hil(*words), CANNOT_TELL, "int8[1, 4] (scale 0.5, zero point 3)", "--quantize-inputs")
    done = hil(*words, "--quantize-inputs")
    assert done.status == OK and "x.npy; quantised: 1 of 4 values of its inputs saturate\n" in done.out, done.err
    told = answer(hil(*words, "--quantize-inputs", "--json").out)
    assert told["saturated"] == 0.25 and told["compared"]["outputs"][0]["max_quanta"] == 0


@pytest.mark.slow
def test_what_the_dialect_is_granted_is_not_granted_to_a_file(hil: Hil, tmp_path: Path) -> None:
    """An average pool may be a quantum off ExecuTorch's Python operators, and never off what a user expects."""
    shutil.copy(SEEDS / "conv.pte", tmp_path / "conv.pte")
    program = Program.from_bytes((tmp_path / "conv.pte").read_bytes())
    quantization = program.file.dataflow.output_quantizations[0]
    assert quantization is not None and "cortex_m::quantized_avg_pool2d.out" in program.file.operators
    np.save("x.npy", np.linspace(-1, 1, 32, dtype=np.float32).reshape(1, 2, 4, 4))
    assert hil("run", "conv.pte", "-t", "m0-qemu", "-i", "x.npy", "-o", "y.npy").status == OK
    assert hil("run", "conv.pte", "-t", "m0-qemu", "-i", "x.npy", "-e", "y.npy").status == OK
    right = np.load("y.npy")
    right[0, 0, 0, 0] += np.float32(quantization.scale) * (1 if right[0, 0, 0, 0] < right.max() else -1)
    np.save("y.npy", right)
    done = hil("run", "conv.pte", "-t", "m0-qemu", "-i", "x.npy", "-e", "y.npy")
    expect(done, NO, "1 of 12 elements off, by up to 1 quantum")


@pytest.fixture
def floats(hil: Hil, tmp_path: Path) -> Sequence[object]:
    """The arguments to run a program of float32 and bool outputs, whose right values are in 0.npy and 1.npy."""
    shutil.copy(SEEDS / "floats.pte", tmp_path)
    np.save("a.npy", np.linspace(-1, 1, 40, dtype=np.float32).reshape(1, 2, 5, 4))
    np.save("b.npy", np.linspace(-2, 2, 6, dtype=np.float32).reshape(1, 6, 1, 1))
    known = [word for bug in (5, 22, 36, 37, 42) for word in ("--known", bug)]
    run = ("run", "floats.pte", "-t", "m4-qemu", "-i", "a.npy", "-i", "b.npy", *known)
    assert hil(*run, "-o", "0.npy", "-o", "1.npy").status == OK
    return run


def test_other_outputs_are_compared_by_atol_and_rtol(hil: Hil, floats: Sequence[object]) -> None:
    both = ("-e", "0.npy", "-e", "1.npy")
    assert hil(*floats, *both, "--atol", 0, "--rtol", 0).status == OK
    right = np.load("0.npy")
    right[0, 0, 0, 0] += np.float32(0.01)
    np.save("0.npy", right)
    done = hil(*floats, *both)
    expect(
        done, NO, "1 of 36 elements differ from what is expected by more than 0.001 + 0.001·|expected|, by up to 0.01"
    )
    assert hil(*floats, *both, "--atol", 0.011).status == OK
    truth = np.load("1.npy")
    truth[0, 0, 0, 0] ^= True
    np.save("1.npy", truth)
    expect(hil(*floats, *both, "--atol", 0.011), NO, "Mismatch: output 1: exact: 1 of 36 elements differ")


def test_a_number_that_is_not_finite_is_expected_in_its_place(hil: Hil, floats: Sequence[object]) -> None:
    right = np.load("0.npy")
    right[0, 0, 0, 0] = np.nan
    np.save("0.npy", right)
    expect(hil(*floats, "-e", "0.npy", "-e", "1.npy"), NO, "Mismatch: output 0: nan: 1 of 36 elements")


@pytest.mark.parametrize(
    ("array", "text", "hint"),
    [
        (np.zeros((1, 7), np.float32), "is float32[1, 7]; output 0 of the program is float32[1, 8]", "the logical one"),
        (
            np.zeros((1, 8), np.float64),
            "is float64[1, 8]; output 0 of the program is float32[1, 8]",
            'array.astype("float32")',
        ),
        (np.zeros((1, 8), np.int8), "is int8[1, 8]; output 0", 'array.astype("float32")'),
    ],
)
def test_expected_outputs_of_another_dtype_or_shape_are_config_errors(
    hil: Hil, files: Files, array: Array, text: str, hint: str
) -> None:
    expect(hil(*arguments(files, array)), CANNOT_TELL, "ConfigError: ", text, hint)


def test_what_is_expected_is_said_for_every_output(hil: Hil, floats: Sequence[object]) -> None:
    done = hil(*floats, "-e", "0.npy")
    expect(done, CANNOT_TELL, "floats has 2 outputs, 1 --expect given", "give 2 --expect, in this order: (float32[")


@pytest.mark.parametrize(
    ("more", "text"),
    [
        (["--qtol", "-1"], "qtol=-1: it takes a whole number of quanta, 0 or more"),
        (["--atol", "nan"], "atol=nan: it takes a finite number, 0 or more"),
        (["--rtol", "inf"], "rtol=inf: it takes a finite number, 0 or more"),
        (["-e", "x.npy"], "small has 1 output, 2 --expect given"),
    ],
)
def test_an_invalid_tolerance_is_a_config_error(hil: Hil, files: Files, more: Sequence[str], text: str) -> None:
    expect(hil(*arguments(files, files.expected, *more)), CANNOT_TELL, f"ConfigError: {text}", "→")


@pytest.mark.parametrize("option", ["--qtol", "--atol", "--rtol"])
def test_a_tolerance_without_expected_outputs_is_a_config_error(hil: Hil, files: Files, option: str) -> None:
    done = hil("run", files.pte, "-t", "m4-qemu", "-i", files.input, option, "1")
    expect(done, CANNOT_TELL, f"ConfigError: {option} without --expect", "--expect FILE.npy for each output")


def test_a_flat_expectation_warns(hil: Hil, files: Files) -> None:
    flat = np.full_like(files.expected, files.expected.mean())
    done = hil(*arguments(files, flat, "--qtol", 255))
    assert done.status == OK and "warning   output 0: uninformative: " in done.out
