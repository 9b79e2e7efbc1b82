"""Programs of several methods: what ExecuTorch makes of `constant_methods=` and of many modules, and hostile files."""

from __future__ import annotations

import copy
import functools
import time
from itertools import islice
from typing import Any

import numpy as np
import pytest
import torch

import cortex_m_hil as hil
from bundling import bundle
from cortex_m_hil.errors import ConfigError, ProgramRejected
from cortex_m_hil.host.garbage_collection import garbage_collection_paused
from cortex_m_hil.maintainers.fuzzing.program_mutator import mutants
from cortex_m_hil.program.pte_file import MAX_METHOD_NAME
from cortex_m_hil.program.pte_reader import parse_pte, read_methods
from cortex_m_hil.program.tensor import HostTensor
from paths import REPOSITORY
from quantised_io import doubles
from several_methods import CONSTANTS, PAIR, ROW, edited, made, modules, three_methods


class Sum(torch.nn.Module):
    def forward(self, x: torch.Tensor, y: torch.Tensor) -> Any:
        return x + y


@functools.cache
def with_constants() -> hil.Program:
    """One method that computes, and constants of each kind that ExecuTorch's emitter takes."""
    constants = {
        "count": -3, "scale": 0.1, "enabled": False, "name": "tiny", "dtype": torch.float32, "sizes": [4, 5],
        "single": [7], "mixed": (1, 2.5, "a", True), "labels": {"yes": "y", "no": "n"}, "nothing": [],
        "table": torch.arange(6, dtype=torch.int16).reshape(2, 3), "empty": torch.zeros(0, 3), "one": torch.tensor(2.5),
        "nested": [[1, 2], [3.5]],
    }  # fmt: skip
    return hil.load_program(made({"forward": (Sum(), PAIR)}, constants))


# --- constants ---------------------------------------------------------------------------------------------


def test_constants_are_what_the_methods_return() -> None:
    found = dict(with_constants().constants)
    tensors = {name: found.pop(name) for name in ("table", "empty", "one")}
    assert found == {
        "count": -3, "scale": 0.1, "enabled": False, "name": "tiny", "dtype": 6, "sizes": (4, 5),
        "single": (7,), "mixed": (1, 2.5, "a", True), "labels": ("y", "n"), "nothing": (), "nested": (1, 2, 3.5),
    }  # fmt: skip
    assert type(found["enabled"]) is bool and type(found["count"]) is int
    arrays = {name: one.array() for name, one in tensors.items() if isinstance(one, HostTensor)}
    np.testing.assert_array_equal(arrays["table"], np.arange(6, dtype=np.int16).reshape(2, 3))
    assert arrays["table"].dtype == np.int16 and arrays["empty"].shape == (0, 3) and arrays["one"] == 2.5


def test_constants_are_no_methods() -> None:
    program = with_constants()
    assert program.methods == ("forward",) and program.file.method == "forward"
    assert program.name == "program"  # as of a program without constants
    with pytest.raises(ConfigError, match=r"program\.pte: the program has 1 method: forward; scale is a constant"):
        program.method("scale")


