"""Bundled programs: what ExecuTorch writes is read, what contradicts itself or the program is refused."""

from __future__ import annotations

import functools
import importlib.util
import re
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from bundling import bundle
from cortex_m_hil import load_program
from cortex_m_hil.errors import ProgramRejected
from cortex_m_hil.program import schema
from cortex_m_hil.program.bpte_file import parse_bpte, read_cases, read_program
from cortex_m_hil.program.known_answer import known_answer
from cortex_m_hil.program.program import References
from cortex_m_hil.targets.cpu import Isa
from paths import REPOSITORY

KNOWN = known_answer(Isa.DSP)
INPUT, EXPECTED = KNOWN.inputs[0].array(), KNOWN.expected[0].array()


def bundled(cases: Sequence[tuple[Any, Any]], method: str = "forward", pte: bytes = KNOWN.program) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "program.pte"
        path.write_bytes(pte)
        return bundle(path, cases, method)


@functools.cache
def whole() -> bytes:
    """Two cases, the second without expected outputs."""
    return bundled([((INPUT,), (EXPECTED,)), ((INPUT * 2,), None)])


def tables() -> dict[str, str]:
    spec = importlib.util.find_spec("executorch")
    assert spec is not None and spec.submodule_search_locations
    folder = Path(next(iter(spec.submodule_search_locations))) / "devtools" / "bundled_program" / "schema"
    text = re.sub(r"//.*", "", (folder / "bundled_program_schema.fbs").read_text())
    assert re.findall(r'file_identifier "(....)"', text)[0].encode() == schema.BUNDLED_IDENTIFIER
    return {
        **dict(re.findall(r"\btable (\w+)[^{]*\{(.*?)\}", text, re.DOTALL)),
        **dict(re.findall(r"\bunion (\w+)[^{]*\{(.*?)\}", text, re.DOTALL)),
    }


def test_every_slot_is_the_schemas() -> None:
    found = tables()
    assert re.findall(r"\w+", found["ValueUnion"]) == [kind.value for kind in schema.BUNDLED_VALUES]
    names = {"BundledValue": "Value", "BundledTensor": "Tensor"}
    numbers = {name: schema.FIELDS[name] for name in ("Int", "Bool", "Double")}
    for table, fields in {**schema.BUNDLED_FIELDS, **numbers}.items():
        theirs = re.findall(r"(\w+)\s*:\s*(\[?[\w.]+\]?)", re.sub(r"\(.*?\)", "", found[names.get(table, table)]))
        ours = {
            name: "executorch_flatbuffer.ScalarType" if name == "scalar_type" else kind for name, kind in fields.items()
        }
        assert dict(theirs) == ours and list(dict(theirs)) == list(ours), table


def test_what_executorch_writes_is_read() -> None:
    program = load_program(whole())
    assert program.pte == KNOWN.program
    one, other = program.cases
    assert [case.name for case in program.cases] == ["program, test case 0", "program, test case 1"]
    np.testing.assert_array_equal(one.inputs[0].array(), INPUT)
    np.testing.assert_array_equal(other.inputs[0].array(), INPUT * 2)
    assert one.reference is not None and other.reference is None
    expected = one.reference(one.inputs).expected
    assert expected is not None
    np.testing.assert_array_equal(expected[0], EXPECTED)
    assert one.reference(other.inputs) == References()
    assert (program.inputs, program.reference) == (one.inputs, one.reference)
    assert load_program(KNOWN.program).cases == read_cases(KNOWN.program) == ()
    assert [(case.name, case.inputs) for case in read_cases(whole(), "a/b.bpte")] == [
        ("b, test case 0", one.inputs), ("b, test case 1", other.inputs),
    ]  # fmt: skip


