"""Programs of several methods on the command line: `--method`, and constants that are read on the host."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from bundling import bundle
from command_line import CANNOT_TELL, NO, OK, Hil, answer, answers, expect
from several_methods import CONSTANTS, PAIR, ROW, modules, three_methods


@pytest.fixture
def pte(tmp_path: Path) -> Path:
    path = tmp_path / "three.pte"
    path.write_bytes(three_methods())
    return path


def saved(folder: Path, *values: object) -> list[object]:
    """--input for each."""
    options: list[object] = []
    for number, value in enumerate(values):
        np.save(folder / f"{number}.npy", np.asarray(value))
        options += ["-i", folder / f"{number}.npy"]
    return options


def test_the_method_that_is_named_is_run(hil: Hil, pte: Path, tmp_path: Path) -> None:
    given = saved(tmp_path, *PAIR)
    done = hil("run", pte, "--method", "decode", "-t", "native", *given, "-o", tmp_path / "y.npy")
    assert done.status == OK, done.err
    assert "method    decode\n" in done.out
    assert "constants vocabulary 49152, rate 16000.5, is_causal True\n" in done.out
    decoded, _ = modules()["decode"][0](*PAIR)
    np.testing.assert_array_equal(np.load(tmp_path / "y.npy"), decoded.detach().numpy())
    found = answer(hil("run", pte, "--method", "reset", "-t", "native", "--json").out)
    assert (found["method"], found["constants"]) == ("reset", CONSTANTS)
    assert found["inputs"] == "the program takes none" and found["state_bytes"] == 16


@pytest.mark.parametrize(
    ("command", "options"),
    [
        ("run", ("-t", "native")),
        ("lint", ("-t", "native")),
        ("inspect partition", ()),
        ("inspect fit", ("-t", "native")),
        ("profile", ("-t", "native")),
        ("compare-runtimes", ("-t", "native")),
        ("evaluate", ("-t", "native", "--data", "none.npz")),
    ],
)
def test_each_command_asks_for_the_method(
    hil: Hil, pte: Path, tmp_path: Path, command: str, options: tuple[str, ...]
) -> None:
    np.savez(tmp_path / "none.npz", inputs=ROW[0].numpy(), labels=[0])
    given = [tmp_path / one if one.endswith(".npz") else one for one in options]
    methods = f"{pte}: the program has 3 methods: decode, encode, reset"
    expect(hil(*command.split(), pte, *given), CANNOT_TELL, methods, "--method")
    expect(hil(*command.split(), pte, "--method", "encod", *given), CANNOT_TELL, "not 'encod'", "did you mean 'encode'")


@pytest.mark.slow
def test_a_method_is_linted_partitioned_fitted_and_evaluated(hil: Hil, pte: Path, tmp_path: Path) -> None:
    one = answer(hil("lint", pte, "--method", "decode", "-t", "m4-qemu", "--json").out)
    assert one["fits"] and one["method"] == "decode"
    told = hil("lint", pte, "--method", "decode", "-t", "native").out
    assert f"{pte}, method decode fits native: 4 operators in 4 calls" in told
    counts = {
        name: answer(hil("inspect", "partition", pte, "--method", name, "--json").out)["count"]
        for name in ("encode", "decode", "reset")
    }
    assert counts == {"encode": 4, "decode": 4, "reset": 2}
    fitted = answer(hil("inspect", "fit", pte, "--method", "reset", "-t", "native", "--json").out)
    assert fitted["method"] == "reset" and fitted["exit_status"] == OK
    np.savez(tmp_path / "data.npz", inputs=np.concatenate([ROW[0].numpy(), ROW[0].numpy() * 9]), labels=[0, 1])
    given = ["--data", tmp_path / "data.npz", "-t", "native", "--store", tmp_path / "s", "--json"]
    found = answer(hil("evaluate", pte, "--method", "encode", *given).out)
    assert (found["method"], found["task"], found["samples"]) == ("encode", "anomaly", 2)
    again = answer(hil("evaluate", pte, "--method", "decode", *given).out)
    assert "takes (" in again["error"]["message"]  # two inputs: another method, and no other answer of the store


def test_a_module_has_one_method(hil: Hil) -> None:
    for command in (("inspect", "fit", "ds_cnn"), ("profile", "ds_cnn")):
        expect(hil(*command, "--method", "encode", "-t", "native"), CANNOT_TELL, "--method is for a .pte file")


def test_size_is_of_the_file_and_tells_methods_and_constants(hil: Hil, pte: Path) -> None:
    done = hil("inspect", "size", pte)
    assert done.status == OK and "methods: decode, encode, reset" in done.out
    assert [line.split() for line in done.out.splitlines() if line.startswith("rate")] == [["rate", "16000.5"]]
    found = answer(hil("inspect", "size", pte, "--json").out)
    assert found["methods"] == ["decode", "encode", "reset"] and found["constants"] == CONSTANTS
    assert found["bytes"] == len(three_methods()) == sum(one["nbytes"] for one in found["parts"])


def test_the_cases_of_a_bundled_program_are_those_of_the_method(hil: Hil, pte: Path) -> None:
    path = pte.with_suffix(".bpte")
    module, inputs = modules()["decode"]
    expected = [one.detach() for one in module(*inputs)]
    path.write_bytes(bundle(pte, [(inputs, expected), (inputs, [-one for one in expected])], "decode"))
    lines = answers(hil("run", path, "--method", "decode", "-t", "native", "--json").out)
    assert [(one["case"], one["exit_status"]) for one in lines] == [(0, OK), (1, NO)]
    assert lines[0]["method"] == "decode" and lines[0]["compared"]["outputs"][0]["max_abs_error"] == 0
    assert answer(hil("run", path, "--method", "reset", "-t", "native", "--json").out)["case"] is None
    assert hil("inspect", "size", path).status == OK