@pytest.mark.slow
def test_a_forward_without_instructions_is_a_method() -> None:
    """What it returns is a constant: without this rule a program might have nothing to run."""

    class Table(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("table", torch.arange(3))

        def forward(self) -> Any:
            return self.table

    program = hil.load_program(made({"forward": (Table(), ()), "other": (Table(), ())}))
    assert program.methods == ("forward",) and [*program.constants] == ["other"]
    with pytest.raises(ProgramRejected, match="none of the program's 1 method computes anything"):
        hil.load_program(made({"other": (Table(), ())}))


def test_quantised_inputs_and_outputs_bring_their_constants() -> None:
    """ExecuTorch's QuantizeInputs and QuantizeOutputs write scale, zero point, range and dtype as constant methods."""
    program = hil.load_program(doubles())
    assert dict(program.constants) == {
        "input0_scale": 0.5, "input0_zp": 3, "input0_quant_min": -128, "input0_quant_max": 127, "input0_dtype": 1,
        "output0_scale": 0.25, "output0_zp": -4, "output0_quant_min": -127, "output0_quant_max": 126,
        "output0_dtype": 1,
    }  # fmt: skip
    assert [one.dtype for one in (*program.file.input_specs(), *program.file.output_specs())] == ["int8", "int8"]


# --- which method ------------------------------------------------------------------------------------------


def test_each_method_is_a_program() -> None:
    program = hil.load_program(three_methods(), method="encode")
    assert program.methods == ("decode", "encode", "reset")  # the file's order
    assert dict(program.constants) == CONSTANTS
    inputs = {name: len(program.method(name).file.inputs) for name in program.methods}
    assert inputs == {"decode": 2, "encode": 1, "reset": 0}
    assert {program.method(name).pte for name in program.methods} == {program.pte}
    assert program.method("decode").name == "program, method decode"
    assert program.method("encode") is program


def test_forward_is_the_default() -> None:
    pte = made({"another": (Sum(), PAIR), "forward": (torch.nn.ReLU(), ROW), "second": (Sum(), PAIR)})
    assert hil.load_program(pte).file.method == "forward"


def test_the_only_one_that_computes_is_the_default() -> None:
    assert hil.load_program(made({"encode": (Sum(), PAIR)}, CONSTANTS)).file.method == "encode"


@pytest.mark.parametrize(
    ("method", "said", "hint"),
    [
        ("", "program.pte: the program has 3 methods: decode, encode, reset", "method='decode'"),
        ("encdoe", "the program has 3 methods: decode, encode, reset, and not 'encdoe'", "did you mean 'encode'"),
        ("forward", "and not 'forward'", "known: decode, encode, reset"),
        ("rate", "rate is a constant", "hil.load_program(…).constants"),
    ],
)
def test_the_method_has_to_be_named(method: str, said: str, hint: str) -> None:
    with pytest.raises(ConfigError) as caught:
        hil.load_program(three_methods(), method=method)
    assert said in caught.value.message and hint in caught.value.hint


# --- bundled programs --------------------------------------------------------------------------------------


def test_a_bundled_programs_cases_are_their_methods(tmp_path: Any) -> None:
    path = tmp_path / "three.pte"
    path.write_bytes(three_methods())
    expected = modules()["encode"][0](*ROW).detach()
    data = bundle(path, [(ROW, (expected,)), (ROW, None)], "encode")
    program = hil.load_program(data, method="encode")
    assert [one.name for one in program.cases] == [f"program, method encode, test case {n}" for n in (0, 1)]
    np.testing.assert_array_equal(program.inputs[0].array(), ROW[0].numpy())
    other = program.method("decode")
    assert other.cases == () and other.inputs == () and len(other.method("encode").cases) == 2
    with pytest.raises(ProgramRejected, match="test case 0 is for method 'rate', and the program has decode, encode"):
        hil.load_program(bundle(path, [((), None)], "rate"), method="encode")


# --- bad files ---------------------------------------------------------------------------------------------


def plans(edit: Any) -> bytes:
    return edited(three_methods(), lambda tree: edit(tree.execution_plan))


def rename(number: int, name: str) -> bytes:
    return plans(lambda found: setattr(found[number], "name", name))


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (lambda: rename(1, "decode"), "two methods are called 'decode'"),
        (lambda: rename(4, "vocabulary"), "two methods are called 'vocabulary'"),
        (lambda: rename(3, "decode"), "two methods are called 'decode'"),
        (lambda: rename(2, ""), "the name of method 2 has 0 bytes; 1 to 128 are supported"),
        (lambda: rename(5, "x" * (MAX_METHOD_NAME + 1)), "the name of method 5 has 129 bytes"),
        (lambda: plans(lambda found: found.clear()), "none of the program's 0 methods computes anything"),
        (lambda: plans(lambda found: found.__delitem__(slice(0, 3))), "none of the program's 3 methods computes"),
        (lambda: plans(lambda found: found[2].values.clear()), "refers to a value that does not exist"),
        (lambda: plans(lambda found: found[4].values.clear()), "refers to a value that does not exist"),
        (lambda: plans(lambda found: found[0].chains.clear()), "the method has 0 chains"),
        (lambda: plans(lambda found: found[5].chains.clear()), "the method has 0 chains"),
    ],
)  # fmt: skip
def test_a_method_that_is_wrong_is_refused_whichever_is_asked_for(data: Any, said: str) -> None:
    with pytest.raises(ProgramRejected, match=said):
        parse_pte(data(), method="encode")


def test_a_name_as_long_as_names_may_be() -> None:
    assert parse_pte(rename(1, "x" * MAX_METHOD_NAME), method="x" * MAX_METHOD_NAME).method == "x" * MAX_METHOD_NAME


@pytest.mark.slow
def test_mutated_files_are_rejected_or_read() -> None:
    """Names, plans and values are changed, and what several methods share."""
    read = 0
    for mutant in islice(mutants((REPOSITORY / "tests" / "fuzz_seeds" / "methods.pte").read_bytes(), 20261127), 1500):
        try:
            methods = read_methods(mutant.data, "mutant.pte")
        except ProgramRejected as error:
            assert len(str(error)) < 1000
            continue
        read += 1
        names = [one.method for one in methods]
        assert len({*names, *methods[0].constants}) == len(names) + len(methods[0].constants) and "" not in names
        assert all(parse_pte(mutant.data, method=name).method == name for name in names)
        try:
            assert parse_pte(mutant.data).method in names
        except ConfigError:
            assert len(names) > 1 and "forward" not in names
    assert 100 < read < 1400


def many(count: int) -> bytes:
    """A program with so many methods that compute, and as many constants."""

    def edit(found: list[Any]) -> None:
        for number in range(count):
            for like in (found[1], found[3]):
                found.append(copy.copy(like))
                found[-1].name = f"{like.name}_{number}"

    return plans(edit)


@pytest.mark.slow
def test_thousands_of_methods_are_read_in_time_linear_in_their_number() -> None:
    seconds = []
    for data in (many(500), many(2000)):
        with garbage_collection_paused():  # what it takes depends on the objects that other tests left
            started = time.thread_time()
            file = parse_pte(data, method="encode_7")
            seconds.append(time.thread_time() - started)
    assert len(file.methods) == 2003 and len(file.constants) == 2003
    assert seconds[1] < 8 * seconds[0]
    with pytest.raises(ConfigError) as caught:
        parse_pte(data)
    assert len(str(caught.value)) < 500


def test_methods_that_share_one_plan_cannot_multiply_the_work() -> None:
    """Entries of the vector of plans may all lead to one plan: they have equal names."""
    data = bytearray(three_methods())
    tree = many(50)
    assert parse_pte(tree, method="encode")
    from cortex_m_hil.program.flatbuffers import FlatbufferReader, Table
    from cortex_m_hil.program.pte_reader import read_header

    reader = FlatbufferReader(bytes(data), read_header(bytes(data), "").program_size, "")
    at = Table(reader, reader.integer(0, "I", "root"), "Program").target("execution_plan")
    assert at is not None
    first = at + 4 + reader.integer(at + 4, "I", "first")
    for number in range(1, reader.integer(at, "I", "count")):
        place = at + 4 + 4 * number
        data[place : place + 4] = (first - place).to_bytes(4, "little")
    with pytest.raises(ProgramRejected, match="two methods are called 'decode'"):
        parse_pte(bytes(data), method="decode")
