"""Scale, zero point and range of int8 inputs and outputs, from the constants that ExecuTorch's passes write."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import islice
from typing import Any

import numpy as np
import pytest

import cortex_m_hil as hil
from cortex_m_hil.errors import ConfigError, ProgramRejected
from cortex_m_hil.maintainers.fuzzing.program_mutator import mutants
from paths import REPOSITORY
from quantised_io import GIVEN, TAKEN, doubles

SEEDS = REPOSITORY / "tests" / "fuzz_seeds"
KEYS = ("scale", "zp", "quant_min", "quant_max", "dtype")


@pytest.mark.parametrize("method_name", [None, "forward"])
def test_the_constants_of_executorchs_passes_are_read(method_name: str | None) -> None:
    program = hil.load_program(doubles(method_name))
    assert program.input_quantization(0) == (*TAKEN, "int8")
    assert program.output_quantization(0) == (*GIVEN, "int8")


def with_constants(**changes: Any) -> hil.Program:
    """The program with other constants; None takes one out."""
    file = hil.load_program(doubles()).file
    constants = {name: value for name, value in {**file.constants, **changes}.items() if value is not None}
    return hil.Program.from_file(replace(file, source="a.pte", constants=constants))


def test_without_constants_only_an_operator_tells() -> None:
    """This program dequantises its input."""
    program = with_constants(**dict.fromkeys(hil.load_program(doubles()).constants))
    assert not program.constants
    assert program.input_quantization(0) == (*TAKEN, "int8") and program.output_quantization(0) is None


def test_the_methods_own_constants_come_first() -> None:
    own = {f"forward_input0_{key}": value for key, value in zip(KEYS, (2.0, 1, -5, 5, 1), strict=True)}
    assert with_constants(**own).input_quantization(0) == (2.0, 1, -5, 5, "int8")


def test_constants_without_a_method_are_about_forward() -> None:
    program = with_constants()
    several = replace(program.file, methods=("forward", "other"))
    assert hil.Program.from_file(several).output_quantization(0) == (*GIVEN, "int8")
    assert hil.Program.from_file(replace(several, method="other")).output_quantization(0) is None


@pytest.mark.parametrize("role", ["input", "output"])
@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("zp", None, "the program has a constant NAMEscale, and no NAMEzp"),
        ("scale", None, "the program has a constant NAMEzp, and no NAMEscale"),
        ("dtype", None, "and no NAMEdtype"),
        ("scale", 0.0, "NAMEscale is 0.0, and has to be positive and finite"),
        ("scale", -0.5, "NAMEscale is -0.5, and has"),
        ("scale", math.nan, "NAMEscale is nan, and has"),
        ("scale", math.inf, "NAMEscale is inf, and has"),
        ("scale", 1e300, "NAMEscale is 1e[+]300, and has"),
        ("scale", 1e-60, "NAMEscale is 1e-60, and has"),
        ("scale", 1, "NAMEscale is 1, and has to be a float"),
        ("scale", (0.5,), "NAMEscale is tuple, and has to be a float"),
        ("scale", hil.HostTensor.from_array(np.ones((1,), np.float32)), "NAMEscale is HostTensor, and has"),
        ("zp", 128, "NAMEzp is 128, and the range is"),
        ("zp", -(1 << 62), "NAMEzp is -4611686018427387904, and the range is"),
        ("zp", 3.0, "NAMEzp is 3.0, and has to be an integer"),
        ("zp", True, "NAMEzp is True, and has to be an integer"),
        ("zp", "3", "NAMEzp is '3', and has to be an integer"),
        ("quant_min", -129, "which is no range of int8"),
        ("quant_max", 128, "which is no range of int8"),
        ("quant_max", -128, "which is no range of int8"),
        ("dtype", 3, r"NAMEdtype is 3 \(int32\), and the tensor is int8"),
        ("dtype", 99, r"NAMEdtype is 99 \(no dtype\), and the tensor is int8"),
    ],
)
def test_what_is_no_quantisation_is_refused(role: str, key: str, value: Any, said: str) -> None:
    program = with_constants(**{f"{role}0_{key}": value})
    read = program.input_quantization if role == "input" else program.output_quantization
    with pytest.raises(ProgramRejected, match=said.replace("NAME", f"{role}0_")) as caught:
        read(0)
    assert caught.value.message.startswith(f"a.pte, method forward, {role} 0: ")
    assert caught.value.hint


def test_constants_of_a_float_input_are_its_users_own() -> None:
    """They may scale pixels, by whatever rule."""
    program = hil.Program.from_bytes((SEEDS / "linear.pte").read_bytes())
    file = replace(program.file, constants={"input0_scale": -1.0})
    assert hil.Program.from_file(file).input_quantization(0) is None


@pytest.mark.slow
def test_mutants_of_the_constants_are_rejected_or_are_quantisations() -> None:
    read = rejected = 0
    for mutant in islice(mutants((SEEDS / "int8.pte").read_bytes(), 20261127), 1500):
        try:
            program = hil.Program.from_bytes(mutant.data, "mutant.pte")
            found = [program.input_quantization(number) for number in range(len(program.file.inputs))]
            found += [program.output_quantization(number) for number in range(len(program.file.outputs))]
        except (ProgramRejected, ConfigError) as error:
            assert len(str(error)) < 1000
            rejected += "input0_" in error.message or "output0_" in error.message
            continue
        read += 1
        for one in filter(None, found):
            assert 0 < one.scale < math.inf and one.qmin <= one.zero_point <= one.qmax
    assert read > 100 and rejected > 20
