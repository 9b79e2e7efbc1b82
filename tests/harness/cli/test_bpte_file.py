"""`hil run` and `hil lint` of a bundled program: its own inputs, and outputs judged by what it expects."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import cortex_m_hil
from bundling import bundle
from command_line import CANNOT_TELL, NO, OK, Files, Hil, answer, answers, expect
from cortex_m_hil.errors import Mismatch
from cortex_m_hil.program.known_answer import known_answer
from cortex_m_hil.program.tensor import Array
from cortex_m_hil.targets.cpu import Isa

INPUT = known_answer(Isa.DSP).inputs[0].array()


def written(files: Files, *expected: Array | None) -> Path:
    """A bundle with a case for each."""
    path = files.pte.with_suffix(".bpte")
    path.write_bytes(bundle(files.pte, [((INPUT,), None if one is None else (one,)) for one in expected]))
    return path


def test_each_case_is_run_and_judged(hil: Hil, files: Files) -> None:
    path = written(files, files.expected, -files.expected, None)
    done = hil("run", path, "-t", "m4-qemu")
    assert done.status == NO
    assert "case      0\n" in done.out and "case      1\n" not in done.out and "case      2\n" in done.out
    assert done.out.count("expected  output 0: 0 quanta from what is expected, inf dB from it\n") == 1
    assert "m4-qemu, test case 1: Mismatch: output 0: eager: SQNR against what is expected is -6.0 dB" in done.err
    assert "quanta from what is expected" in done.err and "Traceback" not in done.err


def test_for_machines_each_target_and_case_has_a_line(hil: Hil, files: Files) -> None:
    path = written(files, files.expected, -files.expected)
    done = hil("run", path, "-t", "m4-qemu,native", "--json")
    lines = answers(done.out)
    assert [(one["target"], one["case"], one["exit_status"]) for one in lines] == [
        ("m4-qemu", 0, OK), ("m4-qemu", 1, NO), ("native", 0, OK), ("native", 1, NO),
    ]  # fmt: skip
    assert lines[0]["compared"]["outputs"][0]["max_quanta"] == 0
    assert lines[1]["error"]["type"] == "Mismatch"


@pytest.mark.slow
def test_what_takes_a_program_takes_a_bundle_and_its_inputs(hil: Hil, files: Files, tmp_path: Path) -> None:
    """As the `.pte` of it, on the inputs of its first case."""
    path = written(files, files.expected)
    found, alone = (answer(hil("inspect", "fit", one, "-t", "native", "--json").out) for one in (path, files.pte))
    assert found["needs"] == alone["needs"]
    np.savez(tmp_path / "data.npz", inputs=INPUT, labels=[0])
    done = hil("evaluate", path, "--data", tmp_path / "data.npz", "-t", "native", "--store", tmp_path / "s", "--json")
    assert "no network" not in done.err, done.err
    assert answer(done.out)["samples"] == 1


def test_a_file_without_expected_outputs_is_run(hil: Hil, files: Files) -> None:
    one = answer(hil("run", written(files, None), "-t", "native", "--json").out)
    assert (one["exit_status"], one["case"], one["compared"]) == (OK, 0, None)
    assert answer(hil("run", files.pte, "-i", files.input, "-t", "native", "--json").out)["case"] is None


@pytest.mark.first_only
@pytest.mark.parametrize(("options", "status"), [((), OK), (("--qtol", 1), NO), (("--qtol", 2), OK)])
def test_other_arithmetic_is_granted_noise_and_with_qtol_quanta(
    hil: Hil, files: Files, options: tuple[object, ...], status: int
) -> None:
    done = hil("run", written(files, files.moved(2)), "-t", "native", *options)
    assert done.status == status
    if status == NO:
        assert "1 of 8 elements off, by up to 2 quanta (1 allowed)" in done.err


def test_lint_reads_a_bundled_program(hil: Hil, files: Files) -> None:
    path = written(files, files.expected)
    assert hil("lint", path, "-t", "m4-qemu").status == OK
    assert "MVE" in hil("lint", path, "-t", "m55-qemu").out


def test_the_output_of_the_only_case_is_written(hil: Hil, files: Files, tmp_path: Path) -> None:
    assert hil("run", written(files, files.expected), "-t", "native", "-o", tmp_path / "y.npy").status == OK
    np.testing.assert_array_equal(np.load(tmp_path / "y.npy"), files.expected)


def test_what_does_not_go_together(hil: Hil, files: Files) -> None:
    path = written(files, files.expected, files.expected)
    brings = "for a bundled program, which brings its own"
    expect(hil("run", path, "-t", "native", "-i", files.input), CANNOT_TELL, f"--input {brings}")
    expect(hil("run", path, "-t", "native", "-e", files.input), CANNOT_TELL, f"--expect {brings}")
    expect(hil("run", path, "-t", "native", "-o", "y.npy"), CANNOT_TELL, "--output is for one test case")
    silent = written(files, None)
    expect(hil("run", silent, "-t", "native", "--qtol", 1), CANNOT_TELL, "--qtol without --expect")
    silent.write_bytes(silent.read_bytes()[:-100])
    expect(hil("run", silent, "-t", "native"), NO, "ProgramRejected: ")


def test_a_script_judges_its_cases(files: Files) -> None:
    program = cortex_m_hil.load_program(written(files, files.expected, -files.expected))
    with cortex_m_hil.open("m4-qemu") as target:
        assert target.verify(program.cases[0]).comparison.outputs[0].max_quanta == 0
        with pytest.raises(Mismatch, match="what is expected"):
            target.verify(program.cases[1])
