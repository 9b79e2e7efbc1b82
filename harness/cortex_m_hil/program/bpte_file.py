"""ExecuTorch's bundled programs (`.bpte`): a `.pte` with test cases, each with inputs and expected outputs.

The schema is `devtools/bundled_program/schema` of ExecuTorch's wheel. Every offset is checked; a tensor's data has to
be as long as its shape says.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from cortex_m_hil.errors.text import counted, printable
from cortex_m_hil.program.flatbuffers import FlatbufferReader, Table
from cortex_m_hil.program.methods import choose_method, listed
from cortex_m_hil.program.program import Program, References
from cortex_m_hil.program.pte_file import MAX_RANK, PteFile
from cortex_m_hil.program.pte_reader import read_methods
from cortex_m_hil.program.schema import BUNDLED_IDENTIFIER, BUNDLED_VALUES, DTYPES, ValueKind
from cortex_m_hil.program.tensor import MAX_TENSOR_BYTES, HostTensor, TensorSpec

SUFFIXES: Final = (".pte", ".bpte")
"""Suffixes of the files that `read_program` reads. They tell a file's name from a generated network's."""
_AGAIN: Final = "bundle the program again, with inputs like those that it was exported with"


@dataclass(frozen=True, slots=True)
class BundledCase:
    """One test case of a method; ``expected`` is empty where only inputs are bundled."""

    method: str
    inputs: tuple[HostTensor, ...]
    expected: tuple[HostTensor, ...]


def read_program(data: bytes, source: str = "", method: str = "") -> Program:
    """Read a `.pte`, or a `.bpte` with its test cases.

    Args:
        data: the content of the file. Bytes that are no program raise ProgramRejected and nothing else.
        source: the file's name, for messages.
        method: the name of the method; "" for `forward`, or the only one that computes.

    Raises:
        ProgramRejected: the bytes are no program that is supported, or a test case does not fit its method.
        ConfigError: there is no such method, or there are several and `method` is "".
    """
    if not _is_bundled(data):
        return Program.from_bytes(data, source, method)
    files, cases = _read_bundled(data, printable(source))
    return Program.from_file(choose_method(files, printable(source), method)).with_cases(cases)


def read_cases(data: bytes, source: str = "") -> tuple[Program, ...]:
    """Return the test cases of all methods of a `.bpte`, in the file's order; none of a `.pte`.

    Args:
        data: the content of the file. Bytes that are no program raise ProgramRejected and nothing else.
        source: the file's name, for messages.

    Raises:
        ProgramRejected: the bytes are no program that is supported, or a test case does not fit its method.
    """
    if _is_bundled(data):
        return _read_bundled(data, printable(source))[1]
    read_methods(data, printable(source))
    return ()


def _read_bundled(data: bytes, source: str) -> tuple[list[PteFile], tuple[Program, ...]]:
    """Return the methods and the test cases of a bundled program."""
    pte, cases = parse_bpte(data, source)
    files = {file.method: file for file in read_methods(pte, source)}
    reader = FlatbufferReader(data, len(data), source)
    for number, case in enumerate(cases):
        for problem in _misfits(files, case):
            raise reader.fail(f"test case {number} {problem}", hint=_AGAIN)
    numbers = {name: itertools.count() for name in files}
    made = tuple(_case(Program.from_file(files[one.method]), next(numbers[one.method]), one) for one in cases)
    return [*files.values()], made


def extract_pte(data: bytes, source: str = "") -> bytes:
    """Return the program in a file's bytes: the `.pte` in a `.bpte`, and a `.pte` as it is. Raises as `parse_bpte`."""
    return parse_bpte(data, source)[0] if _is_bundled(data) else data


def _is_bundled(data: bytes) -> bool:
    return data[4:6] == BUNDLED_IDENTIFIER[:2]


def parse_bpte(data: bytes, source: str = "") -> tuple[bytes, tuple[BundledCase, ...]]:
    """Return the `.pte` of a bundled program, and its test cases in the file's order.

    Args:
        data: the content of the file.
        source: the file's name, for messages.

    Raises:
        ProgramRejected: the file is damaged, or of another version.
    """
    reader = FlatbufferReader(data, len(data), source)
    if data[4:8] != BUNDLED_IDENTIFIER:
        problem = f"a bundled program of version {data[4:8]!r}; {BUNDLED_IDENTIFIER!r} is read"
        raise reader.fail(problem, hint="bundle it with ExecuTorch 1.4 or newer")
    root = Table(reader, reader.integer(0, "I", "root offset"), "BundledProgram")
    cases = tuple(
        BundledCase(suite.text("method_name"), _values(case, "inputs"), _values(case, "expected_outputs"))
        for suite in root.children("method_test_suites", "BundledMethodTestSuite")
        for case in suite.children("test_cases", "BundledMethodTestCase")
    )
    return root.data("program"), cases


