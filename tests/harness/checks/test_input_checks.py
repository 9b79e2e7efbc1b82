"""No value of a user's is changed on its way into a program: every way in, against every pair of dtypes."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import cortex_m_hil as hil
from bundling import bundle
from cortex_m_hil import flow
from cortex_m_hil.campaigns.evaluation import data_sets
from cortex_m_hil.campaigns.evaluation.data_sets import Raw
from cortex_m_hil.campaigns.evaluation.evaluation import EvaluatedModel
from cortex_m_hil.checks.input_checks import InputQuantizer, Taken, converted, dtype_advice, input_misfits, lost
from cortex_m_hil.cli import program_files as cli_files
from cortex_m_hil.diagnose import failure_bundle_file
from cortex_m_hil.diagnose.compare_runtimes import compare_runtimes
from cortex_m_hil.errors import ConfigError, HarnessError, ProgramRejected
from cortex_m_hil.program.bpte_file import read_program
from cortex_m_hil.program.dataflow import DEQUANTIZE, InputQuantization, Quantization
from cortex_m_hil.program.io_quantization import quantized
from cortex_m_hil.program.program import Program
from cortex_m_hil.program.tensor import Array, HostTensor, TensorSpec, npy
from networks import Apply
from paths import REPOSITORY
from quantised_io import doubles

SHAPE = (1, 4)
EXACT, ERROR = "exact", "error"
SEEDS = REPOSITORY / "tests" / "fuzz_seeds"


@pytest.fixture(scope="module")
def native() -> Iterator[hil.OpenTarget]:
    with hil.open("native") as target:
        yield target


@cache
def identity(dtype: str) -> Program:
    """A program that gives its input back."""
    given = torch.zeros(SHAPE, dtype=getattr(torch, dtype))
    return hil.lower(Apply(lambda x: x.clone()), (given,), isa=hil.Isa.SCALAR, quantize=False)


# --- the ways in: each gives what the program is given ---------------------------------------------------------

Way = Callable[[hil.OpenTarget, Program, Array, Path], Array]


def _ran(target: hil.OpenTarget, program: Program, inputs: Any) -> Array:
    return target.run(program, inputs).outputs[0].array()


def _array(target: hil.OpenTarget, program: Program, given: Array, folder: Path) -> Array:
    return _ran(target, program, (given,))


def _tensor(target: hil.OpenTarget, program: Program, given: Array, folder: Path) -> Array:
    return _ran(target, program, (torch.from_numpy(given),))


def _run_pte(target: hil.OpenTarget, program: Program, given: Array, folder: Path) -> Array:
    loaded = hil.load_program(program.pte)
    return _ran(target, loaded, flow.arrange(loaded, (given,)))


def _frame(target: hil.OpenTarget, program: Program, given: Array, folder: Path) -> Array:
    return target.stream(program, [(given,)]).frames[0].outputs[0].array()


def _localized(target: hil.OpenTarget, program: Program, given: Array, folder: Path) -> Array:
    assert not target.localize(program, (given,)).at_fault
    return given.astype(given.dtype.newbyteorder("="))


def _option(target: hil.OpenTarget, program: Program, given: Array, folder: Path) -> Array:
    np.save(folder / "x.npy", given)
    return _ran(target, program, cli_files.find_inputs(program, folder / "p.pte", [folder / "x.npy"]).inputs)


def _kept(target: hil.OpenTarget, program: Program, given: Array, folder: Path) -> Array:
    np.save(folder / "p.0.npy", given)
    return _ran(target, program, cli_files.find_inputs(program, folder / "p.pte", []).inputs)


def _expected(target: hil.OpenTarget, program: Program, given: Array, folder: Path) -> Array:
    np.save(folder / "y.npy", given)
    return cli_files.read_expected(program, [folder / "y.npy"])[0]


def _in_a_bundle(target: hil.OpenTarget, program: Program, given: Array, folder: Path) -> Array:
    try:
        return failure_bundle_file._host_tensor(npy(given), "inputs/0.npy", program.file.input_specs()[0]).array()
    except ValueError as error:  # of which a bundle's reader makes its error
        raise ConfigError(str(error)) from error


def _bundled(target: hil.OpenTarget, program: Program, given: Array, folder: Path) -> Array:
    (folder / "p.pte").write_bytes(program.pte)
    loaded = read_program(bundle(folder / "p.pte", [((torch.from_numpy(given),), None)]))
    return _ran(target, loaded, None)


STRICT: dict[str, Way] = {
    "hil.run": _array, "hil.run, torch": _tensor, "run_pte": _run_pte, "hil.stream": _frame, "hil.localize": _localized,
    "--input": _option, "kept beside": _kept, "--expect": _expected, "a bundle": _in_a_bundle, ".bpte": _bundled,
}  # fmt: skip


def _read(path: Path, program: Program) -> data_sets.DataSet:
    return data_sets.read_data_set(path, Taken.of_input(program.file, 0), Raw())


def _samples(target: hil.OpenTarget, program: Program, given: Array, folder: Path) -> Array:
    np.savez(folder / "x.npz", inputs=given, labels=[0])
    return _ran(target, program, (_read(folder / "x.npz", program).samples[0].windows[0],))


def _calibration(target: hil.OpenTarget, program: Program, given: Array, folder: Path) -> Array:
    own = np.zeros(SHAPE, np.uint8)
    np.savez(folder / "x.npz", inputs=own, labels=[0], calibration=given)
    return _read(folder / "x.npz", program).calibration[0]


DATA: dict[str, Way] = {"inputs of an .npz": _samples, "calibration of an .npz": _calibration}

# What is given, the dtype of the program's input, and what becomes of it: for what runs one program, and for data sets,
# whose numbers may be stored in another dtype as long as they are the same numbers.
TABLE: list[tuple[str, Any, str, str, str]] = [
    ("float32", 0.3, "float32", EXACT, EXACT),
    (">f4", 0.3, "float32", EXACT, EXACT),
    ("float64", 0.5, "float32", ERROR, EXACT),
    ("float64", 0.1, "float32", ERROR, ERROR),
    ("float64", 1e39, "float32", ERROR, ERROR),
    ("float64", 1e-60, "float32", ERROR, ERROR),
    ("float16", 0.1, "float32", ERROR, EXACT),
    ("longdouble", np.longdouble(1) / 3, "float64", ERROR, ERROR),
    ("float32", 0.1, "float16", ERROR, ERROR),
    ("float32", 70000.0, "float16", ERROR, ERROR),
    ("complex64", 1.0, "float32", ERROR, ERROR),
    ("bool", True, "float32", ERROR, ERROR),
    ("float32", 0.3, "int8", ERROR, ERROR),
    ("float32", 3.0, "int8", ERROR, ERROR),
    ("float64", 3.0, "uint8", ERROR, ERROR),
    ("float64", 3.0, "int32", ERROR, ERROR),
    ("uint8", 100, "int8", ERROR, EXACT),
    ("uint8", 200, "int8", ERROR, ERROR),
    ("int8", -1, "uint8", ERROR, ERROR),
    ("int64", -1, "uint8", ERROR, ERROR),
    ("int64", 7, "int32", ERROR, EXACT),
    (">i4", 7, "int32", EXACT, EXACT),
    ("int64", 2**31, "int32", ERROR, ERROR),
    ("uint64", 2**63, "int32", ERROR, ERROR),
    ("int32", 2**24, "float32", ERROR, EXACT),
    ("int32", 2**24 + 1, "float32", ERROR, ERROR),
    ("int64", 2**53 + 1, "float64", ERROR, ERROR),
    ("int64", 2**63 - 1, "float64", ERROR, ERROR),
    ("int32", 70000, "float16", ERROR, ERROR),
    ("bool", True, "int8", ERROR, ERROR),
    ("bool", True, "bool", EXACT, ERROR),
    ("uint8", 1, "bool", ERROR, EXACT),
    ("uint8", 2, "bool", ERROR, ERROR),
    ("float32", 0.3, "bool", ERROR, ERROR),
]  # fmt: skip


def _outcome(way: Way, target: hil.OpenTarget, program: Program, given: Array, folder: Path) -> str:
    try:
        reached = way(target, program, given, folder)
    except (ConfigError, ProgramRejected) as error:
        assert isinstance(error, ConfigError) or way is _bundled
        assert error.hint or way in (_in_a_bundle, _bundled)
        return ERROR
    is_same = reached.dtype == program.file.input_specs()[0].dtype and np.array_equal(reached, given)
    return EXACT if is_same else f"changed into {reached}"


def _can_be(name: str, given: Array) -> bool:
    """Whether torch has such an array, where a tensor is given; ExecuTorch bundles no uint64."""
    if name not in ("hil.run, torch", ".bpte"):
        return True
    if name == ".bpte" and given.dtype == np.uint64:
        return False
    try:
        return torch.from_numpy(given) is not None
    except (TypeError, ValueError):
        return False


@pytest.mark.parametrize(("dtype", "value", "wanted", "strict", "data"), TABLE)
def test_a_value_is_taken_as_it_is_or_refused(
    native: hil.OpenTarget, dtype: str, value: Any, wanted: str, strict: str, data: str, tmp_path: Path
) -> None:
    if dtype == "longdouble" and np.dtype(dtype).itemsize == 8:
        pytest.skip("here it is a float64")
    given, program = np.full(SHAPE, value, dtype), identity(wanted)
    found, right = {}, {}
    for ways, outcome in ((STRICT, strict), (DATA, data)):
        for name, way in ways.items():
            if _can_be(name, given):
                folder = tmp_path / name
                folder.mkdir()
                found[name], right[name] = _outcome(way, native, program, given, folder), outcome
    assert found == right


def test_modules_are_calibrated_and_checked_on_inputs_of_their_own_dtype(native: hil.OpenTarget) -> None:
    x, other = torch.rand(SHAPE), torch.rand(SHAPE, dtype=torch.float64)
    for more in ({"calibration": [(other,)]}, {"more_inputs": [(other,)]}):
        with pytest.raises(ConfigError, match="float64"):
            native.check(nn.Linear(4, 4), (x,), **more)  # type: ignore[arg-type]


def test_a_nan_that_the_program_quantises_is_refused_at_each_way_in(native: hil.OpenTarget, tmp_path: Path) -> None:
    """C leaves its conversion to an integer undefined: it gave finite numbers, and other ones on other cores."""
    program = Program.from_bytes((SEEDS / "linear.pte").read_bytes(), "linear.pte")
    [spec] = program.file.input_specs()
    x = np.zeros(spec.shape, np.float32)
    ways = {**STRICT, "hil.evaluate": _evaluated, "in a bundle": _replayed}
    for name in ("hil.localize", "--expect", "a bundle"):  # which need references, or are no inputs of a program
        del ways[name]
    for name, way in ways.items():
        assert way(native, program, x, _made(tmp_path / f"{name} 0")).size
    x[1, 2] = np.nan
    told = r"cortex_m::quantize_per_tensor is given a NaN in 1 of 18 elements, the first at \[1, 2\]"
    for name, way in ways.items():
        with pytest.raises(ConfigError, match=told) as caught:
            way(native, program, x, _made(tmp_path / name))
        assert "inputs without NaN" in caught.value.hint
    with pytest.raises(ConfigError, match=told):
        next(compare_runtimes(native.dut, native.dut, program, flow.arrange(program, (x,))))
    assert native.run(identity("float32"), (np.full(SHAPE, np.nan, np.float32),))  # which quantises nothing


def _made(folder: Path) -> Path:
    folder.mkdir()
    return folder


def _evaluated(target: hil.OpenTarget, program: Program, given: Array, folder: Path) -> Array:
    [outputs] = flow.stream(target.dut, program, [flow.arrange(program, (given,))])
    return outputs[0].array()


def _replayed(target: hil.OpenTarget, program: Program, given: Array, folder: Path) -> Array:
    host = flow.arrange(program, (given,))
    for problem, hint in input_misfits(program, host):  # which a bundle's reader raises
        raise ConfigError(problem, hint=hint)
    return given


# --- asked to quantise -----------------------------------------------------------------------------------------

# What is given for the int8 input of `doubles` (scale 0.5, zero point 3), what it becomes, the share that saturates.
QUANTISED: list[tuple[str, Any, int | str, float | None]] = [
    ("float32", 0.25, 3, 0.0),  # halves go to even
    ("float32", 0.75, 5, 0.0),
    ("float64", -0.75, 1, 0.0),
    ("float16", 1.5, 6, 0.0),
    (">f4", 1.5, 6, 0.0),
    ("float32", 62.0, 127, 0.0),
    ("float32", 62.5, 127, 1.0),
    ("float32", -1e9, -128, 1.0),
    ("float64", 1e300, 127, 1.0),
    ("float32", np.inf, 127, 1.0),
    ("int8", 100, 100, None),
    ("float32", np.nan, "NaN", None),
    ("uint8", 100, "are these numbers, or quanta", None),
    ("int64", 1, "are these numbers, or quanta", None),
    ("bool", True, "bool", None),
    ("complex64", 1.0, "complex64", None),
]
Asked = tuple[Array, float | None]


def _asked_array(target: hil.OpenTarget, program: Program, given: Any, folder: Path) -> Asked:
    result = target.run(program, (given,), quantize_inputs=True)
    return result.outputs[0].array(), result.saturated


def _asked_tensor(target: hil.OpenTarget, program: Program, given: Array, folder: Path) -> Asked:
    return _asked_array(target, program, torch.from_numpy(given), folder)


def _asked_file(target: hil.OpenTarget, program: Program, given: Array, folder: Path) -> Asked:
    np.save(folder / "p.0.npy", given)
    found = cli_files.find_inputs(program, folder / "p.pte", [], quantize=True)
    return _ran(target, program, found.inputs), found.saturated


def _asked_archive(target: hil.OpenTarget, program: Program, given: Array, folder: Path) -> Asked:
    np.savez(folder / "x.npz", inputs=given, labels=[0])
    return _asked_data(target, program, folder / "x.npz", Raw(quantizer=InputQuantizer()))


def _asked_data(target: hil.OpenTarget, program: Program, data: Path, raw: Raw) -> Asked:
    read = data_sets.read_data_set(data, Taken.of_input(program.file, 0), raw)
    assert raw.quantizer is not None
    return _ran(target, program, (read.samples[0].windows[0],)), raw.quantizer.share


ASKED: dict[str, Callable[[hil.OpenTarget, Program, Array, Path], Asked]] = {
    "hil.run": _asked_array, "hil.run, torch": _asked_tensor, "kept beside": _asked_file, "an .npz": _asked_archive,
}  # fmt: skip


@pytest.mark.parametrize(("dtype", "value", "becomes", "share"), QUANTISED)
def test_where_it_is_asked_for_floats_are_quantised_by_the_programs_own_scale(
    native: hil.OpenTarget, dtype: str, value: Any, becomes: int | str, share: float | None, tmp_path: Path
) -> None:
    program, given = hil.load_program(doubles()), np.full(SHAPE, value, dtype)
    for name, way in ASKED.items():
        said = becomes
        if name == "an .npz" and (isinstance(becomes, str) or value == np.inf):
            said = "."  # a data set refuses what is not finite, and arrays of other kinds, before that
        if not _can_be(name, given):
            continue
        if isinstance(said, str):
            with pytest.raises(ConfigError, match=said) as caught:
                way(native, program, given, _made(tmp_path / name))
            assert caught.value.hint
        else:
            reached, found = way(native, program, given, _made(tmp_path / name))
            wanted = _ran(native, program, (np.full(SHAPE, becomes, np.int8),))
            assert reached.tolist() == wanted.tolist() and found == share, name


def test_what_a_folder_computes_of_bytes_is_quantised(native: hil.OpenTarget, tmp_path: Path) -> None:
    program = hil.load_program(doubles())
    (tmp_path / "y_labels.csv").write_text("a.bin,2,1\n")
    (tmp_path / "a.bin").write_bytes(bytes([11] * 4))
    raw = Raw("uint8", scale=0.25, zero_point=1, quantizer=InputQuantizer())
    reached, share = _asked_data(native, program, tmp_path, raw)
    assert reached.tolist() == _ran(native, program, (np.full(SHAPE, 8, np.int8),)).tolist()
    assert share == 0


def test_the_arithmetic_is_that_of_the_operator_that_was_taken_off() -> None:
    import torchao.quantization.pt2e.quantize_pt2e  # noqa: F401  registers the operator

    random = np.random.default_rng(0)
    for _ in range(100):
        scale, zero_point = float(10 ** random.uniform(-6, 6)), int(random.integers(-128, 128))
        halves = (random.integers(-300, 300, 1000) + 0.5) * scale
        x = np.concatenate([random.normal(0, 60 * scale, 1000), halves, [np.inf, -np.inf, -0.0]]).astype(np.float32)
        by = Quantization(scale, zero_point, -128, 127, "int8")
        wanted = torch.ops.quantized_decomposed.quantize_per_tensor(torch.from_numpy(x), *by[:4], torch.int8).numpy()
        np.testing.assert_array_equal(quantized(x, by)[0], wanted)


def test_a_program_that_does_not_tell_its_scale_says_so(native: hil.OpenTarget) -> None:
    program = quantised_at_its_entry("linear.pte")
    x = np.zeros(program.file.input_specs()[0].shape, np.float32)
    with pytest.raises(ConfigError, match="to be quantised for int8") as caught:
        native.run(program, (x,), quantize_inputs=True)
    assert caught.value.hint.startswith("the program does not say its scale, the tool that quantised it does: ")


# --- numbers ---------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def scaled() -> Program:
    """Of a float, which is an input of the program and built into it."""
    return hil.lower(Apply(lambda x, by: x * by), (torch.ones(SHAPE), 2.5), isa=hil.Isa.SCALAR, quantize=False)


@pytest.mark.parametrize(
    ("number", "said"),
    [
        (3.5, "input 1 is 3.5, and the program was lowered with 2.5, which is built into it"),
        (2, "input 1: the program takes Double, not Int"),
        (2**53 + 1, "input 1: the program takes Double, not Int"),
        (True, "input 1: the program takes Double, not Bool"),
        (2**63, "input 1: 9223372036854775808 does not fit an Int"),
        (1 << 200, "input 1: a number of 201 bits does not fit an Int"),
        (np.float32(2.5), r"input 1: the program takes Double, not float32\[\]"),
        (np.longdouble(2.5), "input 1: 'float128' is no dtype|takes Double, not float64"),
        (2.5j, r"input 1: .*complex128"),
    ],
)
def test_a_number_is_the_one_of_the_program_or_refused(
    native: hil.OpenTarget, scaled: Program, number: Any, said: str
) -> None:
    """It was taken, and the program computed with its own."""
    assert native.run(scaled, (torch.ones(SHAPE), 2.5)).outputs[0].array().tolist() == [[2.5] * 4]
    with pytest.raises(ConfigError, match=said):
        native.run(scaled, (torch.ones(SHAPE), number))


def test_a_formula_gives_the_number_of_the_program(native: hil.OpenTarget, scaled: Program) -> None:
    assert cli_files.find_inputs(scaled, Path("p.pte"), []).inputs[1].item() == 2.5


def test_a_number_of_more_bits_is_no_double(scaled: Program, tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.zeros(SHAPE, np.float32))
    np.save(tmp_path / "n.npy", np.longdouble(1) / 3)
    if np.dtype(np.longdouble).itemsize > 8:
        with pytest.raises(ConfigError, match=r"n\.npy: longdouble is no int, float or bool"):
            cli_files.find_inputs(scaled, tmp_path / "p.pte", [tmp_path / "x.npy", tmp_path / "n.npy"])
    with pytest.raises(ConfigError):
        hil.lower(Apply(lambda x, by: x * by), (torch.ones(SHAPE), 2**70), isa=hil.Isa.SCALAR, quantize=False)


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ([2**53 + 1, 0.5, 1.0, 2.0], "has no dtype"),
        (np.ma.masked_all(SHAPE, np.float32), "a masked array"),  # type: ignore[no-untyped-call]
        (torch.zeros(SHAPE, dtype=torch.bfloat16), "bfloat16"),
        (torch.zeros(SHAPE).to_sparse(), "."),
        ("0.5", "no tensor, array or number"),
        (None, "no tensor, array or number"),
    ],
)
def test_what_numpy_would_choose_a_dtype_for_is_refused(native: hil.OpenTarget, value: Any, said: str) -> None:
    program = identity("float64")
    with pytest.raises(ConfigError, match=said):
        native.run(program, (value,))
    with pytest.raises(ConfigError):
        flow.run(native.dut, program, flow.arrange(program, (value,)))


# --- data sets -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("number", "raw", "wanted", "reached"),
    [
        (200, Raw("uint8", zero_point=128), "int8", 72),
        (200, Raw("uint8", scale=0.5), "float32", 100.0),
        (3, Raw("uint8", scale=1 / 255), "float32", np.float32(3 / 255)),
        (200, Raw("uint8", scale=0.5), "int8", 100),
        (3, Raw("uint8", scale=0.5), "int8", None),
        (200, Raw("uint8", scale=1e37), "float32", None),
        (200, Raw("uint8"), "int8", None),
        (200, Raw("uint8"), "float32", 200.0),
    ],
)
def test_raw_files_are_computed_as_the_user_says_and_not_rounded_into_integers(
    number: int, raw: Raw, wanted: str, reached: float | None, tmp_path: Path
) -> None:
    (tmp_path / "y_labels.csv").write_text("a.bin,2,1\n")
    (tmp_path / "a.bin").write_bytes(bytes([number] * 4))
    taken = Taken(TensorSpec.contiguous(wanted, SHAPE))
    if reached is None:
        with pytest.raises(ConfigError, match=r"y_labels\.csv:1: a\.bin: .*values are no"):
            data_sets.read_data_set(tmp_path, taken, raw)
        return
    [window] = data_sets.read_data_set(tmp_path, taken, raw).samples[0].windows
    assert window.dtype == wanted and window.tolist() == np.full(SHAPE, reached, wanted).tolist()


def test_every_float16_is_converted_there_and_back() -> None:
    every = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
    finite = every[np.isfinite(every)]
    for dtype in ("float32", "float64"):
        there = converted(finite, Taken(TensorSpec.contiguous(dtype, finite.shape)), "x")
        np.testing.assert_array_equal(
            converted(there, Taken(TensorSpec.contiguous("float16", finite.shape)), "x"), finite
        )


# --- advice ----------------------------------------------------------------------------------------------------


def quantised_at_its_entry(name: str, drop: int = 1) -> Program:
    """A seed without its first quantize, as `QuantizeInputs` of ExecuTorch leaves a program."""
    program = Program.from_bytes((SEEDS / name).read_bytes(), name)
    first, *rest = program.file.instructions
    assert first.operator == "cortex_m::quantize_per_tensor.out"
    file = replace(program.file, inputs=(first.args[-1], *program.file.inputs[1:]), instructions=tuple(rest))
    return replace(program, file=file)


@pytest.mark.parametrize("name", ["linear.pte", "conv.pte", "images.pte", "images_nhwc.pte", "autoencoder.pte"])
def test_the_zero_point_of_an_integer_input_is_the_one_that_was_quantised_by(name: str) -> None:
    whole = Program.from_bytes((SEEDS / name).read_bytes()).file
    zero_point = whole.values[whole.instructions[0].args[2]].scalar
    assert isinstance(zero_point, int)
    assert quantised_at_its_entry(name).file.dataflow.input_quantizations[0] == InputQuantization(None, zero_point)
    assert whole.dataflow.input_quantizations[0] is None


@pytest.mark.parametrize(
    ("quantization", "said"),
    [
        (InputQuantization(0.05, -3), "quantise the values: "),
        (InputQuantization(None, 7), "the program does not say its scale, the tool that quantised it does: "),
        (None, "the program does not say its scale and zero point, the tool that quantised it does: "),
    ],
)
@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16"])
def test_floats_for_an_integer_input_are_to_be_quantised_and_the_formula_does_it(
    quantization: InputQuantization | None, said: str, dtype: str
) -> None:
    x = np.array([[-1000.0, 0.0, 0.074, 1000.0]], np.float32)
    hint = dtype_advice(Taken(TensorSpec.contiguous(dtype, SHAPE), quantization), x)
    assert hint.startswith(said) and "x.to(" not in hint and not re.search(r"[^)]\.astype", hint)
    scale, zero_point = 0.05, -3 if quantization is None else quantization.zero_point
    made = eval(hint.removeprefix(said), {"numpy": np, "x": x, "scale": scale, "zero_point": zero_point})
    low, high = np.iinfo(dtype).min, np.iinfo(dtype).max
    assert made.dtype == dtype
    assert made.tolist() == [
        np.clip([-20000 + zero_point, zero_point, 1 + zero_point, 20000 + zero_point], low, high).tolist()
    ]


@pytest.mark.parametrize(
    ("given", "wanted", "told", "said"),
    [
        (np.array([0.5]), "float32", "", r"array\.astype\(\"float32\"\), which changes none"),
        (np.array([0.1]), "float32", "; 1 of 1 values are no float32, such as 0.1", "^round the values where they are"),
        (np.array([1e39]), "float32", "; 1 of 1 values are no float32, such as 1e+39", r"^float32 ends at 3\.4e"),
        (np.array([3.0]), "int32", "", "changes none of these values"),
        (np.array([3.5, 4.0]), "int32", "; 1 of 2 values are no int32, such as 3.5", "^int32 has no place for them"),
        (np.array([200], np.uint8), "int8", "; 1 of 1 values are no int8, such as 200", r"- 128\)\.astype\(\"int8\"\)"),
        (np.array([-1], np.int8), "uint8", "; 1 of 1 values are no uint8, such as -1", "^uint8 has no place for them"),
        (np.array([2], np.uint8), "bool", "; 1 of 1 values are no bool, such as 2", "^bool has no place for them"),
    ],
)  # fmt: skip
def test_no_cast_that_changes_values_is_advised_without_saying_so(
    given: Array, wanted: str, told: str, said: str
) -> None:
    taken = Taken(TensorSpec.contiguous(wanted, given.shape))
    assert lost(taken, given) == told and re.search(said, dtype_advice(taken, given))


def test_quanta_for_a_float_input_are_to_be_dequantised_and_the_formula_does_it() -> None:
    """A cast alone would put -128 to 127 in, and nothing would tell."""
    program = Program.from_bytes((SEEDS / "linear.pte").read_bytes(), "linear.pte")
    quantize, dequantize = program.file.instructions[0], program.file.instructions[-1]
    given = program.file.input_specs()[0].shape, quantize.args, Taken.of_input(program.file, 0)
    wanted = program.file.output_specs()[0].shape, dequantize.args, Taken.of_output(program.file, 0)
    for shape, args, taken in (given, wanted):
        scale, zero_point = (program.file.values[value].scalar for value in args[1:3])
        for dtype in ("int8", "uint8", "int16"):
            array = np.full(shape, 100, dtype)
            hint = dtype_advice(taken, array)
            formula, cast = re.fullmatch(r"for quantised values (.*); for values as they are (.*)", hint).groups()  # type: ignore[union-attr]
            made = eval(formula, {"numpy": np, "array": array})
            assert made.dtype == np.float32
            assert made == pytest.approx((100 - zero_point) * scale)  # type: ignore[operator]
            assert cast.endswith('array.astype("float32")')
    assert "which changes none" in dtype_advice(
        Taken.of_input(program.file, 0), np.full((2, 9), 100)
    )  # no dtype of quanta


def test_quanta_are_dequantised_at_each_way_in(native: hil.OpenTarget, tmp_path: Path) -> None:
    program = Program.from_bytes((SEEDS / "linear.pte").read_bytes(), "linear.pte")
    for name in STRICT.keys() - {"hil.localize", "a bundle", ".bpte"}:  # which need references, or a schema's own dtype
        shape = program.file.output_specs()[0].shape if name == "--expect" else program.file.input_specs()[0].shape
        with pytest.raises(ConfigError) as caught:
            STRICT[name](native, program, np.full(shape, 100, np.int8), _made(tmp_path / name))
        assert "for quantised values (array.astype(" in caught.value.hint


class Dequantizes(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, x: Any) -> Any:
        return self.layer(torch.ops.quantized_decomposed.dequantize_per_tensor(x, 0.05, -3, -128, 127, torch.int8))


def test_a_program_that_dequantises_its_input_says_its_scale_and_zero_point_at_each_way_in(
    native: hil.OpenTarget, tmp_path: Path
) -> None:
    identity("float32")  # ExecuTorch's import registers the operator
    program = hil.lower(Dequantizes(), (torch.zeros(SHAPE, dtype=torch.int8),), isa=hil.Isa.SCALAR, quantize=False)
    assert program.file.instructions[0].operator in DEQUANTIZE
    x = np.full(SHAPE, 0.3, np.float32)
    for ways in (STRICT, DATA):
        for name in ways.keys() - {"a bundle", ".bpte", "--expect"}:
            folder = tmp_path / name
            folder.mkdir()
            with pytest.raises(HarnessError) as caught:
                ways[name](native, program, x, folder)
            assert (
                "int8[1, 4] (scale 0.05, zero point -3)" in caught.value.message and "float32" in caught.value.message
            )
            assert "quantize_inputs=True, or --quantize-inputs, quantises them by that scale" in caught.value.hint
    quantised = np.clip(np.rint(x / 0.05) - 3, -128, 127).astype("int8")
    known = ("aten::linear.out",)
    asked = native.run(program, (x,), quantize_inputs=True, known=known)
    assert asked.outputs == native.run(program, (quantised,), known=known).outputs and asked.saturated == 0
    (tmp_path / "q.pte").write_bytes(program.pte)
    assert (
        str(EvaluatedModel(str(tmp_path / "q.pte")).taken) == "int8[1, 4] (scale 0.05, zero point -3)"
    )  # of hil evaluate


def test_what_a_misfit_says_of_an_input_of_indices() -> None:
    program = identity("int64")
    ((problem, hint),) = input_misfits(program, (HostTensor.from_array(np.full(SHAPE, 0.5)),))
    assert problem.startswith("input 0: the program takes int64[1, 4], not float64[1, 4]; 4 of 4 values are no int64")
    assert "no place for them" in hint