def test_an_input_is_laid_out_as_the_program_takes_it() -> None:
    """ExecuTorch bundles each tensor contiguous, whatever it was."""
    pte = (REPOSITORY / "tests" / "fuzz_seeds" / "conv.pte").read_bytes()
    image = np.arange(32, dtype=np.float32).reshape(1, 2, 4, 4)
    taken = torch.from_numpy(image).to(memory_format=torch.channels_last)
    data = bundled([((taken,), None)], pte=pte)
    [written] = parse_bpte(data)[1]
    assert written.inputs[0].spec.dim_order == (0, 1, 2, 3)
    [case] = load_program(data).cases
    assert case.inputs[0].spec.dim_order == (0, 2, 3, 1) == case.file.input_specs()[0].dim_order
    np.testing.assert_array_equal(case.inputs[0].array(), image)


@pytest.mark.parametrize(
    ("cases", "method", "said"),
    [
        ([((INPUT,), (EXPECTED,))], "backward", "test case 0 is for method 'backward', and the program has forward"),
        ([((INPUT, INPUT), None)], "forward", "test case 0 has 2 inputs, the program 1"),
        ([((INPUT,), None), ((), None)], "forward", "test case 1 has 0 inputs, the program 1"),
        ([((INPUT[:, :8],), None)], "forward", "has float32[1, 8] for input 0, the program float32[1, 16]"),
        ([((INPUT.astype(np.int8),), None)], "forward", "has int8[1, 16] for input 0"),
        ([((3,), None)], "forward", "has Int for input 0"),
        ([((INPUT,), (EXPECTED[0],))], "forward", "has float32[8] for output 0, the program float32[1, 8]"),
        ([((INPUT,), (EXPECTED, EXPECTED))], "forward", "test case 0 has 2 outputs, the program 1"),
    ],
)
def test_a_case_that_does_not_fit_the_program(cases: Any, method: str, said: str) -> None:
    with pytest.raises(ProgramRejected) as caught:
        read_program(bundled(cases, method), "x.bpte")
    assert said in str(caught.value) and str(caught.value).startswith("x.bpte: test case ")


def test_numbers_of_each_kind_are_read() -> None:
    _, [case] = parse_bpte(bundled([((7, True, 0.5, -(2**40)), None)]))
    assert [value.item() for value in case.inputs] == [7, True, 0.5, -(2**40)]
    assert [type(value.item()) for value in case.inputs] == [int, bool, float, int]


def test_another_version_is_told() -> None:
    data = whole()
    with pytest.raises(ProgramRejected, match=r"x: a bundled program of version b'BP07'; b'BP08' is read"):
        read_program(data[:4] + b"BP07" + data[8:], "x")


# --- bad files -------------------------------------------------------------------------------------------


def only_rejects(data: bytes) -> None:
    try:
        for case in read_program(data).cases:
            assert case.reference is None or case.reference(case.inputs).expected is not None
    except ProgramRejected as error:
        assert len(str(error)) < 1000


def test_every_truncation_is_rejected_or_read() -> None:
    """What is cut may be padding at the end."""
    for length in range(0, len(whole()) - 4, 3):
        only_rejects(whole()[:length])


@pytest.mark.slow
def test_every_changed_byte_is_survived() -> None:
    data = whole()
    for at in range(len(data)):
        only_rejects(data[:at] + bytes([data[at] ^ 0xFF]) + data[at + 1 :])


@pytest.mark.slow
@settings(max_examples=500)
@given(
    st.lists(
        st.tuples(
            st.integers(0, 10**6),
            st.one_of(st.integers(0, 2**32 - 1), st.sampled_from([0, 1, 2**31 - 1, 2**31, 2**32 - 1, 4, 64])),
            st.sampled_from([1, 2, 4]),
        ),
        min_size=1,
        max_size=6,
    ),
    st.one_of(st.none(), st.integers(8, 6000)),
)
def test_mutated_files_are_rejected_or_read(edits: list[tuple[int, int, int]], cut: int | None) -> None:
    changed = bytearray(whole())
    for at, word, width in edits:
        start = 8 + at % (len(changed) - 12)  # behind the identifier
        changed[start : start + width] = word.to_bytes(4, "little")[:width]
    only_rejects(bytes(changed[:cut]))


@settings(max_examples=200)
@given(st.binary(max_size=400))
def test_arbitrary_bytes_are_rejected(data: bytes) -> None:
    only_rejects(b"\x10\0\0\0BP08" + data)