def _values(case: Table, name: str) -> tuple[HostTensor, ...]:
    return tuple(_value(table, f"{name} {number}") for number, table in enumerate(case.children(name, "BundledValue")))


def _value(table: Table, where: str) -> HostTensor:
    number = table.integer("val_type", "B")
    kind = BUNDLED_VALUES[number - 1] if 1 <= number <= len(BUNDLED_VALUES) else None
    body = None
    if kind is not None:
        body = table.child("val", "BundledTensor" if kind is ValueKind.TENSOR else kind.value)
    if kind is None or body is None:
        raise table.reader.fail(f"{where} is of unknown kind {number}")
    if kind is ValueKind.TENSOR:
        return _tensor(body, where)
    if kind is ValueKind.INT:
        return HostTensor.from_scalar(body.integer("int_val", "q"))
    if kind is ValueKind.BOOL:
        return HostTensor.from_scalar(bool(body.integer("bool_val", "B")))
    return HostTensor.from_scalar(body.double("double_val"))


def _tensor(body: Table, where: str) -> HostTensor:
    dtype = body.integer("scalar_type", "b")
    shape, dim_order = body.integers("sizes", "i"), body.integers("dim_order", "B")
    if dtype not in DTYPES:
        raise body.reader.fail(f"{where} has dtype number {dtype}, which is not supported")
    if len(shape) > MAX_RANK or any(size < 0 for size in shape):
        raise body.reader.fail(f"{where} has an absurd shape of rank {len(shape)}: {shape[:MAX_RANK]}")
    if sorted(dim_order) != list(range(len(shape))):
        raise body.reader.fail(f"{where} of rank {len(shape)} has dim order {dim_order[:MAX_RANK]}")
    spec, data = TensorSpec(DTYPES[dtype], shape, dim_order), body.data("data")
    if spec.nbytes > MAX_TENSOR_BYTES or len(data) != spec.nbytes:
        raise body.reader.fail(f"{where}, {spec}, takes {spec.nbytes} bytes, and {len(data)} are bundled")
    return HostTensor(spec, data)


def _misfits(files: Mapping[str, PteFile], case: BundledCase) -> Iterator[str]:
    """Yield each reason why a test case does not fit: its method, or the number, kind, dtype or shape of its values."""
    if case.method not in files:
        yield f"is for method {case.method!r}, and the program has {listed([*files])}"
        return
    file = files[case.method]
    yield from _mismatches("input", file.input_specs(), case.inputs)
    if case.expected:
        yield from _mismatches("output", file.output_specs(), case.expected)


def _mismatches(role: str, specs: Sequence[TensorSpec], given: Sequence[HostTensor]) -> Iterator[str]:
    if len(specs) != len(given):
        yield f"has {counted(len(given), role)}, the program {len(specs)}"
        return
    for number, (spec, value) in enumerate(zip(specs, given, strict=True)):
        if _logical(spec) != _logical(value.spec):
            yield f"has {value.spec} for {role} {number}, the program {spec}"


def _logical(spec: TensorSpec) -> tuple[ValueKind, str, tuple[int, ...]]:
    return spec.kind, spec.dtype, spec.shape


def _case(program: Program, number: int, case: BundledCase) -> Program:
    """Return the program with a test case's inputs, and its expected outputs as the reference for these inputs.

    The schema defines the expected outputs as those of the module in eager mode; ExecuTorch's compiler stores those of
    the fake-quantised module.
    ExecuTorch bundles every tensor contiguous (`TensorSpec.from_tensor(const=True)`), whatever the program takes.
    """
    specs = program.file.input_specs()
    inputs = tuple(_laid_out(value, spec) for value, spec in zip(case.inputs, specs, strict=True))

    def reference(given: tuple[HostTensor, ...]) -> References:
        outputs = tuple(one.array() for one in case.expected)
        return References(expected=outputs, eager=outputs) if given == inputs else References()

    name = f"{program.name}, test case {number}"
    return replace(program, name=name, inputs=inputs, reference=reference if case.expected else None)


def _laid_out(value: HostTensor, spec: TensorSpec) -> HostTensor:
    """Return a tensor with its values laid out in the dim order of the program's input."""
    return value if value.spec.same_memory(spec) else HostTensor.from_array(value.array(), spec.dim_order)
